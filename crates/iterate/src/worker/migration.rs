//! The bundles of a worker: those that are here, on their way here, or on their way to another worker.

use std::collections::BTreeMap;

use crate::dataflow::index::BundleIx;
use crate::protocol::records::{Arrival, Entry};

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Migration {
    /// Bundles on this worker.
    resident: Vec<BundleIx>,
    /// Arrivals for bundles that have not arrived yet.
    early_arrivals: BTreeMap<BundleIx, Vec<Arrival>>,
    /// Bundles that must leave, with their new map entries.
    leaving: BTreeMap<BundleIx, Entry>,
    /// Bundles that left and whose arrival is not confirmed: version and epoch.
    in_flight: BTreeMap<BundleIx, (u32, u64)>,
}

impl Migration {
    /// Forgets everything, as the job restarts. Returns the bundles that were here.
    pub fn restart(&mut self) -> Vec<BundleIx> {
        std::mem::take(self).resident
    }

    /// Returns the bundles on this worker.
    pub fn resident(&self) -> &[BundleIx] {
        &self.resident
    }

    /// Keeps an arrival until its bundle is here.
    pub fn keep(&mut self, bundle: BundleIx, arrival: Arrival) {
        self.early_arrivals.entry(bundle).or_default().push(arrival);
    }

    /// Returns the number of arrivals that wait for a bundle.
    pub fn kept(&self, bundle: BundleIx) -> usize {
        self.early_arrivals.get(&bundle).map_or(0, Vec::len)
    }

    /// Adds a bundle that is now here, and returns the arrivals that came before it.
    pub fn arrive(&mut self, bundle: BundleIx) -> Vec<Arrival> {
        if !self.resident.contains(&bundle) {
            self.resident.push(bundle);
        }
        self.early_arrivals.remove(&bundle).unwrap_or_default()
    }

    /// Requests that a bundle leaves.
    pub fn request(&mut self, bundle: BundleIx, to: Entry) {
        self.leaving.insert(bundle, to);
    }

    /// Takes the request that a bundle leaves, if any.
    pub fn take_request(&mut self, bundle: BundleIx) -> Option<Entry> {
        self.leaving.remove(&bundle)
    }

    /// Records that a bundle left in some epoch.
    pub fn depart(&mut self, bundle: BundleIx, version: u32, epoch: u64) {
        self.resident.retain(|&ix| ix != bundle);
        self.in_flight.insert(bundle, (version, epoch));
    }

    /// Records that another worker confirmed a bundle's arrival.
    pub fn confirm(&mut self, bundle: BundleIx, version: u32) {
        if self.in_flight.get(&bundle).is_some_and(|moved| moved.0 <= version) {
            self.in_flight.remove(&bundle);
        }
    }

    /// Returns the epochs of the bundles whose arrival is not confirmed.
    pub fn epochs_in_flight(&self) -> impl Iterator<Item = u64> {
        self.in_flight.values().map(|&(_, epoch)| epoch)
    }
}
