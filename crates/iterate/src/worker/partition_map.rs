//! The partition map as a worker knows it: the worker that holds each bundle.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::dataflow::index::{BundleIx, Table, WorkerIx};
use crate::dataflow::plan::Plan;
use crate::protocol::records::Entry;

/// See the [module](self). Version and worker of an entry share a word, so that any thread may read and update it, and
/// the entry of the higher version is the larger number.
pub(crate) struct PartitionMap(Table<BundleIx, AtomicU64>);

impl PartitionMap {
    /// Creates a map in which no worker holds a bundle.
    pub fn new(plan: &Plan) -> Self {
        let nowhere = pack(Entry { worker: WorkerIx(u32::MAX), version: 0 });
        Self(plan.bundles().map(|_| AtomicU64::new(nowhere)).collect())
    }

    pub fn get(&self, bundle: BundleIx) -> Entry {
        let entry = self.0[bundle].load(Ordering::Acquire);
        Entry { worker: WorkerIx(entry as u32), version: (entry >> 32) as u32 }
    }

    /// Updates an entry. An older version is ignored.
    pub fn update(&self, bundle: BundleIx, entry: Entry) {
        self.0[bundle].fetch_max(pack(entry), Ordering::AcqRel);
    }

    /// Sets an entry regardless of its version.
    pub fn reset(&self, bundle: BundleIx, entry: Entry) {
        self.0[bundle].store(pack(entry), Ordering::Release);
    }
}

fn pack(entry: Entry) -> u64 {
    u64::from(entry.version) << 32 | u64::from(entry.worker.0)
}
