//! Draws a result as a table, truncated to the size of a terminal.

use super::rows::{for_each_row, names, row_count};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use pellucid_model::units::grouped;
use pellucid_report::{columns as width, escaped, fit};
use std::io::{self, Write};

/// Limits on the part of a result that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisplayLimits {
    /// Maximum number of rows. Longer results show their first and last rows.
    pub max_rows: usize,
    /// Columns of the terminal. Wide cells are truncated to fit, down to a minimum; if that is not enough,
    /// columns in the middle are omitted.
    pub width: usize,
    /// True at the prompt, where a dot command shows the rest instead of an option.
    pub in_prompt: bool,
}

/// Minimum width to which a column is shrunk.
const MIN_COLUMN_WIDTH: usize = 6;

/// Returns whether the values of a type are right-aligned.
pub fn is_numeric(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// Draws the table. Without `limits`, shows all rows and complete cells.
pub fn write(
    out: &mut dyn Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    limits: Option<DisplayLimits>,
) -> io::Result<()> {
    if schema.fields().is_empty() {
        return Ok(());
    }
    let total = row_count(batches);
    let shown = limits.map_or(u64::MAX, |limits| limits.max_rows as u64);
    let (head, tail) = if total <= shown { (total, 0) } else { (shown.div_ceil(2), shown / 2) };
    let parts = [slice(batches, 0, head), slice(batches, total - tail, tail)];

    let header: Vec<Option<String>> = names(schema).map(|name| Some(name.to_string())).collect();
    let mut widths: Vec<usize> = header.iter().map(|name| width(&cell_text(name))).collect();
    for part in &parts {
        for_each_row(part, |cells| {
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = (*widest).max(width(&cell_text(cell)));
            }
            Ok(())
        })?;
    }
    let right = schema.fields().iter().map(|field| is_numeric(field.data_type()));
    let screen = limits.map_or(usize::MAX, |limits| limits.width);
    let rows = Hidden {
        count: total - head - tail,
        noun: "row",
        in_prompt: limits.is_some_and(|limits| limits.in_prompt),
    };
    let frame = Frame::new(&widths, right.collect(), rows, screen);

    frame.rule(out, "┌", "┬", "┐")?;
    frame.line(out, &header)?;
    frame.rule(out, "├", "┼", "┤")?;
    for_each_row(&parts[0], |cells| frame.line(out, cells))?;
    frame.note(out, frame.hidden_rows)?;
    for_each_row(&parts[1], |cells| frame.line(out, cells))?;
    if frame.hidden_columns.count > 0 {
        frame.rule(out, "├", "┴", "┤")?;
        frame.note(out, frame.hidden_columns)?;
        return frame.rule(out, "└", "─", "┘");
    }
    frame.rule(out, "└", "┴", "┘")
}

/// Rows or columns that are not shown.
#[derive(Clone, Copy)]
struct Hidden {
    count: u64,
    /// `row` or `column`.
    noun: &'static str,
    in_prompt: bool,
}

impl Hidden {
    /// Returns a note with their number, and with how to show them if that fits on the screen.
    fn note(self, screen: usize) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        let short = format!("… {} more {}{plural}", grouped(self.count), self.noun);
        let option = match self.noun {
            _ if self.in_prompt => ".mode csv prints",
            "row" => "--max-rows 0 shows",
            _ => "--format csv prints",
        };
        let long = format!("{short} ({option} all)");
        if width(&long) + 4 <= screen { long } else { short }
    }
}

/// The visible columns of a table and their widths.
struct Frame {
    /// Indexes of the visible columns; `None` represents the hidden ones.
    columns: Vec<Option<usize>>,
    widths: Vec<usize>,
    /// For each column of the table, whether its values are right-aligned.
    right: Vec<bool>,
    hidden_rows: Hidden,
    hidden_columns: Hidden,
    screen: usize,
}

impl Frame {
    /// Shrinks the widest columns to fit the screen, and hides columns in the middle if that is not
    /// enough. A table is at least as wide as its notes on hidden rows and columns.
    fn new(natural: &[usize], right: Vec<bool>, hidden_rows: Hidden, screen: usize) -> Frame {
        let all = natural.len();
        let (head, tail) = visible_columns(natural, screen);
        let hidden_columns = Hidden { count: (all - head - tail) as u64, noun: "column", ..hidden_rows };
        let rest = (hidden_columns.count > 0).then_some(None);
        let columns: Vec<Option<usize>> =
            (0..head).map(Some).chain(rest).chain((all - tail..all).map(Some)).collect();
        let mut widths: Vec<usize> = columns.iter().map(|c| c.map_or(1, |c| natural[c])).collect();
        shrink(&mut widths, screen);
        let notes = [hidden_rows, hidden_columns].into_iter().filter(|hidden| hidden.count > 0);
        let widest = notes.map(|hidden| width(&hidden.note(screen))).max().unwrap_or(0);
        let missing = widest.saturating_sub(inner(&widths));
        if let Some(last) = widths.last_mut() {
            *last += missing;
        }
        Frame { columns, widths, right, hidden_rows, hidden_columns, screen }
    }

    fn rule(&self, out: &mut dyn Write, left: &str, middle: &str, right: &str) -> io::Result<()> {
        let bars: Vec<String> = self.widths.iter().map(|width| "─".repeat(width + 2)).collect();
        writeln!(out, "{left}{}{right}", bars.join(middle))
    }

    /// Writes a row of the table; `cells` has one entry for each column of the result.
    fn line(&self, out: &mut dyn Write, cells: &[Option<String>]) -> io::Result<()> {
        for (column, columns) in self.columns.iter().zip(&self.widths) {
            let text = column.map_or_else(|| "…".to_string(), |c| fit(&cell_text(&cells[c]), *columns));
            let space = " ".repeat(columns.saturating_sub(width(&text)));
            if column.is_some_and(|c| self.right[c]) {
                write!(out, "│ {space}{text} ")?;
            } else {
                write!(out, "│ {text}{space} ")?;
            }
        }
        out.write_all("│\n".as_bytes())
    }

    /// Writes a line across the table with the number of hidden rows or columns, if any.
    fn note(&self, out: &mut dyn Write, hidden: Hidden) -> io::Result<()> {
        if hidden.count == 0 {
            return Ok(());
        }
        let text = hidden.note(self.screen);
        writeln!(out, "│ {text}{} │", " ".repeat(inner(&self.widths).saturating_sub(width(&text))))
    }
}

/// Returns the width between the outer bars of a frame, without their padding.
fn inner(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 3 * widths.len().saturating_sub(1)
}

/// Returns how many columns from either end fit the screen at their minimum widths, next to a column that
/// represents the hidden ones. Returns at least one.
fn visible_columns(natural: &[usize], screen: usize) -> (usize, usize) {
    let all = natural.len();
    let min_width = |column: usize| natural[column].min(MIN_COLUMN_WIDTH) + 3;
    if (0..all).map(min_width).sum::<usize>() < screen {
        return (all, 0);
    }
    let (mut head, mut tail) = (0, 0);
    // The outer bar, and the column that represents the hidden ones.
    let mut room = screen.saturating_sub(1 + 4);
    while head + tail < all {
        let column = if head > tail { all - 1 - tail } else { head };
        let Some(rest) = room.checked_sub(min_width(column)) else { break };
        room = rest;
        if head > tail { tail += 1 } else { head += 1 }
    }
    (head.max(1), tail)
}

fn slice(batches: &[RecordBatch], skip: u64, take: u64) -> Vec<RecordBatch> {
    let (mut skip, mut take) = (skip as usize, take as usize);
    let mut out = Vec::new();
    for batch in batches {
        let start = skip.min(batch.num_rows());
        let length = take.min(batch.num_rows() - start);
        if length > 0 {
            out.push(batch.slice(start, length));
        }
        skip -= start;
        take -= length;
    }
    out
}

/// Escapes control characters, which would break the frame or control the terminal.
fn escape_control(text: &str) -> String {
    if text.contains(['\n', '\r', '\t']) {
        let text = text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        return escaped(&text).into_owned();
    }
    escaped(text).into_owned()
}

fn cell_text(cell: &Option<String>) -> String {
    cell.as_deref().map_or_else(|| "NULL".to_string(), escape_control)
}

/// Shrinks the widest columns until the frame fits or all columns are at the minimum.
fn shrink(widths: &mut [usize], screen: usize) {
    let frame = 3 * widths.len() + 1;
    let mut excess = (widths.iter().sum::<usize>() + frame).saturating_sub(screen);
    while excess > 0 {
        let Some(widest) = widths.iter_mut().filter(|width| **width > MIN_COLUMN_WIDTH).max() else { return };
        *widest -= 1;
        excess -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::print;
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    #[test]
    fn box_right_aligns_numbers() {
        let expected = "\
┌─────┬──────────┬───────┬─────────────┐
│  id │ name     │ price │ wide        │
├─────┼──────────┼───────┼─────────────┤
│   1 │ a|b, \"c\" │ 10.50 │ 日本        │
│  20 │          │  NULL │ é           │
│ 300 │ NULL     │ -0.05 │ line\\nbreak │
└─────┴──────────┴───────┴─────────────┘
";
        assert_eq!(print(Format::Box, None), expected);
    }

    #[test]
    fn long_box_shows_both_ends_and_counts_hidden_rows() {
        let text = print(Format::Box, Some(DisplayLimits { max_rows: 2, width: 120, in_prompt: false }));
        assert!(text.contains("│   1 │") && text.contains("│ 300 │") && !text.contains("│  20 │"), "{text}");
        assert!(text.contains("│ … 1 more row (--max-rows 0 shows all) │\n"), "{text}");
    }

    #[test]
    fn narrow_screen_truncates_the_widest_cells() {
        let text = print(Format::Box, Some(DisplayLimits { max_rows: 10, width: 34, in_prompt: false }));
        assert!(text.lines().all(|line| width(line) == 34), "{text}");
        assert!(text.contains("…"), "{text}");
    }

    #[test]
    fn control_characters_in_cells_are_escaped() {
        assert_eq!(escape_control("a\u{1b}[2J\tb\nc\u{202e}"), "a\\u001b[2J\\tb\\nc\\u202e");
        assert_eq!(escape_control("日本 é"), "日本 é");
    }

    /// Draws a table of `columns` integer columns with `rows` rows.
    fn wide(columns: usize, rows: i64, screen: usize) -> String {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| 1_000_000 + row)));
        let batch = (0..columns).map(|column| (format!("column {column}"), Arc::clone(&numbers)));
        let batch = RecordBatch::try_from_iter(batch).unwrap();
        let mut out = Vec::new();
        let limits = DisplayLimits { max_rows: 4, width: screen, in_prompt: false };
        write(&mut out, &batch.schema(), &[batch], Some(limits)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_that_do_not_fit_are_hidden_in_the_middle_and_counted() {
        for (columns, screen, drawn) in [(16, 120, 12), (16, 80, 8), (16, 40, 3), (3_000, 80, 8)] {
            let text = wide(columns, 3, screen);
            let widths: Vec<usize> = text.lines().map(width).collect();
            assert!(widths.iter().all(|w| *w == widths[0] && *w <= screen), "{text}");
            let header: Vec<&str> = text.lines().nth(1).unwrap().split('│').map(str::trim).collect();
            assert!([1, header.len() - 2].iter().all(|end| header[*end].starts_with("colum")), "{text}");
            // Subtract the column for the hidden ones and the two empty parts outside the bars.
            assert_eq!(header.len() - 3, drawn, "{text}");
            let note = format!("… {} more columns", grouped((columns - drawn) as u64));
            assert!(text.contains(&note), "{text}");
        }
        let fits = wide(4, 3, 40);
        assert!(fits.lines().all(|line| width(line) == 40) && !fits.contains("more column"), "{fits}");
    }

    #[test]
    fn notes_at_the_prompt_name_a_dot_command() {
        let text = print(Format::Box, Some(DisplayLimits { max_rows: 2, width: 120, in_prompt: true }));
        assert!(text.contains("… 1 more row (.mode csv prints all)"), "{text}");
    }

    #[test]
    fn hidden_rows_note_is_never_truncated() {
        for (columns, screen, note) in [
            (1, 80, "│ … 6 more rows (--max-rows 0 shows all) │"),
            (1, 40, "│ … 6 more rows │"),
            (16, 40, "│ … 6 more rows "),
        ] {
            let text = wide(columns, 10, screen);
            assert!(text.contains(note), "{text}");
            assert!(text.lines().all(|line| width(line) <= screen), "{text}");
        }
    }
}
