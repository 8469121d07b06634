//! The analysis of a trace, by the kind of its tasks.

use pellucid_trace::{Trace, kind};

use crate::analysis::{Analysis, Cause, Recording};
use crate::index::{Ix, JobIx, Table};
use crate::monotasks::capacity::{self, capacities};
use crate::monotasks::demand::Demands;
use crate::monotasks::job::{self, JobModel};
use crate::monotasks::{cause, ideal, stage};
use crate::numbers::{ms, ratio};
use crate::{iterative, pipelined};

/// Analyzes a trace (monotasks-sosp17 §6.1).
///
/// Never panics, whatever the trace holds. Every number in the result is finite.
pub fn analyze(trace: &Trace) -> Analysis {
    if iterative::applies(trace) {
        let mut analysis = by_demands(&iterative::as_monotasks(trace));
        iterative::analyze(trace, &mut analysis);
        return analysis;
    }
    by_demands(trace)
}

/// Analyzes the demands of monotasks, and pipelined tasks, which have none.
fn by_demands(trace: &Trace) -> Analysis {
    let demands = Demands::of(trace);
    let capacities = capacities(trace, &demands);
    let last_seen = job::last_seen(trace, &demands);
    let models: Table<JobIx, JobModel> =
        last_seen.indices().map(|ix| JobModel::of(trace, &demands, &capacities, ix)).collect();
    let jobs = models.rows().zip(&last_seen);
    let jobs: Vec<_> =
        jobs.map(|((ix, model), seen)| job::analyze(trace, &demands, model, *seen, ix)).collect();
    let causes = models.iter().zip(&jobs).flat_map(|(model, job)| cause::causes(trace, &demands, model, job));
    let mut causes: Vec<Cause> = causes.collect();
    causes.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let tasks = stage::tasks(trace, &demands);
    let stages = tasks.rows().map(|(ix, tasks)| {
        let members = models.get(JobIx(trace.stages[ix.at()].job)).map(|model| &model.members);
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
