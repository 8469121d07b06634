//! The values of a group: counted, sorted and interpolated.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray, UInt64Array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, cast, sort, take};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, Fields, Float64Type};
use datafusion::common::{Result, ScalarValue};

use crate::functions::groups::statistics;

/// Returns the index of each value's first row, and the number of its rows, in the order of the first rows.
pub(crate) fn counts(values: &ArrayRef) -> Result<Vec<(usize, usize)>> {
    let mut places: HashMap<ScalarValue, usize> = HashMap::new();
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for row in 0..values.len() {
        let place = *places.entry(ScalarValue::try_from_array(values, row)?).or_insert(counts.len());
        match counts.get_mut(place) {
            Some((_, count)) => *count += 1,
            None => counts.push((row, 1)),
        }
    }
    Ok(counts)
}

/// Returns a map from each value, in ascending order, to its number.
pub(crate) fn histogram(values: &ArrayRef) -> Result<ScalarValue> {
    let sorted = sorted(values)?;
    let counts = counts(&sorted)?;
    let firsts = UInt64Array::from_iter_values(counts.iter().map(|(first, _)| *first as u64));
    let numbers = UInt64Array::from_iter_values(counts.iter().map(|(_, count)| *count as u64));
    let keys = take(&sorted, &firsts, None)?;
    let fields = entries(values.data_type());
    let structs = StructArray::try_new(fields.clone(), vec![keys, Arc::new(numbers)], None)?;
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let offsets = OffsetBuffer::from_lengths([counts.len()]);
    Ok(ScalarValue::Map(Arc::new(MapArray::try_new(field, offsets, structs, None, false)?)))
}

pub(crate) fn sorted(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(sort(values, Some(SortOptions { descending: false, nulls_first: false }))?)
}

/// Returns the first value at or above a fraction of the values.
pub(crate) fn discrete(sorted: &ArrayRef, fraction: f64) -> Result<ScalarValue> {
    let rows = sorted.len() as f64;
    let at = ((rows * fraction).ceil() as usize).saturating_sub(1).min(sorted.len() - 1);
    ScalarValue::try_from_array(sorted, at)
}

/// Returns the value between two values at a fraction.
pub(crate) fn interpolated(sorted: &ArrayRef, fraction: f64, result: &DataType) -> Result<ScalarValue> {
    if let DataType::Timestamp(_, _) | DataType::Time64(_) | DataType::Duration(_) = result {
        let ticks = cast(&cast(sorted, result)?, &DataType::Int64)?;
        let ticks = cast(&ticks, &DataType::Float64)?;
        let tick = statistics::quantile(ticks.as_primitive::<Float64Type>().values(), fraction);
        return ScalarValue::Int64(Some(tick as i64)).cast_to(result);
    }
    if let DataType::Decimal128(digits, scale) = result {
        // DuckDB cuts the digits off.
        let whole: Vec<f64> =
            sorted.as_primitive::<Decimal128Type>().values().iter().map(|n| *n as f64).collect();
        let found = statistics::quantile(&whole, fraction) as i128;
        return Ok(ScalarValue::Decimal128(Some(found), *digits, *scale));
    }
    let numbers = cast(sorted, &DataType::Float64)?;
    let found = statistics::quantile(numbers.as_primitive::<Float64Type>().values(), fraction);
    Ok(ScalarValue::Float64(Some(found)))
}

/// Returns the fields of the entries of a histogram.
pub(crate) fn entries(value: &DataType) -> Fields {
    Fields::from(vec![Field::new("key", value.clone(), false), Field::new("value", DataType::UInt64, true)])
}
