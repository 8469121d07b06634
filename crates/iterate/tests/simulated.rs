//! Compares whole jobs in the simulator with sequential execution.

mod programs;

use std::sync::Arc;

use pellucid_iterate::simulator::{Event, Random, Simulation, simulate};
use pellucid_iterate::{Plan, Program, run_sequentially};
use programs::{TestProgram, random_program};

/// Maximum number of signals of a random program; longer programs are skipped.
const SIGNALS: u64 = 3_000;

/// Generates short random programs, with their expected results.
fn programs(seeds: std::ops::Range<u64>) -> impl Iterator<Item = (u64, TestProgram, Vec<Vec<Vec<u64>>>)> {
    seeds.filter_map(|seed| {
        let program = random_program(seed);
        let outcome = run_sequentially(program.plan.clone(), SIGNALS).ok()?;
        let contents = program.contents(&outcome);
        Some((seed, program, contents))
    })
}

fn check(seed: u64, program: &TestProgram, expected: &[Vec<Vec<u64>>], simulation: &Simulation) -> u64 {
    let done = simulate(&program.plan, simulation)
        .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{:?}", program.plan));
    assert!(program.contents(&done.outcome) == expected, "seed {seed}: wrong result\n{:?}", program.plan);
    done.outcome.migrations
}

#[test]
fn results_do_not_depend_on_the_number_of_workers() {
    let mut ran = 0;
    for (seed, program, expected) in programs(0..300) {
        let workers = 1 + (seed % 7) as u32;
        let simulation =
            Simulation { workers, seed, jitter_ns: 50_000, repeated: 50, ..Simulation::default() };
        check(seed, &program, &expected, &simulation);
        ran += 1;
    }
    assert!(ran > 200, "{ran}");
}

#[test]
fn migrations_do_not_change_results() {
    let mut migrations = 0;
    for (seed, program, expected) in programs(1_000..1_400) {
        let mut random = Random::new(seed);
        let workers = 2 + random.below(4) as u32;
        let simulation = Simulation {
            workers,
            seed,
            jitter_ns: 200_000,
            repeated: 200,
            events: (0..60).map(|_| (random.below(3_000_000), Event::Migrate)).collect(),
            ..Simulation::default()
        };
        migrations += check(seed, &program, &expected, &simulation);
    }
    assert!(migrations >= 1_000, "only {migrations}");
}

#[test]
fn lost_workers_do_not_change_results() {
    let mut recoveries = 0;
    for (seed, program, expected) in programs(2_000..2_300) {
        let mut random = Random::new(seed);
        let workers = 3 + random.below(3) as u32;
        let mut events: Vec<(u64, Event)> =
            (0..20).map(|_| (random.below(2_000_000), Event::Migrate)).collect();
        events.push((random.below(2_000_000), Event::Kill(random.below(u64::from(workers)) as u32)));
        events.push((random.below(4_000_000), Event::Kill(random.below(u64::from(workers)) as u32)));
        events.push((random.below(2_000_000), Event::Snapshot));
        let simulation = Simulation {
            workers,
            seed,
            jitter_ns: 100_000,
            repeated: 100,
            snapshot_every: random.below(4) as u32,
            events,
            ..Simulation::default()
        };
        let done = simulate(&program.plan, &simulation)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{:?}", program.plan));
        assert!(program.contents(&done.outcome) == expected, "seed {seed}: wrong result\n{:?}", program.plan);
        recoveries += done.outcome.recoveries;
    }
    assert!(recoveries > 100, "only {recoveries}");
}

/// Damages or loses objects of the snapshots before workers are lost, so that recoveries find them.
#[test]
fn damaged_snapshots_do_not_change_results() {
    let mut damages = 0;
    for (seed, program, expected) in programs(2_500..2_800) {
        let mut random = Random::new(seed);
        let mut events: Vec<(u64, Event)> =
            (0..20).map(|_| (random.below(2_000_000), Event::Migrate)).collect();
        let damages_at = (0..30).map(|at| (random.below(2_000_000), Event::Damage(at % 3 == 0)));
        events.extend(damages_at.collect::<Vec<_>>());
        for kill in [0, 1] {
            events.push((random.below(2_000_000), Event::Kill(kill)));
        }
        let simulation = Simulation {
            workers: 4,
            seed,
            jitter_ns: 100_000,
            repeated: 100,
            snapshot_every: 1 + random.below(2) as u32,
            events,
            ..Simulation::default()
        };
        let done = simulate(&program.plan, &simulation)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{:?}", program.plan));
        assert!(program.contents(&done.outcome) == expected, "seed {seed}: wrong result\n{:?}", program.plan);
        damages += done.damages.len();
    }
    assert!(damages > 20, "only {damages}");
}

#[test]
fn joining_and_leaving_workers_do_not_change_results() {
    for (seed, program, expected) in programs(3_000..3_200) {
        let mut random = Random::new(seed);
        let mut events: Vec<(u64, Event)> =
            (0..10).map(|_| (random.below(2_000_000), Event::Migrate)).collect();
        events.push((random.below(1_000_000), Event::Join));
        events.push((random.below(1_000_000), Event::Join));
        events.push((random.below(2_000_000), Event::Leave(random.below(3) as u32)));
        let simulation = Simulation {
            workers: 3,
            seed,
            jitter_ns: 100_000,
            repeated: 100,
            report_ns: 100_000,
            balances: true,
            events,
            ..Simulation::default()
        };
        check(seed, &program, &expected, &simulation);
    }
}

/// A program of all-to-all iterations: every partition computes, and a reduced total decides whether to continue.
fn rounds(partitions: u32, iterations: u64) -> Arc<Plan> {
    let mut program = Program::new("rounds");
    let data = program.dataset("data", partitions, |index| Ok(u64::from(index)));
    let (model, total) =
        (program.dataset("model", 1, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(0u64)));
    let local = program.dataset("local", partitions, |_| Ok(0u64));
    program.repeat("rounds", |body| {
        body.broadcast("model to all", model, local);
        body.transform("compute", local, data, |model, data| {
            *data = data.wrapping_mul(31).wrapping_add(*model);
            Ok(())
        });
        body.tree_reduce("total", data, total, |sum, next| *sum = sum.wrapping_add(*next));
        body.transform("step", total, model, |_, model| {
            *model += 1;
            Ok(())
        });
        body.while_signal("again", model, move |model| *model < iterations);
    });
    program.output(model);
    program.build().unwrap()
}

/// One millisecond per partition of stage `compute`; everything else is fast.
fn compute_costs(stage: &str, _: u32) -> u64 {
    if stage == "compute" { 1_000_000 } else { 1_000 }
}

#[test]
fn healthy_job_sends_no_controller_messages_per_iteration() {
    let counts = [10, 1_000].map(|iterations| {
        let simulation = Simulation { workers: 8, ..Simulation::default() };
        simulate(&rounds(32, iterations), &simulation).unwrap().controller_messages
    });
    assert_eq!(counts[0], counts[1]);
}

/// Returns the mean duration of the iterations in a range.
fn mean_ns(iterations_ns: &[u64], range: std::ops::Range<usize>) -> f64 {
    (iterations_ns[range.end] - iterations_ns[range.start]) as f64 / range.len() as f64
}

#[test]
fn load_balances_within_ten_iterations_of_a_slowdown() {
    // 32 partitions of 1 ms on four workers take 8 ms per iteration; the slowdown happens in the 20th.
    let simulation = Simulation {
        workers: 4,
        report_ns: 10_000_000,
        balances: true,
        cost_ns: Box::new(compute_costs),
        events: vec![(165_000_000, Event::Slow(2, 2.0))],
        ..Simulation::default()
    };
    let done = simulate(&rounds(32, 60), &simulation).unwrap();
    let slowed = done.iterations_ns.iter().position(|&at| at > 165_000_000).unwrap();
    let before = mean_ns(&done.iterations_ns, 5..15);
    assert!(before < 8_500_000.0, "{before}");
    let ideal = 32.0e6 / 3.5;
    let after = mean_ns(&done.iterations_ns, slowed + 10..slowed + 20);
    assert!(after < 1.15 * ideal, "{after} ns per iteration, ideal {ideal}; {:?}", done.bundles);
    let last = mean_ns(&done.iterations_ns, 50..59);
    assert!(last < 1.15 * ideal, "{last} ns per iteration at the end: the balance did not last");
}

#[test]
fn controller_messages_do_not_grow_with_iterations() {
    for workers in [1, 10, 100, 1_000] {
        let counts = [2, 20].map(|iterations| {
            let simulation = Simulation { workers, limit_ns: u64::MAX, ..Simulation::default() };
            simulate(&rounds(2 * workers, iterations), &simulation).unwrap().controller_messages
        });
        assert_eq!(counts[0], counts[1], "{workers} workers");
    }
}

#[test]
fn joining_worker_gets_its_share_within_ten_iterations() {
    let simulation = Simulation {
        workers: 2,
        report_ns: 12_000_000,
        balances: true,
        cost_ns: Box::new(compute_costs),
        events: vec![(100_000_000, Event::Join)],
        ..Simulation::default()
    };
    let done = simulate(&rounds(24, 40), &simulation).unwrap();
    let joined = done.iterations_ns.iter().position(|&at| at > 100_000_000).unwrap();
    let after = mean_ns(&done.iterations_ns, joined + 10..joined + 20);
    assert!(after < 1.15 * 8.0e6, "{after} ns per iteration; {:?}", done.bundles);
    assert!((7..=11).contains(&done.bundles[&2]), "{:?}", done.bundles);
}

#[test]
fn leaving_worker_does_not_delay_iterations() {
    let simulation = Simulation {
        workers: 3,
        cost_ns: Box::new(compute_costs),
        events: vec![(85_000_000, Event::Leave(1))],
        ..Simulation::default()
    };
    let done = simulate(&rounds(24, 40), &simulation).unwrap();
    assert_eq!((done.bundles[&1], done.outcome.recoveries), (0, 0));
    let left = done.iterations_ns.iter().position(|&at| at > 85_000_000).unwrap();
    let during = done.iterations_ns[left + 1] - done.iterations_ns[left - 1];
    assert!(during < 26_000_000, "the two iterations around its departure took {during} ns");
}
