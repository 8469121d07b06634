//! Columns that are built from the text of their values.

use std::sync::Arc;

use datafusion::arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::array::{
    ArrayBuilder, ArrayRef, BooleanBuilder, LargeStringBuilder, PrimitiveBuilder, StringBuilder,
    StringLikeArrayBuilder, StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, TimeUnit};

use crate::tables::text::temporal::{self, TimeFormat};

/// Rules to read values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueFormat {
    pub date: TimeFormat,
    pub timestamp: TimeFormat,
    pub decimal_separator: u8,
    /// Separator of thousands, which is dropped.
    pub thousands: Option<u8>,
}

impl Default for ValueFormat {
    fn default() -> Self {
        Self { date: TimeFormat::Iso, timestamp: TimeFormat::Iso, decimal_separator: b'.', thousands: None }
    }
}

/// A column that grows by the text of its values.
pub(crate) trait Column: Send {
    /// Appends a value; returns false, and appends nothing, if the text does not fit the type.
    fn append(&mut self, text: &[u8]) -> bool;
    fn append_null(&mut self);
    fn len(&self) -> usize;
    /// Returns the values, and starts again without any.
    fn finish(&mut self) -> ArrayRef;
}

struct Parsed<T: ArrowPrimitiveType, F> {
    builder: PrimitiveBuilder<T>,
    parse: F,
}

impl<T: ArrowPrimitiveType, F: Fn(&[u8]) -> Option<T::Native> + Send> Column for Parsed<T, F> {
    fn append(&mut self, text: &[u8]) -> bool {
        let value = (self.parse)(text);
        if let Some(value) = value {
            self.builder.append_value(value);
        }
        value.is_some()
    }

    fn append_null(&mut self) {
        self.builder.append_null();
    }

    fn len(&self) -> usize {
        self.builder.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

struct Boolean(BooleanBuilder);

impl Column for Boolean {
    fn append(&mut self, text: &[u8]) -> bool {
        let value = match text.trim_ascii() {
            b"1" => Some(true),
            b"0" => Some(false),
            text => boolean(text),
        };
        if let Some(value) = value {
            self.0.append_value(value);
        }
        value.is_some()
    }

    fn append_null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

struct Text<B>(B);

impl<B: StringLikeArrayBuilder> Column for Text<B> {
    fn append(&mut self, text: &[u8]) -> bool {
        match std::str::from_utf8(text) {
            Ok(text) => {
                self.0.append_value(text);
                true
            }
            Err(_) => false,
        }
    }

    fn append_null(&mut self) {
        self.0.append_null();
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn finish(&mut self) -> ArrayRef {
        self.0.finish()
    }
}

/// Reads `true`, `f`, `Yes` and the like; not `1` and `0`, which a sniffer takes for numbers.
pub(crate) fn boolean(text: &[u8]) -> Option<bool> {
    let is = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
    match text.first()? {
        b't' | b'T' | b'y' | b'Y' if is(["true", "t", "yes"]) => Some(true),
        b'f' | b'F' | b'n' | b'N' if is(["false", "f", "no"]) => Some(false),
        _ => None,
    }
}

/// Reads a whole number, with spaces around it.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, number) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        [first, ..] if first.is_ascii_whitespace() => return trimmed(text, integer),
        [.., last] if last.is_ascii_whitespace() => return trimmed(text, integer),
        _ => (false, text),
    };
    if number.is_empty() || number.len() > 19 {
        return if number.len() > 19 { long_integer(negative, number) } else { None };
    }
    let mut value: u64 = 0;
    for byte in number {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits fit.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Reads a number with many digits, such as leading zeros.
fn long_integer(negative: bool, number: &[u8]) -> Option<i64> {
    let zeros = number.iter().take_while(|byte| **byte == b'0').count();
    let rest = &number[zeros..];
    if rest.is_empty() || rest.len() > 19 {
        return (rest.is_empty() && zeros > 0).then_some(0);
    }
    let value = rest
        .iter()
        .try_fold(0u64, |n, byte| byte.is_ascii_digit().then(|| n * 10 + u64::from(byte - b'0')))?;
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

fn trimmed<T>(text: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let inner = text.trim_ascii();
    if inner.len() == text.len() { None } else { read(inner) }
}

/// Reads a number with a point, an exponent, or neither.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    text.parse().ok()
}

/// Reads a decimal as a multiple of 10^-`scale`; digits beyond are rounded.
pub(crate) fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let text = text.trim_ascii();
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], i32::try_from(integer(&text[at + 1..])?).ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let all = || mantissa.iter().enumerate().filter(|(at, _)| *at != point).map(|(_, byte)| byte);
    if all().next().is_none() || !all().all(u8::is_ascii_digit) {
        return None;
    }
    // Number of digits that count; the next one rounds.
    let counted = i64::try_from(point).ok()? + i64::from(exponent) + i64::from(scale);
    let mut value: i128 = 0;
    let mut round_up = false;
    let mut position = 0i64;
    for byte in all() {
        let digit = i128::from(byte - b'0');
        if position < counted {
            value = value.checked_mul(10)?.checked_add(digit)?;
        } else if position == counted {
            round_up = digit >= 5;
        }
        position += 1;
    }
    for _ in position.min(counted.max(0))..counted {
        if value != 0 {
            value = value.checked_mul(10)?;
        }
    }
    value = value.checked_add(i128::from(round_up && counted >= 0))?;
    let limit = 10i128.checked_pow(u32::from(precision))?;
    (value < limit).then_some(if negative { -value } else { value })
}

/// Rewrites a number with other separators: without those of thousands, and with a point.
pub(crate) fn plain_number<'a>(
    text: &'a [u8],
    format: &ValueFormat,
    buffer: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    if format.decimal_separator == b'.' && format.thousands.is_none() {
        return Some(text);
    }
    buffer.clear();
    for &byte in text {
        if format.thousands == Some(byte) {
            continue;
        }
        if byte == format.decimal_separator {
            buffer.push(b'.');
        } else if byte == b'.' {
            return None;
        } else {
            buffer.push(byte);
        }
    }
    Some(buffer)
}

fn primitive<T: ArrowPrimitiveType>(
    rows: usize,
    data_type: &DataType,
    parse: impl Fn(&[u8]) -> Option<T::Native> + Send + 'static,
) -> Box<dyn Column> {
    let builder = PrimitiveBuilder::<T>::with_capacity(rows).with_data_type(data_type.clone());
    Box::new(Parsed { builder, parse })
}

fn whole<T: ArrowPrimitiveType>(rows: usize, data_type: &DataType, format: &ValueFormat) -> Box<dyn Column>
where
    T::Native: TryFrom<i64>,
{
    let format = format.clone();
    primitive::<T>(rows, data_type, move |text| {
        let value = match format.thousands {
            None => integer(text)?,
            Some(_) => integer(plain_number(text, &format, &mut Vec::new())?)?,
        };
        T::Native::try_from(value).ok()
    })
}

fn real<T: ArrowPrimitiveType>(
    rows: usize,
    data_type: &DataType,
    format: &ValueFormat,
    convert: fn(f64) -> T::Native,
) -> Box<dyn Column> {
    let format = format.clone();
    primitive::<T>(rows, data_type, move |text| {
        double(plain_number(text, &format, &mut Vec::new())?).map(convert)
    })
}

fn stamp<T: ArrowPrimitiveType<Native = i64>>(
    rows: usize,
    data_type: &DataType,
    format: &ValueFormat,
    convert: fn(i64) -> Option<i64>,
) -> Box<dyn Column> {
    let format = format.timestamp.clone();
    primitive::<T>(rows, data_type, move |text| convert(format.read(text)?.epoch_micros()))
}

/// Creates a column for about `rows` values; `None` if values of the type cannot be read from text.
pub(crate) fn column(data_type: &DataType, format: &ValueFormat, rows: usize) -> Option<Box<dyn Column>> {
    Some(match data_type {
        DataType::Boolean => Box::new(Boolean(BooleanBuilder::with_capacity(rows))),
        DataType::Int8 => whole::<Int8Type>(rows, data_type, format),
        DataType::Int16 => whole::<Int16Type>(rows, data_type, format),
        DataType::Int32 => whole::<Int32Type>(rows, data_type, format),
        DataType::Int64 => whole::<Int64Type>(rows, data_type, format),
        DataType::UInt8 => whole::<UInt8Type>(rows, data_type, format),
        DataType::UInt16 => whole::<UInt16Type>(rows, data_type, format),
        DataType::UInt32 => whole::<UInt32Type>(rows, data_type, format),
        DataType::UInt64 => {
            primitive::<UInt64Type>(rows, data_type, |text| u64::try_from(decimal(text, 20, 0)?).ok())
        }
        DataType::Float32 => real::<Float32Type>(rows, data_type, format, |value| value as f32),
        DataType::Float64
            if *format == ValueFormat { decimal_separator: b'.', thousands: None, ..format.clone() } =>
        {
            primitive::<Float64Type>(rows, data_type, double)
        }
        DataType::Float64 => real::<Float64Type>(rows, data_type, format, |value| value),
        DataType::Decimal128(precision, scale) => {
            let (precision, scale, format) = (*precision, *scale, format.clone());
            primitive::<Decimal128Type>(rows, data_type, move |text| {
                decimal(plain_number(text, &format, &mut Vec::new())?, precision, scale)
            })
        }
        DataType::Date32 => {
            let format = format.date.clone();
            primitive::<Date32Type>(rows, data_type, move |text| Some(format.read(text)?.days))
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            primitive::<Time64MicrosecondType>(rows, data_type, temporal::time)
        }
        DataType::Timestamp(TimeUnit::Second, _) => {
            stamp::<TimestampSecondType>(rows, data_type, format, |micros| Some(micros.div_euclid(1_000_000)))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            stamp::<TimestampMillisecondType>(rows, data_type, format, |micros| {
                Some(micros.div_euclid(1_000))
            })
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            stamp::<TimestampMicrosecondType>(rows, data_type, format, Some)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            stamp::<TimestampNanosecondType>(rows, data_type, format, |micros| micros.checked_mul(1_000))
        }
        DataType::Utf8View => {
            Box::new(Text(StringViewBuilder::with_capacity(rows).with_fixed_block_size(256 << 10)))
        }
        DataType::Utf8 => Box::new(Text(StringBuilder::with_capacity(rows, rows * 8))),
        DataType::LargeUtf8 => Box::new(Text(LargeStringBuilder::with_capacity(rows, rows * 8))),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_or_refused() {
        for (text, expected) in [
            ("42", Some(42)),
            (" -7 ", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("00000000000000000000012", Some(12)),
            ("1.5", None),
            ("", None),
            ("-", None),
            ("12a", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn decimals_are_rounded_to_their_scale() {
        for (text, expected) in [
            ("12.345", Some(1235)),
            ("-12.344", Some(-1234)),
            ("7", Some(700)),
            (".5", Some(50)),
            ("1e2", Some(10_000)),
            ("0.004", Some(0)),
            ("123456789.00", None),
            ("1.2.3", None),
            (".", None),
        ] {
            assert_eq!(decimal(text.as_bytes(), 10, 2), expected, "{text}");
        }
    }

    #[test]
    fn text_that_does_not_fit_is_refused() {
        let mut dates = column(&DataType::Date32, &ValueFormat::default(), 1).unwrap();
        assert!(dates.append(b"2024-02-29") && !dates.append(b"2024-02-30"));
        dates.append_null();
        assert_eq!(dates.finish().len(), 2);
        let mut words = column(&DataType::Utf8View, &ValueFormat::default(), 1).unwrap();
        assert!(words.append("é".as_bytes()) && !words.append(b"\xe9"));
        let german = ValueFormat { decimal_separator: b',', thousands: Some(b'.'), ..ValueFormat::default() };
        let mut numbers = column(&DataType::Float64, &german, 1).unwrap();
        assert!(numbers.append(b"1.234,50"));
    }
}
