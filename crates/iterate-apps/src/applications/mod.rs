//! Applications: logistic regression, k-means and PageRank as programs over the kernels.
//!
//! Each application checks its data and options, and creates a [`Job`]: a plan that any launcher can run, and
//! a function that reads the result from the outcome. Every process of a job builds the same plan from the
//! same data and options.
//!
//! Partitioning and the order of additions depend only on data and options, so results do not depend on the
//! number of workers or on placement.

pub mod kmeans;
mod lbfgs;
pub mod logistic_regression;
pub mod pagerank;
mod partition;
mod solver;

use crate::input::InputError;
use crate::kernels::rows::Rows;
use crate::kernels::simd::Real;
use pellucid_iterate::{Data, DataError, JobError, Outcome, Plan, ProgramError};
use std::fmt;
use std::sync::Arc;

/// The precision of the data in memory and of the kernels. Sums are always `f64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 64 bits.
    F64,
    /// 32 bits: half the memory, and twice as fast if limited by memory bandwidth.
    F32,
}

/// An error in the data, options or program of an application.
#[derive(Debug)]
pub enum ApplicationError {
    /// Invalid data or options.
    Input(InputError),
    /// An invalid program.
    Program(ProgramError),
}

impl fmt::Display for ApplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplicationError::Input(error) => error.fmt(f),
            ApplicationError::Program(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ApplicationError {}

impl From<InputError> for ApplicationError {
    fn from(error: InputError) -> Self {
        ApplicationError::Input(error)
    }
}

impl From<ProgramError> for ApplicationError {
    fn from(error: ProgramError) -> Self {
        ApplicationError::Program(error)
    }
}

fn usage<T>(message: impl Into<String>) -> Result<T, ApplicationError> {
    Err(InputError::Usage(message.into()).into())
}

/// A job that is ready to run.
pub struct Job<R> {
    /// The plan to run.
    pub plan: Arc<Plan>,
    /// Name of the stage whose observed value shows progress: a loss, inertia or residual.
    pub progress: &'static str,
    /// Number of partitions of the data.
    pub partitions: u32,
    /// Iterations of outermost loops before the main loop, such as seeding.
    pub preparations: u64,
    /// Bytes of data that the kernels read from memory per iteration.
    pub bytes_per_iteration: u64,
    result: ReadResult<R>,
}

type ReadResult<R> = Box<dyn FnOnce(&Outcome) -> Result<Finished<R>, JobError> + Send>;

impl<R> Job<R> {
    /// Reads the result from the outcome of the job's plan.
    ///
    /// # Errors
    /// If the outcome is of another plan.
    pub fn finish(self, outcome: &Outcome) -> Result<Finished<R>, JobError> {
        (self.result)(outcome)
    }
}

/// The result of a finished job.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished<R> {
    /// Number of passes over the data.
    pub iterations: u64,
    /// True if the tolerance was reached before the limit of iterations or of numeric precision.
    pub converged: bool,
    /// The result.
    pub result: R,
}

/// Checks the length of something in a partition that was decoded. Kernels rely on it.
fn has_length(what: &str, length: usize, expected: usize) -> Result<(), DataError> {
    if length == expected {
        return Ok(());
    }
    Err(DataError::new(format!("invalid {what} of {length} values; expected {expected}")))
}

/// As [`has_length`], for a vector that is empty until it is first computed.
fn has_length_or_none(what: &str, length: usize, expected: usize) -> Result<(), DataError> {
    if length == 0 { Ok(()) } else { has_length(what, length, expected) }
}

/// Checks the numbers of rows and columns.
fn has_shape<T: Real>(rows: &Rows<T>, expected: (usize, usize)) -> Result<(), DataError> {
    has_length("table", rows.rows(), expected.0).and_then(|()| has_length("row", rows.columns(), expected.1))
}

/// Adds a vector to another of the same length.
#[allow(clippy::ptr_arg)] // Reductions take references to the datasets' type.
fn add(sum: &mut Vec<f64>, next: &Vec<f64>) {
    for (sum, next) in sum.iter_mut().zip(next) {
        *sum += next;
    }
}

/// Encodes several vectors as one, each preceded by its length.
fn pack(vectors: &[&[f64]], out: &mut Vec<u8>) {
    let mut numbers = Vec::new();
    for vector in vectors {
        numbers.push(vector.len() as f64);
        numbers.extend_from_slice(vector);
    }
    numbers.encode(out);
}

/// Decodes the vectors encoded by [`pack`].
fn unpack(bytes: &[u8]) -> Result<std::vec::IntoIter<Vec<f64>>, DataError> {
    let numbers = Vec::<f64>::decode(bytes)?;
    let mut rest = &numbers[..];
    let mut vectors = Vec::new();
    while let Some((length, after)) = rest.split_first() {
        let split = after.split_at_checked(*length as usize);
        let (vector, after) = split.ok_or_else(|| DataError::new("invalid state: truncated"))?;
        vectors.push(vector.to_vec());
        rest = after;
    }
    Ok(vectors.into_iter())
}

#[cfg(test)]
mod tests;
