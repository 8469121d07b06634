//! Pausing, resuming and cancelling a job from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A handle on a running job; clones are the same handle. Give one to
/// [`RunOptions::control`](crate::RunOptions) and keep the other.
#[derive(Debug, Clone, Default)]
pub struct JobControl {
    wanted: Arc<AtomicU8>,
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

    pub(crate) fn wanted(&self) -> Wanted {
        match self.wanted.load(Ordering::Acquire) {
            0 => Wanted::Run,
            1 => Wanted::Pause,
            _ => Wanted::Cancel,
        }
    }
}
