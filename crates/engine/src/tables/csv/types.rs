//! Guesses the type of a column from the text of its values, as DuckDB does.

use std::sync::LazyLock;

use datafusion::arrow::datatypes::{DataType, TimeUnit};

use crate::tables::text::columns::{ValueFormat, boolean, double, integer, plain_number};
use crate::tables::text::temporal::{self, Pattern, TimeFormat};

/// Formats of dates that the sniffer tries, the most likely first.
static DATES: LazyLock<Vec<TimeFormat>> = LazyLock::new(|| {
    let patterns =
        ["dmY", "mdY", "ymd", "dmy", "mdy"].map(|order| TimeFormat::Pattern(Pattern::candidate(order, "")));
    std::iter::once(TimeFormat::Iso).chain(patterns).collect()
});

/// Formats of timestamps that the sniffer tries.
static TIMESTAMPS: LazyLock<Vec<TimeFormat>> = LazyLock::new(|| {
    let orders = ["dmY", "mdY", "ymd", "dmy", "mdy"];
    let patterns = orders.iter().flat_map(|order| {
        [" %H:%M:%S", " %I:%M:%S %p"].map(|time| TimeFormat::Pattern(Pattern::candidate(order, time)))
    });
    std::iter::once(TimeFormat::Iso).chain(patterns).collect()
});

/// The types that the values of a column allow so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guess {
    boolean: bool,
    bigint: bool,
    double: bool,
    time: bool,
    /// Indices into the formats of dates.
    dates: Vec<usize>,
    /// Indices into the formats of timestamps.
    timestamps: Vec<usize>,
    /// True if a timestamp names its zone.
    zoned: bool,
    /// True if there was a value.
    seen: bool,
    formats: Formats,
}

/// Formats of dates and timestamps to try.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Formats {
    values: ValueFormat,
    given_date: bool,
    given_timestamp: bool,
}

impl Formats {
    fn date(&self, index: usize) -> &TimeFormat {
        if self.given_date { &self.values.date } else { &DATES[index] }
    }

    fn timestamp(&self, index: usize) -> &TimeFormat {
        if self.given_timestamp { &self.values.timestamp } else { &TIMESTAMPS[index] }
    }
}

/// The type of a column and the formats of its values.
pub(crate) type Decided = (DataType, ValueFormat);

impl Guess {
    /// Starts with all types. A format of dates or timestamps that was `given` is the only one.
    pub(crate) fn new(values: &ValueFormat, given_date: bool, given_timestamp: bool) -> Self {
        let formats = Formats { values: values.clone(), given_date, given_timestamp };
        let all = |given, count| (0..if given { 1 } else { count }).collect();
        Self {
            boolean: true,
            bigint: true,
            double: true,
            time: true,
            dates: all(given_date, DATES.len()),
            timestamps: all(given_timestamp, TIMESTAMPS.len()),
            zoned: false,
            seen: false,
            formats,
        }
    }

    /// Keeps the types among `candidates` only; text always remains.
    pub(crate) fn only(&mut self, candidates: &[DataType]) {
        let has = |wanted: fn(&DataType) -> bool| candidates.iter().any(wanted);
        self.boolean &= has(|t| *t == DataType::Boolean);
        self.bigint &= has(DataType::is_integer);
        self.double &= has(|t| t.is_floating() || t.is_decimal());
        self.time &= has(|t| matches!(t, DataType::Time64(_)));
        if !has(|t| *t == DataType::Date32) {
            self.dates.clear();
        }
        if !has(|t| matches!(t, DataType::Timestamp(..))) {
            self.timestamps.clear();
        }
    }

    /// Returns true if only text remains.
    pub(crate) fn is_text(&self) -> bool {
        !(self.boolean || self.bigint || self.double || self.time)
            && self.dates.is_empty()
            && self.timestamps.is_empty()
    }

    /// Drops the types that a value does not fit.
    pub(crate) fn see(&mut self, value: &[u8]) {
        self.seen = true;
        self.boolean = self.boolean && boolean(value).is_some();
        if self.bigint || self.double {
            let mut buffer = Vec::new();
            let number =
                plain_number(value, &self.formats.values, &mut buffer).filter(|text| usual_number(text));
            self.bigint = self.bigint && number.is_some_and(|text| integer(text).is_some());
            self.double = self.double && number.is_some_and(|text| double(text).is_some());
        }
        self.time = self.time && temporal::time(value).is_some();
        if !self.dates.is_empty() {
            let formats = &self.formats;
            self.dates.retain(|index| formats.date(*index).read(value).is_some_and(|stamp| !stamp.has_time));
        }
        if !self.timestamps.is_empty() {
            let formats = &self.formats;
            let given = formats.given_timestamp;
            let mut zoned = false;
            self.timestamps.retain(|index| {
                let stamp = formats.timestamp(*index).read(value).filter(|stamp| stamp.has_time || given);
                zoned |= stamp.is_some_and(|stamp| stamp.offset.is_some());
                stamp.is_some()
            });
            self.zoned |= zoned;
        }
    }

    /// Drops the types that another guess has dropped.
    pub(crate) fn merge(&mut self, other: &Self) {
        if !other.seen {
            return;
        }
        self.seen = true;
        self.boolean &= other.boolean;
        self.bigint &= other.bigint;
        self.double &= other.double;
        self.time &= other.time;
        self.dates.retain(|index| other.dates.contains(index));
        self.timestamps.retain(|index| other.timestamps.contains(index));
        self.zoned |= other.zoned;
    }

    /// Returns the type: the narrowest that fits all values, text if there are none.
    pub(crate) fn decide(&self) -> Decided {
        let plain = |data_type| (data_type, self.formats.values.clone());
        if !self.seen {
            return plain(DataType::Utf8View);
        }
        if self.boolean {
            return plain(DataType::Boolean);
        }
        if self.bigint {
            return plain(DataType::Int64);
        }
        if self.double {
            return plain(DataType::Float64);
        }
        if self.time {
            return plain(DataType::Time64(TimeUnit::Microsecond));
        }
        if let Some(index) = self.dates.first() {
            let date = self.formats.date(*index).clone();
            return (DataType::Date32, ValueFormat { date, ..self.formats.values.clone() });
        }
        if let Some(index) = self.timestamps.first() {
            let timestamp = self.formats.timestamp(*index).clone();
            let zone = self.zoned.then(|| "UTC".into());
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone);
            return (data_type, ValueFormat { timestamp, ..self.formats.values.clone() });
        }
        plain(DataType::Utf8View)
    }
}

/// Returns false for text such as `007` and `+5`, which are rather codes than numbers.
fn usual_number(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [] | [b'+', ..] => false,
        [b'0', next, ..] => !next.is_ascii_digit(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(values: &[&str]) -> String {
        let mut guess = Guess::new(&ValueFormat::default(), false, false);
        values.iter().for_each(|value| guess.see(value.as_bytes()));
        crate::types::names::name(&guess.decide().0)
    }

    #[test]
    fn narrowest_type_that_fits_all_values_is_chosen() {
        for (values, expected) in [
            (&["true", "F", "Yes"][..], "BOOLEAN"),
            (&["1", "-20"], "BIGINT"),
            (&["1", "2.5", "1e3", "inf"], "DOUBLE"),
            (&["9223372036854775808"], "DOUBLE"),
            (&["007", "012"], "VARCHAR"),
            (&["+5"], "VARCHAR"),
            (&["12:30:00", "8:05"], "TIME"),
            (&["2024-01-31", "2024/2/1"], "DATE"),
            (&["31/12/2024", "01/02/2024"], "DATE"),
            (&["31/12/2024", "12/31/2024"], "VARCHAR"),
            (&["2024-01-31 10:00", "2024-01-31T10:00:00.5"], "TIMESTAMP"),
            (&["2024-01-31", "2024-01-31 10:00:00"], "VARCHAR"),
            (&["2024-01-31T10:00:00Z"], "TIMESTAMP WITH TIME ZONE"),
            (&["1", "x"], "VARCHAR"),
            (&[], "VARCHAR"),
        ] {
            assert_eq!(guessed(values), expected, "{values:?}");
        }
    }

    #[test]
    fn guesses_of_several_files_are_merged() {
        let mut first = Guess::new(&ValueFormat::default(), false, false);
        let mut second = first.clone();
        first.see(b"1");
        first.merge(&second);
        assert_eq!(first.decide().0, DataType::Int64);
        second.see(b"1.5");
        first.merge(&second);
        assert_eq!(first.decide().0, DataType::Float64);
    }
}
