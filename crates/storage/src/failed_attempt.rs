//! Failed attempts at requests, which a caller may record.

use std::sync::Arc;
use std::time::Instant;

use pellucid_trace::Operation;

/// A request attempt that failed transiently. Most attempts are retried, so the caller sees only
/// a longer request.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// Requested operation.
    pub operation: Operation,
    /// Time of the request.
    pub started: Instant,
    /// Earliest time of the next attempt; includes the pauses made by this crate.
    pub ended: Instant,
    /// Error of the store or the connection, without credentials.
    pub error: String,
}

/// A callback for failed attempts. It runs on the request path, so it must not block.
pub type Watch = Arc<dyn Fn(FailedAttempt) + Send + Sync>;
