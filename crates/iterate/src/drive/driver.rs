//! The controller's side of a job, over any transport.

use std::time::{Duration, Instant};

use crate::control::controller::Controller;
use crate::dataflow::index::WorkerIx;
use crate::drive::commit::commit;
use crate::drive::job_control::RequestedState;
use crate::drive::options::RunOptions;
use crate::error::JobError;
use crate::protocol::message::Envelope;
use crate::snapshot::store::SnapshotStore;

/// Maximum time between two rounds of the controller.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of a worker's reports and of progress callbacks.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// The connections of a controller to its workers.
pub(crate) trait Transport {
    /// Passes what has arrived to the controller. If nothing has, waits up to [`POLL_INTERVAL`]. Returns for how long
    /// this process failed to receive; timeouts must not count that time.
    fn receive(&mut self, controller: &mut Controller) -> Duration;
    /// Sends a message to a worker.
    fn send(&mut self, to: WorkerIx, envelope: Envelope);
    /// Does what is due by the clock: heartbeats or reports, and the loss of workers that were silent for `limit`.
    fn tend(&mut self, controller: &mut Controller, limit: Duration);
}

/// See the [module](self).
pub(crate) struct JobDriver<T> {
    pub controller: Controller,
    pub transport: T,
    requested: RequestedState,
    progress_at: Instant,
    /// Number of tasks run, and the time at which it last changed.
    last_progress: (u64, Instant),
}

impl<T: Transport> JobDriver<T> {
    pub fn new(controller: Controller, transport: T) -> Self {
        let now = Instant::now();
        let requested = RequestedState::Run;
        Self { controller, transport, requested, progress_at: now, last_progress: (0, now) }
    }

    /// Runs the controller until the job has a result.
    pub fn run(&mut self, options: &mut RunOptions, store: Option<&SnapshotStore>) {
        while self.controller.result.is_none() {
            self.round(options, store);
        }
    }

    /// Receives messages, applies requests of the job's handle, and sends the controller's messages.
    pub fn round(&mut self, options: &mut RunOptions, store: Option<&SnapshotStore>) {
        self.last_progress.1 += self.transport.receive(&mut self.controller);
        commit(&mut self.controller, store);
        self.apply_requests(options);
        self.transport.tend(&mut self.controller, options.wait_limit);
        self.check_progress(options.wait_limit);
        for (worker, envelope) in std::mem::take(&mut self.controller.out) {
            self.transport.send(worker, envelope);
        }
        if let (Some(progress), true) = (&mut options.progress, self.progress_at.elapsed() >= REPORT_INTERVAL)
        {
            self.progress_at = Instant::now();
            progress(&self.controller.progress());
        }
    }

    fn apply_requests(&mut self, options: &RunOptions) {
        let Some(control) = &options.control else { return };
        if self.controller.has_begun() {
            control.leaving().into_iter().for_each(|worker| self.controller.leave(worker));
        }
        let requested = control.requested();
        if requested != self.requested {
            self.requested = requested;
            match requested {
                RequestedState::Cancel => self.controller.fail(control.error()),
                RequestedState::Pause | RequestedState::Run => {
                    self.controller.pause(requested == RequestedState::Pause)
                }
            }
        }
    }

    /// Fails a job that has stalled.
    fn check_progress(&mut self, limit: Duration) {
        if !self.controller.has_begun() {
            return;
        }
        let tasks = self.controller.progress().tasks;
        let paused = self.requested == RequestedState::Pause;
        if tasks != self.last_progress.0 || paused || self.controller.is_busy() {
            self.last_progress = (tasks, Instant::now());
        } else if self.last_progress.1.elapsed() > limit {
            let waited_for = "a task to become ready; the job has stalled".into();
            self.controller.fail(JobError::TimedOut { waited_for, limit });
        }
    }
}
