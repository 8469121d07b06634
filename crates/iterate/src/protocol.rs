//! What a worker does with messages and ticks.
//!
//! Every handler leaves things as they are when it is told twice, late, or out of order: entries of the
//! map by their versions, chunks by their instances, signals by their epochs, bundles by the versions of
//! their moves, everything by its generation.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::bundle::Bundle;
use crate::cell::lock;
use crate::data::Chunk;
use crate::error::JobError;
use crate::message::{Beginning, Entry, Envelope, Message, Packed, Peer, Report, Spent};
use crate::plan::BundleIx;
use crate::worker::{Control, Iterations, Worker};

/// Reports, at most, for which a worker that was let go waits for the others' last words.
const RELEASED: u32 = 50;

impl Worker {
    /// Takes in a message.
    pub fn handle(&self, from: Peer, envelope: Envelope) {
        let here = self.generation.load(Ordering::Acquire);
        if envelope.generation < here {
            return;
        }
        if envelope.generation > here {
            match envelope.message {
                Message::Begin(beginning) => self.begin(envelope.generation, beginning),
                Message::Stop => self.stop(),
                _ => lock(&self.control).held.push((from, envelope)),
            }
            return;
        }
        match envelope.message {
            Message::Deliver { to, arrival } => {
                for (bundle, version) in to {
                    self.deliver(bundle, version, arrival.clone());
                }
            }
            Message::Signals(signals) => {
                for (epoch, signal) in signals {
                    self.signals.insert(epoch, signal);
                }
                self.wake_all();
            }
            Message::Install(packed) => self.install(from, *packed),
            Message::Installed { bundle, version } => {
                let mut control = lock(&self.control);
                if control.away.get(&bundle).is_some_and(|away| away.0 <= version) {
                    control.away.remove(&bundle);
                }
            }
            Message::Map(entries) => self.change_map(&entries),
            Message::Members { version, members } => self.change_members(version, members),
            Message::Migrate { bundle, to } => self.migrate(bundle, to),
            Message::Snapshot => self.snapshot_wanted.store(true, Ordering::Release),
            Message::Pause(pause) => {
                self.paused.store(pause, Ordering::SeqCst);
                self.interrupt.store(pause || self.stopped.load(Ordering::SeqCst), Ordering::SeqCst);
                self.wake_all();
            }
            Message::Finish => self.finish(),
            Message::Release { members } => self.release(members),
            Message::Parted => {
                if let Peer::Worker(worker) = from {
                    lock(&self.control).parted.insert(worker);
                    self.end_if_released();
                }
            }
            Message::Stop => self.stop(),
            // Told twice, or not for a worker.
            Message::Begin(_)
            | Message::Report(_)
            | Message::Traced(_)
            | Message::Saved(_)
            | Message::Ended { .. }
            | Message::Output { .. }
            | Message::Finished(_)
            | Message::Unreachable { .. }
            | Message::Failed(_) => {}
        }
    }

    /// Waits until no thread has a turn under way. False: one takes too long.
    fn come_to_rest(&self) -> bool {
        self.interrupt.store(true, Ordering::SeqCst);
        let mut left = 60_000;
        while !self.rings.iter().all(|ring| ring.at_rest.load(Ordering::SeqCst)) {
            if left == 0 {
                return false;
            }
            left -= 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        true
    }

    /// Begins, or rolls back and begins again (§3.3): bundles that are here keep the partitions that
    /// have not changed since the snapshot; the rest is loaded when a bundle has its first turn.
    fn begin(&self, generation: u32, beginning: Arc<Beginning>) {
        if !self.come_to_rest() {
            let limit = std::time::Duration::from_secs(60);
            self.fail(JobError::TimedOut { waited_for: "a task to end before a rollback".into(), limit });
            return;
        }
        self.generation.store(generation, Ordering::Release);
        self.signals.clear();
        self.rings.iter().for_each(|ring| ring.clear());
        self.forget_passed();
        self.snapshot_wanted.store(false, Ordering::Release);
        let before = self.set_members(beginning.version, beginning.members.clone()).unwrap_or_default();
        for &worker in before.iter().filter(|worker| !beginning.members.contains(worker)) {
            self.network.forget(worker);
        }
        let mut control = lock(&self.control);
        control.early.clear();
        control.leaving.clear();
        control.away.clear();
        // What ran before is not in what tasks count from here on.
        control.gone = (0, 0);
        control.busy_before.clear();
        *lock(&self.iterations) = Iterations::default();
        let before = std::mem::take(&mut control.resident);
        for &bundle in before.iter().filter(|&&bundle| beginning.map[bundle as usize].worker != self.rank()) {
            let cell = self.cell(bundle);
            cell.reset(false);
            *cell.bundle() = None;
        }
        for (bundle, &entry) in (0..).zip(&beginning.map) {
            self.reset_owner(bundle, entry);
            if entry.worker == self.rank() {
                self.restart(&mut control, bundle, &beginning);
            }
        }
        control.beginning = Some(beginning);
        let resident = control.resident.clone();
        let held = std::mem::take(&mut control.held);
        drop(control);
        let waits = self.paused.load(Ordering::SeqCst) || self.stopped.load(Ordering::SeqCst);
        self.interrupt.store(waits, Ordering::SeqCst);
        for bundle in resident {
            self.notify(bundle);
        }
        // Who computes signals has to know that nobody is behind the snapshot.
        self.tell_passed(true);
        for (from, envelope) in held {
            self.handle(from, envelope);
        }
        self.wake_all();
    }

    /// Puts a bundle where the job goes on.
    fn restart(&self, control: &mut Control, ix: BundleIx, beginning: &Beginning) {
        let cell = self.cell(ix);
        cell.reset(false);
        let mut bundle = cell.bundle().take().unwrap_or_else(|| Box::new(Bundle::new(&self.plan, ix)));
        bundle.roll_back(&self.plan, beginning.snapshot.as_ref().map(|snapshot| snapshot.position.epoch));
        if let Some(snapshot) = &beginning.snapshot {
            bundle.position = snapshot.position;
            bundle.iteration = snapshot.iteration;
            for &(dataset, epoch) in &snapshot.saved[ix as usize] {
                bundle.saved[dataset as usize] = Some(epoch);
            }
        }
        self.place(control, bundle, beginning.map[ix as usize].version);
    }

    fn change_map(&self, entries: &[(BundleIx, Entry)]) {
        for &(bundle, entry) in entries {
            self.set_owner(bundle, entry);
        }
        // Who computes a signal may have waited for a worker that holds nothing any more.
        for bundle in self.plan.signal_bundles() {
            self.notify(bundle);
        }
    }

    /// Takes a newer list of members: who was a member before. `None`: it was overtaken.
    fn set_members(&self, version: u32, members: Vec<u32>) -> Option<Arc<Vec<u32>>> {
        let mut known = self.members.write().unwrap_or_else(PoisonError::into_inner);
        if known.0 > version {
            return None;
        }
        known.0 = version;
        Some(std::mem::replace(&mut known.1, Arc::new(members)))
    }

    /// Tells new members the signals that they have missed: whoever computes one tells all before it.
    fn change_members(&self, version: u32, members: Vec<u32>) {
        let Some(before) = self.set_members(version, members.clone()) else { return };
        let parting = before.iter().filter(|worker| !members.contains(worker));
        lock(&self.control).parting.extend(parting);
        let known = self.signals.known();
        for worker in members.into_iter().filter(|worker| !before.contains(worker)) {
            self.send(Peer::Worker(worker), Message::Signals(known.clone()));
        }
    }

    /// Of a worker that was let go: others may have sent it something before they knew, which it forwards. So it stays
    /// until all have said that nothing more comes.
    fn release(&self, members: Vec<u32>) {
        lock(&self.control).released = Some((members.into_iter().collect(), 0));
        self.end_if_released();
    }

    /// Tells workers that were let go that nothing more comes from here, once the map has nothing at them. That is
    /// with a report and so some time after the map changed: no task is left that was sending meanwhile. For how
    /// many reports this worker has been let go itself; `None`: it was not.
    fn take_leave(&self) -> Option<u32> {
        let mut control = lock(&self.control);
        let parting = std::mem::take(&mut control.parting);
        let holds = |worker: u32| (0..self.plan.bundles).any(|bundle| self.owner(bundle).worker == worker);
        let (wait, part) = parting.into_iter().partition::<Vec<_>, _>(|&worker| holds(worker));
        control.parting = wait;
        let released = control.released.as_mut().map(|(_, reports)| {
            *reports += 1;
            *reports
        });
        drop(control);
        part.into_iter().for_each(|worker| self.send(Peer::Worker(worker), Message::Parted));
        released
    }

    fn end_if_released(&self) {
        let control = lock(&self.control);
        let ends = control.released.as_ref().is_some_and(|(members, _)| members.is_subset(&control.parted));
        drop(control);
        if ends {
            self.stop();
        }
    }

    /// Flags a bundle; it leaves when its task, if one runs, has ended.
    fn migrate(&self, bundle: BundleIx, to: Entry) {
        let mut control = lock(&self.control);
        let cell = self.cell(bundle);
        if !cell.is_resident() || cell.version.load(Ordering::Acquire) >= to.version {
            return;
        }
        control.leaving.insert(bundle, to);
        cell.attention.store(true, Ordering::Release);
        drop(control);
        self.notify(bundle);
    }

    /// Takes over a bundle, with what arrived for it before it did.
    fn install(&self, from: Peer, packed: Packed) {
        let mut control = lock(&self.control);
        let (ix, version) = (packed.bundle, packed.version);
        if self.owner(ix).version > version || self.cell(ix).is_resident() {
            return;
        }
        for &(epoch, signal) in &packed.signals {
            self.signals.insert(epoch, signal);
        }
        let bundle = match packed.unpack(&self.plan) {
            Ok(bundle) => bundle,
            Err(error) => {
                drop(control);
                self.fail(error);
                return;
            }
        };
        let tasks = bundle.tasks;
        self.set_owner(ix, Entry { worker: self.rank(), version });
        control.gone.0 = control.gone.0.wrapping_sub(tasks);
        self.place(&mut control, Box::new(bundle), version);
        drop(control);
        self.notify(ix);
        self.tell_passed(true);
        self.send(Peer::Controller, Message::Installed { bundle: ix, version });
        self.send(from, Message::Installed { bundle: ix, version });
        self.wake_all();
    }

    /// Hands in the results. Where there are other workers, one of which may be lost meanwhile, partitions
    /// stay as they are; else they are given away.
    fn finish(&self) {
        if !self.come_to_rest() {
            return;
        }
        self.tell_traced();
        let resident = lock(&self.control).resident.clone();
        let report = self.report(0, true);
        let alone = self.members().len() == 1;
        for bundle in resident {
            let mut slot = self.cell(bundle).bundle();
            let Some(bundle) = slot.as_mut() else { continue };
            for (dataset, spec) in (0..).zip(&self.plan.datasets).filter(|(_, spec)| spec.output) {
                let state = &mut bundle.states[dataset as usize];
                let content = match state {
                    Some(_) if alone => state.take().map(|state| Chunk::Typed(Arc::from(state))),
                    Some(state) => Some(Chunk::encoded(&**state)),
                    None => None,
                };
                // None: told twice, or of another group.
                if let Some(content) = content {
                    let partition = bundle.index;
                    debug_assert_eq!(spec.group, bundle.group);
                    self.send(Peer::Controller, Message::Output { dataset, partition, content });
                }
            }
        }
        self.send(Peer::Controller, Message::Finished(Box::new(report)));
    }

    /// What this worker has to tell of itself; `interval_ns` since the last time.
    pub fn report(&self, interval_ns: u64, whole: bool) -> Report {
        let mut control = lock(&self.control);
        control.reports += 1;
        let iterations = lock(&self.iterations);
        let spent = |of: fn(&Spent) -> u64| of(&iterations.last) - of(&iterations.first);
        let mut report = Report {
            worker: self.rank(),
            number: if whole { u64::MAX } else { control.reports },
            interval_ns,
            threads: self.rings.len() as u32,
            memory_bytes: self.options.memory_bytes,
            running: !self.rings.iter().all(|ring| ring.at_rest.load(Ordering::SeqCst)),
            epoch: u64::MAX,
            iteration: u64::MAX,
            tasks: control.gone.0,
            busy_ns: control.gone.1,
            observed: lock(&self.observed).clone(),
            iterations_ns: if whole { iterations.at_ns.clone() } else { Vec::new() },
            iterating: Spent { busy_ns: spent(|spent| spent.busy_ns), tasks: spent(|spent| spent.tasks) },
            ..Report::default()
        };
        drop(iterations);
        for bundle in control.resident.clone() {
            let cell = self.cell(bundle);
            let busy = cell.busy_ns.load(Ordering::Relaxed);
            let before = control.busy_before.insert(bundle, busy).unwrap_or(0);
            let size = cell.size_bytes.load(Ordering::Relaxed);
            report.bundles.push((bundle, busy.saturating_sub(before), size));
            report.epoch = report.epoch.min(cell.epoch.load(Ordering::Relaxed));
            report.iteration = report.iteration.min(cell.iteration.load(Ordering::Relaxed));
            report.tasks = report.tasks.wrapping_add(cell.tasks.load(Ordering::Relaxed));
            report.busy_ns += busy;
        }
        report
    }

    /// A report is due.
    pub fn tick(&self, interval_ns: u64) {
        if self.generation.load(Ordering::Acquire) > 0 && !self.stopped.load(Ordering::SeqCst) {
            match self.take_leave() {
                // One of the others was lost meanwhile, and what it sent is void.
                Some(RELEASED..) => return self.stop(),
                Some(_) => return self.tell_traced(),
                None => {}
            }
            let report = self.report(interval_ns, false);
            self.send(Peer::Controller, Message::Report(Box::new(report)));
            self.tell_traced();
        }
    }

    /// Tells what was recorded since the last time.
    pub fn tell_traced(&self) {
        if let Some(kept) = self.kept.get() {
            self.send(Peer::Controller, Message::Traced(Box::new(kept.tell())));
        }
    }
}

impl Packed {
    /// A bundle made ready to be sent.
    pub fn pack(bundle: Bundle, version: u32, signals: Vec<(u64, crate::signals::Signal)>) -> Self {
        let saved = bundle.saved_list();
        let mut chunks = Vec::new();
        for gathering in bundle.gathers {
            // Places become sources again: the receiver takes them in as if they had just arrived.
            let heard =
                gathering.heard.iter().zip(gathering.chunks).enumerate().filter(|(_, (heard, _))| **heard);
            chunks.extend(heard.map(|(place, (_, chunk))| (gathering.instance, place as u32, chunk)));
        }
        let states = (0..)
            .zip(bundle.states)
            .filter_map(|(dataset, state)| state.map(|state| (dataset, Chunk::encoded(&*state))));
        Self {
            bundle: bundle.ix,
            version,
            position: bundle.position,
            aside: bundle.aside,
            gathered: bundle.gathered,
            iteration: bundle.iteration,
            evaluated: bundle.evaluated,
            written: bundle.written,
            written_before: bundle.written_before,
            saved,
            passed: bundle.passed,
            tasks: bundle.tasks,
            chunks,
            states: states.collect(),
            signals,
        }
    }

    /// The bundle.
    ///
    /// # Errors
    /// A partition or chunk that does not decode.
    pub fn unpack(self, plan: &crate::plan::Plan) -> Result<Bundle, JobError> {
        let mut bundle = Bundle::new(plan, self.bundle);
        let index = bundle.index;
        for (dataset, content) in self.states {
            let spec = &plan.datasets[dataset as usize];
            let mut bytes = Vec::new();
            content.encode(&mut bytes);
            let state = (spec.decode)(&bytes).map_err(|error| JobError::Load {
                dataset: spec.name.clone(),
                partition: index,
                cause: format!("as it migrated: {error}"),
            })?;
            bundle.states[dataset as usize] = Some(state);
        }
        bundle.position = self.position;
        bundle.gathered = self.gathered;
        bundle.iteration = self.iteration;
        bundle.evaluated = self.evaluated;
        bundle.written = self.written;
        bundle.written_before = self.written_before;
        bundle.passed = self.passed;
        bundle.tasks = self.tasks;
        bundle.unloaded = false;
        for (dataset, epoch) in self.saved {
            bundle.saved[dataset as usize] = Some(epoch);
        }
        for instance in self.aside {
            bundle.put_aside(plan, instance);
        }
        for (instance, place, chunk) in self.chunks {
            bundle.receive_at(plan, instance, place as usize, chunk)?;
        }
        Ok(bundle)
    }
}
