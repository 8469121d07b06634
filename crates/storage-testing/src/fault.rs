//! Fault injection: the failures of a real store, for tests.
//!
//! One in every `n` calls fails, cycling through the given faults. Faults depend only on the order of
//! the calls, so a failing test is reproducible. Wrap any store with it, and the result with
//! [`pellucid_storage::retry::Retrying`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{Error, GetResult, Result};
use pellucid_storage::body::{Body, map_body};
use pellucid_storage::clock::Clock;
use pellucid_storage::retry::Throttled;
use pellucid_trace::Operation;

use crate::wrap::{Call, Interceptor};

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call is rejected with an error and has no effect.
    Refused,
    /// The call takes effect, but its response is lost.
    Lost,
    /// The response takes this many nanoseconds.
    Slow(u64),
    /// The store never responds.
    Stalled,
    /// The body ends early, without an error.
    Truncated,
    /// The body is longer than the requested range.
    TooLong,
    /// The response is for another range than the requested one.
    WrongRange,
    /// The connection breaks in the middle of the body.
    Reset,
    /// The store responds with 503 and a `Retry-After` of this many nanoseconds.
    Throttled(u64),
    /// The credentials have expired.
    Expired,
}

/// Every fault. The slow one takes 2 s, and the throttled one requests a pause of 3 s.
pub const ALL: [Fault; 10] = [
    Fault::Refused,
    Fault::Lost,
    Fault::Slow(2_000_000_000),
    Fault::Stalled,
    Fault::Truncated,
    Fault::TooLong,
    Fault::WrongRange,
    Fault::Reset,
    Fault::Throttled(3_000_000_000),
    Fault::Expired,
];

/// Returns the transient faults, which a retry overcomes.
pub fn transient() -> Vec<Fault> {
    ALL.into_iter().filter(|fault| !matches!(fault, Fault::Expired | Fault::TooLong)).collect()
}

/// Error messages of calls that met a transient fault and were not retried; a stall ends with a timeout.
pub const MESSAGES: [&str; 5] = [REFUSED, "503 Service Unavailable", LOST, RESET, "no response within"];

const REFUSED: &str = "500 Internal Server Error";
const LOST: &str = "connection closed before the response";
const RESET: &str = "connection reset by peer";

/// An interceptor that injects a fault into one in every `n` calls.
#[derive(Debug)]
pub struct Faults {
    clock: Arc<dyn Clock>,
    every: u64,
    faults: Vec<Fault>,
    calls: AtomicU64,
}

impl Faults {
    /// Creates an interceptor that injects one fault in `every` calls (1: all of them), in the order of `faults`.
    pub fn new(clock: Arc<dyn Clock>, every: u64, faults: &[Fault]) -> Self {
        Faults { clock, every: every.max(1), faults: faults.to_vec(), calls: AtomicU64::new(0) }
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let fails = call % self.every == self.every - 1;
        let turn = (call / self.every) as usize;
        fails.then(|| self.faults.get(turn % self.faults.len().max(1)).copied()).flatten()
    }
}

fn error(message: &str) -> Error {
    Error::Generic { store: "fault", source: message.into() }
}

#[async_trait]
impl Interceptor for Faults {
    /// The fault to inject into the response.
    type State = Option<Fault>;

    async fn enter(&self, call: Call) -> Result<Option<Fault>> {
        let fault = self.next();
        match fault {
            Some(Fault::Refused) => Err(error(REFUSED)),
            Some(Fault::Throttled(ns)) => Err(Error::Generic {
                store: "fault",
                source: Box::new(Throttled { retry_after_ns: Some(ns) }),
            }),
            Some(Fault::Expired) => {
                Err(Error::Unauthenticated { path: String::new(), source: "the token has expired".into() })
            }
            Some(Fault::Slow(ns)) => {
                self.clock.sleep(ns).await;
                Ok(None)
            }
            Some(Fault::Stalled) => std::future::pending().await,
            // A call without a body loses its response instead.
            Some(_) if call.operation != Operation::Read => Ok(Some(Fault::Lost)),
            fault => Ok(fault),
        }
    }

    async fn leave(&self, fault: Option<Fault>, outcome: Result<()>) -> Result<()> {
        match fault {
            Some(_) => Err(error(LOST)),
            None => outcome,
        }
    }

    fn answer(self: Arc<Self>, fault: Option<Fault>, mut result: GetResult) -> GetResult {
        let bytes = result.range.end - result.range.start;
        match fault {
            Some(Fault::Truncated) => map_body(result, move |body| cut(body, bytes / 2, None)),
            Some(Fault::Reset | Fault::Lost) => {
                map_body(result, move |body| cut(body, bytes / 2, Some(error(RESET))))
            }
            Some(Fault::TooLong) => map_body(result, |body| {
                let more = futures::stream::once(async { Ok(Bytes::from_static(b"more")) });
                body.chain(more).boxed()
            }),
            Some(Fault::WrongRange) => {
                result.range = result.range.start + 1..result.range.end + 1;
                result
            }
            _ => result,
        }
    }
}

/// Truncates a body after `bytes`, optionally with an error in place of the rest.
fn cut(body: Body, bytes: u64, instead: Option<Error>) -> Body {
    let mut left = bytes as usize;
    let truncated = body.map_ok(move |piece| {
        let kept = piece.slice(..piece.len().min(left));
        left -= kept.len();
        kept
    });
    truncated.chain(futures::stream::iter(instead.map(Err))).boxed()
}
