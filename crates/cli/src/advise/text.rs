//! Formats advice as text for a terminal.

use super::candidate::Advised;
use crate::whatif::interval;
use pellucid_model::units::time;
use std::fmt::Write;

/// Returns the page: a paragraph for each piece of advice, whose last line can be pasted.
pub fn page(all: &[Advised], measured_ms: f64) -> String {
    let mut out = format!("measured     {}\n", time(measured_ms));
    if all.is_empty() {
        out.push_str(
            "no advice    no other layout of the tables was found that is certain to make the query faster\n",
        );
    }
    for advised in all {
        let prediction = &advised.prediction;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\n{}\n  {}\n  predicted {} ({}), {:.2} times as fast\n  {}\n  {}\n",
            advised.id,
            advised.title,
            time(prediction.duration_ms),
            interval(prediction),
            measured_ms / prediction.duration_ms,
            advised.evidence,
            advised.change,
        );
    }
    out
}
