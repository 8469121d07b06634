//! Fuzz tests of the files with a job's data (tables and graphs), and of the applications' partitions. `tests/run fuzz` runs them for longer.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use pellucid_fuzz::{Inputs, fuzz};
use pellucid_iterate::Plan;
use pellucid_iterate::testing::Finished;
use pellucid_iterate_apps::applications::{Precision, kmeans, logistic_regression, pagerank};
use pellucid_iterate_apps::input::{InputError, Table, edges};

/// Reads all rows in two parts. A table that is read must have the rows that it claims.
fn read(path: &Path) -> Result<(), InputError> {
    let table = Table::open(path)?;
    let (rows, columns) = (table.rows(), table.numeric_columns());
    table.identity();
    for range in [0..rows / 2, rows / 2..rows] {
        let (mut values, expected) = (0, range.len() * columns.len());
        table.read(range, &columns, &mut |_, _, _| values += 1)?;
        assert_eq!(values, expected, "fewer or more values than rows");
    }
    Ok(())
}

/// Accepts a table, or an error that names the file.
fn check(path: &Path, result: Result<(), InputError>) -> bool {
    if let Err(error) = &result {
        let error = error.to_string();
        assert!(error.contains(&path.display().to_string()), "the error does not name the file: {error}");
    }
    result.is_ok()
}

/// Fuzzes a reader of files that end in `.ending`.
fn fuzz_file(
    test: &'static str,
    ending: &str,
    inputs: &Inputs,
    read: impl Fn(&Path) -> Result<(), InputError>,
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("input.{ending}"));
    fuzz(test, |random| {
        fs::write(&path, inputs.damaged(random)).unwrap();
        check(&path, read(&path))
    });
}

#[test]
fn damaged_csv_table() {
    let rows: String =
        (0..30).map(|row| format!("{}.5,{row},\"text, {row}\",{}\r\n", row * 3, row % 2 == 0)).collect();
    let header = format!("a,b,\"text\",flag\n{rows}");
    let inputs =
        Inputs::text(vec![header.into_bytes(), rows.into_bytes()], &[b"\"", b"\r\n", b",,", b"true"]);
    fuzz_file("damaged_csv_table", "csv", &inputs, read);
}

/// Returns Parquet files with several types, row groups and compressions.
fn parquet_files() -> Vec<Vec<u8>> {
    let files = [
        (Compression::UNCOMPRESSED, 60),
        (Compression::SNAPPY, 17),
        (Compression::ZSTD(Default::default()), 20),
    ];
    let write = |(compression, group): (Compression, usize)| {
        let rows = 0..60_i32;
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("src", Arc::new(Int32Array::from_iter_values(rows.clone().map(|row| row % 7)))),
            ("dst", Arc::new(Float64Array::from_iter_values(rows.clone().map(|row| f64::from(row % 11))))),
            ("flag", Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(row % 2 == 0))))),
            ("text", Arc::new(StringArray::from_iter_values(rows.map(|row| format!("text {row}"))))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_max_row_group_row_count(Some(group))
            .build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    };
    files.map(write).to_vec()
}

#[test]
fn damaged_parquet_table() {
    let inputs = Inputs::binary(parquet_files(), &[b"PAR1", b"\xff\xff\xff\xff\x0f", b"\x15\x00\x15"]);
    fuzz_file("damaged_parquet_table", "parquet", &inputs, read);
}

#[test]
fn damaged_graph() {
    let text: String = (0..60).map(|edge| format!("{} {}\n", edge % 7, edge % 11)).collect();
    let inputs =
        Inputs::text(vec![text.into_bytes(), b"# comment\n0\t1\t0.5\n1,2\n".to_vec()], &[b"\n#", b" "]);
    fuzz_file("damaged_graph", "el", &inputs, |path| edges::read(path, None).map(|_| ()));
}

#[test]
fn damaged_parquet_graph() {
    let inputs = Inputs::binary(parquet_files(), &[b"PAR1", b"\xff\xff\xff\xff\x0f"]);
    let read = |path: &Path| edges::read(path, None).map(|_| ());
    fuzz_file("damaged_parquet_graph", "parquet", &inputs, read);
}

/// Returns the plans of all applications over small data.
fn plans(folder: &Path) -> Vec<Arc<Plan>> {
    let mut random = pellucid_fuzz::Random::new(5);
    let table = folder.join("table.csv");
    let rows: String =
        (0..60).map(|row| format!("{},{},{}\n", random.below(90), random.below(70), row % 3 / 2)).collect();
    fs::write(&table, format!("a,b,y\n{rows}")).unwrap();
    let graph = folder.join("graph.el");
    let edges: String = (0..200).map(|_| format!("{} {}\n", random.below(40), random.below(40))).collect();
    fs::write(&graph, edges).unwrap();
    let table = Arc::new(Table::open(&table).unwrap());
    let mut plans = Vec::new();
    for precision in [Precision::F64, Precision::F32] {
        let common = (1e-9, 12, precision, Some(3));
        let (tolerance, iterations, precision, partitions) = common;
        for algorithm in [
            logistic_regression::Algorithm::Lbfgs,
            logistic_regression::Algorithm::GradientDescent { step: Some(0.1) },
        ] {
            let options = logistic_regression::Options {
                label: "y".into(),
                features: None,
                l2: 0.1,
                algorithm,
                tolerance,
                iterations,
                precision,
                partitions,
            };
            plans.push(logistic_regression::job(table.clone(), &options).unwrap().plan);
        }
        let init = kmeans::Init::PlusPlus { k: 4, seed: 1 };
        let options = kmeans::Options { features: None, init, tolerance, iterations, precision, partitions };
        plans.push(kmeans::job(table.clone(), &options).unwrap().plan);
        let options =
            pagerank::Options { damping: 0.85, tolerance, iterations, precision, partitions: Some(4) };
        plans.push(pagerank::job(edges::read(&graph, None).unwrap(), &options).unwrap().plan);
    }
    plans
}

/// Runs all applications over small data.
fn finished(folder: &Path) -> Vec<Finished> {
    plans(folder).into_iter().map(Finished::run).collect()
}

/// A part with a right checksum reaches its decoder, the check of the partition, and the kernels.
#[test]
fn damaged_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let finished = finished(folder.path());
    let contents = finished.iter().flat_map(Finished::saved_contents).collect();
    let numbers: [&[u8]; 4] = [&[0; 8], &[255; 8], &f64::NAN.to_le_bytes(), &1e300f64.to_le_bytes()];
    let inputs = Inputs::binary(contents, &numbers);
    fuzz("damaged_snapshot", |random| {
        let job = random.pick(&finished);
        let target = job.saved_partition(&mut |bound| random.below(bound));
        let mut content = job.content(target);
        inputs.damage(random, &mut content);
        job.resume(target, content)
    });
}

/// A bundle that another worker sends: all of its partitions reach decoders, checks and kernels.
#[test]
fn damaged_migration() {
    let folder = tempfile::tempdir().unwrap();
    let finished = finished(folder.path());
    let contents = finished.iter().flat_map(Finished::contents).collect();
    let inputs = Inputs::binary(contents, &[&[0; 8], &[255; 8], &f64::NAN.to_le_bytes()]);
    fuzz("damaged_migration", |random| {
        let job = random.pick(&finished);
        let target = job.any_partition(&mut |bound| random.below(bound));
        let mut content = job.content(target);
        inputs.damage(random, &mut content);
        job.migrate(target, content)
    });
}
