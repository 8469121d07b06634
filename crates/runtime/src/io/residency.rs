//! Finds the bytes of a file that a core can read without waiting for a device.
//!
//! A range counts as cached only if the kernel holds all of its pages and no read of this process in
//! flight covers any of them: such a page is in the cache but not up to date yet, and reading it waits for
//! the device. The kernel is asked before the reads in flight are checked, so a read that ends in between
//! has completed its pages.
//!
//! Partly cached ranges are halved down to 128 KiB. Below that, another request costs more than the bytes
//! that it would save.
//!
//! The answer is a snapshot. The kernel may evict a page before it is read, and a page that another process
//! is reading looks cached. In both cases a core waits once.

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::io::ranges;
use crate::platform;

/// Ranges are not halved below this.
const PIECE_BYTES: u64 = 128 << 10;

/// Byte ranges of a file, split by residency; both lists are sorted and disjoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Residency {
    /// Ranges in the page cache.
    pub cached: Vec<Range<u64>>,
    /// Ranges that must be read from the device.
    pub missing: Vec<Range<u64>>,
}

/// The ranges of reads in flight, in whole pages.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Vec<Range<u64>>>);

/// A read in flight, which ends on drop.
pub(crate) struct Flight<'a> {
    of: &'a InFlight,
    range: Range<u64>,
}

impl InFlight {
    /// Registers a read of `range`.
    pub fn begin(&self, range: &Range<u64>) -> Flight<'_> {
        let range = ranges::align(range, platform::page_bytes());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(range.clone());
        Flight { of: self, range }
    }

    fn snapshot(&self) -> Vec<Range<u64>> {
        ranges::merge(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flights = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = flights.iter().position(|r| *r == self.range) {
            flights.swap_remove(at);
        }
    }
}

/// Splits the ranges `wanted` of a file by residency.
///
/// # Errors
/// Returns an error if the kernel cannot be queried.
pub(crate) fn probe(file: &fs::File, wanted: &[Range<u64>], in_flight: &InFlight) -> io::Result<Residency> {
    let page = platform::page_bytes();
    let resident = |range: &Range<u64>| platform::resident_pages(file, range);
    let (mut cached, mut missing) = (Vec::new(), Vec::new());
    for range in ranges::merge(wanted) {
        bisect(&range, page, &resident, &mut cached, &mut missing)?;
    }
    let (cached, in_flight) = ranges::split(&ranges::merge(&cached), &in_flight.snapshot());
    missing.extend(in_flight);
    Ok(Residency { cached, missing: ranges::merge(&missing) })
}

fn bisect(
    range: &Range<u64>,
    page: u64,
    resident: &impl Fn(&Range<u64>) -> io::Result<platform::ResidentPages>,
    cached: &mut Vec<Range<u64>>,
    missing: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    let whole = ranges::align(range, page);
    let pages = (whole.end - whole.start) / page;
    match resident(range)? {
        Some(held) if held >= pages => cached.push(range.clone()),
        Some(held) if held > 0 && range.end - range.start > PIECE_BYTES => {
            // Halves at a page boundary, so that no page is on both sides.
            let middle = range.start + (range.end - range.start) / 2;
            let middle = ranges::align(&(middle..middle), page).start.max(range.start + 1);
            bisect(&(range.start..middle), page, resident, cached, missing)?;
            bisect(&(middle..range.end), page, resident, cached, missing)?;
        }
        _ => missing.push(range.clone()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// Bisects over a simulated page cache, which contains the pages for which `held` returns true.
    fn check(held: impl Fn(u64) -> bool, range: Range<u64>, expect: (Vec<Range<u64>>, Vec<Range<u64>>)) {
        let resident = |r: &Range<u64>| {
            let r = ranges::align(r, PAGE);
            Ok(Some((r.start / PAGE..r.end / PAGE).filter(|p| held(*p)).count() as u64))
        };
        let (mut cached, mut missing) = (Vec::new(), Vec::new());
        bisect(&range, PAGE, &resident, &mut cached, &mut missing).unwrap();
        assert_eq!((ranges::merge(&cached), ranges::merge(&missing)), expect);
    }

    #[test]
    fn fully_cached_or_missing_range_is_not_split() {
        check(|_| true, 100..9_000_000, (vec![100..9_000_000], vec![]));
        check(|_| false, 100..9_000_000, (vec![], vec![100..9_000_000]));
    }

    #[test]
    fn partly_cached_range_is_halved_to_128_kib() {
        const MIB: u64 = 1 << 20;
        let half = |p: u64| p < MIB / 2 / PAGE;
        check(half, 0..MIB, (vec![0..MIB / 2], vec![MIB / 2..MIB]));
        // One page is missing: its piece of 128 KiB is read whole.
        check(
            |p| p != 40,
            0..MIB,
            (vec![0..PIECE_BYTES, 2 * PIECE_BYTES..MIB], vec![PIECE_BYTES..2 * PIECE_BYTES]),
        );
        check(|p| p != 0, 0..PIECE_BYTES, (vec![], vec![0..PIECE_BYTES]));
    }

    #[test]
    fn pages_of_reads_in_flight_count_as_missing() -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        io::Write::write_all(&mut file, &vec![1u8; 1 << 20])?;
        let wanted = std::slice::from_ref(&(0..1 << 20));
        let in_flight = InFlight::default();
        if probe(file.as_file(), wanted, &in_flight)?.cached != wanted {
            eprintln!("skipped: this file system does not cache written pages");
            return Ok(());
        }
        let page = platform::page_bytes();
        let flight = in_flight.begin(&(5 * page + 1..6 * page + 1));
        let again = in_flight.begin(&(5 * page + 1..6 * page + 1));
        let during = probe(file.as_file(), wanted, &in_flight)?;
        assert_eq!(during.missing, vec![5 * page..7 * page]);
        assert_eq!(during.cached, vec![0..5 * page, 7 * page..1 << 20]);
        drop(flight);
        assert_eq!(probe(file.as_file(), wanted, &in_flight)?, during, "one read is still in flight");
        drop(again);
        assert_eq!(probe(file.as_file(), wanted, &in_flight)?.cached, wanted);
        Ok(())
    }
}
