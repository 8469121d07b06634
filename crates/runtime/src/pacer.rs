//! Slows a resource to a set rate, inside the engine.
//!
//! Experiments need devices of a known speed, and a kernel throttle needs root.
//! A pacer is a line of credit: each transfer books its share of the rate behind
//! those booked before, and may end no earlier than its share does. A sleep ends
//! late, so a little lost time may be caught up; more would let a burst through.
//! A job begins without such credit, whatever the runtime did before it.
//! The booking is arithmetic on a time that is passed in; only [`Pacer::pace`]
//! sleeps. Reads and writes of one disk share its rate, as on a real one.
//!
//! It does not apply as a limit that others must respect: it slows what runs
//! through this runtime only, and a trace made with it carries a label.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Cancelled, Context};

/// Longest sleep between two looks at whether the job was cancelled.
const SLEEP_NS: u64 = 25_000_000;
/// Smallest transfer worth a booking.
const CHUNK_MIN_BYTES: u64 = 64 * 1024;

/// A rate, shared by every thread that moves bytes of one resource.
#[derive(Debug)]
pub struct Pacer {
    bytes_per_s: u64,
    origin: Instant,
    line: Mutex<Line>,
}

/// The arithmetic of a pacer, on virtual time.
#[derive(Debug, Clone, Copy)]
struct Line {
    bytes_per_s: u64,
    /// When all that was booked so far will have passed.
    free_ns: u64,
    /// Set until something is booked: no time before that is caught up.
    fresh: bool,
}

impl Line {
    fn new(bytes_per_s: u64) -> Line {
        Line { bytes_per_s, free_ns: 0, fresh: true }
    }

    /// Books `bytes` at `now_ns`; they may have passed at the time it returns.
    fn book(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let credit_ns = if self.fresh { 0 } else { Pacer::CATCH_UP.as_nanos() as u64 };
        self.fresh = false;
        let start = self.free_ns.max(now_ns.saturating_sub(credit_ns));
        let took = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        self.free_ns = start.saturating_add(u64::try_from(took).unwrap_or(u64::MAX));
        self.free_ns
    }
}

impl Pacer {
    /// Time that may be caught up after sleeps that ended late.
    pub const CATCH_UP: Duration = Duration::from_millis(20);

    /// Paces at `bytes_per_s`, at least 1.
    pub fn new(bytes_per_s: u64) -> Pacer {
        let bytes_per_s = bytes_per_s.max(1);
        Pacer { bytes_per_s, origin: Instant::now(), line: Mutex::new(Line::new(bytes_per_s)) }
    }

    /// The rate.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Books `bytes` and says how long the caller must wait before it goes on
    /// (for callers that sleep by themselves, as async code does).
    pub fn book(&self, bytes: u64) -> Duration {
        let now_ns = self.now_ns();
        Duration::from_nanos(self.line().book(now_ns, bytes).saturating_sub(now_ns))
    }

    /// Drops the credit for idle time: the next transfer takes as long as its
    /// share, as on a pacer that is new. What is booked stays booked.
    pub fn drop_credit(&self) {
        self.line().fresh = true;
    }

    /// Waits until `bytes`, booked at the moment of the call, may have passed.
    ///
    /// # Errors
    /// [`Cancelled`], within 25 ms of the job's cancellation.
    pub fn pace(&self, bytes: u64, context: &Context) -> Result<(), Cancelled> {
        wait(Instant::now() + self.book(bytes), context)
    }

    /// Largest transfer, of at most `max` bytes, that keeps waits short: what
    /// passes in 50 ms.
    pub fn chunk_bytes(&self, max: u64) -> u64 {
        max.min((self.bytes_per_s / 20).max(CHUNK_MIN_BYTES))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Sleeps until `deadline`, awake often enough to see a cancellation.
pub(crate) fn wait(deadline: Instant, context: &Context) -> Result<(), Cancelled> {
    loop {
        if context.is_cancelled() {
            return Err(Cancelled);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_nanos(SLEEP_NS)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::job::JobInner;

    const MIB: u64 = 1 << 20;

    /// Without the cancellation it would wait for 12 days.
    #[test]
    fn a_wait_ends_with_its_job() {
        let recorder = pellucid_trace::Recorder::start(Default::default()).expect("in memory");
        let job = JobInner::new(pellucid_scheduler::JobId(0), "waits", recorder, None, &[]);
        let context = Context { job: Arc::clone(&job) };
        let waits = std::thread::spawn(move || Pacer::new(1).pace(MIB, &context));
        job.set_stopped();
        assert_eq!(waits.join().expect("no panic"), Err(Cancelled));
    }

    #[test]
    fn a_steady_reader_gets_exactly_the_rate() {
        let mut line = Line::new(50 * MIB);
        let mut now = 0;
        for _ in 0..500 {
            now = line.book(now, MIB);
        }
        assert_eq!(now, 10_000_000_000, "500 MiB at 50 MiB/s");
    }

    #[test]
    fn sleeps_that_end_late_are_caught_up() {
        let mut line = Line::new(50 * MIB);
        let mut now = 0;
        for _ in 0..500 {
            now = line.book(now, MIB) + 3_000_000; // each sleep 3 ms late
        }
        assert_eq!(now, 10_003_000_000);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut line = Line::new(1_000_000);
        assert_eq!(line.book(0, 1_000_000), 1_000_000_000);
        let idle_until = 60_000_000_000;
        let end = line.book(idle_until, 1_000_000);
        assert_eq!(end, idle_until + 1_000_000_000 - Pacer::CATCH_UP.as_nanos() as u64);
    }

    /// Two jobs of 10 ms on one runtime, the second after a rest: both take 10 ms.
    #[test]
    fn a_job_begins_without_credit() {
        let mut line = Line::new(1_000_000);
        for begins in [5_000_000, 60_000_000_000] {
            line.fresh = true;
            assert_eq!(line.book(begins, 10_000), begins + 10_000_000);
        }
    }

    #[test]
    fn dropping_credit_keeps_what_is_booked() {
        let pacer = Pacer::new(1_000_000);
        pacer.book(1_000_000_000);
        pacer.drop_credit();
        assert!(pacer.book(1) > Duration::from_secs(900));
    }

    #[test]
    fn several_readers_share_the_rate() {
        let mut line = Line::new(100);
        let ends: Vec<u64> = (0..4).map(|_| line.book(0, 50)).collect();
        assert_eq!(ends, vec![500_000_000, 1_000_000_000, 1_500_000_000, 2_000_000_000]);
    }

    #[test]
    fn chunks_are_short_on_slow_resources() {
        assert_eq!(Pacer::new(50 * MIB).chunk_bytes(MIB), MIB);
        assert_eq!(Pacer::new(10 * MIB).chunk_bytes(MIB), MIB / 2);
        assert_eq!(Pacer::new(1).chunk_bytes(MIB), CHUNK_MIN_BYTES);
    }
}
