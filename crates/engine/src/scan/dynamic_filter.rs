//! Fills dynamic filters on a join's probe side from the keys of its build side.
//!
//! When the build side is complete, the range of its keys and a bitmap of them become the join's
//! dynamic filter. The range prunes row groups and pages before they are read. The bitmap drops rows as
//! soon as their keys are decoded, and before their other columns are, if it drops enough. It is exact for
//! dense keys. For others it has one bit per hash, which lets a few extra rows pass but never drops a
//! match. The filter disables itself if most rows pass.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{NullEquality, Result, ScalarValue, internal_datafusion_err};
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::{Accumulator, ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, DynamicFilterPhysicalExpr, lit};

use crate::plan::cut::JoinFilter;

/// Maximum number of bits in a bitmap (16 MiB).
const MAX_BITS: u64 = 1 << 27;
/// Maximum ratio of the span of keys to their number for an exact bitmap.
const DENSE: u64 = 256;
/// Bits per key of a hashed bitmap; about one in sixteen rows without a match passes.
const HASHED_BITS_PER_KEY: u64 = 16;
/// Number of rows after which the filter may disable itself.
const TRIAL_ROWS: usize = 65_536;

/// A fixed seed, so that build and probe side hash alike, in every run.
const HASHES: RandomState = RandomState::with_seed(0x5045_4c4c);

/// Fills `filter` from `batches`, some columns of the complete build side.
///
/// # Errors
/// Returns an error if a key expression cannot be evaluated.
pub(crate) fn fill(filter: &JoinFilter, columns: &[usize], batches: &[RecordBatch]) -> Result<()> {
    let Some(dynamic) = filter.filter.downcast_ref::<DynamicFilterPhysicalExpr>() else { return Ok(()) };
    let mut all: Option<Arc<dyn PhysicalExpr>> = None;
    if filter.null_equality == NullEquality::NullEqualsNothing {
        for (build, probe) in &filter.on {
            if let Some(known) = column(&of_columns(build, columns)?, probe, batches)? {
                all = Some(match all {
                    Some(before) => and(before, known),
                    None => known,
                });
            }
        }
    }
    if let Some(all) = all {
        dynamic.update(all)?;
    }
    dynamic.mark_complete();
    Ok(())
}

/// Returns an expression for batches that have only some columns.
fn of_columns(expr: &Arc<dyn PhysicalExpr>, columns: &[usize]) -> Result<Arc<dyn PhysicalExpr>> {
    let moved = |expr: Arc<dyn PhysicalExpr>| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        let at = columns.iter().position(|&at| at == column.index());
        let at = at.ok_or_else(|| internal_datafusion_err!("{column} is not a key"))?;
        Ok(Transformed::yes(Arc::new(Column::new(column.name(), at)) as _))
    };
    Arc::clone(expr).transform(moved).data()
}

fn and(a: Arc<dyn PhysicalExpr>, b: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(a, Operator::And, b))
}

/// Returns a filter on one probe-side key column; `None` if its type is not supported.
fn column(
    build: &Arc<dyn PhysicalExpr>,
    probe: &Arc<dyn PhysicalExpr>,
    batches: &[RecordBatch],
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let key = |batch: &RecordBatch| build.evaluate(batch)?.into_array(batch.num_rows());
    let arrays: Vec<ArrayRef> = batches.iter().map(key).collect::<Result<_>>()?;
    let Some(first) = arrays.first() else { return Ok(Some(lit(false))) };
    if first.data_type().is_nested() || first.data_type().is_floating() {
        // -0.0 and 0.0 are equal but have different hashes; nested keys are rare.
        return Ok(None);
    }
    let kind = first.data_type();
    let (mut low, mut high) = (MinAccumulator::try_new(kind)?, MaxAccumulator::try_new(kind)?);
    for array in &arrays {
        low.update_batch(std::slice::from_ref(array))?;
        high.update_batch(std::slice::from_ref(array))?;
    }
    let (low, high) = (low.evaluate()?, high.evaluate()?);
    if low.is_null() || high.is_null() {
        return Ok(Some(lit(false)));
    }
    let keys: usize = arrays.iter().map(|a| a.len() - a.null_count()).sum();
    let range = and(
        Arc::new(BinaryExpr::new(Arc::clone(probe), Operator::GtEq, lit(low.clone()))),
        Arc::new(BinaryExpr::new(Arc::clone(probe), Operator::LtEq, lit(high.clone()))),
    );
    let mut bitmap = Bitmap::sized(integer(&low), integer(&high), keys as u64);
    for array in &arrays {
        bitmap.insert(array)?;
    }
    let bits: Arc<dyn PhysicalExpr> =
        Arc::new(KeyFilter { key: Arc::clone(probe), bitmap: Arc::new(bitmap) });
    Ok(Some(and(range, bits)))
}

/// Returns the value of a key as a 64-bit integer, if its type allows it.
fn integer(value: &ScalarValue) -> Option<i64> {
    let array = value.to_array().ok()?;
    integers(&array)?.iter().next().flatten()
}

/// Returns keys as 64-bit integers, if their type is an integer, a date or a timestamp that fits.
fn integers(array: &ArrayRef) -> Option<Int64Array> {
    use DataType::{Date32, Date64, Int8, Int16, Int32, Int64, Timestamp, UInt8, UInt16, UInt32};
    match array.data_type() {
        Int64 => Some(array.as_primitive::<Int64Type>().clone()),
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | Date32 | Date64 | Timestamp(..) => {
            Some(cast(array, &Int64).ok()?.as_primitive::<Int64Type>().clone())
        }
        _ => None,
    }
}

/// A bitmap of the keys of a build side.
struct Bitmap {
    /// First key and number of slots of an exact bitmap; `None` for a hashed one.
    exact: Option<(i64, u64)>,
    /// Number of slots of a hashed bitmap minus one; the number is a power of two.
    mask: u64,
    words: Vec<u64>,
    seen: AtomicUsize,
    kept: AtomicUsize,
}

impl Bitmap {
    fn sized(low: Option<i64>, high: Option<i64>, keys: u64) -> Self {
        let span = low.zip(high).and_then(|(l, h)| h.checked_sub(l)?.checked_add(1)).map(|s| s as u64);
        let dense = |&s: &u64| s <= MAX_BITS && (s <= 1 << 20 || s <= keys.saturating_mul(DENSE));
        let exact = low.zip(span.filter(dense));
        let slots = match exact {
            Some((_, span)) => span,
            None => keys.saturating_mul(HASHED_BITS_PER_KEY).next_power_of_two().clamp(64, MAX_BITS),
        };
        Self {
            exact,
            mask: slots - 1,
            words: vec![0; slots.div_ceil(64) as usize],
            seen: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
        }
    }

    fn insert(&mut self, array: &ArrayRef) -> Result<()> {
        if let Some((low, _)) = self.exact {
            let Some(keys) = integers(array) else { return Ok(()) };
            for key in keys.iter().flatten() {
                let slot = key.wrapping_sub(low) as u64;
                self.words[(slot >> 6) as usize] |= 1 << (slot & 63);
            }
            return Ok(());
        }
        for (row, hash) in hashes(array)?.into_iter().enumerate() {
            if array.is_valid(row) {
                let slot = hash & self.mask;
                self.words[(slot >> 6) as usize] |= 1 << (slot & 63);
            }
        }
        Ok(())
    }

    fn bit(&self, slot: u64) -> bool {
        self.words[(slot >> 6) as usize] >> (slot & 63) & 1 == 1
    }

    fn contains(&self, array: &ArrayRef) -> Result<BooleanBuffer> {
        let hits = if let Some((low, span)) = self.exact {
            let Some(keys) = integers(array) else { return Ok(BooleanBuffer::new_set(array.len())) };
            let keys = keys.values();
            BooleanBuffer::collect_bool(keys.len(), |i| {
                let slot = keys[i].wrapping_sub(low) as u64;
                slot < span && self.bit(slot)
            })
        } else {
            let hashes = hashes(array)?;
            BooleanBuffer::collect_bool(hashes.len(), |i| self.bit(hashes[i] & self.mask))
        };
        Ok(match array.logical_nulls() {
            Some(nulls) => &hits & nulls.inner(),
            None => hits,
        })
    }

    fn is_disabled(&self) -> bool {
        let (seen, kept) = (self.seen.load(Relaxed), self.kept.load(Relaxed));
        seen > TRIAL_ROWS && kept * 4 > seen * 3
    }
}

fn hashes(array: &ArrayRef) -> Result<Vec<u64>> {
    let mut hashes = vec![0; array.len()];
    create_hashes([array], &HASHES, &mut hashes)?;
    Ok(hashes)
}

/// An expression that is true for rows whose key is in the build side (or, if hashed, may be).
#[derive(Clone)]
pub(crate) struct KeyFilter {
    key: Arc<dyn PhysicalExpr>,
    bitmap: Arc<Bitmap>,
}

impl KeyFilter {
    /// Returns a filter of `key` by `keys`.
    #[cfg(test)]
    pub(crate) fn of(key: Arc<dyn PhysicalExpr>, keys: &ArrayRef) -> Result<Self> {
        let all: Vec<i64> = integers(keys).iter().flatten().flatten().collect();
        let mut bitmap =
            Bitmap::sized(all.iter().min().copied(), all.iter().max().copied(), keys.len() as u64);
        bitmap.insert(keys)?;
        Ok(Self { key, bitmap: Arc::new(bitmap) })
    }

    /// Returns true if most rows pass, so that testing them costs more than it saves.
    pub(crate) fn is_disabled(&self) -> bool {
        self.bitmap.is_disabled()
    }

    /// Returns the share of rows that have passed; 0 if none were tested.
    pub(crate) fn kept_share(&self) -> f64 {
        let (seen, kept) = (self.bitmap.seen.load(Relaxed), self.bitmap.kept.load(Relaxed));
        kept as f64 / seen.max(1) as f64
    }

    /// Returns the rows whose key is in the build side (or, if hashed, may be).
    ///
    /// # Errors
    /// Returns an error if the key cannot be evaluated.
    pub(crate) fn hits(&self, batch: &RecordBatch) -> Result<BooleanBuffer> {
        let rows = batch.num_rows();
        let hits = self.bitmap.contains(&self.key.evaluate(batch)?.into_array(rows)?)?;
        self.bitmap.seen.fetch_add(rows, Relaxed);
        self.bitmap.kept.fetch_add(hits.count_set_bits(), Relaxed);
        Ok(hits)
    }
}

impl fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.bitmap.exact.is_some() { "exact" } else { "hashed" };
        write!(f, "{} in build side's keys ({kind})", self.key)
    }
}

impl PartialEq for KeyFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bitmap, &other.bitmap) && self.key.eq(&other.key)
    }
}

impl Eq for KeyFilter {}

impl Hash for KeyFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.bitmap).hash(state);
        self.key.hash(state);
    }
}

impl PhysicalExpr for KeyFilter {
    fn return_field(&self, _input: &Schema) -> Result<FieldRef> {
        Ok(Arc::new(Field::new("in_build_side", DataType::Boolean, false)))
    }

    fn data_type(&self, _input: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _input: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.is_disabled() {
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))));
        }
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(self.hits(batch)?, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.key]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(match children.pop() {
            Some(key) => Arc::new(Self { key, bitmap: Arc::clone(&self.bitmap) }),
            None => self,
        })
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int32Array, StringArray};

    fn bitmap(keys: ArrayRef) -> Arc<Bitmap> {
        KeyFilter::of(lit(0), &keys).unwrap().bitmap
    }

    fn passes(b: &Bitmap, probe: ArrayRef) -> Vec<bool> {
        b.contains(&probe).unwrap().iter().collect()
    }

    #[test]
    fn exact_bitmap_contains_exactly_its_keys() {
        let b = bitmap(Arc::new(Int32Array::from(vec![Some(-3), None, Some(9)])));
        assert!(b.exact.is_some());
        let probe =
            Int32Array::from(vec![Some(-3), Some(-4), Some(9), Some(10), None, Some(i32::MIN), Some(0)]);
        assert_eq!(passes(&b, Arc::new(probe)), [true, false, true, false, false, false, false]);
    }

    #[test]
    fn sparse_keys_are_hashed_without_false_negatives() {
        let keys: Vec<i64> = (0..1000).map(|i: i64| i.wrapping_mul(0x1234_5678_9abc)).collect();
        let b = bitmap(Arc::new(Int64Array::from(keys.clone())));
        assert!(b.exact.is_none());
        assert!(passes(&b, Arc::new(Int64Array::from(keys))).iter().all(|&p| p));
        let others: Vec<i64> = (0..1000).map(|i: i64| i.wrapping_mul(0x1234_5678_9abc) + 1).collect();
        let wrong = passes(&b, Arc::new(Int64Array::from(others))).iter().filter(|&&p| p).count();
        assert!(wrong < 200, "{wrong} of 1000 rows without a match passed");
    }

    #[test]
    fn full_64_bit_span_does_not_overflow() {
        let b = bitmap(Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX])));
        assert_eq!(passes(&b, Arc::new(Int64Array::from(vec![i64::MAX, i64::MIN]))), [true, true]);
    }

    #[test]
    fn strings_are_hashed() {
        let b = bitmap(Arc::new(StringArray::from(vec![Some("a"), None, Some("bc")])));
        let got = passes(&b, Arc::new(StringArray::from(vec![Some("bc"), Some("a"), None])));
        assert_eq!(got, [true, true, false]);
    }
}
