//! The headlines of the page and of the terminal: the bottleneck, its job, and the suggested change.

#[path = "../../model/tests/builder/mod.rs"]
mod builder;

use builder::spark::{Spark, skewed};
use builder::{Build, ms};
use pellucid_model::analyze;
use pellucid_report::{Source, WhatIf, html, job_json, summary_line, terminal};
use pellucid_trace::{Failure, Outcome, Trace};
use serde_json::Value;

/// Returns the two sentences at the top of a page.
fn head(trace: &Trace) -> (String, String) {
    let what_if = WhatIf::of(trace);
    let page =
        html(trace, &analyze(trace), Source::of_trace(trace, None), what_if.as_ref().map_err(String::as_str));
    let between = |open: &str, close: &str| {
        let text = page.split_once(open).expect("it is there").1;
        text.split_once(close).expect("it ends").0.to_owned()
    };
    (between("<h1>", "</h1>"), between("<p class=\"help\">", "</p>"))
}

/// Returns the lines of a screen below the application's, up to the first empty one.
fn screen_head(trace: &Trace) -> Vec<String> {
    let text = terminal(&analyze(trace), trace, 80, false);
    text.lines().skip(1).take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A query of 2.1 ms, of which planning takes 1.2 ms.
fn short() -> Build {
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT count(*) FROM t", 0.0);
    let stage = b.stage(job, "scan", 1.2);
    let m = b.multitask(stage, 1.3);
    b.compute(m, 1.4, 0.5);
    b.end_stage(stage, 1.9);
    b.end_job(job, 2.1);
    b
}

#[test]
fn terminal_json_and_page_agree_on_an_unlimited_job() {
    let trace = short().trace;
    let job = &analyze(&trace).jobs[0];
    assert_eq!(
        summary_line(job, Some(1)),
        "1 row in 2.1 ms · not limited by one resource: planning 1.2 of 2.1 ms"
    );
    let document = job_json(job);
    assert_eq!((&document["bottleneck"], &document["next"]), (&Value::Null, &Value::Null));
    assert_eq!(document["steps_ms"]["planning"], 1.2);
    assert_eq!(head(&trace).0, "This job was not limited by one resource: planning 1.2 of 2.1\u{a0}ms.");
}

#[test]
fn headline_does_not_suggest_a_bound() {
    let mut b = Build::on_cores(1);
    let job = b.job("SELECT sum(x) FROM t", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    for part in 0..8_u32 {
        let m = b.multitask(stage, 0.0);
        b.compute(m, 100.0 * f64::from(part), 100.0);
    }
    b.end_stage(stage, 800.0);
    b.end_job(job, 800.0);
    let what_if = WhatIf::of(&b.trace).expect("a whole trace");
    let bound = what_if.singles.iter().find(|single| single.set == "no=cpu").expect("it is there");
    let best = what_if.best().expect("one helps");
    assert_eq!((bound.bound, best.bound, best.set.as_str()), (true, false, "cores=x2"));
    assert!(bound.duration_ms < best.duration_ms);
    let help = head(&b.trace).1;
    assert!(help.starts_with("What would help most: cores=x2 "), "{help}");
}

/// An application of three jobs, the last of which failed with a long message.
fn failed() -> Spark {
    let mut s = skewed();
    s.trace.resources[0].added_ns = Some(ms(100.0));
    s.job(1450.0, 1500.0);
    let job = s.job(1500.0, 2500.0);
    let end = s.trace.job_ends.last_mut().expect("its end");
    let why = "Job aborted due to stage failure: Task 2 in stage 3.0 failed 4 times, most recent failure: "
        .to_owned();
    (end.outcome, end.error) = (Outcome::Failed, Some(why + &"Lost task 2.3 ".repeat(40)));
    let stage = s.stage(job, &[], 1500.0, 2500.0);
    let task = s.task(stage, 0, 1500.0, 1000.0);
    s.add(task.with(|t| (t.outcome, t.failure) = (Outcome::Failed, Some(Failure::Exception))));
    s
}

#[test]
fn headline_of_a_failed_application_is_two_lines_about_the_failure() {
    let trace = failed().trace;
    let (limit, help) = head(&trace);
    assert!(limit.starts_with("1 of 3 jobs failed") && limit.chars().count() <= 160, "{limit}");
    assert!(help.starts_with("What to do first: Fix the failing code"), "{help}");
    let screen = screen_head(&trace);
    assert!(
        screen.len() == 2
            && screen[0].starts_with("failed work: ")
            && screen[0].contains("1 of 3 jobs failed"),
        "{screen:?}"
    );
}

#[test]
fn headline_of_several_jobs_names_the_job() {
    let mut s = skewed();
    let other = s.job(1450.0, 1500.0);
    let stage = s.stage(other, &[], 1450.0, 1500.0);
    s.computes(stage, 0, 1450.0, 50.0);
    let (limit, help) = head(&s.trace);
    assert!(limit.starts_with("Skew took ") && limit.ends_with(", mostly in job 0, stage 1."), "{limit}");
    assert!(help.starts_with("What to do first: Split the skewed partition"), "{help}");
    assert!(screen_head(&s.trace)[0].contains(", mostly in job 0, stage 1; "));
    // A single job is not numbered.
    assert!(!head(&skewed().trace).0.contains("job 0"));
}
