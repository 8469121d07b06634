//! Times of a log: Unix times in milliseconds.

use crate::json::{Malformed, Scanner};

/// Latest valid time, in the year 2554: the last that 64 bits of nanoseconds can represent.
const LAST_MS: u64 = u64::MAX / 1_000_000;

/// Reads a time; 0 means that it was not recorded.
///
/// # Errors
/// Fails if the scanner is not at a value.
pub fn time(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Malformed> {
    Ok(scanner.number()?.filter(|ms| (1..=LAST_MS).contains(ms)))
}

/// Converts milliseconds to nanoseconds, saturating.
pub fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}
