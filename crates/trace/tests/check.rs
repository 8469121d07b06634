//! Each invariant: sound traces have none broken, and each kind of break is named.

mod common;

use common::*;
use pellucid_trace::*;

fn sound() -> Trace {
    pushed(&every_kind())
}

/// Breaks a sound trace, and expects to hear of exactly that.
fn broken(invariant: &str, change: impl FnOnce(&mut Trace)) {
    let mut trace = sound();
    assert_eq!(trace.check(), Vec::<String>::new());
    change(&mut trace);
    let words = trace.check();
    let named = words.iter().any(|word| word.contains(invariant));
    assert!(named, "`{invariant}` is not in {words:#?}");
}

#[test]
fn sound_traces_of_any_seed_have_none() {
    for seed in 0..20 {
        let trace = pushed(&whole(job(seed, 3, 30)));
        assert_eq!(trace.check(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn each_break_is_named() {
    broken("begins with a header", |t| t.header = None);
    broken("end counts all", |t| {
        t.sampled_tasks.clear();
    });
    broken("index is registered", |t| t.monotasks[0].multitask = 1_000);
    broken("index is registered", |t| t.stages[0].after = vec![1]);
    broken("capacity is over zero", |t| t.resources[0].capacity = Some(0.0));
    broken("where it is known from", |t| t.resources[0].capacity_from = None);
    broken("concurrency is at least 1", |t| t.resources[1].concurrency = Some(0));
    broken("link is a resource", |t| t.resources[3].link = Some(0));
    broken("of its own job", |t| (t.stages[0].job, t.jobs[1].submitted_ns) = (1, u64::MAX));
    broken("submitted no sooner than its job", |t| t.stages[0].submitted_ns = 1);
    broken("a stage ends once", |t| t.stage_ends.push(t.stage_ends[0].clone()));
    broken("a stage ends after", |t| t.stage_ends[0].ended_ns = 1);
    broken("a job ends once", |t| t.job_ends.push(t.job_ends[0].clone()));
    broken("a job ends after", |t| t.job_ends[0].ended_ns = 1);
    broken("ended well has no error", |t| t.job_ends[1].error = Some("disk".into()));
    broken("admitted no sooner than its stage", |t| t.multitasks[0].admitted_ns = 1);
    broken("its own comes after have ended", |t| t.stage_ends[0].ended_ns = u64::MAX);
    broken("stage ends no later than its job", |t| t.job_ends[1].ended_ns = t.jobs[0].submitted_ns);
}

#[test]
fn each_break_of_an_event_is_named() {
    broken("fits 64 bits", |t| t.monotasks[0].service_ns = u64::MAX);
    broken("queued no sooner", |t| t.monotasks[0].queued_ns = 1);
    broken("runs on cores", |t| t.monotasks[0].resource = 0);
    broken("only the compute phase", |t| t.monotasks[0].decode_ns = Some(1));
    broken("parts are within", |t| t.monotasks[1].encode_ns = Some(t.monotasks[1].service_ns));
    broken("parts are within", |t| t.monotasks[1].not_split_ns = Some(u64::MAX));
    broken("core time is within", |t| t.monotasks[0].cpu_ns = Some(u64::MAX));
    broken("moves no bytes of a device", |t| t.monotasks[1].device_bytes = Some(4_096));
    broken("monotask ends no later", |t| t.stage_ends[0].ended_ns = t.monotasks[0].started_ns());
    broken("above a resource's concurrency", |t| t.monotasks.extend([t.monotasks[1]; 2]));
    broken("launched no sooner", |t| task(t, |task| task.launched_ns = 1));
    broken("times of a task are within", |t| task(t, |task| task.gc = Some(Blocked::AtMostNs(u64::MAX))));
    broken("times of a task are within", |t| task(t, |task| task.run_ns = Some(u64::MAX)));
    broken("ended well has no failure", |t| task(t, |task| task.outcome = Outcome::Ok));
    broken("query ends once", |t| t.query_ends.push(t.query_ends[0].clone()));
    broken("query that ended well", |t| t.query_ends[0].error = Some("x".into()));
    broken("ends after it started", |t| {
        t.application.iter_mut().for_each(|a| (a.started_ns, a.ended_ns) = (Some(2), Some(1)));
    });
    broken("goes after it came", |t| {
        t.resources.iter_mut().for_each(|r| r.removed_ns = r.added_ns.map(|ns| ns - 1))
    });
    broken("least concurrency", |t| t.resources[0].concurrency_min = Some(99));
    broken("weight is at least 1", |t| t.sampled_tasks[0].weight = 0.5);
    broken("first byte comes before", |t| t.storage_operations[0].first_byte_ns = Some(u64::MAX));
    broken("counts itself", |t| t.storage_operations[0].concurrency = Some(0));
    broken("operation that ended well", |t| t.storage_operations[1].outcome = Outcome::Ok);
    broken("interval is over zero", |t| t.utilization_samples[0].interval_ns = 0);
}

/// What runs back to back at one place never overlaps; one nanosecond more does.
#[test]
fn a_place_is_free_at_the_instant_that_it_ends() {
    let mut trace = pushed(&whole(job(1, 1, 2)));
    trace.resources[0].concurrency = Some(1);
    trace.monotasks.retain(|m| m.phase == Phase::Compute);
    trace.stage_ends.clear();
    trace.end = None;
    let first_end = trace.monotasks[0].ended_ns();
    trace.monotasks[1].queued_ns = first_end;
    trace.monotasks[1].queue_ns = 0;
    assert_eq!(trace.check(), Vec::<String>::new());
    trace.monotasks[1].queued_ns = first_end - 1;
    let words = trace.check();
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(words[0].contains("2 of 1 at"), "{words:?}");
}

#[test]
fn many_cases_of_one_break_are_counted() {
    let mut trace = pushed(&whole(job(1, 1, 200)));
    for multitask in &mut trace.multitasks {
        multitask.admitted_ns = 0;
    }
    let words = trace.check();
    assert_eq!(words.len(), 6, "{words:#?}");
    assert!(words[5].starts_with("195 more of: a multitask"), "{words:#?}");
}

/// Changes the first pipelined task.
fn task(trace: &mut Trace, change: impl FnOnce(&mut PipelinedTask)) {
    let mut tasks: Vec<PipelinedTask> = trace.pipelined_tasks.iter().collect();
    change(&mut tasks[0]);
    trace.pipelined_tasks = tasks.into_iter().collect();
}
