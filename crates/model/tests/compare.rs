//! Comparisons of two runs against manual calculations, and the rate at which noise is reported as a
//! change.

mod builder;

use builder::Build;
use builder::spark::{Spark, measured};
use pellucid_model::{Verdict, compare};
use pellucid_trace::Trace;

/// Runs sixteen multitasks on two cores, then a short stage. Each takes its partition's time multiplied
/// by `factor` and by one plus `noise`; every fourth partition is three times as large.
fn run(factor: f64, mut noise: impl FnMut() -> f64) -> Trace {
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT", 0.0);
    let scan = b.stage(job, "Aggregate Partial, Scan", 0.0);
    let mut free = [0.0_f64; 2];
    for part in 0..16_u32 {
        let m = b.multitask(scan, 0.0);
        let size = if part % 4 == 0 { 90.0 } else { 30.0 };
        let core = usize::from(free[1] < free[0]);
        let service = size * factor * (1.0 + noise());
        b.compute(m, free[core], service).bytes = Some(1_000_000);
        free[core] += service;
    }
    let end = free[0].max(free[1]);
    b.end_stage(scan, end);
    let last = b.stage(job, "Aggregate Final", end);
    let m = b.multitask(last, end);
    b.compute(m, end, 5.0);
    b.end_stage(last, end + 5.0);
    b.end_job(job, end + 6.0);
    b.end(0.01, 0.1);
    b.trace
}

#[test]
fn partition_sizes_do_not_count_as_noise() {
    // Partitions differ threefold, but equally in both runs: only the variance between runs remains.
    let (a, b) = (run(1.0, || 0.0), run(1.25, || 0.0));
    let comparison = compare(&a, &b).expect("both ended");
    let change = comparison.change;
    let (before, after) = comparison.duration_ms;
    assert!((change.ms - (after - before)).abs() < 1e-9);
    let of = |ms: f64| (0.04 * ms).powi(2) + 25.0;
    let half = 1.645 * (of(before) + of(after)).sqrt();
    assert!((change.high_ms - change.ms - half).abs() < 0.01, "{change:?}, not ±{half}");
    assert_eq!(change.verdict(), Verdict::Slower);
    let scan = &comparison.stages[0];
    assert_eq!((scan.a, scan.b), (Some(0), Some(0)));
    // 16 multitasks of 45 ms on average on two cores: a quarter more is 90 ms of ideal time.
    assert!((scan.explained_by["cpu"].expect("measured") - 90.0).abs() < 1e-6);
    assert_eq!(scan.explained_by["disk"], None);
    assert!(scan.why.contains("on cpu: 1.25 times the core time in 16 monotasks"), "{}", scan.why);
    assert_eq!(comparison.stages[1].change.expect("it ended").verdict(), Verdict::SameWithinNoise);
}

#[test]
fn small_change_is_within_noise() {
    let comparison = compare(&run(1.0, || 0.0), &run(1.04, || 0.0)).expect("both ended");
    assert_eq!(comparison.change.verdict(), Verdict::SameWithinNoise);
    assert!(comparison.stages.iter().all(|stage| stage.why.is_empty()));
}

/// Runs that differ by chance alone, in their multitasks and as a whole: at most one in ten is reported
/// as a change.
#[test]
fn noise_is_reported_as_change_at_most_one_time_in_ten() {
    let seed = 7_u64;
    println!("seed {seed}");
    let mut random = seed;
    let mut uniform = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as f64 / (1_u64 << 31) as f64
    };
    // The sum of twelve is close to normal, with variance 1.
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    let mut changed = 0;
    for _ in 0..400 {
        let whole = [1.0 + 0.035 * normal(), 1.0 + 0.035 * normal()];
        let [a, b] = whole.map(|whole| run(whole, || 0.15 * normal()));
        let verdict = compare(&a, &b).expect("both ended").change.verdict();
        changed += usize::from(verdict != Verdict::SameWithinNoise);
    }
    assert!(changed <= 40, "{changed} of 400");
}

#[test]
fn compare_rejects_runs_without_an_end() {
    let mut cut = run(1.0, || 0.0);
    cut.job_ends.clear();
    assert!(compare(&run(1.0, || 0.0), &cut).expect_err("it did not end").contains("nothing to compare"));
    assert!(compare(&Trace::default(), &cut).is_err());
}

#[test]
fn compare_detects_different_queries() {
    let (a, mut b) = (run(1.0, || 0.0), run(1.0, || 0.0));
    assert!(!compare(&a, &b).expect("both ended").different_queries);
    b.jobs[0].name = "SELECT 2".to_string();
    let comparison = compare(&a, &b).expect("both ended");
    assert!(comparison.different_queries && comparison.notes[0].contains("different texts"));
}

#[test]
fn spark_jobs_match_when_line_numbers_shift() {
    let run = |job: &str| {
        let mut trace = spark(0.0);
        trace.jobs[0].name = job.to_string();
        trace
    };
    let first = run("count at Main.scala:41");
    let moved = compare(&first, &run("count at Main.scala:43")).expect("both ended");
    assert!(!moved.different_queries && moved.notes[0].contains("different texts"));
    assert!(compare(&first, &run("show at Main.scala:41")).expect("both ended").different_queries);
}

/// Builds a Spark job of eight tasks on two slots, each with this much garbage collection.
fn spark(gc: f64) -> Trace {
    let mut s = Spark::on(1, 2.0);
    let job = s.job(0.0, 4.0 * (100.0 + gc));
    let stage = s.stage(job, &[], 0.0, 4.0 * (100.0 + gc));
    for task in 0..8 {
        let task = s.task(stage, 0, f64::from(task / 2) * (100.0 + gc), 100.0 + gc);
        s.add(task.blocked(|t| t.gc = measured(gc), gc));
    }
    s.trace
}

#[test]
fn change_is_explained_by_the_part_that_grew() {
    let comparison = compare(&spark(0.0), &spark(60.0)).expect("both ended");
    let [stage] = &comparison.stages[..] else { panic!("one stage: {comparison:?}") };
    assert_eq!(stage.why, "240 ms more garbage collection");
    assert_eq!(stage.explained_by["gc"], Some(240.0));
    assert_eq!(stage.explained_by["cpu"].map(f64::round), Some(0.0));
    assert_eq!(stage.explained_by["disk"], None, "it was not measured");
    assert_eq!(stage.source_ids, (Some(0), Some(0)));
}
