//! Export to Parquet files, one for each kind of record.
//!
//! `docs/exports.md` lists the columns. `id` is a record's index in the trace. References to other records
//! are indices and, where that saves a join, names. Every kind has a file, even without rows, so that
//! queries work on any trace. Values that were not measured are NULL.

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

/// Number of rows in a batch.
const BATCH: usize = 65_536;

/// Writes a trace's records. `open` creates each file by its name, such as `monotasks.parquet`.
///
/// # Errors
/// Returns errors of `open` and of its writers.
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
    let (jobs, stages) = (
        tables::with_ends(&trace.jobs, &trace.job_ends, |end| end.job),
        tables::with_ends(&trace.stages, &trace.stage_ends, |end| end.stage),
    );
    write!("jobs", tables::jobs(), jobs);
    write!("stages", tables::stages(), stages);
    write!("multitasks", tables::multitasks(trace), trace.multitasks.iter());
    write!("monotasks", tables::monotasks(trace), trace.monotasks.iter());
    write!("operators", tables::operators(trace), trace.operators.iter());
    write!("columns", tables::columns(trace), tables::columns_of(trace));
    write!("expressions", tables::expressions(trace), tables::expressions_of(trace));
    write!("stacks", tables::stacks(trace), trace.stacks.iter());
    write!("pipelined_tasks", tables::pipelined_tasks(trace), trace.pipelined_tasks.iter());
    write!("sampled_tasks", tables::sampled_tasks(trace), trace.sampled_tasks.iter());
    write!("exchanges", tables::exchanges(trace), trace.exchanges.iter());
    write!("storage_operations", tables::storage_operations(trace), trace.storage_operations.iter());
    write!("concurrency_changes", tables::concurrency_changes(trace), trace.concurrency_changes.iter());
    write!("utilization_samples", tables::utilization_samples(trace), trace.utilization_samples.iter());
    Ok(())
}

/// Writes one table.
fn table<R>(
    mut columns: Vec<Column<'_, R>>,
    mut rows: impl Iterator<Item = (usize, R)>,
    out: impl Write + Send,
) -> io::Result<()> {
    columns.insert(0, Column::id());
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
