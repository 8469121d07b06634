//! Limits a resource to a set rate, inside the engine.
//!
//! Experiments need devices of known speed, and throttling by the kernel needs root. Each transfer books
//! its share of the rate after all earlier bookings, and may not end before its share does. Sleeps end
//! late, so up to [`Pacer::CATCH_UP`] of idle time counts as credit; more would allow bursts. A job starts
//! without credit from earlier idle time. Booking is arithmetic on a time that is passed in; only
//! [`Pacer::pace`] sleeps. Reads and writes of one disk share its rate, as on a real disk.
//!
//! A pacer slows only this runtime, not other processes. Traces of paced runs have a label.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Cancelled, Context};

/// Maximum sleep between two checks for cancellation.
const SLEEP_NS: u64 = 25_000_000;
/// Minimum size of a paced chunk.
const CHUNK_MIN_BYTES: u64 = 64 * 1024;

/// A rate limit that all threads moving bytes of one resource share.
#[derive(Debug)]
pub struct Pacer {
    bytes_per_s: u64,
    origin: Instant,
    schedule: Mutex<Schedule>,
}

/// The bookings of a pacer, on virtual time.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    bytes_per_s: u64,
    /// End of the last booking.
    free_ns: u64,
    /// True until the first booking, which gets no credit for idle time.
    fresh: bool,
}

impl Schedule {
    fn new(bytes_per_s: u64) -> Schedule {
        Schedule { bytes_per_s, free_ns: 0, fresh: true }
    }

    /// Books `bytes` at `now_ns`, and returns the earliest time at which the transfer may end.
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
    /// Maximum credit for idle time, which makes up for sleeps that end late.
    pub const CATCH_UP: Duration = Duration::from_millis(20);

    /// Creates a pacer with a rate of `bytes_per_s`, at least 1.
    pub fn new(bytes_per_s: u64) -> Pacer {
        let bytes_per_s = bytes_per_s.max(1);
        Pacer { bytes_per_s, origin: Instant::now(), schedule: Mutex::new(Schedule::new(bytes_per_s)) }
    }

    /// Returns the rate.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s
    }

    /// Books `bytes` and returns how long the caller must wait, for callers that sleep themselves, such as
    /// async code.
    pub fn book(&self, bytes: u64) -> Duration {
        let now_ns = self.now_ns();
        Duration::from_nanos(self.schedule().book(now_ns, bytes).saturating_sub(now_ns))
    }

    /// Drops the credit for idle time, as if the pacer were new. Bookings remain.
    pub fn drop_credit(&self) {
        self.schedule().fresh = true;
    }

    /// Books `bytes` and waits until their transfer may end.
    ///
    /// # Errors
    /// [`Cancelled`], within 25 ms of the job's cancellation.
    pub fn pace(&self, bytes: u64, context: &Context) -> Result<(), Cancelled> {
        wait(Instant::now() + self.book(bytes), context)
    }

    /// Returns the size of a transfer that takes at most 50 ms, up to `max` bytes.
    pub fn chunk_bytes(&self, max: u64) -> u64 {
        max.min((self.bytes_per_s / 20).max(CHUNK_MIN_BYTES))
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Sleeps until `deadline`, and checks for cancellation in between.
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
    use super::*;
    use crate::state::JobInner;

    const MIB: u64 = 1 << 20;

    /// Without cancellation the wait would take 12 days.
    #[test]
    fn wait_ends_when_job_is_cancelled() {
        let recorder = pellucid_trace::Recorder::start(Default::default()).expect("in memory");
        let job = JobInner::new(pellucid_scheduler::JobId(0), "waits", recorder, None, &[]);
        let context = job.context();
        let waits = std::thread::spawn(move || Pacer::new(1).pace(MIB, &context));
        job.set_stopped();
        assert_eq!(waits.join().expect("no panic"), Err(Cancelled));
    }

    #[test]
    fn steady_reader_gets_exactly_the_rate() {
        let mut schedule = Schedule::new(50 * MIB);
        let mut now = 0;
        for _ in 0..500 {
            now = schedule.book(now, MIB);
        }
        assert_eq!(now, 10_000_000_000, "500 MiB at 50 MiB/s");
    }

    #[test]
    fn late_sleeps_are_caught_up() {
        let mut schedule = Schedule::new(50 * MIB);
        let mut now = 0;
        for _ in 0..500 {
            now = schedule.book(now, MIB) + 3_000_000; // each sleep 3 ms late
        }
        assert_eq!(now, 10_003_000_000);
    }

    #[test]
    fn credit_for_idle_time_is_bounded() {
        let mut schedule = Schedule::new(1_000_000);
        assert_eq!(schedule.book(0, 1_000_000), 1_000_000_000);
        let idle_until = 60_000_000_000;
        let end = schedule.book(idle_until, 1_000_000);
        assert_eq!(end, idle_until + 1_000_000_000 - Pacer::CATCH_UP.as_nanos() as u64);
    }

    /// Two jobs of 10 ms on one runtime, the second after idle time, both take 10 ms.
    #[test]
    fn job_starts_without_credit() {
        let mut schedule = Schedule::new(1_000_000);
        for begins in [5_000_000, 60_000_000_000] {
            schedule.fresh = true;
            assert_eq!(schedule.book(begins, 10_000), begins + 10_000_000);
        }
    }

    #[test]
    fn drop_credit_keeps_bookings() {
        let pacer = Pacer::new(1_000_000);
        pacer.book(1_000_000_000);
        pacer.drop_credit();
        assert!(pacer.book(1) > Duration::from_secs(900));
    }

    #[test]
    fn concurrent_readers_share_the_rate() {
        let mut schedule = Schedule::new(100);
        let ends: Vec<u64> = (0..4).map(|_| schedule.book(0, 50)).collect();
        assert_eq!(ends, vec![500_000_000, 1_000_000_000, 1_500_000_000, 2_000_000_000]);
    }

    #[test]
    fn chunks_are_short_on_slow_resources() {
        assert_eq!(Pacer::new(50 * MIB).chunk_bytes(MIB), MIB);
        assert_eq!(Pacer::new(10 * MIB).chunk_bytes(MIB), MIB / 2);
        assert_eq!(Pacer::new(1).chunk_bytes(MIB), CHUNK_MIN_BYTES);
    }
}
