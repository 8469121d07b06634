//! Injected time: the machine's clock, or a virtual clock for tests.
//!
//! All waits (pauses between attempts, paced bytes, deadlines) use a [`Clock`], so tests of hours of
//! waiting take milliseconds and are deterministic. The virtual clock's executor, [`Virtual::run`],
//! advances time to the next timer whenever no future can make progress, and detects waits that
//! would never end.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
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

/// A clock that advances only when every future waits for it.
#[derive(Debug, Default)]
pub struct Virtual(Mutex<Waits>);

#[derive(Debug, Default)]
struct Waits {
    now_ns: u64,
    /// Pending timers and their wakers.
    wakers: Vec<(u64, Waker)>,
}

/// An error for a future that would wait forever: it cannot make progress, and no timer is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlock;

impl Virtual {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a future to completion. The future must depend on nothing but this clock.
    ///
    /// # Errors
    /// Returns [`Deadlock`] if the future would wait forever.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, Deadlock> {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            while woken.0.swap(false, Ordering::SeqCst) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Ok(output);
                }
            }
            let mut waits = self.waits();
            let next = waits.wakers.iter().map(|(at, _)| *at).min().ok_or(Deadlock)?;
            waits.now_ns = waits.now_ns.max(next);
            let due: Vec<Waker> =
                waits.wakers.extract_if(.., |(at, _)| *at <= next).map(|(_, w)| w).collect();
            drop(waits);
            due.into_iter().for_each(Waker::wake);
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for Virtual {
    fn now_ns(&self) -> u64 {
        self.waits().now_ns
    }

    async fn sleep(&self, ns: u64) {
        let until = self.now_ns().saturating_add(ns);
        std::future::poll_fn(|context| {
            let mut waits = self.waits();
            if waits.now_ns >= until {
                return Poll::Ready(());
            }
            waits.wakers.push((until, context.waker().clone()));
            Poll::Pending
        })
        .await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_jumps_to_timers_and_detects_deadlocks() {
        let clock = Virtual::default();
        let hour = 3_600_000_000_000;
        let ended = clock.run(timeout(&clock, hour, std::future::pending::<()>()));
        assert_eq!((ended, clock.now_ns()), (Ok(None), hour));
        assert_eq!(clock.run(timeout(&clock, hour, clock.sleep(5))), Ok(Some(())));
        assert_eq!(clock.now_ns(), hour + 5);
        assert_eq!(clock.run(std::future::pending::<()>()), Err(Deadlock));
    }
}
