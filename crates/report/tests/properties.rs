//! Properties of the text for any trace and width: no line exceeds the width, no control characters, no
//! NaN or infinity, and no panic.

#[path = "../../model/tests/builder/mod.rs"]
mod builder;

use builder::Build;
use pellucid_model::analyze;
use pellucid_report::{Source, analysis_json, summary_line, terminal, timeline};
use pellucid_trace::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

/// Ordinary and malicious names.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("注文明細 の表".to_owned()),
        Just("\u{1b}[2J\u{1b}[31mred\r\nnext\tline\u{202e}".to_owned()),
        Just("a·b · c █ ▁ ━".to_owned()),
        Just("x".repeat(300)),
        "[a-z 0-9]{1,40}",
        any::<String>(),
    ]
}

fn monotask() -> impl Strategy<Value = Monotask> {
    let phase =
        prop::sample::select(vec![Phase::Read, Phase::Fetch, Phase::Compute, Phase::Spill, Phase::Write]);
    let time = || prop_oneof![0..5_000_000_000_u64, Just(0), Just(u64::MAX / 4)];
    let bytes = || prop::option::of(0..1_000_000_000_u64);
    (0..4_u32, 0..4_u32, phase, time(), time(), time(), bytes(), bytes()).prop_map(
        |(multitask, resource, phase, queued_ns, queue_ns, service_ns, bytes, cached_bytes)| Monotask {
            multitask,
            resource,
            phase,
            queued_ns,
            queue_ns,
            service_ns,
            bytes,
            device_bytes: None,
            cached_bytes,
            cpu_ns: None,
            decode_ns: cached_bytes,
            operator_ns: None,
            encode_ns: None,
            not_split_ns: None,
            rows: None,
            outcome: Outcome::Ok,
        },
    )
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let kinds = prop::sample::select(vec![kind::CPU, kind::DISK, kind::NETWORK, kind::STORE, "tape"]);
    let resources = prop::collection::vec((name(), kinds, prop::option::of(1.0..1e10_f64)), 0..6);
    let jobs = prop::collection::vec((name(), 0..4_000_000_000_u64, any::<bool>()), 0..8);
    let stages = prop::collection::vec((0..8_u32, name()), 0..8);
    let monotasks = prop::collection::vec(monotask(), 0..20);
    (resources, jobs, stages, monotasks, prop::option::of(name())).prop_map(
        |(resources, jobs, stages, monotasks, truncated)| {
            let mut b = Build::on_cores(2);
            for (name, kind, capacity) in &resources {
                b.resource(name, kind, capacity.map(|c| (c, "set")));
            }
            for (job, name) in &stages {
                let stage = b.stage(*job, name, 0.0);
                b.multitask(stage, 0.0);
            }
            for (name, ended_ns, ok) in &jobs {
                let job = b.job(name, 0.0);
                let end = b.end_job(job, *ended_ns as f64 / 1e6);
                if !ok {
                    (end.outcome, end.error) = (Outcome::Failed, Some(name.clone()));
                }
            }
            b.trace.monotasks = monotasks;
            b.trace.truncated = truncated;
            b.trace
        },
    )
}

/// Returns a lower bound of a line's width, independently of the code under test: ideographs take two columns,
/// the letters and blocks of the names above one. Other characters may combine.
fn min_columns(line: &str) -> usize {
    let min = |c| match c {
        '\u{4e00}'..='\u{9fff}' => 2,
        '\0'..='\u{2ff}' | '\u{2500}'..='\u{259f}' => 1,
        _ => 0,
    };
    line.chars().map(min).sum()
}

/// Removes escape sequences that set colours. Other escape sequences are kept, and fail the test.
fn without_color(text: &str) -> String {
    let mut out = String::new();
    for (ix, piece) in text.split("\x1b[").enumerate() {
        let rest =
            piece.split_once('m').filter(|(code, _)| ix > 0 && code.bytes().all(|b| b.is_ascii_digit()));
        out += rest.map_or(piece, |(_, rest)| rest);
    }
    out
}

fn fits(text: &str, width: usize) -> Result<(), TestCaseError> {
    for line in without_color(text).lines() {
        prop_assert!(min_columns(line) <= width, "longer than {width}: {line:?}");
        prop_assert!(!line.chars().any(char::is_control), "control character: {line:?}");
        prop_assert!(!line.contains('\u{202e}'), "overrides the direction: {line:?}");
    }
    prop_assert!(text.is_empty() || text.ends_with('\n'));
    Ok(())
}

/// Compares values, allowing for a difference in the last digit of numbers, which parsing may round.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.keys().eq(b.keys()) && a.values().zip(b.values()).all(|(a, b)| same(a, b))
        }
        (Value::Number(_), Value::Number(_)) => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= 1e-15 * a.abs()
        }
        (a, b) => a == b,
    }
}

proptest! {
    // Cases are the same in every run unless PROPTEST_RNG_SEED or PROPTEST_CASES is set.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: std::env::var("PROPTEST_RNG_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(RngSeed::Fixed(80)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn text_fits_the_width(trace in any_trace(), width in prop_oneof![0..30_usize, 30..200_usize], color: bool) {
        let analysis = analyze(&trace);
        let text = terminal(&analysis, &trace, width, color);
        fits(&text, width)?;
        let picture = timeline(&trace, width, color);
        fits(&picture, width)?;
        prop_assert!(color || !(text + &picture).contains('\x1b'));
        for job in &analysis.jobs {
            let line = summary_line(job, job.rows);
            prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
            prop_assert!(!line.contains("NaN") && !line.contains(" inf"), "{:?}", line);
        }
    }

    #[test]
    fn json_round_trips(trace in any_trace()) {
        let value = analysis_json(&analyze(&trace), Source::of_trace(&trace, None));
        let read: Value = serde_json::from_str(&value.to_string()).expect("it is JSON");
        prop_assert!(same(&read, &value), "{read} is not {value}");
    }
}
