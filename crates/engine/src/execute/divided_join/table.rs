//! A hash table over one partition of a join's build side.
//!
//! Rows are column by column, in as few bytes as the values of a column need. The table has a chain of rows for each slot: the slot's first row, and after
//! each row the next one, which takes 8 to 12 bytes for each row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, new_empty_array};
use datafusion::arrow::buffer::{NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::{SortOptions, concat};
use datafusion::arrow::datatypes::{ArrowNativeType, FieldRef, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::hash_utils::create_hashes;
use datafusion::common::{DataFusionError, NullEquality, Result, internal_datafusion_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::{PhysicalExpr, expressions};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::joins::utils::JoinKeyComparator;
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;

use crate::execute::compact::{Column, batch_bytes, with_own_values};

/// The end of a chain.
pub(super) const END: u32 = u32::MAX;

/// The keys of one side, in the order of the join's conditions.
pub(super) type KeyExprs = Vec<Arc<dyn PhysicalExpr>>;

/// Keys, evaluated for some rows.
pub(super) struct Keys {
    arrays: Vec<ArrayRef>,
    /// The same as `arrays` if equal keys are equal bits.
    bits: Bits,
    /// Hashes by which rows have been divided.
    pub hashes: Vec<u64>,
    /// Rows that may have a partner; `None` if all may.
    valid: Option<NullBuffer>,
}

enum Bits {
    Narrow(ScalarBuffer<u32>),
    Wide(ScalarBuffer<u64>),
    None,
}

impl Keys {
    /// Evaluates keys.
    ///
    /// # Errors
    /// Returns the error of an expression.
    pub(super) fn of(exprs: &KeyExprs, batch: &RecordBatch, nulls: NullEquality) -> Result<Self> {
        let arrays = evaluate_expressions_to_arrays(exprs, batch)?;
        let mut hashes = vec![0; batch.num_rows()];
        create_hashes(&arrays, REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
        let nothing = nulls == NullEquality::NullEqualsNothing;
        let valid = || {
            let of_each: Vec<_> = arrays.iter().map(|array| array.logical_nulls()).collect();
            NullBuffer::union_many(of_each.iter().map(Option::as_ref)).filter(|nulls| nulls.null_count() > 0)
        };
        let bits = match arrays.as_slice() {
            [key] if nothing => bits(key),
            _ => Bits::None,
        };
        Ok(Self { valid: if nothing { valid() } else { None }, arrays, bits, hashes })
    }

    pub(super) fn may_match(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.is_valid(row))
    }
}

fn bits(key: &ArrayRef) -> Bits {
    let data_type = key.data_type();
    match data_type.primitive_width().filter(|_| !data_type.is_floating()) {
        Some(4) => Bits::Narrow(values(key)),
        Some(8) => Bits::Wide(values(key)),
        _ => Bits::None,
    }
}

fn values<T: ArrowNativeType>(key: &ArrayRef) -> ScalarBuffer<T> {
    let data = key.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

/// A table.
pub(super) struct Table {
    /// Number of rows, in the order in which they were read.
    pub rows: usize,
    columns: Vec<Column>,
    keys: Keys,
    /// First row of each slot.
    heads: Vec<u32>,
    /// The next row after each row.
    next: Vec<u32>,
    /// A slot is the upper bits of a hash, since the lower ones are those of the partition.
    shift: u32,
    /// A bit for each row that has found a partner; empty if no one asks.
    visited: Vec<AtomicU64>,
    reservation: MemoryReservation,
}

impl Table {
    /// Builds a table over `batches`, which it frees column by column. With `visited`, it keeps which rows have found a
    /// partner.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted, or that of a key's expression.
    pub(super) fn build(
        batches: Vec<RecordBatch>,
        schema: &SchemaRef,
        keys: &KeyExprs,
        nulls: NullEquality,
        visited: bool,
        reservation: MemoryReservation,
    ) -> Result<Self> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let slots = rows.next_power_of_two().max(2);
        let hash_bytes = rows * size_of::<u64>();
        let table_bytes =
            (slots + rows) * size_of::<u32>() + hash_bytes + if visited { rows.div_ceil(8) } else { 0 };
        let row_bytes = batches.iter().map(batch_bytes).sum::<u64>() as usize;
        reservation.try_grow(row_bytes + table_bytes)?;
        if rows >= END as usize {
            let message =
                format!("cannot join: a partition has {rows} rows, more than {END}; use --partitions");
            return Err(DataFusionError::Execution(message));
        }
        let merged = merged(batches, schema)?;
        let column = |key: &Arc<dyn PhysicalExpr>| Some(key.downcast_ref::<expressions::Column>()?.index());
        let key_columns: Vec<usize> = keys.iter().filter_map(column).collect();
        let mut keys = Keys::of(keys, &merged, nulls)?;
        let shift = u64::BITS - slots.trailing_zeros();
        let mut heads = vec![END; slots];
        let mut next = vec![END; rows];
        // From the last row to the first, so that a chain has them in order.
        for row in (0..rows).rev().filter(|&row| keys.may_match(row)) {
            let head = &mut heads[(keys.hashes[row] >> shift) as usize];
            next[row] = *head;
            *head = row as u32;
        }
        if !matches!(keys.bits, Bits::None) {
            keys.hashes = Vec::new();
            reservation.shrink(hash_bytes);
        }
        let mut freed = 0;
        let column = |(at, array)| {
            // Keys are compared as they are.
            if key_columns.contains(&at) {
                return Column::Array(array);
            }
            let (column, bytes, of_array) = Column::of(array);
            freed += (of_array - bytes) as usize;
            column
        };
        let (_, arrays, _) = merged.into_parts();
        let columns = arrays.into_iter().enumerate().map(column).collect();
        reservation.shrink(freed);
        let words = if visited { rows.div_ceil(64) } else { 0 };
        let visited = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { rows, columns, keys, heads, next, shift, visited, reservation })
    }

    /// Returns its memory.
    pub(super) fn bytes(&self) -> usize {
        self.reservation.size()
    }

    pub(super) fn column(&self, index: usize) -> &Column {
        &self.columns[index]
    }

    /// Returns the first row of the chain of a hash.
    pub(super) fn first(&self, hash: u64) -> u32 {
        self.heads[(hash >> self.shift) as usize]
    }

    /// Returns the row after `row` in its chain.
    pub(super) fn after(&self, row: u32) -> u32 {
        self.next[row as usize]
    }

    /// Marks a row as having a partner.
    pub(super) fn visit(&self, row: usize) {
        let (word, bit) = (&self.visited[row / 64], 1 << (row % 64));
        // Most keys of a semi join are found many times.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(super) fn is_visited(&self, row: usize) -> bool {
        self.visited[row / 64].load(Ordering::Relaxed) & (1 << (row % 64)) != 0
    }
}

/// Compares the keys of tables with those of other rows.
pub(super) enum Equality<'a> {
    Narrow(Vec<&'a [u32]>, &'a [u32]),
    Wide(Vec<&'a [u64]>, &'a [u64]),
    Any(Vec<(&'a [u64], JoinKeyComparator)>, &'a [u64]),
}

impl<'a> Equality<'a> {
    /// Compares the keys of `tables` with `keys`.
    ///
    /// # Errors
    /// Returns an error if keys of their type cannot be compared.
    pub(super) fn new(tables: &'a [Arc<Table>], keys: &'a Keys, nulls: NullEquality) -> Result<Self> {
        let all = tables.iter().map(|table| &table.keys);
        let differ = || internal_datafusion_err!("keys of a join have different types");
        Ok(match &keys.bits {
            Bits::Narrow(values) => {
                let narrow = |keys: &'a Keys| match &keys.bits {
                    Bits::Narrow(values) => Ok(values.as_ref()),
                    _ => Err(differ()),
                };
                Self::Narrow(all.map(narrow).collect::<Result<_>>()?, values)
            }
            Bits::Wide(values) => {
                let wide = |keys: &'a Keys| match &keys.bits {
                    Bits::Wide(values) => Ok(values.as_ref()),
                    _ => Err(differ()),
                };
                Self::Wide(all.map(wide).collect::<Result<_>>()?, values)
            }
            Bits::None => {
                let options = vec![SortOptions::default(); keys.arrays.len()];
                let compared = |of_table: &'a Keys| {
                    let comparator = JoinKeyComparator::new(&of_table.arrays, &keys.arrays, &options, nulls)?;
                    Ok((of_table.hashes.as_slice(), comparator))
                };
                Self::Any(all.map(compared).collect::<Result<_>>()?, &keys.hashes)
            }
        })
    }
}

/// Merges batches into one. Each column is copied on its own, so that at most one of them is there twice.
fn merged(batches: Vec<RecordBatch>, schema: &SchemaRef) -> Result<RecordBatch> {
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(batches.len()); schema.fields().len()];
    for batch in batches {
        let (_, of_batch, _) = batch.into_parts();
        columns.iter_mut().zip(of_batch).for_each(|(column, part)| column.push(part));
    }
    let one = |(parts, field): (Vec<ArrayRef>, &FieldRef)| match parts.as_slice() {
        [] => Ok(new_empty_array(field.data_type())),
        [one] => Ok(Arc::clone(one)),
        parts => {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            // Whoever takes rows of views copies the list of their buffers.
            concat(&parts).map(with_own_values)
        }
    };
    let columns = columns.into_iter().zip(schema.fields()).map(one).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
