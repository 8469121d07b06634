//! Time zones: `AT TIME ZONE`, and the session's zone.
//!
//! A value with a zone is an instant; the zone says how it is shown and which day it is. Columns of files keep their own
//! zone until they are read, and then get the session's, so that functions such as `date_trunc` use it.

use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, TimestampMicrosecondArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err};
use datafusion::functions::datetime::to_local_time::adjust_to_local_time;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::types::names::name;

/// The session's zone if none is set.
pub(crate) const UTC: &str = "UTC";

/// Returns the time zone of the session.
pub(crate) fn of_session(config: &ConfigOptions) -> Arc<str> {
    config.execution.time_zone.as_deref().unwrap_or(UTC).into()
}

/// Returns the name of a zone in its own case.
///
/// # Errors
/// Returns an error if the zone does not exist, or is an offset, whose sign has two meanings.
pub(crate) fn canonical(zone: &str) -> Result<String> {
    let unknown = || {
        DataFusionError::Plan(format!(
            "cannot find time zone '{zone}'; write a name such as 'Europe/Berlin', 'America/New_York' or 'UTC'"
        ))
    };
    if zone.starts_with(['+', '-']) {
        return Err(unknown());
    }
    let title = || {
        let mut start = true;
        let one = |c: char| {
            let cased = if start { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            start = !c.is_ascii_alphanumeric();
            cased
        };
        zone.chars().map(one).collect::<String>()
    };
    [
        zone.to_string(),
        title(),
        zone.to_ascii_uppercase(),
        title().replace("_Of_", "_of_").replace("/Gmt", "/GMT"),
    ]
    .into_iter()
    .find(|name| Tz::from_str(name).is_ok())
    .ok_or_else(unknown)
}

/// Returns the zone with this name.
fn parsed(zone: &str) -> Result<Tz> {
    Ok(Tz::from_str(&canonical(zone)?)?)
}

/// Returns the function `timezone(zone, timestamp)`, which `timestamp AT TIME ZONE zone` calls.
pub(crate) fn function(config: &ConfigOptions) -> ScalarUDF {
    let signature = Signature::any(2, Volatility::Immutable);
    ScalarUDF::new_from_impl(AtTimeZone { session: of_session(config), signature })
}

/// Converts an instant to the local time of a zone, and a local time of a zone to the instant.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    session: Arc<str>,
    signature: Signature,
}

impl ScalarUDFImpl for AtTimeZone {
    fn name(&self) -> &str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [zone, time] = types else {
            return Err(DataFusionError::Plan("timezone(zone, timestamp) takes two arguments".to_string()));
        };
        if !zone.is_string() && !zone.is_null() {
            let message =
                format!("cannot use {} as a time zone; write a name such as 'Europe/Berlin'", name(zone));
            return Err(DataFusionError::Plan(message));
        }
        match time {
            DataType::Timestamp(unit, Some(_)) => Ok(DataType::Timestamp(*unit, None)),
            DataType::Timestamp(unit, None) => {
                Ok(DataType::Timestamp(*unit, Some(Arc::clone(&self.session))))
            }
            DataType::Date32 | DataType::Null => {
                Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(&self.session))))
            }
            other => Err(DataFusionError::Plan(format!(
                "cannot convert {} to a time zone; cast it to TIMESTAMP or TIMESTAMPTZ",
                name(other)
            ))),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        if let Some(Some(zone)) = args.scalar_arguments.first()
            && let Some(Some(zone)) = zone.try_as_str()
        {
            canonical(zone)?;
        }
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [zone, time] = &args.args[..] else {
            return Err(exec_datafusion_err!("timezone(zone, timestamp) takes two arguments"));
        };
        let scalar = matches!((zone, time), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if scalar { 1 } else { args.number_rows };
        let (to, times) = (args.return_type(), time.to_array(rows)?);
        let converted = match zone {
            ColumnarValue::Scalar(zone) => match zone.try_as_str() {
                Some(Some(zone)) => converted(&times, zone, to)?,
                _ => datafusion::arrow::array::new_null_array(to, rows),
            },
            // A row at a time: zones that differ by row are rare.
            ColumnarValue::Array(zones) => {
                let mut parts = Vec::with_capacity(rows);
                for (row, zone) in cast(zones, &DataType::Utf8)?.as_string::<i32>().iter().enumerate() {
                    parts.push(match zone {
                        Some(zone) => converted(&times.slice(row, 1), zone, to)?,
                        None => datafusion::arrow::array::new_null_array(to, 1),
                    });
                }
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                match parts.is_empty() {
                    true => datafusion::arrow::array::new_null_array(to, 0),
                    false => datafusion::arrow::compute::concat(&parts)?,
                }
            }
        };
        Ok(match scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&converted, 0)?),
            false => ColumnarValue::Array(converted),
        })
    }
}

/// Converts instants to local times of a zone, or local times of it to instants.
fn converted(times: &ArrayRef, zone: &str, to: &DataType) -> Result<ArrayRef> {
    match times.data_type() {
        DataType::Timestamp(_, Some(_)) => local(times, zone, to),
        _ => instant(times, zone, to),
    }
}

/// The type in which zones are computed.
const LOCAL: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Converts instants to local times of a zone.
pub(super) fn local(instants: &ArrayRef, zone: &str, to: &DataType) -> Result<ArrayRef> {
    let zone = parsed(zone)?;
    let DataType::Timestamp(unit, _) = instants.data_type() else {
        return Err(exec_datafusion_err!("cannot convert {} to local time", name(instants.data_type())));
    };
    let numbers = match unit {
        // Nanoseconds keep theirs.
        TimeUnit::Nanosecond => cast(instants, &DataType::Timestamp(TimeUnit::Nanosecond, None))?,
        _ => cast(instants, &LOCAL)?,
    };
    let micros = cast(&cast(&numbers, &LOCAL)?, &DataType::Int64)?;
    let offsets: PrimitiveArray<Int64Type> = micros.as_primitive::<Int64Type>().try_unary(|micros| {
        adjust_to_local_time::<TimestampMicrosecondType>(micros, zone).map(|local| local - micros)
    })?;
    let factor = if matches!(unit, TimeUnit::Nanosecond) { 1000 } else { 1 };
    let numbers = cast(&numbers, &DataType::Int64)?;
    let shifted: PrimitiveArray<Int64Type> = datafusion::arrow::compute::try_binary(
        numbers.as_primitive::<Int64Type>(),
        &offsets,
        |number, offset| Ok(number.wrapping_add(offset * factor)),
    )?;
    let shifted: ArrayRef = Arc::new(shifted);
    let exact = if factor == 1 { LOCAL } else { DataType::Timestamp(TimeUnit::Nanosecond, None) };
    Ok(cast(&cast(&shifted, &exact)?, to)?)
}

/// Converts local times of a zone to instants. A time that clocks skip counts from before the change; one that they
/// show twice is the later one, as in DuckDB.
pub(super) fn instant(times: &ArrayRef, zone: &str, to: &DataType) -> Result<ArrayRef> {
    const HOUR: i64 = 3_600_000_000;
    let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some(canonical(zone)?.into()));
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let times = cast(times, &LOCAL)?;
    let shifted = |by: i64| -> Result<ArrayRef> {
        let shifted: TimestampMicrosecondArray =
            times.as_primitive::<TimestampMicrosecondType>().unary(|time: i64| time.wrapping_add(by));
        Ok(cast_with_options(&(Arc::new(shifted) as ArrayRef), &zoned, &options)?)
    };
    let exact = shifted(0)?;
    let found = if exact.null_count() == times.null_count() {
        exact
    } else {
        let (before, after) = (shifted(-HOUR)?, shifted(HOUR)?);
        let [exact, before, after] =
            [&exact, &before, &after].map(|array| array.as_primitive::<TimestampMicrosecondType>());
        let one = |row: usize| match exact.is_valid(row) {
            true => Some(exact.value(row)),
            false if times.is_null(row) => None,
            false => {
                let early = before.is_valid(row).then(|| before.value(row) + HOUR);
                let late = after.is_valid(row).then(|| after.value(row) - HOUR);
                early.max(late)
            }
        };
        let found: TimestampMicrosecondArray = (0..times.len()).map(one).collect();
        Arc::new(found.with_data_type(zoned.clone())) as ArrayRef
    };
    Ok(cast(&found, to)?)
}

/// Converts the columns of a table with a time zone to the session's zone, unless they have it.
pub(super) fn in_session(plan: LogicalPlan, session: &Arc<str>) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::TableScan(_) = &plan else { return Ok(Transformed::no(plan)) };
    let is_utc = |zone: &str| matches!(zone, "UTC" | "+00:00" | "Etc/UTC" | "Z");
    let other = |data_type: &DataType| match data_type {
        DataType::Timestamp(unit, Some(zone)) if zone != session && !(is_utc(zone) && is_utc(session)) => {
            Some(*unit)
        }
        _ => None,
    };
    if plan.schema().fields().iter().all(|field| other(field.data_type()).is_none()) {
        return Ok(Transformed::no(plan));
    }
    let columns: Vec<Expr> = plan
        .schema()
        .iter()
        .map(|(table, field)| {
            let column = Expr::Column((table, field).into());
            match other(field.data_type()) {
                Some(unit) => {
                    let zoned = DataType::Timestamp(unit, Some(Arc::clone(session)));
                    Expr::Cast(Cast::new(Box::new(column), zoned))
                        .alias_qualified(table.cloned(), field.name())
                }
                None => column,
            }
        })
        .collect();
    Ok(Transformed::yes(LogicalPlanBuilder::from(plan).project(columns)?.build()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(values: &[i64]) -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(values.to_vec()))
    }

    #[test]
    fn names_of_zones_are_found_in_any_case() {
        assert_eq!(canonical("europe/berlin").unwrap(), "Europe/Berlin");
        assert_eq!(canonical("AMERICA/NEW_YORK").unwrap(), "America/New_York");
        assert_eq!(canonical("est").unwrap(), "EST");
        assert!(canonical("nowhere").unwrap_err().to_string().contains("cannot find time zone 'nowhere'"));
        assert!(canonical("+02:00").is_err());
    }

    #[test]
    fn skipped_and_repeated_local_times_have_an_instant() {
        const SECOND: i64 = 1_000_000;
        // 2024-03-31 02:30 is skipped, and 2024-10-27 02:30 occurs twice, in Berlin.
        let times = micros(&[1_711_852_200 * SECOND, 1_729_996_200 * SECOND, 1_704_067_200 * SECOND]);
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()));
        let found = instant(&times, "Europe/Berlin", &utc).unwrap();
        let found = found.as_primitive::<TimestampMicrosecondType>();
        let expected = [1_711_848_600 * SECOND, 1_729_992_600 * SECOND, 1_704_063_600 * SECOND];
        assert_eq!(found.values()[..], expected);
        let back = local(&(Arc::new(found.clone()) as ArrayRef), "Europe/Berlin", &LOCAL).unwrap();
        assert_eq!(back.as_primitive::<TimestampMicrosecondType>().value(2), 1_704_067_200 * SECOND);
    }
}
