//! Fuzz tests of tables: a damaged file gives rows or an error that names it, in bounded memory. `tests/run fuzz` runs
//! them for longer.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use pellucid_engine::{Engine, EngineError, EngineOptions};
use pellucid_fuzz::{Inputs, fuzz};

/// Returns rows with several types.
fn batch() -> RecordBatch {
    let rows = 0..90_i64;
    let words: DictionaryArray<Int32Type> =
        rows.clone().map(|row| ["a", "b", "c"][row as usize % 3]).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        (
            "x",
            Arc::new(Float64Array::from_iter(
                rows.clone().map(|row| (row % 5 > 0).then_some(row as f64 / 7.0)),
            )),
        ),
        ("flag", Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(row % 2 == 0))))),
        ("s", Arc::new(StringArray::from_iter_values(rows.map(|row| format!("text {}", row % 7))))),
        ("word", Arc::new(words)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Queries a damaged file. Every file has its own name, since the engine caches metadata by name.
fn fuzz_file(test: &'static str, ending: &str, inputs: &Inputs) {
    let folder = tempfile::tempdir().unwrap();
    let engine = || {
        let options = EngineOptions { cores: 1, memory_bytes: Some(256 << 20), ..EngineOptions::default() };
        Engine::new(options).unwrap()
    };
    let (mut running, mut number) = (engine(), 0_u64);
    fuzz(test, |random| {
        number += 1;
        // Caches of the session grow with the files.
        if number.is_multiple_of(500) {
            running = engine();
        }
        let path = folder.path().join(format!("damaged-{number}{ending}"));
        fs::write(&path, inputs.damaged(random)).unwrap();
        let queries = [
            "SELECT count(*), min(s), max(x), sum(k) FROM TABLE WHERE k > 20",
            "SELECT word, count(*) FROM TABLE GROUP BY word ORDER BY word",
            "SELECT * FROM TABLE WHERE s = 'text 3' OR flag LIMIT 9",
            "SELECT count(*) FROM TABLE",
        ];
        let sql = random.pick::<&str>(&queries);
        let accepted = if random.below(4) == 0 {
            let format = ending[1..].to_uppercase();
            let create = format!("CREATE EXTERNAL TABLE t{number} STORED AS {format} LOCATION TABLE");
            let created = query(&running, &create, &path);
            created && query(&running, &sql.replace("TABLE", &format!("t{number}")), &path)
        } else {
            query(&running, sql, &path)
        };
        fs::remove_file(&path).unwrap();
        accepted
    });
}

fn query(engine: &Engine, sql: &str, path: &Path) -> bool {
    let path = path.display().to_string();
    let statement = sql.replace("TABLE", &format!("'{path}'")).parse();
    let result = statement.and_then(|statement| engine.start(statement, None)).and_then(|query| query.wait());
    let message = match result {
        Ok(_) => return true,
        // Columns may be missing or have other types.
        Err(EngineError::Syntax(message) | EngineError::Usage(message)) => message,
        Err(EngineError::Failed(message)) => {
            // A damaged schema may have other types, which the query cannot use.
            let other = ["not enough memory", "Cannot cast", "not supported for"];
            let names_it = message.contains(&path) || other.iter().any(|text| message.contains(text));
            assert!(names_it, "the error does not name the file: {message}");
            message
        }
        Err(EngineError::Cancelled) => panic!("cancelled"),
    };
    for internal in ["internal error", "Internal error", "panicked", "bug in DataFusion"] {
        assert!(!message.contains(internal), "{message}");
    }
    false
}

#[test]
fn damaged_parquet() {
    let write = |(compression, rows): (Compression, usize)| {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_max_row_group_row_count(Some(rows))
            .set_data_page_row_count_limit(20)
            .set_write_batch_size(10)
            .build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch().schema(), Some(properties)).unwrap();
        writer.write(&batch()).unwrap();
        writer.close().unwrap();
        bytes
    };
    let files = [
        (Compression::UNCOMPRESSED, 90),
        (Compression::SNAPPY, 30),
        (Compression::ZSTD(Default::default()), 50),
    ];
    let inputs =
        Inputs::binary(files.map(write).to_vec(), &[b"PAR1", b"\xff\xff\xff\xff\x0f", b"\x15\x00\x15"]);
    fuzz_file("damaged_parquet", ".parquet", &inputs);
}

#[test]
fn damaged_arrow_ipc() {
    let mut files = Vec::new();
    for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default().try_with_compression(codec).unwrap();
        let mut file = Vec::new();
        let mut writer =
            FileWriter::try_new_with_options(&mut file, &batch().schema(), options.clone()).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        let mut stream = Vec::new();
        let mut writer = StreamWriter::try_new_with_options(&mut stream, &batch().schema(), options).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        files.extend([file, stream]);
    }
    let inputs =
        Inputs::binary(files, &[b"ARROW1", b"\xff\xff\xff\xff", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"]);
    fuzz_file("damaged_arrow_ipc", ".arrow", &inputs);
}

#[test]
fn damaged_csv() {
    let rows: String = (0..90)
        .map(|row| format!("{row},{}.5,{},\"text, {}\",b\n", row * 3, row % 2 == 0, row % 7))
        .collect();
    let inputs =
        Inputs::text(vec![format!("k,x,flag,s,word\n{rows}").into_bytes()], &[b"\"\"", b"\r\n", b",,"]);
    fuzz_file("damaged_csv", ".csv", &inputs);
}

#[test]
fn damaged_json() {
    let row = |row: u32| {
        let (x, flag) = (f64::from(row) / 8.0, row.is_multiple_of(2));
        format!("{{\"k\":{row},\"x\":{x},\"flag\":{flag},\"s\":\"text {}\",\"word\":\"a\"}}\n", row % 7)
    };
    let rows: String = (0..60).map(row).collect();
    let inputs = Inputs::text(vec![rows.into_bytes()], &[b"{\"k\":", b"null", b"[[[[[[[[", b"\\u0000"]);
    fuzz_file("damaged_json", ".json", &inputs);
}
