//! Changes to a table's layout, and their names: `lz4:lineitem`, `sort:lineitem:l_shipdate`, `rows:lineitem:100000`.

use std::fmt;
use std::str::FromStr;

/// The forms that a change can have, for messages.
const FORMS: &str = "none:TABLE, lz4:TABLE, snappy:TABLE, zstd:TABLE, dictionary:TABLE, sort:TABLE:COLUMN, \
     date:TABLE:COLUMN, integer:TABLE:COLUMN or rows:TABLE:NUMBER";
/// Rows of a row group that can be asked for.
const ROWS: std::ops::RangeInclusive<usize> = 1_000..=100_000_000;

/// A compression that tables are rewritten with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// No compression.
    None,
    /// LZ4, which decompresses fastest.
    Lz4,
    /// Snappy.
    Snappy,
    /// Zstandard at its usual level, which makes the fewest bytes.
    Zstd,
}

impl Codec {
    /// All of them, by their bytes: most first.
    pub const ALL: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Snappy, Codec::Zstd];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Snappy => "snappy",
            Codec::Zstd => "zstd",
        }
    }
}

/// A type that takes fewer bytes, for columns whose values all have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Narrow {
    /// Dates, instead of text like 2026-11-27.
    Date,
    /// Whole numbers, instead of decimals.
    Integer,
}

impl Narrow {
    /// Both of them.
    pub const ALL: [Narrow; 2] = [Narrow::Date, Narrow::Integer];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Narrow::Date => "date",
            Narrow::Integer => "integer",
        }
    }
}

/// A change to the layout of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another compression.
    Codec(Codec),
    /// Rows in the order of a column.
    Sort(String),
    /// Row groups of this number of rows.
    RowGroups(usize),
    /// The present layout, with dictionaries where values repeat.
    Dictionary,
    /// A column in a narrower type.
    Type(String, Narrow),
}

/// A change to a table with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableChange {
    /// The name of the table.
    pub table: String,
    /// The change.
    pub change: Change,
}

impl Change {
    /// Returns the parts of its name before and after the table.
    fn parts(&self) -> (&str, Option<String>) {
        match self {
            Change::Codec(codec) => (codec.name(), None),
            Change::Sort(column) => ("sort", Some(column.clone())),
            Change::RowGroups(rows) => ("rows", Some(rows.to_string())),
            Change::Dictionary => ("dictionary", None),
            Change::Type(column, narrow) => (narrow.name(), Some(column.clone())),
        }
    }

    fn of(kind: &str, argument: Option<&str>) -> Option<Change> {
        let codec = Codec::ALL.into_iter().find(|codec| codec.name() == kind);
        let narrow = Narrow::ALL.into_iter().find(|narrow| narrow.name() == kind);
        if let (Some(narrow), Some(column)) = (narrow, argument.filter(|column| !column.is_empty())) {
            return Some(Change::Type(column.to_string(), narrow));
        }
        match (codec, kind, argument) {
            (Some(codec), _, None) => Some(Change::Codec(codec)),
            (None, "dictionary", None) => Some(Change::Dictionary),
            (None, "sort", Some(column)) if !column.is_empty() => Some(Change::Sort(column.to_string())),
            (None, "rows", Some(rows)) => {
                rows.parse().ok().filter(|rows| ROWS.contains(rows)).map(Change::RowGroups)
            }
            _ => None,
        }
    }
}

impl FromStr for Change {
    type Err = String;

    /// Parses a change without a table: `lz4`, `sort:l_shipdate`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, argument) = match text.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (text, None),
        };
        Change::of(kind, argument).ok_or_else(|| format!("expected {}", FORMS.replace(":TABLE", "")))
    }
}

impl FromStr for TableChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let (kind, table) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let change = Change::of(kind, parts.next()).filter(|_| !table.is_empty());
        let change = change.ok_or_else(|| format!("expected {FORMS}"))?;
        Ok(TableChange { table: table.to_string(), change })
    }
}

impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, argument) = self.change.parts();
        write!(f, "{kind}:{}", self.table)?;
        argument.map_or(Ok(()), |argument| write!(f, ":{argument}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for text in [
            "none:t",
            "lz4:t",
            "snappy:t",
            "zstd:t",
            "dictionary:t",
            "date:t:a",
            "integer:t:a",
            "sort:t:a:b",
            "rows:t:100000",
        ] {
            let read: TableChange = text.parse().expect(text);
            assert_eq!((read.table.as_str(), read.to_string().as_str()), ("t", text));
        }
        assert_eq!("sort:a".parse(), Ok(Change::Sort("a".to_string())));
    }

    #[test]
    fn other_names_list_the_forms() {
        for text in
            ["", "lz4", "lz4:", "lz4:t:a", "sort:t", "sort:t:", "date:t", "rows:t:x", "rows:t:1", "gzip:t"]
        {
            let refused = text.parse::<TableChange>().expect_err(text);
            assert!(refused.contains("sort:TABLE:COLUMN"), "{refused}");
        }
        assert!("sort".parse::<Change>().expect_err("no column").contains("sort:COLUMN"));
    }
}
