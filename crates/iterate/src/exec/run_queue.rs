//! Run queues of ready bundles.
//!
//! Each thread has one run queue; idle threads steal from the tail of the others' queues. A stolen bundle stays with
//! the thief, so that load evens out once and not in every iteration.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

use crate::dataflow::index::BundleIx;
use crate::sync::lock;

/// A thread's queue of ready bundles.
#[repr(align(128))]
pub(crate) struct RunQueue {
    queue: Mutex<VecDeque<BundleIx>>,
    len: AtomicUsize,
    /// True if the thread sleeps or is about to.
    pub parked: AtomicBool,
    /// True if the thread runs no turn.
    pub idle: AtomicBool,
    /// Core time of the thread's turns, without loading, and the tasks run in them.
    pub busy_ns: AtomicU64,
    pub tasks: AtomicU64,
    pub thread: OnceLock<Thread>,
    /// Wakes the thread if it waits on something other than being unparked.
    pub waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl RunQueue {
    pub fn new() -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            len: AtomicUsize::new(0),
            parked: AtomicBool::new(false),
            idle: AtomicBool::new(true),
            busy_ns: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            thread: OnceLock::new(),
            waker: OnceLock::new(),
        }
    }

    pub fn push(&self, bundle: BundleIx) {
        let mut queue = lock(&self.queue);
        queue.push_back(bundle);
        self.len.store(queue.len(), Ordering::SeqCst);
    }

    /// Removes the oldest bundle for the owning thread, or the newest for a thief.
    pub fn pop(&self, own: bool) -> Option<BundleIx> {
        if self.is_empty() {
            return None;
        }
        let mut queue = lock(&self.queue);
        let bundle = if own { queue.pop_front() } else { queue.pop_back() };
        self.len.store(queue.len(), Ordering::SeqCst);
        bundle
    }

    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn clear(&self) {
        lock(&self.queue).clear();
        self.len.store(0, Ordering::SeqCst);
    }

    /// Wakes the thread if it sleeps. Returns whether it did.
    pub fn wake(&self) -> bool {
        if self.parked.load(Ordering::SeqCst) && self.parked.swap(false, Ordering::SeqCst) {
            match (self.waker.get(), self.thread.get()) {
                (Some(wake), _) => wake(),
                (None, Some(thread)) => thread.unpark(),
                (None, None) => {}
            }
            return true;
        }
        false
    }
}
