//! Functions of dates and timestamps.

pub(crate) mod parts;

use std::borrow::Cow;

use datafusion::arrow::datatypes::IntervalMonthDayNano;

use crate::calendar::{self, DAY, Moment};
use crate::functions::dates::parts::Part;
use crate::functions::rows::Kind::{self, Double, Integer, Interval, Moment as At, Text, Texts};
use crate::functions::rows::format::{from_postgres, pad};
use crate::functions::rows::{Function, Value};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Parameters of `make_timestamp`.
const FIELDS: [Kind; 6] = [Integer, Integer, Integer, Integer, Integer, Double];

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new(
        &["strftime"],
        &[At, Text],
        Text,
        |_, v| Ok(formatted(v[0].integer(), v[1].text())?.into()),
    ),
    Function::new(&["pellucid_to_char"], &[At, Text], Text, |_, v| {
        let format = v[1].text();
        // Without %, the format is PostgreSQL's.
        let format = if format.contains('%') { Cow::Borrowed(format) } else { from_postgres(format).into() };
        Ok(formatted(v[0].integer(), &format)?.into())
    }),
    Function::new(&["pellucid_strptime"], &[Text, Texts], At, |_, v| {
        let Value::Texts(formats) = &v[1] else { return Ok(Value::Null) };
        let mut cause = String::new();
        for format in formats.iter().flatten() {
            match parsed(v[0].text(), format) {
                Ok(micros) => return Ok(Value::Integer(micros)),
                Err(error) => cause = error,
            }
        }
        Err(cause)
    }),
    Function::new(&["pellucid_try_strptime"], &[Text, Texts], At, |_, v| {
        let Value::Texts(formats) = &v[1] else { return Ok(Value::Null) };
        let mut formats = formats.iter().flatten();
        let found = formats.find_map(|format| parsed(v[0].text(), format).ok());
        Ok(found.map_or(Value::Null, Value::Integer))
    }),
    Function::new(&["date_diff", "datediff"], &[Text, At, At], Integer, |_, v| {
        let part = part(v[0].text())?;
        let number = part.boundaries(v[1].integer(), v[2].integer()).ok_or_else(|| unknown(v[0].text()));
        number.map(Value::Integer)
    }),
    Function::new(&["date_sub", "datesub"], &[Text, At, At], Integer, |_, v| {
        let part = part(v[0].text())?;
        let number = part.complete(v[1].integer(), v[2].integer()).ok_or_else(|| unknown(v[0].text()));
        number.map(Value::Integer)
    }),
    Function::new(&["age"], &[At, At], Interval, |_, v| {
        Ok(Value::Interval(age(v[0].integer(), v[1].integer())))
    }),
    Function::new(&["pellucid_interval"], &[Text, Double], Interval, |_, v| {
        let part = part(v[0].text())?;
        interval(part, v[1].double()).map(Value::Interval).ok_or_else(|| unknown(v[0].text()))
    }),
    Function::new(&["make_timestamp"], &FIELDS, At, |_, v| {
        let field = |index: usize| v[index].integer();
        let (year, month, day) = (field(0), field(1), field(2));
        let seconds = v[5].double();
        if !calendar::exists(year, month, day)
            || !(0..24).contains(&field(3))
            || !(0..60).contains(&field(4))
            || !(0.0..60.0).contains(&seconds)
        {
            return Err(format!("{year}-{month}-{day} {}:{}:{seconds} does not exist", field(3), field(4)));
        }
        let time = (field(3) * 60 + field(4)) * 60_000_000 + (seconds * 1e6).round() as i64;
        let moment = Moment { year, month, day, time };
        moment.micros().map(Value::Integer).ok_or_else(|| format!("the year {year} is out of range"))
    }),
    Function::new(&["pellucid_micros"], &[At], Integer, |_, v| Ok(v[0].clone())),
    Function::new(&["pellucid_moment"], &[Integer], At, |_, v| Ok(v[0].clone())),
];

fn part(name: &str) -> Result<Part, String> {
    Part::parse(name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> String {
    format!("`{name}` is not a part; use year, quarter, month, week, day, hour, minute or second")
}

/// Returns the interval of `number` parts.
fn interval(part: Part, number: f64) -> Option<IntervalMonthDayNano> {
    let whole = number.trunc();
    let months = |each: f64| IntervalMonthDayNano::new((whole * each) as i32, 0, 0);
    Some(match part {
        Part::Millennium => months(12_000.0),
        Part::Century => months(1200.0),
        Part::Decade => months(120.0),
        Part::Year => months(12.0),
        Part::Quarter => months(3.0),
        Part::Month => months(1.0),
        Part::Week => IntervalMonthDayNano::new(0, (whole * 7.0) as i32, 0),
        Part::Day => IntervalMonthDayNano::new(0, whole as i32, 0),
        Part::Hour => IntervalMonthDayNano::new(0, 0, (whole * 3.6e12) as i64),
        Part::Minute => IntervalMonthDayNano::new(0, 0, (whole * 6e10) as i64),
        Part::Second => IntervalMonthDayNano::new(0, 0, (number * 1e9).round() as i64),
        Part::Millisecond => IntervalMonthDayNano::new(0, 0, (number * 1e6).round() as i64),
        Part::Microsecond => IntervalMonthDayNano::new(0, 0, (number * 1e3).round() as i64),
        _ => return None,
    })
}

/// Returns the years, months, days and time from `from` to `to`, like PostgreSQL's `age(to, from)`.
fn age(to: i64, from: i64) -> IntervalMonthDayNano {
    if to < from {
        let IntervalMonthDayNano { months, days, nanoseconds } = age(from, to);
        return IntervalMonthDayNano::new(-months, -days, -nanoseconds);
    }
    let (start, end) = (Moment::new(from), Moment::new(to));
    let mut months = end.months() - start.months();
    let mut days = end.day - start.day;
    let mut time = end.time - start.time;
    if time < 0 {
        time += DAY;
        days -= 1;
    }
    if days < 0 {
        // Borrows the month in which the span begins.
        days += calendar::days_of_month(start.year, start.month);
        months -= 1;
    }
    IntervalMonthDayNano::new(months as i32, days as i32, time * 1000)
}

/// Formats a moment with the specifiers of C's `strftime`.
fn formatted(micros: i64, format: &str) -> Result<String, String> {
    let at = Moment::new(micros);
    let days = micros.div_euclid(DAY);
    let (hour, minute, second) =
        (at.time / 3_600_000_000, at.time / 60_000_000 % 60, at.time / 1_000_000 % 60);
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut specifier = rest.next();
        let bare = specifier == Some('-');
        if bare {
            specifier = rest.next();
        }
        let number = |number: i64, width: usize| pad(&number.to_string(), if bare { 1 } else { width });
        let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let weekday = at.weekday();
        let year_day = at.day_of_year();
        let part = match specifier {
            Some('a') => DAYS[weekday as usize][..3].to_string(),
            Some('A') => DAYS[weekday as usize].to_string(),
            Some('w') => weekday.to_string(),
            Some('u') => ((weekday + 6) % 7 + 1).to_string(),
            Some('d') => number(at.day, 2),
            Some('b' | 'h') => MONTHS[at.month as usize - 1][..3].to_string(),
            Some('B') => MONTHS[at.month as usize - 1].to_string(),
            Some('m') => number(at.month, 2),
            Some('y') => number(at.year.rem_euclid(100), 2),
            Some('Y') => number(at.year, 4),
            Some('G') => number(calendar::iso_week(days).0, 4),
            Some('V') => number(calendar::iso_week(days).1, 2),
            Some('H') => number(hour, 2),
            Some('I') => number(hour12, 2),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_string(),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('g') => number(at.time / 1000 % 1000, 3),
            Some('f' | 'n') => number(at.time % 1_000_000, 6),
            Some('z') => "+00".to_string(),
            Some('Z') => String::new(),
            Some('j') => number(year_day, 3),
            Some('U') => number((year_day + 6 - weekday) / 7, 2),
            Some('W') => number((year_day + 6 - (weekday + 6) % 7) / 7, 2),
            Some('c') => formatted(micros, "%Y-%m-%d %H:%M:%S")?,
            Some('x') => formatted(micros, "%Y-%m-%d")?,
            Some('X') => formatted(micros, "%H:%M:%S")?,
            Some('%') => "%".to_string(),
            Some(other) => return Err(unknown_specifier(other)),
            None => return Err("the format ends with %; write %% for a percent sign".to_string()),
        };
        text.push_str(&part);
    }
    Ok(text)
}

fn unknown_specifier(specifier: char) -> String {
    format!("%{specifier} is not a specifier; use %Y %m %d %H %M %S %f %b %B %a %A %j %y %I %p or %%")
}

/// Reads a moment with the specifiers of C's `strptime`.
fn parsed(text: &str, format: &str) -> Result<i64, String> {
    let failed = || format!("`{text}` does not have the format `{format}`");
    let mut at = Moment { year: 1900, month: 1, day: 1, time: 0 };
    let (mut hour, mut minute, mut second, mut micros, mut offset) = (0, 0, 0, 0, 0);
    let mut afternoon = None;
    let mut day_of_year = None;
    let mut rest = text.trim();
    let mut specifiers = format.trim().chars();
    while let Some(c) = specifiers.next() {
        if c.is_whitespace() {
            rest = rest.trim_start();
            continue;
        }
        let mut specifier = c;
        if c == '%' {
            specifier = specifiers.next().ok_or_else(failed)?;
            if specifier == '-' {
                specifier = specifiers.next().ok_or_else(failed)?;
            }
        }
        if c != '%' || specifier == '%' {
            rest = rest.strip_prefix(specifier).ok_or_else(failed)?;
            continue;
        }
        let mut number = |digits: usize| digits_of(&mut rest, digits).ok_or_else(failed);
        match specifier {
            'Y' => at.year = number(4)?,
            'y' => at.year = number(2).map(|year| if year < 69 { 2000 + year } else { 1900 + year })?,
            'm' => at.month = number(2)?,
            'd' => at.day = number(2)?,
            'H' => hour = number(2)?,
            'I' => hour = number(2)? % 12,
            'M' => minute = number(2)?,
            'S' => second = number(2)?,
            'j' => day_of_year = Some(number(3)?),
            'f' | 'g' | 'n' => {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count().min(9);
                let fraction = digits_of(&mut rest, digits).ok_or_else(failed)?;
                micros = fraction * 1_000_000 / 10_i64.pow(digits as u32);
            }
            'b' | 'h' | 'B' => at.month = name_of(&mut rest, &MONTHS).ok_or_else(failed)? + 1,
            'a' | 'A' => drop(name_of(&mut rest, &DAYS).ok_or_else(failed)?),
            'p' => afternoon = Some(name_of(&mut rest, &["AM", "PM"]).ok_or_else(failed)? == 1),
            'z' | 'Z' => offset = offset_of(&mut rest).ok_or_else(failed)?,
            other => return Err(unknown_specifier(other)),
        }
    }
    if afternoon == Some(true) {
        hour = hour % 12 + 12;
    }
    let valid = calendar::exists(at.year, at.month, at.day);
    if !rest.trim().is_empty() || !valid || hour > 23 || minute > 59 || second > 59 {
        return Err(failed());
    }
    if let Some(number) = day_of_year {
        (at.year, at.month, at.day) = calendar::civil(calendar::days(at.year, 1, 1) + number - 1);
    }
    at.time = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    at.micros().map(|micros| micros - offset * 60_000_000).ok_or_else(failed)
}

/// Reads a number of up to `most` digits from the start of a text.
fn digits_of(rest: &mut &str, most: usize) -> Option<i64> {
    let digits = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(digits);
    *rest = after;
    number.parse().ok()
}

/// Reads one of the names, or its first three letters, in any case; returns its index.
fn name_of(rest: &mut &str, names: &[&str]) -> Option<i64> {
    let starts = |name: &str| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let (index, length) = names.iter().enumerate().find_map(|(index, name)| {
        let short = &name[..name.len().min(3)];
        let length = if starts(name) { name.len() } else { short.len() };
        (starts(name) || starts(short)).then_some((index, length))
    })?;
    *rest = &rest[length..];
    i64::try_from(index).ok()
}

/// Reads an offset from UTC, in minutes: `Z`, `UTC`, `+02`, `+0200` or `+02:00`.
fn offset_of(rest: &mut &str) -> Option<i64> {
    for zone in ["UTC", "GMT", "Z"] {
        if let Some(after) = rest.strip_prefix(zone) {
            *rest = after;
            return Some(0);
        }
    }
    let sign = match rest.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    *rest = &rest[1..];
    let hours = digits_of(rest, 2)?;
    *rest = rest.strip_prefix(':').unwrap_or(rest);
    let minutes = digits_of(rest, 2).unwrap_or(0);
    Some(sign * (hours * 60 + minutes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_formatted_and_read() {
        let at = parsed("2024-03-05 14:07:09.123456", "%Y-%m-%d %H:%M:%S.%f").unwrap();
        let text = formatted(at, "%a %A %w %u %d %-d %b %B %-m %y %H %I %p %f %j %U %W %c %G %V %%").unwrap();
        let expected =
            "Tue Tuesday 2 2 05 5 Mar March 3 24 14 02 PM 123456 065 09 10 2024-03-05 14:07:09 2024 10 %";
        assert_eq!(text, expected);
        for (text, format, expected) in [
            ("3 March 2024 5 PM", "%d %B %Y %I %p", "2024-03-03 17:00:00"),
            ("2024-060", "%Y-%j", "2024-02-29 00:00:00"),
            ("Mon, 4 Mar 24", "%a, %-d %b %y", "2024-03-04 00:00:00"),
            ("2024-01-01 00:00:00 +02", "%Y-%m-%d %H:%M:%S %z", "2023-12-31 22:00:00"),
        ] {
            assert_eq!(formatted(parsed(text, format).unwrap(), "%c").unwrap(), expected);
        }
        assert!(parsed("2024-02-30", "%Y-%m-%d").is_err() && parsed("2024x", "%Y").is_err());
    }

    #[test]
    fn age_counts_months_and_days() {
        let at = |text| parsed(text, "%Y-%m-%d").unwrap();
        let made = age(at("2024-03-01"), at("2022-12-25"));
        assert_eq!((made.months, made.days), (14, 7));
        let made = age(at("1957-06-13"), at("2001-04-10"));
        assert_eq!((made.months, made.days), (-525, -27));
    }
}
