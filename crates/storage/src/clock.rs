//! Time, injected: the machine's clock, or a virtual one that jumps.
//!
//! What waits (pauses between attempts, paced bytes, deadlines) waits on a [`Clock`], so that
//! tests of hours of waiting take milliseconds and come out the same each time. The virtual
//! clock has an executor of its own, [`Virtual::run`], which moves time to the next awaited
//! moment whenever nothing else can go on, and so notices a wait that nothing would ever end.

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
    /// Nanoseconds since an origin of its own.
    fn now_ns(&self) -> u64;
    /// Ends `ns` nanoseconds from now.
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

/// A clock that stands still until everyone waits for it.
#[derive(Debug, Default)]
pub struct Virtual(Mutex<Waits>);

#[derive(Debug, Default)]
struct Waits {
    now_ns: u64,
    /// Moments that are waited for, and whom to wake.
    wakers: Vec<(u64, Waker)>,
}

/// The future would wait for ever: nothing can go on, and nobody waits for the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hangs;

impl Virtual {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a future to its end; only futures that need nothing but this clock and each other.
    ///
    /// # Errors
    /// Where it hangs.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, Hangs> {
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
            let next = waits.wakers.iter().map(|(at, _)| *at).min().ok_or(Hangs)?;
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

/// `future`, or `None` once `ns` have passed without its end.
pub async fn within<T>(clock: &dyn Clock, ns: u64, future: impl Future<Output = T>) -> Option<T> {
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
    fn time_jumps_to_what_is_awaited_and_a_hang_is_noticed() {
        let clock = Virtual::default();
        let hour = 3_600_000_000_000;
        let ended = clock.run(within(&clock, hour, std::future::pending::<()>()));
        assert_eq!((ended, clock.now_ns()), (Ok(None), hour));
        assert_eq!(clock.run(within(&clock, hour, clock.sleep(5))), Ok(Some(())));
        assert_eq!(clock.now_ns(), hour + 5);
        assert_eq!(clock.run(std::future::pending::<()>()), Err(Hangs));
    }
}
