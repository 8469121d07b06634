//! Numbers and booleans from text, and whole numbers from fractions.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanBuilder, PrimitiveBuilder, StringViewArray,
};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use datafusion::common::Result;

use crate::types::cast::{How, arrow, parse, quoted};
use crate::types::names::HUGEINT;

/// Calls a macro with the Arrow type of an integer type.
macro_rules! with_integer {
    ($data_type:expr, $call:ident, $other:expr) => {
        match $data_type {
            DataType::Int8 => $call!(Int8Type),
            DataType::Int16 => $call!(Int16Type),
            DataType::Int32 => $call!(Int32Type),
            DataType::Int64 => $call!(Int64Type),
            DataType::UInt8 => $call!(UInt8Type),
            DataType::UInt16 => $call!(UInt16Type),
            DataType::UInt32 => $call!(UInt32Type),
            DataType::UInt64 => $call!(UInt64Type),
            _ => $other,
        }
    };
}

/// Parses numbers or booleans.
pub(super) fn parsed(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    macro_rules! integers {
        ($type:ty) => {
            parse::<$type>(texts, to, how, "it is not a whole number of this type", |text| {
                // The usual spelling first.
                text.parse().ok().or_else(|| whole(text)?.try_into().ok())
            })
        };
    }
    match to {
        DataType::Boolean => booleans(texts, to, how),
        DataType::Float32 => {
            parse::<Float32Type>(texts, to, how, "it is not a number", |text| digits(text)?.parse().ok())
        }
        DataType::Float64 => {
            parse::<Float64Type>(texts, to, how, "it is not a number", |text| digits(text)?.parse().ok())
        }
        to if *to == HUGEINT => {
            parse::<Decimal256Type>(texts, to, how, "it is not a whole number of this type", |text| {
                whole(text).map(i256::from_i128)
            })
        }
        DataType::Decimal128(precision, scale) => {
            let limit = 10_i128.checked_pow(u32::from(*precision)).unwrap_or(i128::MAX);
            let reason = format!(
                "it is not a number of {} digits before the point",
                i16::from(*precision) - i16::from(*scale)
            );
            parse::<Decimal128Type>(texts, to, how, &reason, |text| {
                scaled(text, i32::from(*scale)).filter(|value| value.abs() < limit)
            })
        }
        other => with_integer!(other, integers, {
            let texts: ArrayRef = Arc::new(texts.clone());
            arrow(&texts, to, how)
        }),
    }
}

fn booleans(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    let mut values = BooleanBuilder::with_capacity(texts.len());
    for text in texts.iter() {
        values.append_option(match text {
            None => None,
            Some(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "y" | "1" => Some(true),
                "false" | "f" | "no" | "n" | "0" => Some(false),
                _ => how.misfit(&quoted(text), to, "it is not true, t, yes, y, 1, false, f, no, n or 0")?,
            },
        });
    }
    Ok(Arc::new(values.finish()))
}

/// Parses a whole number: decimal, rounded if it has a fraction, hexadecimal (`0x1F`) or binary (`0b101`).
fn whole(text: &str) -> Option<i128> {
    let trimmed = text.trim();
    let radix = |prefixes: [&str; 2], radix| {
        let digits = prefixes.iter().find_map(|prefix| trimmed.strip_prefix(prefix))?;
        i128::from_str_radix(&digits_between(digits)?, radix).ok()
    };
    radix(["0x", "0X"], 16).or_else(|| radix(["0b", "0B"], 2)).or_else(|| scaled(trimmed, 0))
}

/// Returns the digits without the underscores between them; `None` if an underscore is elsewhere, or there is a sign.
fn digits_between(digits: &str) -> Option<String> {
    let bytes = digits.as_bytes();
    let between = |(at, byte): (usize, &u8)| {
        let digit =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
        byte.is_ascii_alphanumeric() || *byte == b'_' && digit(at.checked_sub(1)) && digit(Some(at + 1))
    };
    (!digits.is_empty() && bytes.iter().enumerate().all(between)).then(|| digits.replace('_', ""))
}

/// Returns a number without spaces around it and underscores between its digits.
fn digits(text: &str) -> Option<String> {
    let trimmed = text.trim();
    if !trimmed.contains('_') {
        return Some(trimmed.to_string());
    }
    let bytes = trimmed.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let between = |(at, _): (usize, &u8)| digit(at.checked_sub(1)) && digit(Some(at + 1));
    let underscores = || bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    underscores().all(between).then(|| trimmed.replace('_', ""))
}

/// Parses a number with an optional fraction and exponent, as a multiple of `10^-scale`, rounded half away from zero.
fn scaled(text: &str, scale: i32) -> Option<i128> {
    let text = digits(text)?;
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, &text[..]),
    };
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    // Digits of the fraction that 128 bits cannot hold are dropped.
    let (mut value, mut shift) = (0_i128, exponent.checked_add(scale)?);
    for (part, places) in [(whole, 0), (fraction, -1)] {
        for digit in part.bytes() {
            let digit = i128::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
            // Negative, since the least number has no positive counterpart.
            match value.checked_mul(10).and_then(|value| value.checked_sub(digit)) {
                Some(next) => {
                    value = next;
                    shift = shift.checked_add(places)?;
                }
                None if places == 0 => return None,
                None => {}
            }
        }
    }
    let magnitude = if value == 0 {
        0
    } else if shift >= 0 {
        value.checked_mul(10_i128.checked_pow(shift.unsigned_abs())?)?
    } else {
        rescaled(value, shift.unsigned_abs())
    };
    if negative { Some(magnitude) } else { magnitude.checked_neg() }
}

/// Divides by a power of ten, and rounds half away from zero.
fn rescaled(value: i128, places: u32) -> i128 {
    match 10_i128.checked_pow(places) {
        Some(power) => {
            let rest = value % power;
            value / power + if rest.abs() >= power - rest.abs() { value.signum() } else { 0 }
        }
        None => 0,
    }
}

const OUT_OF_RANGE: &str = "it is out of range";

/// Rounds floats half to even and decimals half away from zero.
pub(super) fn rounded(array: &ArrayRef, to: &DataType, how: &How) -> Result<ArrayRef> {
    macro_rules! integers {
        ($type:ty) => {
            round::<$type>(array, to, how)
        };
    }
    with_integer!(to, integers, arrow(array, to, how))
}

fn round<T: ArrowPrimitiveType>(array: &ArrayRef, to: &DataType, how: &How) -> Result<ArrayRef>
where
    T::Native: TryFrom<i128>,
{
    let mut values = PrimitiveBuilder::<T>::with_capacity(array.len());
    if let DataType::Decimal128(_, scale) = array.data_type() {
        let decimals = array.as_primitive::<Decimal128Type>();
        for row in 0..decimals.len() {
            let whole = |value| match u32::try_from(*scale) {
                Ok(places) => rescaled(value, places).try_into().ok(),
                Err(_) => None,
            };
            values.append_option(match decimals.is_valid(row).then(|| whole(decimals.value(row))) {
                None => None,
                Some(Some(value)) => Some(value),
                Some(None) => how.misfit(&decimals.value_as_string(row), to, OUT_OF_RANGE)?,
            });
        }
    } else {
        let floats = datafusion::arrow::compute::cast(array, &DataType::Float64)?;
        // A float of this size or more exceeds 128 bits, and a conversion would saturate.
        const LIMIT: f64 = 1.7e38;
        for float in floats.as_primitive::<Float64Type>().iter() {
            values.append_option(match float {
                None => None,
                Some(float) => {
                    let whole = (float.abs() < LIMIT).then(|| float.round_ties_even() as i128);
                    match whole.and_then(|whole| whole.try_into().ok()) {
                        Some(value) => Some(value),
                        None => how.misfit(&crate::types::cast::text::float(float), to, OUT_OF_RANGE)?,
                    }
                }
            });
        }
    }
    Ok(Arc::new(values.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_duckdb_does() {
        for (text, expected) in [
            (" 12 ", Some(12)),
            ("1_000", Some(1000)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("1e3", Some(1000)),
            ("1.5", Some(2)),
            ("-2.5", Some(-3)),
            ("1e-1", Some(0)),
            ("5e-1", Some(1)),
            ("0x1F", Some(31)),
            ("-0x1F", None),
            ("0b101", Some(5)),
            ("+5", Some(5)),
            ("--5", None),
            ("", None),
            (".5", Some(1)),
            ("5.", Some(5)),
            (".", None),
            ("1e", None),
            ("1e400", None),
            ("1,000", None),
            ("170141183460469231731687303715884105727", Some(i128::MAX)),
            ("170141183460469231731687303715884105728", None),
            ("-170141183460469231731687303715884105728", Some(i128::MIN)),
            ("-170141183460469231731687303715884105729", None),
        ] {
            assert_eq!(whole(text), expected, "{text}");
        }
    }

    #[test]
    fn decimals_round_half_away_from_zero() {
        for (text, scale, expected) in [
            ("1.005", 2, Some(101)),
            ("-1.005", 2, Some(-101)),
            ("1e5", 2, Some(10_000_000)),
            ("1_000.25", 2, Some(100_025)),
            ("1e-5", 2, Some(0)),
            ("0.123456789012345678901234567890123456789999", 2, Some(12)),
            ("nan", 2, None),
        ] {
            assert_eq!(scaled(text, scale), expected, "{text}");
        }
        assert_eq!([rescaled(25, 1), rescaled(-25, 1), rescaled(24, 1), rescaled(5, 40)], [3, -3, 2, 0]);
    }
}
