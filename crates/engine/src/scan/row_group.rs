//! Decodes one row group of a Parquet file: the keys that filter it first, then the other columns of the rows that are left.
//!
//! Each column has a reader of its own, and all of them return batches of the same rows.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, BooleanBufferBuilder};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{concat, filter};
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use datafusion::parquet::arrow::arrow_reader::{
    ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy,
};
use datafusion::parquet::errors::ParquetError;

use crate::execute::compact::array_bytes;
use crate::execute::timing::{count_rows, timed};
use crate::scan::chunks::Chunks;
use crate::scan::column_work::{self, ColumnWork};
use crate::scan::decoder::{DecodedColumn, DecodedKey, Decoder};

/// Number of rows that take as long to decode as one run of rows to skip. The Parquet library assumes the same.
const RUN_ROWS: usize = 64;

/// Rows of a row group that are to be decoded.
pub(crate) struct Rows<'a> {
    pub decoder: &'a Decoder,
    pub chunks: &'a Chunks,
    pub row_group: usize,
    /// `None` for all rows.
    pub selection: Option<RowSelection>,
    pub count: usize,
    pub policy: RowSelectionPolicy,
    pub batch_rows: usize,
    pub limit: Option<usize>,
}

impl Rows<'_> {
    fn reader(&self, column: &DecodedColumn) -> Result<Values> {
        let metadata = self.decoder.metadata.clone();
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.chunks.clone(), metadata)
            .with_projection(column.mask.clone())
            .with_row_groups(vec![self.row_group])
            .with_batch_size(self.batch_rows)
            .with_row_selection_policy(self.policy);
        if let Some(selection) = &self.selection {
            builder = builder.with_row_selection(selection.clone());
        }
        if let Some(limit) = self.limit {
            builder = builder.with_limit(limit);
        }
        Ok(Values::Encoded(builder.build()?))
    }

    /// Decodes a column.
    fn decode(&self, column: &DecodedColumn) -> Result<Decoded> {
        let mut values = self.reader(column)?;
        let mut decoded: Option<Decoded> = None;
        while let Some((field, batch)) = values.next(column)? {
            decoded.get_or_insert_with(|| Decoded { field, batches: Vec::new() }).batches.push(batch);
        }
        decoded.ok_or_else(|| rows_differ().into())
    }

    /// Decodes the columns of keys, and leaves out rows whose keys are not in the build sides as far as this saves time.
    /// Returns the decoded columns, and which of the rows have such keys.
    fn filter(&mut self, keys: usize) -> Result<(Vec<Option<Decoded>>, Option<BooleanBuffer>)> {
        let mut columns: Vec<Option<Decoded>> = Vec::new();
        columns.resize_with(self.decoder.columns.len(), || None);
        let mut kept: Option<BooleanBuffer> = None;
        let mut keys_in_order: Vec<&DecodedKey> =
            self.decoder.keys.iter().filter(|key| !key.filter.is_disabled()).collect();
        // Those that drop most first, as far as that is known from other rows.
        keys_in_order.sort_by(|a, b| a.filter.kept_share().total_cmp(&b.filter.kept_share()));
        for key in keys_in_order {
            for &column in &key.columns {
                if columns[column].is_none() {
                    columns[column] = Some(self.decode(&self.decoder.columns[column])?);
                }
            }
            timed(keys, || -> Result<()> {
                let hits = hits(key, &columns, self.count)?;
                let mask = kept.take().map_or_else(|| hits.clone(), |kept| &kept & &hits);
                if self.should_skip(&mask) {
                    for column in columns.iter_mut().flatten() {
                        column.filter(&mask, self.batch_rows)?;
                    }
                    self.keep(mask);
                } else {
                    kept = Some(mask);
                }
                Ok(())
            })?;
            if self.count == 0 {
                break;
            }
        }
        Ok((columns, kept))
    }

    /// Returns true if decoding the rows of `mask` alone takes less time than decoding all.
    fn should_skip(&self, mask: &BooleanBuffer) -> bool {
        let selected = |selection: &RowSelection| selection.iter().filter(|run| !run.skip).count();
        let before = self.selection.as_ref().map_or(1, selected);
        let left = mask.count_set_bits();
        let after = left.min(before + runs(mask));
        // Runs that are skipped anyway.
        let skipped = if self.policy == RowSelectionPolicy::Selectors { before } else { 0 };
        left < self.count && after.saturating_sub(skipped) * RUN_ROWS <= self.count
    }

    /// Leaves out all rows but those of `mask`.
    fn keep(&mut self, mask: BooleanBuffer) {
        self.count = mask.count_set_bits();
        let kept = RowSelection::from_filters(&[BooleanArray::new(mask, None)]);
        self.selection = Some(match self.selection.take() {
            Some(selection) => selection.and_then(&kept),
            None => kept,
        });
        self.policy = RowSelectionPolicy::Selectors;
    }
}

fn rows_differ() -> ParquetError {
    ParquetError::General("its columns have different numbers of rows".into())
}

/// Returns the number of runs of set bits.
fn runs(mask: &BooleanBuffer) -> usize {
    let mut last = 0;
    let starts = mask.bit_chunks().iter_padded().map(|word| {
        let starts = word & !(word << 1 | last);
        last = word >> 63;
        starts.count_ones() as usize
    });
    starts.sum()
}

/// Returns which of `count` rows have keys that are in the build side.
fn hits(key: &DecodedKey, decoded: &[Option<Decoded>], count: usize) -> Result<BooleanBuffer> {
    let columns: Vec<&Decoded> = key.columns.iter().filter_map(|column| decoded[*column].as_ref()).collect();
    let schema =
        Arc::new(Schema::new(columns.iter().map(|column| Arc::clone(&column.field)).collect::<Vec<_>>()));
    let Some(first) = columns.first() else {
        // The key is the same for the whole file, as one of its directory's name is.
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        return key.filter.hits(&RecordBatch::try_new_with_options(schema, Vec::new(), &options)?);
    };
    let mut all = BooleanBufferBuilder::new(count);
    for batch in 0..first.batches.len() {
        let of_column = |column: &&Decoded| column.batches.get(batch).cloned().ok_or_else(rows_differ);
        let arrays = columns.iter().map(of_column).collect::<Result<_, _>>()?;
        all.append_buffer(&key.filter.hits(&RecordBatch::try_new(Arc::clone(&schema), arrays)?)?);
    }
    if all.len() != count {
        return Err(rows_differ().into());
    }
    Ok(all.finish())
}

/// A decoded column.
struct Decoded {
    field: FieldRef,
    batches: Vec<ArrayRef>,
}

impl Decoded {
    /// Leaves out all rows but those of `mask`.
    fn filter(&mut self, mask: &BooleanBuffer, batch_rows: usize) -> Result<()> {
        let mut from = 0;
        let kept = self.batches.iter().map(|batch| {
            let mask = mask.slice(from, batch.len());
            from += batch.len();
            filter(batch, &BooleanArray::new(mask, None))
        });
        let kept: Vec<ArrayRef> = kept.collect::<Result<_, _>>()?;
        let all = concat(&kept.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?;
        let batch = |from| all.slice(from, batch_rows.min(all.len() - from));
        self.batches = (0..all.len()).step_by(batch_rows.max(1)).map(batch).collect();
        Ok(())
    }
}

/// The values of a column that follow.
enum Values {
    Encoded(ParquetRecordBatchReader),
    Decoded(FieldRef, std::vec::IntoIter<ArrayRef>),
}

impl Values {
    /// Returns a batch of values; `None` at the end.
    fn next(&mut self, column: &DecodedColumn) -> Result<Option<(FieldRef, ArrayRef)>> {
        let reader = match self {
            Self::Encoded(reader) => reader,
            Self::Decoded(field, batches) => {
                return Ok(batches.next().map(|batch| (Arc::clone(field), batch)));
            }
        };
        let started = Instant::now();
        let batch = reader.next().transpose()?;
        let ns = started.elapsed().as_nanos() as u64;
        let decoded = batch.as_ref().and_then(|batch| batch.columns().first());
        if let Some(place) = column.place {
            let decoded_bytes = decoded.map_or(0, array_bytes);
            column_work::add(place, ColumnWork { ns, decoded_bytes, ..ColumnWork::default() });
        }
        let field = batch.as_ref().and_then(|batch| batch.schema_ref().fields().first());
        Ok(field.cloned().zip(decoded.cloned()))
    }
}

/// A row group that is being decoded.
pub(crate) struct RowGroup {
    /// By column.
    columns: Vec<Values>,
    /// Rows that follow, if there are no columns to decode.
    rows: usize,
    /// Of the rows that follow, those whose keys are in the build sides; `None` for all.
    kept: Option<BooleanBuffer>,
}

impl RowGroup {
    /// Starts to decode rows. `keys` is the operator that filters by the keys of build sides, if any does.
    ///
    /// # Errors
    /// Returns an error if the file is damaged.
    pub(crate) fn start(mut rows: Rows<'_>, keys: Option<usize>) -> Result<Self> {
        let all = rows.count;
        let (decoded, kept) = match keys.filter(|_| all > 0) {
            Some(keys) => rows.filter(keys)?,
            None => (Vec::new(), None),
        };
        // They are rows of the scan that the operator drops.
        let left = kept.as_ref().map_or(rows.count, BooleanBuffer::count_set_bits);
        count_rows((all - left) as u64);
        let mut decoded = decoded.into_iter();
        let column = |column| match decoded.next().flatten() {
            Some(Decoded { field, batches }) => Ok(Values::Decoded(field, batches.into_iter())),
            None => rows.reader(column),
        };
        let columns = match left {
            0 => Vec::new(),
            _ => rows.decoder.columns.iter().map(column).collect::<Result<_>>()?,
        };
        let count = rows.limit.map_or(left, |limit| left.min(limit));
        Ok(Self { columns, rows: count, kept })
    }

    /// Returns a batch of rows, and which of them have keys of the build sides (`None` for all).
    ///
    /// # Errors
    /// Returns an error if the file is damaged.
    pub(crate) fn next(
        &mut self,
        decoder: &Decoder,
        batch_rows: usize,
    ) -> Result<Option<(RecordBatch, Option<BooleanArray>)>> {
        if self.columns.is_empty() {
            let rows = self.rows.min(batch_rows);
            self.rows -= rows;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
            return Ok((rows > 0).then_some((batch, None)));
        }
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (values, column) in self.columns.iter_mut().zip(&decoder.columns) {
            if let Some((field, array)) = values.next(column)? {
                fields.push(field);
                arrays.push(array);
            }
        }
        match arrays.len() {
            0 => return Ok(None),
            count if count < self.columns.len() => return Err(rows_differ().into()),
            _ => {}
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        let rows = batch.num_rows();
        let kept = match self.kept.take() {
            Some(kept) if kept.len() < rows => return Err(rows_differ().into()),
            Some(kept) => {
                self.kept = Some(kept.slice(rows, kept.len() - rows));
                Some(BooleanArray::new(kept.slice(0, rows), None))
            }
            None => None,
        };
        Ok(Some((batch, kept)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use datafusion::arrow::array::{Int64Array, StringArray};
    use datafusion::arrow::compute::concat_batches;
    use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
    use datafusion::parquet::arrow::{ArrowWriter, ProjectionMask};
    use datafusion::parquet::file::metadata::PageIndexPolicy;
    use datafusion::parquet::file::properties::WriterProperties;
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_expr::projection::ProjectionExprs;
    use pellucid_fuzz::Random;
    use pellucid_runtime::Segment;

    use super::*;
    use crate::execute::timing;
    use crate::scan::dynamic_filter::KeyFilter;

    const ROWS: usize = 6_000;
    const BATCH_ROWS: usize = 256;

    /// Returns a file of one row group with the columns `k` (integers), `s` (the same as texts) and `v` (longer texts).
    /// Keys follow each other in runs of up to `run` rows; one in ten is null.
    fn file(random: &mut Random, run: usize) -> (Decoder, Chunks) {
        let mut keys: Vec<Option<i64>> = Vec::new();
        while keys.len() < ROWS {
            let key = (random.below(10) > 0).then(|| random.below(1000) as i64);
            keys.extend(std::iter::repeat_n(key, 1 + random.below(run)));
        }
        keys.truncate(ROWS);
        let texts: StringArray = keys.iter().map(|key| key.map(|key| format!("key {key}"))).collect();
        let values: StringArray = (0..ROWS).map(|row| Some(format!("value of row {row:08}"))).collect();
        let columns: [(&str, ArrayRef); 3] =
            [("k", Arc::new(Int64Array::from(keys))), ("s", Arc::new(texts)), ("v", Arc::new(values))];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder()
            .set_data_page_row_count_limit(50 + random.below(1950))
            .set_write_batch_size(50)
            .set_dictionary_enabled(random.below(2) == 0);
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties.build())).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let bytes = Bytes::from(bytes);
        let policy = if random.below(2) == 0 { PageIndexPolicy::Required } else { PageIndexPolicy::Skip };
        let options = ArrowReaderOptions::new().with_page_index_policy(policy);
        let metadata = ArrowReaderMetadata::load(&bytes, options).unwrap();
        let column = |root| DecodedColumn {
            place: Some(root),
            mask: ProjectionMask::roots(metadata.parquet_schema(), [root]),
            leaves: vec![root],
        };
        let columns = (0..3).map(column).collect();
        let all = ProjectionExprs::from_indices(&[0, 1, 2], &rows.schema());
        let projector = all.make_projector(&rows.schema()).unwrap();
        let decoder = Decoder { metadata, columns, keys: Vec::new(), projector };
        (decoder, Chunks::new(vec![Segment { offset: 0, bytes }], "t.parquet"))
    }

    /// Returns a filter of column `k`, or `s`, by `count` keys.
    fn key(random: &mut Random, column: usize, count: usize) -> DecodedKey {
        let keys: Int64Array = (0..count).map(|_| Some(random.below(1000) as i64)).collect();
        let texts = || keys.iter().map(|key| key.map(|key| format!("key {key}"))).collect::<StringArray>();
        let keys: ArrayRef = if column == 0 { Arc::new(keys) } else { Arc::new(texts()) };
        let filter = KeyFilter::of(Arc::new(Column::new("key", 0)), &keys).unwrap();
        DecodedKey { columns: vec![column], filter }
    }

    fn rows<'a>(decoder: &'a Decoder, chunks: &'a Chunks, selection: Option<RowSelection>) -> Rows<'a> {
        Rows {
            decoder,
            chunks,
            row_group: 0,
            count: selection.as_ref().map_or(ROWS, RowSelection::row_count),
            selection,
            policy: RowSelectionPolicy::default(),
            batch_rows: BATCH_ROWS,
            limit: None,
        }
    }

    /// Returns the decoded rows that are kept, in one batch.
    fn decode(rows: Rows<'_>, keys: Option<usize>) -> RecordBatch {
        let decoder = rows.decoder;
        let mut group = RowGroup::start(rows, keys).unwrap();
        let mut batches = Vec::new();
        while let Some((batch, kept)) = group.next(decoder, BATCH_ROWS).unwrap() {
            assert!(batch.num_rows() <= BATCH_ROWS);
            batches.push(match kept {
                Some(kept) => datafusion::arrow::compute::filter_record_batch(&batch, &kept).unwrap(),
                None => batch,
            });
        }
        let schema = Arc::clone(decoder.metadata.schema());
        concat_batches(&schema, &batches).unwrap()
    }

    #[test]
    fn rows_left_are_those_that_a_filter_keeps() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let run = *random.pick(&[1, 10, 1000]);
            let (mut decoder, chunks) = file(&mut random, run);
            let mut selection = None;
            if random.below(2) == 0 {
                let mut from = 0;
                let mut ranges = Vec::new();
                while from < ROWS {
                    let to = (from + 1 + random.below(2000)).min(ROWS);
                    ranges.push(from..to);
                    from = to + 1 + random.below(500);
                }
                selection = Some(RowSelection::from_consecutive_ranges(ranges.into_iter(), ROWS));
            }
            let all = decode(rows(&decoder, &chunks, selection.clone()), None);
            for _ in 0..1 + random.below(3) {
                let count = *random.pick(&[0, 3, 50, 800]);
                let column = random.below(2);
                decoder.keys.push(key(&mut random, column, count));
            }
            let mut expected = all.clone();
            for key in &decoder.keys {
                let hits = key.filter.hits(&expected.project(&key.columns).unwrap()).unwrap();
                let hits = BooleanArray::new(hits, None);
                expected = datafusion::arrow::compute::filter_record_batch(&expected, &hits).unwrap();
            }
            timing::reset(0, None);
            let got = timing::timed(1, || decode(rows(&decoder, &chunks, selection), Some(0)));
            assert_eq!(got, expected, "seed {seed}");
            let dropped = timing::take(u64::MAX)[1].rows as usize;
            assert_eq!(dropped, all.num_rows() - got.num_rows(), "seed {seed}");
        }
    }

    #[test]
    fn few_values_are_decoded_for_few_keys() {
        let mut random = Random::new(7);
        let (mut decoder, chunks) = file(&mut random, 1);
        let decoded_bytes = |decoder: &Decoder, keys| {
            column_work::reset();
            let mut work = Vec::new();
            let rows = decode(rows(decoder, &chunks, None), keys).num_rows();
            column_work::settle(&mut work, u64::MAX);
            (rows, work[2].decoded_bytes)
        };
        let (all, all_bytes) = decoded_bytes(&decoder, None);
        decoder.keys.push(key(&mut random, 0, 3));
        let (few, few_bytes) = decoded_bytes(&decoder, Some(0));
        assert!(all == ROWS && few > 0 && few < ROWS / 100, "{few} of {all} rows");
        assert!(few_bytes < all_bytes / 20, "{few_bytes} of {all_bytes} bytes");
    }

    #[test]
    fn runs_are_counted_across_words() {
        let runs_of = |bits: Vec<bool>| runs(&BooleanBuffer::from(bits));
        assert_eq!(runs_of(Vec::new()), 0);
        assert_eq!(runs_of(vec![true; 200]), 1);
        assert_eq!(runs_of((0..200).map(|i| i % 2 == 0).collect()), 100);
        assert_eq!(runs_of((0..200).map(|i| (60..70).contains(&i) || i == 199).collect()), 2);
        let shifted = BooleanBuffer::from((0..200).map(|i| i >= 3).collect::<Vec<_>>()).slice(5, 130);
        assert_eq!(runs(&shifted), 1);
    }
}
