//! Tests of the invariants: valid traces have no violations, and each kind of violation is reported.

mod common;

use common::*;
use pellucid_trace::*;

fn valid() -> Trace {
    pushed(&every_kind())
}

/// Changes a valid trace and expects a violation of `invariant`.
fn violates(invariant: &str, change: impl FnOnce(&mut Trace)) {
    let mut trace = valid();
    assert_eq!(trace.check(), Vec::<String>::new());
    change(&mut trace);
    let messages = trace.check();
    let named = messages.iter().any(|message| message.contains(invariant));
    assert!(named, "`{invariant}` is not in {messages:#?}");
}

#[test]
fn valid_traces_have_no_violations() {
    for seed in 0..20 {
        let trace = pushed(&whole(job(seed, 3, 30)));
        assert_eq!(trace.check(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn violations_of_entities_are_reported() {
    violates("begins with a header", |t| t.header = None);
    violates("end counts all", |t| {
        t.sampled_tasks.clear();
    });
    violates("index is registered", |t| t.monotasks[0].multitask = 1_000);
    violates("index is registered", |t| t.stages[0].after = vec![1]);
    violates("capacity is positive", |t| t.resources[0].capacity = Some(0.0));
    violates("capacity has a source", |t| t.resources[0].capacity_from = None);
    violates("concurrency is at least 1", |t| t.resources[1].concurrency = Some(0));
    violates("link is a resource", |t| t.resources[3].link = Some(0));
    violates("of the same job", |t| (t.stages[0].job, t.jobs[1].submitted_ns) = (1, u64::MAX));
    violates("not submitted before its job", |t| t.stages[0].submitted_ns = 1);
    violates("a stage ends once", |t| t.stage_ends.push(t.stage_ends[0].clone()));
    violates("a stage ends after", |t| t.stage_ends[0].ended_ns = 1);
    violates("a job ends once", |t| t.job_ends.push(t.job_ends[0].clone()));
    violates("a job ends after", |t| t.job_ends[0].ended_ns = 1);
    violates("successful job has no error", |t| t.job_ends[1].error = Some("disk".into()));
    violates("not admitted before its stage", |t| t.multitasks[0].admitted_ns = 1);
    violates("depends on have ended", |t| t.stage_ends[0].ended_ns = u64::MAX);
    violates("stage ends no later than its job", |t| t.job_ends[1].ended_ns = t.jobs[0].submitted_ns);
}

#[test]
fn violations_of_events_are_reported() {
    violates("fit into 64 bits", |t| t.monotasks[0].service_ns = u64::MAX);
    violates("not queued before", |t| t.monotasks[0].queued_ns = 1);
    violates("runs on cores", |t| t.monotasks[0].resource = 0);
    violates("only the compute phase", |t| t.monotasks[0].decode_ns = Some(1));
    violates("parts are within", |t| t.monotasks[1].encode_ns = Some(t.monotasks[1].service_ns));
    violates("parts are within", |t| t.monotasks[1].not_split_ns = Some(u64::MAX));
    violates("core time is within", |t| t.monotasks[0].cpu_ns = Some(u64::MAX));
    violates("moves no device bytes", |t| t.monotasks[1].device_bytes = Some(4_096));
    violates("monotask ends no later", |t| t.stage_ends[0].ended_ns = t.monotasks[0].started_ns());
    violates("concurrency is not exceeded", |t| t.monotasks.extend([t.monotasks[1]; 2]));
    violates("inputs are operators of its stage", |t| t.operators[0].inputs = vec![1]);
    violates("inputs are operators of its stage", |t| t.operators[0].stage = 1);
    violates("number is unique in its job", |t| t.operators[1].operator = 0);
    violates("in one monotask is part", |t| t.operators[1].max_cpu_ns += t.operators[1].cpu_ns);
    violates("of columns and expressions is part", |t| t.operators[0].columns[0].cpu_ns += 9_000_000);
    violates("of columns and expressions is part", |t| t.operators[0].expressions[0].cpu_ns += 9_000_000);
    violates("no more core time than their stage", |t| t.operators[1].cpu_ns += 10_000_000);
    violates("a count and functions", |t| t.stacks[0].count = 0);
    violates("a count and functions", |t| t.stacks[1].frames.clear());
    violates("operator of a stack is one of its stage", |t| t.stacks[0].operator = Some(2));
    violates("are before it, in no later fragment", |t| t.query_operators[1].inputs = vec![1]);
    violates("are before it, in no later fragment", |t| t.query_operators[0].fragment = 9);
    violates("is within one before it", |t| t.query_operators[2].within = Some(0));
    violates("number is unique in its query", |t| t.query_operators[1].operator = 0);
    violates("not launched before", |t| task(t, |task| task.launched_ns = 1));
    violates("times of a task are within", |t| task(t, |task| task.gc = Some(Blocked::AtMostNs(u64::MAX))));
    violates("times of a task are within", |t| task(t, |task| task.run_ns = Some(u64::MAX)));
    violates("successful task has no failure", |t| task(t, |task| task.outcome = Outcome::Ok));
    violates("query ends once", |t| t.query_ends.push(t.query_ends[0].clone()));
    violates("successful query", |t| t.query_ends[0].error = Some("x".into()));
    violates("ends after it started", |t| {
        t.application.iter_mut().for_each(|a| (a.started_ns, a.ended_ns) = (Some(2), Some(1)));
    });
    violates("removed after it was added", |t| {
        t.resources.iter_mut().for_each(|r| r.removed_ns = r.added_ns.map(|ns| ns - 1))
    });
    violates("`concurrency_min` is between", |t| t.resources[0].concurrency_min = Some(99));
    violates("weight is at least 1", |t| t.sampled_tasks[0].weight = 0.5);
    violates("first byte comes before", |t| t.storage_operations[0].first_byte_ns = Some(u64::MAX));
    violates("concurrency includes itself", |t| t.storage_operations[0].concurrency = Some(0));
    violates("successful operation", |t| t.storage_operations[1].outcome = Outcome::Ok);
    violates("interval is positive", |t| t.utilization_samples[0].interval_ns = 0);
}

/// Back-to-back intervals do not overlap, but intervals that share a nanosecond do.
#[test]
fn slot_is_free_at_the_instant_its_monotask_ends() {
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
    let messages = trace.check();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].contains("2 of 1 at"), "{messages:?}");
}

#[test]
fn violations_beyond_the_limit_are_counted() {
    let mut trace = pushed(&whole(job(1, 1, 200)));
    for multitask in &mut trace.multitasks {
        multitask.admitted_ns = 0;
    }
    let messages = trace.check();
    assert_eq!(messages.len(), 6, "{messages:#?}");
    assert!(messages[5].starts_with("195 more violations of: a multitask"), "{messages:#?}");
}

/// Changes the first pipelined task.
fn task(trace: &mut Trace, change: impl FnOnce(&mut PipelinedTask)) {
    let mut tasks: Vec<PipelinedTask> = trace.pipelined_tasks.iter().collect();
    change(&mut tasks[0]);
    trace.pipelined_tasks = tasks.into_iter().collect();
}
