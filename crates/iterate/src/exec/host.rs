//! The interface between a bundle and the worker that runs it.

use crate::dataflow::index::{BundleIx, StatementIx, WorkerIx};
use crate::dataflow::plan::Instance;
use crate::dataflow::routes::{Routes, Sent};
use crate::exec::bundle::Bundle;
use crate::protocol::records::Signal;

/// The worker that runs a bundle, on one of its threads.
pub(crate) trait Host {
    type Board: SignalBoard;
    type Outbox: Outbox;
    type Meter: Meter;

    fn board(&self) -> &Self::Board;
    fn outbox(&mut self) -> &mut Self::Outbox;
    fn meter(&mut self) -> &mut Self::Meter;
    /// Records that a signal of an outermost loop was computed here.
    fn record_iteration(&mut self);
    /// Saves a bundle that is about to pass the signal of its epoch.
    fn save(&mut self, bundle: &mut Bundle);
    /// Stores an observed value for the next report.
    fn observe(&mut self, statement: StatementIx, epoch: u64, value: f64);
    /// Returns whether the bundle should yield before its next task.
    fn should_yield(&self) -> bool;
}

/// The signals of all workers.
pub(crate) trait SignalBoard {
    /// Returns the signal that ends an epoch, if it is known.
    fn signal(&self, epoch: u64) -> Option<Signal>;
    /// Returns whether a signal may be published, given the epochs that each worker has passed.
    fn may_publish(&self, epoch: u64, passed: &[(WorkerIx, u64)]) -> bool;
    /// Returns whether to take a snapshot at the signal about to be published. `since_snapshot` is the number of
    /// iterations since the last snapshot.
    fn wants_snapshot(&self, since_snapshot: u32) -> bool;
    /// Publishes a signal to all workers.
    fn publish(&self, epoch: u64, signal: Signal);
}

/// A sender of scatter tasks' chunks to other bundles.
pub(crate) trait Outbox {
    /// Takes an empty buffer for one task's chunks.
    fn buffer(&mut self) -> Sent;
    /// Sends chunks to the bundles on the routes, and keeps the buffer for another task.
    fn send(&mut self, gather: Instance, source: u32, routes: &Routes, sent: Sent);
}

/// A source of measured or simulated times of turns and tasks.
pub(crate) trait Meter {
    /// Called before a task. [`Meter::after`] follows unless its kernel panics.
    fn before(&mut self, bundle: BundleIx, statement: StatementIx);
    /// Called after a task; `bytes` returns the number of bytes that it may have accessed.
    fn after(
        &mut self,
        bundle: BundleIx,
        statement: StatementIx,
        iteration: u64,
        bytes: impl FnOnce() -> u64,
    );
    /// Called before a turn.
    fn turn_begins(&mut self);
    /// Called after a turn; returns its core time.
    fn turn_ends(&mut self) -> u64;
    /// Returns the time since an arbitrary origin.
    fn now_ns(&self) -> u64;
}
