//! Writes tables as Parquet files, on all cores and in bounded memory.
//!
//! Workers take parts in order over all tables, generate and encode them, and
//! whoever finishes a part appends what is next in its file. A part that ends
//! before its turn waits encoded; a worker takes no new part while [`WAITING_PARTS`]
//! a worker wait. The part that the others wait for has been taken already, so
//! this cannot come to a standstill.
//!
//! How a single file comes to be is in `file`.

use super::file::{RowGroup, TableFile, WriteError, Written};
use super::{ROW_GROUP_ROWS, Table};
use arrow::array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many encoded parts a worker may have waiting for their turn, on average.
const WAITING_PARTS: usize = 2;

/// What to write and where.
pub struct Request<'a> {
    /// The tables; each becomes `directory/<name>.parquet`.
    pub tables: &'a [Table],
    /// Directory that exists.
    pub directory: &'a Path,
    /// Worker threads, at least one.
    pub workers: usize,
    /// Set from outside to stop; noticed within a batch.
    pub cancelled: &'a AtomicBool,
    /// Called from the workers with the rows of each batch, for progress.
    pub on_rows: &'a (dyn Fn(u64) + Sync),
}

/// Writes all tables, replacing files of the same names. On an error or
/// cancellation no file appears that is not whole; those that were already done stay.
pub fn write(request: &Request) -> Result<Vec<Written>, WriteError> {
    let state = Mutex::new(State {
        next: (0, 0),
        waiting: 0,
        files: request.tables.iter().map(|_| Progress::default()).collect(),
        error: None,
    });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..request.workers {
            scope.spawn(|| {
                // A worker that panicked must stop the others: they may wait for its part.
                let result = catch_unwind(AssertUnwindSafe(|| work(request, &state, &changed)));
                if let Err(error) = result.unwrap_or(Err(WriteError::Panicked)) {
                    lock(&state).error.get_or_insert(error);
                    changed.notify_all();
                }
            });
        }
    });
    let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.error {
        Some(error) => Err(error),
        None => Ok(state.files.into_iter().filter_map(|file| file.written).collect()),
    }
}

struct State {
    /// Table and part that nobody has taken yet.
    next: (usize, u64),
    /// Encoded parts that wait for their turn, over all tables.
    waiting: usize,
    files: Vec<Progress>,
    /// The first error; it stops everyone.
    error: Option<WriteError>,
}

/// How far one table's file is.
#[derive(Default)]
struct Progress {
    /// Absent before the first part is taken, while a worker appends, and at the end.
    file: Option<TableFile>,
    factory: Option<Arc<ArrowRowGroupWriterFactory>>,
    /// Parts that are appended or being appended.
    appended: u64,
    /// Parts that ended before their turn.
    encoded: BTreeMap<u64, Vec<RowGroup>>,
    written: Option<Written>,
}

fn lock<'a>(state: &'a Mutex<State>) -> MutexGuard<'a, State> {
    // No lock is held while anything of others' runs that may panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(request: &Request, state: &Mutex<State>, changed: &Condvar) -> Result<(), WriteError> {
    while let Some((table, part, factory)) = take(request, state, changed)? {
        let row_groups = encode(request, &request.tables[table], part, &factory)?;
        append(request, state, changed, table, part, row_groups)?;
    }
    Ok(())
}

/// The next part to make, once few enough wait. `None`: all are taken, or it is over.
fn take(
    request: &Request,
    state: &Mutex<State>,
    changed: &Condvar,
) -> Result<Option<(usize, u64, Arc<ArrowRowGroupWriterFactory>)>, WriteError> {
    let mut state = lock(state);
    while state.error.is_none() && state.waiting >= WAITING_PARTS * request.workers {
        state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let (table, part) = state.next;
    if state.error.is_some() || table == request.tables.len() {
        return Ok(None);
    }
    state.next = if part + 1 < request.tables[table].parts { (table, part + 1) } else { (table + 1, 0) };
    let progress = &mut state.files[table];
    let factory = match &progress.factory {
        Some(factory) => factory.clone(),
        None => {
            let file = TableFile::create(request.directory, &request.tables[table])?;
            let factory = file.encoders(&request.tables[table].schema);
            progress.file = Some(file);
            progress.factory.insert(Arc::new(factory)).clone()
        }
    };
    Ok(Some((table, part, factory)))
}

/// Generates a part and encodes it, as one row group unless it is far too long for one.
fn encode(
    request: &Request,
    table: &Table,
    part: u64,
    factory: &ArrowRowGroupWriterFactory,
) -> Result<Vec<RowGroup>, WriteError> {
    let failed = |source| WriteError::Encode { table: table.name, source };
    let mut row_groups = Vec::new();
    let mut writers = Vec::new();
    let mut rows = 0;
    for batch in (table.part)(part) {
        if request.cancelled.load(Ordering::Relaxed) {
            return Err(WriteError::Cancelled);
        }
        let batch: RecordBatch = batch.map_err(|error| failed(error.into()))?;
        if writers.is_empty() {
            // The index matters for encryption only, which is not used.
            writers = factory.create_column_writers(0).map_err(failed)?;
        }
        let mut columns = writers.iter_mut();
        for (field, array) in table.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, array).map_err(failed)? {
                if let Some(column) = columns.next() {
                    column.write(&leaf).map_err(failed)?;
                }
            }
        }
        rows += batch.num_rows() as u64;
        (request.on_rows)(batch.num_rows() as u64);
        if rows >= ROW_GROUP_ROWS + ROW_GROUP_ROWS / 2 {
            row_groups.push(close(std::mem::take(&mut writers)).map_err(failed)?);
            rows = 0;
        }
    }
    if !writers.is_empty() {
        row_groups.push(close(writers).map_err(failed)?);
    }
    Ok(row_groups)
}

fn close(writers: Vec<ArrowColumnWriter>) -> Result<RowGroup, ParquetError> {
    writers.into_iter().map(ArrowColumnWriter::close).collect()
}

/// Hands a part in, and appends all parts whose turn it is, unless another
/// worker is doing that for this table.
fn append(
    request: &Request,
    state: &Mutex<State>,
    changed: &Condvar,
    table: usize,
    part: u64,
    row_groups: Vec<RowGroup>,
) -> Result<(), WriteError> {
    let mut guard = lock(state);
    guard.files[table].encoded.insert(part, row_groups);
    guard.waiting += 1;
    let Some(mut file) = guard.files[table].file.take() else { return Ok(()) };
    loop {
        let progress = &mut guard.files[table];
        let Some(row_groups) = progress.encoded.remove(&progress.appended) else { break };
        progress.appended += 1;
        guard.waiting -= 1;
        drop(guard);
        changed.notify_all();
        file.append(row_groups)?;
        guard = lock(state);
    }
    if guard.files[table].appended < request.tables[table].parts {
        guard.files[table].file = Some(file);
        return Ok(());
    }
    drop(guard);
    let written = file.publish()?;
    lock(state).files[table].written = Some(written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::error::ArrowError;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use std::fs::{self, File};
    use std::io;

    /// A table whose rows are numbered; part `bad` fails in its second batch, and
    /// panics there in a table of the name `panics`.
    fn numbered(name: &'static str, parts: u64, batches: i64, bad: Option<u64>) -> Table {
        let fields = [("n", DataType::Int64), ("text", DataType::Utf8View)];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let part_schema = schema.clone();
        Table {
            name,
            schema,
            parts,
            rows: parts * batches as u64 * 1000,
            part: Box::new(move |part| {
                let schema = part_schema.clone();
                Box::new((0..batches).map(move |batch| {
                    if bad == Some(part) && batch == 1 {
                        assert_ne!(name, "panics");
                        return Err(ArrowError::ComputeError("bad part".to_string()));
                    }
                    let first = (part as i64 * batches + batch) * 1000;
                    let numbers = Int64Array::from_iter_values(first..first + 1000);
                    let text = StringViewArray::from_iter_values(numbers.values().iter().map(i64::to_string));
                    RecordBatch::try_new(schema.clone(), vec![Arc::new(numbers), Arc::new(text)])
                }))
            }),
        }
    }

    fn write_to(
        directory: &Path,
        tables: &[Table],
        on_rows: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Written>, WriteError> {
        write(&Request { tables, directory, workers: 3, cancelled: &AtomicBool::new(false), on_rows })
    }

    fn files(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn parts_are_written_in_order_with_everything_that_pruning_needs() {
        let directory = tempfile::tempdir().unwrap();
        let tables = [numbered("a", 20, 3, None), numbered("b", 1, 200, None)];
        let generated = Mutex::new(0);
        let written =
            write_to(directory.path(), &tables, &|rows| *generated.lock().unwrap() += rows).unwrap();
        assert_eq!(
            written.iter().map(|file| (file.table, file.rows)).collect::<Vec<_>>(),
            [("a", 60_000), ("b", 200_000)]
        );
        assert_eq!(*generated.lock().unwrap(), 260_000);
        assert_eq!(files(directory.path()), ["a.parquet", "b.parquet"]);

        for (file, row_groups) in written.iter().zip([20, 2]) {
            let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
            reader.try_parse(&File::open(&file.path).unwrap()).unwrap();
            let metadata = reader.finish().unwrap();
            assert_eq!(metadata.num_row_groups(), row_groups);
            for row_group in metadata.row_groups() {
                assert!(row_group.columns().iter().all(|column| column.statistics().is_some()));
            }
            assert_eq!(file.bytes, fs::metadata(&file.path).unwrap().len());
            let batches = ParquetRecordBatchReaderBuilder::try_new(File::open(&file.path).unwrap()).unwrap();
            let mut next = 0;
            for batch in batches.build().unwrap() {
                let batch = batch.unwrap();
                for n in batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values() {
                    assert_eq!(*n, next, "{}", file.table);
                    next += 1;
                }
            }
            assert_eq!(next as u64, file.rows);
        }
    }

    #[test]
    fn files_do_not_depend_on_the_number_of_workers() {
        let tables = [numbered("a", 7, 3, None)];
        let bytes = [1, 4].map(|workers| {
            let directory = tempfile::tempdir().unwrap();
            let cancelled = AtomicBool::new(false);
            let request = Request {
                tables: &tables,
                directory: directory.path(),
                workers,
                cancelled: &cancelled,
                on_rows: &|_| (),
            };
            fs::read(&write(&request).unwrap()[0].path).unwrap()
        });
        assert!(bytes[0] == bytes[1]);
    }

    #[test]
    fn an_error_or_a_cancellation_leaves_no_file_that_is_not_whole() {
        let directory = tempfile::tempdir().unwrap();
        let tables = [numbered("a", 1, 3, None), numbered("b", 40, 3, Some(25))];
        let error = write_to(directory.path(), &tables, &|_| ()).unwrap_err();
        assert!(matches!(error, WriteError::Encode { table: "b", .. }), "{error:?}");
        assert!(
            files(directory.path()).iter().all(|name| name == "a.parquet"),
            "{:?}",
            files(directory.path())
        );

        let directory = tempfile::tempdir().unwrap();
        let cancelled = AtomicBool::new(false);
        let tables = [numbered("a", 40, 3, None)];
        let on_rows = |_| cancelled.store(true, Ordering::Relaxed);
        let request = Request {
            tables: &tables,
            directory: directory.path(),
            workers: 2,
            cancelled: &cancelled,
            on_rows: &on_rows,
        };
        assert!(matches!(write(&request), Err(WriteError::Cancelled)));
        assert_eq!(files(directory.path()), Vec::<String>::new());
    }

    #[test]
    fn a_panic_ends_all_workers() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_to(directory.path(), &[numbered("panics", 40, 3, Some(0))], &|_| ()).unwrap_err();
        assert!(matches!(error, WriteError::Panicked), "{error:?}");
        assert_eq!(files(directory.path()), Vec::<String>::new());
    }

    #[test]
    fn what_a_killed_run_left_is_replaced_and_what_another_writes_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let partial = directory.path().join(".a.parquet.partial");
        fs::write(&partial, vec![1; 1 << 20]).unwrap();
        let tables = [numbered("a", 2, 1, None)];
        let written = write_to(directory.path(), &tables, &|_| ()).unwrap();
        assert!(written[0].bytes < 1 << 20);
        assert_eq!(files(directory.path()), ["a.parquet"]);

        let other = File::create(&partial).unwrap();
        other.lock().unwrap();
        let error = write_to(directory.path(), &tables, &|_| ()).unwrap_err();
        assert!(matches!(error, WriteError::Busy { .. }), "{error:?}");
        assert!(partial.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_io_error_with_the_path() {
        let directory = tempfile::tempdir().unwrap();
        // The temporary name leads to a device that is always full.
        std::os::unix::fs::symlink("/dev/full", directory.path().join(".a.parquet.partial")).unwrap();
        let error = write_to(directory.path(), &[numbered("a", 2, 100, None)], &|_| ()).unwrap_err();
        let WriteError::Io { path, source } = error else { panic!("{error:?}") };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert!(path.ends_with("a.parquet"));
    }
}
