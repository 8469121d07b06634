//! Faults on purpose: what a store does to its clients on a bad day.
//!
//! Every so many calls one goes wrong, in turn in each of the given ways. Which call meets
//! which fault depends on nothing but the order of the calls, so that a failing test fails
//! again. Wrap it round any store, and [`crate::retry::Retrying`] round that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{Error, GetResult, Result};
use pellucid_trace::Operation;

use super::{Around, Call, map_body};
use crate::clock::Clock;
use crate::retry::Throttled;

/// One way to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused with an error; nothing was done.
    Refused,
    /// Done, but the answer is lost.
    Lost,
    /// Answered, after so long.
    Slow(u64),
    /// Never answered.
    Stalled,
    /// The body ends early, without an error.
    Truncated,
    /// The body is longer than it should be.
    TooLong,
    /// The answer is of other bytes than were asked for.
    WrongRange,
    /// The connection breaks in the middle of the body.
    Reset,
    /// 503, with the time after which to come again.
    Throttled(u64),
    /// The credentials have expired.
    Expired,
}

/// Every fault; the slow one takes 2 s, the throttled one asks for 3 s.
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

/// Those that another attempt gets round.
pub fn passing() -> Vec<Fault> {
    ALL.into_iter().filter(|fault| !matches!(fault, Fault::Expired | Fault::TooLong)).collect()
}

/// What a call says that met one of these and was not repeated; of a stall it says that it was not answered in time.
pub const WORDS: [&str; 5] = [REFUSED, "503 Service Unavailable", LOST, RESET, "no answer within"];

const REFUSED: &str = "500 Internal Server Error";
const LOST: &str = "connection closed before the answer";
const RESET: &str = "connection reset by peer";

/// Makes every so manieth call go wrong.
#[derive(Debug)]
pub struct Faults {
    clock: Arc<dyn Clock>,
    every: u64,
    faults: Vec<Fault>,
    calls: AtomicU64,
}

impl Faults {
    /// One fault in `every` calls (1: all of them), in the order of `faults`.
    pub fn new(clock: Arc<dyn Clock>, every: u64, faults: &[Fault]) -> Self {
        Faults { clock, every: every.max(1), faults: faults.to_vec(), calls: AtomicU64::new(0) }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let meets_one = call % self.every == self.every - 1;
        let turn = (call / self.every) as usize;
        meets_one.then(|| self.faults.get(turn % self.faults.len().max(1)).copied()).flatten()
    }
}

fn error(words: &str) -> Error {
    Error::Generic { store: "fault", source: words.into() }
}

#[async_trait]
impl Around for Faults {
    /// What will go wrong with the answer.
    type Pass = Option<Fault>;

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
            // Without a body to spoil, its answer is lost.
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

/// The first `bytes` of a body, and then what comes instead of the rest.
fn cut(body: super::Body, bytes: u64, instead: Option<Error>) -> super::Body {
    let mut left = bytes as usize;
    let begun = body.map_ok(move |piece| {
        let kept = piece.slice(..piece.len().min(left));
        left -= kept.len();
        kept
    });
    begun.chain(futures::stream::iter(instead.map(Err))).boxed()
}
