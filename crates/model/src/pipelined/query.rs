//! A query with several jobs, presented as one job.
//!
//! A statement on Spark may run several jobs: a broadcast first, then one stage at a time with adaptive
//! execution. The user sees one statement. Its time runs from submission to end, so the driver's time
//! between the jobs counts. Its tasks are those of all its jobs.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

use super::limit::bottleneck;
use crate::analysis::{Analysis, BlockedTime, BlockedTimes, JobAnalysis};
use crate::numbers::ms;

/// Returns the combined analysis of a query's jobs; `None` if the trace has no query with this index.
pub fn query(trace: &Trace, analysis: &Analysis, query: usize) -> Option<JobAnalysis> {
    let recorded = trace.queries.get(query)?;
    let end = trace.query_ends.iter().find(|end| end.query as usize == query);
    let of_query = |job: &&JobAnalysis| {
        trace.jobs.get(job.id).and_then(|job| job.query).is_some_and(|of| of as usize == query)
    };
    let jobs: Vec<&JobAnalysis> = analysis.jobs.iter().filter(of_query).collect();
    let sum =
        |part: fn(&JobAnalysis) -> Option<u64>| jobs.iter().filter_map(|job| part(job)).reduce(|a, b| a + b);
    let blocked = jobs.iter().filter_map(|job| job.blocked).reduce(add_times);
    let mut whole = JobAnalysis {
        id: query,
        name: recorded.name.clone(),
        duration_ms: end.map(|end| ms(end.ended_ns.saturating_sub(recorded.submitted_ns) as f64)),
        outcome: end.map(|end| end.outcome),
        error: end.and_then(|end| end.error.clone()),
        stages: jobs.iter().flat_map(|job| job.stages.iter().copied()).collect(),
        bottleneck: bottleneck(blocked.as_ref()),
        read_bytes: sum(|job| job.read_bytes),
        written_bytes: sum(|job| job.written_bytes),
        source_id: recorded.id,
        blocked,
        bounds: BTreeMap::new(),
        ..JobAnalysis::default()
    };
    whole.core.total_ms = blocked.and_then(|blocked| blocked.cpu.measured_ms);
    Some(whole)
}

fn add_times(a: BlockedTimes, b: BlockedTimes) -> BlockedTimes {
    let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    };
    let add = |a: BlockedTime, b: BlockedTime| BlockedTime {
        measured_ms: both(a.measured_ms, b.measured_ms),
        at_most_ms: both(a.at_most_ms, b.at_most_ms),
    };
    BlockedTimes {
        disk: add(a.disk, b.disk),
        network: add(a.network, b.network),
        gc: add(a.gc, b.gc),
        scheduler: add(a.scheduler, b.scheduler),
        deserialize: add(a.deserialize, b.deserialize),
        other: add(a.other, b.other),
        cpu: add(a.cpu, b.cpu),
    }
}
