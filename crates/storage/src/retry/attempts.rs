//! Attempts at a call: timeouts, pauses, and which errors are worth another attempt.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::StreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, Result};
use pellucid_trace::Operation;

use super::limits::{Limits, Permanent, Throttled};
use crate::clock::{Clock, timeout};
use crate::failed_attempt::{FailedAttempt, Watch};

/// Additional timeout per byte sent: the slowest supported link carries 100 kB/s.
const NS_PER_SENT_BYTE: u64 = 10_000;

/// A store, and the rules of attempts at its calls.
pub(super) struct Attempts {
    pub inner: Arc<dyn ObjectStore>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
    /// State of the generator that spreads the pauses.
    pub jitter: Mutex<u64>,
    pub watch: Watch,
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts")
            .field("inner", &self.inner)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Returns a transient error.
pub(super) fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "store", source: source.into() }
}

/// Returns true if a retry may succeed. Generic errors count as transient unless marked [`Permanent`].
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Generic { source, .. } if !source.is::<Permanent>())
}

/// Returns the pause that the store requested.
fn retry_after_ns(error: &Error) -> Option<u64> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(throttled) = inner.downcast_ref::<Throttled>() {
            return throttled.retry_after_ns;
        }
        cause = inner.source();
    }
    None
}

impl Attempts {
    /// Returns the pause after attempt number `attempt` (from 1): half fixed, half random.
    fn pause_ns(&self, attempt: u32) -> u64 {
        let whole =
            self.limits.pause_ns.saturating_mul(1 << (attempt - 1).min(20)).min(self.limits.max_pause_ns);
        let mut state = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        // Knuth's MMIX generator is good enough for jitter.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        whole / 2 + (*state >> 33) * (whole - whole / 2) / (1 << 31)
    }

    /// Pauses after the failed attempt number `attempt`, which started at `started`. Returns the error if
    /// no retry follows.
    pub async fn wait(
        &self,
        operation: Operation,
        started: Instant,
        attempt: u32,
        error: Error,
    ) -> Result<()> {
        if !is_transient(&error) {
            return Err(error);
        }
        let text = error.to_string();
        let waited = self.pause(attempt, error).await;
        (self.watch)(FailedAttempt { operation, started, ended: Instant::now(), error: text });
        waited
    }

    async fn pause(&self, attempt: u32, error: Error) -> Result<()> {
        if attempt >= self.limits.attempts {
            let cause = match &error {
                Error::Generic { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            return Err(failed(format!("{cause} (after {attempt} attempts)")));
        }
        let asked = retry_after_ns(&error).unwrap_or(0);
        if asked > self.limits.max_pause_ns {
            return Err(error);
        }
        self.clock.sleep(self.pause_ns(attempt).max(asked)).await;
        Ok(())
    }

    pub async fn with_timeout<T>(
        &self,
        sent_bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let ns = self.limits.response_timeout_ns.saturating_add(sent_bytes.saturating_mul(NS_PER_SENT_BYTE));
        timeout(&*self.clock, ns, call)
            .await
            .unwrap_or_else(|| Err(failed(format!("no response within {} s", ns / 1_000_000_000))))
    }

    /// Repeats a call, each time with a timeout, until it succeeds, must not be retried, or has used up
    /// its attempts.
    pub async fn repeated<T, F: Future<Output = Result<T>> + Send>(
        &self,
        operation: Operation,
        sent_bytes: u64,
        retries: bool,
        mut call: impl FnMut(u32) -> F,
    ) -> Result<T> {
        self.retried(operation, retries, |attempt| self.with_timeout(sent_bytes, call(attempt))).await
    }

    pub async fn retried<T, F: Future<Output = Result<T>>>(
        &self,
        operation: Operation,
        retries: bool,
        mut call: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            let started = Instant::now();
            match call(attempt).await {
                Err(error) if retries && self.limits.retries_calls => {
                    self.wait(operation, started, attempt, error).await?
                }
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    /// Collects the entries of a listing. The timeout applies to each entry, so a long listing may take
    /// any time.
    pub async fn entries(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let mut listing = self.inner.list(prefix);
        let mut entries = Vec::new();
        while let Some(entry) = self.with_timeout(0, async { listing.next().await.transpose() }).await? {
            entries.push(entry);
        }
        Ok(entries)
    }
}
