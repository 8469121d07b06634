//! The threads of a worker: each gives turns, looks for more for a moment, and sleeps.
//!
//! Between iterations a thread has nothing to do for a microsecond or so, and waking takes five to
//! fifty: so it looks for work for some microseconds before it sleeps, if it has a core for itself. Where
//! workers on this machine have more threads than it has cores it sleeps at once, since looking would keep
//! the one that has the work from running.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock;
use crate::plan::BundleIx;
use crate::sampling::Sampler;
use crate::thread::{Meter, Thread};
use crate::worker::Worker;

/// How long a thread with a core for itself looks for work before it sleeps.
const LOOK_NS: u64 = 20_000;

/// A sleep at most, so that nothing is missed for longer.
const SLEEP: Duration = Duration::from_millis(10);

/// Reads what other processes sent; of a worker that has any to talk to.
pub(crate) trait Io: Sync {
    /// Takes in what is there. `wait`: for something, or [`Io::interrupt`], at most so long. False: nothing came,
    /// or another thread is at it.
    fn poll(&self, wait: Option<Duration>) -> bool;
    /// Too much waits to be sent for tasks to send more.
    fn is_full(&self) -> bool;
    /// Workers of the job on this machine, this one included, as far as is known.
    fn workers_here(&self) -> usize;
}

/// Measures turns, and samples tasks where they are recorded.
pub(crate) struct Clocked<'s> {
    begun: u64,
    sampler: Option<Sampler<'s>>,
}

impl<'s> Clocked<'s> {
    pub fn new(sampler: Option<Sampler<'s>>) -> Self {
        Self { begun: 0, sampler }
    }
}

impl Meter for Clocked<'_> {
    #[inline]
    fn before(&mut self, bundle: BundleIx, statement: u32) {
        if let Some(sampler) = &mut self.sampler {
            sampler.before(bundle, statement);
        }
    }

    #[inline]
    fn after(&mut self, bundle: BundleIx, statement: u32, iteration: u64, bytes: impl FnOnce() -> u64) {
        if let Some(sampler) = &mut self.sampler {
            sampler.after(bundle, statement, iteration, bytes);
        }
    }

    fn turn_begins(&mut self) {
        self.begun = clock::ticks();
    }

    fn turn_ends(&mut self) -> u64 {
        clock::nanoseconds(clock::ticks() - self.begun)
    }

    fn now_ns(&self) -> u64 {
        clock::nanoseconds(clock::ticks())
    }
}

/// Runs a thread until the worker stops, on a machine of so many cores.
pub(crate) fn drive(worker: &Worker, index: usize, meter: Clocked<'_>, cores: usize, io: Option<&dyn Io>) {
    let ring = &worker.rings[index];
    let _ = ring.thread.set(std::thread::current());
    let mut thread = Thread::new(worker, index, meter);
    // Others have as many threads, as far as is known.
    let has_core = || worker.rings.len() * io.map_or(1, Io::workers_here) <= cores;
    while !worker.stopped.load(Ordering::SeqCst) {
        ring.at_rest.store(false, Ordering::SeqCst);
        if worker.interrupt.load(Ordering::SeqCst) {
            ring.at_rest.store(true, Ordering::SeqCst);
            thread.forget();
            sleep(worker, index, &thread, io, false);
            continue;
        }
        if io.is_some_and(Io::is_full) {
            ring.at_rest.store(true, Ordering::SeqCst);
            let _ = io.is_some_and(|io| io.poll(Some(Duration::from_millis(1))));
            continue;
        }
        if thread.work() {
            continue;
        }
        ring.at_rest.store(true, Ordering::SeqCst);
        // The first thread sleeps where messages come in: it need not look there before.
        let (look, sleeps_at_once) = if has_core() { (LOOK_NS, false) } else { (0, index == 0) };
        if sleeps_at_once || !look_for_work(&thread, worker, look, io) {
            sleep(worker, index, &thread, io, true);
        }
    }
    ring.at_rest.store(true, Ordering::SeqCst);
}

/// Looks for work for a moment; whether there is some.
fn look_for_work(
    thread: &Thread<'_, Clocked<'_>>,
    worker: &Worker,
    look_ns: u64,
    io: Option<&dyn Io>,
) -> bool {
    let begun = clock::ticks();
    loop {
        if thread.has_work() || io.is_some_and(|io| io.poll(None)) {
            return true;
        }
        if worker.interrupt.load(Ordering::Relaxed) || clock::nanoseconds(clock::ticks() - begun) >= look_ns {
            return false;
        }
        for _ in 0..20 {
            std::hint::spin_loop();
        }
    }
}

/// Sleeps until it is woken, unless there is something to do already.
fn sleep(worker: &Worker, index: usize, thread: &Thread<'_, Clocked<'_>>, io: Option<&dyn Io>, work: bool) {
    let ring = &worker.rings[index];
    ring.parked.store(true, Ordering::SeqCst);
    let stopped = worker.stopped.load(Ordering::SeqCst);
    let interrupted = worker.interrupt.load(Ordering::SeqCst);
    if !(stopped || work && (interrupted || thread.has_work()) || !work && !interrupted) {
        match io {
            Some(io) if index == 0 => {
                io.poll(Some(SLEEP));
            }
            _ => std::thread::park_timeout(SLEEP),
        }
    }
    ring.parked.store(false, Ordering::SeqCst);
}
