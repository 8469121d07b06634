//! Buffers for reads, handed out as `Bytes` and used again.
//!
//! The first touch of a fresh page costs more than reading into it, so a buffer
//! comes back when the last `Bytes` on it is dropped, on whichever thread that
//! is. Sizes are rounded up to few classes, so that one fits the next read too.
//! What lies idle is bounded; beyond the bound a buffer goes back to the kernel.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::platform::Pages;

/// Idle bytes that a pool keeps at most.
const IDLE_MAX_BYTES: usize = 128 << 20;
/// Smallest buffer.
const CLASS_MIN_BYTES: usize = 64 << 10;

/// A bounded store of idle buffers.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    idle_max_bytes: usize,
}

#[derive(Default)]
struct Idle {
    by_class: BTreeMap<usize, Vec<Pages>>,
    bytes: usize,
}

/// A buffer that is being filled; page-aligned.
pub(crate) struct Buffer {
    /// Taken only when it goes back.
    pages: Option<Pages>,
    pool: Arc<Pool>,
}

impl Pool {
    pub(crate) fn new() -> Arc<Pool> {
        Pool::bounded(IDLE_MAX_BYTES)
    }

    fn bounded(idle_max_bytes: usize) -> Arc<Pool> {
        Arc::new(Pool { idle: Mutex::default(), idle_max_bytes })
    }

    /// A buffer of at least `len` bytes; what is in it is left over from before.
    ///
    /// # Errors
    /// Where the kernel has no memory for it.
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
            drop(idle); // unmapping takes long: not under the lock
            drop(pages);
        }
    }
}

/// Four classes to each doubling: at most a quarter of a buffer is of no use.
fn class_of(len: usize) -> usize {
    let len = len.max(CLASS_MIN_BYTES);
    let step = (len.next_power_of_two() / 8).max(CLASS_MIN_BYTES / 4);
    len.div_ceil(step) * step
}

impl Buffer {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.pages.as_mut().map_or(&mut [], Pages::as_mut_slice)
    }

    /// No more writing: the whole buffer, to be sliced.
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
    fn classes_hold_and_waste_little() {
        for len in (1..40 << 20).step_by(99_991) {
            let class = class_of(len);
            assert!(class >= len && class.is_multiple_of(4096), "{len} → {class}");
            assert!(len < CLASS_MIN_BYTES || class - len <= len / 4, "{len} → {class}");
            assert_eq!(class_of(class), class, "a class is its own class");
        }
    }

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_goes() -> io::Result<()> {
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
    fn what_lies_idle_is_bounded() -> io::Result<()> {
        let pool = Pool::bounded(1 << 20);
        let many: Vec<Buffer> = (0..20).map(|_| pool.take(128 << 10)).collect::<Result<_, _>>()?;
        drop(many);
        assert_eq!(idle(&pool), 1 << 20);
        assert_eq!(pool.take(2 << 20)?.as_ref().len(), 2 << 20);
        assert_eq!(idle(&pool), 1 << 20, "too large to keep");
        Ok(())
    }
}
