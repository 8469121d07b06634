//! Division of the application's time: jobs running, the driver alone, waiting for executors.
//!
//! The three sum to the application's time. While a job runs without any executor, it waits for the
//! cluster; the user sees that time as part of the job. Whether the present executors are enough is a
//! question for the replay.

use pellucid_trace::{Trace, kind, union_ns};

use super::replay::schedule::Schedule;
use super::task::Tasks;
use crate::analysis::{IdleSlots, WallClock};
use crate::numbers::ms;

/// Returns the application's recorded start and end.
pub(crate) fn span(trace: &Trace, schedule: &Schedule, tasks: &Tasks) -> Option<(u64, u64)> {
    let application = trace.application.as_ref();
    let jobs = schedule.jobs.iter().flatten();
    let first = jobs.clone().map(|j| j.submitted_ns).chain(tasks.all.first().map(|t| t.launched_ns)).min();
    let last_task = tasks.all.iter().map(|t| t.ended_ns()).max();
    let last = jobs.map(|j| j.ended_ns).chain(last_task).max();
    let executors = trace.resources.iter().filter_map(|r| r.added_ns).max();
    let started = application.and_then(|a| a.started_ns).or(first)?;
    // A killed application's last job may end after the application's recorded end.
    let ended = [application.and_then(|a| a.ended_ns), last, executors].into_iter().flatten().max()?;
    Some((started.min(first.unwrap_or(started)), ended.max(started)))
}

/// Divides the application's time.
pub(crate) fn wall_clock(trace: &Trace, schedule: &Schedule, tasks: &Tasks) -> WallClock {
    let Some((started, ended)) = span(trace, schedule, tasks) else { return WallClock::default() };
    let jobs: Vec<(u64, u64)> =
        schedule.jobs.iter().flatten().map(|j| (j.submitted_ns, j.ended_ns)).collect();
    let in_jobs = union_ns(jobs.clone());
    let executors: Vec<(u64, u64)> = trace
        .resources
        .iter()
        .filter(|r| r.kind == kind::SLOTS)
        .map(|r| {
            (r.added_ns.unwrap_or(started), r.removed_ns.unwrap_or(ended).max(r.added_ns.unwrap_or(started)))
        })
        .collect();
    // A log without executor arrivals does not tell when there were none.
    let recorded = trace.resources.iter().any(|r| r.kind == kind::SLOTS && r.added_ns.is_some());
    // Time with a job or an executor, minus time with an executor, is time with a job alone.
    let with_either = union_ns(jobs.into_iter().chain(executors.iter().copied()).collect());
    let waiting = recorded.then(|| with_either.saturating_sub(union_ns(executors)));
    WallClock {
        jobs_ms: Some(ms((in_jobs - waiting.unwrap_or(0).min(in_jobs)) as f64)),
        driver_only_ms: Some(ms((ended - started).saturating_sub(in_jobs) as f64)),
        waiting_for_executors_ms: waiting.map(|ns| ms(ns as f64)),
    }
}

/// Returns the time that slots were present, and how much of it they were idle.
pub(crate) fn idle(trace: &Trace, schedule: &Schedule, tasks: &Tasks) -> Option<IdleSlots> {
    let (started, ended) = span(trace, schedule, tasks)?;
    let jobs: Vec<(u64, u64)> =
        schedule.jobs.iter().flatten().map(|j| (j.submitted_ns, j.ended_ns)).collect();
    let jobs = DisjointIntervals::of(jobs);
    let (mut slot_ns, mut without_job_ns) = (0.0, 0.0);
    for resource in trace.resources.iter().filter(|r| r.kind == kind::SLOTS) {
        let from = resource.added_ns?.max(started);
        let until = resource.removed_ns.unwrap_or(ended).clamp(from, ended.max(from));
        let slots = resource.capacity.filter(|c| c.is_finite())?;
        slot_ns += slots * (until - from) as f64;
        without_job_ns += slots * (until - from - jobs.within_ns(from, until)) as f64;
    }
    let busy: f64 = tasks.all.iter().map(|t| t.duration_ns as f64).sum();
    (slot_ns > 0.0).then(|| IdleSlots {
        slot_ms: ms(slot_ns),
        idle_ms: ms((slot_ns - busy).max(0.0)),
        idle_without_job_ms: ms(without_job_ns),
    })
}

/// Disjoint intervals, each with the total length of those before it. Prefix sums keep many executors
/// times many jobs fast.
struct DisjointIntervals(Vec<(u64, u64, u64)>);

impl DisjointIntervals {
    fn of(mut intervals: Vec<(u64, u64)>) -> DisjointIntervals {
        intervals.sort_unstable();
        let mut disjoint: Vec<(u64, u64, u64)> = Vec::new();
        for (from, until) in intervals {
            match disjoint.last_mut() {
                Some((_, last, _)) if from <= *last => *last = until.max(*last),
                last => {
                    let before = last.map_or(0, |(from, until, before)| *before + (*until - *from));
                    disjoint.push((from, until.max(from), before));
                }
            }
        }
        DisjointIntervals(disjoint)
    }

    /// Returns the covered time between two instants.
    fn within_ns(&self, from: u64, until: u64) -> u64 {
        let by = |at: u64| {
            let started_before = self.0.partition_point(|(from, ..)| *from <= at);
            let last = started_before.checked_sub(1).map(|ix| self.0[ix]);
            last.map_or(0, |(from, until, before)| before + at.min(until) - from)
        };
        by(until) - by(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_ns_matches_the_union_of_intervals() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let intervals: Vec<(u64, u64)> = (0..next(6))
                .map(|_| {
                    let from = next(50);
                    (from, from + next(20))
                })
                .collect();
            let from = next(60);
            let until = from + next(30);
            let all = union_ns(intervals.clone());
            let either = union_ns(intervals.iter().copied().chain([(from, until)]).collect());
            let within = DisjointIntervals::of(intervals.clone()).within_ns(from, until);
            assert_eq!(until - from - within, either - all, "{from}..{until} of {intervals:?}");
        }
    }
}
