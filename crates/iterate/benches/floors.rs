//! Scheduling overhead: an empty task, a task with 0.25 µs of work compared with that work alone, and a round of
//! broadcast, gather and signal. Rounds run on one thread, two threads, more threads than cores, and over TCP
//! between two processes and between more processes than cores.
//!
//! Run with `cargo bench -p pellucid-iterate`. `bench/iterate/targets.py` holds the targets: 12 ns per task, 1 µs per
//! round on two threads, 40 µs over TCP, 100 µs with four threads or processes on two cores.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use pellucid_iterate::{
    Cluster, Invitation, Outcome, Plan, Program, RunOptions, WorkerSettings, control, run, work,
};

/// Stages with one task per partition between two signals, so that tasks dominate the measurement.
const STAGES: u64 = 1_000;

/// Steps of [`work_a_while`] that take about a quarter of a microsecond.
const STEPS: u32 = 150;

/// Runs sequentially dependent steps, which take the same time wherever they run.
#[inline(never)]
fn work_a_while(data: &mut u64) {
    for _ in 0..STEPS {
        *data = (*data ^ 0x9e37_79b9).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
}

/// A program of iterations with many stages of the same kernel.
fn tasks(partitions: u32, iterations: u64, kernel: fn(&mut u64)) -> Arc<Plan> {
    let mut program = Program::new("tasks");
    let data = program.dataset("data", partitions, |_| Ok(1u64));
    program.times("iterations", iterations, |body| {
        for stage in 0..STAGES {
            body.transform(format!("stage {stage}"), (), data, move |(), data| {
                kernel(data);
                Ok(())
            });
        }
    });
    program.build().unwrap()
}

/// A program of rounds: broadcast from one partition, answers from all, and a signal computed from the answers.
fn rounds(partitions: u32, iterations: u64) -> Arc<Plan> {
    let mut program = Program::new("rounds");
    let (model, total) =
        (program.dataset("model", 1, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(0u64)));
    let local = program.dataset("local", partitions, |_| Ok(0u64));
    program.repeat("rounds", |body| {
        body.broadcast("to all", model, local);
        body.tree_reduce("from all", local, total, |sum, next| *sum += next);
        body.transform("step", total, model, |_, model| {
            *model += 1;
            Ok(())
        });
        body.while_signal("again", model, move |model| *model < iterations);
    });
    program.build().unwrap()
}

fn threads(plan: Arc<Plan>, threads: usize) -> Outcome {
    run(plan, RunOptions { threads, ..RunOptions::default() }).unwrap()
}

/// Scales the whole run's time to `wanted` iterations. The counter of `times` can run ahead by up to a window, so
/// the times of its signals are inaccurate for few iterations.
fn whole(outcome: &Outcome, ran: u64, wanted: u64) -> Duration {
    let each = outcome.elapsed_ns.unwrap_or(0) as f64 / ran as f64;
    Duration::from_nanos((each * wanted as f64) as u64)
}

/// Scales the iterations' time, without startup and loading, to `wanted` iterations.
fn iterations(outcome: &Outcome, wanted: u64) -> Duration {
    let each: u64 = outcome.iterations_ns.iter().sum();
    Duration::from_nanos((each as f64 / outcome.iterations_ns.len().max(1) as f64 * wanted as f64) as u64)
}

const ROUNDS: &str = "PELLUCID_BENCH_ROUNDS";
const WORKERS: &str = "PELLUCID_BENCH_WORKERS";

/// Runs rounds over `workers` processes, each with one partition.
fn over_tcp(workers: u32, encrypted: bool, count: u64) -> Outcome {
    control(
        rounds(workers, count),
        &Cluster { workers, encrypted, balances: false, ..Cluster::default() },
        RunOptions::default(),
        |invitation| {
            (0..workers)
                .map(|rank| {
                    let mut command = Command::new(std::env::current_exe()?);
                    invitation.put_into(&mut command, rank);
                    command.env(ROUNDS, count.to_string()).env(WORKERS, workers.to_string());
                    command.stdout(Stdio::null()).spawn()
                })
                .collect()
        },
    )
    .unwrap()
}

fn main() {
    if let Some((invitation, rank)) = Invitation::from_environment().expect("a complete invitation") {
        let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
        let plan = rounds(number(WORKERS) as u32, number(ROUNDS));
        work(plan, &invitation, &WorkerSettings { rank, ..WorkerSettings::default() }).unwrap();
        return;
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    // A minimum of iterations makes startup and shutdown, a millisecond or two, negligible.
    let kinds = [("empty task", (|_| ()) as fn(&mut u64), 5_000), ("task with work", work_a_while, 200)];
    for (name, kernel, min_iterations) in kinds {
        let mut group = criterion.benchmark_group(name);
        for (count, partitions) in [(1, 10), (2, 20)] {
            group.throughput(Throughput::Elements(STAGES * u64::from(partitions)));
            group.bench_function(BenchmarkId::new("threads", count), |bencher| {
                bencher.iter_custom(|wanted| {
                    let ran = wanted.max(min_iterations);
                    whole(&threads(tasks(partitions, ran, kernel), count), ran, wanted)
                });
            });
        }
        group.finish();
    }
    criterion.bench_function("the work alone", |bencher| {
        let mut data = 1;
        bencher.iter(|| work_a_while(std::hint::black_box(&mut data)));
    });
    let mut group = criterion.benchmark_group("round");
    for (count, partitions) in [(1, 2), (2, 2), (4, 4)] {
        group.bench_function(BenchmarkId::new("threads", count), |bencher| {
            bencher.iter_custom(|wanted| {
                iterations(&threads(rounds(partitions, wanted.max(1_000)), count), wanted)
            });
        });
    }
    for (name, workers, encrypted) in [
        ("two processes over TCP", 2, false),
        ("two processes over TCP, encrypted", 2, true),
        ("four processes over TCP", 4, false),
    ] {
        group.bench_function(name, |bencher| {
            bencher
                .iter_custom(|wanted| iterations(&over_tcp(workers, encrypted, wanted.max(1_000)), wanted));
        });
    }
    group.finish();
    criterion.final_summary();
}
