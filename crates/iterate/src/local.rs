//! A job in this process: one worker of several threads, and the controller on the caller's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

use crate::cell::lock;
use crate::control::{JobControl, Wanted};
use crate::controller::Controller;
use crate::error::JobError;
use crate::message::{Envelope, Peer};
use crate::plan::Plan;
use crate::recording::Here;
use crate::run::{Outcome, RunOptions};
use crate::sampling::Sampler;
use crate::store::{self, SnapshotStore};
use crate::threads::{Clocked, drive};
use crate::worker::{Network, Store, Worker, WorkerOptions};

/// How often the controller looks at what it is told to do, and progress is shown.
pub(crate) const ROUND: Duration = Duration::from_millis(20);

/// Time between a worker's reports.
pub(crate) const REPORT: Duration = Duration::from_millis(100);

/// The way to the controller, on another thread of this process.
struct Mailbox {
    letters: Mutex<Vec<(Peer, Envelope)>>,
    reader: Thread,
}

impl Network for Mailbox {
    fn send(&self, to: Peer, envelope: Envelope) {
        lock(&self.letters).push((to, envelope));
        self.reader.unpark();
    }
}

/// See [`crate::run`].
pub(crate) fn run(plan: Arc<Plan>, mut options: RunOptions) -> Result<Outcome, JobError> {
    let mailbox = Arc::new(Mailbox { letters: Mutex::new(Vec::new()), reader: std::thread::current() });
    let threads = options.threads.max(1);
    let store = options.snapshots.as_ref().map(SnapshotStore::open).transpose()?;
    let snapshot_every = options.snapshots.as_ref().map_or(0, |snapshots| snapshots.every_iterations);
    let worker_options = WorkerOptions { rank: 0, threads, snapshot_every, memory_bytes: None };
    let parts = store.clone().map(|store| store as Arc<dyn Store>);
    let worker = Worker::new(plan.clone(), worker_options, mailbox.clone(), parts);
    let manifest = store.as_ref().map(|store| store.latest(&plan)).transpose()?.flatten();
    let mut controller = Controller::new(plan.clone(), 1, false, manifest);
    let memory = std::mem::take(&mut options.memory);
    let trace = options.recorder.take().map(|recorder| Here::begin(&plan, recorder, threads, &memory));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        // A panic of the caller's own `progress` ends the threads too.
        let _stop = StopAtEnd(&worker);
        for index in 0..threads {
            let meter = Clocked::new(trace.as_ref().map(|trace| Sampler::new(&plan, trace)));
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
    outcome.elapsed_ns = Some(begun.elapsed().as_nanos() as u64);
    Ok(outcome)
}

/// Lets the threads of a worker end, however the scope is left.
pub(crate) struct StopAtEnd<'w>(pub(crate) &'w Worker);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The caller's thread: carries messages, reports, and does what the job's handle wants.
fn serve(
    worker: &Worker,
    mailbox: &Mailbox,
    controller: &mut Controller,
    store: Option<&SnapshotStore>,
    options: &mut RunOptions,
) {
    let control = options.control.clone().unwrap_or_default();
    let mut state = Serving { wanted: Wanted::Run, reported: Instant::now(), moved: (0, Instant::now()) };
    while controller.result.is_none() {
        let letters = std::mem::take(&mut *lock(&mailbox.letters));
        let idle = letters.is_empty() && controller.out.is_empty();
        for (to, envelope) in letters {
            match to {
                Peer::Controller => controller.handle(0, envelope),
                Peer::Worker(_) => worker.handle(Peer::Worker(0), envelope),
            }
        }
        for (_, envelope) in std::mem::take(&mut controller.out) {
            worker.handle(Peer::Controller, envelope);
        }
        store::commit(controller, store);
        state.obey(controller, &control);
        if state.reported.elapsed() >= REPORT {
            worker.tick(state.reported.elapsed().as_nanos() as u64);
            state.reported = Instant::now();
            if let Some(progress) = &mut options.progress {
                progress(&controller.progress());
            }
            state.watch(worker, controller, options.wait_limit);
        }
        if idle {
            std::thread::park_timeout(ROUND);
        }
    }
}

struct Serving {
    wanted: Wanted,
    reported: Instant,
    /// Tasks that had run, and since when no more have.
    moved: (u64, Instant),
}

impl Serving {
    fn obey(&mut self, controller: &mut Controller, control: &JobControl) {
        let wanted = control.wanted();
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        match wanted {
            Wanted::Cancel => controller.fail(control.error()),
            Wanted::Pause | Wanted::Run => controller.pause(wanted == Wanted::Pause),
        }
    }

    /// Ends a job in which nothing runs and nothing happens.
    fn watch(&mut self, worker: &Worker, controller: &mut Controller, limit: Duration) {
        let tasks = controller.progress().tasks;
        let rests = worker.rings.iter().all(|ring| ring.at_rest.load(Ordering::SeqCst));
        if tasks != self.moved.0 || !rests || self.wanted == Wanted::Pause {
            self.moved = (tasks, Instant::now());
        } else if self.moved.1.elapsed() > limit {
            let waited_for = "a task to become ready: the job stands still".into();
            controller.fail(JobError::TimedOut { waited_for, limit });
        }
    }
}
