//! A drawn table, cut to the screen when it is printed on one.

use super::width::{fit, width};
use super::{for_each_row, names, row_count};
use crate::units::format_count;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use std::io::{self, Write};

/// How much of a result a screen takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Rows; of more, the first and the last halves are shown.
    pub rows: usize,
    /// Columns of the terminal; wide cells are shortened to fit, down to a minimum.
    pub width: usize,
}

/// No column is made narrower than this to fit the screen.
const NARROWEST: usize = 6;

/// Whether a column's values are aligned at their right end.
pub fn is_numeric(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// Draws the table. Without `cut`, every row and every cell is whole.
pub fn write(
    out: &mut dyn Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
    cut: Option<Cut>,
) -> io::Result<()> {
    if schema.fields().is_empty() {
        return Ok(());
    }
    let total = row_count(batches);
    let shown = cut.map_or(u64::MAX, |cut| cut.rows as u64);
    let (head, tail) = if total <= shown { (total, 0) } else { (shown.div_ceil(2), shown / 2) };
    let parts = [slice(batches, 0, head), slice(batches, total - tail, tail)];

    let header: Vec<String> = names(schema).map(clean).collect();
    let mut widths: Vec<usize> = header.iter().map(|name| width(name)).collect();
    for part in &parts {
        for_each_row(part, |cells| {
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = (*widest).max(width(&cell_text(cell)));
            }
            Ok(())
        })?;
    }
    if let Some(cut) = cut {
        shrink(&mut widths, cut.width);
    }

    let right: Vec<bool> = schema.fields().iter().map(|field| is_numeric(field.data_type())).collect();
    rule(out, &widths, "┌", "┬", "┐")?;
    line(out, &widths, &right, header.iter().cloned())?;
    rule(out, &widths, "├", "┼", "┤")?;
    for_each_row(&parts[0], |cells| line(out, &widths, &right, cells.iter().map(cell_text)))?;
    if total > shown {
        let hidden = format!("… {} more rows (--format csv prints all)", format_count(total - head - tail));
        let inner = widths.iter().sum::<usize>() + 3 * (widths.len() - 1);
        line(out, &[inner], &[false], std::iter::once(hidden))?;
        for_each_row(&parts[1], |cells| line(out, &widths, &right, cells.iter().map(cell_text)))?;
    }
    rule(out, &widths, "└", "┴", "┘")
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

/// What would break the frame, made visible.
fn clean(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_string();
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn cell_text(cell: &Option<String>) -> String {
    cell.as_deref().map_or_else(|| "NULL".to_string(), clean)
}

/// Takes from the widest columns until the frame fits or all are at the minimum.
fn shrink(widths: &mut [usize], screen: usize) {
    let frame = 3 * widths.len() + 1;
    let mut excess = (widths.iter().sum::<usize>() + frame).saturating_sub(screen);
    while excess > 0 {
        let Some(widest) = widths.iter_mut().filter(|width| **width > NARROWEST).max() else { return };
        *widest -= 1;
        excess -= 1;
    }
}

fn rule(out: &mut dyn Write, widths: &[usize], left: &str, middle: &str, right: &str) -> io::Result<()> {
    let bars: Vec<String> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
    writeln!(out, "{left}{}{right}", bars.join(middle))
}

fn line(
    out: &mut dyn Write,
    widths: &[usize],
    right: &[bool],
    cells: impl Iterator<Item = String>,
) -> io::Result<()> {
    for ((columns, right), cell) in widths.iter().zip(right).zip(cells) {
        let text = fit(&cell, *columns);
        let space = " ".repeat(columns.saturating_sub(width(&text)));
        if *right { write!(out, "│ {space}{text} ")? } else { write!(out, "│ {text}{space} ")? }
    }
    out.write_all("│\n".as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::print;
    use super::*;

    #[test]
    fn numbers_stand_at_the_right_and_frames_close() {
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
    fn a_screen_shows_both_ends_and_says_what_it_left_out() {
        let text = print(Format::Box, Some(Cut { rows: 2, width: 120 }));
        assert!(text.contains("│   1 │") && text.contains("│ 300 │") && !text.contains("│  20 │"), "{text}");
        assert!(text.contains("… 1 more rows"), "{text}");
    }

    #[test]
    fn a_narrow_screen_shortens_the_widest_cells() {
        let text = print(Format::Box, Some(Cut { rows: 10, width: 34 }));
        assert!(text.lines().all(|line| width(line) == 34), "{text}");
        assert!(text.contains("…"), "{text}");
    }
}
