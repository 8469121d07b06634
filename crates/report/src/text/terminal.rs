//! The text of `pellucid analyze`.
//!
//! The output goes from the answer to the evidence: the summary line, the causes (which sum to the
//! measured time), the resources, the stages, and at the end the quantities that were not measured. Long
//! lists are limited to the entries that account for most of the time, and say so.

use pellucid_model::units::{self, count, grouped, percent, size, time};
use pellucid_model::{
    Analysis, BlockedTime, BlockedTimes, ColumnTime, ExpressionTime, JobAnalysis, OperatorTime, StageAnalysis,
};
use pellucid_trace::{HeldMemory, Peak, Trace};

use super::page::{Page, Style, bar, cell, clean, right};
use super::pipelined;
use super::summary::summary_line;
use super::width::{columns, fit};
use crate::what_if::{Single, WhatIf};
use crate::words::{capacity, noun, resource};

/// Maximum number of jobs, and of stages, shown.
const MAX_SHOWN: usize = 5;
/// Maximum number of operators shown.
const MAX_OPERATORS: usize = 8;
/// Maximum number of multitasks of a trace whose what-ifs are shown; each takes a simulation.
const MAX_PREDICTED: usize = 10_000;
/// Minimum share of the time that a change to hardware or a setting saves.
const MIN_SAVING: f64 = 0.03;
/// Maximum number of columns shown of a scan.
const MAX_COLUMNS: usize = 3;
/// Maximum number of expressions shown of an operator.
const MAX_EXPRESSIONS: usize = 3;
/// Maximum width of an expression.
const EXPRESSION_WIDTH: usize = 48;
/// Stages are shown until they account for this share of all stages' limits.
const COVERAGE: f64 = 0.9;

/// Returns the widths of a table's time and share columns, which are narrower on a narrow page.
fn table(page: &Page) -> (usize, usize) {
    if page.width() < 64 { (8, 6) } else { (11, 7) }
}

/// Renders an analysis as text with at most `width` columns a line. `trace` is the trace that was analysed.
pub fn terminal(a: &Analysis, trace: &Trace, width: usize, color: bool) -> String {
    if pipelined::applies(a, trace) {
        return pipelined::screen(a, trace, width, color);
    }
    let mut page = Page::new(width, color);
    warnings(&mut page, a);
    let mut jobs: Vec<&JobAnalysis> = a.jobs.iter().collect();
    jobs.sort_by(|a, b| lasted(b).total_cmp(&lasted(a)));
    jobs.truncate(MAX_SHOWN);
    jobs.sort_by_key(|job| job.id);
    for job in &jobs {
        headline(&mut page, job);
        causes(&mut page, a, job);
        core_time(&mut page, job);
    }
    if a.jobs.is_empty() {
        page.gap();
        page.text(Style::Plain, "The trace contains no jobs.");
    } else if jobs.len() < a.jobs.len() {
        page.gap();
        let text = format!("Showing the {} longest of {} jobs.", jobs.len(), a.jobs.len());
        page.wrapped(Style::Faint, &text, 0, 2);
    }
    remedies(&mut page, trace);
    resources(&mut page, a);
    stages(&mut page, a, trace);
    not_measured(&mut page, a, &jobs);
    page.finish()
}

/// Returns whether [`terminal`] prints the analysis' warnings. The screen for an event log has no room for
/// them.
pub fn shows_warnings(a: &Analysis, trace: &Trace) -> bool {
    !pipelined::applies(a, trace)
}

fn lasted(job: &JobAnalysis) -> f64 {
    job.duration_ms.or(job.observed_ms).unwrap_or(0.0)
}

fn warnings(page: &mut Page, a: &Analysis) {
    for warning in &a.warnings {
        page.wrapped(Style::Warning, &format!("! {warning}"), 0, 2);
    }
}

fn headline(page: &mut Page, job: &JobAnalysis) {
    page.gap();
    let name = clean(&job.name).split_whitespace().collect::<Vec<_>>().join(" ");
    page.text(Style::Strong, if name.is_empty() { "(unnamed job)" } else { &name });
    page.wrapped(Style::Plain, &summary_line(job, job.rows), 0, 2);
    if let Some(error) = &job.error {
        page.wrapped(Style::Warning, error, 0, 2);
    }
}

/// Draws the causes as bars relative to the job's time.
fn causes(page: &mut Page, a: &Analysis, job: &JobAnalysis) {
    let whole = job.duration_ms.or(job.modelled_ms).unwrap_or(0.0);
    let causes: Vec<_> = a.causes.iter().filter(|c| c.job == job.id && c.cause != "failure").collect();
    if causes.is_empty() || whole <= 0.0 {
        return;
    }
    page.gap();
    let title = match job.duration_ms {
        Some(ms) => format!("Where {} went", time(ms)),
        None => "Where the recorded time went".into(),
    };
    page.text(Style::Strong, &title);
    let label = causes.iter().map(|c| columns(noun(&c.cause))).max().unwrap_or(0).min(18);
    let (times, shares) = table(page);
    let room = page.width().saturating_sub(label + 2 + 2 + times + shares).min(60);
    for cause in causes {
        let share = cause.ms / whole;
        let (from, at_most) = (noun(&cause.cause), if cause.at_most { "≤ " } else { "" });
        page.line(&[
            (Style::Plain, &format!("  {}  ", cell(from, label))),
            (Style::of_kind(&cause.cause), &cell(&bar(share, room), room)),
            (Style::Plain, &right(&format!("{at_most}{}", time(cause.ms)), times)),
            (Style::Faint, &right(&percent(share), shares)),
        ]);
    }
}

fn core_time(page: &mut Page, job: &JobAnalysis) {
    let Some(total) = job.core.total_ms else { return };
    let shares = [
        (job.core.decode_share, "decoding"),
        (job.core.operator_share, "operators"),
        (job.core.encode_share, "encoding"),
        (job.core.not_split_share, "not split"),
    ];
    let shares = shares.iter().filter_map(|(share, what)| Some(format!("{} {what}", percent((*share)?))));
    let shares: Vec<String> = shares.collect();
    let mut text = format!("Core time {}", time(total));
    if !shares.is_empty() {
        text += &format!(": {}", shares.join(", "));
    }
    if let Some(bytes) = job.memory_high_water_bytes {
        text += &format!(" · peak memory {}", size(bytes as f64));
    }
    page.gap();
    page.wrapped(Style::Plain, &text, 0, 2);
    if let Some(peak) = &job.peak {
        page.wrapped(Style::Plain, &held(peak), 0, 2);
    }
    if let Some(spill) = &job.spill {
        let bytes = |bytes: u64| size(bytes as f64);
        let text = format!(
            "Spilled {} to disk and read {} back, in {} of the disks' time; --memory {} would have sufficed",
            bytes(spill.write_bytes),
            bytes(spill.read_bytes + spill.cached_bytes),
            time(spill.ms),
            memory(spill.sufficient_memory_bytes)
        );
        page.wrapped(Style::Plain, &text, 0, 2);
    }
    operators(page, job, total);
}

/// Returns a size for `--memory`, rounded up.
fn memory(bytes: u64) -> String {
    format!("{}MB", bytes.div_ceil(1_000_000))
}

/// Returns what held the job's memory at its peak.
fn held(peak: &Peak) -> String {
    const SHOWN: usize = 3;
    let of = |held: &HeldMemory| format!("{} of stage {} {}", held.what, held.stage, size(held.bytes as f64));
    let mut by: Vec<String> = peak.held_by.iter().take(SHOWN).map(of).collect();
    let shown: u64 = peak.held_by.iter().take(SHOWN).map(|held| held.bytes).sum();
    if peak.held_by.len() > SHOWN {
        by.push(format!("other {}", size(peak.bytes.saturating_sub(shown) as f64)));
    }
    format!("At most {} held at once, in stage {}: {}", size(peak.bytes as f64), peak.stage, by.join(", "))
}

/// Lists the operators that took the most core time, with their rows and the time for each row of input.
fn operators(page: &mut Page, job: &JobAnalysis, total_ms: f64) {
    let Some(all) = job.core.operators.as_ref().filter(|_| total_ms > 0.0) else { return };
    let (shown, others) = all.split_at(all.len().min(MAX_OPERATORS));
    let (times, shares) = table(page);
    let rows = |of: &OperatorTime| match (of.rows_in, of.rows_out) {
        (Some(taken), Some(returned)) => format!("{} → {}", grouped(taken), grouped(returned)),
        (Some(rows), None) | (None, Some(rows)) => grouped(rows),
        (None, None) => String::new(),
    };
    let per_row = |of: &OperatorTime| match of.rows_in.or(of.rows_out) {
        Some(rows) if rows > 0 => format!("{:.1}", of.core_ms * 1e6 / rows as f64),
        _ => String::new(),
    };
    // A narrow page has no room for rows.
    let moved: Vec<String> =
        shown.iter().map(|of| if page.width() < 72 { String::new() } else { rows(of) }).collect();
    let room = moved.iter().map(|text| columns(text)).max().unwrap_or(0).max(4);
    let label = page.width().saturating_sub(2 + 6 + times + shares + 2 + room + 8).min(36);
    page.line(&[
        (Style::Strong, &cell("  Operators", label + 2)),
        (Style::Faint, &right("stage", 6)),
        (Style::Faint, &right("time", times)),
        (Style::Faint, &right("share", shares)),
        (Style::Faint, &right("rows", room + 2)),
        (Style::Faint, &right("ns/row", 8)),
    ]);
    for (of, moved) in shown.iter().zip(&moved) {
        page.line(&[
            (Style::Plain, &cell(&format!("  {}", clean(&of.name)), label + 2)),
            (Style::Faint, &right(&of.stage.to_string(), 6)),
            (Style::Plain, &right(&time(of.core_ms), times)),
            (Style::Faint, &right(&percent(of.core_ms / total_ms), shares)),
            (Style::Plain, &right(moved, room + 2)),
            (Style::Plain, &right(&per_row(of), 8)),
        ]);
        if let Some(columns) = &of.columns {
            page.wrapped(Style::Faint, &of_columns(columns), 4, 6);
        }
        if !of.expressions.is_empty() {
            page.wrapped(Style::Faint, &of_expressions(&of.expressions), 4, 6);
        }
    }
    if shown.iter().any(|of| !of.expressions.is_empty()) {
        page.wrapped(Style::Faint, "≈ estimated from some of the batches", 2, 4);
    }
    if !others.is_empty() {
        let rest: f64 = others.iter().map(|of| of.core_ms).sum();
        let text = format!("  {} others took {} ({}).", others.len(), time(rest), percent(rest / total_ms));
        page.wrapped(Style::Faint, &text, 0, 2);
    }
}

/// Lists the best change to hardware or a setting, and the best to the query, for the trace of one query.
fn remedies(page: &mut Page, trace: &Trace) {
    if trace.operators.is_empty() || trace.jobs.len() > 1 || trace.multitasks.len() > MAX_PREDICTED {
        return;
    }
    let Ok(what_if) = WhatIf::of(trace) else { return };
    let worth = |single: &&Single| single.duration_ms <= (1.0 - MIN_SAVING) * what_if.measured_ms;
    let best = what_if.best().filter(worth);
    let of_query = what_if.singles.iter().filter(|single| single.of_code);
    let shown: Vec<&Single> = best.into_iter().chain(of_query).collect();
    if shown.is_empty() {
        return;
    }
    let (times, shares) = table(page);
    let label = shown.iter().map(|single| columns(&single.set)).max().unwrap_or(0).max(14);
    page.gap();
    page.line(&[
        (Style::Strong, &cell("What would help", label + 2)),
        (Style::Faint, &format!("{}{}  90 % interval", right("then", times), right("saves", shares))),
    ]);
    for single in &shown {
        let saved = 1.0 - single.duration_ms / what_if.measured_ms;
        let interval = format!("  {} to {}", time(single.low_ms), time(single.high_ms));
        page.line(&[
            (Style::Plain, &format!("  {}", cell(&single.set, label))),
            (Style::Plain, &right(&time(single.duration_ms), times)),
            (Style::Plain, &right(&percent(saved), shares)),
            (Style::Faint, &interval),
        ]);
    }
    for meaning in shown.iter().filter_map(|single| single.meaning.as_ref()) {
        page.wrapped(Style::Faint, &format!("{}.", clean(meaning)), 2, 4);
    }
    page.wrapped(Style::Faint, "`pellucid whatif` predicts these and other changes.", 2, 4);
}

/// Lists the columns that took most of a scan's core time.
fn of_columns(columns: &[ColumnTime]) -> String {
    let (shown, others) = columns.split_at(columns.len().min(MAX_COLUMNS));
    let mut parts: Vec<String> =
        shown.iter().map(|column| format!("{} {}", clean(&column.name), time(column.core_ms))).collect();
    if !others.is_empty() {
        let rest: f64 = others.iter().map(|column| column.core_ms).sum();
        parts.push(format!("{} {}", count(others.len() as u64, "other column"), time(rest)));
    }
    parts.join(", ")
}

/// Lists the expressions that took most of an operator's core time.
fn of_expressions(expressions: &[ExpressionTime]) -> String {
    let shown = expressions.iter().take(MAX_EXPRESSIONS);
    let each = shown.map(|of| format!("{} ≈ {}", fit(&clean(&of.text), EXPRESSION_WIDTH), time(of.core_ms)));
    each.collect::<Vec<_>>().join(", ")
}

/// Lists the use of every resource over the whole trace.
fn resources(page: &mut Page, a: &Analysis) {
    let used: Vec<_> = a.resources.iter().filter(|r| r.ideal_ms.is_some_and(|ms| ms > 0.0)).collect();
    if used.is_empty() {
        return;
    }
    let whole = a.wall_clock.jobs_ms.filter(|ms| *ms > 0.0);
    let names: Vec<String> = used.iter().map(|r| resource(&r.kind, Some(&r.name))).collect();
    let label = names.iter().map(|n| columns(n)).max().unwrap_or(0).clamp(9, 30);
    let (times, shares) = table(page);
    page.gap();
    page.line(&[
        (Style::Strong, &cell("Resources", label + 2)),
        (Style::Faint, &format!("{}{}  capacity", right("ideal", times), right("used", shares))),
    ]);
    for (name, used) in names.iter().zip(used) {
        let ideal = used.ideal_ms.unwrap_or(0.0);
        let share = whole.map_or(String::new(), |whole| units::used(ideal / whole));
        page.line(&[
            (Style::of_kind(&used.kind), &format!("  {}", cell(name, label))),
            (Style::Plain, &right(&time(ideal), times)),
            (Style::Plain, &right(&share, shares)),
            (
                Style::Faint,
                &format!("  {}", capacity(&used.kind, used.capacity, used.capacity_from.as_deref())),
            ),
        ]);
    }
}

/// Returns a stage's sort key: the largest limit of its kinds.
fn weight(stage: &StageAnalysis) -> f64 {
    stage.kinds.values().map(|k| k.limit_ms).fold(0.0, f64::max)
}

fn stages(page: &mut Page, a: &Analysis, trace: &Trace) {
    let all: f64 = a.stages.iter().map(weight).sum();
    let mut by_weight: Vec<&StageAnalysis> = a.stages.iter().filter(|s| weight(s) > 0.0).collect();
    by_weight.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let (mut shown, mut carried) = (Vec::new(), 0.0);
    for stage in by_weight.into_iter().take(MAX_SHOWN) {
        if carried >= COVERAGE * all {
            break;
        }
        carried += weight(stage);
        shown.push(stage);
    }
    if shown.is_empty() {
        return;
    }
    page.gap();
    let of =
        format!(" · {} of {}, {} of the stages' time", shown.len(), a.stages.len(), percent(carried / all));
    page.line(&[(Style::Strong, "Stages that matter"), (Style::Faint, &of)]);
    for stage in shown {
        self::stage(page, stage, trace.jobs.len() > 1);
    }
}

fn stage(page: &mut Page, stage: &StageAnalysis, many_jobs: bool) {
    let job = if many_jobs { format!(" of job {}", stage.job) } else { String::new() };
    page.line(&[
        (Style::Strong, &format!("  stage {}{job}  ", stage.id)),
        (Style::Plain, &clean(stage.name.trim())),
    ]);
    let mut facts = vec![count(stage.tasks, "multitask")];
    facts.extend(stage.duration_ms.map(time));
    if stage.failed_tasks > 0 {
        facts.push(format!("{} failed", stage.failed_tasks));
    }
    if let Some(bottleneck) = &stage.bottleneck {
        facts.push(format!("limited by {}", resource(&bottleneck.kind, bottleneck.name.as_deref())));
    }
    if let Some(skew) = stage.skew.duration_max_over_median.filter(|skew| *skew > 2.0) {
        facts.push(format!("longest multitask {skew:.1} times the median"));
    }
    for (kind, used) in &stage.kinds {
        if let (Some(times), Some(name)) = (used.imbalance.filter(|i| *i > 1.1), &used.largest) {
            facts.push(format!("{} has {times:.1} times the mean load", resource(kind, Some(name))));
        }
    }
    if !stage.not_split.is_empty() {
        facts.push(format!("not split: {}", stage.not_split.join(", ")));
    }
    page.wrapped(Style::Faint, &facts.join(" · "), 4, 4);
    let kinds: Vec<_> = stage.kinds.iter().filter(|(_, k)| k.limit_ms > 0.0).collect();
    let label = kinds.iter().map(|(k, _)| columns(noun(k))).max().unwrap_or(0).clamp(5, 16);
    let (times, shares) = table(page);
    let header = [("ideal", times), ("used", shares), ("queue", times), ("service", times)];
    let header: String = header.iter().map(|(text, width)| right(text, *width)).collect();
    page.text(Style::Faint, &format!("    {}{header}", cell("", label)));
    let measured = |ms: Option<f64>| ms.map_or("–".into(), time);
    for (kind, used) in kinds {
        page.line(&[
            (Style::of_kind(kind), &format!("    {}", cell(noun(kind), label))),
            (Style::Plain, &right(&time(used.ideal_ms), times)),
            (Style::Plain, &right(&used.utilization.map_or("–".into(), units::used), shares)),
            (Style::Plain, &right(&measured(used.queue_ms), times)),
            (Style::Plain, &right(&measured(used.service_ms), times)),
        ]);
    }
}

/// Lists the quantities that are missing above, and the overhead of recording the trace.
fn not_measured(page: &mut Page, a: &Analysis, jobs: &[&JobAnalysis]) {
    let missing = missing(a, jobs);
    page.gap();
    a.notes.iter().for_each(|note| page.wrapped(Style::Plain, &format!("Note: {note}."), 0, 2));
    if !missing.is_empty() {
        page.wrapped(Style::Faint, &format!("Not measured: {}.", missing.join(", ")), 0, 2);
    }
    if let Some(share) = a.recording.share {
        let text = format!("Recording the trace took {} of the core time.", percent(share));
        page.wrapped(Style::Faint, &text, 0, 2);
    }
}

/// Names the quantities that were measured in none of `jobs`.
pub(crate) fn missing(a: &Analysis, jobs: &[&JobAnalysis]) -> Vec<&'static str> {
    let none = |of: fn(&JobAnalysis) -> bool| !jobs.is_empty() && jobs.iter().all(|job| of(job));
    // Pipelined tasks record how long they waited; monotasks record what they used.
    let waited = |of: fn(&BlockedTimes) -> BlockedTime| {
        jobs.iter().filter_map(|job| job.blocked.as_ref()).map(of).any(|time| time.measured_ms.is_some())
    };
    let bounded =
        jobs.iter().filter_map(|job| job.blocked.as_ref()).any(|b| b.disk.at_most_ms > b.disk.measured_ms);
    let missing = [
        (none(|job| job.duration_ms.is_none()), "job end times"),
        (none(|job| !job.kinds.contains_key("cpu")) && !waited(|b| b.cpu), "cores"),
        (none(|job| !job.kinds.contains_key("disk")) && (bounded || !waited(|b| b.disk)), "disks"),
        (none(|job| !job.kinds.contains_key("network")) && !waited(|b| b.network), "network"),
        (none(|job| job.read_bytes.is_none()), "bytes read"),
        (none(|job| job.cached_bytes.is_none()), "cached bytes"),
        (none(|job| job.core.decode_share.is_none()), "decoding"),
        (none(|job| job.core.not_split_share.is_none()), "unsplit work"),
        (none(|job| job.memory_high_water_bytes.is_none()), "memory"),
        (a.recording.recording_ms.is_none(), "recording overhead"),
    ];
    missing.iter().filter(|(missing, _)| *missing).map(|(_, what)| *what).collect()
}
