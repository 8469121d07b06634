//! Moves bytes in chunks: small enough that a cancellation is soon seen.
//!
//! A thread in a system call hears nothing, so a transfer is cut into chunks of
//! at most 1 MiB, and between two of them it is seen whether the job was
//! cancelled, and a pacer may hold it up. Where a device is so slow, or so shared,
//! that a chunk takes long, chunks shrink until they do not.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::pacer::{self, Pacer};
use crate::{Cancelled, Context, Error};

const MAX_BYTES: u64 = 1 << 20;
/// Below this, a device loses more by the cut than a cancellation gains.
const MIN_BYTES: u64 = 128 << 10;
/// A chunk that takes longer is too large.
const TIME: Duration = Duration::from_millis(25);

/// One monotask's way of moving bytes.
pub(crate) struct Chunks<'a> {
    bytes: u64,
    pacer: Option<&'a Pacer>,
    context: &'a Context,
}

impl<'a> Chunks<'a> {
    pub fn new(pacer: Option<&'a Pacer>, context: &'a Context) -> Chunks<'a> {
        Chunks { bytes: MAX_BYTES, pacer, context }
    }

    /// Has `range` moved by `each`, chunk by chunk.
    ///
    /// # Errors
    /// That of `each`, or [`Cancelled`].
    pub fn each(
        &mut self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            if self.context.is_cancelled() {
                return Err(Cancelled.into());
            }
            let most = self.pacer.map_or(self.bytes, |p| p.chunk_bytes(self.bytes));
            let chunk = at..range.end.min(at + most);
            at = chunk.end;
            let begun = Instant::now();
            let may_end = self.pacer.map(|p| begun + p.book(chunk.end - chunk.start));
            each(chunk)?;
            self.bytes = next_bytes(self.bytes, begun.elapsed());
            if let Some(may_end) = may_end {
                pacer::wait(may_end, self.context)?;
            }
        }
        Ok(())
    }
}

/// The chunk after one that took `took`: halved where that was long, doubled
/// where it was short.
fn next_bytes(now: u64, took: Duration) -> u64 {
    if took > TIME {
        (now / 2).max(MIN_BYTES)
    } else if took < TIME / 4 {
        (now * 2).min(MAX_BYTES)
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
        assert_eq!(next_bytes(MAX_BYTES, ms(160)), MAX_BYTES / 2);
        assert_eq!(next_bytes(MIN_BYTES, ms(160)), MIN_BYTES);
        assert_eq!(next_bytes(MAX_BYTES / 2, ms(20)), MAX_BYTES / 2);
        assert_eq!(next_bytes(MAX_BYTES / 2, ms(1)), MAX_BYTES);
        assert_eq!(next_bytes(MAX_BYTES, ms(1)), MAX_BYTES);
    }
}
