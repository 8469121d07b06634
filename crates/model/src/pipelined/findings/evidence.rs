//! The evidence that causes and advice rest on.

use pellucid_trace::{Outcome, Trace};

use crate::analysis::{StageAnalysis, WallClock};
use crate::index::{Ix, TaskIx};
use crate::pipelined::replay::bounds::Replays;
use crate::pipelined::task::Task;

/// Share of the jobs' time that advice must save.
pub(crate) const MIN_SAVING_SHARE: f64 = 0.05;

/// Input to causes and advice. The replays that both ask for are made once.
pub(crate) struct Evidence<'e> {
    pub replays: &'e Replays<'e>,
    pub stages: &'e [StageAnalysis],
    pub wall_clock: &'e WallClock,
    /// Saving from dividing skewed work evenly; `None` where nothing is skewed.
    pub even_saves_ms: Option<f64>,
    /// Stragglers without an inherent reason, each with its duration at the median rate.
    pub avoidable_ns: &'e [(TaskIx, u64)],
    pub avoidable_saves_ms: f64,
    /// Attempts that failed, and those of stages that ran again; `None` if there were none.
    pub retries: Option<Retries>,
}

/// Attempts that gave no result, and their repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retries {
    pub failed: usize,
    /// Attempts that ran again as a result.
    pub repeated: usize,
    pub saves_ms: f64,
}

impl<'e> Evidence<'e> {
    /// Replays the jobs with skewed work divided, without avoidable stragglers, and without retries.
    pub fn of(
        replays: &'e Replays<'e>,
        stages: &'e [StageAnalysis],
        wall_clock: &'e WallClock,
        even_ns: &[(TaskIx, u64)],
        avoidable_ns: &'e [(TaskIx, u64)],
    ) -> Evidence<'e> {
        let saved = |replaced: &[(TaskIx, u64)]| {
            (!replaced.is_empty()).then(|| replays.saved_ms(&replays.with_some(replaced)))
        };
        let again = |task: &Task| replays.trace.stages[task.stage.at()].attempt > 0;
        let all = replays.tasks.all.rows();
        let gone = all.filter(|(_, t)| t.outcome == Outcome::Failed || again(t)).map(|(ix, _)| (ix, 0));
        let gone: Vec<(TaskIx, u64)> = gone.collect();
        let failed = replays.tasks.all.iter().filter(|t| t.outcome == Outcome::Failed).count();
        let retries = |saves_ms| Retries { failed, repeated: gone.len() - failed, saves_ms };
        Evidence {
            replays,
            stages,
            wall_clock,
            even_saves_ms: saved(even_ns),
            avoidable_ns,
            avoidable_saves_ms: saved(avoidable_ns).unwrap_or(0.0),
            retries: saved(&gone).map(retries),
        }
    }
}

/// Returns true if some job failed.
pub(crate) fn failed(trace: &Trace) -> bool {
    trace.job_ends.iter().any(|end| end.outcome == Outcome::Failed)
}

/// Formats `stage 3`, with the number that the engine gave it.
pub(crate) fn name_of(trace: &Trace, stage: usize) -> String {
    format!("stage {}", trace.stages[stage].id.unwrap_or(stage as u64))
}
