//! Where bundles stay on a worker, and the rings of those that are ready.
//!
//! A cell is a bundle's place: its state of scheduling in a cache line of its own, its inbox, and the
//! bundle itself, which belongs to the thread that runs it. A ring is one thread's queue of ready
//! bundles; others take from its end when they are idle. The bundle then stays with the thread that
//! took it, so that work evens out once and not in every iteration.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use crate::bundle::{Arrival, Bundle};
use crate::plan::BundleIx;

/// Nobody has looked at it since it last had to wait.
const IDLE: u8 = 0;
/// In a ring.
const QUEUED: u8 = 1;
/// A thread runs it.
const RUNNING: u8 = 2;
/// A thread runs it, and something arrived meanwhile.
const NOTIFIED: u8 = 3;

/// A lock that a panic elsewhere does not spoil: what it guards is whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bundle's place on a worker.
#[repr(align(128))]
pub(crate) struct Cell {
    state: AtomicU8,
    /// Its inbox is not empty.
    mail: AtomicBool,
    /// Somebody wants something of it: it is to leave.
    pub attention: AtomicBool,
    /// The thread whose ring it goes to.
    pub home: AtomicU32,
    /// Signals passed at the end of its last turn.
    pub epoch: AtomicU64,
    pub iteration: AtomicU64,
    /// Core time of its turns.
    pub busy_ns: AtomicU64,
    pub size_bytes: AtomicU64,
    pub tasks: AtomicU64,
    /// Version of the map's entry that brought the bundle here.
    pub version: AtomicU32,
    pub inbox: Mutex<Inbox>,
    /// Held for a turn; nobody waits for it for long, since a bundle is in one ring.
    bundle: Mutex<Option<Box<Bundle>>>,
}

/// What arrived for a bundle and has not been taken in.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The bundle is here.
    pub resident: bool,
    pub arrivals: Vec<Arrival>,
}

impl Cell {
    pub fn new(home: u32) -> Self {
        Self {
            state: AtomicU8::new(IDLE),
            mail: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            home: AtomicU32::new(home),
            epoch: AtomicU64::new(0),
            iteration: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            size_bytes: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            version: AtomicU32::new(0),
            inbox: Mutex::new(Inbox::default()),
            bundle: Mutex::new(None),
        }
    }

    /// Puts something into the inbox, unless the bundle is not here; gives it back then.
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

    /// Swaps the inbox's content, if any, with an empty vector.
    pub fn collect(&self, into: &mut Vec<Arrival>) {
        if self.mail.load(Ordering::Relaxed) && self.mail.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut lock(&self.inbox).arrivals, into);
        }
    }

    pub fn is_resident(&self) -> bool {
        lock(&self.inbox).resident
    }

    /// Whether the bundle has to be put into a ring now, by the caller.
    ///
    /// A state that stays as it is, is written all the same: a plain read could be of a turn ago, whose thread has
    /// looked at the inbox before what was posted now was there to be seen. Who writes the state next sees it.
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

    /// Begins a turn, after the bundle was taken from a ring.
    pub fn begin(&self) -> MutexGuard<'_, Option<Box<Bundle>>> {
        self.state.swap(RUNNING, Ordering::AcqRel);
        lock(&self.bundle)
    }

    /// The bundle, outside of a turn.
    pub fn bundle(&self) -> MutexGuard<'_, Option<Box<Bundle>>> {
        lock(&self.bundle)
    }

    /// Ends a turn. True: it has to go into a ring again.
    pub fn end(&self, again: bool) -> bool {
        if !again && self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return false;
        }
        self.state.swap(QUEUED, Ordering::AcqRel);
        true
    }

    /// Back to idle with an empty inbox, while no thread runs.
    pub fn reset(&self, resident: bool) {
        let mut inbox = lock(&self.inbox);
        inbox.resident = resident;
        inbox.arrivals.clear();
        self.mail.store(false, Ordering::Release);
        self.attention.store(false, Ordering::Release);
        self.busy_ns.store(0, Ordering::Relaxed);
        self.state.store(IDLE, Ordering::Release);
    }

    /// The inbox has something: said by who filled it under its lock.
    pub fn has_mail(&self) {
        self.mail.store(true, Ordering::Release);
    }
}

/// A thread's ready bundles.
#[repr(align(128))]
pub(crate) struct Ring {
    queue: Mutex<VecDeque<BundleIx>>,
    len: AtomicUsize,
    /// Its thread sleeps, or is about to.
    pub parked: AtomicBool,
    /// Its thread has no turn under way.
    pub at_rest: AtomicBool,
    /// Core time of its thread's turns, loading left out, and tasks in them.
    pub busy_ns: AtomicU64,
    pub tasks: AtomicU64,
    pub thread: OnceLock<Thread>,
    /// Ends its thread's wait, where that is not for being unparked.
    pub waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Ring {
    pub fn new() -> Self {
        Self {
            queue: Mutex::new(VecDeque::new()),
            len: AtomicUsize::new(0),
            parked: AtomicBool::new(false),
            at_rest: AtomicBool::new(true),
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

    /// The oldest, for its thread; or the newest, for another.
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

    /// Wakes its thread, if that sleeps; whether it did.
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
