//! Formats a what-if prediction as text for a terminal.

use pellucid_model::units::time;
use pellucid_model::whatif::{Baseline, By, Point, Prediction, Single};
use pellucid_model::{Bottleneck, Cause};
use pellucid_report::escaped;
use std::fmt::Write;

use super::answer::Answer;

/// Width of the label column.
const LABEL: usize = 13;

/// Formats an interval: `2.21 s to 2.49 s`.
pub fn interval(prediction: &Prediction) -> String {
    format!("{} to {}", time(prediction.low_ms), time(prediction.high_ms))
}

/// Returns the whole answer, wrapped to `width` columns.
pub fn answer(answer: &Answer, backtests: usize, width: usize, color: bool) -> String {
    let mut out = String::new();
    let page = Page { width: width.max(40), color };
    let whatif = &answer.whatif;
    page.line(&mut out, "measured", &time(whatif.baseline.measured_ms));
    page.line(&mut out, "reproduced", &reproduced(&whatif.baseline));
    page.line(
        &mut out,
        "limited by",
        &limit_now(whatif.bottleneck_before.as_ref(), whatif.first_cause.as_ref()),
    );
    if !whatif.changes.is_empty() {
        let prediction = &whatif.prediction;
        out.push('\n');
        page.line(&mut out, "with", &whatif.changes.to_string());
        let headline = format!("{}, {}", time(prediction.duration_ms), versus(prediction, &whatif.baseline));
        page.styled(&mut out, "predicted", &page.bold(&headline));
        page.line(&mut out, "interval", &format!("{} (90 %)", interval(prediction)));
        page.line(&mut out, "limited by", &limit(whatif.bottleneck_after.as_ref()));
        page.line(&mut out, "by", &by(prediction));
    }
    if let Some((key, points)) = &answer.sweep {
        out.push('\n');
        page.sweep(&mut out, key, points);
    }
    if let Some(singles) = &answer.singles {
        out.push('\n');
        let (bounds, changes): (Vec<&Single>, Vec<&Single>) =
            singles.iter().partition(|single| single.changes.is_bound());
        page.singles(&mut out, "if", &changes, &whatif.baseline);
        let of_code = changes.iter().filter(|single| single.changes.is_of_code());
        for assumption in of_code.filter_map(|single| single.assumptions.last()) {
            page.line(&mut out, "", assumption);
        }
        if !bounds.is_empty() {
            out.push_str("\nUpper bounds: time if a part were removed entirely, which no change achieves.\n");
            page.singles(&mut out, "without", &bounds, &whatif.baseline);
        }
    }
    if !whatif.assumptions.is_empty() {
        out.push('\n');
        for (ix, assumption) in whatif.assumptions.iter().enumerate() {
            page.line(&mut out, if ix == 0 { "assumed" } else { "" }, assumption);
        }
    }
    if backtests == 0 {
        page.line(&mut out, "note", "these intervals are not yet based on backtests of other queries");
    }
    out
}

/// Describes how well each predictor reproduces the measured baseline.
fn reproduced(baseline: &Baseline) -> String {
    let off = |ms: f64| format!("{:.1} % off", (ms / baseline.measured_ms - 1.0).abs() * 100.0);
    let simulated = match baseline.simulated_ms {
        Some(ms) => format!("{} by simulation ({})", time(ms), off(ms)),
        None => "not simulated".into(),
    };
    let modelled = match baseline.modelled_ms {
        Some(ms) => format!("{} by ideal times ({})", time(ms), off(ms)),
        None => "not by ideal times".into(),
    };
    format!("{simulated}, {modelled}")
}

fn by(prediction: &Prediction) -> String {
    let other = match prediction.by {
        By::Simulated => prediction.analytic_ms.map(|ms| format!("; ideal times predict {}", time(ms))),
        By::Analytic => prediction.simulated_ms.map(|ms| format!("; simulation predicts {}", time(ms))),
    };
    let own = match prediction.by {
        By::Simulated => "simulation",
        By::Analytic => "ideal times",
    };
    format!("{own}: {}{}", prediction.because, other.unwrap_or_default())
}

fn versus(prediction: &Prediction, baseline: &Baseline) -> String {
    let ratio = baseline.measured_ms / prediction.duration_ms;
    match ratio {
        r if !r.is_finite() => "no measured work remains".into(),
        r if r >= 1.005 => format!("{r:.2} times as fast"),
        r if r <= 0.995 => format!("{:.2} times as long", 1.0 / r),
        _ => "unchanged".into(),
    }
}

/// Escapes foreign text for a line.
fn one_line(text: &str) -> String {
    escaped(&text.replace('\n', " ")).into_owned()
}

fn limit(bottleneck: Option<&Bottleneck>) -> String {
    let Some(b) = bottleneck else { return "no single resource".into() };
    let text = match &b.name {
        Some(name) if *name != b.kind && b.kind != "cpu" => format!("{} {name}", b.kind),
        _ => b.kind.clone(),
    };
    one_line(&text)
}

/// Describes the bottleneck of the baseline. Without one, names the first cause of its time.
fn limit_now(bottleneck: Option<&Bottleneck>, cause: Option<&Cause>) -> String {
    match (bottleneck, cause) {
        (None, Some(cause)) => {
            let at_most = if cause.at_most { "at most " } else { "" };
            let label = pellucid_report::cause(&cause.cause);
            format!("no single resource; first cause: {label} ({at_most}{})", time(cause.ms))
        }
        _ => limit(bottleneck),
    }
}

struct Page {
    width: usize,
    color: bool,
}

impl Page {
    fn bold(&self, text: &str) -> String {
        if self.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
    }

    /// Writes a label and its text, which may be foreign.
    fn line(&self, out: &mut String, label: &str, text: &str) {
        self.styled(out, label, &one_line(text));
    }

    /// Writes a label and its text, with a hanging indent where the text wraps.
    fn styled(&self, out: &mut String, label: &str, text: &str) {
        let mut at = LABEL;
        let _ = write!(out, "{label:<LABEL$}");
        for (ix, word) in text.split(' ').enumerate() {
            let columns = word.chars().count();
            if ix > 0 && at + 1 + columns > self.width {
                let _ = write!(out, "\n{:<LABEL$}", "");
                at = LABEL;
            } else if ix > 0 {
                out.push(' ');
                at += 1;
            }
            out.push_str(word);
            at += columns;
        }
        out.push('\n');
    }

    /// Writes one bar per value, and a line where the bottleneck changes.
    fn sweep(&self, out: &mut String, key: &str, points: &[Point]) {
        let longest = points.iter().map(|p| p.prediction.high_ms).fold(0.0, f64::max);
        let values = points.iter().map(|p| p.value.chars().count()).max().unwrap_or(0);
        let column = values.max(LABEL - 2);
        let room = self.width.saturating_sub(column + 36).max(8);
        let _ = writeln!(out, "{}", self.bold(&escaped(key)));
        let mut before: Option<&str> = None;
        for point in points {
            let kind = point.bottleneck.as_ref().map(|b| b.kind.as_str());
            if let (Some(was), Some(is)) = (before, kind)
                && was != is
            {
                let _ = writeln!(
                    out,
                    "{:>column$}  from here on limited by {} instead of {}",
                    "",
                    one_line(is),
                    one_line(was)
                );
            }
            before = kind.or(before);
            let share = |ms: f64| (ms / longest * room as f64).round() as usize;
            let p = &point.prediction;
            let bar = "█".repeat(share(p.duration_ms).max(1));
            let rest = "░".repeat(share(p.high_ms).saturating_sub(share(p.duration_ms).max(1)));
            let _ = writeln!(
                out,
                "{:>column$}  {:<room$}  {:>8}  {}",
                escaped(&point.value),
                format!("{bar}{rest}"),
                time(p.duration_ms),
                interval(p),
            );
        }
    }

    /// Writes one row per change, in the order given.
    fn singles(&self, out: &mut String, title: &str, singles: &[&Single], baseline: &Baseline) {
        let _ = writeln!(
            out,
            "{}",
            self.bold(&format!("{title:<22}{:>9}  {:<9}{:<24}limited by", "then", "gain", "90 % interval"))
        );
        for single in singles {
            let p = &single.prediction;
            let gain = (1.0 - p.duration_ms / baseline.measured_ms) * 100.0;
            let gain = if gain.abs() < 0.5 { "none".to_string() } else { format!("{gain:.0} %") };
            let _ = writeln!(
                out,
                "{:<22}{:>9}  {gain:<9}{:<24}{}",
                escaped(&single.changes.to_string()),
                time(p.duration_ms),
                interval(p),
                single.bottleneck.as_ref().map_or("–".to_string(), |bottleneck| limit(Some(bottleneck))),
            );
        }
    }
}
