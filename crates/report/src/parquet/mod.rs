//! A trace as Parquet files, one for each kind of record, for DuckDB, Spark or pandas.
//!
//! The columns are listed in `docs/exports.md`. A record's index in the trace is its `id`, and what it
//! refers to stands beside it by index and, where that saves a join, by name. Every kind has its file,
//! if only with no rows, so that a query need not ask which there are. What was not measured is NULL.

mod columns;
mod tables;

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use pellucid_trace::Trace;

use columns::Column;

/// Rows that are turned into columns at once.
const BATCH: usize = 65_536;

/// Writes a trace's records; `open` is asked for each file by its name (`monotasks.parquet`).
///
/// # Errors
/// Those of `open` and of what it gave.
pub fn parquet<W: Write + Send>(
    trace: &Trace,
    mut open: impl FnMut(&str) -> io::Result<W>,
) -> io::Result<()> {
    macro_rules! write {
        ($name:literal, $columns:expr, $rows:expr) => {
            table($columns, $rows.enumerate(), open(concat!($name, ".parquet"))?)?
        };
    }
    write!("machines", tables::machines(), trace.machines.iter());
    write!("resources", tables::resources(trace), trace.resources.iter());
    write!("jobs", tables::jobs(trace), trace.jobs.iter());
    write!("stages", tables::stages(trace), trace.stages.iter());
    write!("multitasks", tables::multitasks(trace), trace.multitasks.iter());
    write!("monotasks", tables::monotasks(trace), trace.monotasks.iter());
    write!("pipelined_tasks", tables::pipelined_tasks(trace), trace.pipelined_tasks.iter());
    write!("sampled_tasks", tables::sampled_tasks(trace), trace.sampled_tasks.iter());
    write!("exchanges", tables::exchanges(trace), trace.exchanges.iter());
    write!("storage_operations", tables::storage_operations(trace), trace.storage_operations.iter());
    write!("concurrency_changes", tables::concurrency_changes(trace), trace.concurrency_changes.iter());
    write!("utilization_samples", tables::utilization_samples(trace), trace.utilization_samples.iter());
    Ok(())
}

/// Writes one table: an index first, then the columns.
fn table<R>(
    columns: Vec<Column<'_, R>>,
    mut rows: impl Iterator<Item = (usize, R)>,
    out: impl Write + Send,
) -> io::Result<()> {
    let fields: Vec<Field> = columns.iter().map(Column::field).collect();
    let schema = Arc::new(Schema::new(fields));
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(io::Error::other)?;
    loop {
        let batch: Vec<(usize, R)> = rows.by_ref().take(BATCH).collect();
        let arrays = columns.iter().map(|column| column.array(&batch)).collect();
        let batch_of = RecordBatch::try_new(schema.clone(), arrays).map_err(io::Error::other)?;
        writer.write(&batch_of).map_err(io::Error::other)?;
        if batch.len() < BATCH {
            break;
        }
    }
    writer.close().map_err(io::Error::other)?;
    Ok(())
}
