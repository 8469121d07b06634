//! Checks that every analysis document has exactly the keys listed here.

#[path = "../../model/tests/builder/mod.rs"]
mod builder;

use std::collections::BTreeSet;

use builder::Build;
use pellucid_model::analyze;
use pellucid_report::{Source, analysis_json, job_json, write_document};
use pellucid_trace::{Column, Expression, Operator, Part, Phase, Trace, kind};
use serde_json::Value;

/// Expected keys of the object at each path. `[]` means each element of a list. Keys after `+` are later
/// additions to the format. Maps by kind are checked separately.
const KEYS: &[(&str, &str)] = &[
    (
        "",
        "format source resources wall_clock_ms jobs stages bounds causes replay advice + recording \
      application_ms task_time_ms parts stragglers idle concurrency notes",
    ),
    (
        "source",
        "kind path application engine engine_version complete bytes tasks stages jobs sql_executions warnings",
    ),
    ("resources[]", "name kind machine capacity capacity_from ideal_ms"),
    ("wall_clock_ms", "jobs driver_only waiting_for_executors"),
    (
        "jobs[]",
        "id name duration_ms modelled_ms stages bottleneck next ideal_ms intensity \
         + outcome error rows observed_ms limit_ms imbalance utilization queue_ms service_ms \
         read_bytes cached_bytes written_bytes memory_high_water_bytes peak spill core steps_ms source_id blocked_ms blocked_at_most_ms \
         bounds",
    ),
    ("jobs[].bottleneck", "kind name"),
    ("jobs[].next", "kind ideal_ms"),
    ("jobs[].intensity", "disk_mb_per_cpu_s network_mbit_per_cpu_s shuffle_over_input output_over_input"),
    ("jobs[].peak", "bytes stage held_by"),
    ("jobs[].spill", "write_bytes read_bytes cached_bytes ms core_ms sufficient_memory_bytes"),
    ("jobs[].core", "+ total_ms decode_share operator_share encode_share not_split_share operators"),
    (
        "jobs[].core.operators[]",
        "stage operator name part core_ms rows_in rows_out planned_rows + columns expressions exchange_read",
    ),
    ("jobs[].core.operators[].columns[]", "name core_ms bytes"),
    ("jobs[].core.operators[].expressions[]", "text core_ms"),
    ("jobs[].core.operators[].exchange_read", "tasks bytes largest_bytes skew"),
    (
        "stages[]",
        "id attempt name call_site tasks failed_tasks duration_ms task_time_ms ideal_ms utilization queue_ms \
         service_ms bottleneck blocked_ms blocked_at_most_ms skew stragglers + job limit_ms imbalance core not_split \
         source_id",
    ),
    ("stages[].bottleneck", "kind name"),
    ("stages[].blocked_ms", "disk network gc scheduler deserialize other"),
    ("stages[].blocked_at_most_ms", "disk network gc scheduler deserialize other"),
    (
        "stages[].skew",
        "input_bytes_max_over_median output_bytes_max_over_median duration_max_over_median + partitions",
    ),
    ("stages[].stragglers", "count denominator causes + causes_at_most tasks"),
    (
        "stages[].stragglers.causes",
        "output_skew scheduler input_read shuffle_read shuffle_write output_write gc first_task failure \
         slow_machine unexplained",
    ),
    ("bounds", "no_disk no_network no_gc no_stragglers"),
    ("causes[]", "cause stage ms at_most evidence + job"),
    ("replay", "measured_ms simulated_ms error + weak"),
    ("recording", "+ recording_ms writer_ms share"),
];

const BY_KIND: &[&str] = &[
    "jobs[].ideal_ms",
    "jobs[].limit_ms",
    "jobs[].imbalance",
    "jobs[].utilization",
    "jobs[].queue_ms",
    "jobs[].service_ms",
    "stages[].ideal_ms",
    "stages[].utilization",
    "stages[].queue_ms",
    "stages[].service_ms",
    "stages[].limit_ms",
    "stages[].imbalance",
];

/// Returns every value at a path.
fn at<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (key, each) = step.strip_suffix("[]").map_or((step, false), |key| (key, true));
        let next = found.into_iter().map(|v| &v[key]);
        found = match each {
            // A list that was not measured is null.
            true => next.flat_map(|v| v.as_array().map_or(&[][..], Vec::as_slice)).collect(),
            false => next.collect(),
        };
    }
    found
}

#[track_caller]
fn check_keys(value: &Value) {
    for (path, keys) in KEYS {
        let expect: BTreeSet<&str> = keys.split_whitespace().filter(|key| *key != "+").collect();
        for object in at(value, path) {
            let nullable = ["bottleneck", "next", "peak", "spill", "exchange_read"]
                .iter()
                .any(|key| path.ends_with(key));
            if nullable && object.is_null() {
                continue;
            }
            let got: BTreeSet<&str> = object.as_object().expect(path).keys().map(String::as_str).collect();
            assert_eq!(got, expect, "keys of {path}");
        }
    }
    for path in BY_KIND {
        for map in at(value, path) {
            let map = map.as_object().expect(path);
            assert!(["cpu", "disk", "network"].iter().all(|kind| map.contains_key(*kind)), "{path}: {map:?}");
            assert!(map.values().all(|v| v.is_null() || v.is_f64()), "{path}: {map:?}");
        }
    }
}

#[test]
fn event_log_has_the_same_keys() {
    let value = of(&builder::spark::skewed().trace);
    check_keys(&value);
    assert_eq!(value["source"]["kind"], "spark-event-log");
    assert_eq!(value["stages"][1]["skew"]["partitions"][0]["partition"], 7);
    assert_eq!(value["stages"][1]["stragglers"]["denominator"], "bytes");
    assert!(value["bounds"]["no_stragglers"]["duration_ms"].is_f64(), "{}", value["bounds"]);
    assert!(value["bounds"]["no_gc"].is_null(), "GC time was not measured");
    assert!(value["replay"]["error"].is_f64());
    assert_eq!(value["causes"][0]["cause"], "skew");
    assert!(value["advice"][0]["change"].is_string());
    assert!(value["stages"][1]["blocked_ms"]["gc"].is_null());
}

fn of(trace: &Trace) -> Value {
    analysis_json(&analyze(trace), Source::of_trace(trace, Some("job.trace")))
}

/// Returns a query with a filter and an operator that reads an exchange.
fn query() -> Trace {
    let mut trace = Build::query().trace;
    trace.operators.push(Operator {
        stage: 0,
        operator: 0,
        name: "Filter".into(),
        detail: None,
        part: Part::Operators,
        inputs: vec![],
        from: None,
        cpu_ns: 9,
        max_cpu_ns: 9,
        batches: None,
        rows: Some(4),
        bytes: None,
        planned_rows: None,
        peak_bytes: None,
        columns: vec![Column { name: "a".into(), cpu_ns: 2, encoded_bytes: 3, decoded_bytes: 4 }],
        expressions: vec![Expression { text: "a + 1".into(), cpu_ns: 1, rows: 5 }],
    });
    let filter = trace.operators[0].clone();
    let exchange = Operator { stage: 1, operator: 1, name: "Exchange".into(), columns: vec![], ..filter };
    trace.operators.push(Operator { from: Some(0), bytes: Some(96), ..exchange });
    trace
}

#[test]
fn every_document_has_every_key() {
    let whole = query();
    check_keys(&of(&whole));
    check_keys(&of(&Trace::default()));
    let mut cut = whole.clone();
    cut.end = None;
    cut.job_ends.clear();
    cut.stage_ends.clear();
    cut.truncated = Some("cut in block 1".into());
    check_keys(&of(&cut));
    cut.monotasks.clear();
    check_keys(&of(&cut));
}

#[test]
fn every_path_is_checked() {
    let query = of(&query());
    for path in KEYS.iter().map(|(path, _)| path).chain(BY_KIND) {
        assert!(!at(&query, path).is_empty(), "{path} is never checked");
    }
}

#[test]
fn maps_by_kind_include_other_kinds() {
    let mut b = Build::on_cores(1);
    let store = b.resource("s3://bucket", kind::STORE, None);
    let job = b.job("remote", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    b.monotask(m, store, Phase::Fetch, 0.0, 50.0).bytes = Some(1000);
    b.end_job(job, 60.0);
    let document = of(&b.trace);
    check_keys(&document);
    assert_eq!(document["jobs"][0]["ideal_ms"]["store"], 50.0);
    assert_eq!(document["jobs"][0]["ideal_ms"]["network"], Value::Null);
    assert_eq!(document["resources"][1]["capacity"], Value::Null);
    assert_eq!(document["resources"][1]["capacity_from"], "busy time");
    assert_eq!(document["causes"][0]["at_most"], true);
}

#[test]
fn non_finite_numbers_are_null() {
    let mut a = analyze(&Build::query().trace);
    a.jobs[0].modelled_ms = Some(f64::NAN);
    a.causes[0].ms = f64::INFINITY;
    let document = analysis_json(&a, Source::of_trace(&Trace::default(), None));
    assert_eq!(document["jobs"][0]["modelled_ms"], Value::Null);
    assert_eq!(document["causes"][0]["ms"], Value::Null);
}

#[test]
fn source_tells_whether_it_is_complete() {
    let mut trace = Build::query().trace;
    let source = Source::of_trace(&trace, Some("job.trace"));
    assert!(source.complete && source.warnings.is_empty());
    assert_eq!((source.tasks, source.stages, source.jobs, source.sql_executions), (5, 2, 1, Some(1)));
    assert_eq!(source.engine.as_deref(), Some("pellucid"));
    trace.truncated = Some("cut in block 1".into());
    let document = of(&trace);
    assert_eq!(document["source"]["complete"], false);
    let warnings = document["source"]["warnings"].as_array().expect("a list");
    assert!(warnings[0].as_str().expect("text").contains("cut in block 1"), "{warnings:?}");
    assert_eq!(warnings.len(), 1, "duplicated: {warnings:?}");
}

#[test]
fn document_begins_with_its_format() {
    let value = of(&Build::query().trace);
    let mut text = Vec::new();
    write_document(&mut text, "pellucid.analysis/1", &value).expect("memory takes all bytes");
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    assert!(text.starts_with(r#"{"format":"pellucid.analysis/1","advice":["#), "{text}");
    assert!(text.ends_with("}\n") && text.lines().count() == 1);
    assert_eq!(serde_json::from_str::<Value>(&text).expect("it is JSON"), value);
    let job = job_json(&analyze(&Build::query().trace).jobs[0]);
    assert_eq!(job, value["jobs"][0]);
}
