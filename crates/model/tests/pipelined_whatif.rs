//! What-ifs on traces of pipelined tasks small enough to verify by hand. Times are in milliseconds.

mod builder;

use builder::spark::{Spark, at_most, measured, skewed};
use pellucid_model::whatif::{Changes, WhatIf, WhatIfError, WhatIfModel};

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 0.5, "{a} is not {b}");
}

fn ask(s: &Spark, settings: &[&str]) -> Result<WhatIf, WhatIfError> {
    let changes = Changes::parse(settings, |_| Err("no rate is read here".into()))?;
    WhatIfModel::of(&s.trace, &[])?.predict(&changes)
}

/// Builds one executor with two slots, and eight tasks of 100: four waves.
fn waves() -> Spark {
    let mut s = Spark::on(1, 2.0);
    let job = s.job(0.0, 400.0);
    let stage = s.stage(job, &[], 0.0, 400.0);
    for task in 0..8 {
        let task = s.task(stage, 0, f64::from(task / 2) * 100.0, 100.0);
        s.add(task.blocked(|t| t.blocked_network = measured(40.0), 40.0));
    }
    s
}

#[test]
fn more_executors_take_fewer_waves() {
    let twice = ask(&waves(), &["executors=2"]).expect("an answer");
    near(twice.prediction.duration_ms, 200.0);
    assert!(twice.prediction.low_ms <= 200.0 && twice.prediction.high_ms >= 200.0);
    assert_eq!(twice.baseline.measured_ms, 400.0);
    near(ask(&waves(), &["executor.cores=x0.5"]).expect("an answer").prediction.duration_ms, 800.0);
    near(ask(&waves(), &["cores=8"]).expect("an answer").prediction.duration_ms, 100.0);
    assert!(
        twice.assumptions.iter().any(|a| a.contains("2 executors instead of 1")),
        "{:?}",
        twice.assumptions
    );
}

#[test]
fn blocked_parts_scale_and_computing_does_not() {
    near(ask(&waves(), &["network.rate=x2"]).expect("an answer").prediction.duration_ms, 320.0);
    near(ask(&waves(), &["no=network"]).expect("an answer").prediction.duration_ms, 240.0);
    let slower = ask(&waves(), &["network.rate=x0.5"]).expect("an answer").prediction;
    near(slower.duration_ms, 560.0);
    assert!(slower.low_ms < 400.0 + 1.0, "possibly none of it is the network's: {slower:?}");
}

#[test]
fn no_skew_and_no_stragglers_shorten_tasks() {
    near(ask(&skewed(), &["no=skew"]).expect("an answer").prediction.duration_ms, 1000.0);
    let none = ask(&waves(), &["no=stragglers"]).expect("an answer");
    near(none.prediction.duration_ms, 400.0);
}

#[test]
fn unsupported_changes_list_supported_ones() {
    for (setting, says) in [
        ("partitions=4", "executors, executor.cores"),
        ("disks=2", "executors, executor.cores"),
        ("machines=4", "set executors"),
        ("disk.rate=200MB/s", "no rate is read here"),
        ("no=gc", "does not record how long"),
        ("executors=100000", "a number from 1 to 10000"),
        ("executor.cores=4096", "a number from 1 to 1024"),
        ("no=cake", "no=gc, scheduler"),
    ] {
        match ask(&waves(), &[setting]) {
            Err(WhatIfError::Usage(message)) => assert!(message.contains(says), "{setting}: {message}"),
            other => panic!("{setting}: {other:?}"),
        }
    }
}

#[test]
fn singles_are_deterministic_and_sorted() {
    let s = waves();
    let model = WhatIfModel::of(&s.trace, &[]).expect("a basis");
    let singles = model.singles();
    assert_eq!(singles, model.singles());
    let times: Vec<f64> = singles.iter().map(|s| s.prediction.duration_ms).collect();
    assert!(times.is_sorted() && !times.is_empty(), "{times:?}");
}

/// Builds four tasks of 100 on two slots with one disk, each waiting for it for at most `wait`.
fn reading(wait: f64) -> Spark {
    let mut s = Spark::on(1, 2.0);
    let job = s.job(0.0, 200.0);
    let stage = s.stage(job, &[], 0.0, 200.0);
    for task in 0..4 {
        let task = s.task(stage, 0, f64::from(task / 2) * 100.0, 100.0);
        s.add(
            task.blocked(|t| t.blocked_input = at_most(wait), wait).with(|t| t.input_bytes = Some(1 << 30)),
        );
    }
    s
}

#[test]
fn busy_disk_sets_the_pace() {
    // Both wait all the time, so at twice the rate they take half the time by either law.
    let all = ask(&reading(100.0), &["disk.rate=x2"]).expect("an answer").prediction;
    near(all.duration_ms, 100.0);
    assert!(all.high_ms >= 200.0 * 0.99, "possibly none of it is the disk's: {all:?}");
    // They compute for half of their time. The disk is idle while neither waits: a quarter of the time.
    // With separate waits a task takes 75, with a saturated disk 50.
    let half = ask(&reading(50.0), &["disk.rate=x2"]).expect("an answer").prediction;
    near(half.duration_ms, 2.0 * (0.75 * 50.0 + 0.25 * 75.0));
    assert!(half.low_ms < 101.0, "if it were always busy: {half:?}");
    // At ten times the rate they still take as long as they compute.
    near(
        ask(&reading(50.0), &["disk.rate=x10"]).expect("an answer").prediction.duration_ms,
        2.0 * (0.75 * 50.0 + 0.25 * 55.0),
    );
    let slower = ask(&reading(50.0), &["disk.rate=x0.5"]).expect("an answer").prediction;
    near(slower.duration_ms, 2.0 * (0.75 * 200.0 + 0.25 * 150.0));
}

#[test]
fn tasks_share_known_cores() {
    // Two tasks, one core: each waits half of its time for the disk, while the other has the core. In a
    // closed network of two such stations, twice or half the disk's rate turns 3 into 7/3 or 14/3.
    let mut s = Spark::on(1, 2.0);
    s.trace.machines[0].cores = Some(1);
    let job = s.job(0.0, 200.0);
    let stage = s.stage(job, &[], 0.0, 200.0);
    for task in 0..4 {
        let task = s.task(stage, 0, f64::from(task / 2) * 100.0, 100.0);
        s.add(task.blocked(|t| t.blocked_input = measured(50.0), 50.0));
    }
    let twice = ask(&s, &["disk.rate=x2"]).expect("an answer");
    near(twice.prediction.duration_ms, 200.0 * 7.0 / 9.0);
    assert!(twice.assumptions.iter().any(|a| a.contains("share their machine's cores")), "{twice:?}");
    near(ask(&s, &["disk.rate=x0.5"]).expect("an answer").prediction.duration_ms, 200.0 * 14.0 / 9.0);
    s.trace.machines[0].cores = Some(2);
    let each = ask(&s, &["disk.rate=x2"]).expect("an answer").prediction.duration_ms;
    assert!(each < twice.prediction.duration_ms, "a core for each: {each}");
}

#[test]
fn writes_are_not_read_ahead() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 100.0);
    let stage = s.stage(job, &[], 0.0, 100.0);
    let task = s.task(stage, 0, 0.0, 100.0);
    s.add(task.blocked(|t| t.blocked_shuffle_write = measured(40.0), 40.0));
    let twice = ask(&s, &["disk.rate=x2"]).expect("an answer").prediction;
    near(twice.duration_ms, 80.0);
    assert!(twice.high_ms < 100.0, "it was measured: {twice:?}");
}

/// Builds two executors of one slot and two jobs of two tasks each; the second executor arrives 50 after
/// the first job's submission.
fn two_jobs() -> Spark {
    let mut s = Spark::on(1, 1.0);
    let late = s.executor(1.0, 1050.0);
    for (begin, end) in [(1000.0, 1150.0), (2200.0, 2300.0)] {
        let job = s.job(begin, end);
        let stage = s.stage(job, &[], begin, end);
        s.computes(stage, 0, begin, 100.0);
        s.computes(stage, late, end - 100.0, 100.0);
    }
    s
}

#[test]
fn permanent_executors_save_the_wait_for_them() {
    let stay = ask(&two_jobs(), &["idle.timeout=never"]).expect("an answer");
    near(stay.prediction.duration_ms, 200.0);
    assert!(
        stay.assumptions.iter().any(|a| a.contains("slots are held for 2.5 s")),
        "{:?}",
        stay.assumptions
    );
}

#[test]
fn removed_executors_are_waited_for_again() {
    let long = ask(&two_jobs(), &["idle.timeout=2s"]).expect("an answer");
    near(long.prediction.duration_ms, 250.0);
    let short = ask(&two_jobs(), &["idle.timeout=100ms"]).expect("an answer");
    // Both were removed before the second job, and arrive 50 after its submission, as the log shows.
    near(short.prediction.duration_ms, 300.0);
    let words = short.assumptions.join("\n");
    assert!(words.contains("arrive 0.1 s after its submission") && !words.contains("assumed"), "{words}");
    let mut local = waves();
    local.trace.resources[0].name = "executor driver".into();
    match ask(&local, &["idle.timeout=60s"]) {
        Err(WhatIfError::Usage(message)) => assert!(message.contains("in its driver"), "{message}"),
        other => panic!("{other:?}"),
    }
}
