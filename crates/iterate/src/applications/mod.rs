//! Applications: logistic regression, k-means and PageRank as programs over the kernels.
//!
//! Each takes its data and options, refuses what does not fit, and gives a [`Job`]: the plan that any
//! launcher runs, and how to read the result out of its outcome. A process that takes part in a job
//! builds the same plan from the same data and options.
//!
//! How data is divided, and in which order numbers are added, follows from data and options alone. So the
//! answer does not depend on how many workers there are or where partitions live.

pub mod kmeans;
mod lbfgs;
pub mod logistic_regression;
pub mod pagerank;
mod partition;
mod solver;

use crate::data::Data;
use crate::input::InputError;
use crate::{JobError, Outcome, Plan, ProgramError};
use std::fmt;
use std::sync::Arc;

/// The precision of the data in memory and of the kernels; sums are in `f64` in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 64 bits.
    F64,
    /// 32 bits: half the memory, and twice as fast where memory is what limits.
    F32,
}

/// Why an application cannot be run as asked.
#[derive(Debug)]
pub enum ApplicationError {
    /// Data or options.
    Input(InputError),
    /// The program itself: more partitions than it can have, for example.
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
    /// What launchers run.
    pub plan: Arc<Plan>,
    /// The stage whose observed number shows how far it is: a loss, an inertia or a residual.
    pub progress: &'static str,
    /// Partitions of the data.
    pub partitions: u32,
    /// Iterations of the outermost loops before the first that counts.
    pub preparations: u64,
    /// Bytes of memory that the kernels read in one iteration, as far as they are the data's.
    pub bytes_per_iteration: u64,
    result: ReadResult<R>,
}

type ReadResult<R> = Box<dyn FnOnce(&Outcome) -> Result<Finished<R>, JobError> + Send>;

impl<R> Job<R> {
    /// Reads the result out of the outcome of the job's plan.
    ///
    /// # Errors
    /// An outcome of another plan.
    pub fn finish(self, outcome: &Outcome) -> Result<Finished<R>, JobError> {
        (self.result)(outcome)
    }
}

/// What a job gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished<R> {
    /// Passes over the data that led to the result.
    pub iterations: u64,
    /// Whether the tolerance was reached; else the limit of iterations was, or the precision's.
    pub converged: bool,
    /// The answer.
    pub result: R,
}

/// Adds one vector to another of the same length.
#[allow(clippy::ptr_arg)] // The type that datasets have.
fn add(sum: &mut Vec<f64>, next: &Vec<f64>) {
    for (sum, next) in sum.iter_mut().zip(next) {
        *sum += next;
    }
}

/// Several vectors and numbers in one, each with its length before it: how states are encoded.
fn pack(vectors: &[&[f64]], out: &mut Vec<u8>) {
    let mut numbers = Vec::new();
    for vector in vectors {
        numbers.push(vector.len() as f64);
        numbers.extend_from_slice(vector);
    }
    numbers.encode(out);
}

/// What [`pack`] made.
fn unpack(bytes: &[u8]) -> Result<std::vec::IntoIter<Vec<f64>>, crate::DataError> {
    let numbers = Vec::<f64>::decode(bytes)?;
    let mut rest = &numbers[..];
    let mut vectors = Vec::new();
    while let Some((length, after)) = rest.split_first() {
        let split = after.split_at_checked(*length as usize);
        let (vector, after) = split.ok_or_else(|| crate::DataError::new("a state that breaks off"))?;
        vectors.push(vector.to_vec());
        rest = after;
    }
    Ok(vectors.into_iter())
}

#[cfg(test)]
mod tests;
