//! Analysis of a stage: its ideal times, its bottleneck, and the unevenness of its multitasks.

use pellucid_trace::{Outcome, Phase, Trace};

use super::capacity::Capacity;
use super::demand::{Demands, brings_in};
use super::ideal::{self, Loads};
use super::job::core_time;
use super::spans::Members;
use crate::analysis::{Skew, StageAnalysis};
use crate::index::{Ix, MultitaskIx, ResourceIx, StageIx, Table};
use crate::numbers::{max_over_median, ms};

/// A multitask's time, outcome and bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Task {
    started_ns: u64,
    /// `None` if none of its monotasks ended.
    ended_ns: Option<u64>,
    failed: bool,
    input_bytes: Option<f64>,
    output_bytes: Option<f64>,
}

/// Returns the multitasks by stage.
pub(crate) fn tasks(trace: &Trace, demands: &Demands) -> Table<StageIx, Vec<Task>> {
    let admitted = trace.multitasks.iter().map(|m| Task { started_ns: m.admitted_ns, ..Task::default() });
    let mut multitasks: Table<MultitaskIx, Task> = admitted.collect();
    for demand in demands.all.iter().filter(|d| d.own) {
        let monotask = demands.monotask(demand);
        let task = &mut multitasks[MultitaskIx(monotask.multitask)];
        task.ended_ns = task.ended_ns.max(Some(demand.end_ns));
        task.failed |= monotask.outcome == Outcome::Failed;
        let bytes = if demands.timed[demand.resource] {
            monotask.cached_bytes.map(|b| b as f64)
        } else {
            (!demands.unmeasured[demand.resource]).then_some(demand.amount)
        };
        let total = match monotask.phase {
            Phase::Spill | Phase::Write => &mut task.output_bytes,
            phase if brings_in(phase) || demands.on_cores(demand) => &mut task.input_bytes,
            _ => continue,
        };
        *total = bytes.map_or(*total, |b| Some(total.unwrap_or(0.0) + b));
    }
    let mut by_stage = Table::<StageIx, Vec<Task>>::filled(trace.stages.len(), Vec::new());
    for (task, multitask) in multitasks.into_iter().zip(&trace.multitasks) {
        by_stage.get_mut(StageIx(multitask.stage)).into_iter().for_each(|stage| stage.push(task.clone()));
    }
    by_stage
}

/// Analyzes one stage; `members` are those of its job.
pub(crate) fn analyze(
    trace: &Trace,
    demands: &Demands,
    capacities: &Table<ResourceIx, Capacity>,
    members: Option<&Members>,
    tasks: &[Task],
    ix: StageIx,
) -> StageAnalysis {
    let stage = &trace.stages[ix.at()];
    let used = demands.of_stage(ix);
    let end = demands.stage_end(ix);
    let duration_ms = end.map(|e| ms(e.ended_ns.saturating_sub(stage.submitted_ns) as f64));
    let members = members.filter(|_| !used.is_empty());
    let times = members.map(|m| ideal::kind_times(&Loads::of(used), m, capacities)).unwrap_or_default();
    let durations: Vec<f64> =
        tasks.iter().filter_map(|t| Some(ms(t.ended_ns?.saturating_sub(t.started_ns) as f64))).collect();
    StageAnalysis {
        id: ix.at(),
        job: stage.job as usize,
        attempt: stage.attempt,
        name: stage.name.clone(),
        call_site: stage.call_site.clone(),
        tasks: tasks.len() as u64,
        failed_tasks: tasks.iter().filter(|t| t.failed).count() as u64,
        duration_ms,
        task_time_ms: (!durations.is_empty()).then(|| durations.iter().sum()),
        bottleneck: ideal::largest_limit(trace, &times),
        kinds: ideal::kind_uses(trace, demands, &times, used, duration_ms),
        core: core_time(demands, used.iter()),
        not_split: stage.not_split.clone(),
        skew: Skew {
            input_bytes_max_over_median: max_over_median(
                tasks.iter().filter_map(|t| t.input_bytes).collect(),
            ),
            output_bytes_max_over_median: max_over_median(
                tasks.iter().filter_map(|t| t.output_bytes).collect(),
            ),
            duration_max_over_median: max_over_median(durations),
            ..Skew::default()
        },
        source_id: stage.id,
        ..StageAnalysis::default()
    }
}
