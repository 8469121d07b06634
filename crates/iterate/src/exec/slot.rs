//! Slots that hold a worker's bundles.
//!
//! A slot holds a bundle, its inbox, and its scheduling state in a separate cache line. The bundle belongs to
//! the thread that runs it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::exec::bundle::Bundle;
use crate::protocol::records::Arrival;
use crate::sync::lock;

/// Waiting; not queued.
const IDLE: u8 = 0;
/// In a run queue.
const QUEUED: u8 = 1;
/// Running.
const RUNNING: u8 = 2;
/// Running, and notified meanwhile.
const NOTIFIED: u8 = 3;

/// A bundle's slot on a worker.
#[repr(align(128))]
pub(crate) struct Slot {
    state: AtomicU8,
    /// True if the inbox is not empty.
    mail: AtomicBool,
    /// True if the bundle must leave this worker.
    pub migration_requested: AtomicBool,
    /// The thread whose run queue the bundle goes to.
    pub home: AtomicU32,
    /// Signals passed at the end of the last turn.
    pub epoch: AtomicU64,
    pub iteration: AtomicU64,
    /// Core time of the turns.
    pub busy_ns: AtomicU64,
    pub size_bytes: AtomicU64,
    pub tasks: AtomicU64,
    /// Version of the map entry that brought the bundle here.
    pub version: AtomicU32,
    pub inbox: Mutex<Inbox>,
    /// Limit for the inbox, computed when another process first sends something.
    pub max_arrivals: OnceLock<usize>,
    /// Locked for the length of a turn. Uncontended, because a bundle is in at most one run queue.
    bundle: Mutex<Option<Box<Bundle>>>,
}

/// Arrivals that a bundle has not received yet.
#[derive(Default)]
pub(crate) struct Inbox {
    /// True if the bundle is on this worker.
    pub resident: bool,
    pub arrivals: Vec<Arrival>,
}

impl Slot {
    pub fn new(home: u32) -> Self {
        Self {
            state: AtomicU8::new(IDLE),
            mail: AtomicBool::new(false),
            migration_requested: AtomicBool::new(false),
            home: AtomicU32::new(home),
            epoch: AtomicU64::new(0),
            iteration: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            size_bytes: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            version: AtomicU32::new(0),
            inbox: Mutex::new(Inbox::default()),
            max_arrivals: OnceLock::new(),
            bundle: Mutex::new(None),
        }
    }

    /// Puts an arrival into the inbox, or returns it if the bundle is not on this worker.
    pub fn post(&self, arrival: Arrival) -> Result<(), Arrival> {
        let mut inbox = lock(&self.inbox);
        if !inbox.resident {
            return Err(arrival);
        }
        inbox.arrivals.push(arrival);
        drop(inbox);
        self.mail.store(true, Ordering::Release);
        Ok(())
    }

    /// Moves the inbox's content, if any, into an empty vector.
    pub fn collect(&self, into: &mut Vec<Arrival>) {
        if self.mail.load(Ordering::Relaxed) && self.mail.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut lock(&self.inbox).arrivals, into);
        }
    }

    /// Returns the number of arrivals in the inbox, or `None` if the bundle is not on this worker.
    pub fn waiting(&self) -> Option<usize> {
        let inbox = lock(&self.inbox);
        inbox.resident.then_some(inbox.arrivals.len())
    }

    pub fn is_resident(&self) -> bool {
        lock(&self.inbox).resident
    }

    /// Marks the bundle as ready. Returns true if the caller must put it into a run queue.
    ///
    /// The state is written even if it does not change. A plain read could return the state from before the end of
    /// the current turn, whose thread may have checked the inbox before the new arrival became visible. The
    /// read-modify-write guarantees that the next writer of the state sees the arrival.
    pub fn notify(&self) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let next = match state {
                IDLE => QUEUED,
                RUNNING => NOTIFIED,
                queued => queued,
            };
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return state == IDLE,
                Err(now) => state = now,
            }
        }
    }

    /// Begins a turn, after the bundle was taken from a run queue.
    pub fn begin(&self) -> MutexGuard<'_, Option<Box<Bundle>>> {
        self.state.swap(RUNNING, Ordering::AcqRel);
        lock(&self.bundle)
    }

    /// Locks the bundle outside of a turn.
    pub fn bundle(&self) -> MutexGuard<'_, Option<Box<Bundle>>> {
        lock(&self.bundle)
    }

    /// Ends a turn. Returns true if the caller must queue the bundle again.
    pub fn end(&self, again: bool) -> bool {
        if !again && self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return false;
        }
        self.state.swap(QUEUED, Ordering::AcqRel);
        true
    }

    /// Resets the slot to idle with an empty inbox. Call only while no thread runs.
    pub fn reset(&self, resident: bool) {
        let mut inbox = lock(&self.inbox);
        inbox.resident = resident;
        inbox.arrivals.clear();
        self.mail.store(false, Ordering::Release);
        self.migration_requested.store(false, Ordering::Release);
        self.busy_ns.store(0, Ordering::Relaxed);
        self.state.store(IDLE, Ordering::Release);
    }

    /// Marks the inbox as filled. Called by code that filled it under its lock.
    pub fn has_mail(&self) {
        self.mail.store(true, Ordering::Release);
    }
}
