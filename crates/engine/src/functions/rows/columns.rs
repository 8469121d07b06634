//! Columns of arguments as values, and of values as results.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder,
    IntervalMonthDayNanoBuilder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result};

use crate::functions::rows::{Kind, Value, data_type};

/// The values of an argument.
pub(crate) enum Column {
    Text(ArrayRef),
    Integer(ArrayRef),
    Double(ArrayRef),
    Decimal(ArrayRef),
    Boolean(ArrayRef),
    Blob(ArrayRef),
    Moment(ArrayRef),
    Texts(ArrayRef),
    Interval(ArrayRef),
}

impl Column {
    pub(crate) fn new(array: &ArrayRef, kind: Kind) -> Result<Self> {
        let to = |to: DataType| cast(array, &to).map_err(DataFusionError::from);
        Ok(match kind {
            Kind::Any => {
                let given = array.data_type();
                match given {
                    DataType::Boolean => Column::Boolean(Arc::clone(array)),
                    _ if given.is_integer() => Column::Integer(to(DataType::Int64)?),
                    _ if given.is_floating() => Column::Double(to(DataType::Float64)?),
                    _ if given.is_numeric() => Column::Decimal(to(DataType::Utf8)?),
                    _ => Column::Text(to(DataType::Utf8)?),
                }
            }
            Kind::Text => Column::Text(to(DataType::Utf8)?),
            Kind::Integer => Column::Integer(to(DataType::Int64)?),
            Kind::Double => Column::Double(to(DataType::Float64)?),
            Kind::Boolean => Column::Boolean(to(DataType::Boolean)?),
            Kind::Blob => Column::Blob(to(DataType::Binary)?),
            Kind::Moment => Column::Moment(to(data_type(Kind::Moment))?),
            Kind::Texts => Column::Texts(to(data_type(Kind::Texts))?),
            Kind::Interval => Column::Interval(to(data_type(Kind::Interval))?),
        })
    }

    pub(crate) fn value(&self, row: usize) -> Value<'_> {
        let (Column::Text(array)
        | Column::Integer(array)
        | Column::Double(array)
        | Column::Decimal(array)
        | Column::Boolean(array)
        | Column::Blob(array)
        | Column::Moment(array)
        | Column::Texts(array)
        | Column::Interval(array)) = self;
        if array.is_null(row) {
            return Value::Null;
        }
        match self {
            Column::Text(array) => Value::Text(Cow::Borrowed(array.as_string::<i32>().value(row))),
            Column::Integer(array) => Value::Integer(array.as_primitive::<Int64Type>().value(row)),
            Column::Double(array) => Value::Double(array.as_primitive::<Float64Type>().value(row)),
            Column::Decimal(array) => Value::Decimal(array.as_string::<i32>().value(row).to_string()),
            Column::Boolean(array) => Value::Boolean(array.as_boolean().value(row)),
            Column::Blob(array) => Value::Blob(Cow::Borrowed(array.as_binary::<i32>().value(row))),
            Column::Moment(array) => {
                Value::Integer(array.as_primitive::<TimestampMicrosecondType>().value(row))
            }
            Column::Texts(array) => {
                let list = array.as_list::<i32>().value(row);
                Value::Texts(list.as_string::<i32>().iter().map(|text| text.map(str::to_string)).collect())
            }
            Column::Interval(array) => {
                Value::Interval(array.as_primitive::<IntervalMonthDayNanoType>().value(row))
            }
        }
    }
}

/// Collects results.
pub(crate) enum Builder {
    Text(StringBuilder),
    Integer(Int64Builder),
    Double(Float64Builder),
    Boolean(BooleanBuilder),
    Blob(BinaryBuilder),
    Moment(TimestampMicrosecondBuilder),
    Texts(ListBuilder<StringBuilder>),
    Interval(IntervalMonthDayNanoBuilder),
}

impl Builder {
    pub(crate) fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Any | Kind::Text => Builder::Text(StringBuilder::with_capacity(rows, 0)),
            Kind::Integer => Builder::Integer(Int64Builder::with_capacity(rows)),
            Kind::Double => Builder::Double(Float64Builder::with_capacity(rows)),
            Kind::Boolean => Builder::Boolean(BooleanBuilder::with_capacity(rows)),
            Kind::Blob => Builder::Blob(BinaryBuilder::with_capacity(rows, 0)),
            Kind::Moment => Builder::Moment(TimestampMicrosecondBuilder::with_capacity(rows)),
            Kind::Texts => Builder::Texts(ListBuilder::new(StringBuilder::new())),
            Kind::Interval => Builder::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
        }
    }

    /// Adds a value; one of another type counts as NULL.
    pub(crate) fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Builder::Text(builder), Value::Text(text)) => builder.append_value(text),
            (Builder::Integer(builder), Value::Integer(number)) => builder.append_value(number),
            (Builder::Double(builder), Value::Double(number)) => builder.append_value(number),
            (Builder::Boolean(builder), Value::Boolean(is)) => builder.append_value(is),
            (Builder::Blob(builder), Value::Blob(bytes)) => builder.append_value(bytes),
            (Builder::Moment(builder), Value::Integer(micros)) => builder.append_value(micros),
            (Builder::Texts(builder), Value::Texts(texts)) => builder.append_value(texts),
            (Builder::Interval(builder), Value::Interval(interval)) => builder.append_value(interval),
            (Builder::Text(builder), _) => builder.append_null(),
            (Builder::Integer(builder), _) => builder.append_null(),
            (Builder::Double(builder), _) => builder.append_null(),
            (Builder::Boolean(builder), _) => builder.append_null(),
            (Builder::Blob(builder), _) => builder.append_null(),
            (Builder::Moment(builder), _) => builder.append_null(),
            (Builder::Texts(builder), _) => builder.append_null(),
            (Builder::Interval(builder), _) => builder.append_null(),
        }
    }

    pub(crate) fn finish(self) -> ArrayRef {
        match self {
            Builder::Text(mut builder) => Arc::new(builder.finish()),
            Builder::Integer(mut builder) => Arc::new(builder.finish()),
            Builder::Double(mut builder) => Arc::new(builder.finish()),
            Builder::Boolean(mut builder) => Arc::new(builder.finish()),
            Builder::Blob(mut builder) => Arc::new(builder.finish()),
            Builder::Moment(mut builder) => Arc::new(builder.finish()),
            Builder::Texts(mut builder) => Arc::new(builder.finish()),
            Builder::Interval(mut builder) => Arc::new(builder.finish()),
        }
    }
}
