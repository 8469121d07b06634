//! The layout of a table.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};

use crate::change::{Change, Codec, Narrow};
use crate::error::LayoutError;
use crate::file::TableFile;

/// Rows of a page, at most. Every column has its pages at the same rows unless its values are long.
pub(crate) const PAGE_ROWS: usize = 20_000;

/// How a table is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Compression of all columns.
    pub compression: Compression,
    /// Column that the rows are in the order of.
    pub sort: Option<String>,
    /// Rows of a row group.
    pub row_group_rows: usize,
    /// Columns in another type.
    pub types: Vec<(String, Narrow)>,
}

impl Layout {
    /// Returns the present layout of a table's files: the compression of most bytes, and the largest row group. The
    /// order of the rows is not known.
    pub fn of(files: &[TableFile]) -> Layout {
        let groups = || files.iter().flat_map(|file| file.metadata.row_groups());
        let mut bytes: Vec<(Compression, i64)> = Vec::new();
        for chunk in groups().flat_map(|group| group.columns()) {
            let compression = level(chunk.compression());
            match bytes.iter_mut().find(|(known, _)| *known == compression) {
                Some((_, sum)) => *sum += chunk.compressed_size(),
                None => bytes.push((compression, chunk.compressed_size())),
            }
        }
        let most = bytes.into_iter().max_by_key(|(_, sum)| *sum);
        let rows = groups().map(|group| group.num_rows()).max().unwrap_or(0);
        Layout {
            compression: most.map_or(Compression::SNAPPY, |(compression, _)| compression),
            sort: None,
            row_group_rows: rows.max(1) as usize,
            types: Vec::new(),
        }
    }

    /// Returns this layout with a change.
    #[must_use]
    pub fn with(&self, change: &Change) -> Layout {
        let mut layout = self.clone();
        match change {
            Change::Codec(Codec::None) => layout.compression = Compression::UNCOMPRESSED,
            Change::Codec(Codec::Lz4) => layout.compression = Compression::LZ4_RAW,
            Change::Codec(Codec::Snappy) => layout.compression = Compression::SNAPPY,
            Change::Codec(Codec::Zstd) => layout.compression = Compression::ZSTD(ZstdLevel::default()),
            Change::Sort(column) => layout.sort = Some(column.clone()),
            Change::RowGroups(rows) => layout.row_group_rows = *rows,
            // Every table is written with dictionaries.
            Change::Dictionary => {}
            Change::Type(column, narrow) => layout.types.push((column.clone(), *narrow)),
        }
        layout
    }

    /// Returns rows with the types of this layout.
    ///
    /// # Errors
    /// Returns an error if a value would change.
    pub fn typed(&self, batch: RecordBatch) -> Result<RecordBatch, LayoutError> {
        if self.types.is_empty() {
            return Ok(batch);
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let narrow = self.types.iter().find(|(name, _)| name == field.name());
            let column =
                narrow.map_or(Ok(Arc::clone(column)), |(name, narrow)| narrowed(name, *narrow, column))?;
            fields.push(Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone())));
            columns.push(column);
        }
        let schema = Schema::new_with_metadata(fields, batch.schema().metadata().clone());
        Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
    }

    /// Returns the settings to write with.
    pub(crate) fn properties(&self) -> WriterPropertiesBuilder {
        WriterProperties::builder()
            .set_created_by(format!("pellucid {}", env!("CARGO_PKG_VERSION")))
            .set_compression(self.compression)
            .set_max_row_group_row_count(Some(self.row_group_rows))
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_statistics_enabled(EnabledStatistics::Page)
    }
}

/// Casts a column, and checks that all values come back.
fn narrowed(name: &str, narrow: Narrow, column: &ArrayRef) -> Result<ArrayRef, LayoutError> {
    let from = column.data_type();
    let (to, what) = match (narrow, from) {
        (Narrow::Date, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            (DataType::Date32, "a date")
        }
        (Narrow::Integer, DataType::Decimal128(..)) => (DataType::Int64, "a whole number"),
        _ => {
            return Err(LayoutError::Type(format!(
                "{name} is {from}, which cannot be narrowed to {}",
                narrow.name()
            )));
        }
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(column, &to, &options).and_then(|cast| {
        let back = cast_with_options(&cast, from, &options)?;
        Ok((cast, back))
    });
    match cast {
        Ok((cast, back)) if &back == column => Ok(cast),
        _ => Err(LayoutError::Type(format!("a value of {name} is not {what}"))),
    }
}

/// Returns a compression that can be written: files do not record the level.
fn level(compression: Compression) -> Compression {
    match compression {
        Compression::GZIP(_) => Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(_) => Compression::ZSTD(ZstdLevel::default()),
        // Files of the old LZ4, and of LZO, cannot be written.
        Compression::LZ4 | Compression::LZO => Compression::LZ4_RAW,
        other => other,
    }
}
