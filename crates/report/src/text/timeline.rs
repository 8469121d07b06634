//! A text timeline of each resource's utilization.
//!
//! Each resource has a row. A column is a span of time; the height of its block is the resource's
//! utilization, by the same capacities as in the analysis. The rows of stages below show which stage
//! used which resource.

use pellucid_model::units::time;
use pellucid_model::{Series, series};
use pellucid_trace::{Trace, kind};

use super::page::{Page, Style, cell, clean, right};
use super::width::columns;
use crate::words::{capacity, resource};

/// Maximum number of resources, and of stages, drawn: the busiest and the longest.
const MAX_ROWS: usize = 8;
/// Blocks for increasing utilization; below half of the first, the resource counts as idle.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const IDLE: char = '·';
/// Width of the column of means, at the right.
const MEAN_COLUMNS: usize = 6;

/// Renders the utilization of resources over time with at most `width` columns a line, from the first job's
/// submission to the last recorded event.
pub fn timeline(trace: &Trace, width: usize, color: bool) -> String {
    let mut page = Page::new(width, color);
    let (from_ns, to_ns) = span(trace);
    let names = |ix: usize| resource(&trace.resources[ix].kind, Some(&trace.resources[ix].name));
    let coarse = busiest(series(trace, from_ns, to_ns, 1));
    if coarse.is_empty() {
        page.wrapped(Style::Plain, "No monotasks were recorded, so the timeline is empty.", 0, 2);
        return page.finish();
    }
    let stages = stages(trace);
    let labels = coarse.iter().map(|s| columns(&clean(&names(s.resource))));
    let label = labels.chain(stages.iter().map(|s| columns(&s.label))).max().unwrap_or(0).min(width / 4);
    let cells = width.saturating_sub(label + 1 + MEAN_COLUMNS).max(1);
    let drawn: Vec<usize> = coarse.iter().map(|s| s.resource).collect();
    let length_ms = (to_ns - from_ns) as f64 / 1e6;
    let title = format!("Resources over {}", time(length_ms));
    let mean = right("mean", width.saturating_sub(columns(&title)));
    page.line(&[(Style::Strong, &title), (Style::Faint, &mean)]);
    for one in series(trace, from_ns, to_ns, cells).iter().filter(|s| drawn.contains(&s.resource)) {
        let mean = one.utilization.iter().sum::<f64>() / cells as f64;
        let blocks: String = one.utilization.iter().map(|u| block(*u)).collect();
        page.line(&[
            (Style::Plain, &format!("{} ", cell(&names(one.resource), label))),
            (Style::of_kind(&trace.resources[one.resource].kind), &blocks),
            (Style::Plain, &right(&format!("{:.0} %", mean * 100.0), MEAN_COLUMNS)),
        ]);
    }
    axis(&mut page, label + 1, cells, length_ms);
    for stage in &stages {
        page.line(&[
            (Style::Plain, &format!("{} ", cell(&stage.label, label))),
            (Style::Faint, &stage.bar(from_ns, to_ns, cells)),
        ]);
    }
    legend(&mut page, &coarse, trace, !stages.is_empty());
    page.finish()
}

/// Returns the span from the first job's submission (the origin, without jobs) to the last recorded event.
fn span(trace: &Trace) -> (u64, u64) {
    let from = trace.jobs.iter().map(|j| j.submitted_ns).min().unwrap_or(0);
    let work =
        trace.monotasks.iter().map(|m| m.queued_ns.saturating_add(m.queue_ns).saturating_add(m.service_ns));
    let to = trace.job_ends.iter().map(|e| e.ended_ns).chain(work).max().unwrap_or(0);
    (from, to)
}

/// Keeps the busiest resources, in the trace's order.
fn busiest(mut all: Vec<Series>) -> Vec<Series> {
    let mean = |s: &Series| s.utilization.first().copied().unwrap_or(0.0);
    all.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    all.truncate(MAX_ROWS);
    all.sort_by_key(|s| s.resource);
    all
}

fn block(utilization: f64) -> char {
    match (utilization * BLOCKS.len() as f64).round() as usize {
        0 if utilization < 0.005 => IDLE,
        eighths => BLOCKS[eighths.clamp(1, BLOCKS.len()) - 1],
    }
}

/// A stage's span from its first running monotask to its last.
struct Stage {
    label: String,
    from_ns: u64,
    to_ns: u64,
}

impl Stage {
    fn bar(&self, from_ns: u64, to_ns: u64, cells: usize) -> String {
        let at = |ns: u64| {
            let share = ns.saturating_sub(from_ns) as f64 / (to_ns - from_ns) as f64;
            ((share * cells as f64) as usize).min(cells - 1)
        };
        let (first, last) = (at(self.from_ns), at(self.to_ns.saturating_sub(1).max(self.from_ns)));
        format!("{}{}", " ".repeat(first), "━".repeat(last - first + 1))
    }
}

/// Returns the longest stages, ordered by number.
fn stages(trace: &Trace) -> Vec<Stage> {
    let mut spans: Vec<Option<(u64, u64)>> = vec![None; trace.stages.len()];
    for monotask in &trace.monotasks {
        let stage = trace.multitasks.get(monotask.multitask as usize).map(|m| m.stage as usize);
        let Some(span) = stage.and_then(|stage| spans.get_mut(stage)) else { continue };
        let start = monotask.queued_ns.saturating_add(monotask.queue_ns);
        let end = start.saturating_add(monotask.service_ns);
        let (from, to) = span.unwrap_or((start, end));
        *span = Some((from.min(start), to.max(end)));
    }
    let with_work = spans.iter().enumerate().filter_map(|(ix, span)| Some((ix, (*span)?)));
    let mut longest: Vec<(usize, (u64, u64))> = with_work.collect();
    longest.sort_by_key(|(ix, (from, to))| (std::cmp::Reverse(to - from), *ix));
    longest.truncate(MAX_ROWS);
    longest.sort_unstable();
    let stage = |(ix, (from_ns, to_ns))| Stage { label: format!("stage {ix}"), from_ns, to_ns };
    longest.into_iter().map(stage).collect()
}

/// Returns the smallest of 1, 2 and 5 times a power of ten that leaves at least `room` columns to each tick.
fn step_ms(length_ms: f64, cells: usize, room: usize) -> f64 {
    let min = length_ms * room as f64 / cells as f64;
    let power = 10_f64.powf(min.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0].map(|n| n * power).into_iter().find(|step| *step >= min).unwrap_or(10.0 * power)
}

/// Draws the time axis, with a label below each tick.
fn axis(page: &mut Page, indent: usize, cells: usize, length_ms: f64) {
    let step = step_ms(length_ms, cells, 12);
    let mut line = vec!['─'; cells];
    let mut labels = String::new();
    for tick in 0.. {
        let at = (tick as f64 * step / length_ms * cells as f64).round() as usize;
        let label = tick_label(tick as f64 * step, step);
        if at >= cells {
            break;
        }
        line[at] = '┬';
        if at + columns(&label) <= cells + MEAN_COLUMNS {
            labels += &" ".repeat(at - columns(&labels).min(at));
            labels += &label;
        }
    }
    let indent = " ".repeat(indent);
    page.text(Style::Faint, &format!("{indent}{}", line.into_iter().collect::<String>()));
    page.text(Style::Faint, &format!("{indent}{labels}"));
}

/// Formats a tick's time. Unit and digits depend on the step alone, so that all ticks share them.
fn tick_label(at_ms: f64, step_ms: f64) -> String {
    let (unit, per_unit) = match step_ms {
        s if s >= 60_000.0 => ("min", 60_000.0),
        s if s >= 100.0 => ("s", 1000.0),
        s if s >= 0.1 => ("ms", 1.0),
        _ => ("µs", 1e-3),
    };
    let digits = usize::from(at_ms > 0.0 && (step_ms / per_unit) < 0.999);
    format!("{:.digits$} {unit}", at_ms / per_unit)
}

fn legend(page: &mut Page, drawn: &[Series], trace: &Trace, with_stages: bool) {
    page.gap();
    let blocks: String = BLOCKS.iter().collect();
    let bars = if with_stages { " · ━ a stage, from its first to its last monotask" } else { "" };
    let text = format!("{blocks} utilization, up to 100 % · '{IDLE}' idle{bars}");
    page.wrapped(Style::Faint, &text, 0, 0);
    let full = drawn.iter().map(|one| {
        let resource = &trace.resources[one.resource];
        match one.capacity {
            Some(_) if resource.kind == kind::CPU => capacity(kind::CPU, one.capacity, None),
            Some(_) => {
                let rate = capacity(&resource.kind, one.capacity, one.capacity_from.as_deref());
                format!("{rate} of {}", resource.name)
            }
            None => format!("always busy for {} (capacity unknown)", resource.name),
        }
    });
    page.wrapped(Style::Faint, &format!("100 % is {}", full.collect::<Vec<_>>().join(" · ")), 0, 2);
}
