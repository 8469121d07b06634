//! Fuzz tests with damaged traces: analyses, predictions and every renderer must answer for whatever the reader
//! accepts. `tests/run fuzz` runs them for longer.

mod cases;

use std::io;

use pellucid_fuzz::{Inputs, fuzz};
use pellucid_model::{analyze, compare};
use pellucid_report::*;
use pellucid_trace::*;

/// Returns a trace's records, as lines.
fn lines(trace: &Trace) -> Vec<u8> {
    let mut records: Vec<Record> = trace.header.clone().map(Record::Header).into_iter().collect();
    let mut all = |of: Vec<Record>| records.extend(of);
    macro_rules! all {
        ($($list:ident $kind:ident),*) => { $(all(trace.$list.iter().cloned().map(Record::$kind).collect());)* };
    }
    all!(machines Machine, resources Resource, queries Query, jobs Job, stages Stage, multitasks Multitask);
    all!(monotasks Monotask, operators Operator, sampled_tasks SampledTask, exchanges Exchange);
    all!(query_operators QueryOperator, stacks Stack);
    all!(storage_operations StorageOperation, utilization_samples UtilizationSample);
    all!(concurrency_changes ConcurrencyChange, stage_ends StageEnd, job_ends JobEnd, query_ends QueryEnd);
    all(trace.pipelined_tasks.iter().map(|task| Record::PipelinedTask(Box::new(task))).collect());
    all(trace.application.clone().map(|a| Record::Application(Box::new(a))).into_iter().collect());
    all(trace.end.clone().map(Record::End).into_iter().collect());
    let line = |record| serde_json::to_string(record).expect("a record") + "\n";
    records.iter().map(line).collect::<String>().into_bytes()
}

fn read(lines: &[u8]) -> Option<Trace> {
    let frame = zstd::encode_all(lines, 1).expect("memory");
    Trace::from_reader(&frame[..]).ok()
}

/// Renders a trace in every way.
fn show(mut trace: Trace) {
    trace.check();
    let analysis = analyze(&trace);
    terminal(&analysis, &trace, 80, true);
    timeline(&trace, 80, true);
    overview(std::slice::from_ref(&analysis), &["a".into()], 80, false);
    let what_if = WhatIf::of(&trace);
    let source = || Source::of_trace(&trace, Some("a.trace"));
    analysis_json(&analysis, source()).to_string();
    html(&trace, &analysis, source(), what_if.as_ref().map_err(String::as_str));
    perfetto(&trace, &mut io::sink()).expect("written");
    otlp(&trace, &mut io::sink()).expect("written");
    folded(&trace, &mut io::sink()).expect("written");
    parquet(&trace, |_| Ok(io::sink())).expect("written");
    redact(&mut trace, &Salt::random());
    terminal(&analyze(&trace), &trace, 40, false);
}

fn inputs() -> Inputs {
    let mut intact: Vec<Vec<u8>> = cases::all().iter().map(|(_, trace)| lines(trace)).collect();
    // Some are long, and every input of a case is rendered whole.
    intact.retain(|lines| !lines.is_empty() && lines.len() < 30_000);
    let words: [&[u8]; 6] = [
        b"_ns\":",
        b"\"t\":\"end\"",
        b"\"concurrency\":",
        b"\"after\":[0]",
        b"\"bytes\":",
        b"\"kind\":\"cpu\"",
    ];
    Inputs::text(intact, &words)
}

#[test]
fn damaged_trace_shown() {
    let inputs = inputs();
    fuzz("damaged_trace_shown", |random| read(&inputs.damaged(random)).map(show).is_some());
}

#[test]
fn damaged_traces_compared() {
    let inputs = inputs();
    fuzz("damaged_traces_compared", |random| {
        let damaged = inputs.damaged(random);
        let other = if random.below(2) == 0 { damaged.clone() } else { inputs.damaged(random) };
        let (Some(a), Some(b)) = (read(&damaged), read(&other)) else { return false };
        let Ok(comparison) = compare(&a, &b) else { return false };
        pellucid_report::comparison(&comparison, 80, true);
        comparison_json(&comparison, "a", "b");
        true
    });
}
