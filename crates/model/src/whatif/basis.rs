//! The part of a prediction that depends on the kind of tasks.

use super::answer::Baseline;
use super::changes::Changes;
use super::error::WhatIfError;
use super::tasks::Tasks;
use crate::analysis::{Bottleneck, Cause};

/// A job that can be reproduced, and predicted under changes.
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
