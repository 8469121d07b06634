//! Terminal table of predicted and measured times.

use crate::whatif::interval;
use pellucid_model::backtest::{Scored, score};
use pellucid_model::units::time;
use pellucid_report::{escaped, fit};
use std::fmt::Write;

/// Renders the table, followed by the score.
pub fn table(cases: &[Scored], width: usize, color: bool) -> String {
    let mut out = String::new();
    let bold = |text: &str| if color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() };
    // The columns right of the name take 56 characters.
    let names = cases.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    let column = names.min(width.saturating_sub(58)).max(16);
    let heading = format!(
        "{:<column$} {:>9} {:>6} {:>9} {:>6} {:<20}",
        "case", "measured", "±", "predicted", "off", "interval"
    );
    let _ = writeln!(out, "{}", bold(heading.trim_end()));
    for case in cases {
        let off =
            if case.void.is_some() { "void".to_string() } else { format!("{:.1} %", case.error() * 100.0) };
        let outside = if case.void.is_none() && !case.inside() { " outside" } else { "" };
        let _ = writeln!(
            out,
            "{:<column$} {:>9} {:>6} {:>9} {off:>6} {}{outside}",
            cut(&case.name, column),
            time(case.measured_ms),
            format!("{:.1} %", case.measured_spread * 50.0),
            time(case.prediction.duration_ms),
            interval(&case.prediction),
        );
        if let Some(why) = &case.void {
            let _ = writeln!(out, "{:<column$} {}", "", cut(why, width.saturating_sub(column + 1)));
        }
    }
    let Some(score) = score(cases) else {
        out.push_str("\nno score: every case is void\n");
        return out;
    };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let _ = writeln!(
        out,
        "\n{}",
        bold(&format!(
            "median error {}, worst {}; {:.0} of {} inside their interval",
            percent(score.median_error),
            percent(score.worst_error),
            score.coverage * score.cases as f64,
            score.cases,
        ))
    );
    let _ = writeln!(
        out,
        "median half-width of an interval {}; {} cases changed the time by over 1.3×, {}\n\
         moved the bottleneck, {} had two resources with ideal times within 20 %",
        percent(score.median_half_width),
        score.changing,
        score.moving,
        score.balanced,
    );
    out
}

fn cut(text: &str, columns: usize) -> String {
    fit(&escaped(text), columns)
}
