//! Predicts a job's time with other hardware or software.
//!
//! Two predictors answer every question, and both results are shown. The *analytic* predictor sums ideal
//! times (monotasks-sosp17 §6.1). The *simulated* predictor runs the job's scheduler again on a virtual
//! clock. `docs/predictions.md` derives the interval and the choice between them.
//!
//! ```no_run
//! use pellucid_model::whatif::{Changes, WhatIfModel, residuals};
//! # fn rate(_: &str) -> Result<u64, String> { Ok(1) }
//! let trace = pellucid_trace::Trace::read("job.trace".as_ref())?;
//! let model = WhatIfModel::of(&trace, &residuals(None)).expect("a whole trace");
//! let changes = Changes::parse(&["disk.rate=x2"], rate).expect("a key and a value");
//! let answer = model.predict(&changes).expect("a trace with a disk");
//! println!("{} ms", answer.prediction.duration_ms);
//! # Ok::<(), pellucid_trace::TraceError>(())
//! ```
//!
//! Traces of monotasks are handled here. Other kinds (pipelined or sampled tasks) implement [`Basis`],
//! which reproduces the job and predicts it under changes. The interval, the choice of predictor, sweeps
//! and single changes are common to all.

mod answer;
mod changes;
mod interval;
mod sweep;

pub(crate) use crate::predict::monotasks::recorded::measured_ns as recorded_ns;
pub(crate) use crate::predict::monotasks::service::median;
pub use answer::{Baseline, By, Point, Prediction, Single, WhatIf, WhatIfError};
pub(crate) use changes::is_part;
pub use changes::{Amount, Change, Changes, InputFrom, ReadRate, Setting, Storage};
pub use interval::{RESIDUALS_HEADER, Residual, Residuals, Tasks, fingerprint, residual_table, residuals};
pub use sweep::Sweep;

use std::sync::OnceLock;
use std::thread;

use pellucid_trace::Trace;

use crate::predict::iterative::IterativeBasis;
use crate::predict::monotasks::{Monotasks, recorded};
use crate::predict::pipelined::PipelinedBasis;
use crate::{Bottleneck, Cause};
use interval::Evidence;

/// The part of a prediction that depends on the kind of trace.
pub(crate) trait Basis: Sync {
    /// Returns the unit the job was divided into.
    fn tasks(&self) -> Tasks;
    /// Returns the recorded job and each predictor's reproduction of it. Runs the simulation.
    fn baseline(&self) -> Baseline;
    /// Returns the recorded job's bottleneck.
    fn bottleneck(&self) -> Option<Bottleneck>;
    /// Returns the first cause of the job's time, where it may not be a resource.
    fn first_cause(&self) -> Option<Cause> {
        None
    }
    /// Returns the relative standard error of the job's time due to chance.
    fn spread(&self) -> f64;
    /// Returns the job under changes.
    fn estimate(&self, changes: &Changes) -> Result<Estimate, WhatIfError>;
    /// Returns the single changes worth asking about, in the form that `--set` takes.
    fn singles(&self) -> Vec<String>;
}

/// A job under changes, as each predictor gives it: not yet scaled to the measured time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Estimate {
    pub analytic_ms: Option<f64>,
    pub simulated_ms: Option<f64>,
    pub bottleneck: Option<Bottleneck>,
    pub assumptions: Vec<String>,
    /// Uncertainty of the assumptions, as shares: faster and slower.
    pub uncertainty: (f64, f64),
}

/// A model that answers what-ifs about one trace.
pub struct WhatIfModel<'a> {
    basis: Box<dyn Basis + 'a>,
    fingerprint: u64,
    residuals: Residuals,
    /// Computed on first use, concurrently with the first estimate.
    evidence: OnceLock<Evidence>,
}

/// Returns the time of a trace's jobs, from the first submission to the last end.
///
/// # Errors
/// As [`WhatIfModel::of`].
pub fn measured_ms(trace: &Trace) -> Result<f64, WhatIfError> {
    if crate::pipelined::applies(trace) {
        return Ok(PipelinedBasis::of(trace)?.baseline().measured_ms);
    }
    recorded::check(trace)?;
    Ok(crate::ms(recorded::measured_ns(trace) as f64))
}

impl<'a> WhatIfModel<'a> {
    /// Builds the model. The unchanged job is simulated concurrently with the first question, so that
    /// every answer gives the replay error.
    ///
    /// # Errors
    /// Returns an error for a trace that is truncated, holds no job, or whose job did not succeed.
    pub fn of(trace: &'a Trace, residuals: &[Residual]) -> Result<WhatIfModel<'a>, WhatIfError> {
        if crate::pipelined::applies(trace) {
            return WhatIfModel::on(Box::new(PipelinedBasis::of(trace)?), trace, residuals);
        }
        recorded::check(trace)?;
        if crate::iterative::applies(trace) {
            return WhatIfModel::on(Box::new(IterativeBasis::of(trace)?), trace, residuals);
        }
        if trace.monotasks.is_empty() {
            return Err(WhatIfError::Failed(
                "cannot predict: the trace holds no monotasks; \
                record a query that reads or computes"
                    .into(),
            ));
        }
        WhatIfModel::on(Box::new(Monotasks::of(trace)), trace, residuals)
    }

    fn on(
        basis: Box<dyn Basis + 'a>,
        trace: &Trace,
        residuals: &[Residual],
    ) -> Result<WhatIfModel<'a>, WhatIfError> {
        let fingerprint = fingerprint(trace.jobs.iter().map(|job| job.name.as_str()));
        Ok(WhatIfModel { basis, fingerprint, residuals: residuals.to_vec(), evidence: OnceLock::new() })
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

    /// Predicts each single change that the trace supports, largest gain first.
    pub fn singles(&self) -> Vec<Single> {
        // Values are relative, so no rate is parsed.
        let no_rate: ReadRate = |_| Err(String::new());
        let single = |setting: &String| {
            let changes = Changes::parse(&[setting], no_rate).ok()?;
            let (prediction, estimate) = self.predict_one(&changes).ok()?;
            Some(Single { changes, prediction, bottleneck: estimate.bottleneck })
        };
        let mut all: Vec<Single> =
            map_parallel(&self.basis.singles(), single).into_iter().flatten().collect();
        all.sort_by(|a, b| a.prediction.duration_ms.total_cmp(&b.prediction.duration_ms));
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
            let limits = crate::monotasks::spans::explained(ideal_ms, prediction.duration_ms);
            estimate.bottleneck = estimate.bottleneck.filter(|_| limits);
        }
        Ok((prediction, estimate))
    }
}

/// Runs both closures, the first on its own thread if one can be spawned. The results do not depend on
/// the order.
pub(crate) fn join<A: Send, B>(first: impl Fn() -> A + Sync, second: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, &first);
        let second = second();
        match spawned {
            Ok(spawned) => (spawned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second),
            Err(_) => (first(), second), // cannot spawn a thread
        }
    })
}

/// Maps items on two threads, preserving order.
fn map_parallel<T: Sync, R: Send>(items: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (first, second) = items.split_at(items.len() / 2);
    let of = |items: &[T]| items.iter().map(&map).collect::<Vec<R>>();
    let (mut all, rest) = join(|| of(first), || of(second));
    all.extend(rest);
    all
}
