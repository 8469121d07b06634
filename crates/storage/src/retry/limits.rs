//! Limits of retries, and the errors that tell a retry what to do.

use std::fmt;

/// An error of a store that throttles requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// Requested pause, if the store named one.
    pub retry_after_ns: Option<u64>,
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after_ns {
            Some(ns) => write!(f, "503 Service Unavailable, retry after {} s", ns / 1_000_000_000),
            None => f.write_str("503 Service Unavailable"),
        }
    }
}

impl std::error::Error for Throttled {}

/// A permanent error for which `object_store` has no error kind.
#[derive(Debug)]
pub struct Permanent(pub Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Permanent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Limits of attempts, pauses and timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum attempts at one call or one body, including the first.
    pub attempts: u32,
    /// Pause after the first attempt; doubles with each attempt.
    pub pause_ns: u64,
    /// Maximum pause; a store that requests a longer one is not retried.
    pub max_pause_ns: u64,
    /// Timeout for the start of a response, excluding the time for the bytes sent.
    pub response_timeout_ns: u64,
    /// Timeout between two chunks of a body.
    pub chunk_timeout_ns: u64,
    /// False if the client retries requests itself.
    pub retries_calls: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            attempts: 5,
            pause_ns: 100_000_000,
            max_pause_ns: 20_000_000_000,
            response_timeout_ns: 60_000_000_000,
            chunk_timeout_ns: 30_000_000_000,
            retries_calls: true,
        }
    }
}
