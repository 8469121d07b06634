//! Formats results as text: box, CSV, JSON and Markdown.
//!
//! All formats stream to a writer; only the column widths of a box are computed in
//! advance. Values have the same text in box, CSV and Markdown. `json` has its own rules,
//! because JSON has types.
//!
//! `-o FILE` uses the engine's `COPY`, which writes with write monotasks. Rows from Spark
//! are written by [`write_file`].

mod boxes;
mod file;
mod json;
mod rows;

pub use boxes::DisplayLimits;
pub use file::{check_local, check_outputs, write_file, write_whole, write_whole_folder};
pub use json::result_document;
pub use rows::{for_each_row, row_count};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use rows::names;
use std::io::{self, Write};

/// Output format of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table drawn with lines; truncated to the size of a terminal.
    Box,
    /// Comma-separated values with a header; NULL is empty, empty text is "".
    Csv,
    /// An array of objects, one row per line; values as in `--json`.
    Json,
    /// A Markdown table.
    Markdown,
}

/// Prints a result.
///
/// `limits` truncates a box; the other formats are always complete.
///
/// # Errors
/// Returns the errors of the writer, and `InvalidData` for a value that cannot be
/// formatted (a date out of range).
pub fn write_result(
    out: &mut dyn Write,
    format: Format,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    limits: Option<DisplayLimits>,
) -> io::Result<()> {
    match format {
        Format::Box => boxes::write(out, schema, batches, limits),
        Format::Csv => write_csv(out, schema, batches),
        Format::Json => json::write_objects(out, schema, batches),
        Format::Markdown => write_markdown(out, schema, batches),
    }
}

fn write_csv(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    write_csv_line(out, names(schema).map(Some))?;
    for_each_row(batches, |cells| write_csv_line(out, cells.iter().map(Option::as_deref)))
}

fn write_csv_line<'a>(out: &mut dyn Write, cells: impl Iterator<Item = Option<&'a str>>) -> io::Result<()> {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        match cell {
            None => {}
            Some(text) if text.is_empty() || text.contains(['"', ',', '\n', '\r']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            Some(text) => out.write_all(text.as_bytes())?,
        }
    }
    out.write_all(b"\n")
}

fn write_markdown(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    write_markdown_line(out, names(schema).map(Some))?;
    let rules =
        schema.fields().iter().map(|f| Some(if boxes::is_numeric(f.data_type()) { "---:" } else { "---" }));
    write_markdown_line(out, rules)?;
    for_each_row(batches, |cells| write_markdown_line(out, cells.iter().map(Option::as_deref)))
}

fn write_markdown_line<'a>(
    out: &mut dyn Write,
    cells: impl Iterator<Item = Option<&'a str>>,
) -> io::Result<()> {
    for cell in cells {
        let text = cell.unwrap_or("NULL");
        write!(out, "| {} ", text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', "<br>"))?;
    }
    out.write_all(b"|\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Decimal128Array, Int64Array, StringArray};
    use std::sync::Arc;

    /// Returns three rows with edge cases: NULL, empty text, quotes, bars, wide characters.
    pub(super) fn sample() -> (SchemaRef, Vec<RecordBatch>) {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(Int64Array::from(vec![1, 20, 300]))),
            ("name", Arc::new(StringArray::from(vec![Some("a|b, \"c\""), Some(""), None]))),
            (
                "price",
                Arc::new(
                    Decimal128Array::from(vec![Some(1050), None, Some(-5)])
                        .with_precision_and_scale(15, 2)
                        .unwrap(),
                ),
            ),
            ("wide", Arc::new(StringArray::from(vec!["日本", "é", "line\nbreak"]))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )
        .unwrap();
        (batch.schema(), vec![batch])
    }

    pub(super) fn print(format: Format, limits: Option<DisplayLimits>) -> String {
        let (schema, batches) = sample();
        let mut out = Vec::new();
        write_result(&mut out, format, &schema, &batches, limits).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_distinguishes_null_from_empty_text() {
        let expected = "id,name,price,wide\n\
            1,\"a|b, \"\"c\"\"\",10.50,日本\n\
            20,\"\",,é\n\
            300,,-0.05,\"line\nbreak\"\n";
        assert_eq!(print(Format::Csv, None), expected);
    }

    #[test]
    fn markdown_escapes_bars_and_line_breaks() {
        let expected = "| id | name | price | wide |\n\
            | ---: | --- | ---: | --- |\n\
            | 1 | a\\|b, \"c\" | 10.50 | 日本 |\n\
            | 20 |  | NULL | é |\n\
            | 300 | NULL | -0.05 | line<br>break |\n";
        assert_eq!(print(Format::Markdown, None), expected);
    }
}
