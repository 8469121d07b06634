//! The workers of the job as one of them knows them, and how workers leave it.
//!
//! Others may still send to a worker that leaves until they learn of it. It therefore forwards messages, *drains*, until
//! all of them have told it that they send no more.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use crate::dataflow::index::WorkerIx;

/// The member list, with its version. Tasks read it.
#[derive(Default)]
pub(crate) struct Members(RwLock<(u32, Arc<Vec<WorkerIx>>)>);

impl Members {
    /// Returns the workers in the job.
    pub fn get(&self) -> Arc<Vec<WorkerIx>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Replaces the list by a newer one and returns the old one, or `None` if `members` is outdated.
    pub fn replace(&self, version: u32, members: Vec<WorkerIx>) -> Option<Arc<Vec<WorkerIx>>> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.0 > version {
            return None;
        }
        known.0 = version;
        Some(std::mem::replace(&mut known.1, Arc::new(members)))
    }
}

/// Departures of workers.
#[derive(Default)]
pub(crate) struct Membership {
    /// Workers that left the job and were not told yet that this one sends no more.
    leavers: Vec<WorkerIx>,
    /// Workers that have told this one that they send no more.
    drained: BTreeSet<WorkerIx>,
    /// Once this worker has left: the workers that it waits for, and the number of reports since then.
    drain: Option<(BTreeSet<WorkerIx>, u32)>,
}

impl Membership {
    /// Adds workers that left the job.
    pub fn add_leavers(&mut self, workers: impl Iterator<Item = WorkerIx>) {
        self.leavers.extend(workers);
    }

    /// Takes the workers that left and hold no bundle, so that this one sends them no more.
    pub fn take_leavers(&mut self, holds: impl Fn(WorkerIx) -> bool) -> Vec<WorkerIx> {
        let (waiting, done) =
            std::mem::take(&mut self.leavers).into_iter().partition(|&worker| holds(worker));
        self.leavers = waiting;
        done
    }

    /// Starts draining this worker, which waits for `members`.
    pub fn start_drain(&mut self, members: Vec<WorkerIx>) {
        self.drain = Some((members.into_iter().collect(), 0));
    }

    /// Records that a worker sends no more.
    pub fn drained_by(&mut self, worker: WorkerIx) {
        self.drained.insert(worker);
    }

    /// Returns whether this worker has left, and no other sends to it.
    pub fn is_drained(&self) -> bool {
        self.drain.as_ref().is_some_and(|(members, _)| members.is_subset(&self.drained))
    }

    /// Counts a report. Returns the number since this worker began to drain, or `None` if it does not.
    pub fn count_report(&mut self) -> Option<u32> {
        let (_, reports) = self.drain.as_mut()?;
        *reports += 1;
        Some(*reports)
    }
}
