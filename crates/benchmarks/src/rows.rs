//! Tables in which each row is a function of its row number.
//!
//! Each row has its own random stream ([`RowRng`]), seeded by the table and the row number.
//! Any thread can therefore generate any part of a table, and the result does not depend
//! on how it is split. The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014). Distributions use only the operations
//! that IEEE 754 defines to the last bit (`+ - * / sqrt`), since logarithms and powers
//! would give different files on different machines.

use super::{Batches, Table};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// The random stream of one row.
pub struct RowRng(u64);

impl RowRng {
    /// Returns the stream of a row. `table` is a seed, different for each table.
    pub fn new(table: u64, row: u64) -> Self {
        // Mix the seed, so that the streams of neighbouring rows do not overlap.
        RowRng(mix(row ^ mix(table)))
    }

    /// RowRng 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// RowRng an integer in `0..end`. The bias of the multiplication is below `end` ÷ 2⁶⁴.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// RowRng an integer in `first..=last`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// RowRng a number above 0 and at most 1, in steps of 2⁻⁵³.
    pub fn share(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// RowRng an integer in `0..end`; the frequency of k is about proportional to k to the power of −1/2.
    pub fn skewed(&mut self, end: u64) -> u64 {
        let share = self.share();
        ((end as f64 * share * share) as u64).min(end - 1)
    }

    /// RowRng an integer in `0..end`; the frequency of k is about proportional to k to the power of −3/4.
    pub fn very_skewed(&mut self, end: u64) -> u64 {
        let share = self.share();
        let square = share * share;
        ((end as f64 * square * square) as u64).min(end - 1)
    }
}

fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns a table of `rows` rows in parts of about `part_rows` rows. `make` generates batches of at
/// most `batch_rows` rows from their row numbers.
pub fn table(
    name: &'static str,
    schema: SchemaRef,
    rows: u64,
    (part_rows, batch_rows): (u64, u64),
    make: impl Fn(SchemaRef, Range<u64>) -> Result<RecordBatch, ArrowError> + Send + Sync + 'static,
) -> Table {
    let parts = rows.div_ceil(part_rows).max(1);
    let make = Arc::new(make);
    let of_part = schema.clone();
    let part = move |part: u64| -> Batches {
        // Use parts of equal size, so that the last row group is not a small remainder.
        let bound = |part: u64| (u128::from(rows) * u128::from(part) / u128::from(parts)) as u64;
        let (first, end) = (bound(part), bound(part + 1));
        let (schema, make) = (of_part.clone(), make.clone());
        let batches = (first..end).step_by(batch_rows as usize);
        Box::new(batches.map(move |at| make(schema.clone(), at..(at + batch_rows).min(end))))
    };
    Table { name, schema, parts, rows, part: Box::new(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the first numbers of the reference implementation, seeded with 0.
    #[test]
    fn bits_match_the_split_mix_64_reference() {
        let mut rng = RowRng(0);
        let first: Vec<_> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn numbers_stay_in_range_and_follow_their_distribution() {
        let mut rng = RowRng::new(1, 7);
        let many = 100_000;
        let mut lowest = [0; 3];
        for _ in 0..many {
            assert!((3..=5).contains(&rng.between(3, 5)));
            let share = rng.share();
            assert!(share > 0.0 && share <= 1.0);
            // The lowest hundredth of the range receives 1 %, 10 % and 32 % of the rng.
            for (count, drawn) in
                lowest.iter_mut().zip([rng.below(1000), rng.skewed(1000), rng.very_skewed(1000)])
            {
                assert!(drawn < 1000);
                *count += u32::from(drawn < 10);
            }
        }
        for (count, expected) in lowest.into_iter().zip([0.01, 0.1, 0.316]) {
            let got = f64::from(count) / f64::from(many);
            assert!((got - expected).abs() < 0.01, "{got} is not {expected}");
        }
    }
}
