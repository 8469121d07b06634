//! Writes the Parquet file of one table, which appears when it is complete.
//!
//! Files use Snappy compression, as most writers do, with statistics and a page index.

use super::Table;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use pellucid_trace::whole::WholeFile;
use std::fs::{File, TryLockError};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The encoded columns of a row group.
pub type RowGroup = Vec<ArrowColumnChunk>;

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Name of the table.
    pub table: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// Number of rows.
    pub rows: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// An error that prevented the files from being written.
#[derive(Debug)]
pub enum WriteError {
    /// [`Request::cancelled`] was set.
    Cancelled,
    /// The file system returned an error.
    Io {
        /// The file being written.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another process is writing tables to this directory.
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A generator or the encoder failed.
    Encode {
        /// Name of the table.
        table: &'static str,
        /// The error.
        source: ParquetError,
    },
    /// A generator panicked, which is a bug; the message is on standard error.
    Panicked,
}

/// Rejects a second writer of a directory until the result is dropped. Directories that cannot be opened, and
/// file systems without locks, do not get this protection.
pub fn lock(directory: &Path) -> Result<Option<File>, WriteError> {
    let Ok(opened) = File::open(directory) else { return Ok(None) };
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => Err(WriteError::Busy { path: directory.to_path_buf() }),
        _ => Ok(Some(opened)),
    }
}

/// A Parquet file under its temporary name; removed if dropped before it is published.
pub struct TableFile {
    table: &'static str,
    target: PathBuf,
    writer: SerializedFileWriter<BufWriter<WholeFile>>,
}

impl TableFile {
    /// Creates an empty temporary file.
    pub fn create(directory: &Path, table: &Table) -> Result<Self, WriteError> {
        let target = directory.join(format!("{}.parquet", table.name));
        let file =
            WholeFile::create(&target).map_err(|source| WriteError::Io { path: target.clone(), source })?;
        let encode = |source| WriteError::Encode { table: table.name, source };
        let schema = parquet_schema(&table.schema).map_err(encode)?;
        let writer = SerializedFileWriter::new(BufWriter::new(file), schema, properties()).map_err(encode)?;
        Ok(TableFile { table: table.name, target, writer })
    }

    /// Returns the factory of encoders for this file's row groups.
    pub fn encoders(&self, schema: &SchemaRef) -> ArrowRowGroupWriterFactory {
        ArrowRowGroupWriterFactory::new(&self.writer, schema.clone())
    }

    /// Appends row groups.
    pub fn append(&mut self, row_groups: Vec<RowGroup>) -> Result<(), WriteError> {
        let append = || {
            for columns in row_groups {
                let mut row_group = self.writer.next_row_group()?;
                for column in columns {
                    column.append_to_row_group(&mut row_group)?;
                }
                row_group.close()?;
            }
            Ok(())
        };
        append().map_err(|error| self.failed(error))
    }

    /// Writes the footer, syncs the file, and renames it to its final name.
    pub fn publish(mut self) -> Result<Written, WriteError> {
        let metadata = self.writer.finish().map_err(|error| self.failed(error))?;
        let io = |source| WriteError::Io { path: self.target.clone(), source };
        let file = self.writer.inner().get_ref();
        let bytes = file.file().metadata().map_err(io)?.len();
        file.publish().map_err(io)?;
        Ok(Written {
            table: self.table,
            path: self.target.clone(),
            rows: metadata.file_metadata().num_rows() as u64,
            bytes,
        })
    }

    fn failed(&self, error: ParquetError) -> WriteError {
        match error {
            ParquetError::External(source) => match source.downcast::<io::Error>() {
                Ok(source) => WriteError::Io { path: self.target.clone(), source: *source },
                Err(source) => {
                    WriteError::Encode { table: self.table, source: ParquetError::External(source) }
                }
            },
            source => WriteError::Encode { table: self.table, source },
        }
    }
}

fn parquet_schema(schema: &SchemaRef) -> Result<parquet::schema::types::TypePtr, ParquetError> {
    Ok(ArrowSchemaConverter::new().convert(schema)?.root_schema_ptr())
}

fn properties() -> Arc<WriterProperties> {
    let properties = WriterProperties::builder()
        .set_created_by(format!("pellucid {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Page)
        .build();
    Arc::new(properties)
}
