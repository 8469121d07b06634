//! CSV files: the dialect and the columns of a table, and the layout of each of its files.

pub(crate) mod decode;
pub(crate) mod records;
pub(crate) mod sniff;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod types;

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use object_store::path::Path;

use crate::tables::csv::decode::CsvDecoder;
use crate::tables::csv::records::{Separators, Splitter};
use crate::tables::text::columns::ValueFormat;
use crate::tables::text::{Decoder, Part, TextFormat};

/// Encoding of a file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    #[default]
    Utf8,
    /// ISO 8859-1: each byte is the character of its number.
    Latin1,
    /// UTF-16, of either byte order; without a byte order mark, little-endian.
    Utf16,
}

/// Options of a CSV table; `None` is found by the sniffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvOptions {
    pub delimiter: Option<Vec<u8>>,
    /// `Some(None)`: there are no quotes.
    pub quote: Option<Option<u8>>,
    pub escape: Option<Option<u8>>,
    pub comment: Option<Option<u8>>,
    pub header: Option<bool>,
    /// Lines to skip at the start of each file.
    pub skip: Option<usize>,
    /// Text of NULL.
    pub nulls: Vec<Vec<u8>>,
    pub allow_quoted_nulls: bool,
    pub force_not_null: Vec<String>,
    pub null_padding: bool,
    pub ignore_errors: bool,
    pub all_varchar: bool,
    pub normalize_names: bool,
    pub encoding: Encoding,
    pub values: ValueFormat,
    /// True if the option was given; otherwise the sniffer tries several formats.
    pub has_date_format: bool,
    pub has_timestamp_format: bool,
    /// Names and types of all columns.
    pub columns: Option<Vec<(String, datafusion::arrow::datatypes::DataType)>>,
    /// Names of the first columns.
    pub names: Vec<String>,
    /// Types by name, or of the first columns.
    pub types: Vec<(Option<String>, datafusion::arrow::datatypes::DataType)>,
    /// Rows of the sample; -1 is the whole file.
    pub sample_rows: i64,
    /// False if files are read whole.
    pub parallel: bool,
    /// Types that the sniffer may choose, apart from text.
    pub candidates: Option<Vec<datafusion::arrow::datatypes::DataType>>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: None,
            quote: None,
            escape: None,
            comment: None,
            header: None,
            skip: None,
            nulls: vec![Vec::new()],
            allow_quoted_nulls: true,
            force_not_null: Vec::new(),
            null_padding: false,
            ignore_errors: false,
            all_varchar: false,
            normalize_names: false,
            encoding: Encoding::Utf8,
            values: ValueFormat::default(),
            has_date_format: false,
            has_timestamp_format: false,
            columns: None,
            names: Vec::new(),
            types: Vec::new(),
            sample_rows: i64::MAX,
            parallel: true,
            candidates: None,
        }
    }
}

/// The layout of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub separators: Separators,
    /// Position of the first record after the header, in the decompressed file.
    pub first_record: u64,
    /// Number of fields of a record.
    pub fields: usize,
    /// The column of the table that each field belongs to.
    pub columns: Vec<Option<usize>>,
    /// True if a quoted value of the sample has a line end.
    pub has_line_ends: bool,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(crate) struct CsvColumn {
    pub values: ValueFormat,
    /// True if text of NULL is a value.
    pub not_null: bool,
}

/// The CSV files of a table.
#[derive(Debug)]
pub(crate) struct CsvFormat {
    pub options: CsvOptions,
    pub columns: Vec<CsvColumn>,
    pub layouts: HashMap<Path, Arc<Layout>>,
    /// True if a file may be read in pieces.
    pub splits: bool,
}

impl CsvFormat {
    fn layout(&self, file: &PartitionedFile) -> Result<&Arc<Layout>> {
        let path = file.path();
        self.layouts.get(path).ok_or_else(|| {
            DataFusionError::Execution(format!(
                "/{path}: the file appeared while the query was planned; run the query again"
            ))
        })
    }
}

impl TextFormat for CsvFormat {
    fn file_type(&self) -> &'static str {
        "csv"
    }

    fn splits(&self) -> bool {
        self.splits
    }

    fn describe(&self) -> String {
        match self.layouts.values().next() {
            Some(layout) => format!("delimiter={:?}", String::from_utf8_lossy(&layout.separators.delimiter)),
            None => String::new(),
        }
    }

    fn decoder(
        &self,
        file: &PartitionedFile,
        part: Part,
        columns: &[usize],
        schema: SchemaRef,
        batch_rows: usize,
    ) -> Result<Box<dyn Decoder>> {
        let layout = self.layout(file)?;
        let splitter = Splitter::new(layout.separators.clone());
        Ok(Box::new(CsvDecoder::new(self, layout, splitter, part, columns, schema, batch_rows)?))
    }

    fn first_record(&self, file: &PartitionedFile) -> u64 {
        self.layouts.get(file.path()).map_or(0, |layout| layout.first_record)
    }
}
