//! What a what-if says: plain data for renderers.

use crate::{Bottleneck, Cause};

use super::Changes;

/// Why a question gets no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The question is wrong, or not one that this trace can answer: says which is.
    Usage(String),
    /// The trace says too little: says what to do.
    Failed(String),
}

impl Refused {
    /// What to tell the user.
    pub fn message(&self) -> &str {
        match self {
            Refused::Usage(message) | Refused::Failed(message) => message,
        }
    }
}

/// Which predictor a prediction is by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The scheduler, run on a virtual clock.
    Simulated,
    /// Ideal times, scaled by measured over modelled (monotasks-sosp17 §6.2).
    Analytic,
}

impl By {
    /// `simulated` or `analytic`.
    pub fn word(self) -> &'static str {
        match self {
            By::Simulated => "simulated",
            By::Analytic => "analytic",
        }
    }
}

/// The job as it was, and as each predictor reproduces it.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// As it was measured.
    pub measured_ms: f64,
    /// By ideal times; `None` where the trace has no demands that could be added up.
    pub modelled_ms: Option<f64>,
    /// By the simulation with nothing changed; `None` where it cannot be simulated.
    pub simulated_ms: Option<f64>,
}

impl Baseline {
    /// |simulated − measured| ÷ measured.
    pub fn replay_error(&self) -> Option<f64> {
        self.simulated_ms.and_then(|s| crate::ratio((s - self.measured_ms).abs(), self.measured_ms))
    }
}

/// A predicted time with its 90 % interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The predicted time of the job.
    pub duration_ms: f64,
    /// Lower end of the interval.
    pub low_ms: f64,
    /// Upper end of the interval.
    pub high_ms: f64,
    /// Which predictor says so.
    pub by: By,
    /// Why that one, in words.
    pub because: String,
    /// What the analytic predictor says.
    pub analytic_ms: Option<f64>,
    /// What the simulated predictor says.
    pub simulated_ms: Option<f64>,
}

/// An answer to one question.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// What is different.
    pub changes: Changes,
    /// The job as it was.
    pub baseline: Baseline,
    /// The job as it would be.
    pub prediction: Prediction,
    /// What limited it; `None` where no resource did.
    pub bottleneck_before: Option<Bottleneck>,
    /// What its time went to, of an event log: that may be no resource.
    pub first_cause: Option<Cause>,
    /// What would limit it.
    pub bottleneck_after: Option<Bottleneck>,
    /// What the answer rests on, in words.
    pub assumptions: Vec<String>,
}

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The value of the key that is swept, as `--set` would take it.
    pub value: String,
    /// The same as a number, for an axis.
    pub at: f64,
    /// The job as it would be.
    pub prediction: Prediction,
    /// What would limit it.
    pub bottleneck: Option<Bottleneck>,
}

/// A single change and what it would buy.
#[derive(Debug, Clone, PartialEq)]
pub struct Single {
    /// The change.
    pub changes: Changes,
    /// The job as it would be.
    pub prediction: Prediction,
    /// What would limit it.
    pub bottleneck: Option<Bottleneck>,
}
