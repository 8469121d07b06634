//! An overview of several applications: one line each, worst first, then the possible gain over all their
//! jobs.
//!
//! Applications are ranked by the largest saving of any advice; failed ones come first. The percentiles
//! are those of the blocked-time paper (NSDI '15), figures 3, 8 and 12.

use pellucid_model::units::{count, percent, time};
use pellucid_model::{Analysis, Spread, spread};

use super::page::{Page, Style, cell, right};

/// Bounds whose distribution is shown: key and label.
const BOUNDS: [(&str, &str); 4] =
    [("no_disk", "disk"), ("no_network", "network"), ("no_gc", "gc"), ("no_stragglers", "stragglers")];

/// Returns indices into `analyses`, worst first.
pub fn worst_first(analyses: &[Analysis]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..analyses.len()).collect();
    order.sort_by(|a, b| severity(&analyses[*b]).total_cmp(&severity(&analyses[*a])));
    order
}

/// Returns the largest saving of any advice. A failed job outranks any saving.
fn severity(a: &Analysis) -> f64 {
    let failed = a.causes.first().is_some_and(|c| c.cause == "failure");
    let advised = a.advice.iter().map(|advice| advice.saves_ms).fold(0.0, f64::max);
    if failed { 1e15 + advised } else { advised }
}

/// Renders `analyses` as a table, worst first. A `!` after the name marks an analysis with warnings.
pub fn overview(analyses: &[Analysis], names: &[String], width: usize, color: bool) -> String {
    let mut page = Page::new(width, color);
    let name = width.saturating_sub(2 + 10 + 13 + 10 + 14).max(12);
    page.line(&[
        (Style::Strong, &cell("Log", name + 2)),
        (
            Style::Faint,
            &format!(
                "{}  {}{}{}",
                right("job time", 10),
                cell("main cause", 11),
                right("can save", 10),
                right("replay error", 14)
            ),
        ),
    ]);
    for ix in worst_first(analyses) {
        let a = &analyses[ix];
        let cause = a.causes.first().map_or("–", |c| c.cause.as_str());
        let saves = a.advice.first().map_or("–".into(), |advice| time(advice.saves_ms));
        let ran = a.replay.map_or("–".into(), |r| time(r.measured_ms));
        page.line(&[
            (Style::Plain, &cell(names.get(ix).map_or("", String::as_str), name)),
            (Style::Warning, if a.warnings.is_empty() { "  " } else { " !" }),
            (Style::Plain, &right(&ran, 10)),
            (Style::of_kind(cause), &format!("  {}", cell(cause, 11))),
            (Style::Plain, &right(&saves, 10)),
            (Style::Faint, &right(&a.replay.map_or("–".into(), |r| percent(r.error)), 14)),
        ]);
    }
    let warned = analyses.iter().filter(|a| !a.warnings.is_empty()).count() as u64;
    if warned > 0 {
        let text = format!("! {} with warnings: truncated, skipped or unmeasured data", count(warned, "log"));
        page.wrapped(Style::Warning, &text, 0, 2);
    }
    let spreads: Vec<_> =
        BOUNDS.iter().filter_map(|(key, name)| Some((*name, spread(analyses, key)?))).collect();
    if let Some((_, first)) = spreads.first() {
        page.gap();
        let over = format!("Gain over {} without", count(first.jobs as u64, "job"));
        let columns = ["5 %", "25 %", "50 %", "75 %", "95 %"].map(|p| right(p, 9)).concat();
        page.line(&[(Style::Strong, &cell(&over, 30)), (Style::Faint, &columns)]);
        spreads.iter().for_each(|(name, spread)| spread_line(&mut page, name, spread));
    }
    page.finish()
}

fn spread_line(page: &mut Page, name: &str, spread: &Spread) {
    let values = [spread.p5, spread.p25, spread.p50, spread.p75, spread.p95];
    let values = values.map(|v| right(&percent(v.max(0.0)), 9)).concat();
    page.line(&[(Style::Plain, &format!("  {}", cell(name, 28))), (Style::Plain, &values)]);
}
