//! The tunable sort of the monotasks paper (SOSP 2017, §6.2): keys, each with an array of
//! 64-bit integers.
//!
//! The total number of bytes depends only on the scale, so more values per key mean fewer keys
//! to sort: with 10 values the job is CPU-bound, with 50 disk-bound. Keys and values are random
//! over all 64 bits, so that neither encodings nor Snappy compress them.

use super::rows::{self, RowRng};
use super::{BATCH_ROWS, Table};
use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use std::sync::Arc;

/// Bytes of all keys and values at scale 1.
const BYTES: f64 = 1e9;
/// Maximum decoded bytes of a row group, independent of row length; the size suits a multitask.
const PART_BYTES: u64 = 16 << 20;
/// Seed of the rows.
const TABLE: u64 = 0x736f_7274;

/// Returns the only table, in parts of at most `part_rows` rows.
pub fn tables(scale: f64, values: u32, part_rows: u64) -> Vec<Table> {
    let row_bytes = 8 * (1 + u64::from(values));
    let long = Arc::new(Field::new("item", DataType::Int64, false));
    let schema = Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("value", DataType::List(long.clone()), false),
    ]);
    let rows = (BYTES * scale / row_bytes as f64) as u64;
    let lengths = (part_rows.min(PART_BYTES / row_bytes), BATCH_ROWS as u64);
    let make = move |schema, numbers: std::ops::Range<u64>| -> Result<RecordBatch, ArrowError> {
        let count = (numbers.end - numbers.start) as usize;
        let mut keys = Vec::with_capacity(count);
        let mut longs = Vec::with_capacity(count * values as usize);
        for row in numbers {
            let mut rng = RowRng::new(TABLE, row);
            keys.push(rng.bits() as i64);
            longs.extend((0..values).map(|_| rng.bits() as i64));
        }
        let offsets = OffsetBuffer::from_repeated_length(values as usize, count);
        let longs = Arc::new(Int64Array::from(longs));
        let lists = ListArray::try_new(long.clone(), offsets, longs, None)?;
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys)), Arc::new(lists)];
        RecordBatch::try_new(schema, columns)
    };
    vec![rows::table("sort", Arc::new(schema), rows, lengths, make)]
}
