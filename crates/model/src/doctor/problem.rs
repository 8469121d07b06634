//! Problems that the doctor finds, and the document that lists them.

use serde::Serialize;

use crate::finding::Finding;

/// The inputs for predicting the saving of a change.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Saving {
    /// The saving cannot be predicted.
    #[default]
    Unknown,
    /// A part of the jobs' time, in nanoseconds: low, expected and high.
    Time([u64; 3]),
    /// Time saved in each task, in the order of the trace's pipelined tasks, and in the driver.
    Tasks {
        /// Nanoseconds saved in each task.
        saved_ns: Vec<u64>,
        /// Nanoseconds saved in the driver.
        driver_ns: u64,
        /// Uncertainty in nanoseconds, in addition to that of every prediction from tasks.
        uncertainty_ns: u64,
    },
    /// A share of the saving of a what-if: low, expected and high.
    WhatIf {
        /// Settings in the syntax of `--set`.
        settings: Vec<String>,
        /// Shares from 0 to 1.
        share: [f64; 3],
    },
    /// The saving of a what-if with the probed storage.
    ProbedStorage,
}

/// A problem: a finding with the time that its change saves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Problem {
    /// Inputs for the prediction.
    #[serde(skip)]
    pub saving: Saving,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Predicted saving of time; `None` if not predicted.
    pub saves_ms: Option<f64>,
    /// Low end of the 90 % interval.
    pub low_ms: Option<f64>,
    /// High end of the 90 % interval.
    pub high_ms: Option<f64>,
}

impl From<Finding> for Problem {
    fn from(finding: Finding) -> Self {
        Problem { saving: Saving::Unknown, finding, saves_ms: None, low_ms: None, high_ms: None }
    }
}

impl Problem {
    /// Creates a problem whose saving is predicted from `saving`.
    pub(super) fn saving(finding: Finding, saving: Saving) -> Problem {
        Problem { saving, ..finding.into() }
    }
}

/// The document that `pellucid storage doctor --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Name and version of the document.
    pub format: &'static str,
    /// Findings, costliest kinds first; empty if nothing was found.
    pub findings: Vec<Problem>,
}

impl Diagnosis {
    /// Creates the document for `findings`.
    pub fn new(findings: Vec<Problem>) -> Diagnosis {
        Diagnosis { format: "pellucid.doctor/1", findings }
    }
}
