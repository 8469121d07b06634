//! Injected time.
//!
//! All waits (pauses between attempts, deadlines) use a [`Clock`]. Tests inject a virtual one
//! (`crates/storage-testing`), so hours of waiting take milliseconds and are deterministic.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use async_trait::async_trait;

/// A monotonic clock that can be waited on.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the nanoseconds since an arbitrary origin.
    fn now_ns(&self) -> u64;
    /// Waits for `ns` nanoseconds.
    async fn sleep(&self, ns: u64);
}

/// The machine's clock; needs a Tokio runtime with timers.
#[derive(Debug)]
pub struct Live(Instant);

impl Default for Live {
    fn default() -> Self {
        Live(Instant::now())
    }
}

#[async_trait]
impl Clock for Live {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    async fn sleep(&self, ns: u64) {
        tokio::time::sleep(Duration::from_nanos(ns)).await;
    }
}

/// Runs `future`; returns `None` if it has not completed after `ns` nanoseconds.
pub async fn timeout<T>(clock: &dyn Clock, ns: u64, future: impl Future<Output = T>) -> Option<T> {
    use futures::future::{Either, select};
    let deadline = clock.sleep(ns);
    match select(pin!(future), pin!(deadline)).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(_) => None,
    }
}
