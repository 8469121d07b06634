//! Blocked time: how long tasks stalled on what, and how short they would be without that.
//!
//! Blocked-time-nsdi15 §2.3.1 measures from the compute thread's point of view. Spark's
//! own metrics say it for waiting on shuffle data, writing shuffle files, GC, the
//! scheduler and deserialising; reading input and shuffle data from a local disk is
//! within the run time that no metric tells apart, so there is only a bound. Waiting for shuffle data is the
//! network's and the disks' that it is read from, and cannot be divided (§3.1, §4.1):
//! it counts in full towards the bound of each.

use super::task::{Part, Task};
use crate::analysis::{BlockedTime, BlockedTimes};

/// What an analysis may take away from tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Without {
    Disk,
    Network,
    Gc,
    Scheduler,
    Deserialize,
    /// Reading input only.
    Input,
}

impl Without {
    /// The parts that are surely, and those that are perhaps, of it.
    fn parts(self) -> (&'static [Part], &'static [Part]) {
        use Part::*;
        match self {
            Without::Disk => (&[ShuffleRead, ShuffleWrite, Spill, Input, Output], &[Fetch]),
            Without::Network => (&[], &[Fetch]),
            Without::Gc => (&[Gc], &[]),
            Without::Scheduler => (&[Scheduler], &[]),
            Without::Deserialize => (&[Deserialize], &[]),
            Without::Input => (&[Input], &[]),
        }
    }

    /// How long the task was surely, and at most, blocked on it; `None` where nothing is known.
    pub fn blocked_ms(self, task: &Task) -> Option<(f64, f64)> {
        let (sure, perhaps) = self.parts();
        let (mut measured, mut bounded, mut known) = (0.0, 0.0_f64, false);
        for part in sure {
            let Some(measure) = task.part(*part) else { continue };
            known = true;
            // Bounds may be the same unexplained time: the largest holds for all.
            match measure.at_most {
                true => bounded = bounded.max(measure.ms),
                false => measured += measure.ms,
            }
        }
        let mut most = measured + bounded;
        for measure in perhaps.iter().filter_map(|part| task.part(*part)) {
            (known, most) = (true, most + measure.ms);
        }
        let whole = task.duration_ms();
        known.then_some((measured.min(whole), most.min(whole)))
    }
}

/// Files that shuffles write and spills leave: reading them back is measured by few logs.
pub(crate) const SHUFFLE_FILES: &[Part] = &[Part::ShuffleRead, Part::ShuffleWrite, Part::Spill];

/// What of these parts was measured of the task.
pub(crate) fn measured_ms(task: &Task, parts: &[Part]) -> f64 {
    parts.iter().filter_map(|part| task.measured(*part)).sum()
}

/// Shipping and deserialising a task.
pub(crate) fn overhead_ms(task: &Task) -> f64 {
    measured_ms(task, &[Part::Scheduler, Part::Deserialize])
}

/// How long each task takes without what was measured of these parts, in nanoseconds.
pub(crate) fn durations_less(tasks: &[Task], parts: &[Part]) -> Vec<u64> {
    let left = |task: &Task| task.duration_ns.saturating_sub((measured_ms(task, parts) * 1e6) as u64);
    tasks.iter().map(left).collect()
}

/// Sum over tasks.
pub(crate) fn blocked<'t>(tasks: impl Iterator<Item = &'t Task>) -> BlockedTimes {
    let mut out = BlockedTimes::default();
    for task in tasks {
        add(&mut out.disk, Without::Disk.blocked_ms(task));
        // Waiting for shuffle data is measured; that all of it is the network's is the bound.
        let fetch = task.measured(Part::Fetch);
        add(&mut out.network, fetch.map(|ms| (ms, ms)));
        add(&mut out.gc, Without::Gc.blocked_ms(task));
        add(&mut out.scheduler, Without::Scheduler.blocked_ms(task));
        add(&mut out.deserialize, Without::Deserialize.blocked_ms(task));
        add(&mut out.other, task.measured(Part::Rest).map(|ms| (ms, ms)));
        add(&mut out.cpu, task.measured(Part::Cpu).map(|ms| (ms, ms)));
    }
    out
}

fn add(to: &mut BlockedTime, blocked: Option<(f64, f64)>) {
    let Some((measured, most)) = blocked else { return };
    to.measured_ms = Some(to.measured_ms.unwrap_or(0.0) + measured);
    to.at_most_ms = Some(to.at_most_ms.unwrap_or(0.0) + most);
}

/// How long each task takes without something, in nanoseconds: where what is only
/// bounded is all of it (`at_most`), or none.
pub(crate) fn durations_without(tasks: &[Task], without: &[Without], at_most: bool) -> Vec<u64> {
    let left = |task: &Task| {
        let gone = without.iter().filter_map(|w| w.blocked_ms(task));
        let gone: f64 = gone.map(|(measured, most)| if at_most { most } else { measured }).sum();
        task.duration_ns.saturating_sub((gone * 1e6) as u64)
    };
    tasks.iter().map(left).collect()
}
