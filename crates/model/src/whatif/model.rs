//! Answers about one trace: the choice of predictor, the interval, sweeps and single changes.

use std::sync::OnceLock;

use pellucid_trace::Trace;

use super::answer::{Baseline, Point, Prediction, Single, WhatIf};
use super::basis::{Basis, Estimate};
use super::changes::{Changes, ReadRate};
use super::error::WhatIfError;
use super::interval::{Evidence, Residual, Residuals, fingerprint};
use super::parallel::{join, map_parallel};
use super::sweep::Sweep;
use super::tasks::Tasks;
use crate::analysis::Bottleneck;
use crate::monotasks::spans::explained;

/// Maximum single changes to the query that are listed, and the minimum share of the time that each saves.
const MAX_OF_CODE: usize = 3;
const MIN_SAVING: f64 = 0.03;

/// A model that answers what-ifs about one trace.
pub struct WhatIfModel<'a> {
    basis: Box<dyn Basis + 'a>,
    fingerprint: u64,
    residuals: Residuals,
    /// Computed on first use, concurrently with the first estimate.
    evidence: OnceLock<Evidence>,
}

impl<'a> WhatIfModel<'a> {
    /// Builds a model of a job. The unchanged job is simulated concurrently with the first question, so
    /// that every answer gives the replay error.
    pub(crate) fn on(basis: Box<dyn Basis + 'a>, trace: &Trace, residuals: &[Residual]) -> WhatIfModel<'a> {
        let fingerprint = fingerprint(trace.jobs.iter().map(|job| job.name.as_str()));
        WhatIfModel { basis, fingerprint, residuals: residuals.to_vec(), evidence: OnceLock::new() }
    }

    fn evidence(&self) -> &Evidence {
        self.evidence.get_or_init(|| {
            Evidence::of(self.basis.baseline(), self.basis.spread(), self.fingerprint(), &self.residuals)
        })
    }

    /// Returns the unit the job was divided into, and the hash of its query text: see [`fingerprint`].
    pub fn fingerprint(&self) -> (Tasks, u64) {
        (self.basis.tasks(), self.fingerprint)
    }

    /// Returns the recorded job.
    pub fn baseline(&self) -> &Baseline {
        &self.evidence().baseline
    }

    /// Returns the recorded job's bottleneck.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        self.basis.bottleneck()
    }

    /// Returns the number of backtests of other queries that intervals rest on.
    pub fn backtests(&self) -> usize {
        self.evidence().backtests
    }

    /// Predicts the job under changes.
    ///
    /// # Errors
    /// Returns an error for a change that the trace does not support; the message names those it does.
    pub fn predict(&self, changes: &Changes) -> Result<WhatIf, WhatIfError> {
        let (prediction, estimate) = self.predict_one(changes)?;
        Ok(WhatIf {
            changes: changes.clone(),
            baseline: self.evidence().baseline.clone(),
            prediction,
            bottleneck_before: self.basis.bottleneck(),
            first_cause: self.basis.first_cause(),
            bottleneck_after: estimate.bottleneck,
            assumptions: estimate.assumptions,
        })
    }

    /// Predicts the job with one key at each value of a sweep, on top of `base`.
    ///
    /// # Errors
    /// As [`WhatIfModel::predict`].
    pub fn sweep(&self, base: &Changes, sweep: &Sweep, rate: ReadRate) -> Result<Vec<Point>, WhatIfError> {
        let point = |(value, at): &(String, f64)| {
            let (prediction, estimate) = self.predict_one(&sweep.at(base, value, rate)?)?;
            Ok(Point { value: value.clone(), at: *at, prediction, bottleneck: estimate.bottleneck })
        };
        map_parallel(&sweep.values, point).into_iter().collect()
    }

    /// Predicts single changes that the trace supports, largest gain first: each to hardware and settings, and the best
    /// ones to the query.
    pub fn singles(&self) -> Vec<Single> {
        // Values are relative, so no rate is parsed.
        let no_rate: ReadRate = |_| Err(String::new());
        let single = |setting: &String| {
            let changes = Changes::parse(&[setting], no_rate).ok()?;
            let (prediction, estimate) = self.predict_one(&changes).ok()?;
            let Estimate { bottleneck, assumptions, .. } = estimate;
            Some(Single { changes, prediction, bottleneck, assumptions })
        };
        let mut all: Vec<Single> =
            map_parallel(&self.basis.singles(), single).into_iter().flatten().collect();
        all.sort_by(|a, b| a.prediction.duration_ms.total_cmp(&b.prediction.duration_ms));
        let worth_ms = (1.0 - MIN_SAVING) * self.evidence().baseline.measured_ms;
        let mut of_code = 0;
        all.retain(|single| {
            let counts = single.changes.is_of_code();
            of_code += usize::from(counts);
            !counts || (of_code <= MAX_OF_CODE && single.prediction.duration_ms <= worth_ms)
        });
        all
    }

    /// Returns the estimated difficulty of a prediction, which divides its residual
    /// (docs/predictions.md).
    pub fn scale(&self, prediction: &Prediction) -> f64 {
        self.evidence().scale(prediction.by, prediction.simulated_ms, prediction.analytic_ms)
    }

    fn predict_one(&self, changes: &Changes) -> Result<(Prediction, Estimate), WhatIfError> {
        let (evidence, estimate) = join(|| self.evidence(), || self.basis.estimate(changes));
        let mut estimate = estimate?;
        let none = || {
            WhatIfError::Failed(
                "cannot predict: the trace has no demands; record a query that reads or computes".into(),
            )
        };
        let prediction = evidence.prediction(&estimate).ok_or_else(none)?;
        if let (Tasks::Monotasks, Some(ideal_ms)) = (self.basis.tasks(), estimate.analytic_ms) {
            let limits = explained(ideal_ms, prediction.duration_ms);
            estimate.bottleneck = estimate.bottleneck.filter(|_| limits);
        }
        Ok((prediction, estimate))
    }
}
