//! Writes tables as Parquet files, on all cores and in bounded memory.
//!
//! Workers take parts in order over all tables, and generate and encode them. A worker
//! that finishes a part appends all parts whose turn it is to their file. A part that is
//! finished early waits in encoded form. Workers take no new part while
//! [`MAX_WAITING_PARTS`] per worker are waiting. This cannot deadlock, because the part
//! that the others wait for has already been taken.
//!
//! `file` writes a single file.

use super::file::{self, RowGroup, TableFile, WriteError, Written};
use super::{ROW_GROUP_ROWS, Table};
use arrow::array::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum average number of encoded parts per worker that wait for their turn.
const MAX_WAITING_PARTS: usize = 2;

/// The tables to write and their destination.
pub struct Request<'a> {
    /// The tables; each becomes `directory/<name>.parquet`.
    pub tables: &'a [Table],
    /// An existing directory.
    pub directory: &'a Path,
    /// Number of worker threads, at least one.
    pub workers: usize,
    /// Set by the caller to cancel; checked before each batch.
    pub cancelled: &'a AtomicBool,
    /// Called by the workers with the rows of each batch, for progress.
    pub on_rows: &'a (dyn Fn(u64) + Sync),
}

/// Writes all tables, replacing files with the same names. After an error or a cancellation,
/// only complete files remain.
pub fn write(request: &Request) -> Result<Vec<Written>, WriteError> {
    let _lock = file::lock(request.directory)?;
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
                // A panicking worker must stop the others, which may wait for its part.
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
    /// Table and part to take next.
    next: (usize, u64),
    /// Number of encoded parts that wait for their turn, over all tables.
    waiting: usize,
    files: Vec<Progress>,
    /// The first error; it stops all workers.
    error: Option<WriteError>,
}

/// The progress of one table's file.
#[derive(Default)]
struct Progress {
    /// `None` before the first part is taken, while a worker appends, and at the end.
    file: Option<TableFile>,
    factory: Option<Arc<ArrowRowGroupWriterFactory>>,
    /// Number of parts that are appended or being appended.
    appended: u64,
    /// Parts that finished before their turn.
    encoded: BTreeMap<u64, Vec<RowGroup>>,
    written: Option<Written>,
}

fn lock<'a>(state: &'a Mutex<State>) -> MutexGuard<'a, State> {
    // Generators, which may panic, run without the lock, so a poisoned lock has a consistent state.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(request: &Request, state: &Mutex<State>, changed: &Condvar) -> Result<(), WriteError> {
    while let Some((table, part, factory)) = take(request, state, changed)? {
        let row_groups = encode(request, &request.tables[table], part, &factory)?;
        append(request, state, changed, table, part, row_groups)?;
    }
    Ok(())
}

/// Returns the next part to generate, once few enough parts are waiting. Returns `None` if all parts
/// are taken, or after an error.
fn take(
    request: &Request,
    state: &Mutex<State>,
    changed: &Condvar,
) -> Result<Option<(usize, u64, Arc<ArrowRowGroupWriterFactory>)>, WriteError> {
    let mut state = lock(state);
    while state.error.is_none() && state.waiting >= MAX_WAITING_PARTS * request.workers {
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

/// Generates a part and encodes it, as one row group unless it is far too long.
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
            // The index matters only for encryption, which is not used.
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

/// Submits a part, and appends all parts whose turn it is, unless another worker is already
/// appending to this table.
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

    /// Returns a table with numbered rows. Part `bad` fails in its second batch, or panics there
    /// if the table is named `panics`.
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
    fn parts_are_written_in_order_with_statistics_and_page_index() {
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
    fn errors_and_cancellation_leave_no_partial_file() {
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
    fn panic_stops_all_workers() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_to(directory.path(), &[numbered("panics", 40, 3, Some(0))], &|_| ()).unwrap_err();
        assert!(matches!(error, WriteError::Panicked), "{error:?}");
        assert_eq!(files(directory.path()), Vec::<String>::new());
    }

    #[test]
    fn stale_partial_file_is_ignored_and_a_locked_directory_refused() {
        let directory = tempfile::tempdir().unwrap();
        let tables = [numbered("a", 2, 1, None)];
        fs::write(directory.path().join(".a.parquet.0123456789abcdef.partial"), "killed").unwrap();
        write_to(directory.path(), &tables, &|_| ()).unwrap();
        assert_eq!(files(directory.path()), [".a.parquet.0123456789abcdef.partial", "a.parquet"]);

        let before = fs::read(directory.path().join("a.parquet")).unwrap();
        let other = File::open(directory.path()).unwrap();
        other.lock().unwrap();
        let error = write_to(directory.path(), &tables, &|_| ()).unwrap_err();
        assert!(matches!(&error, WriteError::Busy { path } if path == directory.path()), "{error:?}");
        assert!(fs::read(directory.path().join("a.parquet")).unwrap() == before);
    }

    #[test]
    fn planted_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(".a.parquet.partial")).unwrap();
        write_to(directory.path(), &[numbered("a", 2, 1, None)], &|_| ()).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert!(fs::symlink_metadata(directory.path().join("a.parquet")).unwrap().is_file());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn full_disk_is_an_io_error_with_the_path() {
        let directory = tempfile::tempdir().unwrap();
        // A device that is always full, which is written directly.
        std::os::unix::fs::symlink("/dev/full", directory.path().join("a.parquet")).unwrap();
        let error = write_to(directory.path(), &[numbered("a", 2, 100, None)], &|_| ()).unwrap_err();
        let WriteError::Io { path, source } = error else { panic!("{error:?}") };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        assert!(path.ends_with("a.parquet"));
    }
}
