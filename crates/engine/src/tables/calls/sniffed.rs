//! `sniff_csv('FILE')`: the dialect and the columns of a CSV file as a table, with DuckDB's columns.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, ListArray, RecordBatch, StringArray, StructArray, UInt32Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::Ident;

use crate::tables::calls::shown;
use crate::tables::calls::values::Argument;
use crate::tables::csv::records::{Field as Value, Next, Splitter};
use crate::tables::csv::sniff::{Sniffed, sniff};
use crate::tables::csv::table::CsvReader;
use crate::tables::found::Found;
use crate::tables::options::FileOptions;
use crate::tables::text::sample::sample;
use crate::tables::text::temporal::{Pattern, TimeFormat};
use crate::types::names::name;

/// Returns what is found in a file.
///
/// # Errors
/// Returns an error if there are several files, or the file cannot be read.
pub(super) async fn row(
    found: &Found,
    options: &FileOptions,
    given: &[(Ident, Argument)],
) -> Result<RecordBatch> {
    let [file] = &found.files[..] else {
        let message = format!("cannot sniff {} files at once; name one file", found.files.len());
        return Err(DataFusionError::Plan(message));
    };
    let (_, schema) = CsvReader::open(found, options).await?;
    let sample = sample(found, file, options.csv.sample_rows < 0, options.csv.encoding).await?;
    let place = found.name(file);
    let sniffed = sniff(place, &sample, &options.csv)?;
    let dialect = Dialect::new(&sample.head, &sniffed);
    let columns: Vec<(String, String)> =
        schema.fields().iter().map(|field| (field.name().clone(), name(field.data_type()))).collect();
    let (date, timestamp) = time_formats(&sample.head, &sniffed);
    let (date, timestamp) = (date.as_deref(), timestamp.as_deref());
    let mut given: Vec<String> =
        given.iter().map(|(option, argument)| format!("{option}={}", shown(&argument.value))).collect();
    given.sort();
    let prompt = dialect.prompt(place, &columns, date, timestamp);
    let text = |value: Option<&str>| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let shown = |value: &str| text(Some(if value.is_empty() { "(empty)" } else { value }));
    let row: [(&str, ArrayRef); 12] = [
        ("Delimiter", shown(&dialect.delimiter)),
        ("Quote", shown(&dialect.quote)),
        ("Escape", shown(&dialect.escape)),
        ("NewLineDelimiter", text(Some(dialect.new_line))),
        ("Comment", shown(&dialect.comment)),
        ("SkipRows", Arc::new(UInt32Array::from(vec![dialect.skip]))),
        ("HasHeader", Arc::new(BooleanArray::from(vec![sniffed.has_header]))),
        ("Columns", listed(&columns)?),
        ("DateFormat", text(date)),
        ("TimestampFormat", text(timestamp)),
        ("UserArguments", text((!given.is_empty()).then(|| given.join(", ")).as_deref())),
        ("Prompt", text(Some(&prompt))),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(row.into_iter().map(|(name, array)| (name, array, true)))?)
}

/// How a file is divided, in the words of `read_csv`.
struct Dialect {
    delimiter: String,
    quote: String,
    escape: String,
    comment: String,
    new_line: &'static str,
    skip: u32,
    header: bool,
}

impl Dialect {
    /// `head` is the start of the file. Quotes and escapes that it does not have are left out.
    fn new(head: &[u8], sniffed: &Sniffed) -> Self {
        let separators = &sniffed.separators;
        let text = |byte: Option<u8>| byte.map(|byte| char::from(byte).to_string()).unwrap_or_default();
        let quote = separators.quote.filter(|quote| head.contains(quote));
        let escape = separators
            .escape
            .filter(|escape| quote.is_some_and(|quote| head.windows(2).any(|pair| pair == [*escape, quote])));
        let line = head.iter().position(|byte| *byte == b'\n');
        let new_line = match line {
            _ if separators.carriage_return => "\\r",
            Some(line) if line > 0 && head[line - 1] == b'\r' => "\\r\\n",
            _ => "\\n",
        };
        let before = &head[..sniffed.start.min(head.len())];
        let is_skipped =
            |line: &&[u8]| separators.comment.is_none() || line.first() != separators.comment.as_ref();
        let lines =
            before.split_inclusive(|byte| *byte == if separators.carriage_return { b'\r' } else { b'\n' });
        Self {
            delimiter: String::from_utf8_lossy(&separators.delimiter).into_owned(),
            quote: text(quote),
            escape: text(escape),
            comment: text(separators.comment),
            new_line,
            skip: lines.filter(is_skipped).count() as u32,
            header: sniffed.has_header,
        }
    }

    /// Returns the statement that reads the file without sniffing.
    fn prompt(
        &self,
        place: &str,
        columns: &[(String, String)],
        date: Option<&str>,
        timestamp: Option<&str>,
    ) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let columns: Vec<String> =
            columns.iter().map(|(name, kind)| format!("{}: {}", quoted(name), quoted(kind))).collect();
        let format = |option: &str, format: Option<&str>| {
            format.map_or(String::new(), |format| format!(", {option}={}", quoted(format)))
        };
        format!(
            "FROM read_csv({}, auto_detect=false, delim={}, quote={}, escape={}, new_line='{}', skip={}, comment={}, \
             header={}, columns={{{}}}{}{});",
            quoted(place),
            quoted(&self.delimiter),
            quoted(&self.quote),
            quoted(&self.escape),
            self.new_line,
            self.skip,
            quoted(&self.comment),
            self.header,
            columns.join(", "),
            format("dateformat", date),
            format("timestampformat", timestamp)
        )
    }
}

/// Returns the formats of the first date and the first timestamp; a timestamp in ISO format has none.
fn time_formats(head: &[u8], sniffed: &Sniffed) -> (Option<String>, Option<String>) {
    let (mut date, mut timestamp) = (None, None);
    for (column, guess) in sniffed.guesses.iter().enumerate() {
        let text = |pattern: &Pattern| pattern.text(separator(head, sniffed, column));
        match guess.decide() {
            (DataType::Date32, formats) if date.is_none() => {
                date = Some(match &formats.date {
                    TimeFormat::Iso => "%Y-%m-%d".to_string(),
                    TimeFormat::Pattern(pattern) => text(pattern),
                });
            }
            (DataType::Timestamp(..), formats) if timestamp.is_none() => {
                timestamp = match &formats.timestamp {
                    TimeFormat::Iso => None,
                    TimeFormat::Pattern(pattern) => Some(text(pattern)),
                };
            }
            _ => {}
        }
    }
    (date, timestamp)
}

/// Returns the separator in the first date of a column.
fn separator(head: &[u8], sniffed: &Sniffed, column: usize) -> char {
    let splitter = Splitter::new(sniffed.separators.clone());
    let (mut at, mut fields) = (sniffed.first_record as usize, Vec::<Value>::new());
    while at < head.len() {
        match splitter.next(head, at, true, &mut fields) {
            Next::Record(end) => {
                let value = fields.get(column).and_then(|field| head.get(field.start..field.end));
                let separator = |byte: &&u8| matches!(byte, b'-' | b'/' | b'.' | b' ');
                if let Some(separator) = value.and_then(|value| value.iter().find(separator)) {
                    return char::from(*separator);
                }
                at = end;
            }
            Next::Blank(end) | Next::Malformed(end, _) => at = end,
            Next::Incomplete => break,
        }
    }
    '-'
}

/// Returns names and types as a list of structs.
fn listed(columns: &[(String, String)]) -> Result<ArrayRef> {
    let field = |name: &str| Arc::new(Field::new(name, DataType::Utf8, true));
    let fields = Fields::from(vec![field("name"), field("type")]);
    let values = |value: &dyn Fn(&(String, String)) -> String| {
        Arc::new(StringArray::from_iter_values(columns.iter().map(value))) as ArrayRef
    };
    let structs = StructArray::try_new(
        fields.clone(),
        vec![values(&|column| column.0.clone()), values(&|column| column.1.clone())],
        None,
    )?;
    let item: FieldRef = Arc::new(Field::new_list_field(DataType::Struct(fields), true));
    let list =
        ListArray::try_new(item, OffsetBuffer::from_lengths([columns.len()]), Arc::new(structs), None)?;
    Ok(Arc::new(list))
}
