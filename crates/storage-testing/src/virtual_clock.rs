//! A virtual clock. Its executor, [`Virtual::run`], advances time to the next timer whenever no future
//! can make progress, and detects waits that would never end.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use async_trait::async_trait;
use pellucid_storage::clock::Clock;

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

#[cfg(test)]
mod tests {
    use pellucid_storage::clock::timeout;

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
