//! Sorts a table by a column, one range of keys after the other.

use super::source::{RowsWritten, Source, TABLE, cancellable, column_name, statement};
use crate::execute::execute;
use crate::failure::Failure;
use arrow::array::{Array, ArrayRef};
use arrow::compute::sort;
use arrow::util::display::array_value_to_string;
use pellucid_layout::{Layout, LayoutError, Limits, Sample, TableFile, TableWriter};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Memory that sorting takes, per byte of decoded rows: they are held as decoded, by partition, and as sorted.
const MEMORY_PER_BYTE: f64 = 3.0;
/// Memory to use if the system does not tell what is available.
const USUAL_MEMORY: u64 = 1 << 30;
/// Number of ranges, at most. Each reads the table's column of keys.
const MOST_RANGES: usize = 256;

/// Writes the table in the order of a column, and returns the bytes written.
///
/// # Errors
/// Returns an error if the table cannot be read, sorted or written.
pub fn write(
    source: &Source<'_>,
    layout: &Layout,
    column: &str,
    file: &Path,
    memory: Option<u64>,
) -> Result<u64, Failure> {
    let key = column_name(column);
    let mut writer = None;
    let mut written = RowsWritten::new(source);
    for range in ranges(source, column, memory)? {
        let sql = format!("SELECT * FROM {TABLE} {range} ORDER BY {key} ASC NULLS LAST");
        let result = execute(source.engine, statement(&sql)?, None, source.console)?.result;
        let (cancelled, _guard) = cancellable();
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(TableWriter::create(file, &result.schema, layout)?),
        };
        for batch in result.batches {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            written.add(batch.num_rows() as u64);
            writer.write(batch)?;
        }
    }
    Ok(writer.map_or(Ok((0, 0)), TableWriter::finish).map_err(Failure::from)?.1)
}

/// Returns a WHERE clause for each range of keys, ascending; together they have every row once. A single one is empty.
fn ranges(source: &Source<'_>, column: &str, memory: Option<u64>) -> Result<Vec<String>, Failure> {
    let (groups, schema) = (TableFile::row_groups(&source.files), Some(&source.scan.schema));
    let sample = Sample::read(&groups, &source.scan.columns, schema, Limits::default())?;
    let decoded: usize = sample.batches()?.iter().map(|batch| batch.get_array_memory_size()).sum();
    let needed = decoded as f64 / sample.rows.max(1) as f64 * source.rows as f64 * MEMORY_PER_BYTE;
    let memory = memory.unwrap_or_else(|| available().map_or(USUAL_MEMORY, |bytes| bytes / 2)).max(1);
    let count = (needed / memory as f64).ceil().max(1.0) as usize;
    if count == 1 {
        return Ok(vec![String::new()]);
    }
    let limits = Limits { groups: 64, rows: 2_000_000, ..Limits::default() };
    let keys = Sample::read(&groups, &[column.to_string()], schema, limits)?;
    let keys = keys.batches()?;
    let arrays: Vec<&dyn Array> = keys.iter().map(|batch| batch.column(0).as_ref()).collect();
    let sorted = sort(&arrow::compute::concat(&arrays).map_err(LayoutError::from)?, None);
    let bounds = bounds(&sorted.map_err(LayoutError::from)?, count.min(MOST_RANGES))?;
    let key = column_name(column);
    let mut ranges = Vec::new();
    for (at, bound) in bounds.iter().enumerate() {
        let above = at.checked_sub(1).map(|before| format!("{key} >= {} AND ", bounds[before]));
        ranges.push(format!("WHERE {}{key} < {bound}", above.unwrap_or_default()));
    }
    // NULL and NaN too.
    ranges.push(bounds.last().map_or(String::new(), |last| format!("WHERE ({key} < {last}) IS NOT TRUE")));
    Ok(ranges)
}

/// Returns the keys, as literals, that divide sorted keys into `count` ranges.
fn bounds(sorted: &ArrayRef, count: usize) -> Result<Vec<String>, Failure> {
    let mut bounds: Vec<String> = Vec::new();
    for part in 1..count {
        let at = sorted.len() * part / count;
        if sorted.is_empty() || sorted.is_null(at) {
            continue;
        }
        let text = array_value_to_string(sorted, at).map_err(LayoutError::from)?;
        // Text is compared as the type of the column.
        let literal = match sorted.data_type().is_numeric() {
            true => text,
            false => format!("'{}'", text.replace('\'', "''")),
        };
        if !bounds.contains(&literal) && literal != "NaN" {
            bounds.push(literal);
        }
    }
    Ok(bounds)
}

/// Returns the memory that the system can give without swapping.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn bounds_are_distinct_literals() {
        let numbers: ArrayRef =
            Arc::new(Int32Array::from(vec![None, Some(-1), Some(1), Some(1), Some(1), Some(9)]));
        assert_eq!(bounds(&numbers, 3).ok(), Some(vec!["1".to_string()]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "it's"]));
        assert_eq!(bounds(&texts, 2).ok(), Some(vec!["'it''s'".to_string()]));
        assert_eq!(
            bounds(&(Arc::new(Int32Array::from(Vec::<i32>::new())) as ArrayRef), 4).ok(),
            Some(vec![])
        );
    }
}
