//! CSV and TSV files: one row per line; fields are numbers, `true` or `false`, optionally quoted.
//!
//! Opening a file scans all lines once and records the offsets of some, so that each partition can read its
//! own part of the file. Line breaks within quotes are not supported; convert such files with `pellucid sql`
//! first.

use super::{Column, InputError, Sink};
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// Number of rows between recorded offsets.
const STRIDE: usize = 4096;

/// An opened file.
#[derive(Debug)]
pub struct Csv {
    separator: u8,
    /// True if the first line holds column names.
    header: bool,
    /// Starts of rows 0, `STRIDE`, 2 × `STRIDE` and so on: offset in bytes, and line number from 1.
    places: Vec<(u64, usize)>,
}

impl Csv {
    /// Opens a file, and returns its columns and number of rows.
    pub fn open(path: &Path) -> Result<(Self, Vec<Column>, usize), InputError> {
        let separator = if path.extension().is_some_and(|ending| ending == "tsv") { b'\t' } else { b',' };
        let failed = |e| InputError::io("read", path, &e);
        let mut reader = BufReader::with_capacity(1 << 20, fs::File::open(path).map_err(failed)?);
        let mut first: Option<Vec<u8>> = None;
        let mut second: Option<Vec<u8>> = None;
        let mut csv = Csv { separator, header: false, places: Vec::new() };
        let (mut offset, mut number, mut rows) = (0, 0, 0);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(failed)?;
            if length == 0 {
                break;
            }
            number += 1;
            let start = offset;
            offset += length as u64;
            if line.trim_ascii().is_empty() {
                continue;
            }
            if first.is_none() {
                first = Some(line.clone());
                csv.header = fields(&line, separator).any(|field| number_of(field).is_none());
                if csv.header {
                    continue;
                }
            }
            second.get_or_insert_with(|| line.clone());
            if rows % STRIDE == 0 {
                csv.places.push((start, number));
            }
            rows += 1;
        }
        let (first, second) = (first.unwrap_or_default(), second.unwrap_or_default());
        let columns = columns(&first, &second, separator, csv.header);
        Ok((csv, columns, rows))
    }

    /// Reads rows; see [`super::Table::read`]. `columns` are indexes of fields in a line.
    pub fn read(
        &self,
        path: &Path,
        rows: Range<usize>,
        columns: &[usize],
        sink: &mut Sink,
    ) -> Result<(), InputError> {
        let failed = |e| InputError::io("read", path, &e);
        let Some((offset, first)) = self.places.get(rows.start / STRIDE) else {
            return Ok(());
        };
        let mut file = fs::File::open(path).map_err(failed)?;
        file.seek(SeekFrom::Start(*offset)).map_err(failed)?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut number, mut row) = (*first, rows.start / STRIDE * STRIDE);
        let mut line = Vec::new();
        while row < rows.end && reader.by_ref().read_until(b'\n', &mut line).map_err(failed)? > 0 {
            if !line.trim_ascii().is_empty() {
                if row >= rows.start {
                    let values: Vec<&[u8]> = fields(&line, self.separator).collect();
                    for (place, column) in columns.iter().enumerate() {
                        let at = || format!("{}, line {number}, column {}", path.display(), column + 1);
                        let field = values.get(*column).ok_or_else(|| {
                            InputError::Failed(format!(
                                "{}: the line has too few columns ({})",
                                at(),
                                values.len()
                            ))
                        })?;
                        let value = number_of(field).ok_or_else(|| {
                            let text = String::from_utf8_lossy(field);
                            InputError::Failed(if text.is_empty() {
                                format!("{}: the value is missing; fill it in or remove the row", at())
                            } else {
                                format!("{}: {text:?} is not a number", at())
                            })
                        })?;
                        sink(row - rows.start, place, value);
                    }
                }
                row += 1;
            }
            number += 1;
            line.clear();
        }
        Ok(())
    }
}

/// Derives names from the header, or `c1`, `c2` and so on, and types from the first row.
fn columns(first: &[u8], second: &[u8], separator: u8, header: bool) -> Vec<Column> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut values = fields(second, separator);
    let named = fields(first, separator).enumerate();
    named
        .map(|(number, name)| {
            let value = values.next().unwrap_or_default();
            let numeric = number_of(value).is_some() || value.is_empty();
            let name = if header { text(name) } else { format!("c{}", number + 1) };
            Column { name, other: (!numeric).then(|| format!("text ({:?})", text(value))) }
        })
        .collect()
}

/// Splits a line into fields, without surrounding quotes and whitespace.
fn fields(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line.trim_ascii_end());
    std::iter::from_fn(move || {
        let line = rest?;
        let mut quoted = false;
        let end = line.iter().position(|byte| {
            quoted ^= *byte == b'"';
            *byte == separator && !quoted
        });
        rest = end.map(|end| &line[end + 1..]);
        let field = line[..end.unwrap_or(line.len())].trim_ascii();
        Some(field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field))
    })
}

/// Parses a field. Accepts `NaN` and `inf`, which [`super::Table::read`] rejects with a better message.
fn number_of(field: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(field).ok()?;
    match text {
        "true" | "True" | "TRUE" => Some(1.0),
        "false" | "False" | "FALSE" => Some(0.0),
        _ => text.parse().ok(),
    }
}
