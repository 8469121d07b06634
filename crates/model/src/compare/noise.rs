//! Estimates how much two runs of the same work differ by chance.
//!
//! Three sources are added as variances; the interval is the difference ± 1.645 standard deviations (90 %
//! of a normal distribution).
//!
//! 1. **Within a stage.** Take `n` monotasks of one kind with standard deviation σ, `c` of which run
//!    concurrently (service time over busy time). Each slot runs `n` ÷ `c` of them, so their total varies
//!    by n σ² ÷ c²; the stage's end varies by one monotask more or less, σ². The kind with the largest
//!    variance counts, since the stage waits for the slowest.
//! 2. **σ itself.** Monotasks of a stage differ because their partitions do. That is not noise: the next
//!    run has the same partitions. If both runs have the same partitions, σ² is estimated from the
//!    residuals y − r x, where x and y are a partition's service times in the first and second run and r
//!    is the ratio of the totals. Their variance is σy² + r² σx² = 2 σy², where σ scales with the service
//!    time. If partitions differ, the whole variance is used, which overestimates the noise.
//! 3. **Between runs.** Influences on a whole run (clock rates, neighbours, the state of a disk) are not
//!    visible in the spread of monotasks, and two runs cannot reveal them. [`SHARE_BETWEEN_RUNS`] and
//!    [`MS_BETWEEN_RUNS`] account for them.

use std::collections::BTreeMap;

use pellucid_trace::{Trace, union_ns};

use super::Change;
use crate::numbers::ratio;

/// Standard deviation between runs of the same work on the same machine, as a share of the time;
/// measured, see `docs/compare.md`.
const SHARE_BETWEEN_RUNS: f64 = 0.04;
/// Constant part of that standard deviation, from the same measurement.
const MS_BETWEEN_RUNS: f64 = 5.0;
/// Half-width of the central 90 % of the normal distribution, in standard deviations.
const Z_90: f64 = 1.645;
const NS2_PER_MS2: f64 = 1e12;

/// The work of each stage of a run, by kind.
#[derive(Debug)]
pub(super) struct Side {
    pub stages: Vec<BTreeMap<String, Work>>,
}

/// A stage's work on one kind of resource.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    /// Number of monotasks and their service time in nanoseconds, by partition.
    partitions: BTreeMap<u32, (u64, f64)>,
    pub bytes: f64,
    /// Time during which any of it ran.
    pub busy_ns: f64,
}

impl Work {
    /// Returns the service time of all partitions.
    pub fn service_ns(&self) -> f64 {
        self.partitions.values().map(|(_, ns)| ns).sum()
    }

    /// Returns the number of monotasks, or tasks.
    pub fn count(&self) -> u64 {
        self.partitions.values().map(|(count, _)| count).sum()
    }

    /// Returns the variance of the total time, if a partition's service time has variance `sigma2`.
    fn variance(&self, sigma2: f64) -> f64 {
        let at_once = ratio(self.service_ns(), self.busy_ns).unwrap_or(1.0).max(1.0);
        sigma2 * (self.partitions.len() as f64 / (at_once * at_once) + 1.0)
    }
}

impl Side {
    pub fn of(trace: &Trace) -> Side {
        let mut stages: Vec<BTreeMap<String, Work>> = vec![BTreeMap::new(); trace.stages.len()];
        let mut busy: Vec<BTreeMap<String, Vec<(u64, u64)>>> = vec![BTreeMap::new(); trace.stages.len()];
        let mut add =
            |stage: u32, partition: u32, resource: u32, (from, to): (u64, u64), bytes: Option<u64>| {
                let (Some(works), Some(resource)) =
                    (stages.get_mut(stage as usize), trace.resources.get(resource as usize))
                else {
                    return;
                };
                let work = works.entry(resource.kind.clone()).or_default();
                let of = work.partitions.entry(partition).or_default();
                *of = (of.0 + 1, of.1 + to.saturating_sub(from) as f64);
                work.bytes += bytes.unwrap_or(0) as f64;
                busy[stage as usize].entry(resource.kind.clone()).or_default().push((from, to));
            };
        for m in &trace.monotasks {
            let Some(multitask) = trace.multitasks.get(m.multitask as usize) else { continue };
            let bytes = m.device_bytes.filter(|b| *b > 0).or(m.bytes);
            add(multitask.stage, multitask.partition, m.resource, (m.started_ns(), m.ended_ns()), bytes);
        }
        for task in trace.pipelined_tasks.iter() {
            let span = (task.launched_ns, task.ended_ns());
            add(task.stage, task.partition, task.resource, span, task.input_bytes);
        }
        for (works, busy) in stages.iter_mut().zip(busy) {
            for (kind, spans) in busy {
                works.entry(kind).or_default().busy_ns = union_ns(spans) as f64;
            }
        }
        Side { stages }
    }
}

/// Returns the variance that a stage contributes to the difference of two runs, in ms².
pub(super) fn variance_of_pair(a: &BTreeMap<String, Work>, b: &BTreeMap<String, Work>) -> f64 {
    let kinds = a.iter().filter_map(|(kind, x)| Some((x, b.get(kind)?)));
    let variances = kinds.map(|(x, y)| match residual_variances(x, y) {
        Some((of_x, of_y)) => x.variance(of_x) + y.variance(of_y),
        None => x.variance(spread(x)) + y.variance(spread(y)),
    });
    variances.fold(0.0, f64::max) / NS2_PER_MS2
}

/// Returns the variance of a stage of only one run, in ms².
pub(super) fn variance_of_single(works: &BTreeMap<String, Work>) -> f64 {
    works.values().map(|work| work.variance(spread(work))).fold(0.0, f64::max) / NS2_PER_MS2
}

/// Returns the variance between whole runs of these durations, in ms².
pub(super) fn between_runs(a_ms: f64, b_ms: f64) -> f64 {
    let of = |ms: f64| (SHARE_BETWEEN_RUNS * ms).powi(2) + MS_BETWEEN_RUNS.powi(2);
    of(a_ms) + of(b_ms)
}

/// Returns the 90 % interval around a difference.
pub(super) fn interval(change_ms: f64, variance: f64) -> Change {
    let half = Z_90 * variance.max(0.0).sqrt();
    Change { ms: change_ms, low_ms: change_ms - half, high_ms: change_ms + half }
}

/// Returns the variances of a partition's service time in both runs, without the differences between
/// partitions; `None` unless both have the same partitions, at least three.
fn residual_variances(a: &Work, b: &Work) -> Option<(f64, f64)> {
    let same = a.partitions.len() >= 3 && a.partitions.keys().eq(b.partitions.keys());
    let times = ratio(b.service_ns(), a.service_ns()).filter(|r| same && *r > 0.0)?;
    let left = a.partitions.values().zip(b.partitions.values()).map(|((_, x), (_, y))| y - times * x);
    let left = variance(&left.collect::<Vec<f64>>());
    // Half belongs to the first run, scaled by the ratio; half to the second.
    Some((left / (2.0 * times * times), left / 2.0))
}

fn spread(work: &Work) -> f64 {
    variance(&work.partitions.values().map(|(_, ns)| *ns).collect::<Vec<f64>>())
}

/// Returns the sample variance; 0 for fewer than two values.
fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = ratio(values.iter().sum(), count).unwrap_or(0.0);
    ratio(values.iter().map(|v| (v - mean) * (v - mean)).sum(), count - 1.0).unwrap_or(0.0)
}

impl Change {
    /// Returns the change and its interval as shares of the duration before.
    pub fn relative_to(&self, before_ms: f64) -> Option<(f64, f64, f64)> {
        let share = |ms: f64| ratio(ms, before_ms);
        Some((share(self.ms)?, share(self.low_ms)?, share(self.high_ms)?))
    }
}
