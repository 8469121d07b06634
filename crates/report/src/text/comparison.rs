//! The text of `pellucid compare`.

use pellucid_model::units::{percent, time};
use pellucid_model::{Change, Comparison, StageChange, Verdict};

use super::page::{Page, Style, cell, clean, right};
use super::width::columns;
use crate::words::noun;

/// Maximum number of stages shown; those with the largest change are chosen.
const MAX_STAGES: usize = 12;

/// Renders a comparison as text with at most `width` columns a line.
pub fn comparison(c: &Comparison, width: usize, color: bool) -> String {
    let mut page = Page::new(width, color);
    let (before, after) = c.duration_ms;
    page.line(&[
        (Style::Strong, &headline(c)),
        (Style::Plain, &format!(" · {} → {}", time(before), time(after))),
    ]);
    page.wrapped(Style::Plain, &format!("Difference {}", interval(&c.change)), 0, 2);
    let mut changed: Vec<&StageChange> = c.stages.iter().collect();
    changed.sort_by(|a, b| size(b).total_cmp(&size(a)));
    changed.truncate(MAX_STAGES);
    changed.sort_by_key(|stage| (stage.b.or(stage.a), stage.a));
    if changed.is_empty() {
        return page.finish();
    }
    page.gap();
    let of = format!(" · the {} of {} with the largest change", changed.len(), c.stages.len());
    let of = if changed.len() < c.stages.len() { of } else { String::new() };
    page.line(&[(Style::Strong, "Stages"), (Style::Faint, &of)]);
    let names: Vec<String> = changed.iter().map(|stage| clean(&stage.name)).collect();
    let room = width.saturating_sub(10 + 3 * 11).max(12);
    let label = names.iter().map(|name| columns(name)).max().unwrap_or(0).min(room);
    let header: String = ["before", "after", "change"].iter().map(|text| right(text, 11)).collect();
    page.text(Style::Faint, &format!("  {} {}{header}", cell("", 7), cell("", label)));
    for (stage, name) in changed.into_iter().zip(names) {
        self::stage(&mut page, stage, &name, label);
    }
    page.finish()
}

fn headline(c: &Comparison) -> String {
    let share = c.change.relative_to(c.duration_ms.0).map_or(0.0, |(share, ..)| share.abs());
    match c.change.verdict() {
        Verdict::Faster => format!("Faster by {}", percent(share)),
        Verdict::Slower => format!("Slower by {}", percent(share)),
        Verdict::SameWithinNoise => "Same within noise".into(),
    }
}

/// Returns a stage's sort key: its change, or its duration if only one run has it.
fn size(stage: &StageChange) -> f64 {
    let one = || stage.duration_ms.0.or(stage.duration_ms.1).unwrap_or(0.0);
    stage.change.map_or_else(one, |change| change.ms.abs())
}

fn stage(page: &mut Page, stage: &StageChange, name: &str, label: usize) {
    // The engine's own stage numbers are preferred over indices.
    let number = |of: Option<usize>, source: Option<u64>| source.or(of.map(|ix| ix as u64));
    let shown = |of: Option<u64>| of.map_or("–".into(), |ix| ix.to_string());
    let numbers = match (number(stage.a, stage.source_ids.0), number(stage.b, stage.source_ids.1)) {
        (a, b) if a == b => shown(a),
        (a, b) => format!("{}→{}", shown(a), shown(b)),
    };
    let duration = |ms: Option<f64>| ms.map_or("–".into(), time);
    let change = match (stage.a, stage.b, &stage.change) {
        (None, ..) => "new".into(),
        (_, None, _) => "removed".into(),
        (.., None) => "–".into(),
        (.., Some(change)) => signed(change.ms),
    };
    let style = match stage.change.map(|change| change.verdict()) {
        Some(Verdict::Slower) => Style::Warning,
        Some(Verdict::Faster) => Style::Cores,
        _ => Style::Faint,
    };
    page.line(&[
        (Style::Plain, &format!("  {} {}", cell(&numbers, 7), cell(name, label))),
        (Style::Plain, &right(&duration(stage.duration_ms.0), 11)),
        (Style::Plain, &right(&duration(stage.duration_ms.1), 11)),
        (style, &right(&change, 11)),
    ]);
    if !stage.why.is_empty() {
        page.wrapped(Style::Faint, &stage.why, 10, 10);
    } else if stage.change.is_some_and(|change| change.verdict() == Verdict::SameWithinNoise) {
        return;
    }
    let kinds = stage.explained_by.iter().filter_map(|(kind, ms)| Some((kind, (*ms)?)));
    let kinds: Vec<String> = kinds
        .filter(|(_, ms)| ms.abs() >= 0.05)
        .map(|(kind, ms)| format!("{} {}", noun(kind), signed(ms)))
        .collect();
    if !kinds.is_empty() {
        page.wrapped(Style::Faint, &format!("used: {}", kinds.join(", ")), 10, 12);
    }
}

fn signed(ms: f64) -> String {
    format!("{}{}", if ms < 0.0 { "−" } else { "+" }, time(ms.abs()))
}

fn interval(change: &Change) -> String {
    format!("{} (90 % interval {} to {})", signed(change.ms), signed(change.low_ms), signed(change.high_ms))
}
