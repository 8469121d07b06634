//! A worker's handlers for messages and ticks.
//!
//! Every handler is idempotent and tolerates delayed and reordered messages: map entries are ordered by their
//! versions, chunks by their instances, signals by their epochs, migrated bundles by the versions of their
//! moves, and all messages by their generation. A handler neither sleeps nor reads a clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::dataflow::data::Chunk;
use crate::dataflow::index::{BundleIx, WorkerIx};
use crate::error::JobError;
use crate::exec::bundle::Bundle;
use crate::protocol::message::{Envelope, Message, Packed, Peer};
use crate::protocol::records::{Entry, JobState, Report};
use crate::sync::lock;
use crate::worker::reporting::Iterations;
use crate::worker::state::{Control, Worker};

/// Maximum number of report intervals that a draining worker waits for the others' [`Message::Drained`].
const MAX_DRAIN_REPORTS: u32 = 50;

/// Messages that wait until no thread of the worker runs a turn, the oldest first. Only the first needs it; the others
/// must not overtake it.
pub(crate) struct Waiting(Vec<(Peer, Envelope)>);

impl Worker {
    /// Handles a message. Threads that run turns must first end them if it starts, restarts or ends the job: it is then
    /// returned, for [`Worker::resume`].
    pub fn handle(&self, from: Peer, envelope: Envelope) -> Option<Waiting> {
        let here = self.generation.load(Ordering::Acquire);
        if envelope.generation < here {
            return None;
        }
        let needs_quiet = match envelope.message {
            Message::Begin(_) => envelope.generation > here,
            Message::Finish => envelope.generation == here,
            _ => false,
        };
        if needs_quiet && !self.is_quiet() {
            return Some(Waiting(vec![(from, envelope)]));
        }
        if envelope.generation > here {
            match envelope.message {
                Message::Begin(job_state) => return self.begin(envelope.generation, job_state),
                Message::Stop => self.stop(),
                _ => lock(&self.control).deferred_messages.entry(from).or_default().push(envelope),
            }
            return None;
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
                lock(&self.control).migration.confirm(bundle, version);
            }
            Message::Map(entries) => self.change_map(&entries),
            Message::Members { version, members } => self.change_members(version, members),
            Message::Migrate { bundle, to } => self.migrate(bundle, to),
            Message::Snapshot => self.snapshot_requested.store(true, Ordering::Release),
            Message::Pause(pause) => {
                self.gate.pause(pause);
                self.wake_all();
            }
            Message::Finish => self.finish(),
            Message::Drain { members } => self.start_drain(members),
            Message::Drained => {
                if let Peer::Worker(worker) = from {
                    lock(&self.control).membership.drained_by(worker);
                    self.stop_if_drained();
                }
            }
            Message::Stop => self.stop(),
            // Duplicates, and messages that are not for a worker.
            Message::Begin(_)
            | Message::Addresses(_)
            | Message::Report(_)
            | Message::Trace(_)
            | Message::Saved(_)
            | Message::Ended { .. }
            | Message::Output { .. }
            | Message::Finished(_)
            | Message::Damaged { .. }
            | Message::Unreachable { .. }
            | Message::Failed(_) => {}
        }
        None
    }

    /// Handles messages that waited, as [`Worker::handle`].
    pub fn resume(&self, waiting: Waiting) -> Option<Waiting> {
        let mut rest = None;
        for (from, envelope) in waiting.0 {
            self.handle_after(&mut rest, from, envelope);
        }
        rest
    }

    /// Handles a message, or adds it to those that wait.
    fn handle_after(&self, waiting: &mut Option<Waiting>, from: Peer, envelope: Envelope) {
        match waiting {
            Some(waiting) => waiting.0.push((from, envelope)),
            None => *waiting = self.handle(from, envelope),
        }
    }

    /// Gives up on messages that waited for `limit`.
    pub fn give_up(&self, waiting: &Waiting, limit: Duration) {
        if let Some((_, Envelope { message: Message::Begin(_), .. })) = waiting.0.first() {
            let waited_for = "a task to finish before the rollback".into();
            self.fail(JobError::TimedOut { waited_for, limit });
        }
    }

    /// Returns whether no thread runs a turn. If some do, asks them to end it.
    fn is_quiet(&self) -> bool {
        self.gate.close();
        self.is_idle()
    }

    /// Starts the job, or rolls back and restarts it (§3.3). Bundles on this worker keep the partitions that have
    /// not changed since the snapshot; the rest is loaded in a bundle's first turn.
    fn begin(&self, generation: u32, job_state: Arc<JobState>) -> Option<Waiting> {
        self.generation.store(generation, Ordering::Release);
        self.signals.clear();
        self.run_queues.iter().for_each(|queue| queue.clear());
        self.window.reset();
        self.snapshot_requested.store(false, Ordering::Release);
        let before = self.members.replace(job_state.version, job_state.members.clone()).unwrap_or_default();
        for &worker in before.iter().filter(|worker| !job_state.members.contains(worker)) {
            self.network.forget(worker);
        }
        let mut control = lock(&self.control);
        control.reporters.clear();
        control.reporting.restart();
        *lock(&self.iterations) = Iterations::default();
        let before = control.migration.restart();
        for &bundle in before.iter().filter(|&&bundle| job_state.map[bundle].worker != self.rank()) {
            let slot = self.slot(bundle);
            slot.reset(false);
            *slot.bundle() = None;
        }
        for (bundle, &entry) in job_state.map.entries() {
            self.map.reset(bundle, entry);
            if entry.worker == self.rank() {
                self.restart(&mut control, bundle, &job_state);
            }
        }
        let resident = control.migration.resident().to_vec();
        let deferred = std::mem::take(&mut control.deferred_messages);
        drop(control);
        self.gate.reopen();
        for bundle in resident {
            self.notify(bundle);
        }
        // The bundles that compute signals must learn that every bundle has reached the snapshot.
        self.report_passed(true);
        let mut waiting = None;
        for (from, envelopes) in deferred {
            for envelope in envelopes {
                if let (Err(cause), Peer::Worker(worker)) = (self.admit(from, &envelope), from) {
                    let cause = format!("it sent an invalid message: {cause}");
                    self.send(Peer::Controller, Message::Unreachable { worker, cause });
                    break;
                }
                self.handle_after(&mut waiting, from, envelope);
            }
        }
        self.wake_all();
        waiting
    }

    /// Places a bundle at the position that the job restarts from.
    fn restart(&self, control: &mut Control, ix: BundleIx, job_state: &JobState) {
        let slot = self.slot(ix);
        slot.reset(false);
        let mut bundle = slot.bundle().take().unwrap_or_else(|| Box::new(Bundle::new(&self.plan, ix)));
        bundle.roll_back(&self.plan, job_state.snapshot.as_ref().map(|snapshot| snapshot.position.epoch));
        if let Some(snapshot) = &job_state.snapshot {
            bundle.position = snapshot.position;
            bundle.iteration = snapshot.iteration;
            bundle.set_saved(&snapshot.saved[ix]);
        }
        self.place(control, bundle, job_state.map[ix].version);
    }

    fn change_map(&self, entries: &[(BundleIx, Entry)]) {
        for &(bundle, entry) in entries {
            self.map.update(bundle, entry);
        }
        // A bundle that computes a signal may have been waiting for a worker that no longer holds bundles.
        for bundle in self.plan.signal_bundles() {
            self.notify(bundle);
        }
    }

    /// Updates the member list and sends new members the known signals, which they have missed.
    fn change_members(&self, version: u32, members: Vec<WorkerIx>) {
        let Some(before) = self.members.replace(version, members.clone()) else { return };
        let leavers = before.iter().copied().filter(|worker| !members.contains(worker));
        lock(&self.control).membership.add_leavers(leavers);
        let known = self.signals.known();
        for worker in members.into_iter().filter(|worker| !before.contains(worker)) {
            self.send(Peer::Worker(worker), Message::Signals(known.clone()));
        }
    }

    /// Starts draining this worker after it has left the job. Others may still send to it until they learn that it
    /// left, so it forwards messages until all of them have sent [`Message::Drained`].
    fn start_drain(&self, members: Vec<WorkerIx>) {
        lock(&self.control).membership.start_drain(members);
        self.stop_if_drained();
    }

    /// Sends [`Message::Drained`] to workers that left and own no bundle in the map. This happens with a report, some
    /// time after the map changed, so no task is still sending to them. Returns the number of reports since this
    /// worker itself began to drain, or `None` if it does not.
    fn notify_drained(&self) -> Option<u32> {
        let mut control = lock(&self.control);
        let holds =
            |worker: WorkerIx| self.plan.bundles().any(|bundle| self.map.get(bundle).worker == worker);
        let (leavers, drain) = (control.membership.take_leavers(holds), control.membership.count_report());
        drop(control);
        leavers.into_iter().for_each(|worker| self.send(Peer::Worker(worker), Message::Drained));
        drain
    }

    fn stop_if_drained(&self) {
        let is_drained = lock(&self.control).membership.is_drained();
        if is_drained {
            self.stop();
        }
    }

    /// Requests the migration of a bundle, which leaves after its current task.
    fn migrate(&self, bundle: BundleIx, to: Entry) {
        let mut control = lock(&self.control);
        let slot = self.slot(bundle);
        if !slot.is_resident() || slot.version.load(Ordering::Acquire) >= to.version {
            return;
        }
        control.migration.request(bundle, to);
        slot.migration_requested.store(true, Ordering::Release);
        drop(control);
        self.notify(bundle);
    }

    /// Takes over a migrated bundle and the arrivals that came before it.
    fn install(&self, from: Peer, packed: Packed) {
        let mut control = lock(&self.control);
        let (ix, version) = (packed.bundle, packed.version);
        if self.map.get(ix).version > version || self.slot(ix).is_resident() {
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
        self.map.update(ix, Entry { worker: self.rank(), version });
        control.reporting.arrive(tasks);
        self.place(&mut control, Box::new(bundle), version);
        drop(control);
        self.notify(ix);
        self.report_passed(true);
        self.send(Peer::Controller, Message::Installed { bundle: ix, version });
        self.send(from, Message::Installed { bundle: ix, version });
        self.wake_all();
    }

    /// Sends the results. With other workers, one of which may still be lost, partitions are copied; a worker that
    /// is alone gives them away.
    fn finish(&self) {
        self.send_trace();
        let resident = lock(&self.control).migration.resident().to_vec();
        let report = self.report(0, true);
        let alone = self.members().len() == 1;
        for bundle in resident {
            let mut guard = self.slot(bundle).bundle();
            let Some(bundle) = guard.as_mut() else { continue };
            for (dataset, spec) in self.plan.datasets.entries().filter(|(_, spec)| spec.output) {
                let state = &mut bundle.states[dataset];
                let content = match state {
                    Some(_) if alone => state.take().map(|state| Chunk::Typed(Arc::from(state))),
                    Some(state) => Some(Chunk::encoded(&**state)),
                    None => None,
                };
                // None: a duplicate message, or a dataset of another group.
                if let Some(content) = content {
                    let partition = bundle.index;
                    debug_assert_eq!(spec.group, bundle.group);
                    self.send(Peer::Controller, Message::Output { dataset, partition, content });
                }
            }
        }
        self.send(Peer::Controller, Message::Finished(Box::new(report)));
    }

    /// Returns this worker's report; `interval_ns` is the time since the last one, and `whole` marks the final one.
    pub fn report(&self, interval_ns: u64, whole: bool) -> Report {
        let mut control = lock(&self.control);
        let (number, departed) = (control.reporting.count(), control.reporting.departed());
        let iterations = lock(&self.iterations);
        let mut report = Report {
            worker: self.rank(),
            number: if whole { u64::MAX } else { number },
            interval_ns,
            threads: self.run_queues.len() as u32,
            running: !self.is_idle(),
            epoch: u64::MAX,
            iteration: u64::MAX,
            tasks: departed.tasks,
            busy_ns: departed.busy_ns,
            observed: lock(&self.observed).clone(),
            iterations_ns: if whole { iterations.at_ns.clone() } else { Vec::new() },
            iterating: iterations.usage(),
            ..Report::default()
        };
        drop(iterations);
        for bundle in control.migration.resident().to_vec() {
            let slot = self.slot(bundle);
            let busy = slot.busy_ns.load(Ordering::Relaxed);
            let size = slot.size_bytes.load(Ordering::Relaxed);
            report.bundles.push((bundle, control.reporting.spent_ns(bundle, busy), size));
            report.epoch = report.epoch.min(slot.epoch.load(Ordering::Relaxed));
            report.iteration = report.iteration.min(slot.iteration.load(Ordering::Relaxed));
            report.tasks = report.tasks.wrapping_add(slot.tasks.load(Ordering::Relaxed));
            report.busy_ns += busy;
        }
        report
    }

    /// Sends the periodic report.
    pub fn tick(&self, interval_ns: u64) {
        if self.generation.load(Ordering::Acquire) > 0 && !self.gate.is_stopped() {
            match self.notify_drained() {
                // Another worker was lost meanwhile, and its messages are void.
                Some(MAX_DRAIN_REPORTS..) => return self.stop(),
                Some(_) => return self.send_trace(),
                None => {}
            }
            let report = self.report(interval_ns, false);
            self.send(Peer::Controller, Message::Report(Box::new(report)));
            self.send_trace();
        }
    }

    /// Sends the samples recorded since the last call.
    pub fn send_trace(&self) {
        if let Some(samples) = self.samples.get() {
            self.send(Peer::Controller, Message::Trace(Box::new(samples.drain())));
        }
    }
}
