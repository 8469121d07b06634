//! Requests at a store, so many at once, with the time of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use object_store::{GetOptions, GetRange, ObjectStore, Result};
use pellucid_scheduler::{Concurrency, Controller, Sample};

use super::pieces::Place;
use super::report::{FirstByte, Pattern, ReadRate};

/// The controller has settled when its concurrency has not changed for so many rounds.
const SETTLED_ROUNDS: u32 = 4;

/// Where and until when to send requests.
pub(super) struct Load {
    pub store: Arc<dyn ObjectStore>,
    pub clock: Arc<dyn crate::clock::Clock>,
    pub cancelled: Arc<AtomicBool>,
    pub until_ns: u64,
}

/// What a load measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub first_byte_ns: Vec<u64>,
}

/// What the controller did with a load.
pub(super) struct Tuned {
    pub bytes: u64,
    pub chosen: Option<u32>,
}

/// One request that has ended.
struct Request {
    start_ns: u64,
    first_byte_ns: u64,
    bytes: u64,
}

impl Measured {
    pub fn rate(mut self, concurrency: u32, pattern: Pattern, request_bytes: u64) -> ReadRate {
        self.first_byte_ns.sort_unstable();
        let at = |share: f64| {
            let index = ((self.first_byte_ns.len() as f64 * share).ceil() as usize).saturating_sub(1);
            self.first_byte_ns.get(index).map_or(0.0, |ns| *ns as f64 / 1e6)
        };
        ReadRate {
            concurrency,
            pattern,
            request_bytes,
            bytes_per_s: self.bytes as f64 * 1e9 / self.elapsed_ns.max(1) as f64,
            first_byte_ms: FirstByte { median: at(0.5), p99: at(0.99) },
        }
    }
}

impl Load {
    fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.clock.now_ns() >= self.until_ns
    }

    /// The request number `n` of those at `places`, which begin again after the last.
    async fn request(&self, places: &[Place], bytes: u64, n: u64) -> Result<Request> {
        let (at, start) = &places[n as usize % places.len()];
        let start_ns = self.clock.now_ns();
        let range = Some(GetRange::Bounded(*start..start + bytes));
        let options = GetOptions { range, ..GetOptions::default() };
        let mut body = self.store.get_opts(at, options).await?.into_stream();
        let mut read = Request { start_ns, first_byte_ns: 0, bytes: 0 };
        while let Some(piece) = body.next().await {
            if read.bytes == 0 {
                read.first_byte_ns = self.clock.now_ns() - start_ns;
            }
            read.bytes += piece?.len() as u64;
        }
        Ok(read)
    }

    /// Keeps `concurrency` requests running: at least `least`, unless the time `by_ns` comes before, at most
    /// `most` of them, and in between until time is up.
    pub async fn read(
        &self,
        places: &[Place],
        bytes: u64,
        concurrency: u32,
        (least, by_ns): (u64, u64),
        most: u64,
    ) -> Result<Measured> {
        let begun = self.clock.now_ns();
        let mut measured = Measured::default();
        let mut running = FuturesUnordered::new();
        let mut next = 0;
        loop {
            let few = next == 0 || next < least && self.clock.now_ns() < by_ns;
            let more = next < most && (few || !self.is_over()) && !self.cancelled.load(Ordering::Relaxed);
            if more && running.len() < concurrency as usize {
                running.push(self.request(places, bytes, next));
                next += 1;
                continue;
            }
            let Some(request) = running.next().await else { break };
            let request = request?;
            measured.bytes += request.bytes;
            measured.first_byte_ns.push(request.first_byte_ns);
        }
        measured.elapsed_ns = self.clock.now_ns() - begun;
        Ok(measured)
    }

    /// Lets a controller decide how many run, until it has settled; `None` where time or
    /// bytes were up before.
    pub async fn tune(
        &self,
        places: &[Place],
        request_bytes: u64,
        concurrency: Concurrency,
        most_bytes: u64,
    ) -> Result<Tuned> {
        let mut controller = Controller::new(concurrency);
        let mut running = FuturesUnordered::new();
        let (mut next, mut bytes, mut unchanged) = (0, 0, 0);
        let mut chosen = None;
        loop {
            let settled = unchanged >= SETTLED_ROUNDS * controller.concurrency();
            if settled {
                chosen = Some(controller.concurrency());
            }
            let more = !settled && !self.is_over() && (next + 1) * request_bytes <= most_bytes;
            if more && running.len() < controller.concurrency() as usize {
                controller.started(self.clock.now_ns());
                running.push(self.request(places, request_bytes, next));
                next += 1;
                continue;
            }
            let were = running.len() as u32;
            let Some(request) = running.next().await else { break };
            let Request { start_ns, bytes: moved, .. } = request?;
            bytes += moved;
            let before = controller.concurrency();
            let sample = Sample { start_ns, bytes: moved, wait_ns: None, running: were };
            controller.completed(self.clock.now_ns(), sample);
            unchanged = if controller.concurrency() == before { unchanged + 1 } else { 0 };
        }
        Ok(Tuned { bytes, chosen })
    }
}
