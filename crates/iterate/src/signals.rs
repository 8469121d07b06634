//! The signals that a worker knows (paper §4.2).
//!
//! A signal is known by its epoch. Only a window of them is kept: no signal is published before every
//! bundle of the job has passed the one [`WINDOW`] epochs earlier, so that old slots are free, what runs
//! ahead (a loop counter, say) stays bounded, and with it the chunks that wait for slower bundles.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many signals the fastest bundle may be ahead of the slowest.
pub(crate) const WINDOW: u64 = 64;

/// Workers tell the bundles that compute signals how far they are once in so many epochs.
pub(crate) const TOLD_EVERY: u64 = 16;

/// More than the window, so that what comes late never meets what comes early.
const SLOTS: usize = 4 * WINDOW as usize;

/// A boolean that control flow follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal {
    pub value: bool,
    /// Bundles are saved as they pass it.
    pub snapshot: bool,
}

/// Signals by epoch; written and read by any thread.
pub(crate) struct Signals {
    /// Epoch + 1 and two bits; 0: empty.
    slots: Box<[AtomicU64]>,
    /// Grows with every signal, so that a thread sees that there is something new.
    published: AtomicU64,
}

impl Signals {
    pub fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), published: AtomicU64::new(0) }
    }

    pub fn get(&self, epoch: u64) -> Option<Signal> {
        let slot = self.slots[epoch as usize % SLOTS].load(Ordering::Acquire);
        (slot >> 2 == epoch + 1).then_some(Signal { value: slot & 1 == 1, snapshot: slot & 2 == 2 })
    }

    /// Adds a signal; one that was told before changes nothing.
    pub fn insert(&self, epoch: u64, signal: Signal) {
        let new = (epoch + 1) << 2 | u64::from(signal.snapshot) << 1 | u64::from(signal.value);
        self.slots[epoch as usize % SLOTS].fetch_max(new, Ordering::AcqRel);
        self.published.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes whenever a signal was added.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// All that are known, for a worker that joins or takes over a bundle.
    pub fn known(&self) -> Vec<(u64, Signal)> {
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::Acquire)).filter(|&slot| slot != 0);
        slots
            .map(|slot| ((slot >> 2) - 1, Signal { value: slot & 1 == 1, snapshot: slot & 2 == 2 }))
            .collect()
    }

    /// Forgets all; only while nothing runs.
    pub fn clear(&self) {
        for slot in &self.slots {
            slot.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_repeated_signals_change_nothing() {
        let signals = Signals::new();
        let yes = Signal { value: true, snapshot: false };
        signals.insert(SLOTS as u64 + 3, yes);
        signals.insert(3, Signal { value: false, snapshot: true });
        assert_eq!(signals.get(3), None);
        assert_eq!(signals.get(SLOTS as u64 + 3), Some(yes));
        assert_eq!(signals.known(), [(SLOTS as u64 + 3, yes)]);
    }
}
