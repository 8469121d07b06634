//! Operations on sets of byte ranges: merge, split, align, sum.

use std::ops::Range;

/// Sorts ranges, drops empty ones and merges those that overlap or touch.
pub(crate) fn merge(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|r| r.start < r.end).cloned().collect();
    sorted.sort_unstable_by_key(|r| (r.start, r.end));
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Splits `ranges` into the parts outside and inside of `cut`; both inputs must be merged.
pub(crate) fn split(ranges: &[Range<u64>], cut: &[Range<u64>]) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let (mut outside, mut inside) = (Vec::new(), Vec::new());
    for range in ranges {
        let mut at = range.start;
        for c in cut.iter().filter(|c| c.start < range.end && c.end > range.start) {
            if at < c.start {
                outside.push(at..c.start);
            }
            let end = c.end.min(range.end);
            inside.push(at.max(c.start)..end);
            at = end;
        }
        if at < range.end {
            outside.push(at..range.end);
        }
    }
    (outside, inside)
}

/// Extends a range to whole blocks of `block` bytes (a power of two).
pub(crate) fn align(range: &Range<u64>, block: u64) -> Range<u64> {
    let end = range.end.saturating_add(block - 1) & !(block - 1);
    (range.start & !(block - 1))..end
}

/// Returns the sum of the lengths.
pub(crate) fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|r| r.end - r.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_joins_overlapping_and_touching_ranges() {
        assert_eq!(merge(&[8..9, 0..2, 2..4, 3..6, 5..5]), vec![0..6, 8..9]);
        assert_eq!(merge(&[]), Vec::<Range<u64>>::new());
        assert_eq!(total(&merge(&[0..10, 5..12, 20..21])), 13);
    }

    #[test]
    fn align_extends_both_ends() {
        assert_eq!(align(&(4097..8192), 4096), 4096..8192);
        assert_eq!(align(&(1..4097), 4096), 0..8192);
    }

    /// Compares with the definition, byte by byte, on pseudo-random ranges.
    #[test]
    fn split_matches_definition_for_every_byte() {
        let mut seed = 0x9e37_79b9_u64;
        let mut draw = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for case in 0..500 {
            let mut some = || -> Vec<Range<u64>> {
                let n = draw(5);
                let mut v = Vec::new();
                for _ in 0..n {
                    let start = draw(60);
                    v.push(start..start + draw(12));
                }
                merge(&v)
            };
            let (ranges, cut) = (some(), some());
            let (outside, inside) = split(&ranges, &cut);
            let holds = |set: &[Range<u64>], b: u64| set.iter().any(|r| r.contains(&b));
            for b in 0..80 {
                let (r, c) = (holds(&ranges, b), holds(&cut, b));
                assert_eq!(holds(&outside, b), r && !c, "case {case}, byte {b}");
                assert_eq!(holds(&inside, b), r && c, "case {case}, byte {b}");
            }
        }
    }
}
