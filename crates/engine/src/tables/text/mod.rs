//! Scans of text files: CSV and JSON as [`crate::tables::csv`] and [`crate::tables::json`] decode them.
//!
//! A file is read whole, or in pieces that [`crate::scan::text`] divides at any byte. A piece has the records that start
//! in it: its reader skips to the first line end at or after the byte before the piece, and reads the last record beyond
//! the end of the piece. The bytes come from the job's stores, which serve them from the scan.

pub(crate) mod columns;
pub(crate) mod sample;
pub(crate) mod temporal;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

/// Bytes after a piece that its read monotask loads for the end of the last record.
const LOOKAHEAD: u64 = 16 * 1024;

/// Size of a read of a record that is longer than the look-ahead.
const MORE_BYTES: u64 = 1 << 20;

/// Size of a read that counts the lines before an error.
const COUNT_BYTES: u64 = 8 << 20;

/// Maximum number of bytes whose lines are counted for a message.
const MAX_COUNTED: u64 = 1 << 30;

/// A record that cannot be decoded.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// Lines of the decoder's input before the record.
    pub lines_before: u64,
    /// The error in the record, without the file and the line.
    pub message: String,
}

/// Decodes the records of one file or piece.
pub(crate) trait Decoder: Send {
    /// Adds bytes that follow those added before.
    ///
    /// # Errors
    /// Returns an error if the bytes are not in the encoding of the file.
    fn push(&mut self, bytes: Bytes) -> Result<(), Misfit>;
    /// Notes that no bytes follow.
    fn finish(&mut self);
    /// Returns the next rows; `None` if it needs more bytes, or has returned all rows.
    ///
    /// # Errors
    /// Returns an error for a record that is malformed or does not fit the columns.
    fn rows(&mut self) -> Result<Option<RecordBatch>, Misfit>;
    /// Returns true if all records of the piece were decoded, so that no more bytes are needed.
    fn is_done(&self) -> bool;
}

/// The part of a file that a decoder has to decode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// Position of the first byte that the decoder gets.
    pub from: u64,
    /// True if the first record starts after the first line end.
    pub skips_line: bool,
    /// Position before which a record has to start.
    pub until: Option<u64>,
}

/// A text format with everything that is needed to decode files of a table.
pub(crate) trait TextFormat: fmt::Debug + Send + Sync {
    /// `csv` or `json`.
    fn file_type(&self) -> &'static str;
    /// Returns true if records end at line ends, so that a file can be read in pieces.
    fn splits(&self) -> bool;
    /// Shows the format in EXPLAIN.
    fn describe(&self) -> String;
    /// Returns a decoder for some columns of the table, given by their index.
    ///
    /// # Errors
    /// Returns an error if the file is unknown to the format.
    fn decoder(
        &self,
        file: &PartitionedFile,
        part: Part,
        columns: &[usize],
        schema: SchemaRef,
        batch_rows: usize,
    ) -> Result<Box<dyn Decoder>>;
    /// Returns the position of the first record, which headers and the like precede.
    fn first_record(&self, file: &PartitionedFile) -> u64;
}

/// The source of a scan of text files.
#[derive(Debug, Clone)]
pub(crate) struct TextSource {
    format: Arc<dyn TextFormat>,
    table_schema: TableSchema,
    projection: SplitProjection,
    batch_rows: usize,
    metrics: ExecutionPlanMetricsSet,
}

impl TextSource {
    pub(crate) fn new(format: Arc<dyn TextFormat>, table_schema: TableSchema) -> Self {
        let projection = SplitProjection::unprojected(&table_schema);
        Self { format, table_schema, projection, batch_rows: 8192, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl FileSource for TextSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let file_schema = self.table_schema.file_schema();
        let schema = Arc::new(file_schema.project(&self.projection.file_indices)?);
        let opener = TextOpener {
            format: Arc::clone(&self.format),
            store,
            compression: config.file_compression_type,
            columns: self.projection.file_indices.clone(),
            schema,
            batch_rows: self.batch_rows,
        };
        ProjectionOpener::try_new(self.projection.clone(), Arc::new(opener), file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, batch_rows: usize) -> Arc<dyn FileSource> {
        Arc::new(Self { batch_rows, ..self.clone() })
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        let merged = self.projection.source.try_merge(projection)?;
        let projection = SplitProjection::new(self.table_schema.file_schema(), &merged);
        Ok(Some(Arc::new(Self { projection, ..self.clone() })))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.format.file_type()
    }

    fn supports_repartitioning(&self) -> bool {
        self.format.splits()
    }

    fn fmt_extra(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", {}", self.format.describe())
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        datafusion::physical_plan::apply_expression_roots(self.projection.source.iter(), f)
    }
}

/// Opens the files of a [`TextSource`].
struct TextOpener {
    format: Arc<dyn TextFormat>,
    store: Arc<dyn ObjectStore>,
    compression: FileCompressionType,
    columns: Vec<usize>,
    schema: SchemaRef,
    batch_rows: usize,
}

impl FileOpener for TextOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let size = file.object_meta.size;
        let first = self.format.first_record(&file);
        let range =
            file.range.as_ref().map(|range| range.start.max(0) as u64..(range.end.max(0) as u64).min(size));
        let part = match &range {
            Some(range) if range.start > first => {
                Part { from: range.start - 1, skips_line: true, until: Some(range.end) }
            }
            Some(range) => Part { from: range.start, skips_line: false, until: Some(range.end) },
            None => Part { from: 0, skips_line: false, until: None },
        };
        let decoder =
            self.format.decoder(&file, part, &self.columns, Arc::clone(&self.schema), self.batch_rows)?;
        let store = Arc::clone(&self.store);
        let compression = self.compression;
        let place = Place { store: Arc::clone(&store), file: file.object_meta.location.clone(), part };
        Ok(Box::pin(async move {
            let input: BoxStream<'static, Result<Bytes>> = match range {
                Some(range) => piece(store, place.file.clone(), part.from, range.end, size),
                None => {
                    let bytes = store.get(&place.file).await?.into_stream().map_err(DataFusionError::from);
                    compression.convert_stream(bytes.boxed())?
                }
            };
            let state = Reading { decoder, input, place, ended: false };
            Ok(futures::stream::try_unfold(state, Reading::next).boxed())
        }))
    }
}

/// Returns the bytes of a piece, and those after it for as long as they are asked for.
fn piece(
    store: Arc<dyn ObjectStore>,
    path: Path,
    from: u64,
    end: u64,
    size: u64,
) -> BoxStream<'static, Result<Bytes>> {
    let first = from..end.saturating_add(LOOKAHEAD).min(size);
    let next = move |range: Range<u64>| {
        let (store, path) = (Arc::clone(&store), path.clone());
        async move {
            if range.is_empty() {
                return Ok(None);
            }
            let bytes = store.get_range(&path, range.clone()).await?;
            Ok(Some((bytes, range.end..range.end.saturating_add(MORE_BYTES).min(size))))
        }
    };
    futures::stream::try_unfold(first, next).boxed()
}

/// A file or piece that is being read.
struct Reading {
    decoder: Box<dyn Decoder>,
    input: BoxStream<'static, Result<Bytes>>,
    place: Place,
    /// True if the decoder has all bytes.
    ended: bool,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            match self.decoder.rows() {
                Ok(Some(batch)) => return Ok(Some((batch, self))),
                Ok(None) if self.ended || self.decoder.is_done() => return Ok(None),
                Ok(None) => {}
                Err(misfit) => return Err(self.place.explain(misfit).await),
            }
            match self.input.next().await {
                Some(bytes) => {
                    let bytes = bytes.map_err(|error| self.place.unreadable(error))?;
                    if let Err(misfit) = self.decoder.push(bytes) {
                        return Err(self.place.explain(misfit).await);
                    }
                }
                None => {
                    self.ended = true;
                    self.decoder.finish();
                }
            }
        }
    }
}

/// The place of a decoder, for messages.
struct Place {
    store: Arc<dyn ObjectStore>,
    file: Path,
    part: Part,
}

impl Place {
    /// Adds the file and the line to an error. Lines before a piece are counted now.
    async fn explain(&self, misfit: Misfit) -> DataFusionError {
        let Misfit { lines_before, message } = misfit;
        let mut lines = Some(lines_before);
        if self.part.from > 0 {
            lines = match self.lines_before_part().await {
                Ok(Some(before)) => Some(before + lines_before),
                _ => None,
            };
        }
        DataFusionError::Execution(match lines {
            Some(lines) => format!("cannot read /{}, line {}: {message}", self.file, lines + 1),
            None => format!("cannot read /{} after byte {}: {message}", self.file, self.part.from),
        })
    }

    /// Names the file in an error of its store or its compression.
    fn unreadable(&self, error: DataFusionError) -> DataFusionError {
        match error {
            DataFusionError::ObjectStore(_) => error,
            other => DataFusionError::Execution(format!(
                "cannot read /{}: {}; check that it is complete, and its compression",
                self.file,
                other.strip_backtrace()
            )),
        }
    }

    async fn lines_before_part(&self) -> Result<Option<u64>> {
        if self.part.from > MAX_COUNTED {
            return Ok(None);
        }
        let (mut at, mut lines) = (0, 0);
        while at < self.part.from {
            let end = (at + COUNT_BYTES).min(self.part.from);
            let bytes = self.store.get_range(&self.file, at..end).await?;
            lines += line_ends(&bytes);
            at = end;
        }
        Ok(Some(lines))
    }
}

/// Counts the line ends in a text.
pub(crate) fn line_ends(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Bytes that a decoder has got and not yet decoded.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Bytes,
    at: usize,
    /// Line ends before `at`.
    lines: u64,
    /// Position of `bytes` in the input.
    offset: u64,
    /// True if no bytes follow.
    pub ended: bool,
}

impl Pending {
    pub(crate) fn new(offset: u64) -> Self {
        Self { offset, ..Self::default() }
    }

    /// Adds bytes after those that are left.
    pub(crate) fn push(&mut self, more: Bytes) {
        self.offset += self.at as u64;
        self.bytes = if self.at == self.bytes.len() {
            more
        } else {
            [&self.bytes[self.at..], &more[..]].concat().into()
        };
        self.at = 0;
    }

    /// Returns the bytes that are left.
    pub(crate) fn left(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Returns the bytes that are left, shared.
    pub(crate) fn bytes_left(&self) -> Bytes {
        self.bytes.slice(self.at..)
    }

    /// Returns the position of the first byte that is left, in the file.
    pub(crate) fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Drops bytes, which were decoded.
    pub(crate) fn skip(&mut self, count: usize) {
        let end = (self.at + count).min(self.bytes.len());
        self.lines += line_ends(&self.bytes[self.at..end]);
        self.at = end;
    }

    /// Returns the number of line ends before the bytes that are left.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
}
