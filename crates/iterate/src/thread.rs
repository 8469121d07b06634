//! One thread of a worker: takes ready bundles and gives them turns.
//!
//! [`Thread::work`] is one turn; a live driver calls it in a loop (`threads.rs`), the simulator when it
//! pleases. Times come from a [`Meter`], so that a simulated thread can charge what it likes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crate::bundle::{Arrival, Bundle, Host, Turn};
use crate::cell::{Cell, lock};
use crate::error::JobError;
use crate::exchange::{Routes, Sent};
use crate::message::{Message, Packed, Peer, Saved};
use crate::plan::{BundleIx, Instance, Plan};
use crate::signals::{Signal, TOLD_EVERY};
use crate::worker::Worker;

/// Iterations whose times are kept.
const KEPT_ITERATIONS: usize = 1 << 20;

/// Measures turns and tasks, or makes their times up.
pub(crate) trait Meter {
    /// Before a task.
    fn before(&mut self, bundle: BundleIx, statement: u32);
    /// After it; `bytes`: those that it may have touched.
    fn after(&mut self, bundle: BundleIx, statement: u32, iteration: u64, bytes: impl FnOnce() -> u64);
    /// Before a turn.
    fn turn_begins(&mut self);
    /// After a turn: its core time.
    fn turn_ends(&mut self) -> u64;
    /// The time, from any origin.
    fn now_ns(&self) -> u64;
}

/// See the [module](self).
pub(crate) struct Thread<'w, M> {
    worker: &'w Worker,
    index: usize,
    pub meter: M,
    /// Bundles that wait for a signal, and what was published when they were last looked at.
    waiting: Vec<BundleIx>,
    published: u64,
    scratch: Vec<Sent>,
    arrivals: Vec<Arrival>,
    /// Destinations on other workers, of the scatter task that runs.
    remote: Vec<(u32, BundleIx, u32, usize)>,
    cell: Option<&'w Cell>,
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
            cell: None,
        }
    }

    /// Gives one ready bundle a turn, one of another thread if there is none of its own. False: there
    /// is none at all.
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

    /// Whether a call of [`Thread::work`] would find something, as far as can be seen cheaply.
    pub fn has_work(&self) -> bool {
        self.worker.signals.published() != self.published && !self.waiting.is_empty()
            || self.worker.rings.iter().any(|ring| !ring.is_empty())
    }

    /// Forgets who waits; after a rollback everyone is looked at anyway.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    fn take(&self) -> Option<BundleIx> {
        let rings = &self.worker.rings;
        if let Some(bundle) = rings[self.index].pop(true) {
            return Some(bundle);
        }
        let others = (1..rings.len()).map(|step| (self.index + step) % rings.len());
        let bundle = others.into_iter().find_map(|other| rings[other].pop(false))?;
        self.worker.cell(bundle).home.store(self.index as u32, Ordering::Relaxed);
        Some(bundle)
    }

    fn give_turn(&mut self, ix: BundleIx) {
        let worker = self.worker;
        let cell = worker.cell(ix);
        let mut slot = cell.begin();
        let mut again = false;
        // None: it left after it was put into the ring.
        if let Some(mut bundle) = slot.take() {
            match self.run(cell, &mut bundle) {
                Ok(turn) => {
                    again = turn == Turn::More;
                    *slot = self.finish(cell, bundle, turn);
                }
                Err(error) => {
                    *slot = Some(bundle);
                    worker.fail(error);
                }
            }
        }
        drop(slot);
        if cell.end(again) {
            worker.queue(ix, cell);
        }
    }

    /// Takes in what arrived and runs tasks.
    fn run(&mut self, cell: &'w Cell, bundle: &mut Bundle) -> Result<Turn, JobError> {
        let worker = self.worker;
        if bundle.unloaded {
            worker.load(bundle)?;
        }
        self.meter.turn_begins();
        let mut arrivals = std::mem::take(&mut self.arrivals);
        cell.collect(&mut arrivals);
        for arrival in arrivals.drain(..) {
            bundle.receive(&worker.plan, arrival)?;
        }
        self.arrivals = arrivals;
        self.cell = Some(cell);
        let (before, tasks_before) = (bundle.position.epoch, bundle.tasks);
        let done = catch_unwind(AssertUnwindSafe(|| bundle.turn(&worker.plan, self)));
        let busy_ns = self.meter.turn_ends();
        cell.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        let ring = &worker.rings[self.index];
        ring.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        ring.tasks.fetch_add(bundle.tasks - tasks_before, Ordering::Relaxed);
        let turn = done.unwrap_or_else(|panic| Err(bundle.panicked(&worker.plan, &*panic)))?;
        cell.epoch.store(bundle.position.epoch, Ordering::Release);
        cell.iteration.store(bundle.iteration, Ordering::Release);
        cell.tasks.store(bundle.tasks, Ordering::Release);
        if before / TOLD_EVERY != bundle.position.epoch / TOLD_EVERY {
            worker.tell_passed(false);
        }
        Ok(turn)
    }

    /// After a turn: what the bundle waits for, or that it leaves. What stays of it.
    fn finish(&mut self, cell: &Cell, mut bundle: Box<Bundle>, turn: Turn) -> Option<Box<Bundle>> {
        match turn {
            Turn::Signal => self.waiting.push(bundle.ix),
            Turn::End if !bundle.told_end => {
                bundle.told_end = true;
                self.worker.send(Peer::Controller, Message::Ended { bundle: bundle.ix });
            }
            Turn::End | Turn::Chunks | Turn::Window | Turn::More => {}
        }
        if cell.attention.load(Ordering::Acquire) {
            return self.worker.depart(cell, bundle);
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

    fn wants_snapshot(&self, evaluated: u32) -> bool {
        let every = self.worker.options.snapshot_every;
        let due = every > 0 && evaluated >= every;
        let wanted = self.worker.snapshot_wanted.load(Ordering::Acquire);
        self.worker.store.as_ref().is_some_and(|store| wanted || due && !store.is_busy())
    }

    fn publish(&mut self, epoch: u64, signal: Signal) {
        self.worker.publish(epoch, signal);
    }

    fn send(&mut self, gather: Instance, source: u32, routes: &Routes, sent: &Sent) {
        let worker = self.worker;
        let first = worker.plan.bundle(gather.statement, 0);
        let arrival = |place| Arrival::Chunk { gather, source, chunk: sent.chunk(place) };
        for place in 0..routes.width(source) {
            let to = first + routes.destination(source, place);
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

    fn iterated(&mut self) {
        let mut iterations = lock(&self.worker.iterations);
        if iterations.at_ns.len() < KEPT_ITERATIONS {
            iterations.at_ns.push(self.meter.now_ns());
            iterations.last = self.worker.spent();
            if iterations.at_ns.len() == 1 {
                iterations.first = iterations.last;
            }
        }
    }

    fn save(&mut self, bundle: &mut Bundle) {
        self.worker.save(bundle);
    }

    fn observe(&mut self, statement: u32, epoch: u64, value: f64) {
        lock(&self.worker.observed).insert(statement, (epoch, value.to_bits()));
    }

    fn before(&mut self, bundle: BundleIx, statement: u32) {
        self.meter.before(bundle, statement);
    }

    #[inline]
    fn after(&mut self, bundle: BundleIx, statement: u32, iteration: u64, bytes: impl FnOnce() -> u64) {
        self.meter.after(bundle, statement, iteration, bytes);
    }

    #[inline]
    fn attention(&self) -> bool {
        self.worker.interrupt.load(Ordering::Relaxed)
            || self.cell.is_some_and(|cell| cell.attention.load(Ordering::Relaxed))
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
    /// Loads what is not there of a bundle's partitions: from the snapshot that the job goes on from,
    /// or by the program's loaders where it is not in one.
    pub fn load(&self, bundle: &mut Bundle) -> Result<(), JobError> {
        for dataset in 0..self.plan.datasets.len() {
            let spec = &self.plan.datasets[dataset];
            let here = self.plan.groups[bundle.group as usize].datasets >> dataset & 1 == 1;
            if !here || bundle.states[dataset].is_some() {
                continue;
            }
            let wrong =
                |cause: String| JobError::Load { dataset: spec.name.clone(), partition: bundle.index, cause };
            let state = match (bundle.saved[dataset], &self.store) {
                (Some(epoch), Some(store)) => {
                    let bytes = store.load(&object(&self.plan, dataset as u32, bundle.index, epoch))?;
                    (spec.decode)(&bytes).map_err(|error| wrong(format!("its snapshot: {error}")))?
                }
                _ => crate::sequential::load_partition(&self.plan, dataset, bundle.index)?,
            };
            bundle.states[dataset] = Some(state);
        }
        bundle.unloaded = false;
        self.cell(bundle.ix).size_bytes.store(bundle.size_bytes(), Ordering::Release);
        Ok(())
    }

    /// Saves what changed of a bundle, and tells the controller when that is durable.
    pub fn save(&self, bundle: &mut Bundle) {
        let Some(store) = &self.store else { return };
        let epoch = bundle.position.epoch;
        let anew = bundle.mark_saved(&self.plan);
        let objects = anew.iter().filter_map(|&dataset| {
            let state = bundle.states[dataset as usize].as_ref()?;
            let mut bytes = Vec::with_capacity(state.size_any() as usize + 16);
            state.encode_any(&mut bytes);
            Some((object(&self.plan, dataset, bundle.index, epoch), bytes))
        });
        let saved = Message::Saved(Box::new(Saved {
            bundle: bundle.ix,
            position: bundle.position,
            iteration: bundle.iteration,
            datasets: bundle.saved_list(),
        }));
        let network = self.network.clone();
        let generation = self.generation.load(Ordering::Acquire);
        let done = Box::new(move |result: Result<(), JobError>| {
            let message = result.map_or_else(Message::Failed, |()| saved);
            network.send(Peer::Controller, crate::message::Envelope { generation, message });
        });
        store.save(objects.collect(), done);
    }

    /// Hands a bundle over, between its tasks (§4.4). `Some`: it stays after all.
    pub fn depart(&self, cell: &Cell, mut bundle: Box<Bundle>) -> Option<Box<Bundle>> {
        let mut control = lock(&self.control);
        cell.attention.store(false, Ordering::Release);
        let Some(to) = control.leaving.remove(&bundle.ix) else { return Some(bundle) };
        let mut inbox = lock(&cell.inbox);
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
        control.resident.retain(|&ix| ix != bundle.ix);
        control.away.insert(bundle.ix, (to.version, bundle.position.epoch));
        control.gone.0 = control.gone.0.wrapping_add(bundle.tasks);
        control.gone.1 += cell.busy_ns.swap(0, Ordering::Relaxed);
        control.busy_before.remove(&bundle.ix);
        drop(control);
        let packed = Packed::pack(*bundle, to.version, self.signals.known());
        self.send(Peer::Worker(to.worker), Message::Install(Box::new(packed)));
        None
    }
}

/// The name of a partition in the store of snapshots.
pub(crate) fn object(plan: &Plan, dataset: u32, partition: u32, epoch: u64) -> String {
    format!("{}/partitions/{dataset}-{partition}-{epoch:020}", folder(plan))
}

/// The folder of a job's snapshots in their store: other jobs may have theirs in the same place.
pub(crate) fn folder(plan: &Plan) -> String {
    format!("job-{:016x}", plan.fingerprint())
}
