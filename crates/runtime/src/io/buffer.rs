//! A pool of read buffers, which are returned as `Bytes` and reused.
//!
//! The first access to a fresh page costs more than reading into it, so a buffer returns to the pool when
//! the last `Bytes` on it is dropped, on any thread. Sizes are rounded up to a few classes, so that buffers
//! fit later reads. Idle memory is bounded; beyond the bound, buffers are unmapped.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::platform::Pages;

/// Maximum idle memory of a pool.
const IDLE_MAX_BYTES: usize = 128 << 20;
/// Minimum size of a buffer.
const CLASS_MIN_BYTES: usize = 64 << 10;

/// A bounded pool of idle buffers.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    idle_max_bytes: usize,
}

#[derive(Default)]
struct Idle {
    by_class: BTreeMap<usize, Vec<Pages>>,
    bytes: usize,
}

/// A page-aligned buffer that is being filled.
pub(crate) struct Buffer {
    /// `None` only after drop has returned the pages to the pool.
    pages: Option<Pages>,
    pool: Arc<Pool>,
}

impl Pool {
    /// Creates a pool that may keep a small part of a memory budget.
    pub(crate) fn new(memory_bytes: Option<u64>) -> Arc<Pool> {
        let share = memory_bytes.map_or(IDLE_MAX_BYTES as u64, |bytes| bytes / 32);
        Pool::bounded(IDLE_MAX_BYTES.min(usize::try_from(share).unwrap_or(IDLE_MAX_BYTES)))
    }

    fn bounded(idle_max_bytes: usize) -> Arc<Pool> {
        Arc::new(Pool { idle: Mutex::default(), idle_max_bytes })
    }

    /// Returns a buffer of at least `len` bytes with arbitrary content.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> io::Result<Buffer> {
        let class = class_of(len);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let used = idle.by_class.get_mut(&class).and_then(Vec::pop);
        let pages = match used {
            Some(pages) => {
                idle.bytes -= class;
                pages
            }
            None => {
                drop(idle);
                Pages::map(class)?
            }
        };
        Ok(Buffer { pages: Some(pages), pool: Arc::clone(self) })
    }

    fn give_back(&self, pages: Pages) {
        let class = pages.len();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + class <= self.idle_max_bytes {
            idle.bytes += class;
            idle.by_class.entry(class).or_default().push(pages);
        } else {
            drop(idle); // unmapping is slow, so it must not hold the lock
            drop(pages);
        }
    }
}

/// Returns the size class of `len`. Each doubling has four classes, so at most a quarter of a buffer is
/// wasted.
fn class_of(len: usize) -> usize {
    let len = len.max(CLASS_MIN_BYTES);
    let step = (len.next_power_of_two() / 8).max(CLASS_MIN_BYTES / 4);
    len.div_ceil(step) * step
}

impl Buffer {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], Pages::as_mut_slice)
    }

    /// Converts the whole buffer to immutable `Bytes`.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.pages.as_ref().map_or(&[], Pages::as_slice)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            self.pool.give_back(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(pool: &Pool) -> usize {
        pool.idle.lock().unwrap().bytes
    }

    #[test]
    fn classes_fit_and_waste_at_most_a_quarter() {
        for len in (1..40 << 20).step_by(99_991) {
            let class = class_of(len);
            assert!(class >= len && class.is_multiple_of(4096), "{len} → {class}");
            assert!(len < CLASS_MIN_BYTES || class - len <= len / 4, "{len} → {class}");
            assert_eq!(class_of(class), class, "a class is its own class");
        }
    }

    #[test]
    fn buffer_is_reused_after_its_last_slice_is_dropped() -> io::Result<()> {
        let pool = Pool::bounded(1 << 20);
        let mut buffer = pool.take(100_000)?;
        buffer.as_mut_slice()[..3].copy_from_slice(b"abc");
        let address = buffer.as_ref().as_ptr();
        let bytes = buffer.freeze();
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(idle(&pool), 0);
        assert_eq!(&slice[..], b"bc");
        drop(slice);
        assert_eq!(idle(&pool), class_of(100_000));
        assert_eq!(pool.take(99_999)?.as_ref().as_ptr(), address, "used again");
        Ok(())
    }

    #[test]
    fn idle_memory_is_bounded() -> io::Result<()> {
        let pool = Pool::bounded(1 << 20);
        let many: Vec<Buffer> = (0..20).map(|_| pool.take(128 << 10)).collect::<Result<_, _>>()?;
        drop(many);
        assert_eq!(idle(&pool), 1 << 20);
        assert_eq!(pool.take(2 << 20)?.as_ref().len(), 2 << 20);
        assert_eq!(idle(&pool), 1 << 20, "too large to keep");
        Ok(())
    }
}
