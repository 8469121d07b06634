//! The columns of each table after `id`, in the order of `docs/exports.md`.

use pellucid_trace::{
    Blocked, Column as DecodedColumn, ConcurrencyChange, Exchange, Expression, Job, JobEnd, Machine,
    Monotask, Multitask, Operator, PipelinedTask, Resource, SampledTask, Stack, Stage, StageEnd,
    StorageOperation, Trace, UtilizationSample,
};

use super::columns::{Cell, Column};

type Columns<'t, R> = Vec<Column<'t, R>>;

/// Lists columns by type and name. A name without a value is a field of the row.
macro_rules! columns {
    ($row:ident: $type:ty; $($kind:ident $name:ident $(= $value:expr)?),+ $(,)?) => {
        vec![$(Column::$kind(
            stringify!($name),
            move |$row: &$type| columns!(@cell $kind $row $name $($value)?),
        )),+]
    };
    (@cell text $row:ident $name:ident) => { Cell::cell(&$row.$name) };
    (@cell $kind:ident $row:ident $name:ident) => { Cell::cell($row.$name) };
    (@cell $kind:ident $row:ident $name:ident $value:expr) => { Cell::cell($value) };
}

fn joined<R, const N: usize>(parts: [Columns<'_, R>; N]) -> Columns<'_, R> {
    parts.into_iter().flatten().collect()
}

/// Returns the columns of a row's resource: index, name, kind and machine.
fn of_resource<'t, R: 't>(trace: &'t Trace, ix: fn(&R) -> u32) -> Columns<'t, R> {
    let resource = move |row: &R| trace.resources.get(ix(row) as usize);
    columns![row: R;
        whole resource = ix(row), text resource_name = &resource(row)?.name,
        text kind = &resource(row)?.kind, text machine = machine(trace, resource(row)?),
    ]
}

fn machine<'t>(trace: &'t Trace, resource: &Resource) -> Option<&'t str> {
    Some(&trace.machines.get(resource.machine as usize)?.name)
}

pub(super) fn machines<'t>() -> Columns<'t, &'t Machine> {
    columns![m: &'t Machine; text name, whole cores, whole memory_bytes]
}

pub(super) fn resources<'t>(trace: &'t Trace) -> Columns<'t, &'t Resource> {
    columns![r: &'t Resource;
        text name, text kind, text machine = machine(trace, r), float capacity, text capacity_from,
        whole concurrency, whole link,
    ]
}

pub(super) fn jobs<'t>() -> Columns<'t, (&'t Job, Option<&'t JobEnd>)> {
    columns![j: (&'t Job, Option<&'t JobEnd>);
        text name = &j.0.name, whole submitted_ns = j.0.submitted_ns,
        whole ended_ns = j.1?.ended_ns, text outcome = &j.1?.outcome, text error = &j.1?.error,
        whole rows = j.1?.rows, whole memory_high_water_bytes = j.1?.memory_high_water_bytes,
    ]
}

pub(super) fn stages<'t>() -> Columns<'t, (&'t Stage, Option<&'t StageEnd>)> {
    columns![s: (&'t Stage, Option<&'t StageEnd>);
        whole job = s.0.job, text name = &s.0.name, whole attempt = s.0.attempt,
        text call_site = &s.0.call_site, whole submitted_ns = s.0.submitted_ns,
        whole ended_ns = s.1?.ended_ns, text outcome = &s.1?.outcome,
    ]
}

/// Returns the entities, each with the last of its ends.
pub(super) fn with_ends<'t, T, E>(
    entities: &'t [T],
    ends: &'t [E],
    ix: fn(&E) -> u32,
) -> impl Iterator<Item = (&'t T, Option<&'t E>)> {
    let mut last: Vec<Option<&E>> = vec![None; entities.len()];
    for end in ends {
        if let Some(last) = last.get_mut(ix(end) as usize) {
            *last = Some(end);
        }
    }
    entities.iter().zip(last)
}

fn job(trace: &Trace, stage: u32) -> Option<u32> {
    trace.stages.get(stage as usize).map(|stage| stage.job)
}

pub(super) fn multitasks<'t>(trace: &'t Trace) -> Columns<'t, &'t Multitask> {
    columns![m: &'t Multitask;
        whole stage, whole job = job(trace, m.stage), whole partition, whole admitted_ns,
        whole memory_bytes,
    ]
}

pub(super) fn monotasks<'t>(trace: &'t Trace) -> Columns<'t, &'t Monotask> {
    let multitask = |m: &Monotask| trace.multitasks.get(m.multitask as usize);
    let place = columns![m: &'t Monotask;
        whole multitask, whole stage = multitask(m)?.stage,
        whole job = job(trace, multitask(m)?.stage), whole partition = multitask(m)?.partition,
    ];
    let used = columns![m: &'t Monotask;
        text phase, whole queued_ns, whole queue_ns, whole started_ns = m.started_ns(),
        whole service_ns, whole bytes, whole device_bytes, whole cached_bytes, whole cpu_ns,
        whole decode_ns, whole operator_ns, whole encode_ns, whole not_split_ns, whole rows,
        text outcome,
    ];
    joined([place, of_resource(trace, |m: &&Monotask| m.resource), used])
}

pub(super) fn operators<'t>(trace: &'t Trace) -> Columns<'t, &'t Operator> {
    columns![o: &'t Operator;
        whole stage, whole job = job(trace, o.stage), whole operator, text name = &o.name, text detail = o.detail.as_ref()?,
        text part, whole from_stage = o.from?, whole cpu_ns, whole max_cpu_ns, whole batches, whole rows,
        whole planned_rows, whole bytes, whole peak_bytes,
    ]
}

/// Returns the columns that scans decoded, each with its scan.
pub(super) fn columns_of(trace: &Trace) -> impl Iterator<Item = (&Operator, &DecodedColumn)> {
    trace.operators.iter().flat_map(|scan| scan.columns.iter().map(move |column| (scan, column)))
}

pub(super) fn columns<'t>(trace: &'t Trace) -> Columns<'t, (&'t Operator, &'t DecodedColumn)> {
    columns![c: (&'t Operator, &'t DecodedColumn);
        whole stage = c.0.stage, whole job = job(trace, c.0.stage), whole operator = c.0.operator,
        text operator_name = &c.0.name, text name = &c.1.name, whole cpu_ns = c.1.cpu_ns,
        whole encoded_bytes = c.1.encoded_bytes, whole decoded_bytes = c.1.decoded_bytes,
    ]
}

/// Returns the expressions of operators, each with its operator.
pub(super) fn expressions_of(trace: &Trace) -> impl Iterator<Item = (&Operator, &Expression)> {
    trace.operators.iter().flat_map(|of| of.expressions.iter().map(move |expression| (of, expression)))
}

pub(super) fn expressions<'t>(trace: &'t Trace) -> Columns<'t, (&'t Operator, &'t Expression)> {
    columns![e: (&'t Operator, &'t Expression);
        whole stage = e.0.stage, whole job = job(trace, e.0.stage), whole operator = e.0.operator,
        text operator_name = &e.0.name, text text = &e.1.text, whole cpu_ns = e.1.cpu_ns, whole rows = e.1.rows,
    ]
}

pub(super) fn stacks<'t>(trace: &'t Trace) -> Columns<'t, &'t Stack> {
    columns![s: &'t Stack;
        whole stage, whole job = job(trace, s.stage), whole operator, whole count, text frames = &s.frames,
    ]
}

/// Lists the two columns of each blocked time: the measured time, and the upper bound.
macro_rules! blocked {
    ($($name:ident),+ $(,)?) => {
        vec![$(
            Column::whole(concat!(stringify!($name), "_ns"), |t: &PipelinedTask| match t.$name {
                Some(Blocked::MeasuredNs(ns)) => Some(ns),
                _ => None,
            }),
            Column::whole(concat!(stringify!($name), "_at_most_ns"), |t: &PipelinedTask| match t.$name {
                Some(Blocked::AtMostNs(ns)) => Some(ns),
                _ => None,
            }),
        )+]
    };
}

pub(super) fn pipelined_tasks(trace: &Trace) -> Columns<'_, PipelinedTask> {
    let place = columns![t: PipelinedTask;
        whole stage, whole job = job(trace, t.stage), whole partition, whole attempt,
    ];
    let measured = columns![t: PipelinedTask;
        whole launched_ns, whole duration_ns, whole cpu_ns, whole queue_ns, whole input_bytes,
        whole input_records, whole output_bytes, whole shuffle_remote_bytes,
        whole shuffle_local_bytes, whole shuffle_write_bytes, whole spill_bytes,
    ];
    let blocked = blocked![
        blocked_network,
        blocked_input,
        blocked_shuffle_read,
        blocked_shuffle_write,
        blocked_spill,
        blocked_output,
        gc,
        scheduler,
        deserialize,
    ];
    let end = columns![t: PipelinedTask; flag speculative, text outcome];
    joined([place, of_resource(trace, |t: &PipelinedTask| t.resource), measured, blocked, end])
}

pub(super) fn sampled_tasks<'t>(trace: &'t Trace) -> Columns<'t, &'t SampledTask> {
    joined([
        columns![t: &'t SampledTask; whole stage, whole partition],
        of_resource(trace, |t: &&SampledTask| t.resource),
        columns![t: &'t SampledTask;
            whole iteration, whole started_ns, whole service_ns, float weight, whole bytes,
        ],
    ])
}

pub(super) fn exchanges<'t>(trace: &'t Trace) -> Columns<'t, &'t Exchange> {
    joined([
        columns![e: &'t Exchange; whole stage],
        of_resource(trace, |e: &&Exchange| e.resource),
        columns![e: &'t Exchange; whole started_ns, whole interval_ns, whole messages, whole bytes],
    ])
}

pub(super) fn storage_operations<'t>(trace: &'t Trace) -> Columns<'t, &'t StorageOperation> {
    joined([
        of_resource(trace, |o: &&StorageOperation| o.resource),
        columns![o: &'t StorageOperation;
            text operation, whole started_ns, whole first_byte_ns, whole duration_ns, whole bytes,
            whole concurrency, text error, text outcome,
        ],
    ])
}

pub(super) fn concurrency_changes<'t>(trace: &'t Trace) -> Columns<'t, &'t ConcurrencyChange> {
    joined([
        columns![c: &'t ConcurrencyChange; whole stage],
        of_resource(trace, |c: &&ConcurrencyChange| c.resource),
        columns![c: &'t ConcurrencyChange; whole at_ns, whole concurrency, text reason],
    ])
}

pub(super) fn utilization_samples<'t>(trace: &'t Trace) -> Columns<'t, &'t UtilizationSample> {
    joined([
        of_resource(trace, |s: &&UtilizationSample| s.resource),
        columns![s: &'t UtilizationSample;
            whole at_ns, whole interval_ns, whole busy_ns, whole own_busy_ns, whole read_bytes,
            whole write_bytes,
        ],
    ])
}
