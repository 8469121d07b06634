//! Infers the types of JSON values, as DuckDB does.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use crate::tables::csv::sniff::unique;
use crate::tables::json::parse::{Kind, Malformed, Parser};
use crate::tables::text::columns::{ValueFormat, integer};
use crate::tables::text::temporal;
use crate::types::names::JSON;

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Null,
    Scalar(DataType),
    /// Values of several types, which stay JSON text.
    Json,
    List(Box<Shape>),
    /// Keys in the order in which they appeared first.
    Object(Vec<(String, Shape)>),
}

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);
const HUGE: DataType = DataType::Decimal128(38, 0);

impl Shape {
    /// Reads a value and returns its shape.
    ///
    /// # Errors
    /// Returns an error if the text is malformed.
    pub(crate) fn read(parser: &mut Parser<'_>, format: &ValueFormat) -> Result<Self, Malformed> {
        Ok(match parser.kind()? {
            Kind::Null => {
                parser.word()?;
                Self::Null
            }
            Kind::Boolean => {
                parser.word()?;
                Self::Scalar(DataType::Boolean)
            }
            Kind::Number => Self::Scalar(number(parser.number()?)),
            Kind::Text => Self::Scalar(text(&parser.string()?, format)),
            Kind::List => {
                let mut item = Self::Null;
                parser.list(|parser| {
                    let next = Self::read(parser, format)?;
                    item.merge(next);
                    Ok::<_, Malformed>(())
                })?;
                Self::List(Box::new(item))
            }
            Kind::Object => {
                let mut fields: Vec<(String, Self)> = Vec::new();
                parser.object(|parser, key| {
                    let value = Self::read(parser, format)?;
                    add(&mut fields, String::from_utf8_lossy(key).into_owned(), value);
                    Ok::<_, Malformed>(())
                })?;
                Self::Object(fields)
            }
        })
    }

    /// Widens the shape so that it fits the values of another one too.
    pub(crate) fn merge(&mut self, other: Self) {
        let own = std::mem::replace(self, Self::Null);
        *self = match (own, other) {
            (Self::Null, shape) | (shape, Self::Null) => shape,
            (a, b) if a == b => a,
            (Self::Scalar(a), Self::Scalar(b)) => scalar(a, b),
            (Self::List(mut a), Self::List(b)) => {
                a.merge(*b);
                Self::List(a)
            }
            (Self::Object(mut a), Self::Object(b)) => {
                b.into_iter().for_each(|(key, value)| add(&mut a, key, value));
                Self::Object(a)
            }
            _ => Self::Json,
        };
    }

    /// Returns the type of a column.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Null | Self::Json => JSON,
            Self::Scalar(data_type) => data_type.clone(),
            Self::List(item) => DataType::List(Arc::new(Field::new_list_field(item.data_type(), true))),
            Self::Object(fields) if fields.is_empty() => JSON,
            Self::Object(fields) => {
                let names = unique(fields.iter().map(|(key, _)| key.clone()));
                let typed = names.into_iter().zip(fields);
                let fields: Fields =
                    typed.map(|(name, (_, shape))| Field::new(name, shape.data_type(), true)).collect();
                DataType::Struct(fields)
            }
        }
    }

    /// Returns the shape of values that become a type; `None` if JSON cannot.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::List(item) => Self::List(Box::new(Self::of(item.data_type())?)),
            DataType::Struct(fields) => {
                let field = |field: &Arc<Field>| Some((field.name().clone(), Self::of(field.data_type())?));
                Self::Object(fields.iter().map(field).collect::<Option<_>>()?)
            }
            other if *other == JSON => Self::Json,
            other => {
                crate::tables::text::columns::column(other, &ValueFormat::default(), 0)?;
                Self::Scalar(other.clone())
            }
        })
    }
}

/// Adds a key, or widens the one that is known.
pub(crate) fn add(fields: &mut Vec<(String, Shape)>, key: String, value: Shape) {
    match fields.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => known.merge(value),
        None => fields.push((key, value)),
    }
}

fn number(text: &[u8]) -> DataType {
    if integer(text).is_some() {
        return DataType::Int64;
    }
    let whole = text.strip_prefix(b"-").unwrap_or(text).iter().all(u8::is_ascii_digit);
    if whole && text.len() <= 38 { HUGE } else { DataType::Float64 }
}

fn text(value: &[u8], format: &ValueFormat) -> DataType {
    if !(8..=40).contains(&value.len()) {
        return DataType::Utf8View;
    }
    if let Some(stamp) = format.timestamp.read(value) {
        // A time without seconds is rather text.
        let seconds = value.iter().filter(|byte| **byte == b':').count() >= 2;
        if stamp.has_time && (seconds || format.timestamp != Default::default()) {
            return TIMESTAMP;
        }
    }
    let is_date = |stamp: &temporal::Stamp| !stamp.has_time;
    if (value.len() == 10 || format.date != Default::default())
        && format.date.read(value).as_ref().is_some_and(is_date)
    {
        return DataType::Date32;
    }
    if value.len() >= 8 && temporal::time(value).is_some() { TIME } else { DataType::Utf8View }
}

/// Returns the shape of values of two types.
fn scalar(a: DataType, b: DataType) -> Shape {
    let both = |test: fn(&DataType) -> bool| test(&a) && test(&b);
    if both(DataType::is_numeric) {
        let float = a == DataType::Float64 || b == DataType::Float64;
        return Shape::Scalar(if float { DataType::Float64 } else { HUGE });
    }
    let is_text = |t: &DataType| t.is_temporal() || *t == DataType::Utf8View;
    if both(is_text) { Shape::Scalar(DataType::Utf8View) } else { Shape::Json }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(values: &[&str]) -> DataType {
        let mut all = Shape::Null;
        for value in values {
            all.merge(Shape::read(&mut Parser::new(value.as_bytes(), 0), &ValueFormat::default()).unwrap());
        }
        all.data_type()
    }

    #[test]
    fn shapes_widen_to_fit_all_values() {
        for (values, expected) in [
            (&["1", "null", "2"][..], DataType::Int64),
            (&["1", "2.5"], DataType::Float64),
            (&["1", "12345678901234567890"], HUGE),
            (&["true"], DataType::Boolean),
            (&["\"2024-01-31\""], DataType::Date32),
            (&["\"2024-01-31T10:00:00\"", "\"2024-01-31 10:00:00.5\""], TIMESTAMP),
            (&["\"2024-01-31 10:00\""], DataType::Utf8View),
            (&["\"10:00:00\""], TIME),
            (&["\"2024-01-31\"", "\"x\""], DataType::Utf8View),
            (&["1", "\"x\"", "{}"], JSON),
            (&["null"], JSON),
        ] {
            assert_eq!(shape(values), expected, "{values:?}");
        }
        let nested = shape(&["{\"b\": [1], \"a\": {\"x\": 1}}", "{\"c\": null, \"b\": [2.5]}"]);
        let DataType::Struct(fields) = nested else { panic!("{nested}") };
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }
}
