//! JSON files: one value after the other, mostly one a line, or one list of all.

mod build;
mod decode;
pub(crate) mod parse;
pub(crate) mod shape;
pub(crate) mod table;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;

use crate::tables::json::decode::JsonDecoder;
use crate::tables::json::shape::Shape;
use crate::tables::text::columns::ValueFormat;
use crate::tables::text::{Decoder, Part, TextFormat};

/// How the records of a file follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// A list of all if the file starts with one, otherwise one after the other.
    #[default]
    Auto,
    /// One a line; a list is a record too.
    Lines,
    /// A list of all.
    List,
    /// One after the other, over any number of lines.
    Sequence,
}

/// Options of a JSON table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct JsonOptions {
    pub layout: Layout,
    /// Names and types of the columns.
    pub columns: Option<Vec<(String, DataType)>>,
    /// True if each record is one column of text.
    pub objects: bool,
    /// True if a record that is an object is a column, not columns by key.
    pub no_records: bool,
    pub values: ValueFormat,
    /// True if types come from all of a file.
    pub whole_sample: bool,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(crate) struct JsonColumn {
    /// The key in the file.
    pub key: String,
    pub shape: Shape,
}

/// The JSON files of a table.
#[derive(Debug)]
pub(crate) struct JsonFormat {
    pub options: JsonOptions,
    pub columns: Vec<JsonColumn>,
    /// True if records are not objects, but values of the only column.
    pub bare: bool,
    /// True if each record is on its own line.
    pub lines: bool,
}

impl TextFormat for JsonFormat {
    fn file_type(&self) -> &'static str {
        "json"
    }

    fn splits(&self) -> bool {
        self.lines
    }

    fn describe(&self) -> String {
        format!("lines={}", self.lines)
    }

    fn decoder(
        &self,
        _file: &PartitionedFile,
        part: Part,
        columns: &[usize],
        schema: SchemaRef,
        batch_rows: usize,
    ) -> Result<Box<dyn Decoder>> {
        let builder = |column: &usize| {
            let JsonColumn { key, shape } = &self.columns[*column];
            let built = build::Builder::new(shape, &self.options.values);
            built.map(|built| (key.clone(), built)).ok_or_else(|| {
                DataFusionError::Plan(format!(
                    "cannot read the column {key} with its type from JSON; read it as VARCHAR"
                ))
            })
        };
        let builders = columns.iter().map(builder).collect::<Result<Vec<_>>>()?;
        Ok(Box::new(JsonDecoder::new(self, part, builders, Arc::clone(&schema), batch_rows)))
    }

    fn first_record(&self, _: &PartitionedFile) -> u64 {
        0
    }
}
