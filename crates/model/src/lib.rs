//! Analyses of a trace: ideal times, the bottleneck, and what would limit next.
//!
//! # The model
//!
//! Work split into monotasks records how long each resource was used, so a job's time can be explained by
//! a model that fits on one line (monotasks-sosp17 §6.1): a resource's *ideal time* is its total demand
//! over its capacity, a stage takes as long as its largest ideal time, and a job takes the sum over its
//! stages. Removing a resource from the maximum shows its cost (§6.5). The model differs from the paper
//! in three ways:
//!
//! * **Spans, not stages, are summed.** The paper's stages run one after another. Here stages may overlap
//!   and share the resources, so the sum of their maxima could exceed the measured time. A job is
//!   therefore cut wherever a stage starts or ends its service. Between two cuts the same stages run, and
//!   their demands are added before the maximum is taken. Without overlap, this is the paper's formula.
//!   If capacities are right, each span's maximum is at most its length, so the modelled time is a lower
//!   bound.
//! * **Bytes stay on their disk.** A kind's ideal time is total demand over total capacity, as in the
//!   paper. But input is fixed to a disk: if one disk holds most of it, the kind takes as long as that
//!   disk. This time is the kind's *limit*, and maxima are taken over limits. Demands that any resource
//!   could have served (computing, spilled bytes) do not count towards the limit of a single one.
//! * **The capacity may come from the trace.** Set or probed capacities take precedence. Otherwise a
//!   resource's capacity is the rate of its best two busy seconds. A resource with less busy time has no
//!   capacity; its busy time then stands in for its ideal time, and the result is marked as a bound.
//!
//! # Example
//!
//! ```
//! let trace = pellucid_trace::Trace::default();
//! let analysis = pellucid_model::analyze(&trace);
//! assert!(analysis.jobs.is_empty());
//! ```
//!
//! # Limits
//!
//! The model uses totals only, without queueing, ramp-up or waves. These make up the difference between
//! measured and modelled time, which is reported as unexplained. The model applies to monotasks.
//! Pipelined tasks (Spark's) have no ideal times; `pipelined` analyzes them as in blocked-time-nsdi15.
//! Sampled tasks (of iterative jobs) are read as monotasks on cores and memory bandwidth, in `iterative`.
//!
//! Two analyses are of storage: [`composition`] counts the links of a data path, and [`doctor`] finds problems in
//! how a trace, a Spark configuration or a composition uses stores.
//!
//! This crate reads no clock and does no I/O. Input may be damaged: records with invalid indices are
//! skipped with a warning. Values that were not measured are `None`.

mod analysis;
pub mod backtest;
mod compare;
pub mod composition;
pub mod doctor;
mod finding;
mod iterative;
mod monotasks;
mod pipelined;
mod predict;
mod series;
pub mod whatif;

pub use analysis::*;
pub use compare::{Change, Comparison, StageChange, Verdict, compare};
pub use finding::Finding;
pub use monotasks::steps::Steps;
pub use pipelined::{is_known_setting, query, saved_by_shorter_tasks_ms, spread};
pub use series::{Series, series};

use monotasks::capacity::{self, capacities};
use monotasks::demand::Demands;
use monotasks::job::{self, JobModel};
use monotasks::{cause, ideal, stage};
use pellucid_trace::{Trace, kind};

/// Analyzes a trace (monotasks-sosp17 §6.1).
///
/// Never panics, whatever the trace holds. Every number in the result is finite.
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

/// Returns the cost of recording, relative to the core time in the trace.
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

/// Returns caveats about the analysis.
fn warnings(trace: &Trace, demands: &Demands) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(why) = &trace.truncated {
        out.push(format!("the trace is truncated ({why}): times and bytes cover the recorded part"));
    }
    out.extend(trace.warnings.iter().cloned());
    let labels = trace.header.iter().flat_map(|h| &h.labels);
    out.extend(labels.map(|label| format!("not the bare machine: {label}")));
    if demands.skipped > 0 {
        out.push(format!(
            "{} monotasks refer to records missing from the trace and were skipped",
            demands.skipped
        ));
    }
    out.extend(foreign_load(trace));
    out
}

/// Warns if other processes used more than a tenth of the core time available to this job: its service
/// times then include waits that the trace does not show. The unit is cores, since the machine may have
/// more of them than the job.
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
        format!("other processes kept {busy:.1} {cores} busy during the measurement")
    })
}

/// Returns `a ÷ b` if it is a finite number.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    let r = a / b;
    (b > 0.0 && r.is_finite()).then_some(r)
}

/// Converts nanoseconds to milliseconds.
pub(crate) fn ms(ns: f64) -> f64 {
    ns / 1e6
}
