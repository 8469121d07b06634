//! Moves bytes in chunks: small enough that a cancellation is soon seen.
//!
//! A thread in a system call hears nothing, so a transfer is cut into chunks of
//! at most 1 MiB, and between two of them it is seen whether the job was
//! cancelled, and a pacer may hold it up. Where a device is so slow, or so shared,
//! that a chunk takes long, chunks shrink at once, and grow again step by step.
//! Their size is the resource's own: a new monotask need not find it out again.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::pacer;
use crate::{Cancelled, Context, Error, ResourceHandle};

const MAX_BYTES: u64 = 1 << 20;
/// Below this, a device loses more by the cut than a cancellation gains.
const MIN_BYTES: u64 = 64 << 10;
/// A multiple of any device's logical block, and mostly a page.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Before anything is known.
const FIRST_BYTES: u64 = 256 << 10;
/// A chunk that takes longer is too large.
const TIME: Duration = Duration::from_millis(25);

/// Size of a resource's next chunk.
pub(crate) struct ChunkSize(AtomicU64);

impl Default for ChunkSize {
    fn default() -> Self {
        ChunkSize(AtomicU64::new(FIRST_BYTES))
    }
}

impl ChunkSize {
    /// Threads may overwrite one another's word: each is as good.
    fn learn(&self, bytes: u64, took: Duration) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(next_bytes(now, bytes, took), Ordering::Relaxed);
    }
}

/// One monotask's way of moving bytes.
pub(crate) struct Chunks<'a> {
    resource: &'a ResourceHandle,
    context: &'a Context,
}

impl<'a> Chunks<'a> {
    pub fn new(resource: &'a ResourceHandle, context: &'a Context) -> Chunks<'a> {
        Chunks { resource, context }
    }

    /// Has `range` moved by `each`, chunk by chunk.
    ///
    /// # Errors
    /// That of `each`, or [`Cancelled`].
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
            let most = pacer.map_or(size, |p| p.chunk_bytes(size));
            let chunk = at..chunk_end(at, most, range.end);
            let bytes = chunk.end - chunk.start;
            at = chunk.end;
            let begun = Instant::now();
            let may_end = pacer.map(|p| begun + p.book(bytes));
            each(chunk)?;
            self.resource.0.chunk_size.learn(bytes, begun.elapsed());
            if let Some(may_end) = may_end {
                pacer::wait(may_end, self.context)?;
            }
        }
        Ok(())
    }
}

/// Chunks end between blocks: a direct read has to, and no other reads a page twice.
fn chunk_end(at: u64, most: u64, end: u64) -> u64 {
    let whole_blocks = (at + most) & !(BLOCK_BYTES - 1);
    if whole_blocks > at { whole_blocks.min(end) } else { end.min(at + BLOCK_BYTES) }
}

/// The size after a chunk of `bytes` took `took`: half of it where that was long, a
/// little more where it was short. A chunk that was small anyway says nothing of
/// larger ones.
fn next_bytes(now: u64, bytes: u64, took: Duration) -> u64 {
    if took > TIME {
        (bytes / 2).clamp(MIN_BYTES, now)
    } else if took < TIME / 4 && bytes >= now / 2 {
        (now + now / 16).min(MAX_BYTES)
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_the_device() {
        let ms = Duration::from_millis;
        assert_eq!(next_bytes(MAX_BYTES, MAX_BYTES, ms(160)), MAX_BYTES / 2);
        assert_eq!(next_bytes(MIN_BYTES, MIN_BYTES, ms(160)), MIN_BYTES);
        assert_eq!(next_bytes(MAX_BYTES / 2, MAX_BYTES / 2, ms(20)), MAX_BYTES / 2);
        assert_eq!(next_bytes(MIN_BYTES, 4096, ms(160)), MIN_BYTES);
        assert_eq!(next_bytes(FIRST_BYTES, 4096, ms(1)), FIRST_BYTES);
        assert_eq!(next_bytes(MAX_BYTES, MAX_BYTES, ms(1)), MAX_BYTES);
    }

    #[test]
    fn chunks_end_between_blocks() {
        for most in [MIN_BYTES, 70_001, 278_528 + 17_408, MAX_BYTES] {
            for (start, end) in [(0, 3 << 20), (12_345, 2_000_003), (4096, 8192), (5, 6)] {
                let mut at = start;
                while at < end {
                    let to = chunk_end(at, most, end);
                    assert!(to > at && to <= end && to - at <= most, "{at}..{to} of {end}");
                    assert!(to == end || to.is_multiple_of(BLOCK_BYTES), "{at}..{to} of {end}");
                    at = to;
                }
            }
        }
    }

    #[test]
    fn a_fast_device_gets_whole_chunks_soon_and_a_slow_one_small_ones_at_once() {
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
