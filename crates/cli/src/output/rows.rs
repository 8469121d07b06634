//! The rows of a result as cells of text, for the formats that have no types.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::io;

/// Returns the number of rows in all batches.
pub fn row_count(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

/// Wraps an error about a value that cannot be formatted.
pub fn invalid(error: ArrowError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Calls `row` for each row with its cells as text; `None` is NULL.
pub fn for_each_row(
    batches: &[RecordBatch],
    mut row: impl FnMut(&[Option<String>]) -> io::Result<()>,
) -> io::Result<()> {
    let options = FormatOptions::default().with_display_error(false);
    let mut cells = Vec::new();
    for batch in batches {
        let columns = batch.columns();
        let formatters: Vec<_> = columns
            .iter()
            .map(|array| ArrayFormatter::try_new(array.as_ref(), &options))
            .collect::<Result<_, _>>()
            .map_err(invalid)?;
        // `logical_nulls` includes the nulls in the values of dictionaries.
        let nulls: Vec<_> = columns.iter().map(|array| array.logical_nulls()).collect();
        for index in 0..batch.num_rows() {
            cells.clear();
            for (formatter, nulls) in formatters.iter().zip(&nulls) {
                let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(index));
                let text = |_| formatter.value(index).try_to_string().map_err(invalid);
                cells.push((!is_null).then_some(()).map(text).transpose()?);
            }
            row(&cells)?;
        }
    }
    Ok(())
}

/// Returns the names of the columns.
pub fn names(schema: &Schema) -> impl Iterator<Item = &str> {
    schema.fields().iter().map(|field| field.name().as_str())
}
