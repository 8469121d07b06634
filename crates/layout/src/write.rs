//! Writes tables in a layout.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::arrow_writer::ArrowWriter;

use crate::error::LayoutError;
use crate::layout::Layout;

/// Rows of a batch, and batches that wait to be encoded.
const BATCH_ROWS: usize = 8192;
const WAITING: usize = 8;

/// A Parquet file that is written batch by batch. A row group is held in memory in encoded form.
pub struct TableWriter<'p> {
    path: &'p Path,
    layout: Layout,
    writer: ArrowWriter<File>,
}

impl<'p> TableWriter<'p> {
    /// Creates the file.
    ///
    /// # Errors
    /// Returns an error if it exists or cannot be created, or a type cannot be stored.
    pub fn create(path: &'p Path, schema: &SchemaRef, layout: &Layout) -> Result<Self, LayoutError> {
        let file = File::create_new(path).map_err(LayoutError::at("write", path))?;
        let schema = layout.typed(RecordBatch::new_empty(SchemaRef::clone(schema)))?.schema();
        let writer = ArrowWriter::try_new(file, schema, Some(layout.properties().build()))
            .map_err(LayoutError::at("write", path))?;
        Ok(TableWriter { path, layout: layout.clone(), writer })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, or a value does not have the type of the layout.
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), LayoutError> {
        self.writer.write(&self.layout.typed(batch)?).map_err(LayoutError::at("write", self.path))
    }

    /// Ends the file, and returns its rows and bytes.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(mut self) -> Result<(u64, u64), LayoutError> {
        let metadata = self.writer.finish().map_err(LayoutError::at("write", self.path))?;
        let bytes = self.writer.inner().metadata().map_err(LayoutError::at("write", self.path))?.len();
        Ok((metadata.file_metadata().num_rows().max(0) as u64, bytes))
    }
}

/// Copies a file to another layout with the order of its rows. One thread decodes, the other encodes; `proceed` is told
/// the rows of each batch and returns false to cancel. Returns rows and bytes.
///
/// # Errors
/// Returns an error if a file cannot be read or written, or `proceed` returned false.
pub fn copy(
    from: &Path,
    to: &Path,
    layout: &Layout,
    proceed: &mut dyn FnMut(u64) -> bool,
) -> Result<(u64, u64), LayoutError> {
    let source = File::open(from).map_err(LayoutError::at("read", from))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(source).map_err(LayoutError::at("read", from))?;
    let mut writer = TableWriter::create(to, builder.schema(), layout)?;
    let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(LayoutError::at("read", from))?;
    thread::scope(|scope| {
        let (sender, batches) = sync_channel(WAITING);
        scope.spawn(move || {
            for batch in reader {
                // The receiver is gone if writing failed or was cancelled.
                if sender.send(batch).is_err() {
                    break;
                }
            }
        });
        for batch in batches {
            let batch = batch.map_err(LayoutError::at("read", from))?;
            if !proceed(batch.num_rows() as u64) {
                return Err(LayoutError::Cancelled);
            }
            writer.write(batch)?;
        }
        writer.finish()
    })
}
