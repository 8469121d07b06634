//! The thread loop of a worker: run turns, spin briefly for more work, then sleep.
//!
//! Between iterations a thread is idle for about a microsecond, while waking it takes five to fifty. So it
//! spins for some microseconds before it sleeps, if it has a core to itself. If the workers on this machine
//! have more threads than cores, it sleeps at once, since spinning would take the core from a thread that
//! has work.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clock;
use crate::dataflow::index::{BundleIx, StatementIx};
use crate::exec::host::Meter;
use crate::tracing::sampling::Sampler;
use crate::worker::handlers::Waiting;
use crate::worker::state::Worker;
use crate::worker::thread::Thread;

/// Time that a thread with its own core spins for work before it sleeps.
const SPIN_NS: u64 = 20_000;

/// Maximum time to wait for the ends of turns.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// Maximum length of a sleep; bounds the delay of a missed wake-up.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Network I/O of a worker with peers in other processes.
pub(crate) trait Io: Sync {
    /// Receives pending messages, waiting up to `wait` for the first. Returns false if there were none, or if
    /// another thread is polling.
    fn poll(&self, wait: Option<Duration>) -> bool;
    /// Returns whether tasks should wait because too many bytes are queued.
    fn is_full(&self) -> bool;
    /// Returns the number of known workers of the job on this machine, including this one.
    fn local_workers(&self) -> usize;
}

/// A meter that uses the real clock, and samples tasks if the job is traced.
pub(crate) struct ClockMeter<'s> {
    start_ticks: u64,
    sampler: Option<Sampler<'s>>,
}

impl<'s> ClockMeter<'s> {
    pub fn new(sampler: Option<Sampler<'s>>) -> Self {
        Self { start_ticks: 0, sampler }
    }
}

impl Meter for ClockMeter<'_> {
    #[inline]
    fn before(&mut self, bundle: BundleIx, statement: StatementIx) {
        if let Some(sampler) = &mut self.sampler {
            sampler.before(bundle, statement);
        }
    }

    #[inline]
    fn after(
        &mut self,
        bundle: BundleIx,
        statement: StatementIx,
        iteration: u64,
        bytes: impl FnOnce() -> u64,
    ) {
        if let Some(sampler) = &mut self.sampler {
            sampler.after(bundle, statement, iteration, bytes);
        }
    }

    fn turn_begins(&mut self) {
        self.start_ticks = clock::ticks();
    }

    fn turn_ends(&mut self) -> u64 {
        clock::nanoseconds(clock::ticks() - self.start_ticks)
    }

    fn now_ns(&self) -> u64 {
        clock::nanoseconds(clock::ticks())
    }
}

/// Waits until the worker has handled all messages, because its threads have ended their turns.
pub(crate) fn settle(worker: &Worker, mut waiting: Option<Waiting>) {
    let started = Instant::now();
    while let Some(messages) = waiting {
        if started.elapsed() >= TURN_LIMIT {
            return worker.give_up(&messages, TURN_LIMIT);
        }
        std::thread::sleep(Duration::from_millis(1));
        waiting = worker.resume(messages);
    }
}

/// Runs a thread until the worker stops. `cores` is the number of cores of the machine.
pub(crate) fn drive(worker: &Worker, index: usize, meter: ClockMeter<'_>, cores: usize, io: Option<&dyn Io>) {
    let queue = &worker.run_queues[index];
    let _ = queue.thread.set(std::thread::current());
    let mut thread = Thread::new(worker, index, meter);
    // Assumes that the other workers have as many threads.
    let has_core = || worker.run_queues.len() * io.map_or(1, Io::local_workers) <= cores;
    while !worker.gate.is_stopped() {
        queue.idle.store(false, Ordering::SeqCst);
        if worker.gate.is_closed() {
            queue.idle.store(true, Ordering::SeqCst);
            thread.clear_waiting();
            sleep(worker, index, &thread, io, false);
            continue;
        }
        if io.is_some_and(Io::is_full) {
            queue.idle.store(true, Ordering::SeqCst);
            let _ = io.is_some_and(|io| io.poll(Some(Duration::from_millis(1))));
            continue;
        }
        if thread.work() {
            continue;
        }
        queue.idle.store(true, Ordering::SeqCst);
        // The first thread sleeps in `poll`, so it need not check for messages first.
        let (look, sleeps_at_once) = if has_core() { (SPIN_NS, false) } else { (0, index == 0) };
        if sleeps_at_once || !spin_for_work(&thread, worker, look, io) {
            sleep(worker, index, &thread, io, true);
        }
    }
    queue.idle.store(true, Ordering::SeqCst);
}

/// Spins for work for up to `spin_ns`. Returns whether it found some.
fn spin_for_work(
    thread: &Thread<'_, ClockMeter<'_>>,
    worker: &Worker,
    spin_ns: u64,
    io: Option<&dyn Io>,
) -> bool {
    let start_ticks = clock::ticks();
    loop {
        if thread.has_work() || io.is_some_and(|io| io.poll(None)) {
            return true;
        }
        if worker.gate.seems_closed() || clock::nanoseconds(clock::ticks() - start_ticks) >= spin_ns {
            return false;
        }
        for _ in 0..20 {
            std::hint::spin_loop();
        }
    }
}

/// Sleeps until woken, unless there is already something to do.
fn sleep(
    worker: &Worker,
    index: usize,
    thread: &Thread<'_, ClockMeter<'_>>,
    io: Option<&dyn Io>,
    work: bool,
) {
    let queue = &worker.run_queues[index];
    queue.parked.store(true, Ordering::SeqCst);
    let (stopped, closed) = (worker.gate.is_stopped(), worker.gate.is_closed());
    if !(stopped || work && (closed || thread.has_work()) || !work && !closed) {
        match io {
            Some(io) if index == 0 => {
                io.poll(Some(MAX_SLEEP));
            }
            _ => std::thread::park_timeout(MAX_SLEEP),
        }
    }
    queue.parked.store(false, Ordering::SeqCst);
}
