//! Handmade traces, one for each case that the terminal or the page handles differently. Snapshot tests
//! render them; `examples/page.rs` writes their pages for browser tests.
#![allow(dead_code, missing_docs)] // Each test file uses a part of this module.

#[path = "../../../model/tests/builder/mod.rs"]
pub mod builder;

use builder::{Build, ms};
use pellucid_trace::{
    Column, Metric, Operator, Outcome, Part, Phase, Query, QueryEnd, QueryOperator, Stack, Trace, Unit, kind,
};

/// Returns the traces of monotasks, with their names.
pub fn of_monotasks() -> [(&'static str, Build); 6] {
    [
        ("query", Build::query()),
        ("uneven", uneven()),
        ("truncated", truncated()),
        ("failed", failed()),
        ("bare", bare()),
        ("many_jobs", many_jobs()),
    ]
}

/// Returns all traces, with their names.
pub fn all() -> Vec<(&'static str, Trace)> {
    let mut all: Vec<_> = of_monotasks().into_iter().map(|(name, b)| (name, b.trace)).collect();
    all.push(("hostile", hostile().trace));
    all.push(("plan", plan().trace));
    all.push(("query_plan", query_plan()));
    all.push(("spark", spark().trace));
    all.push(("skewed", builder::spark::skewed().trace));
    all.push(("nothing", Trace::default()));
    all
}

/// Markup that must be shown as text.
pub const HOSTILE: &str = "</script><img onerror=alert(1)>\"'&\u{1b}[31m";

/// A query whose every name is markup.
pub fn hostile() -> Build {
    let mut b = Build::query();
    b.trace.jobs[0].name = HOSTILE.into();
    b.trace.stages[0].name = HOSTILE.into();
    b.trace.resources[1].name = HOSTILE.into();
    b.trace.job_ends[0].error = Some(HOSTILE.into());
    let detail = Some(HOSTILE.into());
    let columns = vec![Column { name: HOSTILE.into(), cpu_ns: 1, encoded_bytes: 1, decoded_bytes: 1 }];
    b.trace.operators.push(Operator { detail, from: Some(0), columns, ..operator(0, 0, HOSTILE, &[0, 7]) });
    b.trace.stacks.push(Stack { stage: 0, operator: Some(0), count: 1, frames: HOSTILE.into() });
    b
}

/// An operator that takes 1 ms for each of its number and one, and returns 100 rows.
pub fn operator(stage: u32, operator: u32, name: &str, inputs: &[u32]) -> Operator {
    Operator {
        stage,
        operator,
        name: name.into(),
        detail: None,
        part: Part::Operators,
        inputs: inputs.into(),
        from: None,
        cpu_ns: ms(f64::from(operator + 1)),
        max_cpu_ns: ms(f64::from(operator + 1)),
        batches: None,
        rows: Some(100),
        bytes: None,
        planned_rows: None,
        peak_bytes: None,
        columns: vec![],
        expressions: vec![],
    }
}

/// A scan of two columns, one of which took all of its core time.
pub fn scan(stage: u32, operator: u32, name: &str) -> Operator {
    let scan = self::operator(stage, operator, name, &[]);
    let column =
        |name: &str, cpu_ns| Column { name: name.into(), cpu_ns, encoded_bytes: 4000, decoded_bytes: 9000 };
    let columns = vec![column("l_tax", 0), column("l_comment", scan.cpu_ns)];
    Operator { part: Part::Decode, columns, ..scan }
}

/// A query with operators: two read the output of the same stage, an input is used twice, and one has no consumer.
/// The first stage ended before the second, which the last waited for as well.
pub fn plan() -> Build {
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT", 0.0);
    for (stage, ended) in [(0_u32, 30.0), (1, 40.0), (2, 60.0)] {
        b.stage(job, "Filter, Scan", 1.0);
        b.trace.stages[stage as usize].after = (0..stage).collect();
        for _ in 0..=stage {
            let task = b.multitask(stage, 2.0);
            b.compute(task, ended - 20.0, 20.0);
        }
        b.end_stage(stage, ended);
    }
    b.end_job(job, 60.0);
    b.trace.operators = vec![
        operator(0, 0, "Scan a.parquet", &[]),
        operator(0, 1, "Input", &[]),
        operator(0, 2, "Partition", &[0]),
        operator(1, 3, "Scan b.parquet", &[]),
        operator(1, 4, "Output", &[3]),
        Operator { from: Some(0), ..operator(2, 5, "Exchange", &[]) },
        Operator { from: Some(0), ..operator(2, 6, "Exchange", &[]) },
        Operator { rows: None, ..operator(2, 7, "HashJoin Inner build", &[5]) },
        operator(2, 8, "HashJoin Inner probe", &[7, 6, 5]),
    ];
    b
}

/// Three stages on two unevenly loaded disks and a store. The first two overlap, one multitask is much longer
/// than the others, and a name has CJK characters.
pub fn uneven() -> Build {
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

pub fn truncated() -> Build {
    let mut b = Build::query();
    b.trace.end = None;
    b.trace.job_ends.clear();
    b.trace.stage_ends.clear();
    b.trace.truncated = Some("cut in block 2, after record 9".into());
    b
}

pub fn failed() -> Build {
    let mut b = Build::query();
    let end = &mut b.trace.job_ends[0];
    (end.outcome, end.rows) = (Outcome::Failed, None);
    end.error = Some("orders/part-3.parquet: page 7 of column o_comment is corrupt".into());
    b
}

/// A trace with a job only, as `SELECT 1` leaves it.
pub fn bare() -> Build {
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT 1", 0.0);
    b.end_job(job, 3.2).rows = Some(1);
    b.end(0.0, 0.1);
    b
}

pub fn many_jobs() -> Build {
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

/// A skewed Spark application whose query has a plan: a scan and an exchange, and generated code that reads it.
pub fn query_plan() -> Trace {
    let mut trace = builder::spark::skewed().trace;
    trace.queries.push(Query { name: "SELECT".into(), submitted_ns: 0, id: Some(4), root: None });
    trace.query_ends.push(QueryEnd { query: 0, ended_ns: ms(1500.0), outcome: Outcome::Ok, error: None });
    trace.jobs[0].query = Some(0);
    let mut add = |operator, name: &str, fragment, within, inputs: &[u32], metrics: &[(&str, Unit, u64)]| {
        let metric = |&(name, unit, value): &(&str, Unit, u64)| Metric { name: name.into(), unit, value };
        trace.query_operators.push(QueryOperator {
            query: 0,
            operator,
            name: name.into(),
            detail: Some(HOSTILE.into()),
            inputs: inputs.into(),
            within,
            fragment,
            stage: Some(fragment),
            metrics: metrics.iter().map(metric).collect(),
        });
    };
    let rows = ("number of output rows", Unit::Count, 5000);
    add(0, "Scan parquet", 0, None, &[], &[rows, ("scan time", Unit::Ns, ms(60.0))]);
    let written =
        [("shuffle bytes written", Unit::Bytes, 17_000_000), ("shuffle records written", Unit::Count, 5000)];
    add(1, "Exchange", 0, None, &[0], &written);
    add(2, "WholeStageCodegen (1)", 1, None, &[], &[("duration", Unit::Ns, ms(1600.0))]);
    add(3, "Sort", 1, Some(2), &[1], &[("sort time", Unit::Ns, ms(900.0)), ("spill size", Unit::Bytes, 0)]);
    add(4, "Project", 1, Some(2), &[3], &[]);
    trace
}

/// A Spark application with a skewed partition and a failed job.
pub fn spark() -> builder::spark::Spark {
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
