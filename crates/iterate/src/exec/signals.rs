//! The signals known to a worker (paper §4.2).
//!
//! A signal is identified by its epoch. Only a window of signals is kept: a signal is published only after
//! every bundle of the job has passed the signal `WINDOW` epochs earlier. Old slots are therefore free,
//! and a bundle that runs ahead (a loop counter, say) is bounded, as are the chunks queued for slower bundles.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::limits::MAX_LEAD;
use crate::protocol::records::Signal;

const SLOTS: usize = MAX_LEAD as usize;

/// Signals by epoch, which any thread may read and write.
pub(crate) struct Signals {
    /// Epoch + 1, and two bits for value and snapshot; 0 if empty.
    slots: Box<[AtomicU64]>,
    /// Number of inserted signals; a change tells a thread to look again.
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

    /// Adds a signal. Adding a known signal again has no effect.
    pub fn insert(&self, epoch: u64, signal: Signal) {
        let new = (epoch + 1) << 2 | u64::from(signal.snapshot) << 1 | u64::from(signal.value);
        self.slots[epoch as usize % SLOTS].fetch_max(new, Ordering::AcqRel);
        self.published.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns a counter that changes whenever a signal is added.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Returns all known signals, for a worker that joins or takes over a bundle.
    pub fn known(&self) -> Vec<(u64, Signal)> {
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::Acquire)).filter(|&slot| slot != 0);
        slots
            .map(|slot| ((slot >> 2) - 1, Signal { value: slot & 1 == 1, snapshot: slot & 2 == 2 }))
            .collect()
    }

    /// Removes all signals. Call only while no turn runs.
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
    fn late_and_repeated_signals_are_ignored() {
        let signals = Signals::new();
        let yes = Signal { value: true, snapshot: false };
        signals.insert(SLOTS as u64 + 3, yes);
        signals.insert(3, Signal { value: false, snapshot: true });
        assert_eq!(signals.get(3), None);
        assert_eq!(signals.get(SLOTS as u64 + 3), Some(yes));
        assert_eq!(signals.known(), [(SLOTS as u64 + 3, yes)]);
    }
}
