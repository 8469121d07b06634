//! Decodes the records of a JSON file, or of a piece of one.

use bytes::Bytes;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::tables::json::build::{Builder, Wrong, members};
use crate::tables::json::parse::{Kind, Parser};
use crate::tables::json::{JsonFormat, Layout};
use crate::tables::text::{Decoder, Misfit, Part, Pending, line_ends};

/// The state within a file that is one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// The file may begin with a list.
    Unknown,
    /// Records follow each other without commas.
    No,
    /// After the opening bracket.
    Open,
    /// After a record.
    Within,
    Closed,
}

/// A decoder of JSON.
pub(super) struct JsonDecoder {
    pending: Pending,
    part: Part,
    skips_line: bool,
    list: List,
    bare: bool,
    lines: bool,
    done: bool,
    keys: Vec<String>,
    builders: Vec<Builder>,
    schema: SchemaRef,
    batch_rows: usize,
}

impl JsonDecoder {
    pub(super) fn new(
        format: &JsonFormat,
        part: Part,
        builders: Vec<(String, Builder)>,
        schema: SchemaRef,
        batch_rows: usize,
    ) -> Self {
        let (keys, builders) = builders.into_iter().unzip();
        let list = match format.options.layout {
            Layout::Auto if !format.lines => List::Unknown,
            Layout::List => List::Unknown,
            _ => List::No,
        };
        Self {
            pending: Pending::new(part.from),
            part,
            skips_line: part.skips_line,
            list,
            bare: format.bare,
            lines: format.lines,
            done: false,
            keys,
            builders,
            schema,
            batch_rows,
        }
    }

    /// Skips to the first line that starts in the piece; returns false if more bytes are needed.
    fn begin(&mut self) -> bool {
        if !self.skips_line {
            return true;
        }
        let line = self.pending.left().iter().position(|byte| *byte == b'\n');
        self.pending.skip(line.map_or(self.pending.left().len(), |line| line + 1));
        self.skips_line = line.is_none();
        if self.skips_line {
            self.done |= self.part.until.is_some_and(|until| self.pending.position() >= until);
        }
        !self.skips_line
    }

    /// Decodes up to a batch of records and returns their number.
    fn decode(&mut self) -> Result<usize, Misfit> {
        let text = self.pending.bytes_left();
        let (position, lines) = (self.pending.position(), self.pending.lines());
        let (mut rows, mut used) = (0, 0);
        let mark = usize::from(position == 0 && text.starts_with(b"\xef\xbb\xbf")) * 3;
        let mut at = mark;
        while rows < self.batch_rows {
            let misfit = |place: usize, message: String| {
                let place = place.min(text.len());
                Misfit { lines_before: lines + line_ends(&text[..place]), message }
            };
            let malformed = |place: usize, why: &str| {
                misfit(place, format!("the text is not valid JSON: {why}; correct the line"))
            };
            let mut parser = Parser::new(&text, at);
            if parser.is_at_end() {
                used = if self.pending.ended { text.len() } else { at };
                self.done = self.pending.ended;
                if self.done && matches!(self.list, List::Open | List::Within) {
                    return Err(malformed(text.len(), "the list is not closed"));
                }
                break;
            }
            let start = parser.at();
            if self.part.until.is_some_and(|until| position + start as u64 >= until) {
                self.done = true;
                used = start;
                break;
            }
            match self.list {
                List::Unknown => {
                    self.list = if parser.accept(b'[') { List::Open } else { List::No };
                    at = parser.at();
                    used = at;
                    continue;
                }
                List::Open | List::Within if parser.accept(b']') => {
                    self.list = List::Closed;
                    at = parser.at();
                    used = at;
                    continue;
                }
                List::Within if !parser.accept(b',') => {
                    return Err(malformed(start, "expected , or ] after a record"));
                }
                List::Closed => return Err(malformed(start, "text follows the list")),
                _ => {}
            }
            // The record is decoded only once all of it is there.
            let end = if self.lines {
                text[start..].iter().position(|byte| *byte == b'\n').map(|end| start + end)
            } else {
                let mut ahead = parser.clone();
                match ahead.skip() {
                    // A number may go on.
                    Ok(_) if ahead.at() < text.len() || self.pending.ended => Some(ahead.at()),
                    Err(error) if error.at < text.len() => return Err(malformed(error.at, error.why)),
                    _ => None,
                }
            };
            let whole = match end {
                Some(end) => &text[..end],
                None if self.pending.ended => &text[..],
                None => break,
            };
            let mut record = Parser::new(whole, parser.at());
            let appended = self.append(&mut record);
            match appended {
                Ok(()) => {}
                Err(Wrong::Malformed(error)) => {
                    return Err(malformed(error.at.min(whole.len().saturating_sub(1)), error.why));
                }
                Err(Wrong::Misfit(message)) => return Err(misfit(start, message)),
            }
            at = record.at();
            used = at;
            rows += 1;
            self.builders.iter_mut().for_each(|builder| builder.pad(rows));
            if matches!(self.list, List::Open) {
                self.list = List::Within;
            }
        }
        self.pending.skip(used);
        Ok(rows)
    }

    fn append(&mut self, record: &mut Parser<'_>) -> Result<(), Wrong> {
        if self.bare {
            return match self.builders.first_mut() {
                Some(only) => only.append(record),
                None => {
                    record.skip()?;
                    Ok(())
                }
            };
        }
        match record.kind()? {
            Kind::Object => members(record, &self.keys, &mut self.builders),
            Kind::Null => {
                record.word()?;
                Ok(())
            }
            _ => Err(Wrong::Misfit(
                "expected an object, found another value; use read_json_objects".to_string(),
            )),
        }
    }
}

impl Decoder for JsonDecoder {
    fn push(&mut self, bytes: Bytes) -> Result<(), Misfit> {
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
        let rows = self.decode()?;
        if rows == 0 {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map(Some)
            .map_err(|error| Misfit { lines_before: self.pending.lines(), message: error.to_string() })
    }

    fn is_done(&self) -> bool {
        self.done
    }
}
