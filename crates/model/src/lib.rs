//! What a trace means: ideal times, the bottleneck, and what would limit next.
//!
//! # Why it is so
//!
//! Work that is split into monotasks says how long each resource was used, so a
//! job's time can be explained by a model that fits on one line
//! (monotasks-sosp17 §6.1): a resource's *ideal time* is its total demand over
//! its capacity, a stage takes as long as its largest ideal time, and a job the
//! sum over its stages. Removing a resource from the maximum shows what it costs
//! (§6.5). Three things differ from the paper, each for a reason:
//!
//! * **Spans, not stages, are summed.** The paper's stages run one after
//!   another. Ours may overlap, and stages that overlap share the resources, so
//!   the sum of their maxima could exceed the measured time. A job is therefore cut
//!   wherever a stage begins or ends its service; between two cuts the
//!   same stages run, and their demands are added before the maximum is taken.
//!   Where stages do not overlap, this is the paper's formula. Whatever
//!   overlaps, each span's maximum is at most its length while capacities are
//!   right, so the modelled time is a lower bound.
//! * **Bytes stay on their disk.** A kind's ideal time is total demand over total
//!   capacity, as in the paper. But input lies where it lies: if one disk
//!   holds most of it, the kind takes as long as that disk. That is the kind's
//!   *limit*, and maxima are taken over limits. What could have gone anywhere
//!   (computing, spilled bytes) does not count towards a single resource's limit.
//! * **Capacity may come from the trace itself.** Set or probed capacities go
//!   first; else a resource's capacity is the rate of its best two busy
//!   seconds; a resource that was not busy for so long has none, and its busy
//!   time stands for its ideal time, which then is a bound, and is marked as one.
//!
//! # How it is used
//!
//! ```
//! let trace = pellucid_trace::Trace::default();
//! let analysis = pellucid_model::analyze(&trace);
//! assert!(analysis.jobs.is_empty());
//! ```
//!
//! # Where it does not apply
//!
//! The model has totals only: no queueing, ramp-up or waves. Those are the
//! difference between measured and modelled time, and are called unexplained.
//! It reads monotasks. Pipelined tasks (Spark's) have no ideal times: what they say is worked out in
//! `pipelined`, as blocked-time-nsdi15 does. Sampled tasks (of iterative jobs) are read as monotasks of cores and
//! of the memory's bandwidth, in `iterative`.
//!
//! Nothing here reads a clock or does I/O. Input may be damaged: indices that lead
//! nowhere are skipped with a warning, and what was not measured is `None`.

mod analysis;
pub mod backtest;
mod capacity;
mod cause;
mod compare;
mod demand;
mod ideal;
mod iterative;
mod job;
mod pipelined;
mod series;
mod stage;
mod steps;
pub mod whatif;

pub use analysis::*;
pub use compare::{Change, Comparison, StageChange, Verdict, compare};
pub use pipelined::{query, saved_by_shorter_tasks_ms, spread};
pub use series::{Series, series};
pub use steps::Steps;

use capacity::capacities;
use demand::Demands;
use job::JobModel;
use pellucid_trace::{Trace, kind};

/// Explains a trace (monotasks-sosp17 §6.1).
///
/// Never panics, whatever the trace holds; no number in the answer is infinite
/// or not a number.
pub fn analyze(trace: &Trace) -> Analysis {
    if iterative::applies(trace) {
        return iterative::analyze(trace);
    }
    let demands = Demands::of(trace);
    let capacities = capacities(trace, &demands);
    let models: Vec<_> =
        (0..trace.jobs.len()).map(|ix| JobModel::of(trace, &demands, &capacities, ix)).collect();
    let last_seen = job::last_seen(trace, &demands);
    let jobs = models.iter().zip(&last_seen).enumerate();
    let jobs: Vec<_> =
        jobs.map(|(ix, (model, seen))| job::analyze(trace, &demands, model, *seen, ix)).collect();
    let causes = models.iter().zip(&jobs).flat_map(|(model, job)| cause::causes(trace, &demands, model, job));
    let mut causes: Vec<Cause> = causes.collect();
    causes.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let tasks = stage::tasks(trace, &demands);
    let stages = tasks.iter().enumerate().map(|(ix, tasks)| {
        let members = models.get(trace.stages[ix].job as usize).map(|model| &model.members);
        stage::analyze(trace, &demands, &capacities, members, tasks, ix)
    });
    let stages = stages.collect();
    let mut analysis = Analysis {
        resources: ideal::resources(trace, &demands, &capacities),
        wall_clock: job::wall_clock(trace, &last_seen),
        jobs,
        stages,
        causes,
        recording: recording(trace, &demands),
        warnings: warnings(trace, &demands),
        ..Analysis::default()
    };
    if pipelined::applies(trace) {
        pipelined::analyze(trace, &mut analysis);
    }
    analysis
}

/// What recording cost, against the core time that the trace accounts for.
fn recording(trace: &Trace, demands: &Demands) -> Recording {
    let end = trace.end.as_ref();
    let recording_ns = end.and_then(|e| e.recording_ns);
    let core_ns = demands.core_ns(&demands.all);
    Recording {
        recording_ms: recording_ns.map(|ns| ms(ns as f64)),
        writer_ms: end.and_then(|e| e.writer_ns).map(|ns| ms(ns as f64)),
        share: recording_ns.and_then(|ns| ratio(ns as f64, core_ns)),
    }
}

/// What a reader of the analysis has to know before believing it.
fn warnings(trace: &Trace, demands: &Demands) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(why) = &trace.truncated {
        out.push(format!("the trace is truncated ({why}): times and bytes are those up to there"));
    }
    out.extend(trace.warnings.iter().cloned());
    let labels = trace.header.iter().flat_map(|h| &h.labels);
    out.extend(labels.map(|label| format!("not the bare machine: {label}")));
    if demands.skipped > 0 {
        out.push(format!(
            "{} monotasks refer to what the trace does not hold and were left out",
            demands.skipped
        ));
    }
    out.extend(foreign_load(trace));
    out
}

/// Warns when other processes used core time, more than a tenth of what this job may use: the
/// job's service times then hold waiting that the trace cannot see. In cores, since the machine
/// may have more of them than the job.
fn foreign_load(trace: &Trace) -> Option<String> {
    let (mut others, mut available, mut passed) = (0.0, 0.0, 0.0);
    for sample in &trace.utilization_samples {
        let Some(resource) = trace.resources.get(sample.resource as usize) else { continue };
        let (Some(all), Some(own)) = (sample.busy_ns, sample.own_busy_ns) else { continue };
        let Some(cores) = capacity::given(trace, resource) else { continue };
        if resource.kind == kind::CPU {
            others += all.saturating_sub(own) as f64;
            available += sample.interval_ns as f64 * cores.0;
            passed += sample.interval_ns as f64;
        }
    }
    let (share, busy) = (ratio(others, available)?, ratio(others, passed)?);
    (share > 0.1).then(|| {
        let cores = if format!("{busy:.1}") == "1.0" { "core" } else { "cores" };
        format!("other processes kept {busy:.1} {cores} busy while this was measured")
    })
}

/// `a ÷ b` where that is a number, else nothing.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    let r = a / b;
    (b > 0.0 && r.is_finite()).then_some(r)
}

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: f64) -> f64 {
    ns / 1e6
}
