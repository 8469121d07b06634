//! Which bytes of a file a core may touch without waiting for a device.
//!
//! A range may be touched only if the kernel holds all of its pages, and no read
//! of ours still brings one of them: such a page is in the cache, but not yet up
//! to date, and whoever touches it waits for the device. The kernel is asked
//! first and the reads in flight are looked at after, so that a read that ends in
//! between has left its pages whole.
//!
//! Ranges that are held in part are halved, down to 128 KiB: below that, one
//! request more costs more than the bytes that it would save.
//!
//! It is a snapshot. The kernel may drop a page before it is touched, and a page
//! that another process reads just now looks as if it were whole; then a core
//! waits, once.

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::{platform, ranges};

/// Ranges are not halved below this.
const PIECE_BYTES: u64 = 128 << 10;

/// Byte ranges by where they are; both sorted, without overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Residency {
    /// In memory, all of them.
    pub cached: Vec<Range<u64>>,
    /// To be read.
    pub missing: Vec<Range<u64>>,
}

/// What reads are bringing at this moment, in whole pages.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Vec<Range<u64>>>);

/// A read in flight; over when it is dropped.
pub(crate) struct Flight<'a> {
    of: &'a InFlight,
    range: Range<u64>,
}

impl InFlight {
    /// Notes that `range` is about to be read.
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

/// Splits `wanted` of a file.
///
/// # Errors
/// What the kernel says when asked.
pub(crate) fn probe(file: &fs::File, wanted: &[Range<u64>], in_flight: &InFlight) -> io::Result<Residency> {
    let page = platform::page_bytes();
    let resident = |range: &Range<u64>| platform::resident_pages(file, range);
    let (mut cached, mut missing) = (Vec::new(), Vec::new());
    for range in ranges::merge(wanted) {
        bisect(&range, page, &resident, &mut cached, &mut missing)?;
    }
    let (cached, coming) = ranges::split(&ranges::merge(&cached), &in_flight.snapshot());
    missing.extend(coming);
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
            // Halved at a page, so that no page is on both sides.
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

    /// Bisects over a made-up page cache: `held` says which pages it has.
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
    fn whole_or_nothing_is_one_question() {
        check(|_| true, 100..9_000_000, (vec![100..9_000_000], vec![]));
        check(|_| false, 100..9_000_000, (vec![], vec![100..9_000_000]));
    }

    #[test]
    fn what_is_held_in_part_is_halved_to_128_kib() {
        const MIB: u64 = 1 << 20;
        let half = |p: u64| p < MIB / 2 / PAGE;
        check(half, 0..MIB, (vec![0..MIB / 2], vec![MIB / 2..MIB]));
        // One page of 128 KiB missing: the piece that has it is read whole.
        check(
            |p| p != 40,
            0..MIB,
            (vec![0..PIECE_BYTES, 2 * PIECE_BYTES..MIB], vec![PIECE_BYTES..2 * PIECE_BYTES]),
        );
        check(|p| p != 0, 0..PIECE_BYTES, (vec![], vec![0..PIECE_BYTES]));
    }

    #[test]
    fn pages_in_flight_are_not_to_be_touched() -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        io::Write::write_all(&mut file, &vec![1u8; 1 << 20])?;
        let wanted = std::slice::from_ref(&(0..1 << 20));
        let in_flight = InFlight::default();
        if probe(file.as_file(), wanted, &in_flight)?.cached != wanted {
            eprintln!("skipped: this file system does not keep what was just written in its cache");
            return Ok(());
        }
        let page = platform::page_bytes();
        let flight = in_flight.begin(&(5 * page + 1..6 * page + 1));
        let again = in_flight.begin(&(5 * page + 1..6 * page + 1));
        let during = probe(file.as_file(), wanted, &in_flight)?;
        assert_eq!(during.missing, vec![5 * page..7 * page]);
        assert_eq!(during.cached, vec![0..5 * page, 7 * page..1 << 20]);
        drop(flight);
        assert_eq!(probe(file.as_file(), wanted, &in_flight)?, during, "one is still on its way");
        drop(again);
        assert_eq!(probe(file.as_file(), wanted, &in_flight)?.cached, wanted);
        Ok(())
    }
}
