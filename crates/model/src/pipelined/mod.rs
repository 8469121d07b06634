//! Analysis of pipelined tasks: blocked time, bounds, stragglers, skew, causes.
//!
//! Tasks that use several resources at once (Spark's) cannot be added up to ideal times, because their
//! resource use over time is not recorded. The analysis follows blocked-time-nsdi15: how long tasks were
//! stalled ([`blocked`]), how long the job would take without that ([`replay`]), which tasks
//! were slow and why ([`straggler`], [`skew`]), and where the application's time went ([`wall_clock`]).
//! Causes and advice ([`findings`]) are derived from these.
//!
//! Everything starts from [`replay::bounds::Replays`]: the tasks, their schedule, and one replay.
//!
//! It does not apply to monotasks, which record their resource use. It does not see inside a task either:
//! two waits that overlap in one task each count in full, as in Spark.

pub(crate) mod blocked;
pub(crate) mod findings;
mod intensity;
pub(crate) mod limit;
mod query;
pub(crate) mod replay;
mod skew;
pub(crate) mod straggler;
pub(crate) mod task;
mod tuning;
mod wall_clock;

use pellucid_trace::Trace;

use crate::analysis::{Analysis, Skew, StageAnalysis, Stragglers};
use crate::index::{Ix, StageIx, Table, TaskIx};
use findings::evidence::Evidence;
pub use findings::settings::is_known_setting;
use findings::{advice, causes};
pub use intensity::spread;
use limit::{bottleneck, limit};
pub use query::query;
use replay::bounds::Replays;
use task::{Part, Task};

/// Returns true for a trace of pipelined tasks, or of an application that ran no task.
pub(crate) fn applies(trace: &Trace) -> bool {
    !trace.pipelined_tasks.is_empty() || trace.application.is_some() && trace.monotasks.is_empty()
}

/// Adds the findings from pipelined tasks to an analysis.
pub(crate) fn analyze(trace: &Trace, analysis: &mut Analysis) {
    let replays = Replays::of(trace);
    let tasks = &replays.tasks.all;
    let by_stage = &replays.schedule.by_stage;
    let SlowTasks { stages, at_median_ns, avoidable_ns, even_ns } = SlowTasks::of(&replays);
    for ((stage, of_stage), (stragglers, skew)) in analysis.stages.iter_mut().zip(by_stage).zip(stages) {
        (stage.stragglers, stage.skew) = (stragglers, skew);
        self::stage(stage, tasks, of_stage);
    }
    let bounds = replays.bounds(&at_median_ns);
    drop(at_median_ns);
    for (ix, job) in analysis.jobs.iter_mut().enumerate() {
        let of_job = job.stages.iter().flat_map(|stage| &by_stage[StageIx::new(*stage)]).map(|t| &tasks[*t]);
        job.blocked = Some(blocked::blocked(of_job));
        job.bottleneck = bottleneck(job.blocked.as_ref());
        job.bounds = bounds.jobs.get(ix).cloned().unwrap_or_default();
        job.core.total_ms = job.blocked.and_then(|b| b.cpu.measured_ms);
    }
    intensity::fill(trace, analysis);
    analysis.bounds = bounds.whole;
    analysis.replay = replays.error();
    analysis.blocked = (!tasks.is_empty()).then(|| blocked::blocked(tasks.iter()));
    analysis.wall_clock = wall_clock::wall_clock(trace, &replays.schedule, &replays.tasks);
    analysis.idle = wall_clock::idle(trace, &replays.schedule, &replays.tasks);
    let evidence = Evidence::of(&replays, &analysis.stages, &analysis.wall_clock, &even_ns, &avoidable_ns);
    analysis.tuning = tuning::tuning(trace);
    analysis.causes = causes::causes(&evidence);
    // The first cause belongs to one job if there is only one, or if one of its stages has most of the
    // cause.
    if let Some(first) = analysis.first_cause() {
        let job = match first.stage {
            Some(stage) => Some(analysis.stages[stage].job),
            None => (analysis.jobs.len() == 1).then_some(0),
        };
        if let Some(job) = job.and_then(|job| analysis.jobs.get_mut(job)) {
            job.bottleneck = limit(job.blocked.as_ref(), Some(&first));
        }
    }
    analysis.advice = advice::advice(&evidence);
    analysis.notes = notes(analysis);
    analysis.warnings.extend(warnings(&replays));
}

/// Returns what the jobs would save if tasks were shorter by `less_ns`, in milliseconds.
///
/// `less_ns` is in the trace's order; tasks beyond its end keep their time. Returns `None` where the
/// trace holds no job that ran tasks.
pub fn saved_by_shorter_tasks_ms(trace: &Trace, less_ns: &[u64]) -> Option<f64> {
    if !applies(trace) {
        return None;
    }
    let replays = Replays::of(trace);
    replays.error()?;
    Some(replays.saved_ms(&replays.with(&task::shorter_ns(trace, less_ns))))
}

/// The slow tasks of each stage and their corrected times: pairs of task index and nanoseconds over the
/// whole trace, since a trace may hold a million tasks.
#[derive(Debug, Default)]
pub(crate) struct SlowTasks {
    /// By stage: its stragglers, if enough tasks succeeded to tell, and its skew.
    pub stages: Vec<(Option<Stragglers>, Skew)>,
    /// See [`straggler::Judged`].
    pub at_median_ns: Vec<(TaskIx, u64)>,
    pub avoidable_ns: Vec<(TaskIx, u64)>,
    /// See [`skew::skew`].
    pub even_ns: Vec<(TaskIx, u64)>,
}

impl SlowTasks {
    pub fn of(replays: &Replays) -> SlowTasks {
        let (tasks, schedule) = (&replays.tasks.all, &replays.schedule);
        let slow = straggler::slow_machines(replays.trace, tasks, &schedule.by_stage);
        let mut all = SlowTasks::default();
        for of_stage in &schedule.by_stage {
            let judged = straggler::judge(replays.trace, tasks, schedule, of_stage, &slow);
            let stragglers = judged.map(|judged| {
                all.at_median_ns.extend(judged.at_median_ns);
                all.avoidable_ns.extend(judged.avoidable_ns);
                judged.stragglers
            });
            let (skew, even_ns) = skew::skew(tasks, of_stage);
            all.even_ns.extend(even_ns);
            all.stages.push((stragglers, skew));
        }
        all
    }
}

/// Fills in a stage's fields from its tasks.
fn stage(stage: &mut StageAnalysis, tasks: &Table<TaskIx, Task>, of_stage: &[TaskIx]) {
    let of = || of_stage.iter().map(|ix| &tasks[*ix]);
    stage.tasks = of_stage.len() as u64;
    stage.failed_tasks = of().filter(|t| t.outcome == pellucid_trace::Outcome::Failed).count() as u64;
    stage.task_time_ms = (!of_stage.is_empty()).then(|| of().map(Task::duration_ms).sum());
    stage.blocked = (!of_stage.is_empty()).then(|| blocked::blocked(of()));
    stage.bottleneck = bottleneck(stage.blocked.as_ref());
    stage.core.total_ms = stage.blocked.and_then(|b| b.cpu.measured_ms);
}

/// Returns notes for the reader.
fn notes(analysis: &Analysis) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(replay) = analysis.replay.filter(|r| r.weak()) {
        notes.push(format!(
            "bounds are weak: the simulation of the unchanged jobs is {:.0} % off the measured time",
            replay.error * 100.0
        ));
    }
    notes.extend(low_core_use(analysis));
    notes
}

/// Returns a note where tasks hardly used the cores and no recorded wait explains it.
fn low_core_use(analysis: &Analysis) -> Option<String> {
    let blocked = analysis.blocked.as_ref()?;
    let cpu = blocked.cpu.measured_ms?;
    let whole: f64 = analysis.stages.iter().filter_map(|s| s.task_time_ms).sum();
    let waits = [blocked.disk, blocked.network, blocked.gc, blocked.scheduler, blocked.deserialize];
    let waits: f64 = waits.iter().filter_map(|w| w.measured_ms).sum();
    (whole > 0.0 && cpu < 0.5 * whole && waits < 0.25 * whole).then(|| {
        format!(
            "low core use: tasks spent {:.0} % of their time on a core and {:.0} % in recorded waits",
            100.0 * cpu / whole,
            100.0 * waits / whole,
        )
    })
}

/// Returns warnings about the trace's quality.
fn warnings(replays: &Replays) -> Vec<String> {
    let mut out = Vec::new();
    let tasks = &replays.tasks;
    if tasks.impossible > 0 {
        out.push(format!(
            "{} tasks have a part longer than the time that contains it; it was cut to that time",
            tasks.impossible
        ));
    }
    if tasks.skipped > 0 {
        out.push(format!("{} tasks refer to records missing from the trace and were skipped", tasks.skipped));
    }
    let without_cpu = tasks.all.iter().filter(|t| t.ok() && t.part(Part::Cpu).is_none()).count();
    if without_cpu > 0 && without_cpu == tasks.all.iter().filter(|t| t.ok()).count() {
        out.push("core time was not measured: computing is the rest of the run time".into());
    }
    let unfinished = replays.schedule.jobs.iter().flatten().count() - replays.unchanged.ended;
    if unfinished > 0 {
        out.push(format!("{unfinished} jobs could not be simulated to their end"));
    }
    out
}
