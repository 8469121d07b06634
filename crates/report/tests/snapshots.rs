//! Compares the renderers' output with files in `snapshots/`. `UPDATE_SNAPSHOTS=1 cargo test` rewrites the
//! files.

mod cases;

use std::path::Path;

use cases::builder::{self, Build, ms};
use cases::{bare, plan, spark, truncated, uneven};
use pellucid_model::analyze;
use pellucid_report::{Source, analysis_json, summary_line, terminal, timeline};
use pellucid_trace::{Column, Expression, Outcome};

#[track_caller]
fn check(name: &str, got: &str) {
    let path = Path::new("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, got).expect("snapshots can be written");
    }
    let expect = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == expect,
        "{} differs; set UPDATE_SNAPSHOTS=1 to accept:\n{got}\n--- expected:\n{expect}",
        path.display()
    );
}

#[test]
fn analyses_match_snapshots() {
    for (name, b) in cases::of_monotasks() {
        let a = analyze(&b.trace);
        check(&format!("{name}.txt"), &terminal(&a, &b.trace, 80, false));
        check(&format!("{name}.timeline.txt"), &timeline(&b.trace, 80, false));
    }
}

#[test]
fn other_widths_and_colours_match_snapshots() {
    let b = uneven();
    let a = analyze(&b.trace);
    check("uneven.narrow.txt", &(terminal(&a, &b.trace, 48, false) + "\n" + &timeline(&b.trace, 48, false)));
    check("uneven.wide.txt", &(terminal(&a, &b.trace, 120, false) + "\n" + &timeline(&b.trace, 120, false)));
    check("uneven.color.txt", &(terminal(&a, &b.trace, 80, true) + "\n" + &timeline(&b.trace, 80, true)));
}

#[test]
fn most_expensive_columns_of_a_scan_are_listed() {
    let mut b = plan();
    let mut scan = cases::scan(0, 0, "Scan a.parquet");
    let others = ["l_tax", "l_quantity", "l_discount"].map(|name| Column {
        name: name.into(),
        cpu_ns: 100_000,
        encoded_bytes: 1,
        decoded_bytes: 1,
    });
    scan.cpu_ns = 2_000_000;
    scan.columns.extend(others);
    b.trace.operators[0] = scan;
    let text = terminal(&analyze(&b.trace), &b.trace, 80, false);
    let expect = "\n    l_comment 1.0 ms, l_tax 100 µs, l_quantity 100 µs, 2 other columns 100 µs\n";
    assert!(text.contains(expect), "{text}");
}

#[test]
fn most_expensive_expressions_of_an_operator_are_listed() {
    let mut b = plan();
    let expression = |text: &str, cpu_ns| Expression { text: text.into(), cpu_ns, rows: 100 };
    b.trace.operators[8].expressions = vec![
        expression("regexp_replace(l_comment, 7+, z) = l_comment", 2_000_000),
        expression("l_tax > 1", 300_000),
        expression("l_discount > 1", 200_000),
        expression("l_quantity > 1", 100_000),
    ];
    let text = terminal(&analyze(&b.trace), &b.trace, 80, false);
    let expect = "\n    regexp_replace(l_comment, 7+, z) = l_comment ≈ 2.0 ms, l_tax > 1 ≈ 300 µs,\n      \
                  l_discount > 1 ≈ 200 µs\n";
    assert!(text.contains(expect) && text.contains("\n  ≈ estimated from some of the batches\n"), "{text}");
}

#[test]
fn document_matches_snapshot() {
    let b = Build::query();
    let a = analyze(&b.trace);
    let document = analysis_json(&a, Source::of_trace(&b.trace, Some("job.trace")));
    check("query.json", &(serde_json::to_string_pretty(&document).expect("it is JSON") + "\n"));
}

#[test]
fn summary_line_of_each_outcome() {
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

    // Without a capacity, the line gives the busy time.
    b.trace.resources[disk as usize].capacity = None;
    assert!(line(&b, None).contains("limited by disk nvme0n1 (busy 1.70 s of 1.84 s)"), "{}", line(&b, None));
    // Resources were idle most of the time: none is the bottleneck.
    b.trace.job_ends[0].ended_ns = ms(20_000.0);
    assert!(
        line(&b, None).contains(" · not limited by one resource: finishing 18.2 of 20.0 s · "),
        "{}",
        line(&b, None)
    );
    b.trace.job_ends[0].outcome = Outcome::Cancelled;
    assert!(line(&b, None).starts_with("cancelled after 20.0 s · "));
    assert_eq!(line(&bare(), Some(1)), "1 row in 3.2 ms · bottleneck not measured");
    assert!(
        line(&truncated(), None).starts_with("end not recorded; observed for 1.82 s · "),
        "{}",
        line(&truncated(), None)
    );

    let mut nothing_seen = bare();
    nothing_seen.trace.job_ends.clear();
    nothing_seen.trace.truncated = Some("cut in block 1, after record 4".into());
    assert_eq!(line(&nothing_seen, None), "end not recorded · bottleneck not measured");

    // Evenly loaded disks are the bottleneck together.
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

#[test]
fn spark_application_fits_one_screen() {
    let trace = spark().trace;
    let text = terminal(&analyze(&trace), &trace, 80, false);
    assert!(text.lines().count() <= 24);
    check("spark.txt", &text);
}

#[test]
fn overview_lists_the_worst_application_first() {
    let analyses = [analyze(&builder::spark::skewed().trace), analyze(&spark().trace)];
    let names = ["logs/nightly".to_owned(), "logs/hourly".to_owned()];
    assert_eq!(pellucid_report::worst_first(&analyses), [1, 0], "a failed job outranks any saving");
    check("overview.txt", &pellucid_report::overview(&analyses, &names, 80, false));
}
