//! Parquet files, of which a partition reads only its row groups, pages and columns.

use super::{Column, InputError, Sink};
use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Float64Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use pellucid_trace::guard::guarded;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The footer of a file.
#[derive(Debug)]
pub struct Parquet(ArrowReaderMetadata);

impl Parquet {
    /// Reads the footer, and returns its columns and number of rows.
    pub fn open(path: &Path) -> Result<(Self, Vec<Column>, usize), InputError> {
        let file = fs::File::open(path).map_err(|e| InputError::io("read", path, &e))?;
        // Parquet's own types suffice for numbers, and a damaged Arrow schema does no harm.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&file, options).map_err(|e| broken(path, &e))?;
        let columns = footer
            .schema()
            .fields()
            .iter()
            .map(|field| {
                let kind = field.data_type();
                let numeric = kind.is_numeric() || *kind == DataType::Boolean;
                Column { name: field.name().clone(), other: (!numeric).then(|| kind.to_string()) }
            })
            .collect();
        let claimed = footer.metadata().file_metadata().num_rows();
        let groups = footer.metadata().row_groups().iter();
        let rows = groups
            .map(|group| usize::try_from(group.num_rows()).ok())
            .try_fold(0usize, |sum, rows| sum.checked_add(rows?));
        match rows.filter(|rows| i64::try_from(*rows) == Ok(claimed)) {
            Some(rows) => Ok((Parquet(footer), columns, rows)),
            None => Err(damaged(path, "its row groups do not have the rows that its footer claims")),
        }
    }

    /// Reads rows; see [`super::Table::read`]. `columns` are indexes in the file's schema.
    pub fn read(
        &self,
        path: &Path,
        rows: Range<usize>,
        columns: &[usize],
        sink: &mut Sink,
    ) -> Result<(), InputError> {
        let file = fs::File::open(path).map_err(|e| InputError::io("read", path, &e))?;
        let mut groups = Vec::new();
        let (mut start, mut skipped) = (0, 0);
        for (number, group) in self.0.metadata().row_groups().iter().enumerate() {
            let end = start + usize::try_from(group.num_rows()).unwrap_or(0);
            if end <= rows.start {
                skipped = end;
            } else if start < rows.end {
                groups.push(number);
            }
            start = end;
        }
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.0.clone());
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
        let batches = builder
            .with_projection(mask)
            .with_row_groups(groups)
            .with_offset(rows.start - skipped)
            .with_limit(rows.len())
            .build()
            .map_err(|e| broken(path, &e))?;
        // Batches contain each column once, in the file's order.
        let mut order = columns.to_vec();
        order.sort_unstable();
        order.dedup();
        let mut done = 0;
        for batch in batches {
            let batch = batch.map_err(|e| broken(path, &e))?;
            for (place, column) in columns.iter().enumerate() {
                let at = order.binary_search(column).unwrap_or_default();
                let array = batch.column(at);
                let options = CastOptions { safe: false, ..Default::default() };
                let array =
                    cast_with_options(array, &DataType::Float64, &options).map_err(|e| broken(path, &e))?;
                if array.null_count() > 0 {
                    let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or_default();
                    return Err(InputError::Failed(format!(
                        "{}, row {}: column {} is NULL; fill it in or remove the row",
                        path.display(),
                        rows.start + done + row + 1,
                        batch.schema_ref().field(at).name()
                    )));
                }
                for (row, value) in array.as_primitive::<Float64Type>().values().iter().enumerate() {
                    sink(done + row, place, *value);
                }
            }
            done += batch.num_rows();
        }
        Ok(())
    }
}

/// Runs `read`. The library panics on some damaged files, which becomes an error.
pub fn caught<T>(path: &Path, read: impl FnOnce() -> Result<T, InputError>) -> Result<T, InputError> {
    guarded(|| Ok(read())).unwrap_or_else(|_| Err(damaged(path, "its content is malformed")))
}

fn damaged(path: &Path, why: &str) -> InputError {
    InputError::Failed(format!("cannot read {} as Parquet: {why}; write the file again", path.display()))
}

/// Converts an error of the Parquet or Arrow library.
pub fn broken(path: &Path, error: &dyn std::error::Error) -> InputError {
    InputError::Failed(format!("cannot read {} as Parquet: {error}", path.display()))
}
