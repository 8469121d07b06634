//! Placement of bundles whose worker was lost or leaves the job (§3.3).
//!
//! A bundle goes to the worker with the fewest bundles, and of several to the one whose bundles are smallest. Sizes are
//! those that workers reported, since they are known only after loading.

use std::collections::BTreeMap;

use crate::dataflow::index::{BundleIx, Table, WorkerIx};
use crate::protocol::records::{Entry, Report};

/// Known sizes of bundles.
#[derive(Debug, Default)]
pub(crate) struct Sizes(BTreeMap<BundleIx, u64>);

impl Sizes {
    /// Updates the sizes from a report.
    pub fn report(&mut self, report: &Report) {
        self.0.extend(report.bundles.iter().map(|&(bundle, _, size)| (bundle, size)));
    }

    /// Returns the load of some workers, with bundles placed according to the map.
    pub fn held(&self, map: &Table<BundleIx, Entry>, workers: &[WorkerIx]) -> Held<'_> {
        let held = workers.iter().map(|&worker| (worker, (0, 0))).collect();
        let mut held = Held { sizes: self, held };
        for (bundle, entry) in map.entries() {
            held.put(bundle, entry.worker);
        }
        held
    }
}

/// The bundles that workers hold, while others are placed.
pub(crate) struct Held<'s> {
    sizes: &'s Sizes,
    /// Number and total size of bundles, by worker.
    held: BTreeMap<WorkerIx, (usize, u64)>,
}

impl Held<'_> {
    /// Places a bundle. Returns its worker, or `None` if there are no workers.
    pub fn place(&mut self, bundle: BundleIx) -> Option<WorkerIx> {
        let to = self.held.iter().min_by_key(|(_, held)| **held).map(|(worker, _)| *worker)?;
        self.put(bundle, to);
        Some(to)
    }

    fn put(&mut self, bundle: BundleIx, worker: WorkerIx) {
        if let Some(held) = self.held.get_mut(&worker) {
            *held = (held.0 + 1, held.1 + self.sizes.0.get(&bundle).copied().unwrap_or(0));
        }
    }
}
