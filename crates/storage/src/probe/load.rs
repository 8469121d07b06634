//! A load generator: timed concurrent requests to a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use object_store::{GetOptions, GetRange, ObjectStore, Result};
use pellucid_scheduler::{Concurrency, Controller, Sample};

use super::pieces::Place;
use pellucid_trace::probe::{FirstByte, Pattern, ReadRate};

/// Number of rounds without a change after which the controller counts as settled.
const SETTLED_ROUNDS: u32 = 4;

/// A generator of requests to a store, with a deadline.
pub(super) struct Load {
    pub store: Arc<dyn ObjectStore>,
    pub clock: Arc<dyn crate::clock::Clock>,
    pub cancelled: Arc<AtomicBool>,
    pub until_ns: u64,
}

/// The measurements of one load.
#[derive(Debug, Default)]
pub(super) struct LoadResult {
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub first_byte_ns: Vec<u64>,
}

/// The result of tuning: the bytes read and the chosen concurrency.
pub(super) struct TuningResult {
    pub bytes: u64,
    pub chosen: Option<u32>,
}

/// A completed request.
struct Request {
    start_ns: u64,
    first_byte_ns: u64,
    bytes: u64,
}

impl LoadResult {
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

    /// Sends request number `n`, cycling through `places`.
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

    /// Keeps `concurrency` requests running until the deadline. Sends at least `min_requests`, unless `by_ns` is
    /// reached first, and at most `max_requests`.
    pub async fn read(
        &self,
        places: &[Place],
        bytes: u64,
        concurrency: u32,
        (min_requests, by_ns): (u64, u64),
        max_requests: u64,
    ) -> Result<LoadResult> {
        let started_ns = self.clock.now_ns();
        let mut measured = LoadResult::default();
        let mut running = FuturesUnordered::new();
        let mut next = 0;
        loop {
            let few = next == 0 || next < min_requests && self.clock.now_ns() < by_ns;
            let more =
                next < max_requests && (few || !self.is_over()) && !self.cancelled.load(Ordering::Relaxed);
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
        measured.elapsed_ns = self.clock.now_ns() - started_ns;
        Ok(measured)
    }

    /// Lets a controller set the concurrency until it has settled; the choice is `None` if time or
    /// bytes run out first.
    pub async fn tune(
        &self,
        places: &[Place],
        request_bytes: u64,
        concurrency: Concurrency,
        max_bytes: u64,
    ) -> Result<TuningResult> {
        let mut controller = Controller::new(concurrency);
        let mut running = FuturesUnordered::new();
        let (mut next, mut bytes, mut unchanged) = (0, 0, 0);
        let mut chosen = None;
        loop {
            let settled = unchanged >= SETTLED_ROUNDS * controller.concurrency();
            if settled {
                chosen = Some(controller.concurrency());
            }
            let more = !settled && !self.is_over() && (next + 1) * request_bytes <= max_bytes;
            if more && running.len() < controller.concurrency() as usize {
                controller.started();
                running.push(self.request(places, request_bytes, next));
                next += 1;
                continue;
            }
            let in_flight = running.len() as u32;
            let Some(request) = running.next().await else { break };
            let Request { start_ns, bytes: moved, .. } = request?;
            bytes += moved;
            let before = controller.concurrency();
            let sample = Sample { start_ns, bytes: moved, running: in_flight };
            controller.completed(self.clock.now_ns(), sample);
            unchanged = if controller.concurrency() == before { unchanged + 1 } else { 0 };
        }
        Ok(TuningResult { bytes, chosen })
    }
}
