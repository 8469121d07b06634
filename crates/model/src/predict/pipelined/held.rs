//! The slot time that executors held.

use pellucid_trace::kind;

use crate::numbers::ratio;
use crate::pipelined::replay::bounds::Replays;

/// Describes the slot time held from the first job to the last, in a replay and as recorded.
pub(crate) fn describe_held(r: &Replays, replayed_ns: u64) -> String {
    let jobs = || r.schedule.jobs.iter().flatten();
    let first = jobs().map(|j| j.submitted_ns).min().unwrap_or(0);
    let last = jobs().map(|j| j.ended_ns).max().unwrap_or(0);
    let slots = r.trace.resources.iter().filter(|resource| resource.kind == kind::SLOTS);
    let there = slots.map(|resource| {
        let from = resource.added_ns.unwrap_or(0).max(first);
        let until = resource.removed_ns.unwrap_or(last).min(last);
        resource.capacity.unwrap_or(0.0) * until.saturating_sub(from) as f64
    });
    let (then, now): (f64, f64) = (replayed_ns as f64, there.sum());
    let busy: f64 = r.tasks.all.iter().map(|task| task.duration_ns as f64).sum();
    let idle = |held: f64| 100.0 * ratio((held - busy).max(0.0), held).unwrap_or(0.0);
    format!(
        "slots are held for {:.1} s from the first job to the last, {:.0} % of it idle; recorded: {:.1} s, {:.0} %",
        then / 1e9,
        idle(then),
        now / 1e9,
        idle(now)
    )
}
