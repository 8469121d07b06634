//! Values as DuckDB writes them: `2024-01-05 10:00:00+00`, `1e+20`, `[1, NULL]`, `{'a': x}`.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::functions::datetime::to_local_time::adjust_to_local_time;

use crate::calendar::civil;

/// Writes the value of a row.
type Writer<'a> = Box<dyn Fn(usize, &mut String) -> Result<()> + 'a>;

/// Returns the texts of an array.
pub(super) fn shown(array: &ArrayRef) -> Result<ArrayRef> {
    let writer = writer(array)?;
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut text = String::new();
    let nulls = array.logical_nulls();
    for row in 0..array.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            texts.append_null();
        } else {
            text.clear();
            writer(row, &mut text)?;
            texts.append_value(&text);
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// Returns the writer of an array.
fn writer<'a>(array: &ArrayRef) -> Result<Writer<'a>> {
    Ok(match array.data_type() {
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>().clone();
            Box::new(move |row, out| {
                out.push_str(&shortest(&format!("{:e}", floats.value(row))));
                Ok(())
            })
        }
        DataType::Float16 | DataType::Float64 => {
            let floats = cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone();
            Box::new(move |row, out| {
                out.push_str(&float(floats.value(row)));
                Ok(())
            })
        }
        DataType::Timestamp(unit, zone) => {
            let nanos = matches!(unit, TimeUnit::Nanosecond);
            let numbers = match nanos {
                true => cast(array, &DataType::Int64)?,
                false => cast(
                    &cast(array, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?,
                    &DataType::Int64,
                )?,
            };
            let numbers = numbers.as_primitive::<Int64Type>().clone();
            let zone = zone.as_deref().map(Tz::from_str).transpose()?;
            let second = if nanos { 1_000_000_000 } else { 1_000_000 };
            Box::new(move |row, out| {
                let instant = numbers.value(row);
                let seconds = instant.div_euclid(second);
                let offset = match zone {
                    Some(zone) => {
                        adjust_to_local_time::<TimestampMicrosecondType>(seconds * 1_000_000, zone)?
                            / 1_000_000
                            - seconds
                    }
                    None => 0,
                };
                timestamp(out, seconds + offset, instant.rem_euclid(second), if nanos { 9 } else { 6 });
                if zone.is_some() {
                    zone_offset(out, offset);
                }
                Ok(())
            })
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let nanos = cast(&cast(array, &DataType::Time64(TimeUnit::Nanosecond))?, &DataType::Int64)?;
            let nanos = nanos.as_primitive::<Int64Type>().clone();
            Box::new(move |row, out| {
                let nanos = nanos.value(row);
                clock(out, nanos / 1_000_000_000, nanos % 1_000_000_000, 9);
                Ok(())
            })
        }
        DataType::Interval(_) => {
            let intervals = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row, out| {
                interval(out, intervals.value(row));
                Ok(())
            })
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let bytes = cast(array, &DataType::Binary)?.as_binary::<i32>().clone();
            Box::new(move |row, out| {
                for byte in bytes.value(row) {
                    match byte {
                        b'\\' | 0..=31 | 127.. => write!(out, "\\x{byte:02X}").unwrap_or_default(),
                        _ => out.push(char::from(*byte)),
                    }
                }
                Ok(())
            })
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>().clone();
            let item = element(lists.values())?;
            Box::new(move |row, out| {
                let (from, to) =
                    (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
                out.push('[');
                for at in from..to {
                    out.push_str(if at > from { ", " } else { "" });
                    item(at, out)?;
                }
                out.push(']');
                Ok(())
            })
        }
        DataType::Struct(fields) => {
            let names: Vec<String> = fields.iter().map(|field| field.name().replace('\'', "''")).collect();
            let columns = array.as_struct().columns().iter().map(element).collect::<Result<Vec<_>>>()?;
            Box::new(move |row, out| {
                out.push('{');
                for (at, (name, column)) in names.iter().zip(&columns).enumerate() {
                    write!(out, "{}'{name}': ", if at > 0 { ", " } else { "" }).unwrap_or_default();
                    column(row, out)?;
                }
                out.push('}');
                Ok(())
            })
        }
        DataType::Map(..) => {
            let maps = array.as_map().clone();
            let (keys, values) = (element(maps.keys())?, element(maps.values())?);
            Box::new(move |row, out| {
                let (from, to) = (maps.value_offsets()[row] as usize, maps.value_offsets()[row + 1] as usize);
                out.push('{');
                for at in from..to {
                    out.push_str(if at > from { ", " } else { "" });
                    keys(at, out)?;
                    out.push('=');
                    values(at, out)?;
                }
                out.push('}');
                Ok(())
            })
        }
        _ => {
            let mut texts = StringBuilder::new();
            let views = cast(array, &DataType::Utf8View)?;
            views.as_string_view().iter().for_each(|text| texts.append_option(text));
            let texts = texts.finish();
            Box::new(move |row, out| {
                out.push_str(texts.value(row));
                Ok(())
            })
        }
    })
}

/// Returns the writer of values within a list, struct or map, which are quoted where their text would be ambiguous.
fn element<'a>(array: &ArrayRef) -> Result<Writer<'a>> {
    let (writer, nulls) = (writer(array)?, array.logical_nulls());
    let kind = array.data_type();
    let plain = kind.is_numeric() || kind.is_nested() || matches!(kind, DataType::Boolean);
    Ok(Box::new(move |row, out| match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
        true => {
            out.push_str("NULL");
            Ok(())
        }
        false if plain => writer(row, out),
        false => {
            let start = out.len();
            writer(row, out)?;
            if is_ambiguous(&out[start..]) {
                let text = out.split_off(start);
                write!(out, "'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")).unwrap_or_default();
            }
            Ok(())
        }
    }))
}

/// Returns true for a text that would be read as something else within a list.
fn is_ambiguous(text: &str) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case("null")
        || text.starts_with(char::is_whitespace)
        || text.ends_with(char::is_whitespace)
        || text.contains(['[', ']', '{', '}', '(', ')', ',', '\'', '"', '=', ':', '\\'])
}

/// Returns the shortest text of a float.
pub(super) fn float(value: f64) -> String {
    shortest(&format!("{value:e}"))
}

/// Converts Rust's exponential form, which has the fewest digits.
fn shortest(exponential: &str) -> String {
    let Some((digits, exponent)) = exponential.split_once('e') else {
        // NaN and inf.
        return exponential.to_lowercase();
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    if !(-4..16).contains(&exponent) {
        let sign_of_exponent = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{digits}e{sign_of_exponent}{:02}", exponent.abs());
    }
    let digits = digits.replace('.', "");
    match usize::try_from(exponent) {
        Ok(point) if point + 1 >= digits.len() => {
            format!("{sign}{digits}{}.0", "0".repeat(point + 1 - digits.len()))
        }
        Ok(point) => format!("{sign}{}.{}", &digits[..=point], &digits[point + 1..]),
        Err(_) => format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1)),
    }
}

/// Writes `YYYY-MM-DD HH:MM:SS[.F]`.
fn timestamp(out: &mut String, seconds: i64, fraction: i64, digits: usize) {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    // Year 0 is 1 BC.
    let (shown, era) = if year > 0 { (year, "") } else { (1 - year, " (BC)") };
    write!(out, "{shown:04}-{month:02}-{day:02}{era} ").unwrap_or_default();
    clock(out, of_day, fraction, digits);
}

/// Writes `HH:MM:SS[.F]` without zeros at the end of the fraction.
fn clock(out: &mut String, seconds: i64, fraction: i64, digits: usize) {
    write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60).unwrap_or_default();
    if fraction != 0 {
        let text = format!("{fraction:0digits$}");
        write!(out, ".{}", text.trim_end_matches('0')).unwrap_or_default();
    }
}

/// Writes `+HH[:MM[:SS]]`.
fn zone_offset(out: &mut String, offset: i64) {
    let (sign, seconds) = (if offset < 0 { '-' } else { '+' }, offset.abs());
    write!(out, "{sign}{:02}", seconds / 3600).unwrap_or_default();
    if seconds % 3600 != 0 {
        write!(out, ":{:02}", seconds / 60 % 60).unwrap_or_default();
    }
    if seconds % 60 != 0 {
        write!(out, ":{:02}", seconds % 60).unwrap_or_default();
    }
}

/// Writes `1 year 2 months 3 days 04:05:06`.
fn interval(out: &mut String, interval: IntervalMonthDayNano) {
    let start = out.len();
    let parts = [
        (i64::from(interval.months / 12), "year"),
        (i64::from(interval.months % 12), "month"),
        (i64::from(interval.days), "day"),
    ];
    for (number, unit) in parts.into_iter().filter(|(number, _)| *number != 0) {
        let space = if out.len() > start { " " } else { "" };
        let plural = if number.abs() == 1 { "" } else { "s" };
        write!(out, "{space}{number} {unit}{plural}").unwrap_or_default();
    }
    if interval.nanoseconds != 0 || out.len() == start {
        let space = if out.len() > start { " " } else { "" };
        let sign = if interval.nanoseconds < 0 { "-" } else { "" };
        write!(out, "{space}{sign}").unwrap_or_default();
        let nanos = interval.nanoseconds.unsigned_abs();
        clock(out, (nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64, 9);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_duckdb_does() {
        for (value, expected) in [
            (1e10, "10000000000.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (123_456_789.123, "123456789.123"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-0.25, "-0.25"),
            (100.0, "100.0"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float(value), expected);
        }
        assert_eq!(shortest(&format!("{:e}", 0.1_f32)), "0.1");
    }

    #[test]
    fn times_and_intervals_are_written_as_duckdb_does() {
        let written = |seconds, fraction| {
            let mut out = String::new();
            timestamp(&mut out, seconds, fraction, 6);
            out
        };
        assert_eq!(written(1_704_448_800, 500_000), "2024-01-05 10:00:00.5");
        assert_eq!(written(-62_167_219_200, 0), "0001-01-01 (BC) 00:00:00");
        let shown = |months, days, nanos| {
            let mut out = String::new();
            interval(&mut out, IntervalMonthDayNano::new(months, days, nanos));
            out
        };
        assert_eq!(shown(14, 3, 14_706_500_000_000), "1 year 2 months 3 days 04:05:06.5");
        assert_eq!([shown(-1, 0, 0), shown(0, 100, 90_000_000_000_000)], ["-1 month", "100 days 25:00:00"]);
        assert_eq!([shown(0, 0, 0), shown(0, -1, -7_200_000_000_000)], ["00:00:00", "-1 day -02:00:00"]);
    }
}
