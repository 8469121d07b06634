//! The samples of one thread, written by its signal handler.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of functions of a sample; those further out are left out.
const MAX_FRAMES: usize = 256;
/// Stands for the functions that are missing at the outer end of a stack. No code is at this address.
pub(super) const TRUNCATED: u64 = 1;
/// Stands for all functions of a sample that did not fit.
pub(super) const LOST: u64 = 2;

/// A buffer of fixed size. Only one thread and the signal handlers that interrupt it use it, so that relaxed
/// operations are enough.
pub(super) struct Buffer {
    /// Of each sample: operator and weight, number of addresses, addresses.
    words: Box<[AtomicU64]>,
    used: AtomicUsize,
    /// Weight of the samples that did not fit.
    lost: AtomicU64,
}

/// The end of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Address(u64),
    /// The outermost function has been returned.
    End,
    /// The caller is not known.
    Broken,
}

impl Buffer {
    pub fn new(words: usize) -> Buffer {
        // Zeroed memory is not touched, so that an unused buffer takes none.
        let words = Box::<[AtomicU64]>::new_zeroed_slice(words);
        // SAFETY: an atomic integer of zeros is valid.
        let words = unsafe { words.assume_init() };
        Buffer { words, used: AtomicUsize::new(0), lost: AtomicU64::new(0) }
    }

    /// Adds a sample, whose functions `next` returns from the innermost on. Async-signal-safe if `next` is.
    pub fn push(&self, operator: u32, weight: u32, mut next: impl FnMut() -> Next) {
        let at = self.used.load(Ordering::Relaxed);
        let Some(room) = self.words.len().checked_sub(at + 2).filter(|room| *room > 0) else {
            self.lost.fetch_add(u64::from(weight), Ordering::Relaxed);
            return;
        };
        let frames = &self.words[at + 2..];
        let mut length = 0;
        loop {
            let address = match next() {
                Next::End => break,
                Next::Address(address) if length + 1 < MAX_FRAMES => address,
                Next::Address(_) | Next::Broken => TRUNCATED,
            };
            if length == room {
                self.lost.fetch_add(u64::from(weight), Ordering::Relaxed);
                return;
            }
            frames[length].store(address, Ordering::Relaxed);
            length += 1;
            if address == TRUNCATED {
                break;
            }
        }
        self.words[at].store(u64::from(operator) << 32 | u64::from(weight), Ordering::Relaxed);
        self.words[at + 1].store(length as u64, Ordering::Relaxed);
        self.used.store(at + 2 + length, Ordering::Relaxed);
    }

    /// Takes all samples: the operator, the weight and the addresses, innermost first. Lost samples come last, with
    /// the operator `lost_in`.
    pub fn drain(&self, lost_in: u32, mut each: impl FnMut(u32, u64, Box<[u64]>)) {
        let used = self.used.load(Ordering::Relaxed);
        let word = |at: usize| self.words[at].load(Ordering::Relaxed);
        let mut at = 0;
        while at < used {
            let (head, length) = (word(at), word(at + 1) as usize);
            let frames = (at + 2..at + 2 + length).map(word).collect();
            each((head >> 32) as u32, head & u64::from(u32::MAX), frames);
            at += 2 + length;
        }
        self.used.store(0, Ordering::Relaxed);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            each(lost_in, lost, Box::new([LOST]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(buffer: &Buffer) -> Vec<(u32, u64, Vec<u64>)> {
        let mut all = Vec::new();
        buffer.drain(99, |operator, weight, frames| all.push((operator, weight, frames.into_vec())));
        all
    }

    /// Returns addresses from `from` to `to`, and then `end`.
    fn stack(from: u64, to: u64, end: Next) -> impl FnMut() -> Next {
        let mut addresses = from..=to;
        move || addresses.next().map_or(end, Next::Address)
    }

    #[test]
    fn samples_are_taken_once() {
        let buffer = Buffer::new(20);
        buffer.push(7, 1, stack(100, 102, Next::End));
        buffer.push(8, 3, stack(200, 200, Next::Broken));
        let expected = vec![(7, 1, vec![100, 101, 102]), (8, 3, vec![200, TRUNCATED])];
        assert_eq!(samples(&buffer), expected);
        assert!(samples(&buffer).is_empty());
    }

    #[test]
    fn samples_that_do_not_fit_are_counted() {
        let buffer = Buffer::new(8);
        buffer.push(1, 1, stack(100, 101, Next::End)); // 4 words
        buffer.push(2, 2, stack(200, 202, Next::End)); // 5 words
        buffer.push(3, 1, stack(300, 301, Next::End)); // 4 words
        buffer.push(4, 1, stack(400, 400, Next::End)); // no room at all
        assert_eq!(samples(&buffer), [(1, 1, vec![100, 101]), (3, 1, vec![300, 301]), (99, 3, vec![LOST])]);
        buffer.push(5, 1, stack(500, 500, Next::End));
        assert_eq!(samples(&buffer), [(5, 1, vec![500])], "a drained buffer has room again");
    }

    #[test]
    fn deep_stacks_are_truncated() {
        let buffer = Buffer::new(4096);
        buffer.push(1, 1, stack(1000, 9000, Next::End));
        let frames = &samples(&buffer)[0].2;
        assert_eq!((frames.len(), frames[0], frames[MAX_FRAMES - 1]), (MAX_FRAMES, 1000, TRUNCATED));
    }
}
