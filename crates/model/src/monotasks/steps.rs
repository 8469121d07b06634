//! The consecutive steps of a job, which account for time outside of resources.
//!
//! Ideal times explain little of a query that takes a few milliseconds, most of which is planning and
//! start-up. Every trace of monotasks records the submission of the first stage, the admission of the
//! first multitask and the start of the first monotask, so this time can be attributed. This does not
//! apply to sampled tasks, which record only when one of many ran.

use pellucid_trace::{Trace, union_ns};
use serde::Serialize;

use super::demand::Demands;
use crate::index::{Ix, JobIx};
use crate::numbers::ms;

/// The consecutive steps of a job of monotasks; they sum to its duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Steps {
    /// From its submission to that of its first stage.
    #[serde(rename = "planning")]
    pub planning_ms: f64,
    /// From there to the admission of its first multitask.
    #[serde(rename = "admission")]
    pub admission_ms: f64,
    /// From there to the start of its first monotask.
    #[serde(rename = "starting")]
    pub starting_ms: f64,
    /// While at least one monotask ran.
    #[serde(rename = "working")]
    pub working_ms: f64,
    /// Between the first and the last monotask, while none ran.
    #[serde(rename = "pauses")]
    pub pauses_ms: f64,
    /// After the last monotask.
    #[serde(rename = "finishing")]
    pub finishing_ms: f64,
}

impl Steps {
    /// Returns each step with its name, in order.
    pub fn each(&self) -> [(&'static str, f64); 6] {
        [
            ("planning", self.planning_ms),
            ("admission", self.admission_ms),
            ("starting", self.starting_ms),
            ("working", self.working_ms),
            ("pauses", self.pauses_ms),
            ("finishing", self.finishing_ms),
        ]
    }
}

/// Divides the time of a job that ended. Returns `None` without monotasks.
pub(crate) fn steps(trace: &Trace, demands: &Demands, job: JobIx, ended_ns: u64) -> Option<Steps> {
    let service: Vec<(u64, u64)> = demands.of_job(job).map(|d| (d.start_ns, d.end_ns)).collect();
    let first = service.iter().map(|(start, _)| *start).min()?;
    let last = service.iter().map(|(_, end)| *end).max()?.min(ended_ns);
    let planned = demands.stages_of(job).iter().map(|stage| trace.stages[stage.at()].submitted_ns).min()?;
    let multitasks = demands.of_job(job).map(|d| demands.monotask(d).multitask as usize);
    let admitted = multitasks.filter_map(|ix| Some(trace.multitasks.get(ix)?.admitted_ns)).min()?;
    // Records of a damaged trace may be out of order, so no step is negative.
    let mut at = trace.jobs[job.at()].submitted_ns;
    let mut until = |instant: u64| {
        let step = instant.min(ended_ns).saturating_sub(at);
        at += step;
        ms(step as f64)
    };
    let (planning_ms, admission_ms) = (until(planned.min(first)), until(admitted.min(first)));
    let starting_ms = until(first);
    let (there, ended) = (until(last), until(ended_ns));
    let working_ms =
        ms(union_ns(service.into_iter().map(|(a, b)| (a.min(ended_ns), b.min(ended_ns))).collect()) as f64);
    let working_ms = working_ms.min(there);
    Some(Steps {
        planning_ms,
        admission_ms,
        starting_ms,
        working_ms,
        pauses_ms: there - working_ms,
        finishing_ms: ended,
    })
}
