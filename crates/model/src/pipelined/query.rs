//! One query of an application as if it were one job.
//!
//! A statement on Spark may run several jobs (a broadcast first, then a stage at a time where the
//! plan adapts). Whoever asked it wants one line. Its time is from its submission to its end, so what
//! the driver does between the jobs counts; its tasks are those of all its jobs.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

use super::limit::bottleneck;
use crate::analysis::{Analysis, BlockedTime, BlockedTimes, JobAnalysis};
use crate::ms;

/// What the query at this index of the trace did; `None` where there is no such query.
pub fn query(trace: &Trace, analysis: &Analysis, query: usize) -> Option<JobAnalysis> {
    let asked = trace.queries.get(query)?;
    let end = trace.query_ends.iter().find(|end| end.query as usize == query);
    let of_query = |job: &&JobAnalysis| {
        trace.jobs.get(job.id).and_then(|job| job.query).is_some_and(|of| of as usize == query)
    };
    let jobs: Vec<&JobAnalysis> = analysis.jobs.iter().filter(of_query).collect();
    let sum =
        |part: fn(&JobAnalysis) -> Option<u64>| jobs.iter().filter_map(|job| part(job)).reduce(|a, b| a + b);
    let blocked = jobs.iter().filter_map(|job| job.blocked).reduce(together);
    let mut whole = JobAnalysis {
        id: query,
        name: asked.name.clone(),
        duration_ms: end.map(|end| ms(end.ended_ns.saturating_sub(asked.submitted_ns) as f64)),
        outcome: end.map(|end| end.outcome),
        error: end.and_then(|end| end.error.clone()),
        stages: jobs.iter().flat_map(|job| job.stages.iter().copied()).collect(),
        bottleneck: bottleneck(blocked.as_ref()),
        read_bytes: sum(|job| job.read_bytes),
        written_bytes: sum(|job| job.written_bytes),
        source_id: asked.id,
        blocked,
        bounds: BTreeMap::new(),
        ..JobAnalysis::default()
    };
    whole.core.total_ms = blocked.and_then(|blocked| blocked.cpu.measured_ms);
    Some(whole)
}

fn together(a: BlockedTimes, b: BlockedTimes) -> BlockedTimes {
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
