//! Findings: avoidable costs, in one form for every analysis.

use serde::Serialize;

/// An avoidable cost, with its evidence and remedy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Short description.
    pub title: String,
    /// Names and numbers that show it.
    pub evidence: String,
    /// Recommended change.
    pub change: String,
}

impl Finding {
    /// Creates a finding from its three texts.
    pub fn new(title: impl Into<String>, evidence: impl Into<String>, change: impl Into<String>) -> Self {
        Finding { title: title.into(), evidence: evidence.into(), change: change.into() }
    }
}

/// Formats a number with at most two decimal places.
pub(crate) fn number(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}")
}

/// Formats a share as a whole percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
