//! A worker thread, which takes ready bundles and runs their turns.
//!
//! [`Thread::work`] runs one turn. A live driver calls it in a loop (`threads.rs`); the simulator calls it at
//! chosen virtual times. Times come from a [`Meter`], so that a simulated thread can charge arbitrary costs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crate::dataflow::index::{BundleIx, StatementIx};
use crate::error::JobError;
use crate::exec::bundle::{Bundle, Turn};
use crate::exec::host::{Host, Meter};
use crate::exec::slot::Slot;
use crate::protocol::limits::EPOCH_REPORT_INTERVAL;
use crate::protocol::message::{Message, Peer};
use crate::protocol::records::Arrival;
use crate::sync::lock;
use crate::worker::outbox::ThreadOutbox;
use crate::worker::state::Worker;

/// See the [module](self).
pub(crate) struct Thread<'w, M> {
    worker: &'w Worker,
    index: usize,
    pub meter: M,
    outbox: ThreadOutbox<'w>,
    /// Bundles that wait for a signal, and the signal count when they were last checked.
    waiting: Vec<BundleIx>,
    published: u64,
    arrivals: Vec<Arrival>,
    slot: Option<&'w Slot>,
}

impl<'w, M: Meter> Thread<'w, M> {
    pub fn new(worker: &'w Worker, index: usize, meter: M) -> Self {
        Self {
            worker,
            index,
            meter,
            outbox: ThreadOutbox::new(worker),
            waiting: Vec::new(),
            published: 0,
            arrivals: Vec::new(),
            slot: None,
        }
    }

    /// Runs a turn of one ready bundle, stealing from another thread if this one has none. Returns false if no
    /// bundle is ready.
    pub fn work(&mut self) -> bool {
        let published = self.worker.signals.published();
        if published != self.published {
            self.published = published;
            while let Some(bundle) = self.waiting.pop() {
                self.worker.notify(bundle);
            }
        }
        let Some(bundle) = self.take() else { return false };
        self.give_turn(bundle);
        true
    }

    /// Returns whether [`Thread::work`] would probably find a ready bundle. This is a cheap check.
    pub fn has_work(&self) -> bool {
        self.worker.signals.published() != self.published && !self.waiting.is_empty()
            || self.worker.run_queues.iter().any(|queue| !queue.is_empty())
    }

    /// Clears the waiting bundles. After a rollback every bundle is queued again.
    pub fn clear_waiting(&mut self) {
        self.waiting.clear();
    }

    fn take(&self) -> Option<BundleIx> {
        let run_queues = &self.worker.run_queues;
        if let Some(bundle) = run_queues[self.index].pop(true) {
            return Some(bundle);
        }
        let others = (1..run_queues.len()).map(|step| (self.index + step) % run_queues.len());
        let bundle = others.into_iter().find_map(|other| run_queues[other].pop(false))?;
        self.worker.slot(bundle).home.store(self.index as u32, Ordering::Relaxed);
        Some(bundle)
    }

    fn give_turn(&mut self, ix: BundleIx) {
        let worker = self.worker;
        let slot = worker.slot(ix);
        let mut guard = slot.begin();
        let mut again = false;
        // None: the bundle left after it was queued.
        if let Some(mut bundle) = guard.take() {
            match self.run(slot, &mut bundle) {
                Ok(Some(turn)) => {
                    again = turn == Turn::More;
                    *guard = self.finish(slot, bundle, turn);
                }
                // It cannot be loaded; the controller will restart the job from an earlier snapshot.
                Ok(None) => *guard = Some(bundle),
                Err(error) => {
                    *guard = Some(bundle);
                    worker.fail(error);
                }
            }
        }
        drop(guard);
        if slot.end(again) {
            worker.enqueue(ix, slot);
        }
    }

    /// Receives arrivals and runs tasks. Returns `None` if the bundle's snapshot is damaged.
    fn run(&mut self, slot: &'w Slot, bundle: &mut Bundle) -> Result<Option<Turn>, JobError> {
        let worker = self.worker;
        if bundle.unloaded && !worker.load(bundle)? {
            return Ok(None);
        }
        self.meter.turn_begins();
        let mut arrivals = std::mem::take(&mut self.arrivals);
        slot.collect(&mut arrivals);
        for arrival in arrivals.drain(..) {
            bundle.receive(&worker.plan, arrival)?;
        }
        self.arrivals = arrivals;
        self.slot = Some(slot);
        let (before, tasks_before) = (bundle.position.epoch, bundle.tasks);
        let done = catch_unwind(AssertUnwindSafe(|| bundle.turn(&worker.plan, self)));
        let busy_ns = self.meter.turn_ends();
        slot.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        let queue = &worker.run_queues[self.index];
        queue.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        queue.tasks.fetch_add(bundle.tasks - tasks_before, Ordering::Relaxed);
        let turn = done.unwrap_or_else(|panic| Err(bundle.panicked(&worker.plan, &*panic)))?;
        slot.epoch.store(bundle.position.epoch, Ordering::Release);
        slot.iteration.store(bundle.iteration, Ordering::Release);
        slot.tasks.store(bundle.tasks, Ordering::Release);
        if before / EPOCH_REPORT_INTERVAL != bundle.position.epoch / EPOCH_REPORT_INTERVAL {
            worker.report_passed(false);
        }
        Ok(Some(turn))
    }

    /// Handles the end of a turn. Returns the bundle unless it left this worker.
    fn finish(&mut self, slot: &Slot, mut bundle: Box<Bundle>, turn: Turn) -> Option<Box<Bundle>> {
        match turn {
            Turn::Signal => self.waiting.push(bundle.ix),
            Turn::End if !bundle.end_reported => {
                bundle.end_reported = true;
                self.worker.send(Peer::Controller, Message::Ended { bundle: bundle.ix });
            }
            Turn::End | Turn::Chunks | Turn::Window | Turn::More => {}
        }
        if slot.migration_requested.load(Ordering::Acquire) {
            return self.worker.depart(slot, bundle);
        }
        Some(bundle)
    }
}

impl<'w, M: Meter> Host for Thread<'w, M> {
    type Board = Worker;
    type Outbox = ThreadOutbox<'w>;
    type Meter = M;

    fn board(&self) -> &Worker {
        self.worker
    }

    fn outbox(&mut self) -> &mut ThreadOutbox<'w> {
        &mut self.outbox
    }

    fn meter(&mut self) -> &mut M {
        &mut self.meter
    }

    fn record_iteration(&mut self) {
        lock(&self.worker.iterations).record(self.meter.now_ns(), self.worker.usage());
    }

    fn save(&mut self, bundle: &mut Bundle) {
        self.worker.save(bundle);
    }

    fn observe(&mut self, statement: StatementIx, epoch: u64, value: f64) {
        lock(&self.worker.observed).insert(statement, (epoch, value.to_bits()));
    }

    #[inline]
    fn should_yield(&self) -> bool {
        self.worker.gate.seems_closed()
            || self.slot.is_some_and(|slot| slot.migration_requested.load(Ordering::Relaxed))
    }
}
