//! Tests of the engine in process: results, traces, concurrent queries, and recovery from failures.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::metadata::ParquetMetaDataReader;
use datafusion::parquet::file::properties::WriterProperties;
use pellucid_engine::{Engine, EngineError, EngineOptions, Input, QueryResult};
use pellucid_trace::{Outcome, Phase, kind};

/// Writes a Parquet file with `rows` rows of `k` = 0, 1, … and `s` = `k` modulo 7 as text, in row groups
/// of 1,000.
fn table(path: &Path, rows: i64) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("s", DataType::Utf8, false),
    ]));
    let keys = Int64Array::from_iter_values(0..rows);
    let texts = StringArray::from_iter_values((0..rows).map(|k| format!("text {}", k % 7)));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys), Arc::new(texts)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000)).build();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(path).unwrap(), schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn engine() -> Engine {
    Engine::new(EngineOptions { cores: 2, ..EngineOptions::default() }).unwrap()
}

fn run(engine: &Engine, sql: &str) -> QueryResult {
    let result =
        engine.start(sql.parse().unwrap(), None).unwrap().wait().unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!(result.trace.check(), Vec::<String>::new(), "{sql}");
    result
}

fn number(result: &QueryResult) -> i64 {
    result.batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// Creates a folder with the table `t` of 20,000 rows, and an engine with the table registered.
fn with_table() -> (tempfile::TempDir, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    table(&path, 20_000);
    let engine = engine();
    engine.register_table("t", path.to_str().unwrap()).unwrap();
    (folder, engine)
}

#[test]
fn scans_of_a_query_are_those_of_its_trace() {
    let (folder, engine) = with_table();
    let sql = "SELECT s, count(*) FROM t WHERE k < 1500 GROUP BY s";
    let scans = engine.scans(&sql.parse().unwrap()).unwrap();
    let [scan] = &scans[..] else { panic!("{} scans", scans.len()) };
    let path = folder.path().canonicalize().unwrap().join("t.parquet");
    assert_eq!(scan.files, std::slice::from_ref(&path));
    assert_eq!(
        (&scan.columns[..], &scan.filter_columns[..]),
        (&["k".into(), "s".into()][..], &["k".into()][..])
    );
    assert_eq!(scan.obstacle, None);
    let file = std::fs::File::open(&path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
    let kept = scan.kept(&Arc::new(metadata)).unwrap();
    assert_eq!((kept.len(), &kept[..3]), (20, &[1000, 1000, 0][..]));
    let trace = run(&engine, sql).trace;
    let recorded = trace.operators.iter().find(|operator| operator.operator == scan.operator).unwrap();
    assert_eq!(recorded.name, scan.name);
    assert_eq!(recorded.rows, Some(2000));
    for other in ["CREATE TABLE u AS SELECT * FROM t", "SELECT nothing FROM t"] {
        assert!(matches!(engine.scans(&other.parse().unwrap()), Err(EngineError::Usage(_))), "{other}");
    }
}

#[test]
fn every_monotask_uses_one_resource_and_trace_is_valid() {
    let (_folder, engine) = with_table();
    let result = run(&engine, "SELECT s, sum(k) FROM t WHERE k >= 5000 GROUP BY s ORDER BY s");
    assert_eq!(result.batches.iter().map(|b| b.num_rows()).sum::<usize>(), 7);
    let trace = &result.trace;
    assert_eq!(trace.job_ends[0].outcome, Outcome::Ok);
    assert_eq!(trace.job_ends[0].rows, Some(7));
    assert!(trace.stages.len() >= 2, "an aggregation has an exchange");
    for monotask in &trace.monotasks {
        let resource = &trace.resources[monotask.resource as usize];
        assert_eq!(monotask.phase == Phase::Compute, resource.kind == kind::CPU, "{monotask:?}");
    }
    // Pruning skips the row groups below 5,000, so 15 of 20 are read.
    let read: u64 = trace
        .monotasks
        .iter()
        .filter_map(|m| if m.phase == Phase::Compute { m.cached_bytes } else { m.bytes })
        .sum();
    let all = run(&engine, "SELECT s, sum(k) FROM t GROUP BY s ORDER BY s");
    let read_all: u64 = all
        .trace
        .monotasks
        .iter()
        .filter_map(|m| if m.phase == Phase::Compute { m.cached_bytes } else { m.bytes })
        .sum();
    assert!(read < read_all * 4 / 5, "{read} of {read_all} bytes");
}

#[test]
fn build_side_prunes_probe_side_reads() {
    let (folder, engine) = with_table();
    let few = folder.path().join("few.parquet");
    table(&few, 10);
    engine.register_table("few", few.to_str().unwrap()).unwrap();
    let result = run(&engine, "SELECT count(*) FROM few JOIN t ON few.k = t.k");
    assert_eq!(number(&result), 10);
    let probe = result.trace.stages.iter().position(|s| s.name.contains("t.parquet")).unwrap() as u32;
    let rows: u64 = result
        .trace
        .monotasks
        .iter()
        .filter(|m| m.phase == Phase::Compute)
        .filter(|m| result.trace.multitasks[m.multitask as usize].stage == probe)
        .filter_map(|m| m.rows)
        .sum();
    assert!(rows <= 10, "{rows} rows passed the filter of 10 keys");
}

#[test]
fn limit_returns_exactly_its_rows() {
    let (_folder, engine) = with_table();
    let result = run(&engine, "SELECT k FROM t WHERE k % 2 = 0 LIMIT 3");
    assert_eq!(result.batches.iter().map(|b| b.num_rows()).sum::<usize>(), 3);
}

#[test]
fn concurrent_queries_have_separate_results_and_traces() {
    let (_folder, engine) = with_table();
    let queries: Vec<_> = (1..=8)
        .map(|n| {
            let sql = format!("SELECT count(*) FROM t a JOIN t b ON a.k = b.k WHERE a.k < {}", n * 1000);
            (n, engine.start(sql.parse().unwrap(), None).unwrap())
        })
        .collect();
    for (n, query) in queries {
        let result = query.wait().unwrap();
        assert_eq!(number(&result), n * 1000);
        assert_eq!(result.trace.jobs.len(), 1);
        assert_eq!(result.trace.check(), Vec::<String>::new());
    }
}

#[test]
fn failed_query_records_cause_and_engine_stays_usable() {
    let (folder, engine) = with_table();
    let trace = folder.path().join("failed.trace");
    let failed =
        engine.start("SELECT sqrt(k - 19999) FROM t".parse().unwrap(), Some(trace.clone())).unwrap().wait();
    let Err(EngineError::Failed(message)) = failed else { panic!("{failed:?}") };
    assert!(message.contains("square root of a negative number"), "{message}");
    let trace = pellucid_trace::Trace::read(&trace).unwrap();
    assert_eq!(trace.job_ends[0].outcome, Outcome::Failed);
    assert!(trace.job_ends[0].error.as_ref().is_some_and(|e| e.contains("square root")));
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM t")), 20_000);
}

#[test]
fn cancelled_query_ends_and_engine_stays_usable() {
    let (_folder, engine) = with_table();
    let endless = "SELECT count(*) FROM t a, t b, t c WHERE a.k + b.k + c.k = -1";
    let query = engine.start(endless.parse().unwrap(), None).unwrap();
    query.cancel_handle().cancel();
    assert!(matches!(query.wait(), Err(EngineError::Cancelled)));
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM t")), 20_000);
}

#[test]
fn query_over_memory_budget_fails_with_remedy() {
    let (folder, _) = with_table();
    let path = folder.path().join("t.parquet");
    let options = EngineOptions { cores: 2, memory_bytes: Some(100_000), ..EngineOptions::default() };
    let engine = Engine::new(options).unwrap();
    engine.register_table("t", path.to_str().unwrap()).unwrap();
    let failed =
        engine.start("SELECT k, s, count(*) FROM t GROUP BY k, s".parse().unwrap(), None).unwrap().wait();
    let Err(EngineError::Failed(message)) = failed else { panic!("{failed:?}") };
    assert!(message.contains("memory") && message.contains("--memory"), "{message}");
    assert_eq!(number(&run(&engine, "SELECT count(*) FROM t")), 20_000);
}

#[test]
fn result_does_not_depend_on_cores_and_partitions() {
    let (folder, _) = with_table();
    let path = folder.path().join("t.parquet");
    let sql = "SELECT a.s, count(*), sum(a.k), avg(b.k) FROM t a JOIN t b ON a.k = b.k + 1 \
               GROUP BY a.s ORDER BY a.s";
    let mut answers = Vec::new();
    for (cores, partitions) in [(1, 1), (1, 8), (2, 1), (2, 7), (3, 64)] {
        let options = EngineOptions { cores, partitions: Some(partitions), ..EngineOptions::default() };
        let engine = Engine::new(options).unwrap();
        engine.register_table("t", path.to_str().unwrap()).unwrap();
        let result = run(&engine, sql);
        let all = datafusion::arrow::compute::concat_batches(&result.schema, &result.batches).unwrap();
        answers.push(all);
    }
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
    assert_eq!(answers[0].num_rows(), 7);
}

#[test]
fn tables_in_memory_return_same_result_without_disk() {
    let (folder, plain) = with_table();
    let path = folder.path().join("t.parquet");
    let sql = "SELECT sum(k) FROM t WHERE s = 'text 3'";
    let expected = number(&run(&plain, sql));
    for input in [Input::Memory, Input::MemoryDecoded] {
        let engine = Engine::new(EngineOptions { cores: 2, input, ..EngineOptions::default() }).unwrap();
        engine.register_table("t", path.to_str().unwrap()).unwrap();
        let result = run(&engine, sql);
        assert_eq!(number(&result), expected, "{input:?}");
        assert!(result.trace.monotasks.iter().all(|m| m.phase == Phase::Compute), "{input:?}");
        let decoded = result.trace.monotasks.iter().filter_map(|m| m.decode_ns).sum::<u64>() > 0;
        assert_eq!(decoded, input == Input::Memory, "{input:?}");
    }
}

#[test]
fn statements_affect_later_statements() {
    let (_folder, engine) = with_table();
    run(&engine, "CREATE VIEW v AS SELECT k FROM t WHERE k < 10");
    run(&engine, "CREATE TABLE m AS SELECT k * 2 AS d FROM v");
    assert_eq!(number(&run(&engine, "SELECT sum(d) FROM m")), 90);
    run(&engine, "INSERT INTO m VALUES (10)");
    assert_eq!(number(&run(&engine, "SELECT sum(d) FROM m")), 100);
    let unknown = engine.start("SELECT nothing FROM v".parse().unwrap(), None).unwrap().wait();
    assert!(matches!(unknown, Err(EngineError::Usage(_))), "{unknown:?}");
}

#[test]
fn explain_shows_stages_and_monotasks() {
    let (_folder, engine) = with_table();
    let sql = "SELECT s, count(*) FROM t GROUP BY s";
    let text = |result: &QueryResult| {
        let lines = result.batches.iter().flat_map(|b| {
            let column = b.column(1).as_string::<i32>();
            (0..column.len()).map(|i| column.value(i).to_string()).collect::<Vec<_>>()
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let plan = text(&run(&engine, &format!("EXPLAIN {sql}")));
    assert!(
        plan.contains("multitasks") && plan.contains("exchange") && plan.contains("Scan t.parquet"),
        "{plan}"
    );
    let measured = text(&run(&engine, &format!("EXPLAIN ANALYZE {sql}")));
    assert!(measured.contains("Compute monotasks: queue"), "{measured}");
}
