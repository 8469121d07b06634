//! Analyses of single queries of a Spark application, and of its executors' concurrency.

mod builder;

use builder::ms;
use builder::spark::{Spark, measured};
use pellucid_model::{analyze, query};
use pellucid_trace::{ConcurrencyChange, Outcome, Query, QueryEnd};

/// Builds a query of two jobs with driver time between them, and a job without a query.
fn two_jobs() -> Spark {
    let mut s = Spark::on(2, 2.0);
    s.trace.queries.push(Query { name: "SELECT 1".into(), submitted_ns: ms(50.0), id: Some(7), root: None });
    for (from, until, of_query) in [(0.0, 40.0, false), (60.0, 160.0, true), (200.0, 500.0, true)] {
        let job = s.job(from, until);
        s.trace.jobs[job as usize].query = of_query.then_some(0);
        let stage = s.stage(job, &[], from, until);
        let task = s.task(stage, 0, from, until - from);
        s.add(task.blocked(|t| t.blocked_input = measured(20.0), 20.0));
    }
    let end = QueryEnd { query: 0, ended_ns: ms(550.0), outcome: Outcome::Ok, error: None };
    s.trace.query_ends.push(end);
    s
}

#[test]
fn query_covers_its_jobs_and_the_time_between() {
    let s = two_jobs();
    let analysis = analyze(&s.trace);
    let whole = query(&s.trace, &analysis, 0).expect("it is there");
    assert_eq!(
        (whole.duration_ms, whole.source_id, whole.outcome),
        (Some(500.0), Some(7), Some(Outcome::Ok))
    );
    assert_eq!(whole.stages, [1, 2]);
    let blocked = whole.blocked.expect("tasks ran");
    assert_eq!(blocked.disk.measured_ms, Some(40.0));
    assert_eq!(blocked.cpu.measured_ms, Some(100.0 + 300.0 - 40.0));
    assert_eq!(whole.bottleneck.map(|b| b.kind).as_deref(), Some("cpu"));
    assert!(query(&s.trace, &analysis, 1).is_none(), "no such query");
}

#[test]
fn permit_waits_are_not_unexplained() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 100.0);
    let stage = s.stage(job, &[], 0.0, 100.0);
    let mut task = s.task(stage, 0, 0.0, 100.0);
    task.task.cpu_ns = Some(ms(60.0));
    task.task.queue_ns = Some(ms(30.0));
    s.add(task);
    let blocked = analyze(&s.trace).blocked.expect("a task ran");
    assert_eq!(blocked.other.measured_ms, Some(10.0));
}

#[test]
fn concurrency_steps_are_listed_by_stage_and_executor() {
    let mut s = two_jobs();
    let mut change = |resource, stage, at, concurrency| {
        let reason = Some("start".to_owned());
        s.trace.concurrency_changes.push(ConcurrencyChange {
            resource,
            stage,
            at_ns: ms(at),
            concurrency,
            reason,
        });
    };
    change(1, 2, 300.0, 4);
    change(0, 2, 200.0, 2);
    change(1, 2, 200.0, 2);
    change(0, 1, 60.0, 2);
    let tuning = analyze(&s.trace).tuning;
    let said: Vec<_> = tuning
        .iter()
        .map(|t| (t.stage, t.executor.as_str(), t.steps.iter().map(|s| s.concurrency).collect::<Vec<_>>()))
        .collect();
    assert_eq!(said, [(1, "executor 0", vec![2]), (2, "executor 0", vec![2]), (2, "executor 1", vec![2, 4])]);
    assert_eq!(tuning[2].steps[1].at_ms, 300.0);
}
