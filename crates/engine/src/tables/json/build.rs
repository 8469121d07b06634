//! Columns that are built from JSON values.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBufferBuilder, LargeStringBuilder, ListArray, StructArray, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields};

use crate::tables::json::parse::{Kind, Malformed, Parser};
use crate::tables::json::shape::Shape;
use crate::tables::text::columns::{self, Column, ValueFormat};
use crate::types::names::name;

/// A value that cannot become part of a column.
#[derive(Debug)]
pub(crate) enum Wrong {
    Malformed(Malformed),
    Misfit(String),
}

impl From<Malformed> for Wrong {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

/// A column of values.
pub(crate) enum Builder {
    /// Text that becomes a value of the type.
    Scalar {
        column: Box<dyn Column>,
        data_type: DataType,
    },
    /// JSON text as it is.
    Json(LargeStringBuilder),
    List {
        field: FieldRef,
        item: Box<Builder>,
        ends: Vec<i32>,
        valid: BooleanBufferBuilder,
    },
    Object {
        fields: Fields,
        keys: Vec<String>,
        children: Vec<Builder>,
        valid: BooleanBufferBuilder,
    },
}

impl Builder {
    /// Creates an empty column; `None` if values of the type cannot be read.
    pub(crate) fn new(shape: &Shape, format: &ValueFormat) -> Option<Self> {
        Some(match shape {
            Shape::Null | Shape::Json => Self::Json(LargeStringBuilder::new()),
            Shape::Object(fields) if fields.is_empty() => Self::Json(LargeStringBuilder::new()),
            Shape::Scalar(data_type) => {
                Self::Scalar { column: columns::column(data_type, format, 0)?, data_type: data_type.clone() }
            }
            Shape::List(item) => {
                let DataType::List(field) = shape.data_type() else { return None };
                let item = Box::new(Self::new(item, format)?);
                Self::List { field, item, ends: vec![0], valid: BooleanBufferBuilder::new(0) }
            }
            Shape::Object(shapes) => {
                let DataType::Struct(fields) = shape.data_type() else { return None };
                let children =
                    shapes.iter().map(|(_, shape)| Self::new(shape, format)).collect::<Option<_>>()?;
                let keys = shapes.iter().map(|(key, _)| key.clone()).collect();
                Self::Object { fields, keys, children, valid: BooleanBufferBuilder::new(0) }
            }
        })
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        use datafusion::arrow::array::ArrayBuilder;
        match self {
            Self::Scalar { column, .. } => column.len(),
            Self::Json(text) => text.len(),
            Self::List { valid, .. } | Self::Object { valid, .. } => valid.len(),
        }
    }

    /// Appends the next value of the text.
    ///
    /// # Errors
    /// Returns an error if the text is malformed, or the value does not fit.
    pub(crate) fn append(&mut self, parser: &mut Parser<'_>) -> Result<(), Wrong> {
        let kind = parser.kind()?;
        if kind == Kind::Null {
            parser.word()?;
            self.append_null();
            return Ok(());
        }
        match self {
            Self::Json(text) => {
                let raw = parser.skip()?;
                match std::str::from_utf8(raw) {
                    Ok(raw) => text.append_value(raw),
                    Err(_) => {
                        return Err(Wrong::Misfit("the text is not UTF-8; convert the file".to_string()));
                    }
                }
            }
            Self::Scalar { column, data_type } => {
                let at = parser.at();
                let fits = match kind {
                    Kind::Text => column.append(&parser.string()?),
                    Kind::Boolean => {
                        let word = parser.word()?;
                        matches!(data_type, DataType::Boolean | DataType::Utf8 | DataType::Utf8View)
                            && column.append(word)
                    }
                    Kind::Number => *data_type != DataType::Boolean && column.append(parser.number()?),
                    Kind::List | Kind::Object | Kind::Null => {
                        let raw = parser.skip()?;
                        matches!(data_type, DataType::Utf8 | DataType::Utf8View) && column.append(raw)
                    }
                };
                if !fits {
                    return Err(misfit(&name(data_type), parser.since(at)));
                }
            }
            Self::List { item, ends, valid, .. } => {
                if kind != Kind::List {
                    return Err(misfit("a list", parser.skip()?));
                }
                parser.list(|parser| item.append(parser))?;
                ends.push(i32::try_from(item.len()).map_err(|_| misfit("a shorter list", b"[...]"))?);
                valid.append(true);
            }
            Self::Object { keys, children, valid, .. } => {
                if kind != Kind::Object {
                    return Err(misfit("an object", parser.skip()?));
                }
                members(parser, keys, children)?;
                valid.append(true);
                let rows = valid.len();
                children.iter_mut().for_each(|child| child.pad(rows));
            }
        }
        Ok(())
    }

    pub(crate) fn append_null(&mut self) {
        match self {
            Self::Scalar { column, .. } => column.append_null(),
            Self::Json(text) => text.append_null(),
            Self::List { ends, valid, .. } => {
                ends.push(ends.last().copied().unwrap_or(0));
                valid.append(false);
            }
            Self::Object { children, valid, .. } => {
                children.iter_mut().for_each(Self::append_null);
                valid.append(false);
            }
        }
    }

    /// Appends NULL up to a number of values.
    pub(crate) fn pad(&mut self, rows: usize) {
        while self.len() < rows {
            self.append_null();
        }
    }

    /// Returns the values, and starts again without any.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Scalar { column, .. } => column.finish(),
            Self::Json(text) => Arc::new(text.finish()),
            Self::List { field, item, ends, valid } => {
                let offsets = OffsetBuffer::new(std::mem::replace(ends, vec![0]).into());
                let rows = valid.len();
                let nulls = NullBuffer::new(valid.finish());
                let data_type = DataType::List(Arc::clone(field));
                match ListArray::try_new(Arc::clone(field), offsets, item.finish(), Some(nulls)) {
                    Ok(list) => Arc::new(list),
                    Err(_) => new_null_array(&data_type, rows),
                }
            }
            Self::Object { fields, children, valid, .. } => {
                let rows = valid.len();
                let nulls = NullBuffer::new(valid.finish());
                let arrays = children.iter_mut().map(Self::finish).collect();
                match StructArray::try_new(fields.clone(), arrays, Some(nulls)) {
                    Ok(object) => Arc::new(object) as ArrayRef,
                    Err(_) => new_null_array(&DataType::Struct(fields.clone()), rows),
                }
            }
        }
    }
}

/// Appends the members of an object to the columns of their keys.
pub(crate) fn members(
    parser: &mut Parser<'_>,
    keys: &[String],
    children: &mut [Builder],
) -> Result<(), Wrong> {
    let rows = children.first().map_or(0, Builder::len);
    // Keys mostly come in the same order.
    let mut expected = 0;
    parser.object(|parser, key| {
        let found = if keys.get(expected).is_some_and(|known| known.as_bytes() == key) {
            Some(expected)
        } else {
            keys.iter().position(|known| known.as_bytes() == key)
        };
        match found {
            // Of a key that occurs twice, the first value counts.
            Some(at) if children[at].len() == rows => {
                expected = at + 1;
                children[at].append(parser).map_err(|wrong| match wrong {
                    Wrong::Misfit(message) => Wrong::Misfit(format!("key {}: {message}", keys[at])),
                    wrong => wrong,
                })
            }
            _ => {
                parser.skip()?;
                Ok(())
            }
        }
    })
}

fn misfit(expected: &str, value: &[u8]) -> Wrong {
    let text: String = String::from_utf8_lossy(value).chars().take(60).collect();
    Wrong::Misfit(format!(
        "expected {expected}, found `{text}`; use read_json with columns = {{'KEY': 'VARCHAR', …}} to read it as text"
    ))
}
