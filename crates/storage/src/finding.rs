//! What was found to cost more than it need: the same shape wherever it comes from.

use serde::Serialize;

/// A mismatch between layers, with what shows it and what would remove it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// In a few words.
    pub title: String,
    /// What shows it: names and numbers.
    pub evidence: String,
    /// What to change.
    pub change: String,
}

impl Finding {
    /// A finding out of its three texts.
    pub fn new(title: impl Into<String>, evidence: impl Into<String>, change: impl Into<String>) -> Self {
        Finding { title: title.into(), evidence: evidence.into(), change: change.into() }
    }
}
