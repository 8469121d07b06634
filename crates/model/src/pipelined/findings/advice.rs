//! Advice: a change, the figures behind it, the setting to paste and the predicted saving.
//!
//! Each piece of advice is a replay in which tasks are merged, divided or freed of part of their time.
//! The low end of its interval is what the change certainly saves, the high end the most it can save.
//! If the log does not tell which, the prediction is halfway. Advice that saves less than a twentieth
//! of the jobs' time is left out, so a log may get none.

use pellucid_trace::Failure;

use super::causes::failures as failure;
use super::evidence::{Evidence, MIN_SAVING_SHARE, failed, name_of};
use super::settings::Settings;
use crate::analysis::{Advice, StageAnalysis};
use crate::index::{Ix, StageIx};
use crate::numbers::ratio;
use crate::pipelined::blocked::{SHUFFLE_FILES, Without, durations_less, measured_ms, overhead_ms};
use crate::pipelined::replay::bounds::Replays;
use crate::pipelined::task::{Part, Task};

/// The title of the advice for failures.
const FIX_FAILURES: &str = "Fix the failing code";
/// Maximum pieces of advice.
const MAX_ADVICE: usize = 5;
/// Tasks shorter than this are dominated by their overhead.
const SHORT_MS: f64 = 200.0;
/// Tasks that read at least this much can be divided.
const LARGE_BYTES: f64 = 64e6;

/// Returns the advice, largest saving first.
pub(crate) fn advice(e: &Evidence) -> Vec<Advice> {
    let settings = Settings::of(e.replays.trace);
    let all = [
        failures(e),
        skew(e, &settings),
        garbage(e, &settings),
        merge(e, &settings),
        divide(e, &settings),
        lost_executors(e, &settings),
        arrival(e, &settings),
        speculate(e, &settings),
        disk(e, &settings),
        input(e),
    ];
    let mut advice: Vec<Advice> = all.into_iter().flatten().collect();
    advice.retain(|a| a.saves_ms > 0.0 && a.saves_ms >= MIN_SAVING_SHARE * e.replays.measured_ms);
    advice.sort_by(|a, b| b.saves_ms.total_cmp(&a.saves_ms));
    if failed(e.replays.trace) {
        // A failed application gave no result, however fast it was.
        advice.sort_by_key(|a| a.title != FIX_FAILURES);
    }
    advice.truncate(MAX_ADVICE);
    advice
}

/// Builds advice from a low, likely and high saving, clamped to the measured time and put in order.
fn item(e: &Evidence, title: &str, evidence: String, change: String, saves: [f64; 3]) -> Advice {
    let max = e.replays.measured_ms;
    let [low, saves_ms, high] = saves.map(|ms| ms.clamp(0.0, max));
    Advice {
        title: title.into(),
        evidence,
        change,
        saves_ms,
        low_ms: low.min(saves_ms),
        high_ms: high.max(saves_ms),
    }
}

fn saved(r: &Replays, durations_ns: &[u64]) -> f64 {
    r.saved_ms(&r.with(durations_ns))
}

fn skew(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let r = e.replays;
    let worst = e.stages.iter().filter(|s| !s.skew.partitions.is_empty());
    let worst =
        worst.max_by(|a, b| a.skew.partitions[0].duration_ms.total_cmp(&b.skew.partitions[0].duration_ms))?;
    let partition = &worst.skew.partitions[0];
    let all = e.even_saves_ms?;
    let stage = name_of(r.trace, worst.id);
    let evidence = format!(
        "{stage}: partition {} reads {:.0} % of its stage's input and takes {:.1} s",
        partition.partition,
        partition.share * 100.0,
        partition.duration_ms / 1e3
    );
    let joins = worst.name.contains("Join");
    let keys = ["spark.sql.adaptive.enabled", "spark.sql.adaptive.skewJoin.enabled"];
    let on: Vec<String> = keys.iter().filter_map(|key| settings.change(key, "true")).collect();
    let change = match joins && !on.is_empty() && settings.value(keys[1]).is_some() {
        true => on.join(" "),
        false => {
            let from = r.trace.stages[worst.id].after.iter().map(|p| name_of(r.trace, *p as usize));
            let from = from.collect::<Vec<_>>().join(", ");
            let at = if from.is_empty() { String::new() } else { format!(" that {from} shuffles by") };
            format!(
                "data: split the heaviest key{at} (add a random suffix to it, then combine in a second step)"
            )
        }
    };
    Some(item(e, "Split the skewed partition", evidence, change, [all / 2.0, all, all]))
}

fn garbage(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let r = e.replays;
    let gc: f64 = r.tasks.all.iter().filter_map(|t| t.measured(Part::Gc)).sum();
    let whole: f64 = r.tasks.all.iter().map(Task::duration_ms).sum();
    let all = r.saved_without_ms(Without::Gc, false);
    let key = if settings.local { "spark.driver.memory" } else { "spark.executor.memory" };
    let change = settings.doubled(key)?;
    let evidence = format!("garbage collection takes {:.0} % of the tasks' time", 100.0 * ratio(gc, whole)?);
    // Twice the headroom needs about half the collections. The log does not tell how much data survives
    // them.
    Some(item(e, "Increase the heap", evidence, change, [0.0, all / 2.0, all]))
}

/// Returns the setting that determines a stage's number of tasks.
fn tasks_key(e: &Evidence, settings: &Settings, stage: &StageAnalysis) -> Option<&'static str> {
    let of_query = e.replays.trace.jobs.get(stage.job).is_some_and(|j| j.query.is_some());
    let keys = ["spark.sql.shuffle.partitions", "spark.default.parallelism"];
    let keys = if of_query { &keys[..1] } else { &keys[1..] };
    keys.iter().copied().find(|key| settings.value(key).is_some_and(|v| v.parse() == Ok(stage.tasks)))
}

fn slots(e: &Evidence) -> usize {
    e.replays.schedule.slots.len()
}

/// Merges many short tasks, so that each slot runs one task per wave.
fn merge(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let r = e.replays;
    let mut times = [r.tasks.durations_ns(), r.tasks.durations_ns()];
    let (mut found, mut key) = (Vec::new(), None);
    for stage in e.stages {
        let of_stage = &r.schedule.by_stage[StageIx::new(stage.id)];
        let mean = stage.task_time_ms.unwrap_or(0.0) / (of_stage.len() as f64).max(1.0);
        let lanes = r.schedule.stages[StageIx::new(stage.id)].as_ref().map_or(1, |s| s.lanes.len()).max(1);
        if mean >= SHORT_MS || of_stage.len() < 2 * lanes {
            continue;
        }
        let Some(by) = tasks_key(e, settings, stage).filter(|by| key.is_none_or(|k| k == *by)) else {
            continue;
        };
        (key, found) = (Some(by), [found, vec![(stage.tasks, mean)]].concat());
        let tasks = || of_stage.iter().map(|ix| &r.tasks.all[*ix]);
        let run = |t: &Task| t.duration_ms() - overhead_ms(t);
        let shortest = tasks().map(run).fold(f64::INFINITY, f64::min).max(0.0);
        for (times, fixed) in times.iter_mut().zip([0.0, shortest]) {
            // Each group's work lands on its first task; the other tasks lose their fixed cost.
            for group in of_stage.chunks(of_stage.len().div_ceil(lanes)) {
                let of_group = group.iter().map(|ix| &r.tasks.all[*ix]);
                let work: f64 = of_group.map(|t| (run(t) - fixed).max(0.0)).sum();
                let first = &r.tasks.all[group[0]];
                group.iter().for_each(|ix| times[ix.at()] = 0);
                times[group[0].at()] = ((overhead_ms(first) + fixed + work) * 1e6) as u64;
            }
        }
    }
    let (tasks, mean) = found.iter().copied().max_by_key(|(tasks, _)| *tasks)?;
    let [low, high] = times.map(|times| saved(r, &times));
    let evidence = format!(
        "{} stages of up to {tasks} tasks take {mean:.0} ms per task, mostly task overhead",
        found.len()
    );
    let streams = r
        .trace
        .application
        .iter()
        .flat_map(|a| a.events.keys())
        .any(|k| k.starts_with("StreamingQueryListener"));
    let mut change = settings.change(key?, &slots(e).to_string())?;
    if streams {
        change += "; a stream keeps the value of its first start, so also use a new checkpoint";
    }
    Some(item(e, "Use fewer, larger tasks", evidence, change, [low, (low + high) / 2.0, high]))
}

/// Divides the large tasks of stages that have fewer tasks than there are slots.
fn divide(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let r = e.replays;
    let slots = slots(e);
    let mut times = r.tasks.durations_ns();
    let mut worst: Option<&StageAnalysis> = None;
    for stage in e.stages {
        let of_stage = &r.schedule.by_stage[StageIx::new(stage.id)];
        let bytes: f64 = of_stage.iter().filter_map(|ix| r.tasks.all[*ix].in_bytes()).sum();
        if of_stage.is_empty()
            || of_stage.len() * 2 > slots
            || bytes < LARGE_BYTES * 2.0 * of_stage.len() as f64
        {
            continue;
        }
        let parts = (bytes / LARGE_BYTES).min(slots as f64) / of_stage.len() as f64;
        for ix in of_stage {
            let task = &r.tasks.all[*ix];
            let work = task.duration_ms() - overhead_ms(task);
            times[ix.at()] = ((overhead_ms(task) + work / parts) * 1e6) as u64;
        }
        if worst.is_none_or(|w| w.task_time_ms < stage.task_time_ms) {
            worst = Some(stage);
        }
    }
    let worst = worst?;
    let evidence = format!("{}: {} tasks on {slots} slots", name_of(r.trace, worst.id), worst.tasks);
    let change = match tasks_key(e, settings, worst) {
        Some(key) => settings.change(key, &slots.to_string())?,
        None if r.trace.stages[worst.id].after.is_empty() => {
            settings.change("spark.sql.files.maxPartitionBytes", "64m")?
        }
        None => return None,
    };
    let all = saved(r, &times);
    Some(item(e, "Spread the work over all slots", evidence, change, [all / 2.0, all, all]))
}

/// Reports code that failed. Its cost is known; the fix is not.
fn failures(e: &Evidence) -> Option<Advice> {
    let r = e.replays;
    let code = |t: &&Task| t.failure == Some(Failure::Exception);
    let failed = r.tasks.all.iter().filter(code).count();
    let cause = failure(e).filter(|_| failed > 0)?;
    let first = r
        .trace
        .pipelined_tasks
        .iter()
        .find_map(|t| t.error.filter(|_| t.failure == Some(Failure::Exception)));
    let why: String = first.unwrap_or_else(|| "reason not in the log".into()).chars().take(45).collect();
    let evidence = format!("{failed} task attempts failed with an exception: {why}");
    let change = "code: fix the exception; Spark tries each task spark.task.maxFailures times";
    Some(item(e, FIX_FAILURES, evidence, change.into(), [0.0, cause.ms, cause.ms]))
}

/// Reports executors that were lost together with their results, most often for lack of memory.
fn lost_executors(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let r = e.replays;
    let lost = |f: &Option<Failure>| {
        matches!(
            f,
            Some(Failure::ExecutorLost | Failure::FetchFailed | Failure::OutOfMemory | Failure::OutputLost)
        )
    };
    let count = r.tasks.all.iter().filter(|t| lost(&t.failure)).count();
    if count == 0 {
        return None;
    }
    let why = r
        .trace
        .resources
        .iter()
        .filter_map(|x| x.removed_why.as_deref())
        .next()
        .unwrap_or("reason not in the log");
    let why: String = why.lines().next().unwrap_or_default().chars().take(80).collect();
    let again = |t: &Task| lost(&t.failure) || r.trace.stages[t.stage.at()].attempt > 0;
    let mut times = r.tasks.durations_ns();
    r.tasks.all.iter().enumerate().filter(|(_, t)| again(t)).for_each(|(ix, _)| times[ix] = 0);
    let change = settings.change("spark.executor.memoryOverhead", "1g").filter(|_| !settings.local)?;
    let evidence =
        format!("{count} task attempts were lost with their executor or its shuffle files ({why})");
    let all = saved(r, &times);
    Some(item(e, "Keep executors alive", evidence, change, [0.0, all, all]))
}

fn arrival(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let waited = e.wall_clock.waiting_for_executors_ms.filter(|ms| *ms > 0.0)?;
    // More capacity does not fix an application that failed.
    if failed(e.replays.trace) {
        return None;
    }
    let dynamic = settings.is_on("spark.dynamicAllocation.enabled");
    let executors = e.replays.trace.resources.iter().filter(|r| r.added_ns.is_some()).count();
    let change = match dynamic {
        true => settings.change("spark.dynamicAllocation.minExecutors", &executors.to_string())?,
        false => "cluster: start the application where executors are free, or submit its first job after they arrive".into(),
    };
    let evidence = format!("jobs waited {:.1} s without any executor", waited / 1e3);
    Some(item(e, "Start executors before the first job", evidence, change, [waited / 2.0, waited, waited]))
}

fn speculate(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let change = settings.change("spark.speculation", "true").filter(|_| !settings.local)?;
    let all = e.avoidable_saves_ms;
    let evidence = format!("{} stragglers not explained by output skew or start-up", e.avoidable_ns.len());
    // A copy starts when most of the stage has ended, and does not help if data or code is the cause.
    Some(item(e, "Enable speculative execution", evidence, change, [0.0, all / 2.0, all]))
}

fn disk(e: &Evidence, settings: &Settings) -> Option<Advice> {
    let r = e.replays;
    let all = saved(r, &durations_less(&r.tasks.all, SHUFFLE_FILES));
    let waited: f64 = r.tasks.all.iter().map(|task| measured_ms(task, SHUFFLE_FILES)).sum();
    let change = settings.change("spark.local.dir", "/a/faster/disk,/another/one")?;
    let evidence = format!("tasks wait {:.1} s for shuffle files and spills", waited / 1e3);
    Some(item(e, "Put shuffle files on faster disks", evidence, change, [0.0, all / 2.0, all]))
}

fn input(e: &Evidence) -> Option<Advice> {
    let r = e.replays;
    let waits = || r.tasks.all.iter().filter_map(|t| t.part(Part::Input));
    let waited: f64 = waits().map(|m| m.ms).sum();
    if waited <= 0.0 {
        return None;
    }
    let at_most = if waits().any(|m| m.at_most) { "at most " } else { "" };
    let evidence = format!("tasks spend {at_most}{:.1} s waiting for input", waited / 1e3);
    let change = "data: cache data that is read repeatedly, read fewer columns, use a columnar format, or use a faster disk";
    let all = r.saved_without_ms(Without::Input, true);
    Some(item(e, "Read input faster", evidence, change.into(), [0.0, all / 2.0, all]))
}
