//! Answers to what-ifs: plain data for renderers.

use serde::Serialize;

use crate::analysis::{Bottleneck, Cause};
use crate::numbers::ratio;

use super::changes::Changes;

/// The predictor that made a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A run of the scheduler on a virtual clock.
    Simulated,
    /// Ideal times, scaled by measured over modelled (monotasks-sosp17 §6.2).
    Analytic,
}

impl By {
    /// Returns `simulated` or `analytic`.
    pub fn word(self) -> &'static str {
        match self {
            By::Simulated => "simulated",
            By::Analytic => "analytic",
        }
    }
}

/// The recorded job, and each predictor's reproduction of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    /// The measured time.
    pub measured_ms: f64,
    /// The sum of ideal times; `None` where the trace has no demands to sum.
    pub modelled_ms: Option<f64>,
    /// The time of the unchanged simulation; `None` where the job cannot be simulated.
    pub simulated_ms: Option<f64>,
}

impl Baseline {
    /// Returns |simulated − measured| ÷ measured.
    pub fn replay_error(&self) -> Option<f64> {
        self.simulated_ms.and_then(|s| ratio((s - self.measured_ms).abs(), self.measured_ms))
    }
}

/// A predicted time with its 90 % interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The predicted time of the job.
    pub duration_ms: f64,
    /// Lower end of the interval.
    pub low_ms: f64,
    /// Upper end of the interval.
    pub high_ms: f64,
    /// The predictor used.
    pub by: By,
    /// The reason for that choice, in words.
    pub because: String,
    /// The analytic predictor's result.
    pub analytic_ms: Option<f64>,
    /// The simulated predictor's result.
    pub simulated_ms: Option<f64>,
}

impl Prediction {
    /// Returns the prediction with an interval that is wider by an independent uncertainty of the change, a share of
    /// the predicted time.
    #[must_use]
    pub fn widened(mut self, share: f64) -> Prediction {
        let wider = |end_ms: f64| {
            let half = ratio(end_ms, self.duration_ms).map_or(0.0, f64::ln);
            (half.powi(2) + share.powi(2)).sqrt().exp()
        };
        let (low, high) = (wider(self.low_ms), wider(self.high_ms));
        self.low_ms = self.duration_ms / low;
        self.high_ms = self.duration_ms * high;
        self
    }
}

/// The answer to a what-if.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// The changes asked about.
    pub changes: Changes,
    /// The recorded job.
    pub baseline: Baseline,
    /// The job under the changes.
    pub prediction: Prediction,
    /// The bottleneck of the recorded job; `None` where no resource limited it.
    pub bottleneck_before: Option<Bottleneck>,
    /// The first cause of the recorded job's time, for event logs; it may not be a resource.
    pub first_cause: Option<Cause>,
    /// The bottleneck under the changes.
    pub bottleneck_after: Option<Bottleneck>,
    /// The assumptions that the answer rests on, in words.
    pub assumptions: Vec<String>,
}

/// One point of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The value of the swept key, in the form that `--set` takes.
    pub value: String,
    /// The value as a number, for an axis.
    pub at: f64,
    /// The job with that value.
    pub prediction: Prediction,
    /// The bottleneck with that value.
    pub bottleneck: Option<Bottleneck>,
}

/// A single change and its effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Single {
    /// The change.
    pub changes: Changes,
    /// The job with the change.
    pub prediction: Prediction,
    /// The bottleneck with the change.
    pub bottleneck: Option<Bottleneck>,
    /// Assumptions of the prediction, as sentences.
    pub assumptions: Vec<String>,
}
