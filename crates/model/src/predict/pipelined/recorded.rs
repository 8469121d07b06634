//! Recorded pipelined tasks, and both predictors of their time with other durations and executors.

use pellucid_trace::Trace;

use super::held::describe_held;
use crate::index::{Ix, ResourceIx, SlotIx, Table, TaskIx};
use crate::numbers::{self, ms};
use crate::pipelined::SlowTasks;
use crate::pipelined::replay::allocation::DynamicAllocation;
use crate::pipelined::replay::bounds::Replays;
use crate::pipelined::replay::schedule::Arrival;
use crate::pipelined::replay::simulate::{Change, Slots, replay};
use crate::whatif::WhatIfError;

/// The recorded tasks, their replay, and the slow ones with their corrected times.
pub(super) struct Recorded<'t> {
    pub replays: Replays<'t>,
    pub at_median_ns: Vec<(TaskIx, u64)>,
    pub even_ns: Vec<(TaskIx, u64)>,
}

/// Executors in place of the recorded ones.
pub(super) struct Executors {
    /// When each executor arrives, and its slots.
    pub slots: Vec<(Arrival, usize)>,
    /// Idle time after which an executor is removed.
    pub idle_timeout_ns: Option<u64>,
}

impl<'t> Recorded<'t> {
    /// Reads a trace and replays it once.
    ///
    /// # Errors
    /// Returns an error if no job in the trace took any time.
    pub fn of(trace: &'t Trace) -> Result<Recorded<'t>, WhatIfError> {
        let replays = Replays::of(trace);
        if replays.error().is_none() || replays.tasks.all.is_empty() {
            return Err(WhatIfError::Failed(
                "cannot predict: the log holds no job that ran tasks; use a log of a run with jobs".into(),
            ));
        }
        let SlowTasks { at_median_ns, even_ns, .. } = SlowTasks::of(&replays);
        Ok(Recorded { replays, at_median_ns, even_ns })
    }

    /// Returns when each executor that ran tasks arrived, and its slots, ordered by first task.
    pub fn executors(&self) -> Vec<(Arrival, usize)> {
        let mut executors: Vec<(ResourceIx, Arrival, usize)> = Vec::new();
        for slot in &self.replays.schedule.slots {
            match executors.iter_mut().find(|(resource, ..)| *resource == slot.resource) {
                Some((.., slots)) => *slots += 1,
                None => executors.push((slot.resource, slot.added, 1)),
            }
        }
        let capacity = |resource: ResourceIx| self.replays.trace.resources[resource.at()].capacity;
        let whole =
            |resource, used: usize| capacity(resource).map_or(used, |c| (c as usize).clamp(used, 4096));
        executors.into_iter().map(|(resource, added, used)| (added, whole(resource, used))).collect()
    }

    /// Returns the analytic time of the stages on this many slots. Ignores waves, gaps and overlapping
    /// stages.
    pub fn analytic_ms(&self, durations_ns: &[u64], slots: Option<usize>) -> f64 {
        let schedule = &self.replays.schedule;
        let now = slots_of(&self.executors()).len().max(1);
        let of_stage = schedule.by_stage.iter().zip(&schedule.stages).filter_map(|(tasks, place)| {
            let used = place.as_ref()?.lanes.len().max(1);
            let lanes = slots.map_or(used, |slots| (used * slots).div_ceil(now).clamp(1, tasks.len().max(1)));
            let times = tasks.iter().map(|ix| durations_ns[ix.at()] as f64);
            let longest = times.clone().fold(0.0, f64::max);
            Some((times.sum::<f64>() / lanes as f64).max(longest))
        });
        ms(of_stage.sum())
    }

    /// Returns the jobs' time with these durations and executors, and a description of the slot time held
    /// where executors come and go.
    pub fn simulated_ms(&self, durations_ns: &[u64], executors: Option<&Executors>) -> (f64, Option<String>) {
        let r = &self.replays;
        let Some(executors) = executors else { return (r.with(durations_ns).jobs_ms(), None) };
        let open = |durations_ns, slots: &Table<SlotIx, Arrival>, idle| {
            replay(&r.schedule, Change { slots: Slots::Open(slots), idle, ..Change::of(durations_ns) })
        };
        let allocation = |timeout_ns| DynamicAllocation::of(&r.schedule, &executors.slots, timeout_ns);
        let idle = executors.idle_timeout_ns.map(allocation);
        let changed = open(durations_ns, &slots_of(&executors.slots), idle.as_ref());
        let unchanged = open(&r.tasks.durations_ns(), &slots_of(&self.executors()), None).jobs_ms();
        let ratio = numbers::ratio(changed.jobs_ms(), unchanged).unwrap_or(1.0);
        (r.unchanged.jobs_ms() * ratio, idle.map(|_| describe_held(r, changed.held_ns)))
    }
}

/// Returns when each slot of these executors arrives.
pub(super) fn slots_of(executors: &[(Arrival, usize)]) -> Table<SlotIx, Arrival> {
    executors.iter().flat_map(|(added, slots)| vec![*added; *slots]).collect()
}
