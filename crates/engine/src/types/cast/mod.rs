//! Casts as DuckDB's where Arrow's differ: text to other types and back, floats and decimals to integers, and values
//! with a time zone.
//!
//! [`exists`] says which casts there are, [`function`] returns the function that replaces one of DataFusion's, and
//! [`cast`] and [`convert`] convert arrays, also nested ones. A value that does not fit is an error that names it, or NULL for TRY_CAST.

mod interval;
pub(crate) mod json;
mod nested;
mod number;
pub(super) mod stored;
mod text;
mod time;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveBuilder, StringViewArray,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::types::names::{JSON, TEXT_KIND, name};

/// Returns true if there is a cast between two types.
pub(super) fn exists(from: &DataType, to: &DataType) -> bool {
    use DataType::{Boolean, Date32, Date64, Duration, Interval, Null, Time32, Time64, Timestamp};
    let number = |t: &DataType| t.is_numeric() || matches!(t, Boolean);
    let time =
        |t: &DataType| matches!(t, Date32 | Date64 | Timestamp(..) | Time32(_) | Time64(_) | Interval(_));
    match (from, to) {
        (Null, _) => true,
        (from, to) if from.is_string() || to.is_string() => true,
        (from, to) if number(from) && time(to) || time(from) && number(to) => false,
        (Interval(_) | Duration(_), Date32 | Date64 | Timestamp(..)) => false,
        (Date32 | Date64 | Timestamp(..), Interval(_) | Duration(_)) => false,
        (Date32 | Date64, Time32(_) | Time64(_))
        | (Time32(_) | Time64(_), Date32 | Date64 | Timestamp(..)) => false,
        (from, to) if from.is_nested() != to.is_nested() && !matches!(from, DataType::Dictionary(..)) => {
            false
        }
        _ => true,
    }
}

/// Returns the remedy for a cast that does not exist.
pub(super) fn way_out(from: &DataType, to: &DataType) -> &'static str {
    match (from, to) {
        (from, DataType::Date32) if from.is_numeric() => "write DATE '1970-01-01' + days",
        (from, DataType::Timestamp(..)) if from.is_numeric() => "use to_timestamp(seconds)",
        (DataType::Date32, to) if to.is_numeric() => "subtract a date to count days: d - DATE '1970-01-01'",
        (DataType::Timestamp(..), to) if to.is_numeric() => "use extract(epoch FROM t)",
        _ => "cast to VARCHAR first",
    }
}

/// Returns true if Arrow's cast differs from DuckDB's.
fn differs(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Date32, Decimal128, Interval, LargeBinary, List, Map, Struct, Time32, Time64,
        Timestamp,
    };
    match (from, to) {
        (from, to) if from.is_string() => !to.is_string() && !matches!(to, DataType::Dictionary(..)),
        (from, to) if to.is_string() => {
            from.is_floating()
                || matches!(
                    from,
                    Timestamp(..) | Time32(_) | Time64(_) | Interval(_) | Binary | LargeBinary | BinaryView
                )
                || matches!(from, List(_) | Struct(_) | Map(..))
        }
        (Decimal128(..), DataType::Boolean)
        | (DataType::Boolean, Decimal128(..) | DataType::Decimal256(..)) => true,
        (from, to) if from.is_floating() || matches!(from, Decimal128(..)) => to.is_integer(),
        (Timestamp(_, Some(zone)), Timestamp(_, None) | Date32 | Time32(_) | Time64(_)) => !is_utc(zone),
        (Timestamp(_, None) | Date32, Timestamp(_, Some(zone))) => !is_utc(zone),
        (List(from), List(to)) => differs(from.data_type(), to.data_type()),
        (Struct(from), Struct(to)) => nested::pairs(from, to).is_some_and(|pairs| {
            pairs
                .iter()
                .zip(to)
                .any(|(index, to)| index.is_none_or(|index| differs(from[index].data_type(), to.data_type())))
        }),
        _ => false,
    }
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00" | "Etc/UTC" | "Z")
}

/// Returns the function for a cast of `expr`; `None` if DataFusion's does the same.
///
/// # Errors
/// Returns an error if the target is a type of text that only text can be cast to.
pub(super) fn function(
    expr: &Expr,
    target: &FieldRef,
    safe: bool,
    schema: &DFSchema,
) -> Result<Option<ScalarUDF>> {
    let (from, to) = (expr.get_type(schema)?, target.data_type());
    let kind = target.metadata().get(TEXT_KIND).cloned();
    if let Some(kind) = &kind
        && kind != "JSON"
        && !from.is_string()
        && from != DataType::Null
    {
        let message = format!("cannot cast {} to {kind}: cast it to VARCHAR first", name(&from));
        return Err(DataFusionError::Plan(message));
    }
    if kind.is_none() && !differs(&from, to) {
        return Ok(None);
    }
    let shown = kind.clone().unwrap_or_else(|| name(to));
    let column = match expr {
        Expr::Column(column) => Some(column.name.clone()),
        _ => None,
    };
    Ok(Some(ScalarUDF::new_from_impl(CastFunction {
        name: format!("{} AS {shown}", if safe { "TRY_CAST" } else { "CAST" }),
        to: to.clone(),
        how: How { safe, kind, column },
        signature: Signature::any(1, Volatility::Immutable),
    })))
}

/// A cast to one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastFunction {
    name: String,
    to: DataType,
    how: How,
    signature: Signature,
}

impl ScalarUDFImpl for CastFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = self.how.safe || args.arg_fields.iter().any(|field| field.is_nullable());
        let field = Field::new(self.name(), self.to.clone(), nullable);
        // As the cast that it replaces.
        let kind = self.how.kind.iter().map(|kind| (TEXT_KIND.to_string(), kind.clone()));
        Ok(Arc::new(field.with_metadata(kind.collect())))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Array(array)) => {
                Ok(ColumnarValue::Array(convert(array, &self.to, &self.how)?))
            }
            Some(ColumnarValue::Scalar(value)) => {
                let array = convert(&value.to_array()?, &self.to, &self.how)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            None => Err(exec_datafusion_err!("a cast has one operand")),
        }
    }
}

/// How values are converted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct How {
    /// True if a value that does not fit becomes NULL.
    safe: bool,
    /// The name of a type that is stored as text, such as UUID.
    kind: Option<String>,
    /// The column whose values are cast, for messages.
    column: Option<String>,
}

impl How {
    /// Returns NULL for TRY_CAST, and else the error of a value.
    fn misfit<T>(&self, value: &str, to: &DataType, reason: &str) -> Result<Option<T>> {
        if self.safe {
            return Ok(None);
        }
        let to = self.kind.clone().unwrap_or_else(|| name(to));
        let column = self.column.as_ref().map(|column| format!(" of column {column}")).unwrap_or_default();
        Err(exec_datafusion_err!(
            "cannot cast {value}{column} to {to}: {reason}; TRY_CAST gives NULL instead"
        ))
    }
}

/// Casts values to the type of a table's column.
///
/// # Errors
/// Returns an error that names the column and the first value that does not fit, or their type if it has no cast.
pub(crate) fn cast(values: &ArrayRef, to: &DataType, column: &str) -> Result<ArrayRef> {
    if !exists(values.data_type(), to) {
        let (from, to) = (name(values.data_type()), name(to));
        return Err(exec_datafusion_err!(
            "cannot put the values into column {column} of type {to}: they have type {from}; cast them"
        ));
    }
    convert(values, to, &How { safe: false, kind: None, column: Some(column.to_string()) })
}

/// Converts an array to a type. With `safe`, values that do not fit become NULL.
///
/// # Errors
/// Returns an error for the first value that does not fit.
pub(crate) fn converted(array: &ArrayRef, to: &DataType, safe: bool) -> Result<ArrayRef> {
    convert(array, to, &How { safe, kind: None, column: None })
}

/// Converts an array to a type.
///
/// # Errors
/// Returns an error for the first value that does not fit, unless `how` makes it NULL.
fn convert(array: &ArrayRef, to: &DataType, how: &How) -> Result<ArrayRef> {
    let from = array.data_type();
    if !from.is_string() && how.kind.as_deref() == Some("JSON") {
        return json::made(array);
    }
    if from.is_string()
        && let Some(kind) = &how.kind
    {
        return stored::convert(&texts(array)?, kind, to, how);
    }
    if !differs(from, to) {
        return arrow(array, to, how);
    }
    match (from, to) {
        (from, to) if *from == JSON => json::cast(texts(array)?.iter(), to, how),
        (from, to) if from.is_string() => from_text(&texts(array)?, to, how),
        (_, to) if to.is_string() => arrow(&text::shown(array)?, to, how),
        // Through a type that Arrow converts to and from both.
        (DataType::Decimal128(..), DataType::Boolean) => {
            arrow(&arrow(array, &DataType::Float64, how)?, to, how)
        }
        (DataType::Boolean, _) => arrow(&arrow(array, &DataType::Int8, how)?, to, how),
        (from, to) if to.is_integer() && !from.is_nested() => number::rounded(array, to, how),
        (DataType::Timestamp(_, Some(zone)), to) => {
            let local = crate::types::zone::local(array, zone, &time::LOCAL)?;
            arrow(&local, to, how)
        }
        (_, DataType::Timestamp(_, Some(zone))) => crate::types::zone::instant(array, zone, to),
        _ => nested::convert(array, to, how),
    }
}

/// Returns the values of an array as views of text, as a cast to VARCHAR does.
///
/// # Errors
/// Returns an error for a type that has no text.
pub(crate) fn to_text(array: &ArrayRef) -> Result<ArrayRef> {
    convert(array, &DataType::Utf8View, &How { safe: true, kind: None, column: None })
}

/// Converts text to any other type.
fn from_text(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    match to {
        to if to.is_numeric() || *to == DataType::Boolean => number::parsed(texts, to, how),
        DataType::Date32 | DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => {
            time::parsed(texts, to, how)
        }
        DataType::Interval(_) | DataType::Duration(_) => interval::parsed(texts, to, how),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => stored::bytes(texts, to, how),
        DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => nested::parsed(texts, to, how),
        _ => arrow(&(Arc::new(texts.clone()) as ArrayRef), to, how),
    }
}

/// Converts with Arrow.
fn arrow(array: &ArrayRef, to: &DataType, how: &How) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let options = CastOptions { safe: how.safe, ..CastOptions::default() };
    Ok(cast_with_options(array, to, &options)?)
}

fn texts(array: &ArrayRef) -> Result<StringViewArray> {
    let views = datafusion::arrow::compute::cast(array, &DataType::Utf8View)?;
    Ok(views.as_string_view().clone())
}

/// Parses each text.
fn parse<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    to: &DataType,
    how: &How,
    reason: &str,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let mut values = PrimitiveBuilder::<T>::with_capacity(texts.len()).with_data_type(to.clone());
    for text in texts.iter() {
        values.append_option(match text {
            None => None,
            Some(text) => match parse(text) {
                Some(value) => Some(value),
                None => how.misfit(&quoted(text), to, reason)?,
            },
        });
    }
    Ok(Arc::new(values.finish()))
}

/// Returns a text in quotes, shortened.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let shown: String = text.chars().take(SHOWN).collect();
    format!("'{shown}{}'", if shown.len() < text.len() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Decimal128Array, Float64Array, Int32Array, StringArray};

    #[test]
    fn fractions_are_rounded_and_values_that_do_not_fit_are_named() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.5, -0.4]));
        let whole = cast(&floats, &DataType::Int32, "a").unwrap();
        assert_eq!(whole.as_ref(), &Int32Array::from(vec![2, 2, 0]) as &dyn Array);
        let decimals = Decimal128Array::from(vec![15, 25, -15]).with_precision_and_scale(3, 1).unwrap();
        let whole = cast(&(Arc::new(decimals) as ArrayRef), &DataType::Int32, "a").unwrap();
        assert_eq!(whole.as_ref(), &Int32Array::from(vec![2, 3, -2]) as &dyn Array);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["abc"]));
        let error = cast(&text, &DataType::Int32, "Qty").unwrap_err().to_string();
        assert!(error.contains("cannot cast 'abc' of column Qty to INTEGER"), "{error}");
        let error = cast(&whole, &DataType::Date32, "day").unwrap_err().to_string();
        assert!(error.contains("column day of type DATE: they have type INTEGER"), "{error}");
    }
}
