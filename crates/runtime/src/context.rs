//! The context of a running monotask, which tells it to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The context of a running monotask.
pub struct Context {
    stopped: Arc<AtomicBool>,
}

impl Context {
    /// Creates a context that is cancelled once `stopped` is set.
    pub(crate) fn new(stopped: Arc<AtomicBool>) -> Context {
        Context { stopped }
    }

    /// Returns true once the job was cancelled, failed or ended early. A long-running monotask must check
    /// it at least every 50 ms and return [`Cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// The error of a monotask that stops because its job was cancelled.
///
/// It is never the cause of a failed job: the job reports [`crate::JobError::Cancelled`] or its first failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for Cancelled {}
