//! The screen of `pellucid analyze` for pipelined tasks (Spark event logs).
//!
//! The screen fits 80 by 24 characters: the main cause, where the time went, the stages that matter,
//! stragglers, upper bounds and advice. Every number is also in the JSON, which is complete. Advice is given
//! in full while there is room, then by title only.

use pellucid_model::units::{count, grouped, percent, time};
use pellucid_model::{Advice, Analysis, BlockedTime, Bound, Cause, StageAnalysis};
use pellucid_trace::Trace;

use super::page::{Page, Style, bar, cell, clean, right};
use super::width::columns;
use crate::words::{self, shortened};

/// Lines of a screen.
const LINES: usize = 24;
/// Limits on the parts of task time and on stages, in the order tried until the screen fits.
const LIMITS: [(usize, usize); 6] = [(5, 3), (4, 3), (3, 3), (3, 2), (2, 2), (2, 1)];
/// Stages are shown until they account for this share of the tasks' time.
const COVERAGE: f64 = 0.9;

/// Returns whether an analysis is of pipelined tasks.
pub(crate) fn applies(a: &Analysis, trace: &Trace) -> bool {
    a.blocked.is_some() || trace.application.is_some() && trace.monotasks.is_empty()
}

/// Renders the screen.
pub(crate) fn screen(a: &Analysis, trace: &Trace, width: usize, color: bool) -> String {
    let mut page = Page::new(width, color);
    for (parts, stages) in LIMITS {
        page = Page::new(width, color);
        compose(&mut page, a, trace, parts, stages);
        if page.lines() <= LINES {
            break;
        }
    }
    page.finish()
}

fn compose(page: &mut Page, a: &Analysis, trace: &Trace, parts: usize, stages: usize) {
    application(page, a, trace);
    headline(page, a, trace);
    time_bars(page, a, parts);
    self::stages(page, a, stages);
    stragglers(page, a);
    bounds(page, a);
    super::tuning::line(a).into_iter().for_each(|line| page.wrapped(Style::Plain, &line, 0, 2));
    a.notes.iter().for_each(|note| page.wrapped(Style::Warning, &format!("! {note}"), 0, 2));
    advice(page, a);
}

/// Adds a line such as `Daily report · Spark 3.5.3 · 13,504 tasks, 49 stages, 49 jobs`.
fn application(page: &mut Page, a: &Analysis, trace: &Trace) {
    let application = trace.application.as_ref();
    let name = application.and_then(|x| x.name.clone().or(x.id.clone()));
    let engine = application.map(|x| format!("{} {}", x.engine, x.engine_version.as_deref().unwrap_or("")));
    let tasks: u64 = a.stages.iter().map(|s| s.tasks).sum();
    let jobs = count(a.jobs.len() as u64, "job");
    let counts = format!("{}, {}, {jobs}", count(tasks, "task"), count(a.stages.len() as u64, "stage"));
    let parts = [name, engine.map(|e| e.trim().to_owned()), Some(counts)];
    let text = parts.into_iter().flatten().map(|part| clean(&part)).collect::<Vec<_>>().join(" · ");
    page.text(Style::Faint, &text);
}

fn headline(page: &mut Page, a: &Analysis, trace: &Trace) {
    let jobs: f64 = a.replay.map_or(0.0, |r| r.measured_ms);
    let text = match a.causes.first() {
        None if a.jobs.is_empty() => match trace.truncated.is_some() {
            true => "The log contains no jobs, and no end of the application.".to_owned(),
            false => "The application started no jobs.".to_owned(),
        },
        None => format!("Nothing stands out in {}.", time(jobs)),
        Some(cause) => {
            let at_most = if cause.at_most { "at most " } else { "" };
            let of = of_jobs(a, cause).map_or(String::new(), |of| format!(", {of}"));
            let what = words::cause(&cause.cause);
            format!("{what}: {at_most}{}{of}; {}", time(cause.ms), cause.evidence)
        }
    };
    // Limited to two lines; the JSON has the full evidence.
    let in_two = (0..=2 * page.width()).rev().map(|max| shortened(&text, max)).find(|text| {
        let mut lines = Page::new(page.width(), false);
        lines.wrapped(Style::Strong, text, 0, 2);
        lines.lines() <= 2
    });
    page.wrapped(Style::Strong, &in_two.unwrap_or_default(), 0, 2);
}

/// Returns which of several jobs a cause belongs to. `None` if there is a single job, and for failures, whose
/// evidence counts the jobs.
pub(crate) fn of_jobs(a: &Analysis, cause: &Cause) -> Option<String> {
    if a.jobs.len() < 2 || cause.cause == "failure" {
        return None;
    }
    let Some(stage) = cause.stage.and_then(|ix| a.stages.get(ix)) else {
        return Some(format!("across its {}", count(a.jobs.len() as u64, "job")));
    };
    let job = a.jobs.get(stage.job).and_then(|job| job.source_id).unwrap_or(stage.job as u64);
    Some(format!("mostly in job {job}, stage {}", stage_name(stage)))
}

/// Adds the application's wall-clock time, then up to `max` parts of the task time, which sums over all
/// tasks.
fn time_bars(page: &mut Page, a: &Analysis, max: usize) {
    let wall = &a.wall_clock;
    let parts = [
        (wall.jobs_ms, "jobs"),
        (wall.driver_only_ms, "driver only"),
        (wall.waiting_for_executors_ms, "no executor"),
    ];
    let known: Vec<(f64, &str)> = parts.iter().filter_map(|(ms, what)| Some(((*ms)?, *what))).collect();
    if known.is_empty() {
        return;
    }
    let whole: f64 = known.iter().map(|(ms, _)| ms).sum();
    let shown = known.iter().filter(|(ms, _)| *ms > 0.0).map(|(ms, what)| format!("{what} {}", time(*ms)));
    let clock = format!("Wall clock {}", time(whole));
    let shown = format!(": {}", shown.collect::<Vec<_>>().join(", "));
    let replay = a.replay.map_or(String::new(), |r| format!("; replay {} off", percent(r.error)));
    let fits = columns(&clock) + columns(&shown) + columns(&replay) <= page.width();
    page.gap();
    page.line(&[
        (Style::Strong, &clock),
        (Style::Faint, &shown),
        (Style::Faint, if fits { &replay } else { "" }),
    ]);
    let tasks: f64 = a.stages.iter().filter_map(|s| s.task_time_ms).sum();
    let mut parts = task_parts(a);
    if !parts.is_empty() {
        page.text(Style::Strong, &format!("Where {} of task time went", time(tasks)));
    }
    parts.retain(|(_, ms)| *ms >= 0.005 * tasks);
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (name, ms) in parts.iter().take(max) {
        let room = page.width().saturating_sub(2 + 20 + 13 + 8).min(44);
        page.line(&[
            (Style::Plain, &format!("  {}", cell(name, 20))),
            (style(name), &cell(&bar(ms / tasks, room), room)),
            (Style::Plain, &right(&time(*ms), 13)),
            (Style::Faint, &right(&percent(ms / tasks), 8)),
        ]);
    }
}

/// Returns the measured parts of the task time, with the names that screen and JSON use.
pub(crate) fn task_parts(a: &Analysis) -> Vec<(&'static str, f64)> {
    let Some(blocked) = &a.blocked else { return Vec::new() };
    // Stock Spark measures disk waits of shuffles only; the plugin measures those of files as well.
    let disk = if a.tuning.is_empty() { "disk (shuffle)" } else { "disk" };
    let parts: [(&str, BlockedTime); 7] = [
        ("core time", blocked.cpu),
        ("not explained", blocked.other),
        (disk, blocked.disk),
        ("network", blocked.network),
        ("garbage collection", blocked.gc),
        ("scheduler delay", blocked.scheduler),
        ("deserialising", blocked.deserialize),
    ];
    parts.into_iter().filter_map(|(name, time)| Some((name, time.measured_ms?))).collect()
}

fn style(part: &str) -> Style {
    match part {
        "core time" => Style::Cores,
        "disk (shuffle)" | "disk" => Style::Disk,
        "network" => Style::Network,
        "not explained" => Style::Faint,
        _ => Style::Other,
    }
}

/// Returns the stage number that the engine assigned, with the attempt for later ones: `3`, `3.1`.
pub(crate) fn stage_name(stage: &StageAnalysis) -> String {
    let id = stage.source_id.unwrap_or(stage.id as u64);
    if stage.attempt > 0 { format!("{id}.{}", stage.attempt) } else { id.to_string() }
}

/// Returns a stage's operators and call site: `HashAggregate, Exchange at Report.scala:42`.
pub(crate) fn stage_work(stage: &StageAnalysis) -> String {
    let name = clean(stage.name.trim());
    match stage.call_site.as_deref().map(clean).filter(|site| !site.is_empty() && *site != name) {
        Some(site) => format!("{name} at {site}"),
        None => name,
    }
}

fn stages(page: &mut Page, a: &Analysis, max: usize) {
    let all: f64 = a.stages.iter().filter_map(|s| s.task_time_ms).sum();
    let mut by_time: Vec<&StageAnalysis> =
        a.stages.iter().filter(|s| s.task_time_ms.is_some_and(|ms| ms > 0.0)).collect();
    by_time.sort_by(|a, b| b.task_time_ms.unwrap_or(0.0).total_cmp(&a.task_time_ms.unwrap_or(0.0)));
    if by_time.is_empty() {
        return;
    }
    page.gap();
    let name = page.width().saturating_sub(2 + 6 + 8 + 10 + 10 + 10).max(12);
    page.line(&[
        (Style::Strong, &cell("Stages that matter", 2 + 6 + name)),
        (
            Style::Faint,
            &format!(
                "{}{}{}{}",
                right("tasks", 8),
                right("duration", 10),
                right("share", 10),
                right("longest", 10)
            ),
        ),
    ]);
    let mut carried = 0.0;
    for stage in by_time.into_iter().take(max) {
        if carried >= COVERAGE * all {
            break;
        }
        let time_ms = stage.task_time_ms.unwrap_or(0.0);
        carried += time_ms;
        let failed = if stage.failed_tasks > 0 { "!" } else { "" };
        page.line(&[
            (Style::Strong, &format!("  {}", cell(&stage_name(stage), 6))),
            (Style::Plain, &cell(&stage_work(stage), name)),
            (Style::Warning, failed),
            (Style::Plain, &right(&grouped(stage.tasks), 8 - failed.len())),
            (Style::Plain, &right(&format!(" {}", stage.duration_ms.map_or("–".into(), time)), 10)),
            (Style::Plain, &right(&percent(time_ms / all), 10)),
            (Style::Plain, &right(&longest(stage), 10)),
        ]);
    }
}

/// Formats the ratio of the longest task to the median.
fn longest(stage: &StageAnalysis) -> String {
    stage.skew.duration_max_over_median.map_or("–".into(), |times| format!("{times:.1} ×"))
}

/// Adds the stragglers of all stages by cause, and the denominators of the rates that they were judged by.
fn stragglers(page: &mut Page, a: &Analysis) {
    let judged = || a.stages.iter().filter_map(|s| s.stragglers.as_ref());
    let total: u64 = judged().map(|s| s.count).sum();
    if judged().next().is_none() {
        return;
    }
    let causes = straggler_causes(a);
    let causes: Vec<String> =
        causes.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    let by: std::collections::BTreeSet<&str> =
        judged().filter(|s| s.count > 0).map(|s| s.denominator.word()).collect();
    let by = by.into_iter().map(|word| if word == "none" { "time alone" } else { word });
    let by = by.collect::<Vec<_>>().join(", ");
    let text = match total {
        0 => "Stragglers 0".to_owned(),
        _ => format!("Stragglers {} (by {by}): {}", grouped(total), causes.join(", ")),
    };
    page.wrapped(Style::Plain, &text, 0, 2);
}

/// Returns how many stragglers each cause explains over all stages, in descending order.
pub(crate) fn straggler_causes(a: &Analysis) -> Vec<(&'static str, u64)> {
    let mut sums: std::collections::BTreeMap<&'static str, u64> = Default::default();
    for stragglers in a.stages.iter().filter_map(|s| s.stragglers.as_ref()) {
        stragglers
            .causes
            .iter()
            .for_each(|(name, count)| *sums.entry(name).or_default() += count.unwrap_or(0));
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, count)| *count > 0).collect();
    sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sums
}

fn bounds(page: &mut Page, a: &Analysis) {
    if a.bounds.is_empty() {
        return;
    }
    let gain = |bound: &Bound| {
        format!("{}{}", if bound.at_most { "≤ " } else { "" }, percent(bound.improvement.max(0.0)))
    };
    let named: Vec<String> =
        a.bounds.iter().map(|(name, b)| format!("{} {}", name.replace("no_", ""), gain(b))).collect();
    page.wrapped(Style::Plain, &format!("Gain without {}", named.join(", ")), 0, 2);
}

fn advice(page: &mut Page, a: &Analysis) {
    if a.jobs.is_empty() {
        return;
    }
    page.gap();
    if a.advice.is_empty() {
        page.wrapped(Style::Strong, "Nothing in this log suggests a change.", 0, 2);
        return;
    }
    page.text(Style::Strong, "What to do");
    for (ix, advice) in a.advice.iter().enumerate() {
        let mut full = Page::new(page.width(), false);
        in_full(&mut full, advice);
        let later = a.advice.len() - ix - 1;
        if ix == 0 || page.lines() + full.lines() + later <= LINES {
            in_full(page, advice);
        } else {
            title(page, advice);
        }
    }
}

fn title(page: &mut Page, advice: &Advice) {
    let saves =
        format!("  saves {} ({} to {})", time(advice.saves_ms), time(advice.low_ms), time(advice.high_ms));
    page.line(&[(Style::Strong, &format!("  {}", advice.title)), (Style::Plain, &saves)]);
}

fn in_full(page: &mut Page, advice: &Advice) {
    title(page, advice);
    page.wrapped(Style::Faint, &advice.evidence, 4, 4);
    page.wrapped(Style::Plain, &advice.change, 4, 4);
}
