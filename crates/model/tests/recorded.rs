//! Recorded traces: the replay reproduces the measured job, and one disk rate predicts another.
//!
//! `traces/` holds runs of TPC-H queries at scale 1 on two virtual cores: `cN` is the number of cores,
//! `dN` a disk that the engine paced at N MB/s (page cache bypassed), and `warm` means that all input was
//! in the page cache. They were recorded by `pellucid sql --trace`, and not selected by their replay
//! error.

use std::path::Path;

use pellucid_model::measured_ms;
use pellucid_model::whatif::{Changes, WhatIfModel};
use pellucid_trace::Trace;

const QUERIES: [&str; 7] = ["q1", "q3", "q6", "q9", "q12", "q14", "q18"];
const CONFIGURATIONS: [&str; 6] = ["c2-d50", "c2-d100", "c2-d200", "c1-d100", "c2-warm", "c1-warm"];

fn read(query: &str, configuration: &str) -> Trace {
    let folder = Path::new("tests/traces");
    Trace::read(&folder.join(format!("{query}-{configuration}.trace"))).expect("a fixture")
}

fn rate(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix("MB/s").ok_or("not a rate")?;
    number.parse::<u64>().map(|n| n * 1_000_000).map_err(|e| e.to_string())
}

#[test]
fn nine_in_ten_replays_are_within_three_per_cent() {
    let mut errors: Vec<(f64, String)> = Vec::new();
    for query in QUERIES {
        for configuration in CONFIGURATIONS {
            let trace = read(query, configuration);
            let model = WhatIfModel::of(&trace, &[]).expect("a whole trace");
            let error = model.baseline().replay_error().expect("a simulation");
            errors.push((error, format!("{query} {configuration}")));
        }
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let within = errors.iter().filter(|(error, _)| *error <= 0.03).count();
    assert!(
        within * 10 >= errors.len() * 9,
        "{within} of {}: {:?}",
        errors.len(),
        errors.iter().rev().take(8)
    );
}

/// Predicts in both directions between disk rates that limit these jobs.
#[test]
fn one_disk_rate_predicts_another() {
    let mut errors: Vec<(f64, String)> = Vec::new();
    for query in QUERIES {
        for (from, to, set) in [("c2-d50", "c2-d100", "100MB/s"), ("c2-d100", "c2-d50", "50MB/s")] {
            let trace = read(query, from);
            let model = WhatIfModel::of(&trace, &[]).expect("a whole trace");
            let changes = Changes::parse(&[format!("disk.rate={set}")], rate).expect("a setting");
            let predicted = model.predict(&changes).expect("an answer").prediction.duration_ms;
            let measured = measured_ms(&read(query, to)).expect("a whole trace");
            errors.push(((predicted - measured).abs() / measured, format!("{query} {from} to {to}")));
        }
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let median = errors[errors.len() / 2].0;
    let worst = errors.last().expect("cases");
    assert!(median <= 0.02, "median error {median}: {errors:?}");
    assert!(worst.0 <= 0.07, "worst: {worst:?}");
}
