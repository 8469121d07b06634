//! Dates and times in text: ISO 8601 as databases write it, and formats as `strptime` reads them.

use datafusion::common::{DataFusionError, Result};

use crate::calendar;

const DAY_MICROS: i64 = 86_400_000_000;

/// A date with a time of the day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Days since 1970-01-01.
    pub days: i32,
    /// Microseconds since midnight.
    pub micros: i64,
    /// Seconds east of Greenwich; `None` if the text names no zone.
    pub offset: Option<i32>,
    /// True if the text has a time of the day.
    pub has_time: bool,
}

impl Stamp {
    /// Returns microseconds since 1970-01-01, in UTC if the text names a zone.
    pub(crate) fn epoch_micros(&self) -> i64 {
        let local = i64::from(self.days).saturating_mul(DAY_MICROS).saturating_add(self.micros);
        local.saturating_sub(i64::from(self.offset.unwrap_or(0)) * 1_000_000)
    }
}

/// A way to read dates or timestamps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum TimeFormat {
    /// `2024-01-31`, `2024-01-31 08:00:00.5`, `2024-01-31T08:00Z`, also with slashes.
    #[default]
    Iso,
    Pattern(Pattern),
}

impl TimeFormat {
    /// Reads a whole text; `None` if it does not match.
    pub(crate) fn read(&self, text: &[u8]) -> Option<Stamp> {
        let text = text.trim_ascii();
        match self {
            Self::Iso => iso(text),
            Self::Pattern(pattern) => pattern.read(text),
        }
    }
}

/// Reads digits from the start of a text: between `least` and `most` of them.
fn digits(text: &mut &[u8], least: usize, most: usize) -> Option<u32> {
    let count = text.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
    if count < least {
        return None;
    }
    let (number, rest) = text.split_at(count);
    *text = rest;
    Some(number.iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0')))
}

fn accept(text: &mut &[u8], byte: u8) -> bool {
    match text.split_first() {
        Some((first, rest)) if *first == byte => {
            *text = rest;
            true
        }
        _ => false,
    }
}

/// Reads a date and, if there is one, a time.
fn iso(mut text: &[u8]) -> Option<Stamp> {
    let date = iso_date(&mut text)?;
    if text.is_empty() {
        return Some(Stamp { days: date, ..Stamp::default() });
    }
    if !accept(&mut text, b'T') && !accept(&mut text, b' ') {
        return None;
    }
    let micros = time_of_day(&mut text)?;
    let offset = if text.is_empty() { None } else { Some(zone(&mut text)?) };
    // 24:00:00 is the next day's midnight.
    text.is_empty().then_some(Stamp { days: date, micros, offset, has_time: true })
}

fn iso_date(text: &mut &[u8]) -> Option<i32> {
    let year = digits(text, 4, 6)?;
    let separator = *text.first().filter(|byte| matches!(byte, b'-' | b'/'))?;
    *text = &text[1..];
    let month = digits(text, 1, 2)?;
    if !accept(text, separator) {
        return None;
    }
    let day = digits(text, 1, 2)?;
    calendar::date(year, month, day)
}

/// Reads `08:30`, `8:30:15` or `08:30:15.250` as microseconds since midnight.
fn time_of_day(text: &mut &[u8]) -> Option<i64> {
    let hour = digits(text, 1, 2)?;
    if !accept(text, b':') {
        return None;
    }
    let minute = digits(text, 2, 2)?;
    let mut second = 0;
    let mut micros = 0;
    if accept(text, b':') {
        second = digits(text, 2, 2)?;
        if accept(text, b'.') {
            micros = fraction(text)?;
        }
    }
    clock(hour, minute, second, micros)
}

/// Reads the digits after the point of seconds; those beyond microseconds are dropped.
fn fraction(text: &mut &[u8]) -> Option<i64> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(count);
    *text = rest;
    let micros = (0..6).fold(0, |n, at| n * 10 + number.get(at).map_or(0, |digit| i64::from(digit - b'0')));
    (count > 0).then_some(micros)
}

fn clock(hour: u32, minute: u32, second: u32, micros: i64) -> Option<i64> {
    let midnight = hour == 24 && minute == 0 && second == 0 && micros == 0;
    if (hour > 23 && !midnight) || minute > 59 || second > 59 {
        return None;
    }
    Some((i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second)) * 1_000_000 + micros)
}

/// Reads `Z`, `UTC`, `+01`, `+0130` or `-01:30` as seconds east of Greenwich.
fn zone(text: &mut &[u8]) -> Option<i32> {
    *text = text.trim_ascii_start();
    for name in [&b"UTC"[..], b"Z", b"z"] {
        if let Some(rest) = text.strip_prefix(name) {
            *text = rest;
            return Some(0);
        }
    }
    let sign = if accept(text, b'+') {
        1
    } else if accept(text, b'-') {
        -1
    } else {
        return None;
    };
    let hours = digits(text, 1, 2)?;
    let minutes = if accept(text, b':') || text.first().is_some_and(u8::is_ascii_digit) {
        digits(text, 2, 2)?
    } else {
        0
    };
    let seconds = if accept(text, b':') { digits(text, 2, 2)? } else { 0 };
    (hours < 24 && minutes < 60 && seconds < 60)
        .then(|| sign * (hours * 3600 + minutes * 60 + seconds) as i32)
}

/// Reads a time of the day without a date, in microseconds since midnight.
pub(crate) fn time(text: &[u8]) -> Option<i64> {
    let mut text = text.trim_ascii();
    let micros = time_of_day(&mut text)?;
    (text.is_empty() && micros < DAY_MICROS).then_some(micros)
}

/// One specifier of a [`Pattern`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Literal(u8),
    Space,
    /// `-` in the candidates of the sniffer: one of `-`, `/`, `.` and a space.
    Separator,
    Year,
    ShortYear,
    Month,
    MonthName,
    Day,
    DayOfYear,
    Weekday,
    Hour,
    Hour12,
    AmPm,
    Minute,
    Second,
    Fraction,
    Offset,
}

/// A format of `strptime`, such as `%d.%m.%Y %H:%M`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    items: Vec<Item>,
}

impl Pattern {
    /// Parses a format.
    ///
    /// # Errors
    /// Returns an error for an unknown specifier.
    pub(crate) fn parse(format: &str) -> Result<Self> {
        let mut items = Vec::new();
        let mut characters = format.bytes().peekable();
        while let Some(byte) = characters.next() {
            if byte != b'%' {
                items.push(if byte.is_ascii_whitespace() { Item::Space } else { Item::Literal(byte) });
                continue;
            }
            // `%-d` has no padding, which reading does not ask for either.
            if characters.peek() == Some(&b'-') {
                characters.next();
            }
            let specifier = characters.next();
            match specifier {
                Some(b'F') => items.extend(Self::parse("%Y-%m-%d")?.items),
                Some(b'T' | b'X') => items.extend(Self::parse("%H:%M:%S")?.items),
                _ => items.push(match specifier {
                    Some(b'Y') => Item::Year,
                    Some(b'y') => Item::ShortYear,
                    Some(b'm') => Item::Month,
                    Some(b'b' | b'B' | b'h') => Item::MonthName,
                    Some(b'd' | b'e') => Item::Day,
                    Some(b'j') => Item::DayOfYear,
                    Some(b'a' | b'A') => Item::Weekday,
                    Some(b'H') => Item::Hour,
                    Some(b'I') => Item::Hour12,
                    Some(b'p') => Item::AmPm,
                    Some(b'M') => Item::Minute,
                    Some(b'S') => Item::Second,
                    Some(b'f' | b'g' | b'n') => Item::Fraction,
                    Some(b'z' | b'Z') => Item::Offset,
                    Some(b'%') => Item::Literal(b'%'),
                    other => {
                        let found = other.map_or_else(|| "%".to_string(), |c| format!("%{}", char::from(c)));
                        return Err(DataFusionError::Plan(format!(
                            "cannot read dates in the format {format}: {found} is not supported; use %Y, %y, %m, \
                             %b, %d, %H, %I, %p, %M, %S, %f and %z"
                        )));
                    }
                }),
            }
        }
        Ok(Self { items })
    }

    /// Returns a candidate of the sniffer: the parts of a date with any separator, and a time if wanted.
    pub(crate) fn candidate(date: &str, time: &str) -> Self {
        let part = |letter: char| match letter {
            'Y' => Item::Year,
            'y' => Item::ShortYear,
            'm' => Item::Month,
            _ => Item::Day,
        };
        let mut items: Vec<Item> =
            date.chars().map(part).flat_map(|item| [Item::Separator, item]).skip(1).collect();
        items.extend(Self::parse(time).map(|pattern| pattern.items).unwrap_or_default());
        Self { items }
    }

    /// Returns the format as `strptime` has it, with `separator` where a candidate takes any.
    pub(crate) fn text(&self, separator: char) -> String {
        let specifier = |item: &Item| {
            let specifier = match item {
                Item::Literal(byte) => return char::from(*byte).to_string(),
                Item::Separator => return separator.to_string(),
                Item::Space => " ",
                Item::Year => "%Y",
                Item::ShortYear => "%y",
                Item::Month => "%m",
                Item::MonthName => "%b",
                Item::Day => "%d",
                Item::DayOfYear => "%j",
                Item::Weekday => "%a",
                Item::Hour => "%H",
                Item::Hour12 => "%I",
                Item::AmPm => "%p",
                Item::Minute => "%M",
                Item::Second => "%S",
                Item::Fraction => "%f",
                Item::Offset => "%z",
            };
            specifier.to_string()
        };
        self.items.iter().map(specifier).collect()
    }

    fn read(&self, mut text: &[u8]) -> Option<Stamp> {
        let (mut year, mut month, mut day, mut day_of_year) = (1970, 1, 1, None);
        let (mut hour, mut minute, mut second, mut micros) = (0, 0, 0, 0);
        let (mut afternoon, mut offset, mut separator, mut has_time) = (None, None, None, false);
        for item in &self.items {
            match item {
                Item::Literal(byte) => accept(&mut text, *byte).then_some(())?,
                Item::Space => text = text.trim_ascii_start(),
                Item::Separator => {
                    let found = *text.first().filter(|byte| matches!(byte, b'-' | b'/' | b'.' | b' '))?;
                    if *separator.get_or_insert(found) != found {
                        return None;
                    }
                    text = &text[1..];
                }
                Item::Year => year = digits(&mut text, 4, 4)?,
                Item::ShortYear => {
                    year = digits(&mut text, 2, 2)?;
                    year += if year < 69 { 2000 } else { 1900 };
                }
                Item::Month => month = digits(&mut text, 1, 2)?,
                Item::MonthName => month = name(&mut text, &MONTHS)?,
                Item::Day => day = digits(&mut text, 1, 2)?,
                Item::DayOfYear => day_of_year = Some(digits(&mut text, 1, 3)?),
                Item::Weekday => drop(name(&mut text, &WEEKDAYS)?),
                Item::Hour => hour = digits(&mut text, 1, 2)?,
                Item::Hour12 => hour = digits(&mut text, 1, 2).filter(|hour| (1..=12).contains(hour))?,
                Item::AmPm => afternoon = Some(name(&mut text, &["am", "pm"])? == 2),
                Item::Minute => minute = digits(&mut text, 1, 2)?,
                Item::Second => second = digits(&mut text, 1, 2)?,
                Item::Fraction => micros = fraction(&mut text)?,
                Item::Offset => offset = Some(zone(&mut text)?),
            }
            has_time |= matches!(item, Item::Hour | Item::Hour12);
        }
        match afternoon {
            Some(true) if hour < 12 => hour += 12,
            Some(false) if hour == 12 => hour = 0,
            _ => {}
        }
        let days = match day_of_year {
            None => calendar::date(year, month, day)?,
            Some(of_year) => {
                let first = calendar::date(year, 1, 1)?;
                let found = first + i32::try_from(of_year).ok()? - 1;
                (found >= first && found < calendar::date(year + 1, 1, 1)?).then_some(found)?
            }
        };
        let micros = clock(hour, minute, second, micros)?;
        text.is_empty().then_some(Stamp { days, micros, offset, has_time })
    }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Reads one of `names`, whole or its first three letters, and returns its number from 1.
fn name(text: &mut &[u8], names: &[&str]) -> Option<u32> {
    for (at, name) in names.iter().enumerate() {
        for length in [name.len(), name.len().min(3)] {
            if text.len() >= length && text[..length].eq_ignore_ascii_case(&name.as_bytes()[..length]) {
                *text = &text[length..];
                return u32::try_from(at + 1).ok();
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(text: &str) -> Option<(i64, bool)> {
        TimeFormat::Iso.read(text.as_bytes()).map(|stamp| (stamp.epoch_micros(), stamp.offset.is_some()))
    }

    #[test]
    fn iso_dates_and_timestamps_are_read() {
        assert_eq!(iso("1970-01-02"), Some((DAY_MICROS, false)));
        assert_eq!(iso("1970/1/2 00:00:01.5"), Some((DAY_MICROS + 1_500_000, false)));
        assert_eq!(iso("1970-01-02T01:00:00+01:00"), Some((DAY_MICROS, true)));
        assert_eq!(iso("1970-01-01 24:00:00"), Some((DAY_MICROS, false)));
        assert_eq!(iso("2000-02-29").map(|found| found.0 / DAY_MICROS), Some(11_016));
        for wrong in
            ["2023-02-29", "2024-13-01", "24-01-01", "2024-01-01 25:00", "2024-01-01x", "20240101", ""]
        {
            assert_eq!(iso(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn formats_of_strptime_are_read() {
        let read = |format: &str, text: &str| {
            TimeFormat::Pattern(Pattern::parse(format).unwrap())
                .read(text.as_bytes())
                .map(|s| s.epoch_micros())
        };
        let expected = iso("2024-03-05 14:07:00").map(|found| found.0);
        assert_eq!(read("%d.%m.%Y %H:%M", "05.03.2024 14:07"), expected);
        assert_eq!(read("%b %-d, %y %I:%M %p", "Mar 5, 24 02:07 PM"), expected);
        assert_eq!(read("%A %d %B %Y %T", "Tuesday 5 March 2024 14:07:00"), expected);
        assert_eq!(read("%d.%m.%Y", "2024-03-05"), None);
        assert!(Pattern::parse("%Q").unwrap_err().to_string().contains("%Q is not supported"));
        let any = Pattern::candidate("dmY", "");
        assert_eq!(Pattern::candidate("dmY", " %H:%M:%S").text('/'), "%d/%m/%Y %H:%M:%S");
        assert!(
            ["5/3/2024", "05.03.2024", "5-3-2024"].iter().all(|text| any.read(text.as_bytes()).is_some())
        );
        assert_eq!(any.read(b"5/3-2024"), None);
    }
}
