//! A column: its name, and how to take it from a row.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};

type Take<'t, R, V> = Box<dyn Fn(usize, &R) -> Option<V> + 't>;

/// Where a column's values come from. Whole numbers are signed, as most tools have no others;
/// one beyond 2^63 is cut to that.
enum Values<'t, R> {
    Whole(Take<'t, R, u64>),
    Float(Take<'t, R, f64>),
    Text(Take<'t, R, &'t str>),
    Flag(Take<'t, R, bool>),
}

/// A column of a table whose rows are `R`.
pub(super) struct Column<'t, R> {
    name: &'static str,
    values: Values<'t, R>,
}

impl<'t, R> Column<'t, R> {
    /// The row's index in the trace.
    pub fn id() -> Self {
        Column { name: "id", values: Values::Whole(Box::new(|ix, _| Some(ix as u64))) }
    }

    pub fn whole(name: &'static str, take: impl Fn(&R) -> Option<u64> + 't) -> Self {
        Column { name, values: Values::Whole(Box::new(move |_, row| take(row))) }
    }

    /// A whole number that another table says of the row with the same index.
    pub fn whole_at(name: &'static str, take: impl Fn(usize) -> Option<u64> + 't) -> Self {
        Column { name, values: Values::Whole(Box::new(move |ix, _| take(ix))) }
    }

    pub fn float(name: &'static str, take: impl Fn(&R) -> Option<f64> + 't) -> Self {
        Column { name, values: Values::Float(Box::new(move |_, row| take(row))) }
    }

    pub fn text(name: &'static str, take: impl Fn(&R) -> Option<&'t str> + 't) -> Self {
        Column { name, values: Values::Text(Box::new(move |_, row| take(row))) }
    }

    pub fn text_at(name: &'static str, take: impl Fn(usize) -> Option<&'t str> + 't) -> Self {
        Column { name, values: Values::Text(Box::new(move |ix, _| take(ix))) }
    }

    pub fn flag(name: &'static str, take: impl Fn(&R) -> Option<bool> + 't) -> Self {
        Column { name, values: Values::Flag(Box::new(move |_, row| take(row))) }
    }

    pub fn field(&self) -> Field {
        let of = match self.values {
            Values::Whole(_) => DataType::Int64,
            Values::Float(_) => DataType::Float64,
            Values::Text(_) => DataType::Utf8,
            Values::Flag(_) => DataType::Boolean,
        };
        Field::new(self.name, of, true)
    }

    /// The column of some rows, each with its index.
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
