//! The columns of a JSON table.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use futures::{StreamExt, TryStreamExt};

use crate::tables::csv::Encoding;
use crate::tables::csv::sniff::unique;
use crate::tables::found::Found;
use crate::tables::json::parse::Parser;
use crate::tables::json::shape::{Shape, add};
use crate::tables::json::{JsonColumn, JsonFormat, JsonOptions, Layout};
use crate::tables::options::FileOptions;
use crate::tables::text::TextFormat;
use crate::tables::text::line_ends;
use crate::tables::text::sample::{Sample, sample};

/// Name of the only column of records that are not objects.
const BARE: &str = "json";
/// Maximum number of files that are examined at once.
const CONCURRENCY: usize = 16;

/// Reads the JSON files of a table.
#[derive(Debug)]
pub(crate) struct JsonReader(Arc<JsonFormat>);

/// The records of a sample.
#[derive(Debug, Default)]
struct Records {
    /// Columns by key, of records that are objects.
    fields: Vec<(String, Shape)>,
    /// The shape of all records that are not objects.
    other: Option<Shape>,
    /// True if no record has a line end within.
    lines: bool,
    seen: bool,
}

impl JsonReader {
    /// Examines the files of a table. Returns its reader and columns.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is malformed.
    pub(crate) async fn open(found: &Found, options: &FileOptions) -> Result<(Self, SchemaRef)> {
        let json = &options.json;
        let read = |file: object_store::ObjectMeta| async move {
            let sample = sample(found, &file, json.whole_sample, Encoding::Utf8).await?;
            records(found.name(&file), &sample, json)
        };
        let files: Vec<_> = found.files.iter().filter(|file| file.size > 0).cloned().collect();
        let all: Vec<Records> =
            futures::stream::iter(files).map(read).buffered(CONCURRENCY).try_collect().await?;
        let mut merged = Records { lines: true, ..Records::default() };
        for one in all {
            merged.lines &= one.lines;
            merged.seen |= one.seen;
            one.fields.into_iter().for_each(|(key, shape)| add(&mut merged.fields, key, shape));
            if let Some(shape) = one.other {
                merged.see_other(shape);
            }
        }
        let (bare, fields) = merged.columns(json)?;
        let names = unique(fields.iter().map(|(key, _)| key.clone()));
        let schema = names
            .into_iter()
            .zip(&fields)
            .map(|(name, (_, shape))| Field::new(name, shape.data_type(), true));
        let schema = Arc::new(Schema::new(schema.collect::<Vec<_>>()));
        let columns = fields.into_iter().map(|(key, shape)| JsonColumn { key, shape }).collect();
        let lines = merged.lines && !matches!(json.layout, Layout::List | Layout::Sequence);
        Ok((Self(Arc::new(JsonFormat { options: json.clone(), columns, bare, lines })), schema))
    }

    /// Returns the reader of some of the columns.
    pub(crate) fn keep(self, kept: &[usize]) -> Self {
        let JsonFormat { options, columns, bare, lines } = &*self.0;
        let columns = kept.iter().map(|at| columns[*at].clone()).collect();
        Self(Arc::new(JsonFormat { options: options.clone(), columns, bare: *bare, lines: *lines }))
    }

    pub(crate) fn format(&self) -> Arc<dyn TextFormat> {
        Arc::clone(&self.0) as Arc<dyn TextFormat>
    }
}

impl Records {
    fn see(&mut self, shape: Shape) {
        self.seen = true;
        match shape {
            Shape::Object(fields) => {
                fields.into_iter().for_each(|(key, value)| add(&mut self.fields, key, value))
            }
            Shape::Null => {}
            other => self.see_other(other),
        }
    }

    fn see_other(&mut self, shape: Shape) {
        match &mut self.other {
            Some(known) => known.merge(shape),
            None => self.other = Some(shape),
        }
    }

    /// Returns the columns, and whether records are values of the only one.
    fn columns(&self, options: &JsonOptions) -> Result<(bool, Vec<(String, Shape)>)> {
        if options.objects {
            return Ok((true, vec![(BARE.to_string(), Shape::Json)]));
        }
        if let Some(columns) = &options.columns {
            let column = |(name, data_type): &(String, datafusion::arrow::datatypes::DataType)| {
                let shape = Shape::of(data_type).ok_or_else(|| {
                    DataFusionError::Plan(format!(
                        "cannot read column {name} as {data_type} from JSON; read it as VARCHAR"
                    ))
                })?;
                Ok((name.clone(), shape))
            };
            return Ok((false, columns.iter().map(column).collect::<Result<_>>()?));
        }
        Ok(match (&self.other, options.no_records) {
            (None, false) if !self.fields.is_empty() => (false, self.fields.clone()),
            (None, true) => (true, vec![(BARE.to_string(), Shape::Object(self.fields.clone()))]),
            (Some(shape), _) if self.fields.is_empty() => (true, vec![(BARE.to_string(), shape.clone())]),
            _ => (true, vec![(BARE.to_string(), Shape::Json)]),
        })
    }
}

/// Examines the records of a sample.
fn records(place: &str, sample: &Sample, options: &JsonOptions) -> Result<Records> {
    let text = sample.head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&sample.head);
    let mut found = Records { lines: true, ..Records::default() };
    let mut parser = Parser::new(text, 0);
    let malformed = |at: usize, why: &str| {
        let line = line_ends(&text[..at.min(text.len())]) + 1;
        DataFusionError::Execution(format!(
            "cannot read {place}, line {line}: the text is not valid JSON: {why}; correct the line"
        ))
    };
    parser.is_at_end();
    let list = matches!(options.layout, Layout::Auto | Layout::List) && parser.accept(b'[');
    if options.layout == Layout::List && !list {
        return Err(malformed(parser.at(), "expected a list of all records; use format = 'auto'"));
    }
    found.lines = !list;
    let mut first = true;
    loop {
        if parser.is_at_end() {
            if list && sample.whole {
                return Err(malformed(text.len(), "the list is not closed"));
            }
            break;
        }
        if list {
            if parser.accept(b']') {
                break;
            }
            if !first && !parser.accept(b',') {
                return Err(malformed(parser.at(), "expected , or ] after a record"));
            }
            parser.is_at_end();
        }
        first = false;
        let start = parser.at();
        match Shape::read(&mut parser, &options.values) {
            Ok(shape) => found.see(shape),
            // The sample may end within a record.
            Err(error) if error.at >= text.len() && !sample.whole => break,
            Err(error) => return Err(malformed(error.at, error.why)),
        }
        found.lines &= !parser.since(start).contains(&b'\n');
    }
    if found.lines {
        for block in &sample.blocks {
            let from = block.iter().position(|byte| *byte == b'\n').map_or(block.len(), |line| line + 1);
            for line in
                block[from..].split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"))
            {
                let mut parser = Parser::new(line, 0);
                while !parser.is_at_end() {
                    // The scan reports what is malformed, with its line.
                    let Ok(shape) = Shape::read(&mut parser, &options.values) else { break };
                    found.see(shape);
                }
            }
        }
    }
    Ok(found)
}
