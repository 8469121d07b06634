//! Layouts of small tables: measured on samples, and written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Date32Type, Field, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use pellucid_layout::{
    Change, Codec, Layout, LayoutError, Limits, Sample, TableFile, copy, effect, footer, table_name,
};

const ROWS: i64 = 20_000;

/// Writes a table with a key in mixed order, and text that compresses well, in row groups of 2,000 rows.
fn table(folder: &Path, compression: Compression) -> PathBuf {
    table_with(folder, compression, 7_919)
}

/// Writes the table with keys that are `step` apart, modulo the number of rows.
fn table_with(folder: &Path, compression: Compression, step: i64) -> PathBuf {
    let schema = Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("text", DataType::Utf8, false),
    ]));
    let keys = Int64Array::from_iter((0..ROWS).map(|row| (row % 1000 != 0).then_some(row * step % ROWS)));
    let texts = StringArray::from_iter_values((0..ROWS).map(|row| format!("the text of row {row} of many")));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys), Arc::new(texts)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(2_000))
        .set_dictionary_enabled(false);
    let path = folder.join("t.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn zstd() -> Compression {
    Compression::ZSTD(ZstdLevel::default())
}

/// Returns the keys of all rows, in order.
fn keys(path: &Path) -> Vec<Option<i64>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter()).collect()
}

#[test]
fn compression_changes_bytes_in_its_direction() {
    let folder = tempfile::tempdir().unwrap();
    let file = footer(&table(folder.path(), zstd())).unwrap();
    let present = Layout::of(std::slice::from_ref(&file));
    assert_eq!((present.compression, present.row_group_rows), (zstd(), 2_000));
    let files = [file];
    let groups = TableFile::row_groups(&files);
    let sample = Sample::read(&groups, &columns(&["text"]), None, Limits::default()).unwrap();
    let bytes = |codec| {
        let effect = effect(&sample, &present.with(&Change::Codec(codec))).unwrap().unwrap();
        assert!(effect.time > 0.0 && effect.spread >= 0.0, "{effect:?}");
        // Every text is unique, so dictionaries are large, also where they compress better than the numbers of their texts.
        assert!((0.2..1.0).contains(&effect.dictionaries), "{effect:?}");
        // A tenth of the rows, in half of the row groups.
        let expected = 0.1 + 0.4 * effect.dictionaries;
        assert!((effect.decoded(0.1, 0.5) - expected).abs() < 1e-9, "{effect:?}");
        effect.bytes
    };
    let (none, lz4, same) = (bytes(Codec::None), bytes(Codec::Lz4), bytes(Codec::Zstd));
    assert!(none > lz4 && lz4 > same, "{none} {lz4} {same}");
    // The present files have no dictionaries. The new ones have them, whose numbers of unique texts do not compress.
    assert!((1.0..4.0).contains(&same), "{same}");
}

#[test]
fn sample_is_spread_over_the_table_within_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let file = footer(&table(folder.path(), zstd())).unwrap();
    let limits = Limits { groups: 3, rows: 4_000, bytes: u64::MAX };
    let files = [file];
    let sample = Sample::read(&TableFile::row_groups(&files), &columns(&["key"]), None, limits).unwrap();
    assert_eq!((sample.rows, sample.of_rows), (4_000, ROWS as u64));
    let batches = sample.batches().unwrap();
    let first = |at: usize| batches[at].column(0).as_primitive::<Int64Type>().value(1);
    // Row groups 2 and 7 of ten.
    assert_eq!((first(0), first(1)), (4_001 * 7_919 % ROWS, 14_001 * 7_919 % ROWS));
    assert_eq!(batches[0].num_columns(), 1);
}

#[test]
fn miniature_of_a_sorted_table_has_its_row_groups_and_disjoint_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = footer(&table(folder.path(), zstd())).unwrap();
    let present = Layout::of(std::slice::from_ref(&file));
    let limits = Limits { groups: 5, rows: 10_000, bytes: u64::MAX };
    let files = [file];
    let sample = Sample::read(&TableFile::row_groups(&files), &columns(&["key"]), None, limits).unwrap();
    let miniature = sample.miniature(&present.with(&"sort:key".parse().unwrap())).unwrap();
    assert_eq!(miniature.num_row_groups(), 10);
    let mut last = -1;
    for group in miniature.row_groups() {
        let Some(Statistics::Int64(bounds)) = group.column(0).statistics() else { panic!("no statistics") };
        let Some((min, max)) = bounds.min_opt().zip(bounds.max_opt()) else { continue };
        assert!(*min > last, "{min} {last}");
        last = *max;
    }
    // Its own row groups are those of the layout.
    assert_eq!(sample.footer(&present).unwrap().num_row_groups(), 5);
    let unsorted = sample.miniature(&present).unwrap();
    let Some(Statistics::Int64(bounds)) = unsorted.row_group(0).column(0).statistics() else { panic!() };
    assert!(bounds.max_opt().unwrap() - bounds.min_opt().unwrap() > ROWS / 2);
}

#[test]
fn sample_of_a_sorted_table_is_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let sorted = |step: i64, column: &str| {
        let files = [footer(&table_with(folder.path(), zstd(), step)).unwrap()];
        let groups = TableFile::row_groups(&files);
        let columns = columns(&["key", "text"]);
        let sample = Sample::read(&groups, &columns, None, Limits::default()).unwrap();
        sample.is_sorted_by(column).unwrap()
    };
    // Each 1,000th key is NULL, and keys of a step of `ROWS - 1` descend.
    assert!(sorted(1, "key") && sorted(ROWS - 1, "key"));
    assert!(!sorted(7_919, "key") && !sorted(1, "text"));
}

#[test]
fn copy_keeps_the_rows_in_the_new_layout() {
    let folder = tempfile::tempdir().unwrap();
    let from = table(folder.path(), zstd());
    let layout = Layout::of(&[footer(&from).unwrap()]);
    let layout = layout.with(&Change::Codec(Codec::Lz4)).with(&Change::RowGroups(5_000));
    let to = folder.path().join("new.parquet");
    let mut seen = 0;
    let proceed = &mut |rows| {
        seen += rows;
        true
    };
    let (rows, bytes) = copy(&from, &to, &layout, proceed).unwrap();
    assert_eq!((rows, seen), (ROWS as u64, ROWS as u64));
    assert_eq!(bytes, std::fs::metadata(&to).unwrap().len());
    assert_eq!(keys(&to), keys(&from));
    let written = footer(&to).unwrap().metadata;
    assert_eq!(written.row_groups().iter().map(|g| g.num_rows()).collect::<Vec<_>>(), [5_000; 4]);
    assert!(written.row_groups().iter().all(|g| g.column(1).compression() == Compression::LZ4_RAW));
    assert!(written.offset_index().is_some());
}

#[test]
fn copy_stops_when_told_to_and_names_files_of_errors() {
    let folder = tempfile::tempdir().unwrap();
    let from = table(folder.path(), zstd());
    let layout = Layout::of(&[footer(&from).unwrap()]);
    let to = folder.path().join("new.parquet");
    assert!(matches!(copy(&from, &to, &layout, &mut |_| false), Err(LayoutError::Cancelled)));
    let message = copy(&from, &to, &layout, &mut |_| true).unwrap_err().to_string();
    assert!(message.contains("cannot write") && message.contains("new.parquet"), "{message}");
    let damaged = folder.path().join("damaged.parquet");
    std::fs::write(&damaged, "PAR1 and nothing else").unwrap();
    let message = footer(&damaged).unwrap_err().to_string();
    assert!(message.contains("cannot read") && message.contains("damaged.parquet"), "{message}");
    let file = footer(&from).unwrap();
    let message = Sample::read(&[(&file, 0)], &columns(&["none"]), None, Limits::default());
    assert!(message.unwrap_err().to_string().contains("none of the columns none"));
}

#[test]
fn narrower_types_keep_every_value_or_refuse() {
    let layout = |change: &str| Layout::of(&[]).with(&change.parse().unwrap());
    let texts = |values: [Option<&str>; 3]| {
        let column: ArrayRef = Arc::new(StringArray::from_iter(values));
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    };
    let dates = layout("date:a").typed(texts([Some("2026-11-27"), None, Some("1969-12-31")])).unwrap();
    assert_eq!(
        dates.column(0).as_primitive::<Date32Type>().iter().collect::<Vec<_>>(),
        [Some(20_784), None, Some(-1)]
    );
    for value in ["2026-11-27 10:00", "27.11.2026", "2026-1-2", ""] {
        let refused = layout("date:a").typed(texts([Some(value), None, None])).unwrap_err().to_string();
        assert!(refused.contains("a value of a is not a date"), "{value}: {refused}");
    }
    let decimals = |values: [i128; 2]| {
        let column = Decimal128Array::from_iter_values(values).with_precision_and_scale(12, 2).unwrap();
        RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).unwrap()
    };
    let whole = layout("integer:a").typed(decimals([1200, -300])).unwrap();
    assert_eq!(whole.column(0).as_primitive::<Int64Type>().values(), &[12, -3]);
    let refused = layout("integer:a").typed(decimals([1200, 1250])).unwrap_err().to_string();
    assert!(refused.contains("not a whole number"), "{refused}");
    assert!(layout("date:a").typed(decimals([1, 2])).unwrap_err().to_string().contains("Decimal128"));
}

#[test]
fn table_is_named_by_its_file_or_folder() {
    let paths = ["/data/items/a.parquet", "/data/items/b.parquet"].map(Path::new);
    assert_eq!(table_name(&paths).as_deref(), Some("items"));
    assert_eq!(table_name(&paths[..1]).as_deref(), Some("a"));
    assert_eq!(table_name(&[]), None);
}
