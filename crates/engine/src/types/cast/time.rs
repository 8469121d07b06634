//! Dates, times and timestamps from text.
//!
//! A date is `YYYY-MM-DD`, also with `/` or spaces and with fewer digits, and may be followed by a time `HH:MM[:SS[.F]]`
//! and a zone (`Z`, `+02:30`, `Europe/Berlin`). TIMESTAMP ignores an offset, as DuckDB does; TIMESTAMPTZ applies it.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::Result;

use crate::calendar;
use crate::types::cast::{How, arrow, parse, quoted};
use crate::types::zone;

/// The type of local times.
pub(super) const LOCAL: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

const NANOS_OF_DAY: i128 = 86_400_000_000_000;
const DATE: &str = "it is not a date such as 2024-12-31";
const TIMESTAMP: &str = "it is not a time such as 2024-12-31 23:59:59";
const TIME: &str = "it is not a time such as 23:59:59";

/// Parses dates and times.
pub(super) fn parsed(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    macro_rules! times {
        ($type:ty, $reason:expr, $parse:expr, $nanos:expr) => {
            parse::<$type>(texts, to, how, $reason, |text| {
                // Rounded down, also before 1970.
                ($parse)(text).and_then(|nanos: i128| nanos.div_euclid($nanos).try_into().ok())
            })
        };
    }
    match to {
        DataType::Date32 => {
            parse::<Date32Type>(texts, to, how, DATE, |text| stamp(text).map(|stamp| stamp.days))
        }
        DataType::Timestamp(_, Some(zone)) => zoned(texts, zone, to, how),
        DataType::Timestamp(Second, None) => times!(TimestampSecondType, TIMESTAMP, local, 1_000_000_000),
        DataType::Timestamp(Millisecond, None) => {
            times!(TimestampMillisecondType, TIMESTAMP, local, 1_000_000)
        }
        DataType::Timestamp(Microsecond, None) => times!(TimestampMicrosecondType, TIMESTAMP, local, 1000),
        DataType::Timestamp(Nanosecond, None) => times!(TimestampNanosecondType, TIMESTAMP, local, 1),
        DataType::Time32(Second) => times!(Time32SecondType, TIME, of_day, 1_000_000_000),
        DataType::Time32(_) => times!(Time32MillisecondType, TIME, of_day, 1_000_000),
        DataType::Time64(Microsecond) => times!(Time64MicrosecondType, TIME, of_day, 1000),
        _ => times!(Time64NanosecondType, TIME, of_day, 1),
    }
}

/// A date, a time and a zone.
#[derive(Debug, PartialEq, Eq)]
struct Stamp<'a> {
    /// Days since 1970.
    days: i32,
    nanos: i128,
    zone: Zone<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum Zone<'a> {
    None,
    /// Seconds east of UTC.
    Offset(i32),
    Name(&'a str),
}

/// Returns the nanoseconds since 1970 of a time without a zone.
fn local(text: &str) -> Option<i128> {
    let Stamp { days, nanos, zone } = stamp(text)?;
    let named = matches!(zone, Zone::Name(name) if !name.eq_ignore_ascii_case("utc"));
    (!named).then(|| i128::from(days) * NANOS_OF_DAY + nanos)
}

/// Returns the nanoseconds of a time of day, which a date may precede.
fn of_day(text: &str) -> Option<i128> {
    let trimmed = text.trim();
    match clock(trimmed) {
        Some((nanos, "")) => Some(nanos),
        _ => stamp(trimmed).filter(|stamp| stamp.zone == Zone::None).map(|stamp| stamp.nanos),
    }
    .filter(|nanos| *nanos < NANOS_OF_DAY)
}

/// Parses timestamps with a zone: that of the text, or else the session's, which is that of the type.
fn zoned(texts: &StringViewArray, session: &str, to: &DataType, how: &How) -> Result<ArrayRef> {
    let mut micros = Vec::with_capacity(texts.len());
    for text in texts.iter() {
        let Some(text) = text else {
            micros.push(None);
            continue;
        };
        let value = match stamp(text) {
            None => None,
            Some(Stamp { days, nanos, zone }) => {
                let local = (i128::from(days) * NANOS_OF_DAY + nanos).div_euclid(1000);
                match zone {
                    Zone::Offset(seconds) => i64::try_from(local - i128::from(seconds) * 1_000_000).ok(),
                    Zone::None if matches!(session, "UTC" | "+00:00") => i64::try_from(local).ok(),
                    Zone::None => i64::try_from(local).ok().and_then(|local| instant(local, session)),
                    Zone::Name(name) => i64::try_from(local).ok().and_then(|local| instant(local, name)),
                }
            }
        };
        micros.push(match value {
            Some(value) => Some(value),
            None => how.misfit(&quoted(text), to, TIMESTAMP)?,
        });
    }
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let instants = TimestampMicrosecondArray::from(micros).with_data_type(utc);
    arrow(&(Arc::new(instants) as ArrayRef), to, how)
}

fn instant(local: i64, zone: &str) -> Option<i64> {
    let one: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![local]));
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let found = zone::instant(&one, zone, &utc).ok()?;
    found.is_valid(0).then(|| found.as_primitive::<TimestampMicrosecondType>().value(0))
}

/// Parses a date with an optional time and zone.
fn stamp(text: &str) -> Option<Stamp<'_>> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("epoch") {
        return Some(Stamp { days: 0, nanos: 0, zone: Zone::None });
    }
    let (days, rest) = date(text)?;
    let rest = match rest.strip_prefix(['T', 't']) {
        Some(rest) => rest,
        None if rest.is_empty() || rest.starts_with(' ') => rest.trim_start(),
        None => return None,
    };
    if rest.is_empty() {
        return Some(Stamp { days, nanos: 0, zone: Zone::None });
    }
    let (nanos, rest) = clock(rest)?;
    let days = days.checked_add(i32::try_from(nanos / NANOS_OF_DAY).ok()?)?;
    Some(Stamp { days, nanos: nanos % NANOS_OF_DAY, zone: zone_of(rest)? })
}

/// Parses a date, and returns the days since 1970 and the rest of the text.
fn date(text: &str) -> Option<(i32, &str)> {
    let (negative, unsigned) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (year, rest) = number(unsigned, 6)?;
    let separator = rest.chars().next().filter(|c| matches!(c, '-' | '/' | ' ' | '\\'))?;
    let (month, rest) = number(&rest[1..], 2)?;
    let (day, rest) = number(rest.strip_prefix(separator)?, 2)?;
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match rest.strip_prefix(" (BC)") {
        Some(rest) => (1 - year, rest),
        None => (if negative { -year } else { year }, rest),
    };
    Some((calendar::date(year, month, day)?, rest))
}

/// Parses a time of day, and returns its nanoseconds and the rest of the text.
fn clock(text: &str) -> Option<(i128, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let (mut fraction, mut rest) = (0, rest);
    if let Some(digits) = rest.strip_prefix('.') {
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        // Digits beyond nanoseconds are dropped.
        for digit in digits.bytes().take(length).chain(std::iter::repeat(b'0')).take(9) {
            fraction = fraction * 10 + i128::from(digit - b'0');
        }
        rest = &digits[length..];
    }
    let end = hour == 24 && minute == 0 && second == 0 && fraction == 0;
    if (hour > 23 && !end) || minute > 59 || second > 59 {
        return None;
    }
    Some((i128::from((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction, rest))
}

/// Parses what follows a time.
fn zone_of(rest: &str) -> Option<Zone<'_>> {
    let rest = rest.trim();
    if rest.is_empty() {
        return Some(Zone::None);
    }
    if rest.eq_ignore_ascii_case("z") {
        return Some(Zone::Offset(0));
    }
    let sign = match rest.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => {
            let named =
                rest.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+'));
            return named.then_some(Zone::Name(rest));
        }
    };
    let mut seconds = 0;
    let (mut left, mut factor) = (&rest[1..], 3600);
    while !left.is_empty() && factor > 0 {
        let (part, after) = number(left, 2)?;
        if part > if factor == 3600 { 15 } else { 59 } {
            return None;
        }
        seconds += i32::try_from(part).ok()? * factor;
        left = after.strip_prefix(':').unwrap_or(after);
        factor /= 60;
    }
    left.is_empty().then_some(Zone::Offset(sign * seconds))
}

/// Parses up to `most` digits, and returns their number and the rest of the text.
fn number(text: &str, most: usize) -> Option<(i64, &str)> {
    let length = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    Some((text.get(..length)?.parse().ok()?, &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_duckdb_does() {
        let day = |text| stamp(text).map(|stamp| stamp.days);
        for text in
            ["2024-01-05", "2024-1-5", "2024/01/05", "2024 01 05", " 2024-01-05 ", "2024-01-05T10:00:00"]
        {
            assert_eq!(day(text), Some(19_727), "{text}");
        }
        assert_eq!([day("epoch"), day("1969-12-31"), day("0000-03-01")], [Some(0), Some(-1), Some(-719_468)]);
        assert_eq!(day("0044-03-15 (BC)"), calendar::date(-43, 3, 15));
        for text in [
            "2024-02-30",
            "2023-02-29",
            "2024-13-01",
            "20240105",
            "05-01-2024",
            "2024-01",
            "",
            "2024-01-05 x",
        ] {
            assert_eq!(day(text), None, "{text}");
        }
    }

    #[test]
    fn times_and_zones_are_read_as_duckdb_does() {
        let hour = 3_600_000_000_000_i128;
        let start = 19_727 * NANOS_OF_DAY;
        for (text, expected) in [
            ("2024-01-05 10:00", Some(start + 10 * hour)),
            ("2024-01-05 24:00:00", Some(start + 24 * hour)),
            ("2024-01-05 9:5:3", Some(start + 9 * hour + 303_000_000_000)),
            ("2024-01-05 10:00:00.1234567891", Some(start + 10 * hour + 123_456_789)),
            ("2024-01-05 10:00:00+02", Some(start + 10 * hour)),
            ("2024-01-05 10:00:00 UTC", Some(start + 10 * hour)),
            ("2024-01-05 10:00:00 Europe/Berlin", None),
            ("2024-01-05 10", None),
            ("2024-01-05 10:00:61", None),
            ("2024-01-05 25:00:00", None),
        ] {
            assert_eq!(local(text), expected, "{text}");
        }
        assert_eq!(
            [zone_of("+02:30"), zone_of("-0530")],
            [Some(Zone::Offset(9000)), Some(Zone::Offset(-19_800))]
        );
        assert_eq!([of_day("1:2:3"), of_day("10 PM")], [Some(3_723_000_000_000), None]);
    }
}
