//! Strong scaling in the simulator: the same work on 1 to 1,000 workers, with counts of messages.
//!
//! `cargo run --release -p pellucid-iterate --example scaling` prints a line of JSON for each number of workers:
//! virtual time per iteration, messages between workers per iteration, and the controller's messages in a short
//! job and in one with ten times as many iterations, which must be equal.

use std::sync::Arc;

use pellucid_iterate::simulator::{Simulated, Simulation, simulate};
use pellucid_iterate::{Plan, Program};

/// Partitions of the data: two per worker at the largest scale.
const PARTITIONS: u32 = 2_000;
/// Core time of a partition's task, about the time to process 20 MB.
const TASK_NS: u64 = 1_000_000;
/// Iterations of the short job.
const ITERATIONS: u64 = 3;

/// Iterations like those of a regression: broadcast a model, run a task per partition, and reduce a sum.
fn descent(iterations: u64) -> Arc<Plan> {
    let mut program = Program::new("descent");
    let (local, part) = (
        program.dataset("local", PARTITIONS, |_| Ok(0u64)),
        program.dataset("part", PARTITIONS, |_| Ok(0u64)),
    );
    let (model, total) =
        (program.dataset("model", 1, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(0u64)));
    program.repeat("descent", |body| {
        body.broadcast("model to all", model, local);
        body.transform("compute", local, part, |model, part| {
            *part = part.wrapping_mul(31).wrapping_add(*model);
            Ok(())
        });
        body.tree_reduce("total", part, total, |sum, next| *sum = sum.wrapping_add(*next));
        body.transform("step", total, model, |_, model| {
            *model += 1;
            Ok(())
        });
        body.while_signal("again", model, move |model| *model < iterations);
    });
    program.output(model);
    program.build().expect("a valid program")
}

fn run(workers: u32, iterations: u64) -> Simulated {
    let simulation = Simulation {
        workers,
        cost_ns: Box::new(|stage, _| if stage == "compute" { TASK_NS } else { 1_000 }),
        limit_ns: u64::MAX,
        ..Simulation::default()
    };
    simulate(&descent(iterations), &simulation).expect("a successful job")
}

fn main() {
    for workers in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000] {
        let (short, long) = (run(workers, ITERATIONS), run(workers, 10 * ITERATIONS));
        let more = 9 * ITERATIONS;
        println!(
            r#"{{"workers": {workers}, "partitions": {PARTITIONS}, "task_ns": {TASK_NS}, "iteration_ns": {}, "worker_messages_an_iteration": {}, "controller_messages": [{}, {}]}}"#,
            (long.elapsed_ns - short.elapsed_ns) / more,
            (long.worker_messages - short.worker_messages) / more,
            short.controller_messages,
            long.controller_messages,
        );
    }
}
