//! Predictions of a job under changes, by the kind of its tasks.

mod iterative;
mod monotasks;
mod pipelined;

use pellucid_trace::{Outcome, Trace};

use crate::numbers::{measured_ns, ms};
use crate::whatif::{Basis, Residual, WhatIfError, WhatIfModel};
use iterative::IterativeBasis;
use monotasks::Monotasks;
use pipelined::PipelinedBasis;

/// Returns the time of a trace's jobs, from the first submission to the last end.
///
/// # Errors
/// As [`WhatIfModel::of`].
pub fn measured_ms(trace: &Trace) -> Result<f64, WhatIfError> {
    if crate::pipelined::applies(trace) {
        return Ok(PipelinedBasis::of(trace)?.baseline().measured_ms);
    }
    check(trace)?;
    Ok(ms(measured_ns(trace) as f64))
}

impl<'a> WhatIfModel<'a> {
    /// Builds the model. The unchanged job is simulated concurrently with the first question, so that
    /// every answer gives the replay error.
    ///
    /// # Errors
    /// Returns an error for a trace that is truncated, holds no job, or whose job did not succeed.
    pub fn of(trace: &'a Trace, residuals: &[Residual]) -> Result<WhatIfModel<'a>, WhatIfError> {
        if crate::pipelined::applies(trace) {
            return Ok(WhatIfModel::on(Box::new(PipelinedBasis::of(trace)?), trace, residuals));
        }
        check(trace)?;
        if crate::iterative::applies(trace) {
            return Ok(WhatIfModel::on(Box::new(IterativeBasis::of(trace)?), trace, residuals));
        }
        if trace.monotasks.is_empty() {
            return Err(WhatIfError::Failed(
                "cannot predict: the trace holds no monotasks; \
                record a query that reads or computes"
                    .into(),
            ));
        }
        Ok(WhatIfModel::on(Box::new(Monotasks::of(trace)), trace, residuals))
    }
}

/// Rejects traces that hold too little to predict from.
fn check(trace: &Trace) -> Result<(), WhatIfError> {
    if let Some(why) = &trace.truncated {
        return Err(WhatIfError::Failed(format!(
            "cannot predict: the trace is truncated ({why}) and does not hold the job's end; \
            run the job again to its end with --trace FILE"
        )));
    }
    if trace.jobs.is_empty() {
        return Err(WhatIfError::Failed(
            "cannot predict: the trace holds no job; record one with `pellucid sql --trace FILE`".into(),
        ));
    }
    if !has_valid_indices(trace) {
        return Err(WhatIfError::Failed(
            "cannot predict: the trace refers to stages, jobs or resources that it does not hold; record the job again"
                .into(),
        ));
    }
    for (ix, job) in (0..).zip(&trace.jobs) {
        let end = trace.job_ends.iter().find(|e| e.job == ix);
        let how = match end {
            None => "has no end",
            Some(end) if end.outcome == Outcome::Failed => "failed",
            Some(end) if end.outcome == Outcome::Cancelled => "was cancelled",
            Some(end) if end.ended_ns <= job.submitted_ns => "took no time",
            Some(_) => continue,
        };
        return Err(WhatIfError::Failed(format!(
            "cannot predict: job {ix} of the trace {how}; \
            record a run that ends well"
        )));
    }
    Ok(())
}

/// Returns true if stages, multitasks and resources refer to existing records, as a file's reader
/// ensures.
fn has_valid_indices(trace: &Trace) -> bool {
    let stages = trace.stages.len();
    let resources = trace.resources.len();
    trace.stages.iter().all(|s| (s.job as usize) < trace.jobs.len())
        && trace.stages.iter().flat_map(|s| &s.after).all(|a| (*a as usize) < stages)
        && trace.multitasks.iter().all(|t| (t.stage as usize) < stages)
        && trace.resources.iter().all(|r| (r.machine as usize) < trace.machines.len().max(1))
        && trace.resources.iter().filter_map(|r| r.link).all(|l| (l as usize) < resources)
}
