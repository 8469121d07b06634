//! What-ifs as the page takes them: a baseline, and single changes with what each would give.

use pellucid_model::whatif::{WhatIfModel, residuals};
use pellucid_trace::Trace;
use serde::Serialize;

/// The single changes to a trace's job, each with its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// What the job took.
    pub measured_ms: f64,
    /// What the model says that it took.
    pub modelled_ms: Option<f64>,
    /// What a replay with nothing changed takes.
    pub simulated_ms: Option<f64>,
    /// Sorted, the one that helps most first.
    pub singles: Vec<Single>,
    /// What the predictions rest on, in words.
    pub assumptions: Vec<String>,
}

/// One change and what it would give.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Single {
    /// As `--set` takes it: `disk.rate=x2`.
    pub set: String,
    /// Predicted.
    pub duration_ms: f64,
    /// Where the 90 % interval begins.
    pub low_ms: f64,
    /// Where it ends.
    pub high_ms: f64,
    /// `simulated` or `analytic`.
    pub by: String,
    /// The kind that would limit then.
    pub bottleneck: Option<String>,
    /// It only takes a part of the time away: a bound of what can be gained, and nothing that can be done.
    pub bound: bool,
}

impl WhatIf {
    /// Predicts every single change that is worth asking about.
    ///
    /// # Errors
    /// In words, where the trace says too little.
    pub fn of(trace: &Trace) -> Result<WhatIf, String> {
        let refused = |refused: pellucid_model::whatif::WhatIfError| refused.message().to_owned();
        let model = WhatIfModel::of(trace, &residuals(None)).map_err(refused)?;
        let singles = model.singles();
        let mut assumptions = Vec::new();
        if let Some(best) = singles.iter().find(|single| !single.changes.is_bound()) {
            let answer = model.predict(&best.changes).map_err(refused)?;
            assumptions.push(format!("{}: {}", best.changes, answer.prediction.because));
            assumptions.extend(answer.assumptions.iter().map(|a| format!("{}: {a}", best.changes)));
        }
        assumptions.push(match model.backtests() {
            0 => "No backtest of another query is known to this version, so the intervals rest on the spread of \
                  service times and on how far the two predictors disagree alone"
                .into(),
            n => format!("The intervals rest on {n} backtests of other queries too"),
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

    /// The change that is predicted to help most of those that can be made, if one helps by more than a hundredth.
    pub fn best(&self) -> Option<&Single> {
        let changes = self.singles.iter().filter(|single| !single.bound);
        // One whose interval reaches to nothing gained stands back behind those of which some gain is sure.
        let unsure = |single: &Single| single.high_ms >= self.measured_ms;
        let best =
            changes.min_by(|a, b| unsure(a).cmp(&unsure(b)).then(a.duration_ms.total_cmp(&b.duration_ms)))?;
        (best.duration_ms < 0.99 * self.measured_ms).then_some(best)
    }
}
