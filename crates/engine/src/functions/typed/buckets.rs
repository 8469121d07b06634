//! `time_bucket`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::{Result, exec_err};

use crate::calendar::{DAY, Moment, days};

/// Returns the start of the bucket of each moment.
pub(crate) fn buckets(arrays: &[ArrayRef], result: &DataType) -> Result<ArrayRef> {
    let moments = cast(
        &cast(&arrays[1], &DataType::Timestamp(TimeUnit::Microsecond, zone(result)))?,
        &DataType::Int64,
    )?;
    let moments = moments.as_primitive::<Int64Type>();
    let widths = arrays[0].as_primitive::<IntervalMonthDayNanoType>();
    let third = arrays.get(2);
    let shift = third.and_then(|array| array.as_primitive_opt::<IntervalMonthDayNanoType>());
    let origin = match third {
        Some(array) if shift.is_none() => Some(cast(
            &cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone(array.data_type())))?,
            &DataType::Int64,
        )?),
        _ => None,
    };
    let bucket = |row: usize| -> Option<Result<i64>> {
        if moments.is_null(row) || widths.is_null(row) || third.is_some_and(|array| array.is_null(row)) {
            return None;
        }
        let (at, width) = (moments.value(row), widths.value(row));
        let offset = shift.map_or(0, |shift| {
            let shift = shift.value(row);
            i64::from(shift.days) * DAY + shift.nanoseconds / 1000
        });
        let micros = i64::from(width.days) * DAY + width.nanoseconds / 1000;
        let start = origin.as_ref().map(|origin| origin.as_primitive::<Int64Type>().value(row));
        if width.months > 0 && micros == 0 {
            let origin = Moment::new(start.unwrap_or(days(2000, 1, 1) * DAY));
            let months = i64::from(width.months);
            let number = Moment::new(at - offset).months() - origin.months();
            let first = Moment { day: 1, time: 0, ..origin };
            return first
                .plus_months(number.div_euclid(months) * months)
                .micros()
                .map(|micros| Ok(micros + offset));
        }
        if micros <= 0 || width.months != 0 {
            return Some(exec_err!(
                "cannot call time_bucket: the width must be positive, of months or of a time"
            ));
        }
        // Monday, so that weeks begin on Mondays.
        let start = start.unwrap_or(days(2000, 1, 3) * DAY) + offset;
        Some(Ok(start + (at - start).div_euclid(micros) * micros))
    };
    let found: Int64Array = (0..moments.len()).map(|row| bucket(row).transpose()).collect::<Result<_>>()?;
    let micros: ArrayRef = Arc::new(found);
    let micros = cast(&micros, &DataType::Timestamp(TimeUnit::Microsecond, zone(result)))?;
    Ok(cast(&micros, result)?)
}

fn zone(kind: &DataType) -> Option<Arc<str>> {
    match kind {
        DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    }
}
