//! The causes of the jobs' time, from pipelined tasks.
//!
//! An avoidable cause weighs as much as a replay without it saves: input wait, disk, network, GC,
//! scheduling, skew, stragglers, failures. Those that save a tenth of the time are named, largest first.
//! *Computing* is not a fault. It is named only if no certainly avoidable cause is. It covers the run
//! time that no metric attributes to something else, as in the paper (where compute time is the
//! remainder, §2.3.1); the evidence gives the measured core time. Where tasks hardly used a core, the
//! remainder is not computing: it is *unexplained*, except for the excess of stragglers, which has its
//! own cause. A failed job comes first whatever its time, since it gave no result.
//!
//! Causes do not add up to the total: a skewed task computes while the other slots are idle.

use std::collections::BTreeMap;

use pellucid_trace::{Outcome, Trace, union_ns};

use super::evidence::{Evidence, MIN_SAVING_SHARE, Retries, name_of};
use crate::analysis::{Cause, StageAnalysis};
use crate::index::{Ix, JobIx};
use crate::numbers::{ms, ratio};
use crate::pipelined::blocked::{SHUFFLE_FILES, Without, durations_less, durations_without, measured_ms};
use crate::pipelined::replay::simulate::{Change, replay};
use crate::pipelined::task::{Part, Task};

/// Minimum share of the time that a cause needs to be named.
const MIN_SHARE: f64 = 0.1;
/// The same for scheduling, as a share of the time between the first job and the last: shipping tasks and
/// planning jobs is part of any application.
const MIN_SCHEDULING_SHARE: f64 = 0.25;
/// The same for skew that outweighs every other avoidable cause: the share from which advice is given.
const MIN_SKEW_SHARE: f64 = MIN_SAVING_SHARE;
/// Below this share of core time in the run time, unexplained time is not attributed to computing.
const MIN_CORE_SHARE: f64 = 0.1;
/// Share of the time between the first job and the last that the driver may take before it counts as
/// waiting, where the log does not attribute it to Spark.
const MAX_DRIVER_SHARE: f64 = 0.5;

/// A candidate cause, before the threshold is applied.
struct Candidate {
    cause: Cause,
    /// Certainly avoidable by this much, so that computing is not named beside it.
    certain: bool,
}

/// Returns the causes, ordered as the module documentation describes.
pub(crate) fn causes(e: &Evidence) -> Vec<Cause> {
    let whole = e.replays.measured_ms;
    if whole <= 0.0 {
        return Vec::new();
    }
    let avoidable =
        [gc(e), disk(e), network(e), disk_input(e), scheduling(e), skew(e), stragglers(e), retries(e)];
    let mut named: Vec<Candidate> = avoidable.into_iter().flatten().collect();
    let span = jobs_span_ms(e);
    let largest = named.iter().map(|w| w.cause.ms).fold(0.0, f64::max);
    named.retain(|w| match w.cause.cause.as_str() {
        "scheduling" => w.cause.ms >= MIN_SCHEDULING_SHARE * span,
        "skew" if w.cause.ms >= largest => w.cause.ms >= MIN_SKEW_SHARE * whole,
        _ => w.cause.ms >= MIN_SHARE * whole,
    });
    let avoidable = named.iter().any(|w| w.certain);
    let (computing, unexplained) = computing(e);
    let rest = [computing.filter(|_| !avoidable), unexplained];
    let mut causes: Vec<Cause> = named.into_iter().map(|w| w.cause).collect();
    causes.extend(rest.into_iter().flatten().filter(|c| c.ms >= MIN_SHARE * whole));
    causes.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    match failed_jobs(e) {
        Some(failure) => {
            causes.retain(|c| c.cause != "failure");
            std::iter::once(failure).chain(causes).collect()
        }
        None => causes,
    }
}

fn cause(name: &str, ms: f64, at: (usize, Option<usize>), evidence: String) -> Cause {
    Cause { job: at.0, cause: name.into(), stage: at.1, ms, at_most: false, evidence }
}

/// Returns the job with most of a quantity, and the stage that has more than half of it.
fn locate(e: &Evidence, of_stage: impl Fn(&StageAnalysis) -> f64) -> (usize, Option<usize>) {
    let weights: Vec<f64> = e.stages.iter().map(of_stage).collect();
    let total: f64 = weights.iter().sum();
    let mut by_job: BTreeMap<usize, f64> = BTreeMap::new();
    e.stages.iter().zip(&weights).for_each(|(s, w)| *by_job.entry(s.job).or_insert(0.0) += w);
    let job = by_job.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(job, _)| job);
    let stage = (0..weights.len()).max_by(|a, b| weights[*a].total_cmp(&weights[*b]));
    (job, stage.filter(|s| weights[*s] > total / 2.0))
}

fn task_time(e: &Evidence) -> f64 {
    e.replays.tasks.all.iter().map(Task::duration_ms).sum()
}

/// Formats `3 s, 12 % of the tasks' time`.
fn share(e: &Evidence, ms: f64) -> String {
    let share = ratio(ms, task_time(e)).unwrap_or(0.0);
    format!("{:.0} s, {:.0} % of the tasks' time", ms / 1e3, share * 100.0)
}

/// Returns a stage's blocked time of one kind.
fn blocked(
    s: &StageAnalysis,
    of: fn(&crate::analysis::BlockedTimes) -> crate::analysis::BlockedTime,
    at_most: bool,
) -> f64 {
    let Some(blocked) = &s.blocked else { return 0.0 };
    let time = of(blocked);
    (if at_most { time.at_most_ms } else { time.measured_ms }).unwrap_or(0.0)
}

fn gc(e: &Evidence) -> Option<Candidate> {
    let of = |s: &StageAnalysis| blocked(s, |b| b.gc, false);
    let total: f64 = e.stages.iter().map(of).sum();
    (total > 0.0).then(|| {
        let text = format!("garbage collection took {}", share(e, total));
        Candidate {
            cause: cause("gc", e.replays.saved_without_ms(Without::Gc, false), locate(e, of), text),
            certain: true,
        }
    })
}

/// Returns disk time except input, which has its own cause.
fn disk(e: &Evidence) -> Option<Candidate> {
    let parts: Vec<Part> = [SHUFFLE_FILES, &[Part::Output]].concat();
    let mut by_stage = vec![0.0; e.stages.len()];
    let mut output = 0.0;
    for task in &e.replays.tasks.all {
        by_stage[task.stage.at()] += measured_ms(task, &parts);
        output += measured_ms(task, &[Part::Output]);
    }
    let total: f64 = by_stage.iter().sum();
    (total > 0.0).then(|| {
        let what = if output > 0.0 { "shuffle files, spills and output" } else { "shuffle files and spills" };
        let text = format!("writing {what} took {}", share(e, total));
        let saved = e.replays.saved_ms(&e.replays.with(&durations_less(&e.replays.tasks.all, &parts)));
        Candidate { cause: cause("disk", saved, locate(e, |s| by_stage[s.id]), text), certain: true }
    })
}

fn network(e: &Evidence) -> Option<Candidate> {
    let of = |s: &StageAnalysis| blocked(s, |b| b.network, true);
    let total: f64 = e.stages.iter().map(of).sum();
    (total > 0.0).then(|| {
        let text = format!(
            "waiting for shuffle data took {}; the log does not separate the network from the disks it is read from",
            share(e, total)
        );
        let network = cause("network", e.replays.saved_without_ms(Without::Network, true), locate(e, of), text);
        Candidate { cause: Cause { at_most: true, ..network }, certain: true }
    })
}

/// Returns the wait for input. Spark does not record it: it is part of the unexplained run time.
fn disk_input(e: &Evidence) -> Option<Candidate> {
    let tasks = &e.replays.tasks.all;
    let mut by_stage = vec![0.0; e.stages.len()];
    let (mut total, mut bounded) = (0.0, false);
    for task in tasks {
        if let Some(measure) = task.part(Part::Input) {
            by_stage[task.stage.at()] += measure.ms;
            (total, bounded) = (total + measure.ms, bounded || measure.at_most);
        }
    }
    (total > 0.0).then(|| {
        let text = match bounded {
            true => format!(
                "waiting for input took at most {}: the run time of tasks that read input, less core time and recorded \
                 waits",
                share(e, total)
            ),
            false => format!("reading input took {}", share(e, total)),
        };
        let saved = e.replays.saved_without_ms(Without::Input, true);
        let input = cause("disk input", saved, locate(e, |s| by_stage[s.id]), text);
        Candidate { cause: Cause { at_most: bounded, ..input }, certain: !bounded }
    })
}

/// Returns the time that slots were idle though there was work: offers, shipping tasks, the driver
/// between jobs.
fn scheduling(e: &Evidence) -> Option<Candidate> {
    let r = e.replays;
    let shorter = durations_without(&r.tasks.all, &[Without::Scheduler, Without::Deserialize], false);
    let prompt = replay(&r.schedule, Change { gaps: false, ..Change::of(&shorter) });
    let tasks = r.saved_ms(&prompt);
    let waiting = e.wall_clock.waiting_for_executors_ms.unwrap_or(0.0);
    let (driver, why) = driver_between_jobs(r.trace, e);
    let ms = tasks + waiting + driver;
    let overhead =
        |s: &StageAnalysis| blocked(s, |b| b.scheduler, false) + blocked(s, |b| b.deserialize, false);
    let mut text = format!(
        "{:.1} s to start, ship and deserialize tasks ({} tasks of {:.0} ms on average)",
        tasks / 1e3,
        r.tasks.all.len(),
        task_time(e) / (r.tasks.all.len() as f64).max(1.0)
    );
    if driver > 0.0 {
        text = format!("{:.1} s in the driver alone {why}; {text}", driver / 1e3);
    }
    if waiting > 0.0 {
        text = format!("{:.1} s without any executor; {text}", waiting / 1e3);
    }
    (ms > 0.0).then(|| Candidate {
        cause: cause("scheduling", ms, (locate(e, overhead).0, None), text),
        certain: true,
    })
}

/// Returns the time from the submission of the first job to the end of the last.
fn jobs_span_ms(e: &Evidence) -> f64 {
    let jobs = || e.replays.schedule.jobs.iter().flatten();
    let (first, last) = (jobs().map(|j| j.submitted_ns).min(), jobs().map(|j| j.ended_ns).max());
    first.zip(last).map_or(0.0, |(first, last)| ms(last.saturating_sub(first) as f64))
}

/// Returns the driver's time between jobs that counts as waiting, and which jobs those are.
fn driver_between_jobs(trace: &Trace, e: &Evidence) -> (f64, &'static str) {
    let mut jobs: Vec<(u64, u64, usize)> = Vec::new();
    let places = e.replays.schedule.jobs.iter().enumerate();
    jobs.extend(places.filter_map(|(ix, j)| j.as_ref().map(|j| (j.submitted_ns, j.ended_ns, ix))));
    jobs.sort_unstable();
    let streams = trace.application.iter().flat_map(|a| a.events.keys());
    let streams = streams.into_iter().any(|event| event.starts_with("StreamingQueryListener"));
    let query = |job: usize| trace.jobs[job].query.map(|q| trace.queries[q as usize].root.unwrap_or(q));
    let (Some(first), Some(last)) = (jobs.first(), jobs.iter().map(|j| j.1).max()) else { return (0.0, "") };
    let (mut all, mut of_spark) = (0.0, 0.0);
    let (mut until, mut before) = (first.1, first.2);
    for (submitted, ended, job) in &jobs {
        let gap = ms(submitted.saturating_sub(until) as f64);
        all += gap;
        if streams || query(before).is_some() && query(before) == query(*job) {
            of_spark += gap;
        }
        if *ended >= until {
            (until, before) = (*ended, *job);
        }
    }
    match (streams, all > MAX_DRIVER_SHARE * ms((last - first.0) as f64)) {
        (true, _) => (of_spark, "between micro-batches"),
        (false, true) => (all, "between jobs"),
        (false, false) => (of_spark, "between jobs of one query"),
    }
}

fn skew(e: &Evidence) -> Option<Candidate> {
    let saved = e.even_saves_ms?;
    let longest = |s: &StageAnalysis| s.skew.partitions.first().map_or(0.0, |p| p.duration_ms);
    let at = locate(e, longest);
    let worst = e.stages.iter().max_by(|a, b| longest(a).total_cmp(&longest(b)))?;
    let partition = worst.skew.partitions.first()?;
    let trace = e.replays.trace;
    let from = trace.stages[worst.id].after.iter().map(|p| name_of(trace, *p as usize)).collect::<Vec<_>>();
    let from = if from.is_empty() { String::new() } else { format!(" by the key of {}", from.join(" and ")) };
    let text = format!(
        "partition {} of {} holds {:.0} % of the stage's input{from} and takes {:.1} s, {:.1} times the median",
        partition.partition,
        name_of(trace, worst.id),
        partition.share * 100.0,
        partition.duration_ms / 1e3,
        worst.skew.duration_max_over_median.unwrap_or(1.0),
    );
    Some(Candidate { cause: cause("skew", saved, (at.0, Some(worst.id)), text), certain: true })
}

/// Returns the stragglers that neither output skew nor start-up explains.
fn stragglers(e: &Evidence) -> Option<Candidate> {
    let mut lost = vec![0.0; e.stages.len()];
    for (ix, ns) in e.avoidable_ns {
        let task = &e.replays.tasks.all[*ix];
        lost[task.stage.at()] += ms(task.duration_ns.saturating_sub(*ns) as f64);
    }
    let at = locate(e, |s| lost[s.id]);
    let worst = e.avoidable_ns.iter().map(|(ix, _)| &e.replays.tasks.all[*ix]);
    let worst = worst.max_by_key(|t| t.duration_ns)?;
    let text = format!(
        "{} stragglers; the longest, partition {} of {}, took {:.1} s",
        e.avoidable_ns.len(),
        worst.partition,
        name_of(e.replays.trace, worst.stage.at()),
        worst.duration_ms() / 1e3
    );
    Some(Candidate { cause: cause("straggler", e.avoidable_saves_ms, at, text), certain: true })
}

/// Returns the cost of failed attempts to jobs that succeeded.
fn retries(e: &Evidence) -> Option<Candidate> {
    let Retries { failed, repeated, saves_ms } = e.retries?;
    let at = locate(e, |s| s.failed_tasks as f64);
    let text = format!("{failed} task attempts failed, and {repeated} ran again as a result");
    Some(Candidate { cause: cause("failure", saves_ms, at, text), certain: true })
}

/// Returns the failure cause: failed jobs, or attempts that were repeated.
pub(crate) fn failures(e: &Evidence) -> Option<Cause> {
    failed_jobs(e).or_else(|| retries(e).map(|w| w.cause))
}

/// Returns the jobs that gave no result.
fn failed_jobs(e: &Evidence) -> Option<Cause> {
    let trace = e.replays.trace;
    let failed: Vec<_> = trace.job_ends.iter().filter(|end| end.outcome == Outcome::Failed).collect();
    let first = failed.first()?;
    let took = failed.iter().filter_map(|end| {
        let place = e.replays.schedule.jobs[JobIx(end.job)].as_ref()?;
        Some((place.submitted_ns, place.ended_ns))
    });
    let took = ms(union_ns(took.collect()) as f64);
    let retried = e.retries.map_or(0.0, |retries| retries.saves_ms);
    let why = first.error.as_deref().unwrap_or("reason not recorded");
    let why: String = why.lines().next().unwrap_or_default().chars().take(100).collect();
    let attempts = e.replays.tasks.all.iter().filter(|t| t.outcome == Outcome::Failed).count();
    let text = format!(
        "{} of {} jobs failed (failed task attempts: {attempts}); first error: {why}",
        failed.len(),
        trace.jobs.len()
    );
    let stage = e
        .stages
        .iter()
        .filter(|s| s.job == first.job as usize && s.failed_tasks > 0)
        .map(|s| s.id)
        .next_back();
    Some(cause("failure", took + retried, (first.job as usize, stage), text))
}

/// Returns computing, and the time that is neither computing nor otherwise recorded.
fn computing(e: &Evidence) -> (Option<Cause>, Option<Cause>) {
    let (mut core, mut remainder, mut unexplained) =
        (vec![0.0; e.stages.len()], vec![0.0; e.stages.len()], vec![0.0; e.stages.len()]);
    let mut measured = true;
    let mut usual_ns = e.replays.tasks.durations_ns();
    e.avoidable_ns.iter().for_each(|(ix, ns)| usual_ns[ix.at()] = *ns);
    for (task, usual_ns) in e.replays.tasks.all.iter().zip(usual_ns) {
        let stage = task.stage.at();
        let excess = ms(task.duration_ns.saturating_sub(usual_ns) as f64);
        measured &= task.measured(Part::Cpu).is_some() || !task.ok();
        core[stage] += task.measured(Part::Cpu).unwrap_or(0.0);
        let explained = task.part(Part::Input).map_or(0.0, |m| m.ms);
        remainder[stage] += (task.measured(Part::Rest).unwrap_or(0.0) - explained - excess).max(0.0);
    }
    for stage in 0..e.stages.len() {
        if core[stage] < MIN_CORE_SHARE * (core[stage] + remainder[stage]) {
            unexplained[stage] = std::mem::take(&mut remainder[stage]);
        }
    }
    let sum = |of: &[f64]| of.iter().sum::<f64>();
    let whole = e.replays.measured_ms;
    let wall = |of: f64| ratio(of, task_time(e)).unwrap_or(0.0) * whole;
    let (core_ms, rest_ms, unexplained_ms) = (sum(&core), sum(&remainder), sum(&unexplained));
    let mut text = format!("core time was {}", share(e, core_ms));
    if rest_ms > core_ms / 2.0 {
        text += &format!(
            "; another {:.0} s are neither core time nor a recorded wait: shared cores, threads that tasks started, \
             or waits that Spark does not record",
            rest_ms / 1e3
        );
    }
    let at = locate(e, |s| core[s.id] + remainder[s.id]);
    let cpu = cause("cpu", wall(core_ms + rest_ms), at, text);
    let cpu = Cause { at_most: rest_ms > 0.0 || !measured, ..cpu };
    let text = format!(
        "{}: neither core time nor a recorded wait, in stages whose tasks hardly used a core: work outside the JVM (a \
         Python worker, a native engine), or another wait",
        share(e, unexplained_ms)
    );
    let unexplained = cause("unexplained", wall(unexplained_ms), locate(e, |s| unexplained[s.id]), text);
    ((core_ms > 0.0).then_some(cpu), (unexplained_ms > 0.0).then_some(unexplained))
}
