//! Partition values and statistics of a Delta log.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use serde_json::Value;

use super::actions::Add;
use crate::lakes::column::{Column, Kind};
use crate::lakes::files::Bounds;

/// Times in statistics are cut to milliseconds, so that a maximum may be lower than the value by this much.
const CUT_MICROSECONDS: i64 = 999;
/// Digits that a number of JSON keeps if it is not an integer.
const EXACT_DIGITS: u8 = 15;

/// Returns the value of a partition column; an empty text is NULL.
///
/// # Errors
/// Returns an error if the text is not of the type.
pub(super) fn partition(text: Option<&str>, data_type: &DataType) -> Result<ScalarValue> {
    match text.filter(|text| !text.is_empty()) {
        Some(text) => ScalarValue::from(text).cast_to(data_type),
        None => ScalarValue::try_from(data_type),
    }
}

/// The statistics of one file.
pub(super) struct Statistics(Value);

impl Statistics {
    /// Returns the statistics of a file; damaged ones are as if there were none.
    pub(super) fn of(add: &Add) -> Self {
        let json = add.stats.as_deref().and_then(|stats| serde_json::from_str(stats).ok());
        Self(json.or_else(|| add.stats_parsed.clone()).unwrap_or(Value::Null))
    }

    pub(super) fn rows(&self) -> Option<u64> {
        self.0.get("numRecords")?.as_u64()
    }

    /// Returns the bounds of a column.
    pub(super) fn bounds(&self, column: &Column) -> Bounds {
        let Kind::Primitive(data_type) = &column.kind else { return Bounds::default() };
        let of = |group: &str| self.0.get(group)?.get(&column.in_files);
        let value = |group: &str| scalar(of(group)?, data_type);
        // NaN is larger than a maximum, which does not count it.
        let max = value("maxValues").filter(|_| !data_type.is_floating()).map(rounded_up);
        Bounds { min: value("minValues"), max, nulls: of("nullCount").and_then(Value::as_u64) }
    }
}

/// Converts a bound; `None` if it is not exact.
fn scalar(json: &Value, data_type: &DataType) -> Option<ScalarValue> {
    let text = match json {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let exact = number.is_i64() || number.is_u64();
            if let DataType::Decimal128(precision, _) = data_type
                && !exact
                && *precision > EXACT_DIGITS
            {
                return None;
            }
            number.to_string()
        }
        Value::Bool(value) => value.to_string(),
        _ => return None,
    };
    match data_type {
        // Binary values have no specified text.
        DataType::BinaryView => None,
        DataType::Utf8View => Some(ScalarValue::Utf8View(Some(text))),
        _ => ScalarValue::from(text.as_str()).cast_to(data_type).ok().filter(|value| !value.is_null()),
    }
}

fn rounded_up(max: ScalarValue) -> ScalarValue {
    match max {
        ScalarValue::TimestampMicrosecond(Some(time), zone) => {
            ScalarValue::TimestampMicrosecond(Some(time.saturating_add(CUT_MICROSECONDS)), zone)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::TimeUnit;

    fn bounds(data_type: DataType, min: &str, max: &str) -> Bounds {
        let stats = format!(
            r#"{{"numRecords":3,"minValues":{{"x":{min}}},"maxValues":{{"x":{max}}},"nullCount":{{"x":1}}}}"#
        );
        let statistics = Statistics::of(&Add { stats: Some(stats), ..Add::default() });
        assert_eq!(statistics.rows(), Some(3));
        let kind = Kind::Primitive(data_type);
        let (name, in_files) = ("y".to_string(), "x".to_string());
        statistics.bounds(&Column { name, in_files, id: None, nullable: true, kind })
    }

    #[test]
    fn bounds_are_typed_and_never_too_narrow() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let found = bounds(time, r#""1970-01-01T00:00:00.001Z""#, r#""1970-01-01T00:00:00.002Z""#);
        let at = |time| Some(ScalarValue::TimestampMicrosecond(Some(time), Some("UTC".into())));
        assert_eq!((found.min, found.max, found.nulls), (at(1000), at(2999), Some(1)));
        assert_eq!(bounds(DataType::Float64, "1.5", "2.5").max, None);
        assert_eq!(bounds(DataType::Decimal128(38, 2), "1.5", "7").min, None);
        let decimal = |value| Some(ScalarValue::Decimal128(Some(value), 38, 2));
        assert_eq!(bounds(DataType::Decimal128(38, 2), "1.5", "7").max, decimal(700));
        let date = bounds(DataType::Date32, r#""1970-01-02""#, r#""nonsense""#);
        assert_eq!((date.min, date.max), (Some(ScalarValue::Date32(Some(1))), None));
    }

    #[test]
    fn partition_values_are_typed() {
        let value = |text: &str, data_type: DataType| partition(Some(text), &data_type).unwrap();
        assert_eq!(value("7", DataType::Int32), ScalarValue::Int32(Some(7)));
        let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let expected = ScalarValue::TimestampMicrosecond(Some(1_000_000), Some("UTC".into()));
        assert_eq!(value("1970-01-01 00:00:01", time.clone()), expected);
        assert_eq!(value("1970-01-01T00:00:01.000000Z", time), expected);
        assert!(value("", DataType::Utf8View).is_null());
        assert!(partition(Some("x"), &DataType::Int32).is_err());
    }
}
