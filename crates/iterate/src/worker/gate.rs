//! The gate of a worker's turns: closed while the worker pauses, rolls back or has stopped.

use std::sync::atomic::{AtomicBool, Ordering};

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    paused: AtomicBool,
    stopped: AtomicBool,
}

impl Gate {
    /// Closes the gate until [`Gate::reopen`]: running turns should end soon, and no others begin.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Opens the gate unless the worker is paused or has stopped.
    pub fn reopen(&self) {
        let stays = self.paused.load(Ordering::SeqCst) || self.is_stopped();
        self.closed.store(stays, Ordering::SeqCst);
    }

    /// Pauses or resumes turns.
    pub fn pause(&self, pause: bool) {
        self.paused.store(pause, Ordering::SeqCst);
        self.reopen();
    }

    /// Closes the gate for good.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.close();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Returns whether the gate is closed, without ordering other reads: cheap enough for every task.
    #[inline]
    pub fn seems_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}
