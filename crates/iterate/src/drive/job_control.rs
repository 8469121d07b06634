//! Pausing, resuming and cancelling a job from another thread, and removing a worker.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use crate::dataflow::index::WorkerIx;
use crate::error::JobError;
use crate::sync::lock;

/// A handle to a running job. Clones refer to the same job: pass one to
/// [`RunOptions::control`](crate::RunOptions) and keep the other.
#[derive(Debug, Clone, Default)]
pub struct JobControl {
    requested: Arc<AtomicU8>,
    leaving: Arc<Mutex<Vec<WorkerIx>>>,
    failure: Arc<Mutex<Option<JobError>>>,
}

/// The state last requested through the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestedState {
    Run,
    Pause,
    Cancel,
}

impl JobControl {
    /// Pauses the job: running tasks finish, and no others start until [`JobControl::resume`].
    pub fn pause(&self) {
        let _ = self.requested.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Resumes a paused job.
    pub fn resume(&self) {
        let _ = self.requested.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Cancels the job, which then fails with [`JobError::Cancelled`](crate::JobError::Cancelled).
    pub fn cancel(&self) {
        self.requested.store(2, Ordering::Release);
    }

    /// Fails the job with `error`, for example when a launcher knows that its workers will not start.
    pub fn fail(&self, error: JobError) {
        lock(&self.failure).get_or_insert(error);
        self.cancel();
    }

    /// Removes a worker from a job over several processes: it hands its partitions to the others and exits. Has no
    /// effect on the last worker, or once the program has ended and results are collected.
    pub fn leave(&self, worker: u32) {
        lock(&self.leaving).push(WorkerIx(worker));
    }

    /// Returns the workers that were asked to leave since the last call.
    pub(crate) fn leaving(&self) -> Vec<WorkerIx> {
        std::mem::take(&mut *lock(&self.leaving))
    }

    /// Returns the error that a cancelled job fails with.
    pub(crate) fn error(&self) -> JobError {
        lock(&self.failure).clone().unwrap_or(JobError::Cancelled)
    }

    pub(crate) fn requested(&self) -> RequestedState {
        match self.requested.load(Ordering::Acquire) {
            0 => RequestedState::Run,
            1 => RequestedState::Pause,
            _ => RequestedState::Cancel,
        }
    }
}
