//! The timeline's data: a lane for each resource, with its levels, single activities and machine counters,
//! and the spans of stages and jobs.

use pellucid_model::Analysis;
use pellucid_trace::{Trace, kind};
use serde::Serialize;

use super::blocks::{Block, blocks, tick_ns};
use super::chunks::Chunks;
use super::levels::{Levels, Quantity};
use crate::activity::{Activity, PHASES, activities};
use crate::words::{capacity, noun, resource};

/// Maximum number of activities that the page holds one by one, since browsers open larger files slowly.
/// The levels include all activities in any case.
const MAX_SINGLE: usize = 1_200_000;
/// Maximum number of points drawn for a counter.
const MAX_SAMPLES: usize = 2000;

/// Everything drawn over time.
#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    /// Length of the timeline, which begins with the first job.
    length_ns: u64,
    tick_ns: u64,
    bins: usize,
    /// Chunk of the values of every series, one after another, in 16 bits each, little-endian.
    levels: Option<usize>,
    phases: Vec<Phase>,
    lanes: Vec<Lane>,
    stages: Vec<StageSpan>,
    jobs: Vec<JobSpan>,
    /// Number of activities in the trace.
    activities: usize,
    /// True if the page holds them one by one.
    single: bool,
}

#[derive(Debug, Serialize)]
struct Phase {
    key: &'static str,
    label: &'static str,
}

/// The lane of a resource.
#[derive(Debug, Serialize)]
struct Lane {
    resource: usize,
    name: String,
    kind: String,
    machine: Option<String>,
    /// Formatted capacity: `2 cores (counted)`.
    capacity: String,
    /// Unit of concurrency: `cores`, `slots` or `at once`.
    unit: &'static str,
    /// Maximum concurrency.
    rows: usize,
    /// Height of a saturated lane: the capacity of `cpu` and `slots`, else `rows`.
    full: f64,
    /// Mean concurrency over the whole timeline.
    mean: f64,
    running: Vec<SeriesRef>,
    waiting: Option<SeriesRef>,
    rate: Option<SeriesRef>,
    /// Points of the machine's counters: time and share of the capacity.
    samples: Vec<(u64, f64)>,
    blocks: Vec<BlockRef>,
}

/// The location of a series in the chunk of levels; `offset` counts values.
#[derive(Debug, Clone, Serialize)]
struct SeriesRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<u8>,
    largest: f64,
    offset: usize,
}

#[derive(Debug, Serialize)]
struct BlockRef {
    chunk: usize,
    from: u64,
    to: u64,
    count: usize,
}

/// A stage's span, from its first service to its last.
#[derive(Debug, Serialize)]
struct StageSpan {
    stage: usize,
    from_ns: u64,
    to_ns: u64,
}

#[derive(Debug, Serialize)]
struct JobSpan {
    job: usize,
    from_ns: u64,
    to_ns: u64,
}

/// Builds the timeline and adds its data to `chunks`.
pub(crate) fn timeline(trace: &Trace, a: &Analysis, chunks: &mut Chunks) -> Timeline {
    let mut by_resource: Vec<Vec<Activity>> = vec![Vec::new(); trace.resources.len()];
    let mut stages = vec![None::<(u64, u64)>; trace.stages.len()];
    let (mut last, mut count) = (0, 0);
    activities(trace, |activity, _| {
        count += 1;
        last = last.max(activity.end_ns);
        let stage = activity.stage.and_then(|stage| stages.get_mut(stage as usize));
        stage.into_iter().for_each(|span| {
            let (from, to) = span.unwrap_or((activity.start_ns, activity.end_ns));
            *span = Some((from.min(activity.start_ns), to.max(activity.end_ns)));
        });
        by_resource[activity.resource as usize].push(activity);
    });
    let from_ns = first(trace, &by_resource);
    let to_ns = trace.job_ends.iter().map(|end| end.ended_ns).max().unwrap_or(0).max(last).max(from_ns);
    let used = by_resource.iter().filter(|of| !of.is_empty()).count();
    let mut levels = Levels::new(from_ns, to_ns, used * 4);
    activities(trace, |activity, parts| levels.add(&activity, parts));
    let bins = levels.bins();
    let tick_ns = tick_ns(to_ns - from_ns);
    let single = count <= MAX_SINGLE;
    let mut lanes = lanes(trace, a, levels, chunks);
    for lane in &mut lanes.1 {
        let (blocks, rows) = blocks(std::mem::take(&mut by_resource[lane.resource]), from_ns, tick_ns);
        lane.rows = rows;
        let places = matches!(lane.kind.as_str(), kind::CPU | kind::SLOTS);
        let given = a.resources.get(lane.resource).and_then(|r| r.capacity).filter(|_| places);
        lane.full = given.unwrap_or(rows as f64);
        lane.samples = samples(trace, lane.resource, given_rate(a, lane.resource), from_ns);
        let of_block = |block: Block| BlockRef {
            chunk: chunks.add(&block.columns),
            from: block.from,
            to: block.to,
            count: block.count,
        };
        lane.blocks = blocks.into_iter().filter(|_| single).map(of_block).collect();
    }
    let spans = stages.into_iter().enumerate().filter_map(|(stage, span)| Some((stage, span?)));
    Timeline {
        length_ns: to_ns - from_ns,
        tick_ns,
        bins,
        levels: lanes.0,
        phases: PHASES.map(|(key, label)| Phase { key, label }).into(),
        lanes: lanes.1,
        stages: spans
            .map(|(stage, (from, to))| StageSpan {
                stage,
                from_ns: from.saturating_sub(from_ns),
                to_ns: to.saturating_sub(from_ns),
            })
            .collect(),
        jobs: jobs(trace, a, from_ns, to_ns),
        activities: count,
        single,
    }
}

/// Returns the time of the first submission or activity.
fn first(trace: &Trace, by_resource: &[Vec<Activity>]) -> u64 {
    let submitted = trace.jobs.iter().map(|job| job.submitted_ns);
    let queued = by_resource.iter().flatten().map(|activity| activity.queued_ns);
    submitted.chain(queued).min().unwrap_or(0)
}

fn jobs(trace: &Trace, a: &Analysis, from_ns: u64, to_ns: u64) -> Vec<JobSpan> {
    let mut ends = vec![to_ns; trace.jobs.len()];
    for end in &trace.job_ends {
        ends.get_mut(end.job as usize).into_iter().for_each(|ended| *ended = end.ended_ns);
    }
    let spans = a.jobs.iter().filter_map(|job| trace.jobs.get(job.id).map(|of| (job.id, of.submitted_ns)));
    let spans = spans.zip(ends).map(|((job, submitted), ended)| JobSpan {
        job,
        from_ns: submitted.saturating_sub(from_ns),
        to_ns: ended.saturating_sub(from_ns),
    });
    spans.collect()
}

/// Returns the chunk of levels, and a lane for each resource that ran anything.
fn lanes(trace: &Trace, a: &Analysis, levels: Levels, chunks: &mut Chunks) -> (Option<usize>, Vec<Lane>) {
    let bins = levels.bins();
    let mut values: Vec<u8> = Vec::new();
    let mut lanes: Vec<Lane> = Vec::new();
    for series in levels.finish() {
        let resource = series.resource as usize;
        if lanes.last().is_none_or(|lane| lane.resource != resource) {
            lanes.push(lane(trace, a, resource));
        }
        let lane = lanes.len() - 1;
        let phase = if let Quantity::Running(phase) = series.quantity { Some(phase) } else { None };
        let place = SeriesRef { phase, largest: series.largest, offset: values.len() / 2 };
        let sum: f64 = series.values.iter().map(|v| f64::from(*v)).sum();
        match series.quantity {
            Quantity::Running(_) => {
                lanes[lane].mean += sum / 65535.0 * series.largest / bins as f64;
                lanes[lane].running.push(place);
            }
            Quantity::Waiting => lanes[lane].waiting = Some(place),
            Quantity::Rate => lanes[lane].rate = Some(place),
        }
        values.extend(series.values.iter().flat_map(|v| v.to_le_bytes()));
    }
    lanes.retain(|lane| !lane.running.is_empty());
    ((!values.is_empty()).then(|| chunks.add(&values)), lanes)
}

fn lane(trace: &Trace, a: &Analysis, ix: usize) -> Lane {
    let of = &trace.resources[ix];
    let used = a.resources.get(ix);
    let machine = trace.machines.get(of.machine as usize).map(|m| m.name.clone());
    Lane {
        resource: ix,
        name: if of.name == of.kind { noun(&of.kind).to_owned() } else { resource(&of.kind, Some(&of.name)) },
        kind: of.kind.clone(),
        machine: machine.filter(|_| trace.machines.len() > 1),
        capacity: used
            .map_or("unknown".into(), |r| capacity(&r.kind, r.capacity, r.capacity_from.as_deref())),
        unit: match of.kind.as_str() {
            kind::CPU => "cores",
            kind::SLOTS => "slots",
            _ => "at once",
        },
        rows: 0,
        full: 0.0,
        mean: 0.0,
        running: Vec::new(),
        waiting: None,
        rate: None,
        samples: Vec::new(),
        blocks: Vec::new(),
    }
}

fn given_rate(a: &Analysis, resource: usize) -> Option<f64> {
    a.resources.get(resource).and_then(|r| r.capacity).filter(|c| *c > 0.0)
}

/// Returns a resource's counters as shares of its capacity. If there are too many, neighbours are averaged.
fn samples(trace: &Trace, resource: usize, capacity: Option<f64>, from_ns: u64) -> Vec<(u64, f64)> {
    let Some(capacity) = capacity else { return Vec::new() };
    let timed = matches!(trace.resources[resource].kind.as_str(), kind::CPU | kind::SLOTS);
    let of_resource = trace.utilization_samples.iter().filter(|s| s.resource as usize == resource);
    let shares = of_resource.filter_map(|s| {
        let amount = match (timed, s.busy_ns, s.read_bytes, s.write_bytes) {
            (true, busy, ..) => busy? as f64 / s.interval_ns as f64,
            (false, _, None, None) => return None,
            (false, _, read, write) => {
                let bytes = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
                bytes as f64 / (s.interval_ns as f64 / 1e9)
            }
        };
        let at = s.at_ns.saturating_sub(s.interval_ns / 2).saturating_sub(from_ns);
        (amount / capacity).is_finite().then_some((at, amount / capacity))
    });
    let mut shares: Vec<(u64, f64)> = shares.collect();
    shares.sort_by_key(|(at, _)| *at);
    let join = shares.len().div_ceil(MAX_SAMPLES).max(1);
    let joined = shares.chunks(join).map(|some| {
        let mean = some.iter().map(|(_, share)| share).sum::<f64>() / some.len() as f64;
        (some[some.len() / 2].0, (mean * 1e4).round() / 1e4)
    });
    joined.collect()
}
