//! Bounds of columns in manifests: of values, and of partitions.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;

use super::avro::Value;
use crate::calendar;
use crate::lakes::files::Bounds;

const MICROS_PER_HOUR: i64 = 3_600_000_000;
const MICROS_PER_DAY: i64 = 24 * MICROS_PER_HOUR;

/// Decodes a bound; `None` for types whose bounds are not used.
pub(super) fn single(bytes: &[u8], data_type: &DataType) -> Option<ScalarValue> {
    let int = || bytes.try_into().ok().map(i32::from_le_bytes);
    // A column that was an `int` may be a `long` now, and a `float` a `double`.
    let long = || match bytes.len() {
        4 => int().map(i64::from),
        _ => bytes.try_into().ok().map(i64::from_le_bytes),
    };
    let float = || bytes.try_into().ok().map(f32::from_le_bytes);
    let double = || match bytes.len() {
        4 => float().map(f64::from),
        _ => bytes.try_into().ok().map(f64::from_le_bytes),
    };
    Some(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(*bytes.first()? != 0)),
        DataType::Int32 => ScalarValue::Int32(Some(int()?)),
        DataType::Int64 => ScalarValue::Int64(Some(long()?)),
        DataType::Float32 => ScalarValue::Float32(Some(float()?)),
        DataType::Float64 => ScalarValue::Float64(Some(double()?)),
        DataType::Date32 => ScalarValue::Date32(Some(int()?)),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(Some(long()?)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(long()?), zone.clone())
        }
        DataType::Utf8View => ScalarValue::Utf8View(Some(String::from_utf8(bytes.to_vec()).ok()?)),
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(big_endian(bytes)?), *precision, *scale)
        }
        _ => return None,
    })
}

/// Decodes a number of up to 16 bytes.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let mut whole = if first >= 0x80 { [0xff; 16] } else { [0; 16] };
    let start = whole.len().checked_sub(bytes.len())?;
    whole[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(whole))
}

/// Returns the bounds that a partition's value gives the column that it is computed from. Transforms that do not keep
/// the order, such as `bucket`, give none.
pub(super) fn partition(transform: &str, value: &Value, data_type: &DataType, rows: Option<u64>) -> Bounds {
    if *value == Value::Null {
        // `void` is NULL for every value.
        let nulls = rows.filter(|_| transform != "void");
        return Bounds { nulls, ..Bounds::default() };
    }
    let within = |min, max| Bounds { min, max, nulls: Some(0) };
    if transform == "identity" {
        let value = identity(value, data_type);
        return within(value.clone(), value);
    }
    let Value::Long(number) = *value else {
        // A prefix is not larger than the text.
        return match (value, data_type) {
            (Value::Text(prefix), DataType::Utf8View) if transform.starts_with("truncate[") => {
                within(Some(ScalarValue::Utf8View(Some(prefix.clone()))), None)
            }
            _ => Bounds::default(),
        };
    };
    if let Some(width) = transform.strip_prefix("truncate[").and_then(|w| w.strip_suffix(']')?.parse().ok()) {
        let last = number.checked_add(width).and_then(|next: i64| next.checked_sub(1));
        return match data_type {
            DataType::Int32 => within(
                i32::try_from(number).ok().map(|first| ScalarValue::Int32(Some(first))),
                last.and_then(|last| i32::try_from(last).ok()).map(|last| ScalarValue::Int32(Some(last))),
            ),
            DataType::Int64 => within(
                Some(ScalarValue::Int64(Some(number))),
                last.map(|last| ScalarValue::Int64(Some(last))),
            ),
            _ => Bounds::default(),
        };
    }
    // Old writers rounded times before 1970 up.
    let first = if number <= 0 { number.saturating_sub(1) } else { number };
    let start = |number: i64| start(transform, number);
    let Some((from, to)) = start(first).zip(start(number.saturating_add(1))) else {
        return Bounds::default();
    };
    match data_type {
        DataType::Date32 => {
            let day = |micros: i64| {
                i32::try_from(micros.div_euclid(MICROS_PER_DAY))
                    .ok()
                    .map(|day| ScalarValue::Date32(Some(day)))
            };
            within(day(from), day(to - 1))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let time = |micros| Some(ScalarValue::TimestampMicrosecond(Some(micros), zone.clone()));
            within(time(from), time(to - 1))
        }
        _ => Bounds::default(),
    }
}

fn identity(value: &Value, data_type: &DataType) -> Option<ScalarValue> {
    match (value, data_type) {
        (Value::Boolean(value), DataType::Boolean) => Some(ScalarValue::Boolean(Some(*value))),
        (Value::Long(value), DataType::Int32) => Some(ScalarValue::Int32(Some(i32::try_from(*value).ok()?))),
        (Value::Long(value), DataType::Date32) => {
            Some(ScalarValue::Date32(Some(i32::try_from(*value).ok()?)))
        }
        (Value::Long(value), _) => single(&value.to_le_bytes(), data_type),
        (Value::Float(value), _) => single(&value.to_le_bytes(), data_type),
        (Value::Double(value), _) => single(&value.to_le_bytes(), data_type),
        (Value::Text(value), _) => single(value.as_bytes(), data_type),
        (Value::Bytes(value), DataType::Decimal128(..)) => single(value, data_type),
        _ => None,
    }
}

/// Returns the first microsecond of a unit of time, counted from 1970.
fn start(transform: &str, number: i64) -> Option<i64> {
    let days = |months: i64| first_day(months)?.checked_mul(MICROS_PER_DAY);
    match transform {
        "year" => days(number.checked_mul(12)?),
        "month" => days(number),
        "day" => number.checked_mul(MICROS_PER_DAY),
        "hour" => number.checked_mul(MICROS_PER_HOUR),
        _ => None,
    }
}

/// Returns the day on which a month starts; both are counted from 1970.
fn first_day(months: i64) -> Option<i64> {
    let (year, month) = (months.div_euclid(12).checked_add(1970)?, months.rem_euclid(12) + 1);
    (-200_000..=200_000).contains(&year).then(|| calendar::days(year, month, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dates(transform: &str, number: i64) -> (i32, i32) {
        let bounds = partition(transform, &Value::Long(number), &DataType::Date32, Some(3));
        let (Some(ScalarValue::Date32(Some(min))), Some(ScalarValue::Date32(Some(max)))) =
            (bounds.min, bounds.max)
        else {
            panic!("{transform} {number}")
        };
        (min, max)
    }

    #[test]
    fn units_of_time_bound_their_source() {
        assert_eq!(dates("day", 18_262), (18_262, 18_262));
        // January and February 2020, and the year.
        assert_eq!((dates("month", 600), dates("month", 601)), ((18_262, 18_292), (18_293, 18_321)));
        assert_eq!(dates("year", 50), (18_262, 18_627));
        // Rows of the unit before may be there as well.
        assert_eq!(dates("day", -5), (-6, -5));
        let zone = DataType::Timestamp(TimeUnit::Microsecond, None);
        let hour = partition("hour", &Value::Long(2), &zone, None);
        assert_eq!(hour.max, Some(ScalarValue::TimestampMicrosecond(Some(3 * MICROS_PER_HOUR - 1), None)));
        assert_eq!(partition("bucket[16]", &Value::Long(2), &DataType::Int64, None), Bounds::default());
    }

    #[test]
    fn values_and_prefixes_bound_their_source() {
        let text = |text: &str| Value::Text(text.to_string());
        let prefix = partition("truncate[2]", &text("ab"), &DataType::Utf8View, None);
        assert_eq!((prefix.min, prefix.max), (Some(ScalarValue::Utf8View(Some("ab".into()))), None));
        let range = partition("truncate[10]", &Value::Long(-10), &DataType::Int32, None);
        assert_eq!(
            (range.min, range.max),
            (Some(ScalarValue::Int32(Some(-10))), Some(ScalarValue::Int32(Some(-1))))
        );
        assert_eq!(partition("identity", &Value::Null, &DataType::Int32, Some(4)).nulls, Some(4));
        assert_eq!(partition("void", &Value::Null, &DataType::Int32, Some(4)).nulls, None);
    }

    #[test]
    fn bounds_of_promoted_columns_are_decoded() {
        assert_eq!(single(&7i32.to_le_bytes(), &DataType::Int64), Some(ScalarValue::Int64(Some(7))));
        assert_eq!(
            single(&[0xff, 0x38], &DataType::Decimal128(9, 2)),
            Some(ScalarValue::Decimal128(Some(-200), 9, 2))
        );
        assert_eq!(single(&[1, 2], &DataType::Int32), None);
        assert_eq!(single(b"ab", &DataType::Utf8View), Some(ScalarValue::Utf8View(Some("ab".into()))));
    }
}
