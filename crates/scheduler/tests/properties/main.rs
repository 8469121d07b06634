//! Invariants over random workloads: concurrency limits hold, resources never idle with runnable work, no
//! phase starves, every multitask ends exactly once, all memory is freed, and decisions are deterministic.

mod oracle;
mod workload;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use workload::{Run, Shape, run};

const MIXED: Shape = Shape { jobs: 5, multitasks: 20, monotasks: 6, uniform: false };
const UNIFORM: Shape = Shape { jobs: 5, multitasks: 20, monotasks: 6, uniform: true };

/// Runs one seed, and prints it on failure.
fn run_seed(seed: u64, shape: Shape) -> Run {
    catch_unwind(AssertUnwindSafe(|| run(seed, shape))).unwrap_or_else(|panic| {
        eprintln!("seed {seed} of {shape:?}");
        resume_unwind(panic)
    })
}

#[test]
fn invariants_hold_for_random_workloads() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..2_000 {
        for (name, count) in run_seed(seed, MIXED).outcomes {
            *outcomes.entry(name).or_insert(0) += count;
        }
    }
    // The workloads must cover every outcome.
    for name in ["done", "failed", "cancelled"] {
        assert!(outcomes[name] > 1_000, "{outcomes:?}");
    }
}

#[test]
fn phases_do_not_starve() {
    // One round over the phases of every job, plus the monotasks that a resource starts at the same time.
    let turn = UNIFORM.jobs * 5 + 4;
    let mut longest = 0;
    for seed in 0..500 {
        let wait = run_seed(seed, UNIFORM).longest_wait;
        assert!(wait <= turn, "seed {seed}: waited for {wait} starts, a turn is {turn}");
        longest = longest.max(wait);
    }
    assert!(longest > UNIFORM.jobs, "no workload made a phase wait: {longest}");
}

#[test]
fn decisions_are_deterministic() {
    for seed in 0..300 {
        let (one, other) = (run_seed(seed, MIXED), run_seed(seed, MIXED));
        assert_eq!(one.log, other.log, "seed {seed}");
    }
}
