//! Columns of the Parquet tables: a name, and a function from a row to a value.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};
use pellucid_trace::{Operation, Outcome, Part, Phase};

type Take<'t, R, V> = Box<dyn Fn(usize, &R) -> Option<V> + 't>;

/// The source of a column's values. Integers are signed, since many tools lack unsigned types; larger values
/// saturate at 2^63 - 1.
enum Values<'t, R> {
    Whole(Take<'t, R, u64>),
    Float(Take<'t, R, f64>),
    Text(Take<'t, R, &'t str>),
    Flag(Take<'t, R, bool>),
}

/// A column of a table with rows of type `R`.
pub(super) struct Column<'t, R> {
    name: &'static str,
    values: Values<'t, R>,
}

impl<'t, R> Column<'t, R> {
    /// Creates the column of the row's index in the trace.
    pub fn id() -> Self {
        Column { name: "id", values: Values::Whole(Box::new(|ix, _| Some(ix as u64))) }
    }

    pub fn whole(name: &'static str, take: impl Fn(&R) -> Option<u64> + 't) -> Self {
        Column { name, values: Values::Whole(Box::new(move |_, row| take(row))) }
    }

    pub fn float(name: &'static str, take: impl Fn(&R) -> Option<f64> + 't) -> Self {
        Column { name, values: Values::Float(Box::new(move |_, row| take(row))) }
    }

    pub fn text(name: &'static str, take: impl Fn(&R) -> Option<&'t str> + 't) -> Self {
        Column { name, values: Values::Text(Box::new(move |_, row| take(row))) }
    }

    pub fn flag(name: &'static str, take: impl Fn(&R) -> Option<bool> + 't) -> Self {
        Column { name, values: Values::Flag(Box::new(move |_, row| take(row))) }
    }

    pub fn field(&self) -> Field {
        let data_type = match self.values {
            Values::Whole(_) => DataType::Int64,
            Values::Float(_) => DataType::Float64,
            Values::Text(_) => DataType::Utf8,
            Values::Flag(_) => DataType::Boolean,
        };
        Field::new(self.name, data_type, true)
    }

    /// Returns the column's values for rows with their indices.
    pub fn array(&self, rows: &[(usize, R)]) -> ArrayRef {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        match &self.values {
            Values::Whole(take) => {
                Arc::new(rows.iter().map(|(ix, row)| take(*ix, row).map(signed)).collect::<Int64Array>())
            }
            Values::Float(take) => {
                Arc::new(rows.iter().map(|(ix, row)| take(*ix, row)).collect::<Float64Array>())
            }
            Values::Text(take) => {
                Arc::new(rows.iter().map(|(ix, row)| take(*ix, row)).collect::<StringArray>())
            }
            Values::Flag(take) => {
                Arc::new(rows.iter().map(|(ix, row)| take(*ix, row)).collect::<BooleanArray>())
            }
        }
    }
}

/// A value of a record that a column of `V` can hold.
pub(super) trait Cell<V> {
    fn cell(self) -> Option<V>;
}

/// Implements [`Cell`] for values that convert, and for these values where a record may lack them.
macro_rules! cells {
    ($($from:ty => $to:ty),+) => {$(
        impl Cell<$to> for $from {
            fn cell(self) -> Option<$to> {
                Some(self.into())
            }
        }

        impl Cell<$to> for Option<$from> {
            fn cell(self) -> Option<$to> {
                self.map(Into::into)
            }
        }
    )+};
}

cells!(u32 => u64, u64 => u64, f64 => f64, bool => bool);

impl<'t> Cell<&'t str> for &'t String {
    fn cell(self) -> Option<&'t str> {
        Some(self)
    }
}

impl<'t> Cell<&'t str> for &'t Option<String> {
    fn cell(self) -> Option<&'t str> {
        self.as_deref()
    }
}

impl<'t> Cell<&'t str> for Option<&'t str> {
    fn cell(self) -> Option<&'t str> {
        self
    }
}

impl<'t> Cell<&'t str> for &Phase {
    fn cell(self) -> Option<&'t str> {
        Some(match self {
            Phase::Read => "read",
            Phase::Fetch => "fetch",
            Phase::Compute => "compute",
            Phase::Spill => "spill",
            Phase::Write => "write",
        })
    }
}

impl<'t> Cell<&'t str> for &Part {
    fn cell(self) -> Option<&'t str> {
        Some(self.name())
    }
}

impl<'t> Cell<&'t str> for &Operation {
    fn cell(self) -> Option<&'t str> {
        Some(match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::List => "list",
            Operation::Head => "head",
            Operation::Rename => "rename",
            Operation::Copy => "copy",
            Operation::Delete => "delete",
            Operation::Commit => "commit",
        })
    }
}

impl<'t> Cell<&'t str> for &Outcome {
    fn cell(self) -> Option<&'t str> {
        Some(match self {
            Outcome::Ok => "ok",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        })
    }
}
