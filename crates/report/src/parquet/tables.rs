//! The columns of each table, in the order of `docs/exports.md`.

use pellucid_trace::{
    Blocked, ConcurrencyChange, Exchange, Job, JobEnd, Machine, Monotask, Multitask, Operation, Outcome,
    Phase, PipelinedTask, Resource, SampledTask, Stage, StageEnd, StorageOperation, Trace, UtilizationSample,
};

use super::columns::Column;

type Columns<'t, R> = Vec<Column<'t, R>>;

fn outcome(of: Outcome) -> &'static str {
    match of {
        Outcome::Ok => "ok",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}

fn resource(trace: &Trace, ix: u32) -> Option<&Resource> {
    trace.resources.get(ix as usize)
}

/// Returns the columns of a row's resource: index, name, kind and machine.
fn of_resource<'t, R: 't>(trace: &'t Trace, ix: fn(&R) -> u32) -> [Column<'t, R>; 4] {
    let machine = move |row: &R| trace.machines.get(resource(trace, ix(row))?.machine as usize);
    [
        Column::whole("resource", move |row| Some(ix(row).into())),
        Column::text("resource_name", move |row| Some(&resource(trace, ix(row))?.name)),
        Column::text("kind", move |row| Some(&resource(trace, ix(row))?.kind)),
        Column::text("machine", move |row| Some(&machine(row)?.name)),
    ]
}

pub(super) fn machines<'t>() -> Columns<'t, &'t Machine> {
    vec![
        Column::id(),
        Column::text("name", |m: &&'t Machine| Some(&m.name)),
        Column::whole("cores", |m: &&'t Machine| m.cores.map(u64::from)),
        Column::whole("memory_bytes", |m: &&'t Machine| m.memory_bytes),
    ]
}

pub(super) fn resources<'t>(trace: &'t Trace) -> Columns<'t, &'t Resource> {
    vec![
        Column::id(),
        Column::text("name", |r: &&'t Resource| Some(&r.name)),
        Column::text("kind", |r: &&'t Resource| Some(&r.kind)),
        Column::text("machine", |r: &&'t Resource| {
            trace.machines.get(r.machine as usize).map(|m| m.name.as_str())
        }),
        Column::float("capacity", |r: &&'t Resource| r.capacity),
        Column::text("capacity_from", |r: &&'t Resource| r.capacity_from.as_deref()),
        Column::whole("concurrency", |r: &&'t Resource| r.concurrency.map(u64::from)),
        Column::whole("link", |r: &&'t Resource| r.link.map(u64::from)),
    ]
}

pub(super) fn jobs<'t>(trace: &'t Trace) -> Columns<'t, &'t Job> {
    let mut ends: Vec<Option<&JobEnd>> = vec![None; trace.jobs.len()];
    for end in &trace.job_ends {
        ends.get_mut(end.job as usize).into_iter().for_each(|e| *e = Some(end));
    }
    let ends = std::rc::Rc::new(ends);
    let of = |take: fn(&'t JobEnd) -> Option<u64>| {
        let ends = ends.clone();
        move |ix: usize| take(ends[ix]?)
    };
    let texts = |take: fn(&'t JobEnd) -> Option<&'t str>| {
        let ends = ends.clone();
        move |ix: usize| take(ends[ix]?)
    };
    vec![
        Column::id(),
        Column::text("name", |j: &&'t Job| Some(&j.name)),
        Column::whole("submitted_ns", |j: &&'t Job| Some(j.submitted_ns)),
        Column::whole_at("ended_ns", of(|e| Some(e.ended_ns))),
        Column::text_at("outcome", texts(|e| Some(outcome(e.outcome)))),
        Column::text_at("error", texts(|e| e.error.as_deref())),
        Column::whole_at("rows", of(|e| e.rows)),
        Column::whole_at("memory_high_water_bytes", of(|e| e.memory_high_water_bytes)),
    ]
}

pub(super) fn stages<'t>(trace: &'t Trace) -> Columns<'t, &'t Stage> {
    let mut ends: Vec<Option<&StageEnd>> = vec![None; trace.stages.len()];
    for end in &trace.stage_ends {
        ends.get_mut(end.stage as usize).into_iter().for_each(|e| *e = Some(end));
    }
    let ends = std::rc::Rc::new(ends);
    let again = ends.clone();
    vec![
        Column::id(),
        Column::whole("job", |s: &&'t Stage| Some(s.job.into())),
        Column::text("name", |s: &&'t Stage| Some(&s.name)),
        Column::whole("attempt", |s: &&'t Stage| Some(s.attempt.into())),
        Column::text("call_site", |s: &&'t Stage| s.call_site.as_deref()),
        Column::whole("submitted_ns", |s: &&'t Stage| Some(s.submitted_ns)),
        Column::whole_at("ended_ns", move |ix| ends[ix].map(|e| e.ended_ns)),
        Column::text_at("outcome", move |ix| again[ix].map(|e| outcome(e.outcome))),
    ]
}

pub(super) fn multitasks<'t>(trace: &'t Trace) -> Columns<'t, &'t Multitask> {
    vec![
        Column::id(),
        Column::whole("stage", |m: &&'t Multitask| Some(m.stage.into())),
        Column::whole("job", |m: &&'t Multitask| trace.stages.get(m.stage as usize).map(|s| s.job.into())),
        Column::whole("partition", |m: &&'t Multitask| Some(m.partition.into())),
        Column::whole("admitted_ns", |m: &&'t Multitask| Some(m.admitted_ns)),
        Column::whole("memory_bytes", |m: &&'t Multitask| m.memory_bytes),
    ]
}

pub(super) fn monotasks<'t>(trace: &'t Trace) -> Columns<'t, &'t Monotask> {
    let multitask = |m: &Monotask| trace.multitasks.get(m.multitask as usize);
    let phase = |m: &&Monotask| match m.phase {
        Phase::Read => "read",
        Phase::Fetch => "fetch",
        Phase::Compute => "compute",
        Phase::Spill => "spill",
        Phase::Write => "write",
    };
    let mut columns = vec![
        Column::id(),
        Column::whole("multitask", |m: &&'t Monotask| Some(m.multitask.into())),
        Column::whole("stage", move |m: &&'t Monotask| Some(multitask(m)?.stage.into())),
        Column::whole("job", move |m: &&'t Monotask| {
            Some(trace.stages.get(multitask(m)?.stage as usize)?.job.into())
        }),
        Column::whole("partition", move |m: &&'t Monotask| Some(multitask(m)?.partition.into())),
    ];
    columns.extend(of_resource(trace, |m: &&Monotask| m.resource));
    columns.extend([
        Column::text("phase", move |m: &&'t Monotask| Some(phase(m))),
        Column::whole("queued_ns", |m: &&'t Monotask| Some(m.queued_ns)),
        Column::whole("queue_ns", |m: &&'t Monotask| Some(m.queue_ns)),
        Column::whole("started_ns", |m: &&'t Monotask| Some(m.started_ns())),
        Column::whole("service_ns", |m: &&'t Monotask| Some(m.service_ns)),
        Column::whole("bytes", |m: &&'t Monotask| m.bytes),
        Column::whole("device_bytes", |m: &&'t Monotask| m.device_bytes),
        Column::whole("cached_bytes", |m: &&'t Monotask| m.cached_bytes),
        Column::whole("cpu_ns", |m: &&'t Monotask| m.cpu_ns),
        Column::whole("decode_ns", |m: &&'t Monotask| m.decode_ns),
        Column::whole("operator_ns", |m: &&'t Monotask| m.operator_ns),
        Column::whole("encode_ns", |m: &&'t Monotask| m.encode_ns),
        Column::whole("not_split_ns", |m: &&'t Monotask| m.not_split_ns),
        Column::whole("rows", |m: &&'t Monotask| m.rows),
        Column::text("outcome", |m: &&'t Monotask| Some(outcome(m.outcome))),
    ]);
    columns
}

/// Returns the two columns of a blocked time: the measured time, and the upper bound.
fn blocked<'t>(
    measured: &'static str,
    at_most: &'static str,
    take: fn(&PipelinedTask) -> Option<Blocked>,
) -> [Column<'t, PipelinedTask>; 2] {
    let exact = move |task: &PipelinedTask| match take(task) {
        Some(Blocked::MeasuredNs(ns)) => Some(ns),
        _ => None,
    };
    let bound = move |task: &PipelinedTask| match take(task) {
        Some(Blocked::AtMostNs(ns)) => Some(ns),
        _ => None,
    };
    [Column::whole(measured, exact), Column::whole(at_most, bound)]
}

pub(super) fn pipelined_tasks(trace: &Trace) -> Columns<'_, PipelinedTask> {
    let mut columns = vec![
        Column::id(),
        Column::whole("stage", |t: &PipelinedTask| Some(t.stage.into())),
        Column::whole("job", |t: &PipelinedTask| trace.stages.get(t.stage as usize).map(|s| s.job.into())),
        Column::whole("partition", |t: &PipelinedTask| Some(t.partition.into())),
        Column::whole("attempt", |t: &PipelinedTask| Some(t.attempt.into())),
    ];
    columns.extend(of_resource(trace, |t: &PipelinedTask| t.resource));
    columns.extend([
        Column::whole("launched_ns", |t: &PipelinedTask| Some(t.launched_ns)),
        Column::whole("duration_ns", |t: &PipelinedTask| Some(t.duration_ns)),
        Column::whole("cpu_ns", |t: &PipelinedTask| t.cpu_ns),
        Column::whole("queue_ns", |t: &PipelinedTask| t.queue_ns),
        Column::whole("input_bytes", |t: &PipelinedTask| t.input_bytes),
        Column::whole("input_records", |t: &PipelinedTask| t.input_records),
        Column::whole("output_bytes", |t: &PipelinedTask| t.output_bytes),
        Column::whole("shuffle_remote_bytes", |t: &PipelinedTask| t.shuffle_remote_bytes),
        Column::whole("shuffle_local_bytes", |t: &PipelinedTask| t.shuffle_local_bytes),
        Column::whole("shuffle_write_bytes", |t: &PipelinedTask| t.shuffle_write_bytes),
        Column::whole("spill_bytes", |t: &PipelinedTask| t.spill_bytes),
    ]);
    let all = [
        blocked("blocked_network_ns", "blocked_network_at_most_ns", |t| t.blocked_network),
        blocked("blocked_input_ns", "blocked_input_at_most_ns", |t| t.blocked_input),
        blocked("blocked_shuffle_read_ns", "blocked_shuffle_read_at_most_ns", |t| t.blocked_shuffle_read),
        blocked("blocked_shuffle_write_ns", "blocked_shuffle_write_at_most_ns", |t| t.blocked_shuffle_write),
        blocked("blocked_spill_ns", "blocked_spill_at_most_ns", |t| t.blocked_spill),
        blocked("blocked_output_ns", "blocked_output_at_most_ns", |t| t.blocked_output),
        blocked("gc_ns", "gc_at_most_ns", |t| t.gc),
        blocked("scheduler_ns", "scheduler_at_most_ns", |t| t.scheduler),
        blocked("deserialize_ns", "deserialize_at_most_ns", |t| t.deserialize),
    ];
    columns.extend(all.into_iter().flatten());
    columns.extend([
        Column::flag("speculative", |t: &PipelinedTask| Some(t.speculative)),
        Column::text("outcome", |t: &PipelinedTask| Some(outcome(t.outcome))),
    ]);
    columns
}

pub(super) fn sampled_tasks<'t>(trace: &'t Trace) -> Columns<'t, &'t SampledTask> {
    let mut columns = vec![
        Column::id(),
        Column::whole("stage", |t: &&'t SampledTask| Some(t.stage.into())),
        Column::whole("partition", |t: &&'t SampledTask| Some(t.partition.into())),
    ];
    columns.extend(of_resource(trace, |t: &&SampledTask| t.resource));
    columns.extend([
        Column::whole("iteration", |t: &&'t SampledTask| t.iteration),
        Column::whole("started_ns", |t: &&'t SampledTask| Some(t.started_ns)),
        Column::whole("service_ns", |t: &&'t SampledTask| Some(t.service_ns)),
        Column::float("weight", |t: &&'t SampledTask| Some(t.weight)),
        Column::whole("bytes", |t: &&'t SampledTask| t.bytes),
    ]);
    columns
}

pub(super) fn exchanges<'t>(trace: &'t Trace) -> Columns<'t, &'t Exchange> {
    let mut columns = vec![Column::id(), Column::whole("stage", |e: &&'t Exchange| Some(e.stage.into()))];
    columns.extend(of_resource(trace, |e: &&Exchange| e.resource));
    columns.extend([
        Column::whole("started_ns", |e: &&'t Exchange| Some(e.started_ns)),
        Column::whole("interval_ns", |e: &&'t Exchange| Some(e.interval_ns)),
        Column::whole("messages", |e: &&'t Exchange| Some(e.messages)),
        Column::whole("bytes", |e: &&'t Exchange| Some(e.bytes)),
    ]);
    columns
}

pub(super) fn storage_operations<'t>(trace: &'t Trace) -> Columns<'t, &'t StorageOperation> {
    let operation = |o: &&StorageOperation| match o.operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::List => "list",
        Operation::Head => "head",
        Operation::Rename => "rename",
        Operation::Copy => "copy",
        Operation::Delete => "delete",
        Operation::Commit => "commit",
    };
    let mut columns = vec![Column::id()];
    columns.extend(of_resource(trace, |o: &&StorageOperation| o.resource));
    columns.extend([
        Column::text("operation", move |o: &&'t StorageOperation| Some(operation(o))),
        Column::whole("started_ns", |o: &&'t StorageOperation| Some(o.started_ns)),
        Column::whole("first_byte_ns", |o: &&'t StorageOperation| o.first_byte_ns),
        Column::whole("duration_ns", |o: &&'t StorageOperation| Some(o.duration_ns)),
        Column::whole("bytes", |o: &&'t StorageOperation| o.bytes),
        Column::whole("concurrency", |o: &&'t StorageOperation| o.concurrency.map(u64::from)),
        Column::text("error", |o: &&'t StorageOperation| o.error.as_deref()),
        Column::text("outcome", |o: &&'t StorageOperation| Some(outcome(o.outcome))),
    ]);
    columns
}

pub(super) fn concurrency_changes<'t>(trace: &'t Trace) -> Columns<'t, &'t ConcurrencyChange> {
    let mut columns =
        vec![Column::id(), Column::whole("stage", |c: &&'t ConcurrencyChange| Some(c.stage.into()))];
    columns.extend(of_resource(trace, |c: &&ConcurrencyChange| c.resource));
    columns.extend([
        Column::whole("at_ns", |c: &&'t ConcurrencyChange| Some(c.at_ns)),
        Column::whole("concurrency", |c: &&'t ConcurrencyChange| Some(c.concurrency.into())),
        Column::text("reason", |c: &&'t ConcurrencyChange| c.reason.as_deref()),
    ]);
    columns
}

pub(super) fn utilization_samples<'t>(trace: &'t Trace) -> Columns<'t, &'t UtilizationSample> {
    let mut columns = vec![Column::id()];
    columns.extend(of_resource(trace, |s: &&UtilizationSample| s.resource));
    columns.extend([
        Column::whole("at_ns", |s: &&'t UtilizationSample| Some(s.at_ns)),
        Column::whole("interval_ns", |s: &&'t UtilizationSample| Some(s.interval_ns)),
        Column::whole("busy_ns", |s: &&'t UtilizationSample| s.busy_ns),
        Column::whole("own_busy_ns", |s: &&'t UtilizationSample| s.own_busy_ns),
        Column::whole("read_bytes", |s: &&'t UtilizationSample| s.read_bytes),
        Column::whole("write_bytes", |s: &&'t UtilizationSample| s.write_bytes),
    ]);
    columns
}
