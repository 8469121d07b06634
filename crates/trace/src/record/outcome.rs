//! The outcome of jobs and their parts.

use serde::{Deserialize, Serialize};

/// The outcome of a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It succeeded.
    #[default]
    Ok,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Outcome {
    /// Returns true for [`Outcome::Ok`], which is not written.
    pub fn is_ok(&self) -> bool {
        *self == Outcome::Ok
    }
}
