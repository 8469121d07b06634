//! The what-if section of the page: a baseline, and the predicted effects of single changes.

use pellucid_model::whatif::{WhatIfModel, residuals};
use pellucid_trace::Trace;
use serde::Serialize;

/// Predictions for single changes to a trace's jobs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// Measured duration.
    pub measured_ms: f64,
    /// Modelled duration.
    pub modelled_ms: Option<f64>,
    /// Duration of an unchanged replay.
    pub simulated_ms: Option<f64>,
    /// Changes, in descending order of predicted gain.
    pub singles: Vec<Single>,
    /// Assumptions behind the predictions, as sentences.
    pub assumptions: Vec<String>,
}

/// A single change and its predicted effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Single {
    /// The change in the syntax of `--set`: `disk.rate=x2`.
    pub set: String,
    /// Predicted duration.
    pub duration_ms: f64,
    /// Lower end of the 90 % interval.
    pub low_ms: f64,
    /// Upper end of the 90 % interval.
    pub high_ms: f64,
    /// Predictor: `simulated` or `analytic`.
    pub by: String,
    /// Kind of resource that limits after the change.
    pub bottleneck: Option<String>,
    /// True if the change only removes a part of the time: an upper bound on the gain, not an actionable change.
    pub bound: bool,
    /// True if the change is to the query or its operators, which a user may not be able to make.
    #[serde(skip)]
    pub of_code: bool,
    /// The meaning of such a change, as a sentence.
    #[serde(skip)]
    pub meaning: Option<String>,
}

impl WhatIf {
    /// Predicts the effect of every applicable single change.
    ///
    /// # Errors
    /// Returns the reason if the trace holds too little for a prediction.
    pub fn of(trace: &Trace) -> Result<WhatIf, String> {
        let refused = |refused: pellucid_model::whatif::WhatIfError| refused.message().to_owned();
        let model = WhatIfModel::of(trace, &residuals(None)).map_err(refused)?;
        let singles = model.singles();
        let mut assumptions = Vec::new();
        let actionable = |single: &&pellucid_model::whatif::Single| {
            !single.changes.is_bound() && !single.changes.is_of_code()
        };
        if let Some(best) = singles.iter().find(actionable) {
            let answer = model.predict(&best.changes).map_err(refused)?;
            assumptions.push(format!("{}: {}", best.changes, answer.prediction.because));
            assumptions.extend(answer.assumptions.iter().map(|a| format!("{}: {a}", best.changes)));
        }
        let meaning = |single: &pellucid_model::whatif::Single| {
            single.assumptions.last().filter(|_| single.changes.is_of_code()).cloned()
        };
        let meant =
            singles.iter().filter_map(|single| Some(format!("{}: {}", single.changes, meaning(single)?)));
        assumptions.extend(meant);
        assumptions.push(match model.backtests() {
            0 => "This version includes no backtests of other queries, so the intervals reflect only the spread \
                  of service times and the disagreement between the two predictors"
                .into(),
            n => format!("The intervals also reflect {n} backtests of other queries"),
        });
        let baseline = model.baseline();
        Ok(WhatIf {
            measured_ms: baseline.measured_ms,
            modelled_ms: baseline.modelled_ms,
            simulated_ms: baseline.simulated_ms,
            singles: singles
                .into_iter()
                .map(|single| Single {
                    bound: single.changes.is_bound(),
                    of_code: single.changes.is_of_code(),
                    meaning: meaning(&single),
                    set: single.changes.to_string(),
                    duration_ms: single.prediction.duration_ms,
                    low_ms: single.prediction.low_ms,
                    high_ms: single.prediction.high_ms,
                    by: single.prediction.by.word().into(),
                    bottleneck: single.bottleneck.map(|b| b.kind),
                })
                .collect(),
            assumptions,
        })
    }

    /// Returns the actionable change with the largest predicted gain, if that gain is more than 1 %.
    pub fn best(&self) -> Option<&Single> {
        let changes = self.singles.iter().filter(|single| !single.bound && !single.of_code);
        // A change whose interval includes no gain ranks below those with a certain gain.
        let uncertain = |single: &Single| single.high_ms >= self.measured_ms;
        let best = changes
            .min_by(|a, b| uncertain(a).cmp(&uncertain(b)).then(a.duration_ms.total_cmp(&b.duration_ms)))?;
        (best.duration_ms < 0.99 * self.measured_ms).then_some(best)
    }
}
