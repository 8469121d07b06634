//! What holds for every workload: never above a concurrency, nothing idle that could
//! run, no phase starved, every multitask ends once, memory comes back, and the same
//! calls give the same answers.

mod oracle;
mod workload;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use workload::{Run, Shape, run};

const MIXED: Shape = Shape { jobs: 5, multitasks: 20, monotasks: 6, uniform: false };
const UNIFORM: Shape = Shape { jobs: 5, multitasks: 20, monotasks: 6, uniform: true };

/// Runs one seed; on a failure names it, so that it can be run alone.
fn run_seed(seed: u64, shape: Shape) -> Run {
    catch_unwind(AssertUnwindSafe(|| run(seed, shape))).unwrap_or_else(|panic| {
        eprintln!("seed {seed} of {shape:?}");
        resume_unwind(panic)
    })
}

#[test]
fn invariants_hold_for_thousands_of_workloads() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..2_000 {
        for (name, count) in run_seed(seed, MIXED).outcomes {
            *outcomes.entry(name).or_insert(0) += count;
        }
    }
    // The workloads are worth something only if they reach every way to end.
    for name in ["done", "failed", "cancelled"] {
        assert!(outcomes[name] > 1_000, "{outcomes:?}");
    }
}

#[test]
fn no_phase_of_a_job_waits_longer_than_its_turn() {
    // Once round the phases of every job, and what a resource starts at one moment.
    let turn = UNIFORM.jobs * 5 + 4;
    let mut longest = 0;
    for seed in 0..500 {
        let wait = run_seed(seed, UNIFORM).longest_wait;
        assert!(wait <= turn, "seed {seed}: passed by {wait} starts, a turn is {turn}");
        longest = longest.max(wait);
    }
    assert!(longest > UNIFORM.jobs, "no workload made a phase wait: {longest}");
}

#[test]
fn the_same_calls_give_the_same_answers() {
    for seed in 0..300 {
        let (one, other) = (run_seed(seed, MIXED), run_seed(seed, MIXED));
        assert_eq!(one.log, other.log, "seed {seed}");
    }
}
