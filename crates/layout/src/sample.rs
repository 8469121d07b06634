//! A sample of a table: some of its row groups, in memory as the bytes of their files.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Cursor};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::compute::{
    SortOptions, concat, concat_batches, filter, is_not_null, sort_to_indices, take_record_batch,
};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use pellucid_runtime::thread_cpu_ns;

use crate::error::LayoutError;
use crate::file::TableFile;
use crate::layout::{Layout, PAGE_ROWS};

/// Rows that are taken from a row group, at most.
const MOST_ROWS: usize = 2_000_000;
/// Rows of a decoded batch, as in the engine.
const BATCH_ROWS: usize = 8192;

/// Limits of a sample. At least one row group is read.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Row groups, which are spread evenly over the table.
    pub groups: usize,
    /// Rows.
    pub rows: usize,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { groups: 8, rows: 500_000, bytes: 64 << 20 }
    }
}

/// A sample of some columns of a table.
#[derive(Debug, Clone)]
pub struct Sample {
    parts: Vec<Part>,
    /// Rows of the sample.
    pub rows: u64,
    /// Rows of all row groups that it could have been taken from.
    pub of_rows: u64,
}

/// The first rows of a row group.
#[derive(Debug, Clone)]
struct Part {
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    bytes: Segments,
    row_group: usize,
    rows: usize,
    /// Bytes in the file, of these rows.
    size: f64,
}

impl Sample {
    /// Reads a sample of some columns of row groups, each a file and its row group. `schema` has the types to decode all
    /// columns of the files to, if they are not those that the files say.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or has none of the columns.
    pub fn read(
        groups: &[(&TableFile, usize)],
        columns: &[String],
        schema: Option<&SchemaRef>,
        limits: Limits,
    ) -> Result<Sample, LayoutError> {
        let of_rows = groups.iter().map(|(file, group)| rows_of(&file.metadata, *group) as u64).sum();
        // Whole row groups: the dictionaries of a part of one would cost as much as those of all of it.
        let longest = groups.iter().map(|(file, group)| rows_of(&file.metadata, *group)).max().unwrap_or(0);
        let wanted = limits.groups.min(limits.rows / longest.max(1)).clamp(1, groups.len().max(1));
        let (mut parts, mut rows, mut read) = (Vec::new(), 0, 0);
        let mut turns: Vec<usize> = (0..wanted).collect();
        // Spread over the table even if the bytes end early.
        turns.sort_by_key(|turn| turn.reverse_bits());
        for turn in turns {
            // In the middle of each of as many equal parts.
            let Some((file, group)) = groups.get((2 * turn + 1) * groups.len() / (2 * wanted)) else { break };
            let part = Part::read(file, *group, columns, schema)?;
            rows += part.rows as u64;
            read += part.bytes.held();
            parts.push((turn, part));
            if read >= limits.bytes {
                break;
            }
        }
        parts.sort_by_key(|(turn, _)| *turn);
        Ok(Sample { parts: parts.into_iter().map(|(_, part)| part).collect(), rows, of_rows })
    }

    /// Decodes the sample.
    ///
    /// # Errors
    /// Returns an error if the bytes are damaged.
    pub fn batches(&self) -> Result<Vec<RecordBatch>, LayoutError> {
        let mut batches = Vec::new();
        for part in &self.parts {
            for batch in part.reader()? {
                batches.push(batch?);
            }
        }
        Ok(batches)
    }

    /// Returns the core time of decoding the sample, in nanoseconds; `None` if it cannot be measured here.
    ///
    /// # Errors
    /// Returns an error if the bytes are damaged.
    pub fn decode_ns(&self) -> Result<Option<u64>, LayoutError> {
        let before = thread_cpu_ns();
        for part in &self.parts {
            for batch in part.reader()? {
                black_box(batch?);
            }
        }
        Ok(thread_cpu_ns().zip(before).map(|(after, before)| after.saturating_sub(before)))
    }

    /// Returns the bytes in files of the sample's rows and columns.
    pub fn size(&self) -> f64 {
        self.parts.iter().map(|part| part.size).sum()
    }

    /// Returns the bytes of the dictionaries of the sampled row groups' columns, of which all are read.
    pub(crate) fn dictionaries_size(&self) -> f64 {
        let of_part = |part: &Part| -> i64 {
            let group = part.metadata.metadata().row_group(part.row_group);
            let leaves = (0..group.num_columns()).filter(|leaf| part.mask.leaf_included(*leaf));
            leaves.map(|leaf| dictionary_bytes(group.column(leaf))).sum()
        };
        self.parts.iter().map(|part| of_part(part) as f64).sum()
    }

    /// Returns the sample in another layout.
    ///
    /// # Errors
    /// Returns an error if the sample cannot be decoded, sorted or encoded.
    pub fn rewritten(&self, layout: &Layout) -> Result<Sample, LayoutError> {
        let batches = self.ordered(layout)?;
        let bytes = encoded(&batches, layout.properties().build())?;
        let Some(first) = batches.first() else { return Ok(self.clone()) };
        let metadata = Arc::new(parsed(&bytes)?);
        let reader = typed(&metadata, Some(&first.schema()))?;
        let segments = Segments { length: bytes.len() as u64, parts: Arc::new(vec![(0, bytes)]) };
        let part = |row_group: usize| Part {
            metadata: reader.clone(),
            mask: ProjectionMask::all(),
            bytes: segments.clone(),
            row_group,
            rows: rows_of(&metadata, row_group),
            size: metadata.row_group(row_group).compressed_size().max(0) as f64,
        };
        let parts = (0..metadata.num_row_groups()).map(part).collect();
        Ok(Sample { parts, rows: self.rows, of_rows: self.of_rows })
    }

    /// Returns the footer of the sample in a layout.
    ///
    /// # Errors
    /// Returns an error as [`Sample::rewritten`] does.
    pub fn footer(&self, layout: &Layout) -> Result<Arc<ParquetMetaData>, LayoutError> {
        Ok(Arc::new(parsed(&encoded(&self.ordered(layout)?, layout.properties().build())?)?))
    }

    /// Returns the footer of all sampled row groups in a layout, as far as the sample tells: row groups and pages have as
    /// many fewer rows as the sample has, so that there are as many of them.
    ///
    /// # Errors
    /// Returns an error as [`Sample::rewritten`] does.
    pub fn miniature(&self, layout: &Layout) -> Result<Arc<ParquetMetaData>, LayoutError> {
        let share = self.rows as f64 / self.of_rows.max(1) as f64;
        let fewer = |rows: usize| ((rows as f64 * share).round() as usize).max(1);
        let pages = fewer(PAGE_ROWS.min(layout.row_group_rows));
        let properties = layout
            .properties()
            .set_max_row_group_row_count(Some(fewer(layout.row_group_rows).max(pages)))
            .set_data_page_row_count_limit(pages)
            // The limit of rows is checked after each of these.
            .set_write_batch_size(pages.min(1024));
        Ok(Arc::new(parsed(&encoded(&self.ordered(layout)?, properties.build())?)?))
    }

    /// Returns true if the values of a column, of which NULLs are ignored, ascend or descend through the sample.
    ///
    /// # Errors
    /// Returns an error if the bytes are damaged, or the values have no order.
    pub fn is_sorted_by(&self, column: &str) -> Result<bool, LayoutError> {
        let batches = self.batches()?;
        let keys: Vec<_> = batches.iter().filter_map(|batch| batch.column_by_name(column)).collect();
        if keys.is_empty() {
            return Ok(true);
        }
        let keys = concat(&keys.iter().map(|keys| keys.as_ref()).collect::<Vec<_>>())?;
        let keys = filter(&keys, &is_not_null(&keys)?)?;
        let pairs = keys.len().saturating_sub(1);
        let (first, second) = (keys.slice(0, pairs), keys.slice(keys.len() - pairs, pairs));
        Ok(gt(&first, &second)?.true_count() == 0 || lt(&first, &second)?.true_count() == 0)
    }

    /// Returns the rows in the order and with the types of a layout.
    fn ordered(&self, layout: &Layout) -> Result<Vec<RecordBatch>, LayoutError> {
        let batches =
            self.batches()?.into_iter().map(|batch| layout.typed(batch)).collect::<Result<Vec<_>, _>>()?;
        let (Some(column), Some(first)) = (&layout.sort, batches.first()) else { return Ok(batches) };
        let all = concat_batches(&first.schema(), &batches)?;
        let keys = all.column_by_name(column).ok_or_else(|| {
            LayoutError::Sample(format!("column {column} is not among those that were sampled"))
        })?;
        let order = SortOptions { descending: false, nulls_first: false };
        Ok(vec![take_record_batch(&all, &sort_to_indices(keys, Some(order), None)?)?])
    }
}

impl Part {
    fn read(
        file: &TableFile,
        row_group: usize,
        columns: &[String],
        schema: Option<&SchemaRef>,
    ) -> Result<Part, LayoutError> {
        let failed = LayoutError::at::<io::Error>("read", &file.path);
        let metadata = &file.metadata;
        let descriptor = metadata.file_metadata().schema_descr();
        let leaves: Vec<usize> = (0..descriptor.num_columns())
            .filter(|leaf| columns.iter().any(|name| name == descriptor.get_column_root(*leaf).name()))
            .collect();
        if leaves.is_empty() {
            let cause = format!("it has none of the columns {}", columns.join(", "));
            return Err(LayoutError::File { action: "read", path: file.path.clone(), cause });
        }
        let reader = typed(metadata, schema).map_err(LayoutError::at("read", &file.path))?;
        let source = File::open(&file.path).map_err(&failed)?;
        let group = metadata.row_group(row_group);
        let mut parts: Vec<(u64, Bytes)> = Vec::new();
        for leaf in &leaves {
            let (start, length) = group.column(*leaf).byte_range();
            let bytes =
                source.get_bytes(start, length as usize).map_err(LayoutError::at("read", &file.path))?;
            parts.push((start, bytes));
        }
        let rows = rows_of(metadata, row_group);
        let taken = rows.min(MOST_ROWS);
        let size: i64 = leaves.iter().map(|leaf| group.column(*leaf).compressed_size()).sum();
        Ok(Part {
            metadata: reader,
            mask: ProjectionMask::leaves(descriptor, leaves),
            bytes: Segments { length: source.len(), parts: Arc::new(parts) },
            row_group,
            rows: taken,
            size: size as f64 * taken as f64 / rows.max(1) as f64,
        })
    }

    fn reader(&self) -> Result<ParquetRecordBatchReader, ParquetError> {
        ParquetRecordBatchReaderBuilder::new_with_metadata(self.bytes.clone(), self.metadata.clone())
            .with_row_groups(vec![self.row_group])
            .with_projection(self.mask.clone())
            .with_batch_size(BATCH_ROWS)
            .with_limit(self.rows)
            .build()
    }
}

/// Returns the bytes of a column's dictionary in a row group.
fn dictionary_bytes(column: &ColumnChunkMetaData) -> i64 {
    column.dictionary_page_offset().map_or(0, |start| (column.data_page_offset() - start).max(0))
}

fn rows_of(metadata: &ParquetMetaData, row_group: usize) -> usize {
    metadata.row_group(row_group).num_rows().max(0) as usize
}

/// Returns the metadata to decode with: to the types of a schema, unless it is not that of the file.
fn typed(
    metadata: &Arc<ParquetMetaData>,
    schema: Option<&SchemaRef>,
) -> Result<ArrowReaderMetadata, ParquetError> {
    let options = schema.map(|schema| ArrowReaderOptions::new().with_schema(Arc::clone(schema)));
    match options.map(|options| ArrowReaderMetadata::try_new(Arc::clone(metadata), options)) {
        Some(Ok(reader)) => Ok(reader),
        _ => ArrowReaderMetadata::try_new(Arc::clone(metadata), ArrowReaderOptions::new()),
    }
}

/// Returns a Parquet file of some rows.
fn encoded(batches: &[RecordBatch], properties: WriterProperties) -> Result<Bytes, LayoutError> {
    let Some(first) = batches.first() else { return Ok(Bytes::new()) };
    let mut writer = ArrowWriter::try_new(Vec::new(), first.schema(), Some(properties))?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    Ok(writer.into_inner()?.into())
}

fn parsed(bytes: &Bytes) -> Result<ParquetMetaData, LayoutError> {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    Ok(reader.parse_and_finish(bytes)?)
}

/// Some ranges of a file, in memory.
#[derive(Debug, Clone)]
struct Segments {
    length: u64,
    /// Ranges by their first byte.
    parts: Arc<Vec<(u64, Bytes)>>,
}

impl Segments {
    fn held(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Returns the bytes from `start` to the end of the range that holds it.
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let holds = |(first, bytes): &&(u64, Bytes)| (*first..first + bytes.len() as u64).contains(&start);
        match self.parts.iter().find(holds) {
            Some((first, bytes)) => Ok(bytes.slice((start - first) as usize..)),
            None => Err(ParquetError::EOF(format!("byte {start} was not read"))),
        }
    }
}

impl Length for Segments {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Segments {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.from(start).map(Cursor::new)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        match bytes.len() >= length {
            true => Ok(bytes.slice(..length)),
            false => Err(ParquetError::EOF(format!("{length} bytes at byte {start} were not read"))),
        }
    }
}
