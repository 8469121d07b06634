//! What a job would take with other hardware or software.
//!
//! Two predictors answer every question, and both are shown: the *analytic* one adds
//! up ideal times (monotasks-sosp17 §6.1), the *simulated* one lets the scheduler that
//! ran the job run it again on a virtual clock. `docs/predictions.md` derives the
//! interval and the rule that chooses between them.
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
//! Traces of monotasks are answered here. Another kind of trace (pipelined or sampled tasks)
//! brings its own [`Basis`]: it says what the job was and predicts it under changes;
//! the interval, the choice, sweeps and single changes are the same for all.

mod analytic;
mod answer;
mod changes;
mod curve;
mod interval;
mod monotasks;
mod recorded;
mod rework;
mod scenario;
mod service;
mod simulate;
mod sweep;

pub use answer::{Baseline, By, Point, Prediction, Refused, Single, WhatIf};
pub use changes::{Amount, Change, Changes, InputFrom, ReadRate, Setting, Storage};
pub use interval::{RESIDUALS_HEADER, Residual, Residuals, Tasks, fingerprint, residual_table, residuals};
pub(crate) use recorded::measured_ns as recorded_ns;
pub(crate) use service::median;
pub use sweep::Sweep;

use std::sync::OnceLock;
use std::thread;

use pellucid_trace::Trace;

use crate::iterative::predict::IterativeBasis;
use crate::pipelined::predict::PipelinedBasis;
use crate::{Bottleneck, Cause};
use interval::Evidence;

/// What one kind of trace brings to the common answer.
pub(crate) trait Basis: Sync {
    /// What the job was divided into.
    fn tasks(&self) -> Tasks;
    /// The job as it was, and as each predictor reproduces it: runs it again.
    fn baseline(&self) -> Baseline;
    /// What limited it.
    fn bottleneck(&self) -> Option<Bottleneck>;
    /// What its time went to, where that may be no resource.
    fn first_cause(&self) -> Option<Cause> {
        None
    }
    /// How much of its time depends on chance: the relative spread of what it adds up.
    fn spread(&self) -> f64;
    /// The job under changes.
    fn estimate(&self, changes: &Changes) -> Result<Estimate, Refused>;
    /// Single changes that are worth asking about, as `--set` takes them.
    fn singles(&self) -> Vec<String>;
}

/// A job under changes, as each predictor has it: not scaled to what was measured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Estimate {
    pub analytic_ms: Option<f64>,
    pub simulated_ms: Option<f64>,
    pub bottleneck: Option<Bottleneck>,
    pub assumptions: Vec<String>,
    /// How far assumptions may be off, as shares: faster and slower.
    pub doubt: (f64, f64),
}

/// Answers questions about one trace.
pub struct WhatIfModel<'a> {
    basis: Box<dyn Basis + 'a>,
    fingerprint: u64,
    residuals: Residuals,
    /// Made when it is first asked for, beside the first question where that is what asks.
    evidence: OnceLock<Evidence>,
}

/// What the jobs of a trace took, from the first submission to the last end.
///
/// # Errors
/// As [`WhatIfModel::of`].
pub fn measured_ms(trace: &Trace) -> Result<f64, Refused> {
    if crate::pipelined::applies(trace) {
        return Ok(PipelinedBasis::of(trace)?.baseline().measured_ms);
    }
    recorded::check(trace)?;
    Ok(crate::ms(recorded::measured_ns(trace) as f64))
}

impl<'a> WhatIfModel<'a> {
    /// Takes the trace apart. The job is run again as it was beside the first question, so that every
    /// answer says how well that went.
    ///
    /// # Errors
    /// A trace that is cut, that holds no job, or whose job did not end well.
    pub fn of(trace: &'a Trace, residuals: &[Residual]) -> Result<WhatIfModel<'a>, Refused> {
        if crate::pipelined::applies(trace) {
            return WhatIfModel::on(Box::new(PipelinedBasis::of(trace)?), trace, residuals);
        }
        recorded::check(trace)?;
        if crate::iterative::applies(trace) {
            return WhatIfModel::on(Box::new(IterativeBasis::of(trace)?), trace, residuals);
        }
        if trace.monotasks.is_empty() {
            return Err(Refused::Failed(
                "the trace holds no monotasks, so that there is nothing to predict from; \
                 record a query that reads or computes"
                    .into(),
            ));
        }
        WhatIfModel::on(Box::new(monotasks::Monotasks::of(trace)), trace, residuals)
    }

    fn on(
        basis: Box<dyn Basis + 'a>,
        trace: &Trace,
        residuals: &[Residual],
    ) -> Result<WhatIfModel<'a>, Refused> {
        let fingerprint = fingerprint(trace.jobs.iter().map(|job| job.name.as_str()));
        Ok(WhatIfModel { basis, fingerprint, residuals: residuals.to_vec(), evidence: OnceLock::new() })
    }

    fn evidence(&self) -> &Evidence {
        self.evidence.get_or_init(|| {
            Evidence::of(self.basis.baseline(), self.basis.spread(), self.fingerprint(), &self.residuals)
        })
    }

    /// What the job was divided into, and what tells the query apart from others: see [`fingerprint`].
    pub fn fingerprint(&self) -> (Tasks, u64) {
        (self.basis.tasks(), self.fingerprint)
    }

    /// The job as it was.
    pub fn baseline(&self) -> &Baseline {
        &self.evidence().baseline
    }

    /// What limited it.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        self.basis.bottleneck()
    }

    /// Backtests of other queries that intervals rest on.
    pub fn backtests(&self) -> usize {
        self.evidence().backtests
    }

    /// The job under changes.
    ///
    /// # Errors
    /// A change that the trace cannot answer, with what it can.
    pub fn predict(&self, changes: &Changes) -> Result<WhatIf, Refused> {
        let (prediction, estimate) = self.one(changes)?;
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

    /// The job with one key at each of the values of a sweep, on top of `base`.
    ///
    /// # Errors
    /// As [`WhatIfModel::predict`].
    pub fn sweep(&self, base: &Changes, sweep: &Sweep, rate: ReadRate) -> Result<Vec<Point>, Refused> {
        let point = |(value, at): &(String, f64)| {
            let (prediction, estimate) = self.one(&sweep.at(base, value, rate)?)?;
            Ok(Point { value: value.clone(), at: *at, prediction, bottleneck: estimate.bottleneck })
        };
        each(&sweep.values, point).into_iter().collect()
    }

    /// Each single change that the trace can answer, what buys most first.
    pub fn singles(&self) -> Vec<Single> {
        // Relative values only: no rate is read.
        let no_rate: ReadRate = |_| Err(String::new());
        let single = |setting: &String| {
            let changes = Changes::parse(&[setting], no_rate).ok()?;
            let (prediction, estimate) = self.one(&changes).ok()?;
            Some(Single { changes, prediction, bottleneck: estimate.bottleneck })
        };
        let mut all: Vec<Single> = each(&self.basis.singles(), single).into_iter().flatten().collect();
        all.sort_by(|a, b| a.prediction.duration_ms.total_cmp(&b.prediction.duration_ms));
        all
    }

    /// How hard a prediction seemed: what its residual is divided by (docs/predictions.md).
    pub fn scale(&self, prediction: &Prediction) -> f64 {
        self.evidence().scale(prediction.by, prediction.simulated_ms, prediction.analytic_ms)
    }

    fn one(&self, changes: &Changes) -> Result<(Prediction, Estimate), Refused> {
        let (evidence, estimate) = both(|| self.evidence(), || self.basis.estimate(changes));
        let mut estimate = estimate?;
        let none = || Refused::Failed("the trace has no demands that a prediction could rest on".into());
        let prediction = evidence.prediction(&estimate).ok_or_else(none)?;
        if let (Tasks::Monotasks, Some(ideal_ms)) = (self.basis.tasks(), estimate.analytic_ms) {
            let limits = crate::job::explained(ideal_ms, prediction.duration_ms);
            estimate.bottleneck = estimate.bottleneck.filter(|_| limits);
        }
        Ok((prediction, estimate))
    }
}

/// The results of both, the first on a thread of its own where there is one: they are the same whichever is
/// done first.
fn both<A: Send, B>(first: impl Fn() -> A + Sync, second: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let begun = thread::Builder::new().spawn_scoped(scope, &first);
        let second = second();
        match begun {
            Ok(begun) => (begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second),
            Err(_) => (first(), second), // no more threads are to be had
        }
    })
}

/// What each item gives, in their order; worked out on two threads.
fn each<T: Sync, R: Send>(items: &[T], gives: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (first, second) = items.split_at(items.len() / 2);
    let of = |items: &[T]| items.iter().map(&gives).collect::<Vec<R>>();
    let (mut all, rest) = both(|| of(first), || of(second));
    all.extend(rest);
    all
}
