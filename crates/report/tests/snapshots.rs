//! What renderers print, against files in `snapshots/`. `UPDATE_SNAPSHOTS=1 cargo test` rewrites
//! them; the difference is then for a reviewer.

#[path = "../../model/tests/builder/mod.rs"]
mod builder;

use std::path::Path;

use builder::{Build, ms};
use pellucid_model::analyze;
use pellucid_report::{Source, analysis_json, summary_line, terminal, timeline};
use pellucid_trace::{Outcome, Phase, kind};

#[track_caller]
fn check(name: &str, got: &str) {
    let path = Path::new("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, got).expect("snapshots can be written");
    }
    let expect = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == expect,
        "{} differs; UPDATE_SNAPSHOTS=1 accepts this:\n{got}\n--- instead of:\n{expect}",
        path.display()
    );
}

/// Three stages on two unequal disks and a store; the first two overlap, one monotask failed
/// and was not retried, and a CJK name stands in it.
fn uneven() -> Build {
    let mut b = Build::on_cores(4);
    let (left, right) = (b.disk("sda", Some(200e6)), b.disk("sdb", Some(200e6)));
    let store = b.resource("s3://warehouse", kind::STORE, Some((120e6, "probed")));
    let job = b.job("SELECT count(*)\n  FROM \"注文\" JOIN items USING (id)", 40.0);
    let build = b.stage(job, "HashJoinExec build, DataSourceExec 注文", 50.0);
    let probe = b.stage(job, "AggregateExec partial, HashJoinExec, DataSourceExec items", 300.0);
    for part in 0..6_u32 {
        let m = b.multitask(build, 50.0);
        let start = 50.0 + 120.0 * f64::from(part);
        b.monotask(m, store, Phase::Fetch, start, 120.0).bytes = Some(14_000_000);
        b.compute(m, start + 120.0, 80.0);
    }
    for part in 0..12_u32 {
        let m = b.multitask(probe, 300.0);
        let disk = if part % 4 == 0 { right } else { left };
        let start = 300.0 + 250.0 * f64::from(part);
        b.read(m, disk, start, 250.0, 48_000_000);
        b.compute(m, start + 250.0, if part == 5 { 1900.0 } else { 300.0 });
    }
    b.end_stage(build, 850.0);
    b.end_stage(probe, 3700.0);
    let last = b.stage(job, "AggregateExec final", 3700.0);
    b.trace.stages[last as usize].not_split = vec!["AggregateExec".into()];
    let m = b.multitask(last, 3700.0);
    b.compute(m, 3705.0, 20.0).not_split_ns = Some(ms(20.0));
    b.end_stage(last, 3730.0);
    b.end_job(job, 3740.0).rows = Some(1);
    b.trace.header.as_mut().expect("one").labels =
        vec!["disk sda paced at 200 MB/s inside the engine".into()];
    b.end(0.05, 3.0);
    b
}

fn truncated() -> Build {
    let mut b = Build::query();
    b.trace.end = None;
    b.trace.job_ends.clear();
    b.trace.stage_ends.clear();
    b.trace.truncated = Some("cut in block 2, after record 9".into());
    b
}

fn failed() -> Build {
    let mut b = Build::query();
    let end = &mut b.trace.job_ends[0];
    (end.outcome, end.rows) = (Outcome::Failed, None);
    end.error = Some("orders/part-3.parquet: page 7 of column o_comment is corrupt".into());
    b
}

/// One with nothing but a job, as `SELECT 1` leaves it.
fn bare() -> Build {
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT 1", 0.0);
    b.end_job(job, 3.2).rows = Some(1);
    b.end(0.0, 0.1);
    b
}

fn many_jobs() -> Build {
    let mut b = Build::on_cores(1);
    for n in 0..7_u32 {
        let start = 100.0 * f64::from(n);
        let job = b.job(&format!("query {n}"), start);
        let stage = b.stage(job, "scan", start);
        let m = b.multitask(stage, start);
        b.compute(m, start + 1.0, 10.0 + f64::from(n));
        b.end_stage(stage, start + 20.0);
        b.end_job(job, start + 20.0);
    }
    b.end(0.01, 0.1);
    b
}

#[test]
fn analyses() {
    for (name, b) in [
        ("query", Build::query()),
        ("uneven", uneven()),
        ("truncated", truncated()),
        ("failed", failed()),
        ("bare", bare()),
        ("many_jobs", many_jobs()),
    ] {
        let a = analyze(&b.trace);
        check(&format!("{name}.txt"), &terminal(&a, &b.trace, 80, false));
        check(&format!("{name}.timeline.txt"), &timeline(&b.trace, 80, false));
    }
}

#[test]
fn other_widths_and_colours() {
    let b = uneven();
    let a = analyze(&b.trace);
    check("uneven.narrow.txt", &(terminal(&a, &b.trace, 48, false) + "\n" + &timeline(&b.trace, 48, false)));
    check("uneven.wide.txt", &(terminal(&a, &b.trace, 120, false) + "\n" + &timeline(&b.trace, 120, false)));
    check("uneven.color.txt", &(terminal(&a, &b.trace, 80, true) + "\n" + &timeline(&b.trace, 80, true)));
}

#[test]
fn document() {
    let b = Build::query();
    let a = analyze(&b.trace);
    let document = analysis_json(&a, Source::of_trace(&b.trace, Some("job.trace")));
    check("query.json", &(serde_json::to_string_pretty(&document).expect("it is JSON") + "\n"));
}

/// The line of the contract, from figures that give exactly it.
#[test]
fn the_line() {
    let mut b = Build::on_cores(2);
    let disk = b.disk("nvme0n1", Some(486e6));
    let job = b.job("q", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    b.read(m, disk, 0.0, 1700.0, 811_620_000);
    b.compute(m, 600.0, 1220.0).cached_bytes = Some(96_400_000);
    b.end_stage(stage, 1830.0);
    b.end_job(job, 1840.0);
    let line = |b: &Build, rows| summary_line(&analyze(&b.trace).jobs[0], rows);
    assert_eq!(
        line(&b, Some(4)),
        "4 rows in 1.84 s · limited by disk nvme0n1 (ideal 1.67 s of 1.84 s) · next: cores (0.61 s) · 812 MB read, 96 MB cached"
    );
    assert!(line(&b, Some(1)).starts_with("1 row in 1.84 s · "));
    assert!(line(&b, Some(6_001_215)).starts_with("6,001,215 rows in "));
    assert!(line(&b, None).starts_with("done in 1.84 s · "));

    // Without a capacity the busy time stands in, and the line says so.
    b.trace.resources[disk as usize].capacity = None;
    assert!(line(&b, None).contains("limited by disk nvme0n1 (busy 1.70 s of 1.84 s)"), "{}", line(&b, None));
    // Most of the time nothing was in use: nothing limited.
    b.trace.job_ends[0].ended_ns = ms(20_000.0);
    assert!(line(&b, None).contains("limited by no resource (disk nvme0n1: busy 1.70 s of 20.0 s)"));
    b.trace.job_ends[0].outcome = Outcome::Cancelled;
    assert!(line(&b, None).starts_with("cancelled after 20.0 s · "));
    assert_eq!(line(&bare(), Some(1)), "1 row in 3.2 ms · what limited it was not measured");
    assert!(
        line(&truncated(), None).starts_with("end not recorded; seen for 1.82 s · "),
        "{}",
        line(&truncated(), None)
    );

    // Two disks that are loaded alike limit together.
    let mut b = Build::on_cores(2);
    let job = b.job("q", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    for name in ["sda", "sdb"] {
        let disk = b.disk(name, Some(50e6));
        b.read(m, disk, 0.0, 1000.0, 50_000_000);
    }
    b.end_job(job, 1100.0);
    assert_eq!(
        line(&b, Some(0)),
        "0 rows in 1.10 s · limited by 2 disks (ideal 1.00 s of 1.10 s) · 100 MB read"
    );
}

/// An application of Spark with a skewed partition, and a job of it that failed.
fn spark() -> builder::spark::Spark {
    let mut s = builder::spark::skewed();
    s.set("spark.sql.shuffle.partitions", "8");
    let failed = s.job(1500.0, 1520.0);
    let end = s.trace.job_ends.last_mut().expect("its end");
    (end.outcome, end.error) = (Outcome::Failed, Some("Task 0 in stage 2.0 failed 4 times".into()));
    let stage = s.stage(failed, &[], 1500.0, 1520.0);
    let task = s.task(stage, 0, 1500.0, 20.0);
    s.add(task.with(|t| t.outcome = Outcome::Failed));
    s.trace.application.as_mut().expect("it is there").ended_ns = Some(ms(2000.0));
    s
}

#[test]
fn an_application_of_spark_fits_one_screen() {
    let trace = spark().trace;
    let text = terminal(&analyze(&trace), &trace, 80, false);
    assert!(text.lines().count() <= 24);
    check("spark.txt", &text);
}

#[test]
fn several_applications_are_a_table_worst_first() {
    let analyses = [analyze(&builder::spark::skewed().trace), analyze(&spark().trace)];
    let names = ["logs/nightly".to_owned(), "logs/hourly".to_owned()];
    assert_eq!(pellucid_report::worst_first(&analyses), [1, 0], "a failed job is worse than any time");
    check("overview.txt", &pellucid_report::overview(&analyses, &names, 80, false));
}
