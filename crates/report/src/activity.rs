//! Activities: intervals on resources, each in one phase, as the timeline and other tools draw them.
//!
//! A monotask is one interval in its phase. For a pipelined task, which uses several resources at once, the
//! source records the length of each part (core time, blocked times) but not *when* it happened. Parts are
//! therefore spread evenly over the task, and the unattributed rest is a separate phase. A sampled task
//! counts by its weight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pellucid_trace::{Blocked, Operation, Outcome, Phase, PipelinedTask, Trace};

/// Phases, each with its key and label. A phase's number is its index here.
pub(crate) const PHASES: [(&str, &str); 14] = [
    ("read", "read"),
    ("fetch", "fetch"),
    ("compute", "compute"),
    ("spill", "spill"),
    ("write", "write"),
    ("blocked_network", "blocked on network"),
    ("blocked_disk", "blocked on disk"),
    ("gc", "garbage collection"),
    ("scheduler", "scheduler delay"),
    ("deserialize", "deserialisation"),
    ("rest", "unattributed"),
    ("sampled", "sampled tasks, by weight"),
    ("other", "other storage operations"),
    ("rest_or_disk", "unattributed, disk at most"),
];
const COMPUTE: u8 = 2;
const REST: u8 = 10;
const SAMPLED: u8 = 11;
const REST_OR_DISK: u8 = 13;

/// An interval of work on a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Activity {
    pub resource: u32,
    /// Number of its phase; for a pipelined task, that of its largest part.
    pub phase: u8,
    /// Time at which it was queued for the resource.
    pub queued_ns: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Number of activities that it represents.
    pub weight: f64,
    /// `None` for storage operations outside stages.
    pub stage: Option<u32>,
    pub partition: Option<u32>,
    pub bytes: Option<u64>,
    pub outcome: Outcome,
}

/// A part of an activity: a phase, and its share of the service.
pub(crate) type Part = (u8, f64);

/// Calls `each` with every activity of a trace and its parts. Activities on unknown resources are skipped.
pub(crate) fn activities(trace: &Trace, mut each: impl FnMut(Activity, &[Part])) {
    let known = |resource: u32| (resource as usize) < trace.resources.len();
    for m in trace.monotasks.iter().filter(|m| known(m.resource)) {
        let multitask = trace.multitasks.get(m.multitask as usize);
        let activity = Activity {
            resource: m.resource,
            phase: of_phase(m.phase),
            queued_ns: m.queued_ns,
            start_ns: m.started_ns(),
            end_ns: m.ended_ns(),
            weight: 1.0,
            stage: multitask.map(|m| m.stage),
            partition: multitask.map(|m| m.partition),
            bytes: m.device_bytes.filter(|b| *b > 0).or(m.bytes),
            outcome: m.outcome,
        };
        each(activity, &[(activity.phase, 1.0)]);
    }
    for task in trace.pipelined_tasks.iter().filter(|t| known(t.resource)) {
        let parts = parts(&task);
        let largest = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(REST, |part| part.0);
        each(pipelined(&task, largest), &parts);
    }
    for task in trace.sampled_tasks.iter().filter(|t| known(t.resource)) {
        let activity = Activity {
            resource: task.resource,
            phase: SAMPLED,
            queued_ns: task.started_ns,
            start_ns: task.started_ns,
            end_ns: task.started_ns.saturating_add(task.service_ns),
            weight: if task.weight.is_finite() { task.weight.max(0.0) } else { 1.0 },
            stage: Some(task.stage),
            partition: Some(task.partition),
            bytes: task.bytes,
            outcome: Outcome::Ok,
        };
        each(activity, &[(SAMPLED, 1.0)]);
    }
    operations(trace, each);
}

/// Calls `each` with the storage operations of resources that no monotask used. The engine's own operations
/// are already monotasks.
fn operations(trace: &Trace, mut each: impl FnMut(Activity, &[Part])) {
    let mut served = vec![false; trace.resources.len()];
    for m in &trace.monotasks {
        served.get_mut(m.resource as usize).into_iter().for_each(|s| *s = true);
    }
    for op in &trace.storage_operations {
        if served.get(op.resource as usize) != Some(&false) {
            continue;
        }
        let phase = match op.operation {
            Operation::Read => 0,
            Operation::Write => 4,
            _ => 12,
        };
        let activity = Activity {
            resource: op.resource,
            phase,
            queued_ns: op.started_ns,
            start_ns: op.started_ns,
            end_ns: op.started_ns.saturating_add(op.duration_ns),
            weight: 1.0,
            stage: None,
            partition: None,
            bytes: op.bytes,
            outcome: op.outcome,
        };
        each(activity, &[(phase, 1.0)]);
    }
}

fn of_phase(phase: Phase) -> u8 {
    match phase {
        Phase::Read => 0,
        Phase::Fetch => 1,
        Phase::Compute => COMPUTE,
        Phase::Spill => 3,
        Phase::Write => 4,
    }
}

fn pipelined(task: &PipelinedTask, phase: u8) -> Activity {
    let bytes = [task.input_bytes, task.shuffle_remote_bytes, task.shuffle_local_bytes];
    Activity {
        resource: task.resource,
        phase,
        queued_ns: task.launched_ns,
        start_ns: task.launched_ns,
        end_ns: task.launched_ns.saturating_add(task.duration_ns),
        weight: 1.0,
        stage: Some(task.stage),
        partition: Some(task.partition),
        bytes: bytes.into_iter().flatten().reduce(u64::saturating_add),
        outcome: task.outcome,
    }
}

/// Returns the parts of a pipelined task, as shares that sum to 1. Upper bounds all cover the same
/// unattributed rest, so the largest of them is the part of the rest that may be disk. Overlapping parts are
/// scaled down together.
fn parts(task: &PipelinedTask) -> Vec<Part> {
    let measured = |blocked: Option<Blocked>| match blocked {
        Some(Blocked::MeasuredNs(ns)) => ns as f64,
        _ => 0.0,
    };
    let on_disk = [
        task.blocked_input,
        task.blocked_shuffle_read,
        task.blocked_shuffle_write,
        task.blocked_spill,
        task.blocked_output,
    ];
    let bounds = on_disk.iter().filter_map(|blocked| match blocked {
        Some(Blocked::AtMostNs(ns)) => Some(*ns as f64),
        _ => None,
    });
    let bound = bounds.fold(0.0, f64::max);
    let known = [
        (COMPUTE, task.cpu_ns.unwrap_or(0) as f64),
        (5, measured(task.blocked_network)),
        (6, on_disk.into_iter().map(measured).sum()),
        (7, measured(task.gc)),
        (8, measured(task.scheduler)),
        (9, measured(task.deserialize)),
    ];
    let sum: f64 = known.iter().map(|(_, ns)| ns).sum();
    let whole = (task.duration_ns as f64).max(sum);
    if whole <= 0.0 {
        return vec![(REST, 1.0)];
    }
    let maybe_disk = bound.min(whole - sum);
    let rest = [(REST, whole - sum - maybe_disk), (REST_OR_DISK, maybe_disk)];
    let shares = known.into_iter().chain(rest).map(|(phase, ns)| (phase, ns / whole));
    shares.filter(|(_, share)| *share > 0.0).collect()
}

/// Assigns each activity to the lowest row that is free when it starts. `activities` must be sorted by start.
pub(crate) fn rows(activities: &[Activity]) -> Vec<usize> {
    let mut free: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
    let mut taken: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut rows = 0;
    let each = activities.iter().map(|a| {
        while taken.peek().is_some_and(|Reverse((end, _))| *end <= a.start_ns) {
            free.extend(taken.pop().map(|Reverse((_, row))| Reverse(row)));
        }
        let row = free.pop().map_or_else(
            || {
                rows += 1;
                rows - 1
            },
            |Reverse(row)| row,
        );
        taken.push(Reverse((a.end_ns, row)));
        row
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_pipelined_task_sum_to_one_even_if_they_overlap() {
        let mut task = PipelinedTask { duration_ns: 100, cpu_ns: Some(40), ..PipelinedTask::default() };
        task.blocked_network = Some(Blocked::MeasuredNs(20));
        task.blocked_output = Some(Blocked::AtMostNs(10));
        task.blocked_spill = Some(Blocked::AtMostNs(25));
        assert_eq!(parts(&task), vec![(COMPUTE, 0.4), (5, 0.2), (REST, 0.15), (REST_OR_DISK, 0.25)]);
        task.gc = Some(Blocked::MeasuredNs(130));
        task.blocked_input = Some(Blocked::MeasuredNs(10));
        assert_eq!(parts(&task), vec![(COMPUTE, 0.2), (5, 0.1), (6, 0.05), (7, 0.65)]);
        assert_eq!(parts(&PipelinedTask::default()), vec![(REST, 1.0)]);
    }

    fn at(start_ns: u64, end_ns: u64) -> Activity {
        let (resource, phase, queued_ns, weight) = (0, 2, start_ns, 1.0);
        let (stage, partition, bytes, outcome) = (None, None, None, Outcome::Ok);
        Activity { resource, phase, queued_ns, start_ns, end_ns, weight, stage, partition, bytes, outcome }
    }

    #[test]
    fn concurrent_activities_are_in_different_rows() {
        let starts = [(0, 100), (10, 20), (10, 40), (20, 30), (35, 36), (100, 100), (100, 120)];
        let all: Vec<Activity> = starts.iter().map(|(start, end)| at(*start, *end)).collect();
        assert_eq!(rows(&all), [0, 1, 2, 1, 1, 0, 0]);
    }
}
