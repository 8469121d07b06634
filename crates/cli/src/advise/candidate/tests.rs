//! Advice on small tables: the changes that are tried, and the effects that are found.

use super::*;
use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use pellucid_engine::{Engine, EngineOptions};
use pellucid_model::whatif::residuals;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

const ROWS: i64 = 200_000;

/// Writes a table of numbers in mixed order, with text that is a date, and other text and decimals.
fn write(folder: &Path, properties: WriterPropertiesBuilder) {
    let numbers = || (0..ROWS).map(|row| row * 7_919 % ROWS);
    let decimals = |values: Vec<i128>| -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(12, 2).unwrap())
    };
    let texts = |text: fn(i64) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(numbers().map(text)))
    };
    let batch = RecordBatch::try_from_iter([
        ("key", Arc::new(Int64Array::from_iter_values(numbers())) as ArrayRef),
        ("day", texts(|number| format!("2026-11-{:02}", 1 + number % 30))),
        ("text", texts(|number| format!("text {number}"))),
        ("whole", decimals(numbers().map(|number| i128::from(number % 50) * 100).collect())),
        ("part", decimals(numbers().map(i128::from).collect())),
    ])
    .unwrap();
    let file = File::create(folder.join("t.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Writes the table, runs a query on two threads, and returns its only table and its trace.
fn ran(properties: WriterPropertiesBuilder, sql: &str) -> (tempfile::TempDir, Table, Trace) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), properties);
    let engine = Engine::new(EngineOptions { cores: 2, ..EngineOptions::default() }).unwrap();
    engine.register_table("t", folder.path().join("t.parquet").to_str().unwrap()).unwrap();
    let scans = engine.scans(&sql.parse().unwrap()).unwrap();
    let mut notes = Vec::new();
    let mut tables = Table::of(scans, &mut notes).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!((tables.len(), notes), (1, vec![]));
    let trace = engine.start(sql.parse().unwrap(), None).unwrap().wait().unwrap().trace;
    (folder, tables.remove(0), trace)
}

fn snappy() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::SNAPPY).set_max_row_group_row_count(Some(20_000))
}

#[test]
fn encodings_are_those_that_differ() {
    let (_folder, table, _) = ran(snappy(), "SELECT sum(key) FROM t");
    let codecs = [Codec::None, Codec::Lz4, Codec::Zstd].map(Change::Codec);
    assert_eq!(encodings(&table), codecs);
    let plain = snappy()
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    let (_folder, table, _) = ran(plain, "SELECT sum(key) FROM t");
    let more = [Change::RowGroups(ROW_GROUP_ROWS), Change::Dictionary];
    assert_eq!(encodings(&table), [&codecs[..], &more[..]].concat());
}

#[test]
fn narrower_types_are_those_of_the_values_of_decoded_columns() {
    let (_folder, table, _) =
        ran(snappy(), "SELECT sum(length(day) + length(text)), sum(whole), sum(part) FROM t");
    let change = |column: &str, narrow| Change::Type(column.to_string(), narrow);
    assert_eq!(
        narrower(&table).ok(),
        Some(vec![change("day", Narrow::Date), change("whole", Narrow::Integer)])
    );
    let (_folder, table, _) = ran(snappy(), "SELECT sum(length(text)) FROM t");
    assert_eq!(narrower(&table).ok(), Some(vec![]));
}

#[test]
fn sorted_table_is_pruned_to_the_pages_of_the_filter() {
    let (_folder, table, trace) = ran(snappy(), "SELECT sum(part) FROM t WHERE key < 1000");
    let [scan] = &table.scans[..] else { panic!("{} scans", table.scans.len()) };
    assert!(!pruned_by_keys(&table, scan, &trace));
    let layout = table.present.with(&Change::Sort("key".to_string()));
    let found = scanned(&table, scan, &layout, &trace).ok().flatten().expect("core time is measured");
    assert_eq!(found.rows, (ROWS as u64, 20_000));
    assert!(found.bytes < 0.2, "{}", found.bytes);
    let names: Vec<&str> = found.operators.iter().map(|(operator, _)| operator.name.as_str()).collect();
    assert!(names[0].starts_with("Scan t.parquet") && names.contains(&"Input"), "{names:?}");
    // A tenth of the rows, of which the filter keeps a twentieth.
    let filter = found.operators.iter().find(|(operator, _)| operator.name == "Filter").expect("a filter").1;
    assert!((filter - (20_000.0 + 1_000.0) / 201_000.0).abs() < 1e-6, "{filter}");
    // Other orders leave all rows.
    let layout = table.present.with(&Change::Sort("part".to_string()));
    let found = scanned(&table, scan, &layout, &trace).ok().flatten().expect("core time is measured");
    assert!(found.rows.1 > 0);
}

#[test]
fn row_group_without_a_page_index_is_divided_among_the_cores() {
    let whole = WriterProperties::builder()
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    let (_folder, table, trace) = ran(whole, "SELECT sum(length(text)) FROM t");
    let layout = table.present.with(&Change::RowGroups(ROW_GROUP_ROWS));
    let found =
        scanned(&table, &table.scans[0], &layout, &trace).ok().flatten().expect("core time is measured");
    assert_eq!(found.multitasks, Some(8));
    let (_folder, table, trace) = ran(snappy(), "SELECT sum(length(text)) FROM t");
    let found =
        scanned(&table, &table.scans[0], &layout, &trace).ok().flatten().expect("core time is measured");
    assert_eq!(found.multitasks, None);
}

#[test]
fn settings_can_be_pasted_and_grow_with_their_errors() {
    let (_folder, table, trace) = ran(snappy(), "SELECT sum(part) FROM t WHERE key < 1000");
    let layout = table.present.with(&Change::Codec(Codec::None));
    let found =
        scanned(&table, &table.scans[0], &layout, &trace).ok().flatten().expect("core time is measured");
    let factors = |errors| -> Vec<f64> {
        let set =
            settings(std::slice::from_ref(&found), errors).unwrap_or_else(|failure| panic!("{failure:?}"));
        set.settings().iter().map(|setting| setting.value[1..].parse().unwrap()).collect()
    };
    let (usual, larger) = (factors(0.0), factors(1.0));
    assert!(usual.len() >= 3 && usual.len() == larger.len());
    assert!(usual.iter().zip(&larger).all(|(usual, larger)| larger >= usual), "{usual:?} {larger:?}");
    let table_of_residuals = residuals(None);
    let model = WhatIfModel::of(&trace, &table_of_residuals).unwrap();
    let mut notes = Vec::new();
    let all = advised(&table, &trace, &model, &mut notes).unwrap_or_else(|failure| panic!("{failure:?}"));
    let measured_ms = model.baseline().measured_ms;
    assert!(all.iter().all(|advised| advised.prediction.high_ms < measured_ms));
    assert!(all.iter().all(|advised| advised.change.starts_with("pellucid rewrite '")));
}

#[test]
fn command_is_quoted_for_a_shell() {
    assert_eq!(quoted("it's"), r"'it'\''s'");
    let (_folder, table, _) = ran(snappy(), "SELECT sum(key) FROM t");
    let change: TableChange = "sort:t:key".parse().unwrap();
    let command = command(&change, &table);
    assert!(command.ends_with("t.parquet' --like 'sort:t:key' -o 't-by-key'"), "{command}");
}
