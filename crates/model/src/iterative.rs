//! Traces of iterative jobs, in which one sampled task stands for many.
//!
//! For ideal times a sampled task becomes two monotasks with the time of all the tasks it stands for: one
//! on cores and, where the producer measured how fast the job's number of threads reads memory, one on
//! the memory bandwidth with the bytes touched. As with any load, waits for memory are within the time on
//! a core. The two are therefore separate limits, and the larger one is the bottleneck. Iterations
//! overlap, and so do stages: a job is one span.
//!
//! Not for counts over time: a task that stands for many records only when one of them ran.

use std::collections::{BTreeMap, BTreeSet};

use pellucid_trace::{Monotask, Multitask, Outcome, Phase, SampledTask, Trace, kind};

use crate::analysis::Analysis;
use crate::index::{StageIx, Table};
use crate::numbers::{measured_ns, ms, ratio};

/// Ratio of the largest to the mean core time of partitions from which a stage counts as uneven.
const UNEVEN: f64 = 1.25;

/// Returns true for traces of sampled tasks.
pub(crate) fn applies(trace: &Trace) -> bool {
    !trace.sampled_tasks.is_empty() && trace.monotasks.is_empty() && trace.pipelined_tasks.is_empty()
}

/// Corrects the analysis of a trace of sampled tasks, made from [`as_monotasks`].
pub(crate) fn analyze(trace: &Trace, analysis: &mut Analysis) {
    // A task that stands for many does not record when they ran.
    analysis.jobs.iter_mut().for_each(|job| job.steps = None);
    let mut counts = Table::filled(trace.stages.len(), 0.0);
    let mut by_partition: Table<StageIx, BTreeMap<u32, f64>> =
        Table::filled(trace.stages.len(), BTreeMap::new());
    for task in tasks(trace) {
        counts[StageIx(task.stage)] += task.weight;
        *by_partition[StageIx(task.stage)].entry(task.partition).or_default() += time_ns(task);
    }
    for ((stage, count), partitions) in analysis.stages.iter_mut().zip(counts).zip(&by_partition) {
        let total: f64 = partitions.values().sum();
        let most = partitions.values().copied().fold(0.0, f64::max);
        stage.tasks = count.round() as u64;
        stage.task_time_ms = (total > 0.0).then(|| ms(total));
        stage.skew = Default::default();
        stage.skew.duration_max_over_median =
            median(partitions.values().copied().collect()).and_then(|median| ratio(most, median));
    }
    analysis.notes.extend(notes(trace, &by_partition));
}

/// Returns the tasks whose stage and resource the trace holds.
pub(crate) fn tasks(trace: &Trace) -> impl Iterator<Item = &SampledTask> + Clone {
    trace.sampled_tasks.iter().filter(|task| {
        (task.stage as usize) < trace.stages.len()
            && (task.resource as usize) < trace.resources.len()
            && (1.0..1e15).contains(&task.weight)
    })
}

/// Returns the time of all tasks that this one stands for.
pub(crate) fn time_ns(task: &SampledTask) -> f64 {
    task.service_ns as f64 * task.weight
}

/// Returns the number of threads that ran tasks.
pub(crate) fn workers(trace: &Trace) -> Option<u32> {
    let used: BTreeSet<u32> = tasks(trace).map(|task| task.resource).collect();
    let of = |resource: &u32| trace.resources[*resource as usize].concurrency;
    used.iter().map(of).sum::<Option<u32>>().filter(|workers| *workers > 0)
}

/// Returns the memory bandwidth by number of threads: the resource, and bytes per second.
pub(crate) fn bandwidths(trace: &Trace) -> BTreeMap<u32, (u32, f64)> {
    let known =
        trace.resources.iter().zip(0..).filter(|(resource, _)| resource.kind == kind::MEMORY_BANDWIDTH);
    known
        .filter_map(|(resource, ix)| {
            let rate = resource.capacity.filter(|rate| (1e3..1e18).contains(rate))?;
            Some((resource.concurrency?, (ix, rate)))
        })
        .collect()
}

/// Converts sampled tasks to monotasks; see the module documentation.
pub(crate) fn as_monotasks(trace: &Trace) -> Trace {
    let memory = workers(trace).and_then(|workers| bandwidths(trace).get(&workers).copied());
    let mut made = Trace { sampled_tasks: Vec::new(), ..trace.clone() };
    let mut multitasks: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for task in tasks(trace) {
        let multitask = *multitasks.entry((task.stage, task.partition)).or_insert_with(|| {
            made.multitasks.push(Multitask {
                stage: task.stage,
                partition: task.partition,
                admitted_ns: task.started_ns,
                memory_bytes: None,
            });
            made.multitasks.len() as u32 - 1
        });
        let compute = Monotask {
            multitask,
            resource: task.resource,
            phase: Phase::Compute,
            queued_ns: task.started_ns,
            queue_ns: 0,
            service_ns: time_ns(task) as u64,
            bytes: None,
            device_bytes: None,
            cached_bytes: None,
            cpu_ns: None,
            decode_ns: None,
            operator_ns: None,
            encode_ns: None,
            not_split_ns: None,
            rows: None,
            outcome: Outcome::Ok,
        };
        made.monotasks.push(compute);
        if let (Some((resource, _)), Some(bytes)) = (memory, task.bytes) {
            let bytes = Some((bytes as f64 * task.weight) as u64);
            made.monotasks.push(Monotask { resource, bytes, ..compute });
        }
    }
    made
}

/// Returns notes on the scheduler's share, unevenness, messages, and missing measurements.
fn notes(trace: &Trace, by_partition: &[BTreeMap<u32, f64>]) -> Vec<String> {
    let mut notes = Vec::new();
    let busy: f64 = tasks(trace).map(time_ns).sum();
    let duration = measured_ns(trace) as f64;
    if let Some(share) = workers(trace).and_then(|workers| ratio(busy, duration * f64::from(workers))) {
        notes.push(format!(
            "tasks took {:.1} % of the workers' time; the rest is loading, scheduling and waiting",
            share.min(1.0) * 100.0
        ));
    }
    let heaviest = by_partition.iter().zip(&trace.stages).max_by(|a, b| {
        let total = |of: &BTreeMap<u32, f64>| of.values().sum::<f64>();
        total(a.0).total_cmp(&total(b.0))
    });
    if let Some((partitions, stage)) = heaviest.filter(|(partitions, _)| partitions.len() > 1) {
        let mean = partitions.values().sum::<f64>() / partitions.len() as f64;
        let most = partitions.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let uneven = most.and_then(|(partition, ns)| Some((partition, ratio(*ns, mean)?)));
        if let Some((partition, times)) = uneven.filter(|(_, times)| *times > UNEVEN) {
            notes.push(format!(
                "stage {:?} is uneven: partition {partition} takes {times:.1} times the mean; use more partitions",
                stage.name
            ));
        }
    }
    notes.extend(sent(trace));
    if workers(trace).is_some_and(|workers| !bandwidths(trace).contains_key(&workers)) {
        notes.push(
            "the memory bandwidth was not measured; record with --bandwidth to see whether it limits".into(),
        );
    }
    notes
}

/// Describes what workers sent each other, and the stage with most of it.
fn sent(trace: &Trace) -> Option<String> {
    let known = || trace.exchanges.iter().filter(|sent| (sent.stage as usize) < trace.stages.len());
    let mut by_stage: BTreeMap<u32, u64> = BTreeMap::new();
    known().for_each(|sent| *by_stage.entry(sent.stage).or_default() += sent.bytes);
    let (stage, most) = by_stage.iter().max_by_key(|(_, bytes)| **bytes)?;
    let bytes: u64 = by_stage.values().sum();
    let messages: u64 = known().map(|sent| sent.messages).sum();
    let last = tasks(trace).filter_map(|task| task.iteration).max();
    let (iterations, each) = last.map_or((1.0, "in total"), |last| (last as f64 + 1.0, "per iteration"));
    Some(format!(
        "workers sent each other {:.1} messages and {:.1} kB {each}; {:.0} % of the bytes were for stage {:?}",
        messages as f64 / iterations,
        bytes as f64 / 1e3 / iterations,
        ratio(*most as f64, bytes as f64)? * 100.0,
        trace.stages[*stage as usize].name
    ))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
