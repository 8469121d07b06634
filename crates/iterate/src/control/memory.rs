//! Placement under memory limits (§3.3).
//!
//! Sizes are those reported by workers, since they are known only after loading. The initial placement
//! therefore goes by numbers of partitions; bundles that exceed a worker's limit move as soon as their sizes
//! are reported. A worker without a limit has room for everything.

use std::collections::BTreeMap;

use crate::control::balance::Move;
use crate::dataflow::plan::BundleIx;
use crate::error::JobError;
use crate::protocol::records::{Entry, Report};

/// Known sizes of bundles and limits of workers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    limits: BTreeMap<u32, u64>,
    sizes: BTreeMap<BundleIx, u64>,
}

/// Free memory by worker, while moves are tried.
pub(crate) struct Room<'m> {
    memory: &'m Memory,
    /// Number and total size of bundles, by worker.
    held: BTreeMap<u32, (usize, u64)>,
}

impl Memory {
    /// Updates sizes and limits from a report.
    pub fn report(&mut self, report: &Report) {
        if let Some(limit) = report.memory_bytes {
            self.limits.insert(report.worker, limit);
        }
        self.sizes.extend(report.bundles.iter().map(|&(bundle, _, size)| (bundle, size)));
    }

    /// Returns the room of some workers, with bundles placed according to the map.
    pub fn room(&self, map: &[Entry], workers: &[u32]) -> Room<'_> {
        let mut held: BTreeMap<u32, (usize, u64)> = workers.iter().map(|&worker| (worker, (0, 0))).collect();
        for (entry, bundle) in map.iter().zip(0..) {
            if let Some(held) = held.get_mut(&entry.worker) {
                *held = (held.0 + 1, held.1 + self.size(bundle));
            }
        }
        Room { memory: self, held }
    }

    fn size(&self, bundle: BundleIx) -> u64 {
        self.sizes.get(&bundle).copied().unwrap_or(0)
    }

    /// Chooses the bundles that must leave a worker to bring it within its limit, largest first.
    ///
    /// # Errors
    /// If they do not fit on the other workers.
    pub fn relieve(&self, from: u32, map: &[Entry], workers: &[u32]) -> Result<Vec<Move>, JobError> {
        if !self.limits.contains_key(&from) {
            return Ok(Vec::new());
        }
        let mut room = self.room(map, workers);
        let mut moves = Vec::new();
        let mut own: Vec<BundleIx> =
            (0..).zip(map).filter(|(_, entry)| entry.worker == from).map(|(bundle, _)| bundle).collect();
        own.sort_by_key(|&bundle| std::cmp::Reverse(self.size(bundle)));
        for bundle in own {
            if !room.is_over(from) {
                break;
            }
            let Some(to) = room.take(bundle, |worker| worker != from) else { continue };
            room.leave(bundle, from);
            moves.push(Move { bundle, from, to });
        }
        if room.is_over(from) { Err(self.too_small(workers)) } else { Ok(moves) }
    }

    /// Returns the error for insufficient memory, with sizes.
    pub fn too_small(&self, workers: &[u32]) -> JobError {
        let limits = workers.iter().filter_map(|worker| self.limits.get(worker));
        JobError::Memory { needed_bytes: self.sizes.values().sum(), available_bytes: limits.sum() }
    }
}

impl Room<'_> {
    fn is_over(&self, worker: u32) -> bool {
        let held = self.held.get(&worker).map_or(0, |held| held.1);
        self.memory.limits.get(&worker).is_some_and(|limit| held > *limit)
    }

    fn leave(&mut self, bundle: BundleIx, worker: u32) {
        if let Some(held) = self.held.get_mut(&worker) {
            *held = (held.0.saturating_sub(1), held.1.saturating_sub(self.memory.size(bundle)));
        }
    }

    /// Returns whether a worker has room for another bundle.
    pub fn fits(&self, bundle: BundleIx, worker: u32) -> bool {
        let held = self.held.get(&worker).map_or(0, |held| held.1);
        let limit = self.memory.limits.get(&worker);
        limit.is_none_or(|limit| held.saturating_add(self.memory.size(bundle)) <= *limit)
    }

    /// Places a bundle on the worker with the fewest bundles among those that satisfy `accepts` and have room.
    pub fn take(&mut self, bundle: BundleIx, accepts: impl Fn(u32) -> bool) -> Option<u32> {
        let candidates =
            self.held.iter().filter(|(worker, _)| accepts(**worker) && self.fits(bundle, **worker));
        let to = candidates.min_by_key(|(_, held)| **held).map(|(worker, _)| *worker)?;
        self.put(bundle, to);
        Some(to)
    }

    /// Places a bundle on a worker.
    pub fn put(&mut self, bundle: BundleIx, worker: u32) {
        let size = self.memory.size(bundle);
        if let Some(held) = self.held.get_mut(&worker) {
            *held = (held.0 + 1, held.1 + size);
        }
    }
}
