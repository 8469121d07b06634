//! A worker's part in signals: it publishes those that its bundles compute, and reports the epochs that they have passed.
//!
//! A signal is published only if every bundle of the job is less than [`WINDOW`] epochs behind it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::dataflow::index::WorkerIx;
use crate::exec::host::SignalBoard;
use crate::protocol::limits::{EPOCH_REPORT_INTERVAL, WINDOW};
use crate::protocol::message::{Message, Peer};
use crate::protocol::records::{Arrival, Signal};
use crate::sync::lock;
use crate::worker::state::Worker;

/// How far the job has come, as a worker knows it.
#[derive(Default)]
pub(crate) struct Window {
    /// The epoch that all bundles on this worker have passed, as last reported.
    reported_epoch: AtomicU64,
    /// Signals of earlier epochs may be published.
    publish_limit: AtomicU64,
}

impl Window {
    /// Forgets the passed epochs. Call only while no turn runs.
    pub fn reset(&self) {
        self.reported_epoch.store(0, Ordering::Release);
        self.publish_limit.store(0, Ordering::Release);
    }
}

impl SignalBoard for Worker {
    fn signal(&self, epoch: u64) -> Option<Signal> {
        self.signals.get(epoch)
    }

    fn may_publish(&self, epoch: u64, passed: &[(WorkerIx, u64)]) -> bool {
        if epoch < self.window.publish_limit.load(Ordering::Acquire) {
            return true;
        }
        let mut behind = u64::MAX;
        let mut last = None;
        for bundle in self.plan.bundles() {
            let worker = self.map.get(bundle).worker;
            if last != Some(worker) {
                let reported = passed.iter().find(|p| p.0 == worker).map_or(0, |p| p.1);
                behind = behind.min(reported);
                last = Some(worker);
            }
        }
        let publish_limit = behind.saturating_add(WINDOW);
        self.window.publish_limit.fetch_max(publish_limit, Ordering::AcqRel);
        epoch < publish_limit
    }

    fn wants_snapshot(&self, since_snapshot: u32) -> bool {
        let every = self.options.snapshot_every;
        let due = every > 0 && since_snapshot >= every;
        let requested = self.snapshot_requested.load(Ordering::Acquire);
        self.store.as_ref().is_some_and(|store| requested || due && !store.is_busy())
    }

    fn publish(&self, epoch: u64, signal: Signal) {
        if signal.snapshot {
            self.snapshot_requested.store(false, Ordering::Release);
        }
        self.signals.insert(epoch, signal);
        let members = self.members();
        for &worker in members.iter().filter(|&&worker| worker != self.rank()) {
            self.send(Peer::Worker(worker), Message::Signals(vec![(epoch, signal)]));
        }
        if self.run_queues.len() > 1 {
            self.wake_all();
        }
    }
}

impl Worker {
    /// Reports to the bundles that compute signals the epoch that all bundles here have passed, once per
    /// [`EPOCH_REPORT_INTERVAL`] epochs. `again` repeats the last report.
    pub fn report_passed(&self, again: bool) {
        let control = lock(&self.control);
        let resident = control
            .migration
            .resident()
            .iter()
            .map(|&bundle| self.slot(bundle).epoch.load(Ordering::Acquire));
        let Some(behind) = resident.chain(control.migration.epochs_in_flight()).min() else { return };
        let behind = behind / EPOCH_REPORT_INTERVAL * EPOCH_REPORT_INTERVAL;
        let before = self.window.reported_epoch.fetch_max(behind, Ordering::AcqRel);
        if before < behind || again {
            let epoch = before.max(behind);
            drop(control);
            for bundle in self.plan.signal_bundles() {
                self.route(bundle, Arrival::Passed { worker: self.rank(), epoch });
            }
        }
    }
}
