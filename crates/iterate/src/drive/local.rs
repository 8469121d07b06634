//! A job within this process: one worker with several threads, and the controller on the caller's thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use crate::control::controller::Controller;
use crate::dataflow::outcome::Outcome;
use crate::dataflow::plan::Plan;
use crate::drive::commit::commit;
use crate::drive::job_control::{JobControl, RequestedState};
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

/// Maximum time between two rounds of the controller.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of a worker's reports and of progress callbacks.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_millis(100);

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
    let worker_options = WorkerOptions { rank: 0, threads, snapshot_every };
    let parts = store.clone().map(|store| store as Arc<dyn Store>);
    let worker = Worker::new(plan.clone(), worker_options, mailbox.clone(), parts);
    let snapshots = store.as_ref().map_or(Ok(Vec::new()), |store| store.resume(&plan))?;
    let mut controller = Controller::new(plan.clone(), 1, false, snapshots);
    let memory = std::mem::take(&mut options.memory);
    let trace = options.recorder.take().map(|recorder| LocalTrace::begin(&plan, recorder, threads, &memory));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    std::thread::scope(|scope| {
        // Stops the threads even if the caller's `progress` panics.
        let _stop = StopAtEnd(&worker);
        for index in 0..threads {
            let meter = ClockMeter::new(trace.as_ref().map(|trace| Sampler::new(&plan, trace)));
            let worker = &worker;
            let started =
                Builder::new().spawn_scoped(scope, move || drive(worker, index, meter, cores, None));
            if let Err(error) = started {
                return controller.fail(JobError::no_thread(index, threads, &error));
            }
        }
        controller.joined(0);
        serve(&worker, &mailbox, &mut controller, store.as_deref(), &mut options);
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

/// Runs the controller: passes messages, reports progress, and applies requests of the job's handle.
fn serve(
    worker: &Worker,
    mailbox: &Mailbox,
    controller: &mut Controller,
    store: Option<&SnapshotStore>,
    options: &mut RunOptions,
) {
    let control = options.control.clone().unwrap_or_default();
    let mut state = JobDriver {
        requested: RequestedState::Run,
        reported: Instant::now(),
        last_progress: (0, Instant::now()),
    };
    while controller.result.is_none() {
        let messages = std::mem::take(&mut *lock(&mailbox.messages));
        let idle = messages.is_empty() && controller.out.is_empty();
        for (to, envelope) in messages {
            match to {
                Peer::Controller => controller.handle(0, envelope),
                Peer::Worker(_) => settle(worker, worker.handle(Peer::Worker(0), envelope)),
            }
        }
        for (_, envelope) in std::mem::take(&mut controller.out) {
            settle(worker, worker.handle(Peer::Controller, envelope));
        }
        commit(controller, store);
        state.apply_requests(controller, &control);
        if state.reported.elapsed() >= REPORT_INTERVAL {
            worker.tick(state.reported.elapsed().as_nanos() as u64);
            state.reported = Instant::now();
            if let Some(progress) = &mut options.progress {
                progress(&controller.progress());
            }
            state.check_timeouts(worker, controller, options.wait_limit);
        }
        if idle {
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }
}

struct JobDriver {
    requested: RequestedState,
    reported: Instant,
    /// Number of tasks run, and the time at which it last changed.
    last_progress: (u64, Instant),
}

impl JobDriver {
    fn apply_requests(&mut self, controller: &mut Controller, control: &JobControl) {
        let requested = control.requested();
        if requested == self.requested {
            return;
        }
        self.requested = requested;
        match requested {
            RequestedState::Cancel => controller.fail(control.error()),
            RequestedState::Pause | RequestedState::Run => {
                controller.pause(requested == RequestedState::Pause)
            }
        }
    }

    /// Fails a job that has stalled.
    fn check_timeouts(&mut self, worker: &Worker, controller: &mut Controller, limit: Duration) {
        let tasks = controller.progress().tasks;
        let idle = worker.run_queues.iter().all(|queue| queue.idle.load(Ordering::SeqCst));
        if tasks != self.last_progress.0 || !idle || self.requested == RequestedState::Pause {
            self.last_progress = (tasks, Instant::now());
        } else if self.last_progress.1.elapsed() > limit {
            let waited_for = "a task to become ready; the job has stalled".into();
            controller.fail(JobError::TimedOut { waited_for, limit });
        }
    }
}
