//! Decodes the records of a CSV file, or of a piece of one.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, BooleanBuilder};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{DataFusionError, Result};

use crate::tables::csv::records::{Field, Next, Splitter, unescaped};
use crate::tables::csv::{CsvFormat, CsvOptions, Encoding, Layout};
use crate::tables::text::columns::{self, Column};
use crate::tables::text::{Decoder, Misfit, Part, Pending, line_ends};
use crate::types::names::name;

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

/// Where a field goes.
struct Target {
    /// Index of the builder.
    column: usize,
    not_null: bool,
}

/// A decoder of CSV.
pub(super) struct CsvDecoder {
    splitter: Splitter,
    pending: Pending,
    part: Part,
    skips_line: bool,
    /// Bytes before the first record, such as the header.
    before: u64,
    done: bool,
    /// Expected number of fields.
    fields: usize,
    targets: Vec<Option<Target>>,
    builders: Vec<Box<dyn Column>>,
    /// Builders of columns that the file does not have.
    absent: Vec<usize>,
    schema: SchemaRef,
    batch_rows: usize,
    nulls: Vec<Vec<u8>>,
    /// True if only the empty text is NULL.
    empty_is_null: bool,
    allow_quoted_nulls: bool,
    null_padding: bool,
    ignore_errors: bool,
    text: Transcoder,
}

impl CsvDecoder {
    pub(super) fn new(
        format: &CsvFormat,
        layout: &Layout,
        splitter: Splitter,
        part: Part,
        columns: &[usize],
        schema: SchemaRef,
        batch_rows: usize,
    ) -> Result<Self> {
        let mut builders = Vec::new();
        let mut absent = Vec::new();
        let mut targets: Vec<Option<Target>> = (0..layout.fields).map(|_| None).collect();
        for (builder, &column) in columns.iter().enumerate() {
            let field = schema.field(builder);
            let about = &format.columns[column];
            let made = columns::column(field.data_type(), &about.values, batch_rows.min(1024));
            builders.push(made.ok_or_else(|| unreadable_type(field.name(), field.data_type()))?);
            match layout.columns.iter().position(|of_field| *of_field == Some(column)) {
                Some(at) if at < targets.len() => {
                    targets[at] = Some(Target { column: builder, not_null: about.not_null });
                }
                _ => absent.push(builder),
            }
        }
        let CsvOptions { nulls, allow_quoted_nulls, null_padding, ignore_errors, encoding, .. } =
            &format.options;
        Ok(Self {
            splitter,
            pending: Pending::new(part.from),
            part,
            skips_line: part.skips_line,
            before: if part.skips_line { 0 } else { layout.first_record.saturating_sub(part.from) },
            done: false,
            fields: layout.fields,
            targets,
            builders,
            absent,
            schema,
            batch_rows,
            nulls: nulls.clone(),
            empty_is_null: matches!(&nulls[..], [only] if only.is_empty()),
            allow_quoted_nulls: *allow_quoted_nulls,
            null_padding: *null_padding,
            ignore_errors: *ignore_errors,
            text: Transcoder::new(*encoding),
        })
    }

    /// Skips what comes before the first record; returns false if more bytes are needed for that.
    fn begin(&mut self) -> bool {
        if self.before > 0 {
            let count = self.pending.left().len().min(usize::try_from(self.before).unwrap_or(usize::MAX));
            self.pending.skip(count);
            self.before -= count as u64;
            if self.before > 0 {
                return false;
            }
        }
        if self.skips_line {
            match self.splitter.line_end(self.pending.left(), 0) {
                Some(end) => self.pending.skip(end),
                None => {
                    self.pending.skip(self.pending.left().len());
                    self.done |= self.part.until.is_some_and(|until| self.pending.position() >= until);
                    return false;
                }
            }
            self.skips_line = false;
        }
        true
    }

    /// Decodes up to a batch of records. Returns the number of rows, and whether each is kept.
    fn decode(&mut self) -> Result<(usize, Option<BooleanBuilder>), Misfit> {
        let mut fields: Vec<Field> = Vec::new();
        let mut buffer = Vec::new();
        let mut kept: Option<BooleanBuilder> = None;
        let (mut rows, mut at) = (0, 0);
        let position = self.pending.position();
        let lines = self.pending.lines();
        // A cheap copy, so that the columns can be changed meanwhile.
        let text = self.pending.bytes_left();
        while rows < self.batch_rows {
            if self.part.until.is_some_and(|until| position + at as u64 >= until)
                || (at == text.len() && self.pending.ended)
            {
                self.done = true;
                break;
            }
            let start = at;
            let misfit =
                |message: String| Misfit { lines_before: lines + line_ends(&text[..start]), message };
            let next = self.splitter.next(&text, at, self.pending.ended, &mut fields);
            let mut wrong = None;
            match next {
                Next::Incomplete => break,
                Next::Blank(end) => {
                    at = end;
                    // A blank line of a single column is a NULL.
                    if self.fields != 1
                        || text[start..end].first().is_none_or(|byte| !byte.is_ascii_whitespace())
                    {
                        continue;
                    }
                }
                Next::Record(end) => at = end,
                Next::Malformed(end, why) => {
                    at = end;
                    wrong = Some(format!("{why}; close the quotes, or give other ones: quote = ''"));
                }
            }
            if let Some(hidden) = self.hidden_line_end(&text, position, start, at) {
                return Err(misfit(hidden.to_string()));
            }
            if wrong.is_none() {
                wrong = self.wrong_count(&text, &fields).or_else(|| self.append(&text, &fields, &mut buffer));
            }
            match wrong {
                None => {
                    if let Some(kept) = &mut kept {
                        kept.append_value(true);
                    }
                    rows += 1;
                }
                Some(message) if !self.ignore_errors => return Err(misfit(message)),
                Some(_) => {
                    // The row stays as NULLs until the batch is filtered.
                    let kept = kept.get_or_insert_with(|| {
                        let mut all = BooleanBuilder::new();
                        all.append_n(rows, true);
                        all
                    });
                    kept.append_value(false);
                    rows += 1;
                    self.pad(rows);
                }
            }
        }
        self.pending.skip(at);
        Ok((rows, kept))
    }

    /// Returns the error for a record that crosses the end of the piece with a line end in a value, at which the
    /// reader of the next piece would begin.
    fn hidden_line_end(&self, text: &[u8], position: u64, start: usize, end: usize) -> Option<&'static str> {
        let until = self.part.until?;
        let border = usize::try_from(until.saturating_sub(1).saturating_sub(position)).ok()?;
        if end <= border || end < 2 {
            return None;
        }
        let inner = text.get(border.max(start)..end - 1)?;
        let inner = inner.strip_suffix(b"\r").unwrap_or(inner);
        inner.contains(&b'\n').then_some(
            "a quoted value has a line end, which the sample had not; use read_csv with parallel = false",
        )
    }

    /// Returns the error for a record with a wrong number of fields.
    fn wrong_count(&self, text: &[u8], fields: &[Field]) -> Option<String> {
        let found = fields.len();
        if found == self.fields || (found < self.fields && self.null_padding) {
            return None;
        }
        // Some programs end each line with the separator.
        if found == self.fields + 1 && fields[found - 1].start == fields[found - 1].end {
            return None;
        }
        let line = match (fields.first(), fields.last()) {
            (Some(first), Some(last)) => shown(&text[first.start..last.end]),
            _ => String::new(),
        };
        let padding = if found < self.fields { "null_padding = true fills with NULL, and " } else { "" };
        Some(format!(
            "expected {} columns, found {found} in `{line}`; {padding}read_csv(…, ignore_errors = true) skips such lines",
            self.fields
        ))
    }

    /// Appends the values of a record. Returns the error of the first one that does not fit its column.
    fn append(&mut self, text: &[u8], fields: &[Field], buffer: &mut Vec<u8>) -> Option<String> {
        for (index, target) in self.targets.iter().enumerate() {
            let Some(target) = target else { continue };
            let builder = &mut self.builders[target.column];
            let Some(field) = fields.get(index) else {
                builder.append_null();
                continue;
            };
            let raw = &text[field.start..field.end];
            let value = if field.escaped { unescaped(raw, self.splitter.separators(), buffer) } else { raw };
            let is_null = if self.empty_is_null {
                value.is_empty()
            } else {
                self.nulls.iter().any(|null| null == value)
            };
            if is_null && !target.not_null && (!field.quoted || self.allow_quoted_nulls) {
                builder.append_null();
            } else if !builder.append(value) {
                return Some(misfit(
                    self.schema.field(target.column).name(),
                    self.schema.field(target.column).data_type(),
                    value,
                ));
            }
        }
        for absent in &self.absent {
            self.builders[*absent].append_null();
        }
        None
    }

    /// Appends NULL to all columns that have fewer rows.
    fn pad(&mut self, rows: usize) {
        for builder in &mut self.builders {
            while builder.len() < rows {
                builder.append_null();
            }
        }
    }
}

impl Decoder for CsvDecoder {
    fn push(&mut self, bytes: Bytes) -> Result<(), Misfit> {
        let lines_before = self.pending.lines();
        let bytes = self.text.convert(bytes).map_err(|message| Misfit { lines_before, message })?;
        self.pending.push(bytes);
        Ok(())
    }

    fn finish(&mut self) {
        self.pending.ended = true;
    }

    fn rows(&mut self) -> Result<Option<RecordBatch>, Misfit> {
        if self.done || !self.begin() {
            return Ok(None);
        }
        let (rows, kept) = self.decode()?;
        if rows == 0 {
            return Ok(None);
        }
        let lines_before = self.pending.lines();
        let failed =
            |error: datafusion::arrow::error::ArrowError| Misfit { lines_before, message: error.to_string() };
        let columns: Vec<ArrayRef> = self.builders.iter_mut().map(|builder| builder.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(failed)?;
        match kept {
            Some(mut kept) => filter_record_batch(&batch, &kept.finish()).map(Some).map_err(failed),
            None => Ok(Some(batch)),
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

/// Returns a value as a message shows it.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let short: String = text.chars().take(SHOWN).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("{}{more}", short.escape_debug())
}

/// Describes a value that does not fit its column.
fn misfit(column: &str, data_type: &DataType, value: &[u8]) -> String {
    if matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
        return format!(
            "column {column} is not valid UTF-8 in `{}`; convert the file, or use read_csv(…, encoding = 'latin-1')",
            shown(value)
        );
    }
    let name = name(data_type);
    format!(
        "column {column} has type {name}, which `{}` does not fit; use read_csv with types = {{'{column}': 'VARCHAR'}}, \
         nullstr = '…' if it stands for NULL, or ignore_errors = true",
        shown(value)
    )
}

fn unreadable_type(column: &str, data_type: &DataType) -> DataFusionError {
    DataFusionError::Plan(format!(
        "cannot read column {column} as {} from CSV; read it as VARCHAR and CAST it",
        name(data_type)
    ))
}

/// Converts text to UTF-8 as it arrives.
struct Transcoder {
    encoding: Encoding,
    /// A byte of UTF-16 whose other half has not arrived.
    left: Vec<u8>,
    big_endian: Option<bool>,
}

impl Transcoder {
    fn new(encoding: Encoding) -> Self {
        Self { encoding, left: Vec::new(), big_endian: None }
    }

    fn convert(&mut self, bytes: Bytes) -> Result<Bytes, String> {
        match self.encoding {
            Encoding::Utf8 => Ok(bytes),
            Encoding::Latin1 => Ok(bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into()),
            Encoding::Utf16 => self.utf16(&bytes),
        }
    }

    fn utf16(&mut self, bytes: &[u8]) -> Result<Bytes, String> {
        let mut all = std::mem::take(&mut self.left);
        all.extend_from_slice(bytes);
        let mut from = 0;
        if self.big_endian.is_none() && all.len() >= 2 {
            self.big_endian = Some(all.starts_with(&[0xfe, 0xff]));
            from = if matches!(all[..2], [0xfe, 0xff] | [0xff, 0xfe]) { 2 } else { 0 };
        }
        let big = self.big_endian.unwrap_or(false);
        let mut units: Vec<u16> = all[from.min(all.len())..]
            .chunks_exact(2)
            .map(|pair| {
                if big {
                    u16::from_be_bytes([pair[0], pair[1]])
                } else {
                    u16::from_le_bytes([pair[0], pair[1]])
                }
            })
            .collect();
        let mut used = from + 2 * units.len();
        // The second half of a surrogate pair may follow.
        if units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
            used -= 2;
        }
        self.left = all[used.min(all.len())..].to_vec();
        match String::from_utf16(&units) {
            Ok(text) => Ok(text.into()),
            Err(_) => Err("the text is not valid UTF-16; give its encoding, or convert the file".to_string()),
        }
    }
}

/// Converts the start of a file to UTF-8 for the sniffer.
pub(crate) fn transcoded(encoding: Encoding, bytes: Bytes) -> Result<Bytes, String> {
    Transcoder::new(encoding).convert(bytes)
}
