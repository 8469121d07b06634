//! The memory of a job by what holds it, for its trace.
//!
//! Operators reserve memory in the session's pool, on the thread of their compute monotask. So a reservation belongs to the
//! stage that the thread works for when it is registered. Exchanges and input buffers name their stage themselves.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use datafusion::common::Result;
use pellucid_trace::{HeldMemory, Peak, Spill, StageIx};

use crate::sync::lock;

/// Batches between two stages.
pub(crate) const EXCHANGE: &str = HeldMemory::EXCHANGE;
/// Input that was read for multitasks, before it is decoded.
pub(crate) const BUFFERS: &str = "buffers";

/// The memory that a job holds, and held at its peak.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: Held,
    bytes: u64,
    peak_bytes: u64,
    /// The stage that grew to the peak, and what was held then.
    at_peak: Option<(StageIx, Held)>,
    /// Bytes of exchanges in memory and on disks, now and at most.
    exchange_bytes: u64,
    max_exchange_bytes: u64,
    spill: Spill,
    /// In the order in which they were created.
    movable: Vec<Weak<dyn Movable>>,
}

/// Batches that may go to disk when operators need their memory.
pub(crate) trait Movable: Send + Sync {
    /// Moves batches of at least `bytes` to disk, if there are as many. Returns the bytes of memory that they took.
    ///
    /// # Errors
    /// Returns an error if no file can be created, or a batch cannot be encoded.
    fn move_to_disk(&self, bytes: u64) -> Result<u64>;
}

impl State {
    fn grow_exchange(&mut self, bytes: u64) {
        self.exchange_bytes += bytes;
        self.max_exchange_bytes = self.max_exchange_bytes.max(self.exchange_bytes);
    }
}

/// Bytes of each kind in each stage.
type Held = BTreeMap<(StageIx, &'static str), u64>;

impl Usage {
    pub(crate) fn grow(&self, stage: StageIx, what: &'static str, bytes: u64) {
        let mut state = lock(&self.0);
        *state.held.entry((stage, what)).or_default() += bytes;
        state.bytes += bytes;
        if what == EXCHANGE {
            state.grow_exchange(bytes);
        }
        if state.bytes > state.peak_bytes {
            state.peak_bytes = state.bytes;
            state.at_peak = Some((stage, state.held.clone()));
        }
    }

    pub(crate) fn shrink(&self, stage: StageIx, what: &'static str, bytes: u64) {
        let mut state = lock(&self.0);
        if let Some(held) = state.held.get_mut(&(stage, what)) {
            *held = held.saturating_sub(bytes);
        }
        state.bytes = state.bytes.saturating_sub(bytes);
        if what == EXCHANGE {
            state.exchange_bytes = state.exchange_bytes.saturating_sub(bytes);
        }
    }

    /// Counts batches that are on disk and would take `bytes` of memory.
    pub(crate) fn put_on_disk(&self, bytes: u64) {
        lock(&self.0).grow_exchange(bytes);
    }

    /// Counts that such batches are gone.
    pub(crate) fn gone_from_disk(&self, bytes: u64) {
        let mut state = lock(&self.0);
        state.exchange_bytes = state.exchange_bytes.saturating_sub(bytes);
    }

    /// Adds batches that may go to disk.
    pub(crate) fn may_move(&self, batches: Weak<dyn Movable>) {
        lock(&self.0).movable.push(batches);
    }

    /// Moves batches of about `bytes` to disk, the newest first. Returns false if there are none.
    fn make_room(&self, bytes: u64) -> Result<bool> {
        let movable = {
            let state = &mut lock(&self.0);
            state.movable.retain(|batches| batches.strong_count() > 0);
            state.movable.clone()
        };
        let mut moved = 0;
        for batches in movable.iter().rev().filter_map(Weak::upgrade) {
            if moved < bytes {
                moved += batches.move_to_disk(bytes - moved)?;
            }
        }
        Ok(moved > 0)
    }

    /// Counts a monotask that wrote or read batches.
    pub(crate) fn spilled(&self, write_bytes: u64, read_bytes: u64, took: Duration) {
        let spill = &mut lock(&self.0).spill;
        spill.write_bytes += write_bytes;
        spill.read_bytes += read_bytes;
        spill.service_ns += took.as_nanos() as u64;
    }

    /// Counts batches that a core read from the page cache.
    pub(crate) fn read_cached(&self, bytes: u64) {
        lock(&self.0).spill.cached_bytes += bytes;
    }

    /// Counts core time of encoding, decoding, or reading batches.
    pub(crate) fn converted(&self, core_ns: u64) {
        lock(&self.0).spill.core_ns += core_ns;
    }

    /// Returns what did not fit so far; `None` if all did.
    pub(crate) fn spill(&self) -> Option<Spill> {
        let state = lock(&self.0);
        let exchanges = state.max_exchange_bytes / 4 * HeldMemory::EXCHANGE_QUARTERS;
        let sufficient = (exchanges * 5).div_ceil(HeldMemory::EXCHANGE_FIFTHS).max(state.peak_bytes);
        let spill = Spill { sufficient_memory_bytes: sufficient, ..state.spill };
        (spill.write_bytes > 0).then_some(spill)
    }

    /// Returns the peak so far; `None` if nothing was held.
    pub(crate) fn peak(&self) -> Option<Peak> {
        let state = lock(&self.0);
        let (stage, held) = state.at_peak.as_ref()?;
        let kept = held.iter().filter(|(_, bytes)| **bytes > 0 && **bytes >= state.peak_bytes / 100);
        let one = |(&(stage, what), &bytes): (&(StageIx, &'static str), &u64)| HeldMemory {
            stage,
            what: what.to_string(),
            bytes,
        };
        let mut held_by: Vec<HeldMemory> = kept.map(one).collect();
        held_by.sort_by_key(|held| std::cmp::Reverse(held.bytes));
        Some(Peak { bytes: state.peak_bytes, stage: *stage, held_by })
    }
}

/// The holder of a reservation.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    usage: Arc<Usage>,
    stage: StageIx,
    what: &'static str,
}

thread_local! {
    /// The job and the stage that this thread computes for.
    static CURRENT: RefCell<Option<(Arc<Usage>, StageIx)>> = const { RefCell::new(None) };
}

impl Holder {
    /// Returns the holder of a reservation of `consumer` on this thread; `None` outside of compute monotasks.
    pub(crate) fn current(consumer: &str) -> Option<Self> {
        let current = CURRENT.with_borrow(Clone::clone);
        current.map(|(usage, stage)| Self { usage, stage, what: kind(consumer) })
    }

    /// Moves batches of about `bytes` of the same job to disk. Returns false if there are none.
    ///
    /// # Errors
    /// Returns an error if no file can be created, or a batch cannot be encoded.
    pub(crate) fn make_room(&self, bytes: usize) -> Result<bool> {
        self.usage.make_room(bytes as u64)
    }

    pub(crate) fn grow(&self, bytes: usize) {
        self.usage.grow(self.stage, self.what, bytes as u64);
    }

    pub(crate) fn shrink(&self, bytes: usize) {
        self.usage.shrink(self.stage, self.what, bytes as u64);
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in stage {}", self.what, self.stage)
    }
}

/// Runs `work` for a stage of a job.
pub(crate) fn computing<T>(usage: &Arc<Usage>, stage: StageIx, work: impl FnOnce() -> T) -> T {
    /// Forgets the stage, also when `work` panics.
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            CURRENT.set(None);
        }
    }
    CURRENT.set(Some((Arc::clone(usage), stage)));
    let _forget = Forget;
    work()
}

/// Returns what a reservation holds, by the name that DataFusion gives it.
fn kind(consumer: &str) -> &'static str {
    let is = |names: &[&str]| names.iter().any(|name| consumer.contains(name));
    if is(&["Join", "SMJ"]) {
        "build side"
    } else if is(&["Aggregate"]) {
        "groups"
    } else if is(&["Sort", "TopK"]) {
        "sort"
    } else if is(&["Window"]) {
        "window"
    } else {
        "other"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_says_who_held_it() {
        let usage = Arc::new(Usage::default());
        assert_eq!(usage.peak(), None);
        usage.grow(0, EXCHANGE, 1000);
        let holder = computing(&usage, 1, || Holder::current("GroupedHashAggregateStream[3] (sum)")).unwrap();
        assert!(Holder::current("ExternalSorter[0]").is_none(), "outside of monotasks");
        usage.grow(2, BUFFERS, 5);
        holder.grow(3000);
        let held = |stage, what: &str, bytes| HeldMemory { stage, what: what.to_string(), bytes };
        let held_by = vec![held(1, "groups", 3000), held(0, "exchange", 1000)];
        let peak = Some(Peak { bytes: 4005, stage: 1, held_by });
        assert_eq!(usage.peak(), peak);
        usage.shrink(0, EXCHANGE, 1000);
        usage.grow(2, BUFFERS, 1000);
        assert_eq!(usage.peak(), peak, "not more than before");
        holder.shrink(3000);
        usage.grow(2, BUFFERS, 8000);
        let held_by = vec![held(2, "buffers", 9005)];
        assert_eq!(usage.peak(), Some(Peak { bytes: 9005, stage: 2, held_by }));
    }

    #[test]
    fn sufficient_memory_has_room_for_what_is_on_disk() {
        let usage = Usage::default();
        usage.grow(0, EXCHANGE, 1000);
        assert_eq!(usage.spill(), None);
        usage.put_on_disk(3000);
        usage.spilled(700, 0, Duration::from_nanos(5));
        usage.shrink(0, EXCHANGE, 1000);
        usage.gone_from_disk(3000);
        usage.spilled(0, 700, Duration::from_nanos(6));
        usage.put_on_disk(100);
        usage.converted(9);
        usage.read_cached(50);
        let spill = Spill {
            write_bytes: 700,
            read_bytes: 700,
            cached_bytes: 50,
            service_ns: 11,
            core_ns: 9,
            sufficient_memory_bytes: 12_500,
        };
        assert_eq!(usage.spill(), Some(spill));
    }
}
