//! A job within this process: one worker with several threads, and the controller on the caller's thread.

use std::sync::{Arc, Mutex};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use crate::control::controller::Controller;
use crate::dataflow::index::WorkerIx;
use crate::dataflow::outcome::Outcome;
use crate::dataflow::plan::Plan;
use crate::drive::driver::{JobDriver, POLL_INTERVAL, REPORT_INTERVAL, Transport};
use crate::drive::options::RunOptions;
use crate::error::JobError;
use crate::protocol::message::{Envelope, Peer};
use crate::protocol::ports::{Network, Store};
use crate::snapshot::store::SnapshotStore;
use crate::sync::lock;
use crate::tracing::recording::LocalTrace;
use crate::tracing::sampling::Sampler;
use crate::worker::state::{Worker, WorkerOptions};
use crate::worker::threads::{ClockMeter, drive, settle};

/// The only worker.
const OWN: WorkerIx = WorkerIx(0);

/// A message queue to the controller's thread.
struct Mailbox {
    messages: Mutex<Vec<(Peer, Envelope)>>,
    reader: Thread,
}

impl Network for Mailbox {
    fn send(&self, to: Peer, envelope: Envelope) {
        lock(&self.messages).push((to, envelope));
        self.reader.unpark();
    }
}

/// Runs a plan in this process until it ends.
///
/// # Errors
/// If the job fails; a kernel's failure names its stage and partition.
pub fn run(plan: Arc<Plan>, mut options: RunOptions) -> Result<Outcome, JobError> {
    let mailbox = Arc::new(Mailbox { messages: Mutex::new(Vec::new()), reader: std::thread::current() });
    let threads = options.threads.max(1);
    let store = options.snapshots.as_ref().map(SnapshotStore::open).transpose()?;
    let snapshot_every = options.snapshots.as_ref().map_or(0, |snapshots| snapshots.every_iterations);
    let worker_options = WorkerOptions { rank: OWN, threads, snapshot_every };
    let parts = store.clone().map(|store| store as Arc<dyn Store>);
    let worker = Worker::new(plan.clone(), worker_options, mailbox.clone(), parts);
    let snapshots = store.as_ref().map_or(Ok(Vec::new()), |store| store.resume(&plan))?;
    let mut controller = Controller::new(plan.clone(), 1, false, snapshots);
    let memory = std::mem::take(&mut options.memory);
    let trace = options.recorder.take().map(|recorder| LocalTrace::begin(&plan, recorder, threads, &memory));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    let controller = std::thread::scope(|scope| {
        // Stops the threads even if the caller's `progress` panics.
        let _stop = StopAtEnd(&worker);
        for index in 0..threads {
            let meter = ClockMeter::new(trace.as_ref().map(|trace| Sampler::new(&plan, trace)));
            let worker = &worker;
            let started =
                Builder::new().spawn_scoped(scope, move || drive(worker, index, meter, cores, None));
            if let Err(error) = started {
                controller.fail(JobError::no_thread(index, threads, &error));
                return controller;
            }
        }
        controller.joined(OWN);
        let transport = OwnWorker { worker: &worker, mailbox: &mailbox, reported: Instant::now() };
        let mut job = JobDriver::new(controller, transport);
        job.run(&mut options, store.as_deref());
        job.controller
    });
    if let Some(trace) = trace {
        trace.recording.end(controller.result.as_ref().and_then(|result| result.as_ref().err()));
    }
    let mut outcome = controller.into_outcome()?;
    outcome.elapsed_ns = Some(start.elapsed().as_nanos() as u64);
    Ok(outcome)
}

/// A guard that stops a worker's threads when dropped.
pub(crate) struct StopAtEnd<'w>(pub(crate) &'w Worker);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The one worker of a job in this process.
struct OwnWorker<'w> {
    worker: &'w Worker,
    mailbox: &'w Mailbox,
    reported: Instant,
}

impl Transport for OwnWorker<'_> {
    fn receive(&mut self, controller: &mut Controller) -> Duration {
        if lock(&self.mailbox.messages).is_empty() && controller.out.is_empty() {
            std::thread::park_timeout(POLL_INTERVAL);
        }
        for (to, envelope) in std::mem::take(&mut *lock(&self.mailbox.messages)) {
            match to {
                Peer::Controller => controller.handle(OWN, envelope),
                Peer::Worker(_) => settle(self.worker, self.worker.handle(Peer::Worker(OWN), envelope)),
            }
        }
        Duration::ZERO
    }

    fn send(&mut self, _: WorkerIx, envelope: Envelope) {
        settle(self.worker, self.worker.handle(Peer::Controller, envelope));
    }

    fn tend(&mut self, _: &mut Controller, _: Duration) {
        if self.reported.elapsed() >= REPORT_INTERVAL {
            self.worker.tick(self.reported.elapsed().as_nanos() as u64);
            self.reported = Instant::now();
        }
    }
}
