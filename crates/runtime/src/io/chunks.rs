//! Transfers bytes in chunks that are small enough for prompt cancellation.
//!
//! A system call cannot be cancelled, so a transfer is split into chunks of at most 1 MiB. Between two
//! chunks, the thread checks for cancellation and may wait for a pacer. If a device is slow or shared and a
//! chunk takes long, chunks shrink at once and grow again step by step. The size belongs to the resource,
//! so that new monotasks start with it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::io::pacer;
use crate::{Cancelled, Context, Error, ResourceHandle};

const MAX_BYTES: u64 = 1 << 20;
/// Minimum chunk size; smaller chunks cost the device more than earlier cancellation gains.
const MIN_BYTES: u64 = 64 << 10;
/// A multiple of any device's logical block size, and usually the page size.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Initial chunk size.
const FIRST_BYTES: u64 = 256 << 10;
/// Maximum time of a chunk, above which chunks shrink.
const MAX_TIME: Duration = Duration::from_millis(25);

/// The size of a resource's next chunk.
pub(crate) struct ChunkSize(AtomicU64);

impl Default for ChunkSize {
    fn default() -> Self {
        ChunkSize(AtomicU64::new(FIRST_BYTES))
    }
}

impl ChunkSize {
    /// Adapts the size. Threads may overwrite each other's result, which is harmless.
    fn learn(&self, bytes: u64, took: Duration) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(next_bytes(now, bytes, took), Ordering::Relaxed);
    }
}

/// The chunked transfers of one monotask.
pub(crate) struct Chunks<'a> {
    resource: &'a ResourceHandle,
    context: &'a Context,
}

impl<'a> Chunks<'a> {
    pub fn new(resource: &'a ResourceHandle, context: &'a Context) -> Chunks<'a> {
        Chunks { resource, context }
    }

    /// Calls `each` for every chunk of `range`.
    ///
    /// # Errors
    /// Returns the error of `each`, or [`Cancelled`].
    pub fn each(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let pacer = self.resource.0.pacer.as_deref();
        let mut at = range.start;
        while at < range.end {
            if self.context.is_cancelled() {
                return Err(Cancelled.into());
            }
            let size = self.resource.0.chunk_size.0.load(Ordering::Relaxed);
            let max = pacer.map_or(size, |p| p.chunk_bytes(size));
            let chunk = at..chunk_end(at, max, range.end);
            let bytes = chunk.end - chunk.start;
            at = chunk.end;
            let started = Instant::now();
            let earliest_end = pacer.map(|p| started + p.book(bytes));
            each(chunk)?;
            self.resource.0.chunk_size.learn(bytes, started.elapsed());
            if let Some(earliest_end) = earliest_end {
                pacer::wait(earliest_end, self.context)?;
            }
        }
        Ok(())
    }
}

/// Returns the end of a chunk. It is at a block boundary, as direct reads require, so that no page is read
/// twice.
fn chunk_end(at: u64, max: u64, end: u64) -> u64 {
    let whole_blocks = (at + max) & !(BLOCK_BYTES - 1);
    if whole_blocks > at { whole_blocks.min(end) } else { end.min(at + BLOCK_BYTES) }
}

/// Returns the size after a chunk of `bytes` took `took`: half of it if that was long, a little more than
/// `now` if it was short. Small chunks do not increase the size.
fn next_bytes(now: u64, bytes: u64, took: Duration) -> u64 {
    if took > MAX_TIME {
        (bytes / 2).clamp(MIN_BYTES, now)
    } else if took < MAX_TIME / 4 && bytes >= now / 2 {
        (now + now / 16).min(MAX_BYTES)
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_size_adapts_to_device() {
        let ms = Duration::from_millis;
        assert_eq!(next_bytes(MAX_BYTES, MAX_BYTES, ms(160)), MAX_BYTES / 2);
        assert_eq!(next_bytes(MIN_BYTES, MIN_BYTES, ms(160)), MIN_BYTES);
        assert_eq!(next_bytes(MAX_BYTES / 2, MAX_BYTES / 2, ms(20)), MAX_BYTES / 2);
        assert_eq!(next_bytes(MIN_BYTES, 4096, ms(160)), MIN_BYTES);
        assert_eq!(next_bytes(FIRST_BYTES, 4096, ms(1)), FIRST_BYTES);
        assert_eq!(next_bytes(MAX_BYTES, MAX_BYTES, ms(1)), MAX_BYTES);
    }

    #[test]
    fn chunks_end_at_block_boundaries() {
        for max in [MIN_BYTES, 70_001, 278_528 + 17_408, MAX_BYTES] {
            for (start, end) in [(0, 3 << 20), (12_345, 2_000_003), (4096, 8192), (5, 6)] {
                let mut at = start;
                while at < end {
                    let to = chunk_end(at, max, end);
                    assert!(to > at && to <= end && to - at <= max, "{at}..{to} of {end}");
                    assert!(to == end || to.is_multiple_of(BLOCK_BYTES), "{at}..{to} of {end}");
                    at = to;
                }
            }
        }
    }

    #[test]
    fn chunks_grow_gradually_and_shrink_at_once() {
        let size = ChunkSize::default();
        let now = |size: &ChunkSize| size.0.load(Ordering::Relaxed);
        let mut moved = 0;
        while now(&size) < MAX_BYTES {
            moved += now(&size);
            size.learn(now(&size), Duration::from_millis(1));
            assert!(moved < 32 << 20, "still {} after {moved}", now(&size));
        }
        for _ in 0..4 {
            size.learn(now(&size), Duration::from_millis(200));
        }
        assert_eq!(now(&size), MIN_BYTES);
    }
}
