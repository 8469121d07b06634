//! The evidence that causes and advice rest on.

use pellucid_trace::{Outcome, Trace};

use crate::analysis::{StageAnalysis, WallClock};
use crate::pipelined::replay::bounds::Replays;

/// Share of the jobs' time that advice must save.
pub(crate) const MIN_SAVING_SHARE: f64 = 0.05;

/// Input to causes and advice.
pub(crate) struct Evidence<'e> {
    pub replays: &'e Replays<'e>,
    pub stages: &'e [StageAnalysis],
    /// Saving from dividing skewed work evenly; `None` where nothing is skewed.
    pub even_saves_ms: Option<f64>,
    /// Stragglers without an inherent reason, each with its duration at the median rate.
    pub avoidable_ns: &'e [(u32, u64)],
    pub avoidable_saves_ms: f64,
    pub wall_clock: &'e WallClock,
}

/// Returns true if some job failed.
pub(crate) fn failed(trace: &Trace) -> bool {
    trace.job_ends.iter().any(|end| end.outcome == Outcome::Failed)
}

/// Formats `stage 3`, with the number that the engine gave it.
pub(crate) fn name_of(trace: &Trace, stage: usize) -> String {
    format!("stage {}", trace.stages[stage].id.unwrap_or(stage as u64))
}
