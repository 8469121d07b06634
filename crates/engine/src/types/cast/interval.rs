//! Intervals from text: `1 year 2 months`, `3d 4h`, `-01:30:00`, `2 days ago`.

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::Result;

use crate::types::cast::{How, arrow, parse};

/// Parses intervals.
pub(super) fn parsed(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    const REASON: &str = "it is not an interval such as 1 year 2 days 03:04:05";
    let exact = DataType::Interval(IntervalUnit::MonthDayNano);
    let intervals = parse::<IntervalMonthDayNanoType>(texts, &exact, how, REASON, interval)?;
    arrow(&intervals, to, how)
}

/// Months, days and nanoseconds.
#[derive(Default)]
struct Parts([i128; 3]);

const DAY: i128 = 86_400_000_000_000;

impl Parts {
    /// Adds a number of units. The fraction of a month is days, and that of a day is a time.
    fn add(&mut self, number: f64, unit: &str) -> Option<()> {
        let (part, each) = match unit {
            "millennium" | "millennia" | "mil" | "mils" => (0, 12_000),
            "century" | "centuries" | "cent" | "c" => (0, 1200),
            "decade" | "decades" | "dec" | "decs" => (0, 120),
            "year" | "years" | "yr" | "yrs" | "y" => (0, 12),
            "quarter" | "quarters" => (0, 3),
            "month" | "months" | "mon" | "mons" => (0, 1),
            "week" | "weeks" | "w" => (1, 7),
            "day" | "days" | "d" => (1, 1),
            "hour" | "hours" | "hr" | "hrs" | "h" => (2, DAY / 24),
            "minute" | "minutes" | "min" | "mins" | "m" => (2, DAY / 1440),
            "second" | "seconds" | "sec" | "secs" | "s" => (2, 1_000_000_000),
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => (2, 1_000_000),
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => (2, 1000),
            "nanosecond" | "nanoseconds" | "nsec" | "nsecs" | "ns" => (2, 1),
            _ => return None,
        };
        if number.abs() > 1e18 {
            return None;
        }
        let exact = number * each as f64;
        if part == 2 {
            self.0[2] = self.0[2].checked_add(exact.round() as i128)?;
            return Some(());
        }
        self.0[part] = self.0[part].checked_add(exact.trunc() as i128)?;
        match (part, exact.fract()) {
            (_, 0.0) => Some(()),
            (0, fraction) => self.add(fraction * 30.0, "days"),
            (_, fraction) => self.add(fraction * 24.0, "hours"),
        }
    }
}

fn interval(text: &str) -> Option<IntervalMonthDayNano> {
    let lower = text.trim().to_ascii_lowercase();
    let (mut rest, ago) = match lower.strip_suffix(" ago") {
        Some(rest) => (rest.trim_start_matches('@').trim(), true),
        None => (lower.trim_start_matches('@').trim_start(), false),
    };
    if rest.is_empty() {
        return None;
    }
    let mut parts = Parts::default();
    while !rest.is_empty() {
        let number_end =
            rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        if after.starts_with(':') {
            let end = rest.find(' ').unwrap_or(rest.len());
            parts.0[2] = parts.0[2].checked_add(clock(&rest[..end])?)?;
            rest = rest[end..].trim_start();
            continue;
        }
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        // A number alone is one of seconds.
        parts.add(number.parse().ok()?, if unit.is_empty() { "seconds" } else { unit })?;
        rest = after.trim_start_matches([' ', ',']);
    }
    let sign = if ago { -1 } else { 1 };
    let [months, days, nanoseconds] = parts.0.map(|part| part * sign);
    Some(IntervalMonthDayNano::new(
        months.try_into().ok()?,
        days.try_into().ok()?,
        nanoseconds.try_into().ok()?,
    ))
}

/// Parses `[-]HH:MM[:SS[.F]]` into nanoseconds.
fn clock(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.trim_start_matches('+')),
    };
    let mut parts = text.split(':');
    let hours: i128 = parts.next()?.parse().ok()?;
    let minutes: i128 = parts.next()?.parse().ok()?;
    let seconds: f64 = match parts.next() {
        Some(seconds) => seconds.parse().ok()?,
        None => 0.0,
    };
    if parts.next().is_some() || hours < 0 || !(0..60).contains(&minutes) || !(0.0..60.0).contains(&seconds) {
        return None;
    }
    let nanos = hours.checked_mul(DAY / 24)? + minutes * (DAY / 1440) + (seconds * 1e9).round() as i128;
    Some(sign * nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_duckdb_does() {
        const SECOND: i64 = 1_000_000_000;
        for (text, expected) in [
            ("1 year 2 months 3 days", Some((14, 3, 0))),
            ("1 day 01:02:03.5", Some((0, 1, 3723 * SECOND + SECOND / 2))),
            ("-1 day", Some((0, -1, 0))),
            ("1.5 days", Some((0, 1, 12 * 3600 * SECOND))),
            ("1d2h", Some((0, 1, 7200 * SECOND))),
            ("3 weeks", Some((0, 21, 0))),
            ("2 decades", Some((240, 0, 0))),
            ("1 day ago", Some((0, -1, 0))),
            ("5", Some((0, 0, 5 * SECOND))),
            ("-02:00:00", Some((0, 0, -7200 * SECOND))),
            ("abc", None),
            ("1 fortnight", None),
            ("9999999999 days", None),
        ] {
            let expected =
                expected.map(|(months, days, nanos)| IntervalMonthDayNano::new(months, days, nanos));
            assert_eq!(interval(text), expected, "{text}");
        }
    }
}
