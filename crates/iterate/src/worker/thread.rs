//! A worker thread, which takes ready bundles and runs their turns.
//!
//! [`Thread::work`] runs one turn. A live driver calls it in a loop (`threads.rs`); the simulator calls it at
//! chosen virtual times. Times come from a [`Meter`], so that a simulated thread can charge arbitrary costs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crate::dataflow::data::AnyData;
use crate::dataflow::index::{BundleIx, StatementIx};
use crate::dataflow::load::load_partition;
use crate::dataflow::plan::Instance;
use crate::dataflow::routes::{Routes, Sent};
use crate::error::JobError;
use crate::exec::bundle::{Bundle, Host, Turn};
use crate::exec::slot::Slot;
use crate::protocol::limits::EPOCH_REPORT_INTERVAL;
use crate::protocol::message::{Envelope, Message, Packed, Peer};
use crate::protocol::ports::Store;
use crate::protocol::records::{Arrival, Part, Saved, Signal, Usage};
use crate::snapshot::layout::object;
use crate::sync::lock;
use crate::worker::state::Worker;

/// Maximum number of iterations whose times are recorded.
const MAX_RECORDED_ITERATIONS: usize = 1 << 20;

/// The content of a partition, or the damage found in its snapshot.
type LoadedPart = Result<Box<dyn AnyData>, String>;

/// A source of measured or simulated times of turns and tasks.
pub(crate) trait Meter {
    /// Called before a task.
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

/// See the [module](self).
pub(crate) struct Thread<'w, M> {
    worker: &'w Worker,
    index: usize,
    pub meter: M,
    /// Bundles that wait for a signal, and the signal count when they were last checked.
    waiting: Vec<BundleIx>,
    published: u64,
    scratch: Vec<Sent>,
    arrivals: Vec<Arrival>,
    /// Destinations of the current scatter task on other workers: worker, bundle, version, place.
    remote: Vec<(u32, BundleIx, u32, usize)>,
    slot: Option<&'w Slot>,
}

impl<'w, M: Meter> Thread<'w, M> {
    pub fn new(worker: &'w Worker, index: usize, meter: M) -> Self {
        Self {
            worker,
            index,
            meter,
            waiting: Vec::new(),
            published: 0,
            scratch: Vec::new(),
            arrivals: Vec::new(),
            remote: Vec::new(),
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

    fn send_remote(&mut self, arrival: impl Fn(usize) -> Arrival, shared: impl Fn(usize) -> bool) {
        let mut remote = std::mem::take(&mut self.remote);
        remote.sort_by_key(|&(worker, _, _, place)| (worker, !shared(place)));
        for group in remote.chunk_by(|a, b| a.0 == b.0 && shared(a.3) && shared(b.3)) {
            let to = group.iter().map(|&(_, bundle, version, _)| (bundle, version)).collect();
            let arrival = arrival(group[0].3);
            self.worker.send(Peer::Worker(group[0].0), Message::Deliver { to, arrival });
        }
        remote.clear();
        self.remote = remote;
    }
}

impl<M: Meter> Host for Thread<'_, M> {
    fn signal(&self, epoch: u64) -> Option<Signal> {
        self.worker.signals.get(epoch)
    }

    fn may_publish(&mut self, epoch: u64, passed: &[(u32, u64)]) -> bool {
        self.worker.may_publish(epoch, passed)
    }

    fn wants_snapshot(&self, since_snapshot: u32) -> bool {
        let every = self.worker.options.snapshot_every;
        let due = every > 0 && since_snapshot >= every;
        let requested = self.worker.snapshot_requested.load(Ordering::Acquire);
        self.worker.store.as_ref().is_some_and(|store| requested || due && !store.is_busy())
    }

    fn publish(&mut self, epoch: u64, signal: Signal) {
        self.worker.publish(epoch, signal);
    }

    fn send(&mut self, gather: Instance, source: u32, routes: &Routes, sent: &Sent) {
        let worker = self.worker;
        let group = worker.plan.group_of(gather.statement);
        let arrival = |place| Arrival::Chunk { gather, source, chunk: sent.chunk(place) };
        for place in 0..routes.width(source) {
            let to = group.bundle(routes.destination(source, place));
            let owner = worker.owner(to);
            if owner.worker == worker.rank() {
                worker.deliver(to, owner.version, arrival(place));
            } else {
                self.remote.push((owner.worker, to, owner.version, place));
            }
        }
        if !self.remote.is_empty() {
            self.send_remote(arrival, |place| sent.chunks.get(place).is_none_or(Option::is_none));
        }
    }

    fn record_iteration(&mut self) {
        let mut iterations = lock(&self.worker.iterations);
        if iterations.at_ns.len() < MAX_RECORDED_ITERATIONS {
            iterations.at_ns.push(self.meter.now_ns());
            iterations.last = self.worker.usage();
            if iterations.at_ns.len() == 1 {
                iterations.first = iterations.last;
            }
        }
    }

    fn save(&mut self, bundle: &mut Bundle) {
        self.worker.save(bundle);
    }

    fn observe(&mut self, statement: StatementIx, epoch: u64, value: f64) {
        lock(&self.worker.observed).insert(statement, (epoch, value.to_bits()));
    }

    fn before(&mut self, bundle: BundleIx, statement: StatementIx) {
        self.meter.before(bundle, statement);
    }

    #[inline]
    fn after(
        &mut self,
        bundle: BundleIx,
        statement: StatementIx,
        iteration: u64,
        bytes: impl FnOnce() -> u64,
    ) {
        self.meter.after(bundle, statement, iteration, bytes);
    }

    #[inline]
    fn should_yield(&self) -> bool {
        self.worker.interrupt.load(Ordering::Relaxed)
            || self.slot.is_some_and(|slot| slot.migration_requested.load(Ordering::Relaxed))
    }

    fn scratch(&mut self) -> Sent {
        self.scratch.pop().unwrap_or_default()
    }

    fn reuse(&mut self, mut sent: Sent) {
        sent.clear();
        self.scratch.push(sent);
    }
}

impl Worker {
    /// Loads a bundle's missing partitions from the snapshot that the job resumed from, or else with the program's
    /// loaders. Returns false, and tells the controller, if the snapshot is damaged.
    pub fn load(&self, bundle: &mut Bundle) -> Result<bool, JobError> {
        for dataset in self.plan.datasets.indexes() {
            let here = self.plan.groups[bundle.group].datasets.contains(dataset);
            if !here || bundle.states[dataset].is_some() {
                continue;
            }
            let state = match (bundle.saved[dataset], &self.store) {
                (Some(part), Some(store)) => match self.load_part(&**store, bundle.index, &part)? {
                    Ok(state) => state,
                    Err(cause) => {
                        self.send(Peer::Controller, Message::Damaged { cause });
                        return Ok(false);
                    }
                },
                _ => load_partition(&self.plan, dataset, bundle.index)?,
            };
            bundle.states[dataset] = Some(state);
        }
        bundle.unloaded = false;
        self.slot(bundle.ix).size_bytes.store(bundle.size_bytes(), Ordering::Release);
        Ok(true)
    }

    /// Loads a partition from the snapshot store. The inner error tells how it is damaged.
    fn load_part(&self, store: &dyn Store, partition: u32, part: &Part) -> Result<LoadedPart, JobError> {
        let name = object(&self.plan, part.dataset, partition, part.epoch);
        let Some(bytes) = store.load(&name)? else { return Ok(Err(format!("{name} is missing"))) };
        let decode = &self.plan.datasets[part.dataset].decode;
        let verified = part.verify(&bytes).map_err(|cause| format!("{name} is damaged: {cause}"));
        Ok(verified
            .and_then(|()| decode(partition, &bytes).map_err(|e| format!("{name} cannot be decoded: {e}"))))
    }

    /// Saves the changed partitions of a bundle, and notifies the controller once they are durable.
    pub fn save(&self, bundle: &mut Bundle) {
        let Some(store) = &self.store else { return };
        let epoch = bundle.position.epoch;
        let anew = bundle.mark_saved(&self.plan).into_iter();
        let objects = anew.map(|(dataset, bytes)| (object(&self.plan, dataset, bundle.index, epoch), bytes));
        let saved = Message::Saved(Box::new(Saved {
            bundle: bundle.ix,
            position: bundle.position,
            iteration: bundle.iteration,
            datasets: bundle.saved.iter().flatten().copied().collect(),
        }));
        let network = self.network.clone();
        let generation = self.generation.load(Ordering::Acquire);
        let done = Box::new(move |result: Result<(), JobError>| {
            let message = result.map_or_else(Message::Failed, |()| saved);
            network.send(Peer::Controller, Envelope { generation, message });
        });
        store.save(objects.collect(), done);
    }

    /// Hands over a bundle between two of its tasks (§4.4). Returns the bundle if it stays after all.
    pub fn depart(&self, slot: &Slot, mut bundle: Box<Bundle>) -> Option<Box<Bundle>> {
        let mut control = lock(&self.control);
        slot.migration_requested.store(false, Ordering::Release);
        let Some(to) = control.migration.take_request(bundle.ix) else { return Some(bundle) };
        let mut inbox = lock(&slot.inbox);
        inbox.resident = false;
        let arrivals = std::mem::take(&mut inbox.arrivals);
        drop(inbox);
        for arrival in arrivals {
            if let Err(error) = bundle.receive(&self.plan, arrival) {
                drop(control);
                self.fail(error);
                return Some(bundle);
            }
        }
        self.set_owner(bundle.ix, to);
        control.migration.depart(bundle.ix, to.version, bundle.position.epoch);
        let busy_ns = slot.busy_ns.swap(0, Ordering::Relaxed);
        control.reporting.depart(bundle.ix, Usage { busy_ns, tasks: bundle.tasks });
        drop(control);
        let packed = Packed::pack(*bundle, to.version, self.signals.known());
        self.send(Peer::Worker(to.worker), Message::Install(Box::new(packed)));
        None
    }
}
