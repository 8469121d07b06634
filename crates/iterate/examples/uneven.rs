//! A worker that is slowed by half, over real processes: how long until iterations are as short as they can be.
//!
//! `cargo run --release -p pellucid-iterate --example uneven` starts two workers of one thread. From the fortieth
//! iteration on one of them does every task twice. It prints one line of JSON: mean iterations in milliseconds
//! before that, in the ten iterations after it, and in the twenty after those; and what the remaining speed of
//! one and a half workers allows.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pellucid_iterate::{Cluster, Invitation, Plan, Program, RunOptions, WorkerSettings, control, work};

const PARTITIONS: u32 = 24;
const ITERATIONS: u64 = 100;
/// The iteration from which one worker is slow.
const SLOW_FROM: usize = 40;
/// Steps of a task, of which each waits for the one before: some 4 ms.
const STEPS: u32 = 2_500_000;

/// Tasks that this process has done.
static DONE: AtomicU32 = AtomicU32::new(0);
/// After how many it gets slow.
static SLOW_AFTER: AtomicU32 = AtomicU32::new(u32::MAX);

fn compute(data: &mut u64) {
    for _ in 0..STEPS {
        *data = (*data ^ 0x9e37_79b9).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
}

fn plan() -> Arc<Plan> {
    let mut program = Program::new("uneven");
    let (local, part) = (
        program.dataset("local", PARTITIONS, |_| Ok(0u64)),
        program.dataset("part", PARTITIONS, |index| Ok(u64::from(index) + 1)),
    );
    let (model, total) =
        (program.dataset("model", 1, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(0u64)));
    program.repeat("rounds", |body| {
        body.broadcast("model to all", model, local);
        body.transform("compute", local, part, |_, part| {
            let slow = DONE.fetch_add(1, Ordering::Relaxed) >= SLOW_AFTER.load(Ordering::Relaxed);
            if slow {
                compute(&mut part.clone());
            }
            compute(part);
            Ok(())
        });
        body.tree_reduce("total", part, total, |sum, next| *sum = sum.wrapping_add(*next));
        body.transform("step", total, model, |_, model| {
            *model += 1;
            Ok(())
        });
        body.while_signal("again", model, |model| *model < ITERATIONS);
    });
    program.output(model);
    program.build().expect("a program that is right")
}

fn main() {
    if let Some((invitation, rank)) = Invitation::from_environment() {
        if rank == 1 {
            SLOW_AFTER.store(SLOW_FROM as u32 * PARTITIONS / 2, Ordering::Relaxed);
        }
        let settings = WorkerSettings { rank, ..WorkerSettings::default() };
        work(plan(), &invitation, &settings).expect("a job that goes well");
        return;
    }
    let start = |invitation: &Invitation| {
        let one = |rank| {
            let mut command = Command::new(std::env::current_exe()?);
            invitation.put_into(&mut command, rank);
            command.stdout(Stdio::null()).spawn()
        };
        (0..2).map(one).collect()
    };
    let outcome =
        control(plan(), &Cluster::default(), RunOptions::default(), start).expect("a job that goes well");
    let mean_ms = |range: std::ops::Range<usize>| {
        let times = &outcome.iterations_ns[range.start.min(outcome.iterations_ns.len())..];
        let times = &times[..times.len().min(range.len())];
        times.iter().sum::<u64>() as f64 / times.len().max(1) as f64 / 1e6
    };
    let before = mean_ms(20..SLOW_FROM - 2);
    println!(
        r#"{{"before_ms": {before:.2}, "first_ten_ms": {:.2}, "after_ms": {:.2}, "ideal_ms": {:.2}, "migrations": {}}}"#,
        mean_ms(SLOW_FROM..SLOW_FROM + 10),
        mean_ms(SLOW_FROM + 10..SLOW_FROM + 30),
        before * 2.0 / 1.5,
        outcome.migrations,
    );
}
