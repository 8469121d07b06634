//! Values of a statement as the types of a table's columns, by DuckDB's rules.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::{DataFusionError, Result};

use crate::statements::describe::types;

/// Casts a column. Fractions are rounded to whole numbers, and a value that does not fit is an error.
///
/// # Errors
/// Returns an error that names the value and the column.
pub(crate) fn cast(values: &ArrayRef, to: &DataType, column: &str) -> Result<ArrayRef> {
    if values.data_type() == to {
        return Ok(Arc::clone(values));
    }
    let failed = |cause: &str| {
        DataFusionError::Execution(format!(
            "cannot put the values into column {column} of type {}: {cause}",
            types::name(to)
        ))
    };
    if matches!(to, DataType::Timestamp(..)) && is_text(values.data_type()) {
        return times(values, to).map_err(|error| failed(&error.to_string()));
    }
    let rounded = if to.is_integer() { rounded(values)? } else { Arc::clone(values) };
    if !can_cast_types(rounded.data_type(), to) {
        return Err(failed(&format!("they have type {}; cast them", types::name(values.data_type()))));
    }
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    cast_with_options(&rounded, to, &options).map_err(|error| {
        let text = error.to_string();
        let text = text.split_once(" error: ").map_or(text.as_str(), |(_, cause)| cause);
        failed(text)
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Reads timestamps, whose seconds may be missing.
fn times(values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let texts = datafusion::arrow::compute::cast(values, &DataType::Utf8)?;
    let whole = |text: &str| match text.len() {
        16 if text.as_bytes()[13] == b':' => format!("{text}:00"),
        _ => text.to_string(),
    };
    let texts: StringArray = texts.as_string::<i32>().iter().map(|text| text.map(whole)).collect();
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    Ok(cast_with_options(&texts, to, &options)?)
}

/// Rounds fractions: floats half to even, decimals half away from zero.
fn rounded(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::Float64 => {
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even))
        }
        DataType::Float32 => {
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even))
        }
        DataType::Decimal128(precision, scale) if *scale > 0 => {
            let whole = DataType::Decimal128((*precision + 1).min(38), 0);
            cast_with_options(values, &whole, &CastOptions { safe: false, ..CastOptions::default() })?
        }
        _ => Arc::clone(values),
    })
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
        assert!(error.contains("Qty") && error.contains("abc"), "{error}");
    }
}
