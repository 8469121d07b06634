//! Columns of the Parquet tables: a name, and a function from a row to a value.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};

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

    /// Creates an integer column whose values are looked up by the row's index.
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
