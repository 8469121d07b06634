//! Redaction: a canary in any text of a trace must not reach any output.

mod cases;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use cases::builder::{Build, ms, spark};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pellucid_model::analyze;
use pellucid_report::*;
use pellucid_trace::*;
use serde_json::Value;

/// Words that consist of letters only, since those look most like the words to be kept.
const CANARY: &str = "quagga";
const SALT: [u8; 32] = [7; 32];

/// An application of Spark in which every optional text is present.
fn log() -> Trace {
    let mut s = spark::skewed();
    s.set("spark.local.dir", "/data");
    s.set("spark.acme.user", "me");
    let trace = &mut s.trace;
    let application = trace.application.as_mut().expect("it has one");
    application.id = Some("application_1_2".into());
    application.attempt = Some("1".into());
    application.user = Some("me".into());
    application.engine_version = Some("3.5.6-acme".into());
    application.events.insert("SparkListenerTaskEnd".into(), 9);
    application.events.insert("com.acme.Event".into(), 1);
    trace.queries.push(Query { name: "SELECT 1".into(), submitted_ns: 0, id: Some(0), root: None });
    trace.jobs[0].query = Some(0);
    let (outcome, error) = (Outcome::Failed, Some("no such file".to_owned()));
    trace.query_ends.push(QueryEnd { query: 0, ended_ns: ms(1450.0), outcome, error: error.clone() });
    trace.query_operators.push(QueryOperator {
        query: 0,
        operator: 0,
        name: "HashAggregate".into(),
        detail: Some("keys=[a#1]".into()),
        inputs: Vec::new(),
        within: None,
        fragment: 0,
        stage: Some(0),
        metrics: vec![Metric { name: "sort time".into(), unit: Unit::Ns, value: 5 }],
    });
    trace.job_ends[0].error = error.clone();
    trace.stage_ends[0].error = error.clone();
    trace.resources[0].removed_ns = Some(ms(1400.0));
    trace.resources[0].removed_why = Some("lost".into());
    trace.pipelined_tasks.push(&PipelinedTask {
        outcome,
        failure: Some(pellucid_trace::Failure::ExecutorLost),
        error,
        ..spark::computing(1, 99, 1300.0, 100.0)
    });
    let reason = Some("not bound by I/O".to_owned());
    let change = ConcurrencyChange { resource: 0, stage: 0, at_ns: 1, concurrency: 2, reason };
    trace.concurrency_changes.push(change);
    s.trace
}

/// A trace of the engine in which every optional text is present.
fn query() -> Trace {
    let mut b = Build::query();
    b.resource("s3://warehouse", kind::STORE, Some((1e8, "set")));
    b.trace.header.as_mut().expect("it has one").labels.push("page cache bypassed (direct I/O)".into());
    b.trace.stages[0].not_split.push("RecursiveQuery".into());
    b.trace.stages[0].call_site = Some("a.py:1".into());
    let expressions = vec![Expression { text: "a > 1".into(), cpu_ns: 5, rows: 7 }];
    let detail = Some("a > 1".into());
    b.trace.operators.push(Operator { detail, expressions, ..cases::operator(0, 0, "Filter", &[]) });
    b.trace.operators.push(cases::scan(0, 1, "Scan lineitem.parquet"));
    let frames = "serve;arrow::compute::filter;[libacme.so]".into();
    b.trace.stacks.push(Stack { stage: 0, operator: Some(0), count: 2, frames });
    let (outcome, error) = (Outcome::Failed, Some("503 SlowDown".to_owned()));
    b.trace.job_ends[0].error = error.clone();
    b.trace.storage_operations.push(StorageOperation {
        resource: 2,
        operation: Operation::Read,
        started_ns: 0,
        first_byte_ns: None,
        duration_ns: 1,
        bytes: None,
        concurrency: None,
        error,
        outcome,
    });
    b.trace.warnings.push("part 2 exists twice".into());
    b.trace.truncated = Some("cut after block 1".into());
    b.trace
}

/// Returns the records of a trace as JSON.
fn records(trace: &Trace) -> Vec<Value> {
    let t = trace.clone();
    let mut all: Vec<Record> = t.header.into_iter().map(Record::Header).collect();
    all.extend(t.application.map(|a| Record::Application(Box::new(a))));
    all.extend(t.machines.into_iter().map(Record::Machine));
    all.extend(t.resources.into_iter().map(Record::Resource));
    all.extend(t.queries.into_iter().map(Record::Query));
    all.extend(t.jobs.into_iter().map(Record::Job));
    all.extend(t.stages.into_iter().map(Record::Stage));
    all.extend(t.multitasks.into_iter().map(Record::Multitask));
    all.extend(t.monotasks.into_iter().map(Record::Monotask));
    all.extend(t.operators.into_iter().map(Record::Operator));
    all.extend(t.query_operators.into_iter().map(Record::QueryOperator));
    all.extend(t.stacks.into_iter().map(Record::Stack));
    all.extend(trace.pipelined_tasks.iter().map(|task| Record::PipelinedTask(Box::new(task))));
    all.extend(t.storage_operations.into_iter().map(Record::StorageOperation));
    all.extend(t.concurrency_changes.into_iter().map(Record::ConcurrencyChange));
    all.extend(t.stage_ends.into_iter().map(Record::StageEnd));
    all.extend(t.job_ends.into_iter().map(Record::JobEnd));
    all.extend(t.query_ends.into_iter().map(Record::QueryEnd));
    all.iter().map(|record| serde_json::to_value(record).expect("it is JSON")).collect()
}

/// Returns the places of all texts and keys of maps below a value, as JSON pointers.
fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(ix, each)| texts(each, &format!("{at}/{ix}"), found));
        }
        Value::Object(all) => {
            all.iter().for_each(|(key, each)| {
                texts(each, &format!("{at}/{}", key.replace('/', "~1")), found);
            });
        }
        _ => {}
    }
}

/// Replaces each text, one by one, wherever the result is still a record. Keys of maps of texts or counts
/// get an entry of their own.
fn plant(record: &mut Value, canary: &impl Fn(&str) -> String) -> usize {
    let (mut places, mut planted) = (Vec::new(), 0);
    texts(record, "", &mut places);
    // Names of functions are kept: they are those of the program, not of its user.
    for place in places.into_iter().filter(|place| place != "/frames") {
        let before = record.clone();
        let text = record.pointer_mut(&place).expect("it is there");
        *text = canary(text.as_str().unwrap_or_default()).into();
        match serde_json::from_value::<Record>(record.clone()) {
            Ok(_) => planted += 1,
            Err(_) => *record = before,
        }
    }
    for (map, value) in [("properties", Value::from(canary(""))), ("events", Value::from(1))] {
        if let Some(map) = record.get_mut(map).and_then(Value::as_object_mut) {
            map.insert(canary("spark."), value);
            planted += 1;
        }
    }
    planted
}

/// Returns a trace with canaries, and their number.
fn with_canaries(trace: &Trace, canary: &impl Fn(&str) -> String) -> (Trace, usize) {
    let (mut out, mut planted) = (Trace::default(), 0);
    for mut record in records(trace) {
        planted += plant(&mut record, canary);
        out.push(serde_json::from_value(record).expect("it is a record")).expect("it fits");
    }
    out.warnings = trace.warnings.iter().map(|text| canary(text)).collect();
    out.truncated = trace.truncated.as_deref().map(canary);
    (out, planted)
}

/// Returns the rows of all exported Parquet files as text.
fn tables(trace: &Trace) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut files = Vec::new();
    let written = parquet(trace, |name| {
        files.push(folder.join(format!("redaction-{name}")));
        File::create(&files[files.len() - 1])
    });
    written.expect("it is written");
    let mut text = String::new();
    for path in files {
        let file = File::open(&path).expect("it is there");
        let rows = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|reader| reader.build());
        rows.expect("a file").for_each(|batch| text += &format!("{:?}", batch.expect("rows")));
    }
    text
}

/// Returns a page with all its chunks unpacked.
fn page(trace: &Trace) -> String {
    let what_if = WhatIf::of(trace);
    let source = Source::of_trace(trace, None);
    let page = html(trace, &analyze(trace), source, what_if.as_ref().map_err(String::as_str));
    let mut all = page.clone();
    for chunk in page.split(" id=\"chunk-").skip(1) {
        let text = chunk.split_once('>').expect("a tag").1.split_once('<').expect("its end").0;
        let packed = base64::engine::general_purpose::STANDARD.decode(text).expect("it is base64");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("it is gzip");
        all += &String::from_utf8_lossy(&bytes);
    }
    all
}

/// Returns the six outputs of a trace, by name.
fn outputs(trace: &Trace) -> [(&'static str, String); 6] {
    let analysis = analyze(trace);
    let written = |write: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| {
        let mut bytes = Vec::new();
        write(&mut bytes).expect("memory can be written");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let warnings = analysis.warnings.join("\n");
    [
        ("perfetto", written(&|out| perfetto(trace, out))),
        ("otlp", written(&|out| otlp(trace, out))),
        ("parquet", tables(trace)),
        ("html", page(trace)),
        ("text", terminal(&analysis, trace, 4000, false) + &warnings),
        ("json", analysis_json(&analysis, Source::of_trace(trace, None)).to_string()),
    ]
}

#[test]
fn canary_in_any_text_reaches_no_redacted_output() {
    let canaries: [&dyn Fn(&str) -> String; 5] = [
        &|_| CANARY.to_owned(),
        &|text| format!("{text} {CANARY}"),
        &|text| format!("{text}, {CANARY}"),
        &|text| format!("{CANARY} {text}"),
        &|text| format!("{text}.{CANARY}"),
    ];
    for (name, trace) in [("log", log()), ("query", query())] {
        for (number, canary) in canaries.iter().enumerate() {
            let (mut trace, planted) = with_canaries(&trace, canary);
            assert!(planted > 15, "{name}: {planted} texts");
            for (output, text) in outputs(&trace) {
                assert!(text.contains(CANARY), "{name} {number}: {output} shows no names");
            }
            redact(&mut trace, &Salt::from(SALT));
            assert!(!format!("{trace:?}").contains(CANARY), "{name} {number}: {trace:?}");
            for (output, text) in outputs(&trace) {
                assert!(!text.contains(CANARY), "{name} {number}: {output}");
            }
        }
    }
}

#[test]
fn redaction_replaces_names_and_keeps_measurements() {
    let mut b = Build::query();
    b.resource("s3://warehouse", kind::STORE, None);
    b.trace.stages[0].name = "Aggregate Partial, Scan lineitem.parquet".into();
    b.trace.job_ends[0].error = Some("/home/me/lineitem.parquet: no such file".into());
    let before = b.trace.clone();
    redact(&mut b.trace, &Salt::from(SALT));
    let text = format!("{:?}", b.trace);
    for secret in ["lineitem", "warehouse", "/home/me", "\"here\"", "l_returnflag"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let digits = b.trace.stages[0].name.strip_prefix("Aggregate Partial, Scan source-").expect("operators");
    assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{digits}");
    assert_eq!(b.trace.resources[1].name, "nvme0n1");
    assert_eq!((&b.trace.monotasks, &b.trace.multitasks), (&before.monotasks, &before.multitasks));
    let mut again = before.clone();
    redact(&mut again, &Salt::from(SALT));
    assert_eq!(again, b.trace, "the salt determines the names");
    let mut other = before;
    redact(&mut other, &Salt::random());
    assert_ne!(other.machines[0].name, b.trace.machines[0].name, "another salt yields other names");
}

#[test]
fn redacted_log_has_the_same_analysis() {
    let mut s = spark::skewed();
    s.set("spark.sql.shuffle.partitions", "8");
    s.trace.application.as_mut().expect("it has one").engine_version = Some("3.5.6-acme-1".into());
    let before = analyze(&s.trace);
    redact(&mut s.trace, &Salt::from(SALT));
    let after = analyze(&s.trace);
    assert_eq!(s.trace.stages[0].name, "Exchange, HashAggregate");
    assert!(s.trace.resources[0].name.starts_with("executor-"), "{}", s.trace.resources[0].name);
    let changes = |analysis: &pellucid_model::Analysis| {
        analysis.advice.iter().map(|advice| advice.change.clone()).collect::<Vec<_>>()
    };
    assert_eq!(changes(&after), changes(&before));
}
