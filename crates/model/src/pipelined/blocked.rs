//! Blocked time: how long tasks were stalled on each resource, and how long they take without that.
//!
//! Blocked-time-nsdi15 §2.3.1 measures from the compute thread's point of view. Spark's metrics cover
//! waiting for shuffle data, writing shuffle files, GC, the scheduler and deserialization. Reading input,
//! or shuffle data from a local disk, is part of the run time that no metric separates, so only a bound
//! is known. Waiting for shuffle data involves both the network and the disks it is read from, and cannot
//! be divided (§3.1, §4.1): it counts in full towards the bound of each.

use super::task::{Part, Task};
use crate::analysis::{BlockedTime, BlockedTimes};

/// A kind of blocked time that an analysis can remove from tasks.
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
    /// Returns the kind that `no=` names; all but input have a name.
    pub fn named(name: &str) -> Option<Without> {
        Some(match name {
            "disk" => Without::Disk,
            "network" => Without::Network,
            "gc" => Without::Gc,
            "scheduler" => Without::Scheduler,
            "deserialize" => Without::Deserialize,
            _ => return None,
        })
    }

    /// Returns its time among sums over tasks; input is a part of the disk's.
    pub fn time_of(self, times: &mut BlockedTimes) -> Option<&mut BlockedTime> {
        Some(match self {
            Without::Disk => &mut times.disk,
            Without::Network => &mut times.network,
            Without::Gc => &mut times.gc,
            Without::Scheduler => &mut times.scheduler,
            Without::Deserialize => &mut times.deserialize,
            Without::Input => return None,
        })
    }

    /// Returns the parts that certainly belong to it, and those that may.
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

    /// Returns how long the task was certainly blocked on it, and at most; `None` where nothing is known.
    pub fn blocked_ms(self, task: &Task) -> Option<(f64, f64)> {
        let (certain, possible) = self.parts();
        let (mut measured, mut bounded, mut known) = (0.0, 0.0_f64, false);
        for part in certain {
            let Some(measure) = task.part(*part) else { continue };
            known = true;
            // Several bounds may cover the same unexplained time, so only the largest counts.
            match measure.at_most {
                true => bounded = bounded.max(measure.ms),
                false => measured += measure.ms,
            }
        }
        let mut most = measured + bounded;
        for measure in possible.iter().filter_map(|part| task.part(*part)) {
            (known, most) = (true, most + measure.ms);
        }
        let whole = task.duration_ms();
        known.then_some((measured.min(whole), most.min(whole)))
    }
}

/// Writing shuffle files and spills, and reading them back, which few logs measure.
pub(crate) const SHUFFLE_FILES: &[Part] = &[Part::ShuffleRead, Part::ShuffleWrite, Part::Spill];

/// Returns the measured time of these parts of the task.
pub(crate) fn measured_ms(task: &Task, parts: &[Part]) -> f64 {
    parts.iter().filter_map(|part| task.measured(*part)).sum()
}

/// Returns the time to ship and deserialize a task.
pub(crate) fn overhead_ms(task: &Task) -> f64 {
    measured_ms(task, &[Part::Scheduler, Part::Deserialize])
}

/// Returns each task's duration without the measured time of these parts, in nanoseconds.
pub(crate) fn durations_less(tasks: &[Task], parts: &[Part]) -> Vec<u64> {
    let left = |task: &Task| task.duration_ns.saturating_sub((measured_ms(task, parts) * 1e6) as u64);
    tasks.iter().map(left).collect()
}

/// Sums blocked times over tasks.
pub(crate) fn blocked<'t>(tasks: impl Iterator<Item = &'t Task>) -> BlockedTimes {
    let mut out = BlockedTimes::default();
    for task in tasks {
        add(&mut out.disk, Without::Disk.blocked_ms(task));
        // The wait for shuffle data is measured; counting all of it as network is the bound.
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

/// Returns each task's duration without some kinds of blocked time, in nanoseconds. `at_most` also
/// removes time that is only bounded.
pub(crate) fn durations_without(tasks: &[Task], without: &[Without], at_most: bool) -> Vec<u64> {
    let left = |task: &Task| {
        let gone = without.iter().filter_map(|w| w.blocked_ms(task));
        let gone: f64 = gone.map(|(measured, most)| if at_most { most } else { measured }).sum();
        task.duration_ns.saturating_sub((gone * 1e6) as u64)
    };
    tasks.iter().map(left).collect()
}
