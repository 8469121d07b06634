//! Pausing, resuming and cancelling a job from another thread, and letting a worker go.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use crate::cell::lock;
use crate::error::JobError;

/// A handle on a running job; clones are the same handle. Give one to
/// [`RunOptions::control`](crate::RunOptions) and keep the other.
#[derive(Debug, Clone, Default)]
pub struct JobControl {
    wanted: Arc<AtomicU8>,
    leaving: Arc<Mutex<Vec<u32>>>,
    failure: Arc<Mutex<Option<JobError>>>,
}

/// What was last asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Run,
    Pause,
    Cancel,
}

impl JobControl {
    /// Lets tasks that run end and starts no others, until [`JobControl::resume`].
    pub fn pause(&self) {
        let _ = self.wanted.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        let _ = self.wanted.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends the job with [`JobError::Cancelled`](crate::JobError::Cancelled), for good.
    pub fn cancel(&self) {
        self.wanted.store(2, Ordering::Release);
    }

    /// Ends the job with an error, for good: whoever started its workers knows that there will be none.
    pub fn fail(&self, error: JobError) {
        lock(&self.failure).get_or_insert(error);
        self.cancel();
    }

    /// Lets a worker of a job over several processes hand its partitions to the others, and end. The last
    /// one stays, and so does each once the program has ended and results come in.
    pub fn leave(&self, worker: u32) {
        lock(&self.leaving).push(worker);
    }

    /// Workers that were to leave since this was last asked.
    pub(crate) fn leaving(&self) -> Vec<u32> {
        std::mem::take(&mut *lock(&self.leaving))
    }

    /// What a job that is to end ends with.
    pub(crate) fn error(&self) -> JobError {
        lock(&self.failure).clone().unwrap_or(JobError::Cancelled)
    }

    pub(crate) fn wanted(&self) -> Wanted {
        match self.wanted.load(Ordering::Acquire) {
            0 => Wanted::Run,
            1 => Wanted::Pause,
            _ => Wanted::Cancel,
        }
    }
}
