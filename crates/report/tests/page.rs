//! The content and size of the report page. Its look and behaviour are checked in a browser
//! (`tests/trace/test_report.py`).

mod cases;

use std::io::Read;

use base64::Engine as _;
use cases::builder::{Build, ms};
use cases::{HOSTILE, hostile, plan, query_plan};
use pellucid_model::analyze;
use pellucid_report::{Source, WhatIf, html};
use pellucid_trace::{Blocked, PipelinedTask, Trace, kind};
use serde_json::{Value, json};

fn page(trace: &Trace) -> String {
    let what_if = WhatIf::of(trace);
    html(trace, &analyze(trace), Source::of_trace(trace, None), what_if.as_ref().map_err(String::as_str))
}

/// Unpacks a chunk of a page.
fn chunk(page: &str, number: u64) -> Vec<u8> {
    let begin = format!("<script type=\"text/plain\" id=\"chunk-{number}\">");
    let text = page.split_once(&begin).expect("the chunk is there").1.split_once('<').expect("it ends").0;
    let packed = base64::engine::general_purpose::STANDARD.decode(text).expect("it is base64");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("it is gzip");
    bytes
}

fn document(page: &str) -> Value {
    let number = page.split_once("const DOCUMENT_CHUNK = ").expect("it is named").1;
    let number = number.split_once(';').expect("a number").0.parse().expect("a number");
    serde_json::from_slice(&chunk(page, number)).expect("it is JSON")
}

#[test]
fn page_has_no_external_references() {
    let page = page(&Build::query().trace);
    for reference in
        ["http:", "https:", " src=", "<link", "url(", "@import", "fetch(", "XMLHttpRequest", "{{"]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_are_escaped() {
    let page = page(&hostile().trace);
    assert!(!page.contains("<img"));
    assert!(page.contains("<title>&lt;/script&gt;&lt;img onerror=alert(1)&gt;&quot;"));
    assert_eq!(document(&page)["analysis"]["stages"][0]["name"], HOSTILE);
}

#[test]
fn lanes_hold_the_recorded_service_time() {
    let b = Build::query();
    let page = page(&b.trace);
    let timeline = &document(&page)["timeline"];
    let length = timeline["length_ns"].as_f64().expect("a number");
    assert_eq!(length, ms(1840.0) as f64);
    let levels = chunk(&page, timeline["levels"].as_u64().expect("there are some"));
    for (lane, service_ms) in timeline["lanes"].as_array().expect("lanes").iter().zip([660.0, 1600.0]) {
        let mean = lane["mean"].as_f64().expect("a number");
        assert!((mean * length / 1e6 - service_ms).abs() < 0.5, "{mean} for {service_ms} ms");
        let series = &lane["running"][0];
        let from = series["offset"].as_u64().expect("a number") as usize * 2;
        let bins = timeline["bins"].as_u64().expect("a number") as usize;
        let values =
            levels[from..from + 2 * bins].chunks(2).map(|v| f64::from(u16::from_le_bytes([v[0], v[1]])));
        let largest = series["largest"].as_f64().expect("a number");
        let sum: f64 = values.map(|v| v / 65535.0 * largest).sum();
        assert!((sum / bins as f64 - mean).abs() < 1e-6);
    }
    assert_eq!(timeline["lanes"][1]["blocks"][0]["count"], 4);
    assert_eq!(timeline["activities"], 9);
}

#[test]
fn pipelined_tasks_are_drawn_on_slots() {
    let mut b = Build::on_cores(2);
    let slots = b.resource("executor 1", kind::SLOTS, Some((2.0, "set")));
    let job = b.job("save at Report.scala:42", 0.0);
    let stage = b.stage(job, "Exchange, Scan parquet", 0.0);
    for partition in 0..4_u32 {
        let task = PipelinedTask {
            stage,
            partition,
            resource: slots,
            launched_ns: ms(100.0 * f64::from(partition)),
            duration_ns: ms(200.0),
            cpu_ns: Some(ms(120.0)),
            blocked_network: Some(Blocked::MeasuredNs(ms(40.0))),
            ..PipelinedTask::default()
        };
        b.trace.pipelined_tasks.push(&task);
    }
    b.end_stage(stage, 500.0);
    b.end_job(job, 500.0);
    let timeline = &document(&page(&b.trace))["timeline"];
    let lane = &timeline["lanes"][0];
    assert_eq!((&lane["name"], &lane["rows"]), (&"slots executor 1".into(), &2.into()));
    let phases: Vec<u64> =
        lane["running"].as_array().expect("series").iter().filter_map(|s| s["phase"].as_u64()).collect();
    let keys: Vec<&str> =
        phases.iter().filter_map(|p| timeline["phases"][*p as usize]["key"].as_str()).collect();
    assert_eq!(keys, ["compute", "blocked_network", "rest"]);
}

#[test]
fn stacks_are_in_the_document_if_there_are_any() {
    assert_eq!(document(&page(&Build::query().trace))["stacks"], Value::Null);
    let stacks = &document(&page(&hostile().trace))["stacks"];
    assert_eq!(stacks["samples"], 1);
    assert_eq!(stacks["names"].as_array().map(|names| names.contains(&json!(HOSTILE))), Some(true));
}

#[test]
fn plans_hold_the_operators_and_the_critical_path() {
    let mut b = plan();
    let plans = &document(&page(&b.trace))["plans"];
    assert_eq!(plans.as_array().map(Vec::len), Some(1));
    let stage = |stage, monotasks, critical| json!({ "frame": stage, "stage": stage, "monotasks": monotasks, "critical": critical, "shuffle_read": null });
    assert_eq!(plans[0]["frames"], json!([stage(0, 1, true), stage(1, 2, true), stage(2, 3, true)]));
    let mut operators = json!(b.trace.operators);
    operators.as_array_mut().expect("a list").iter_mut().for_each(|of| of["misestimate"] = false.into());
    assert_eq!(plans[0]["operators"], operators);
    // The stage that ended last did not wait for the second one.
    b.trace.stages[2].after = vec![0];
    let plans = &document(&page(&b.trace))["plans"];
    assert_eq!(plans[0]["frames"], json!([stage(0, 1, true), stage(1, 2, false), stage(2, 3, true)]));
    assert_eq!(document(&page(&Build::query().trace))["plans"], json!([]));
}

#[test]
fn misestimates_are_marked() {
    let mut b = plan();
    let operator = &mut b.trace.operators[1];
    (operator.planned_rows, operator.rows) = (Some(100), Some(10_000));
    assert_eq!(document(&page(&b.trace))["plans"][0]["operators"][1]["misestimate"], true);
}

#[test]
fn plans_of_queries_hold_their_fragments_and_the_share_of_the_largest_read() {
    let trace = query_plan();
    let plans = &document(&page(&trace))["plans"];
    let query = json!({ "id": 4, "name": "SELECT", "duration_ms": 1500.0, "task_ms": 1800.0 });
    assert_eq!((&plans[0]["query"], &plans[0]["job"]), (&query, &Value::Null));
    let skew = 10.0 * 8.0 / 17.0;
    let read = json!({ "tasks": 8, "bytes": 17_000_000, "largest_bytes": 10_000_000, "skew": skew });
    let frame = |frame, stage, read| json!({ "frame": frame, "stage": stage, "monotasks": 0, "critical": true, "shuffle_read": read });
    assert_eq!(plans[0]["frames"], json!([frame(0, 0, Value::Null), frame(1, 1, read)]));
    assert_eq!(plans[0]["operators"], json!(trace.query_operators));
}

#[test]
fn plans_of_jobs_are_apart_and_circles_of_stages_end() {
    let mut b = plan();
    b.trace.stages[0].after = vec![2, 9];
    let other = b.job("SELECT", 70.0);
    b.trace.stages[1].job = other;
    let plans = &document(&page(&b.trace))["plans"];
    let numbers = |job: usize| -> Vec<u64> {
        plans[job]["operators"]
            .as_array()
            .expect("operators")
            .iter()
            .filter_map(|o| o["operator"].as_u64())
            .collect()
    };
    assert_eq!((numbers(0), numbers(1)), (vec![0, 1, 2, 5, 6, 7, 8], vec![3, 4]));
    assert_eq!(plans[0]["frames"][0]["critical"], true);
}

/// A page of a million monotasks must stay below 30 MB.
#[test]
fn million_monotasks_fit_into_30_mb() {
    let mut b = Build::on_cores(16);
    let disk = b.disk("nvme0n1", Some(2e9));
    let job = b.job("SELECT", 0.0);
    let stage = b.stage(job, "Aggregate Partial, Scan", 0.0);
    let mut random = 42_u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as f64 / (1_u64 << 31) as f64
    };
    for ix in 0..500_000_u32 {
        b.trace.multitasks.push(pellucid_trace::Multitask {
            stage,
            partition: ix,
            admitted_ns: 0,
            memory_bytes: None,
        });
        let start = f64::from(ix) * 0.06;
        let bytes = (60_000.0 + 90_000.0 * next()) as u64;
        b.read(ix, disk, start, 0.03 + 0.05 * next(), bytes).queue_ns = (next() * 1e6) as u64;
        b.compute(ix, start + 0.5, 0.4 + 0.7 * next()).queue_ns = (next() * 3e6) as u64;
    }
    b.end_stage(stage, 30_100.0);
    b.end_job(job, 30_100.0);
    let analysis = analyze(&b.trace);
    let page = html(&b.trace, &analysis, Source::of_trace(&b.trace, None), Err("not asked"));
    assert!(page.len() < 30_000_000, "{} bytes", page.len());
    assert_eq!(document(&page)["timeline"]["single"], true);
}
