//! The limiting resource, or its absence: the analysis and what-ifs agree. Times are in milliseconds.

mod builder;

use builder::spark::{Spark, measured, skewed};
use builder::{Build, ms};
use pellucid_model::whatif::{Changes, WhatIf, WhatIfModel};
use pellucid_model::{Analysis, Bottleneck, Steps, analyze};
use pellucid_trace::{Outcome, Trace};

fn ask(trace: &Trace, settings: &[&str]) -> WhatIf {
    let changes = Changes::parse(settings, |_| Err("no rate is read here".into())).expect("settings");
    WhatIfModel::of(trace, &[]).expect("a whole trace").predict(&changes).expect("an answer")
}

fn kind(bottleneck: Option<&Bottleneck>) -> Option<&str> {
    bottleneck.map(|b| b.kind.as_str())
}

fn names(a: &Analysis) -> Vec<&str> {
    a.causes.iter().map(|c| c.cause.as_str()).collect()
}

/// Builds a query on two cores that takes 1.2 to plan, `work` on one core, and 0.4 to start and finish.
fn short(work: f64) -> Build {
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT count(*) FROM t", 10.0);
    let stage = b.stage(job, "scan", 11.2);
    let m = b.multitask(stage, 11.3);
    b.compute(m, 11.4, work);
    b.end_stage(stage, 11.4 + work);
    b.end_job(job, 11.4 + work + 0.2);
    b
}

#[test]
fn query_not_limited_by_a_resource_has_no_bottleneck() {
    let b = short(0.5);
    let job = &analyze(&b.trace).jobs[0];
    assert_eq!((&job.bottleneck, &job.next), (&None, &None));
    let rounded = |steps: &Steps| steps.each().map(|(_, ms)| (ms * 1e3).round() / 1e3);
    assert_eq!(job.steps.as_ref().map(rounded), Some([1.2, 0.1, 0.1, 0.5, 0.0, 0.2]));
    let answer = ask(&b.trace, &["cores=1"]);
    assert_eq!((answer.bottleneck_before, answer.bottleneck_after), (None, None));
    // With twenty times the work, a core limits.
    let b = short(10.0);
    let whole =
        analyze(&b.trace).jobs[0].steps.expect("it ended").each().iter().map(|(_, ms)| ms).sum::<f64>();
    assert!((whole - 11.6).abs() < 1e-6, "{whole}");
    assert_eq!(kind(ask(&b.trace, &["cores=1"]).bottleneck_after.as_ref()), Some("cpu"));
}

#[test]
fn pauses_between_monotasks_are_a_separate_step() {
    let mut b = short(0.5);
    let m = b.multitask(0, 30.0);
    b.compute(m, 31.0, 0.5);
    b.trace.job_ends[0].ended_ns = ms(32.0);
    let steps = analyze(&b.trace).jobs[0].steps.expect("it ended");
    assert!(
        (steps.pauses_ms - (31.0 - 11.9)).abs() < 1e-6 && (steps.working_ms - 1.0).abs() < 1e-6,
        "{steps:?}"
    );
}

/// Builds sixteen tasks of 100 on two executors, each with this much garbage collection.
fn collecting(gc: f64) -> Spark {
    let mut s = Spark::on(2, 1.0);
    let job = s.job(0.0, 800.0);
    let stage = s.stage(job, &[], 0.0, 800.0);
    for task in 0..16 {
        let task = s.task(stage, task % 2, f64::from(task / 2) * 100.0, 100.0);
        s.add(task.blocked(|t| t.gc = measured(gc), gc));
    }
    s
}

#[test]
fn garbage_collection_is_never_the_bottleneck() {
    for gc in [30.0, 60.0] {
        let s = collecting(gc);
        let a = analyze(&s.trace);
        assert_eq!((names(&a), &a.jobs[0].bottleneck), (vec!["gc"], &None), "{gc} of 100");
        let answer = ask(&s.trace, &["executors=x2"]);
        assert_eq!((answer.bottleneck_before, answer.bottleneck_after), (None, None));
        assert_eq!(answer.first_cause.map(|c| c.cause).as_deref(), Some("gc"));
        assert_eq!(kind(ask(&s.trace, &["no=gc"]).bottleneck_after.as_ref()), Some("cpu"));
    }
    let s = collecting(2.0);
    assert_eq!(kind(analyze(&s.trace).jobs[0].bottleneck.as_ref()), Some("cpu"));
    assert_eq!(kind(ask(&s.trace, &[]).bottleneck_before.as_ref()), Some("cpu"));
}

#[test]
fn unexplained_time_is_not_attributed_to_cores() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 1000.0);
    let stage = s.stage(job, &[], 0.0, 1000.0);
    let task = s.task(stage, 0, 0.0, 1000.0);
    s.add(task.with(|t| t.cpu_ns = Some(ms(100.0))));
    assert_eq!(analyze(&s.trace).jobs[0].bottleneck, None);
}

#[test]
fn skew_is_the_first_cause_if_it_explains_more_than_any_resource() {
    let mut s = skewed();
    let even = s.job(1450.0, 5500.0);
    let stage = s.stage(even, &[], 1450.0, 5500.0);
    (0..2).for_each(|_| s.computes(stage, 0, 1450.0, 4050.0));
    let a = analyze(&s.trace);
    assert!(a.causes[0].ms < 0.1 * 5500.0, "{:?}", a.causes);
    assert_eq!(names(&a), ["skew"]);
    assert!(a.advice[0].title.contains("skewed"), "{:?}", a.advice);
}

#[test]
fn failed_application_gets_no_advice_for_more_capacity() {
    let mut s = skewed();
    // It also waited for its executor.
    s.trace.resources[0].added_ns = Some(ms(100.0));
    let capacity = |s: &Spark| {
        let advice = analyze(&s.trace).advice.into_iter().map(|a| a.title).collect::<Vec<_>>().join(" ");
        let singles = WhatIfModel::of(&s.trace, &[]).expect("jobs ran").singles();
        let singles: Vec<String> = singles.iter().map(|single| single.changes.to_string()).collect();
        (advice.contains("executors"), singles.iter().any(|set| set.contains("executor")))
    };
    assert!(capacity(&s).1);
    let end = s.trace.job_ends.last_mut().expect("its end");
    (end.outcome, end.error) = (Outcome::Failed, Some("Task 2 failed 4 times".into()));
    assert_eq!(capacity(&s), (false, false));
}
