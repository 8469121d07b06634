//! Times of tasks, in a few nanoseconds.
//!
//! Reading the processor's counter takes 8 ns where the system's clock takes 25. Ticks become
//! nanoseconds by a rate that is measured once a process, for a millisecond. Where there is no such
//! counter, ticks are nanoseconds of the system's clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of the system's clock.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn ticks() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Ticks as nanoseconds.
pub(crate) fn nanoseconds(ticks: u64) -> u64 {
    (ticks as f64 * rate()) as u64
}

/// Nanoseconds a tick.
fn rate() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (begun, from) = (Instant::now(), ticks());
        while begun.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        begun.elapsed().as_nanos() as f64 / (ticks() - from).max(1) as f64
    })
}
