//! Upper bounds of what fixing a problem can gain: the jobs' time without it.
//!
//! Each bound is a replay with shorter tasks, relative to the unchanged replay (blocked-time-nsdi15
//! §2.3.2). `duration` is the measured time multiplied by that ratio. The lower end of the interval
//! removes all time that may have been blocked, the upper end only time that certainly was. Both are
//! widened by the replay's own error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pellucid_trace::{Trace, union_ns};

use super::schedule::Schedule;
use super::simulate::{Change, Replayed, replay};
use crate::analysis::{Bound, ReplayError};
use crate::index::{Ix, TaskIx};
use crate::numbers::{self, ms};
use crate::pipelined::blocked::{Without, durations_without};
use crate::pipelined::task::Tasks;

/// A trace's tasks, their schedule, and the unchanged replay.
pub(crate) struct Replays<'t> {
    pub trace: &'t Trace,
    pub tasks: Tasks,
    pub schedule: Schedule,
    pub unchanged: Replayed,
    pub measured_ms: f64,
    /// Cached replays without a kind of blocked time: bounds, causes and advice need the same ones.
    without: Mutex<BTreeMap<(Without, bool), Arc<Replayed>>>,
}

impl<'t> Replays<'t> {
    /// Reads a trace and replays it once.
    pub fn of(trace: &'t Trace) -> Replays<'t> {
        let tasks = Tasks::of(trace);
        let schedule = Schedule::of(trace, &tasks);
        let unchanged = replay(&schedule, Change::of(&tasks.durations_ns()));
        let jobs = schedule.jobs.iter().flatten().map(|j| (j.submitted_ns, j.ended_ns));
        let measured_ms = ms(union_ns(jobs.collect()) as f64);
        Replays { trace, tasks, schedule, unchanged, measured_ms, without: Mutex::default() }
    }

    /// Replays with other task durations.
    pub fn with(&self, durations_ns: &[u64]) -> Replayed {
        replay(&self.schedule, Change::of(durations_ns))
    }

    /// Replays with the durations of some tasks replaced.
    pub fn with_some(&self, replaced: &[(TaskIx, u64)]) -> Replayed {
        let mut durations = self.tasks.durations_ns();
        replaced.iter().for_each(|(ix, ns)| durations[ix.at()] = *ns);
        self.with(&durations)
    }

    /// Replays without a kind of blocked time: all that may be blocked (`at_most`), or only what
    /// certainly is.
    pub fn without(&self, without: Without, at_most: bool) -> Arc<Replayed> {
        let known = || self.without.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&(without, at_most)).cloned();
        found.unwrap_or_else(|| {
            let replayed = Arc::new(self.with(&durations_without(&self.tasks.all, &[without], at_most)));
            known().insert((without, at_most), replayed.clone());
            replayed
        })
    }

    /// Returns how much of the measured time that saves.
    pub fn saved_without_ms(&self, without: Without, at_most: bool) -> f64 {
        self.saved_ms(&self.without(without, at_most))
    }

    /// Returns the error of the unchanged replay; `None` unless some job took time.
    pub fn error(&self) -> Option<ReplayError> {
        let simulated_ms = self.unchanged.jobs_ms();
        let error = numbers::ratio((simulated_ms - self.measured_ms).abs(), self.measured_ms)?;
        Some(ReplayError { measured_ms: self.measured_ms, simulated_ms, error })
    }

    /// Returns a replay's time, scaled to the measured time.
    pub fn scaled_ms(&self, replayed: &Replayed) -> f64 {
        let ratio = numbers::ratio(replayed.jobs_ms(), self.unchanged.jobs_ms());
        ratio.map_or(self.measured_ms, |ratio| self.measured_ms * ratio)
    }

    /// Returns how much of the measured time a replay saves.
    pub fn saved_ms(&self, replayed: &Replayed) -> f64 {
        (self.measured_ms - self.scaled_ms(replayed)).max(0.0)
    }

    /// Returns the bounds of all jobs together and of each: the best case and the certain gain.
    pub fn bounds(&self, at_median_ns: &[(TaskIx, u64)]) -> Bounds {
        let mut out = Bounds::default();
        let blocked = [("no_disk", Without::Disk), ("no_network", Without::Network), ("no_gc", Without::Gc)];
        for (name, without) in blocked {
            let known = self.tasks.all.iter().filter_map(|t| without.blocked_ms(t));
            let (mut any, mut certain) = (false, true);
            known.for_each(|(sure, most)| (any, certain) = (true, certain && most <= sure));
            if !any {
                continue;
            }
            let sure = self.without(without, false);
            match certain {
                true => self.add(&mut out, name, &sure, None),
                false => self.add(&mut out, name, &self.without(without, true), Some(&sure)),
            }
        }
        if self.tasks.all.len() > 1 {
            self.add(&mut out, "no_stragglers", &self.with_some(at_median_ns), None);
        }
        out
    }

    fn add(&self, out: &mut Bounds, name: &'static str, best: &Replayed, sure: Option<&Replayed>) {
        let error = self.error().map_or(0.0, |e| e.error);
        let bound = |measured_ms: f64, unchanged: f64, best: f64, sure: Option<f64>| {
            let ratio = numbers::ratio(best, unchanged)?;
            let duration_ms = measured_ms * ratio;
            // A greedy schedule may take longer with less work, so either end may be the lower one.
            let sure_ms = numbers::ratio(sure.unwrap_or(best), unchanged)? * measured_ms;
            Some(Bound {
                duration_ms,
                low_ms: duration_ms.min(sure_ms) * (1.0 - error).max(0.0),
                high_ms: duration_ms.max(sure_ms) * (1.0 + error),
                improvement: 1.0 - ratio,
                at_most: sure.is_some(),
            })
        };
        let whole =
            bound(self.measured_ms, self.unchanged.jobs_ms(), best.jobs_ms(), sure.map(Replayed::jobs_ms));
        out.whole.extend(whole.map(|bound| (name, bound)));
        out.jobs.resize(self.schedule.jobs.len(), BTreeMap::new());
        for (ix, (of_job, place)) in
            self.schedule.jobs.indices().zip(out.jobs.iter_mut().zip(&self.schedule.jobs))
        {
            let Some(place) = place else { continue };
            let took =
                |replayed: &Replayed| replayed.jobs[ix].map_or(0.0, |(from, to)| ms((to - from) as f64));
            let measured_ms = ms((place.ended_ns - place.submitted_ns) as f64);
            let bound = bound(measured_ms, took(&self.unchanged), took(best), sure.map(took));
            of_job.extend(bound.map(|bound| (name, bound)));
        }
    }
}

/// Bounds by name.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub whole: BTreeMap<&'static str, Bound>,
    pub jobs: Vec<BTreeMap<&'static str, Bound>>,
}
