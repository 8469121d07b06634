//! Conversion of a [`Log`] to a trace.
//!
//! All times in a log come from the driver's clock, in milliseconds. The trace's origin is the start of the
//! application, or else the earliest time in the log. Times are adjusted to satisfy the invariants in
//! `docs/trace-format.md`: a job is submitted no later than its first stage, a stage no later than its first
//! task, and a successful job ends no earlier than its stages.

use std::collections::{BTreeMap, HashMap};

use pellucid_trace::*;

use crate::event::job::EndEvent;
use crate::event::time::ns;
use crate::log::redact::Redaction;
use crate::log::{Executor, Log};

/// Converts Unix time to the trace's time.
struct Clock {
    origin_ms: u64,
}

impl Clock {
    fn at(&self, ms: u64) -> u64 {
        ns(ms.saturating_sub(self.origin_ms))
    }

    fn maybe(&self, ms: Option<u64>) -> Option<u64> {
        ms.map(|ms| self.at(ms))
    }
}

/// Converts a log to a trace.
pub fn trace(mut log: Log) -> Trace {
    for (name, count) in
        [("SparkListenerTaskEnd", log.task_ends), ("SparkListenerTaskStart", log.task_starts)]
    {
        if count > 0 {
            log.events.insert(name.into(), count);
        }
    }
    order_times(&mut log);
    let clock = Clock { origin_ms: origin_ms(&log) };
    log.tasks.count_from(ns(clock.origin_ms));
    let early =
        log.stages.iter().filter(|stage| stage.submitted_ms.is_some_and(|ms| ms < clock.origin_ms)).count();
    if early > 0 {
        log.warnings.add(format!("{early} stages precede the application's start: moved to its start"));
    }
    let mut trace = Trace {
        header: Some(Header {
            format: format!("pellucid.trace/{FORMAT_MAJOR}.{FORMAT_MINOR}"),
            producer: "sparklog".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            origin_unix_ns: ns(clock.origin_ms),
            labels: Vec::new(),
        }),
        pipelined_tasks: std::mem::take(&mut log.tasks),
        ..Trace::default()
    };
    add_executors(&mut trace, &mut log, &clock);
    let queries = add_queries(&mut trace, &mut log, &clock);
    add_jobs(&mut trace, &mut log, &clock, &queries);
    add_stages(&mut trace, &mut log, &clock);
    add_query_operators(&mut trace, &mut log, &queries);
    trace.concurrency_changes = std::mem::take(&mut log.concurrencies).since(clock.origin_ms);
    let complete = log.ended_ms.is_some();
    if !complete {
        trace.truncated = Some(unfinished(&log));
    }
    trace.application = Some(application(&mut log, &clock));
    trace.warnings = log.warnings.into_messages();
    if complete {
        trace.end = Some(End { records: trace.records(), recording_ns: None, writer_ns: None });
    }
    trace
}

fn unfinished(log: &Log) -> String {
    if log.databricks {
        return "Databricks does not log the end of an application".into();
    }
    "the log does not record the end of the application: it is still running, its driver died, or the log is \
     truncated"
        .into()
}

/// Moves stages to no later than their first task, and jobs to no later than their first stage.
fn order_times(log: &mut Log) {
    for stage in &mut log.stages {
        let earliest = [stage.submitted_ms, stage.first_launch_ms].into_iter().flatten().min();
        let job = &mut log.jobs[stage.job];
        stage.submitted_ms = earliest.or(stage.end.as_ref().and_then(|end| end.at_ms)).or(job.submitted_ms);
        job.submitted_ms = match (job.submitted_ms, stage.submitted_ms) {
            (Some(job), Some(stage)) => Some(job.min(stage)),
            (job, stage) => job.or(stage),
        };
    }
    for stage in &mut log.stages {
        stage.submitted_ms = stage.submitted_ms.or(log.jobs[stage.job].submitted_ms);
    }
    // Spark 1.2 does not log when a job ended: the job ends with its last stage. A successful job cannot end
    // before its stages.
    let mut last_ms: Vec<Option<u64>> = vec![None; log.jobs.len()];
    for stage in &log.stages {
        if let Some(end) = stage.end.as_ref().filter(|end| !end.failed) {
            last_ms[stage.job] = last_ms[stage.job].max(end.at_ms).max(stage.submitted_ms);
        }
    }
    for (job, last_ms) in log.jobs.iter_mut().zip(last_ms) {
        let end = job.end.iter_mut().find(|end| !end.failed || end.at_ms.is_none());
        end.into_iter().for_each(|end| end.at_ms = end.at_ms.max(last_ms));
    }
    for executor in &mut log.executors {
        if let (Some(added), Some(removed)) = (executor.added_ms, executor.removed_ms) {
            executor.added_ms = Some(added.min(removed));
        }
    }
}

fn origin_ms(log: &Log) -> u64 {
    let jobs = log.jobs.iter().filter_map(|job| job.submitted_ms);
    let executions = log.executions.iter().filter_map(|execution| execution.submitted_ms);
    let executors = log.executors.iter().filter_map(|executor| executor.added_ms);
    let earliest = jobs.chain(executions).chain(executors).min();
    log.start.at_ms.or(earliest).or(log.ended_ms).unwrap_or(0)
}

/// Adds a machine for each host and a resource for each executor, with the executor's index.
fn add_executors(trace: &mut Trace, log: &mut Log, clock: &Clock) {
    let default_cpus = log.settings.get("spark.task.cpus").and_then(|cpus| cpus.parse::<f64>().ok());
    let slots = |executor: &Executor, profiles: &HashMap<u64, f64>| {
        let cpus = profiles.get(&executor.profile).copied().or(default_cpus).filter(|cpus| *cpus > 0.0);
        executor.cores.map(|cores| (cores as f64 / cpus.unwrap_or(1.0)).floor().max(1.0))
    };
    let known: Vec<Option<f64>> = log.executors.iter().map(|e| slots(e, &log.profiles)).collect();
    let observed = max_concurrency(&trace.pipelined_tasks, &known);
    let mut machines: HashMap<String, MachineIx> = HashMap::new();
    for ((executor, known), observed) in
        std::mem::take(&mut log.executors).into_iter().zip(known).zip(observed)
    {
        let host = executor.host.unwrap_or_else(|| "host not recorded".into());
        let machine = *machines.entry(host.clone()).or_insert_with(|| {
            trace.machines.push(Machine { name: host, cores: None, memory_bytes: None });
            trace.machines.len() as u32 - 1
        });
        let cores = &mut trace.machines[machine as usize].cores;
        *cores = executor.machine_cores.max(*cores);
        let (capacity, from) =
            known.map_or((observed.map(f64::from), "observed"), |slots| (Some(slots), "set"));
        trace.resources.push(Resource {
            name: format!("executor {}", executor.id),
            kind: kind::SLOTS.into(),
            machine,
            capacity,
            capacity_from: capacity.map(|_| from.into()),
            added_ns: clock.maybe(executor.added_ms),
            removed_ns: clock.maybe(executor.removed_ms),
            removed_why: executor.removed_why,
            ..Resource::default()
        });
    }
}

/// Returns the maximum number of concurrent tasks on each executor whose cores are unknown. Times are kept as
/// 32-bit milliseconds, so that a million tasks need only a few megabytes.
fn max_concurrency(tasks: &PipelinedTasks, known: &[Option<f64>]) -> Vec<Option<u32>> {
    let mut times: Vec<(Vec<u32>, Vec<u32>)> = vec![Default::default(); known.len()];
    if known.iter().any(Option::is_none) {
        let ms = |time_ns: u64| (time_ns / ns(1)).min(u64::from(u32::MAX)) as u32;
        for task in tasks.iter().filter(|task| task.duration_ns > 0) {
            let executor = task.resource as usize;
            if known[executor].is_none() {
                times[executor].0.push(ms(task.launched_ns));
                times[executor].1.push(ms(task.ended_ns()));
            }
        }
    }
    let max = |(mut begins, mut ends): (Vec<u32>, Vec<u32>)| {
        begins.sort_unstable();
        ends.sort_unstable();
        let mut ended = 0;
        let at_once = begins.iter().enumerate().map(|(started, at)| {
            // At the same instant, ends precede starts: a freed slot is reused.
            ended += ends[ended..].iter().take_while(|end| *end <= at).count();
            started + 1 - ended.min(started)
        });
        at_once.max().map(|max| max as u32)
    };
    times.into_iter().map(max).collect()
}

/// Adds a query for each SQL execution. Returns the index of each query by the execution's id.
fn add_queries(trace: &mut Trace, log: &mut Log, clock: &Clock) -> HashMap<u64, QueryIx> {
    let mut queries = HashMap::new();
    for execution in std::mem::take(&mut log.executions) {
        let ix = trace.queries.len() as QueryIx;
        let submitted_ns = clock.at(execution.submitted_ms.unwrap_or(clock.origin_ms));
        trace.queries.push(Query {
            name: execution.name,
            submitted_ns,
            id: Some(execution.id),
            root: execution.root.and_then(|root| queries.get(&root)).copied(),
        });
        queries.insert(execution.id, ix);
        if let Some(end) = execution.end {
            let ended_ns = clock.maybe(end.at_ms).unwrap_or(submitted_ns).max(submitted_ns);
            trace.query_ends.push(QueryEnd { query: ix, ended_ns, outcome: outcome(&end), error: end.error });
        }
    }
    queries
}

fn outcome(end: &EndEvent) -> Outcome {
    if end.failed { Outcome::Failed } else { Outcome::Ok }
}

fn add_jobs(trace: &mut Trace, log: &mut Log, clock: &Clock, queries: &HashMap<u64, QueryIx>) {
    for (ix, job) in std::mem::take(&mut log.jobs).into_iter().enumerate() {
        let submitted_ns = clock.at(job.submitted_ms.unwrap_or(clock.origin_ms));
        trace.jobs.push(Job {
            name: job.name,
            submitted_ns,
            id: job.id,
            query: job.execution.and_then(|id| queries.get(&id)).copied(),
        });
        if let Some(end) = job.end {
            trace.job_ends.push(JobEnd {
                job: ix as JobIx,
                ended_ns: clock.maybe(end.at_ms).unwrap_or(submitted_ns).max(submitted_ns),
                outcome: outcome(&end),
                error: end.error.filter(|_| end.failed),
                rows: None,
                memory_high_water_bytes: None,
                peak: None,
                spill: None,
            });
        }
    }
}

fn add_stages(trace: &mut Trace, log: &mut Log, clock: &Clock) {
    // The latest attempt of each stage so far, with its job, and the last stage that computed each RDD.
    let mut latest: HashMap<u64, (StageIx, usize)> = HashMap::new();
    let mut computed: HashMap<u64, StageIx> = HashMap::new();
    for (ix, stage) in std::mem::take(&mut log.stages).into_iter().enumerate() {
        let ix = ix as StageIx;
        // If a parent did not run in this job, a stage of another job produced its output: adaptive execution
        // runs every stage as a job, and caches and shuffles are reused.
        let parent = |id: &u64| {
            let in_job = latest.get(id).filter(|(_, job)| *job == stage.job).map(|(ix, _)| *ix);
            let elsewhere = || log.rdd_of_stage.get(id).and_then(|rdd| computed.get(rdd)).copied();
            let of_job = |ix: &StageIx| trace.jobs[trace.stages[*ix as usize].job as usize].submitted_ns;
            in_job.or_else(|| elsewhere().filter(|ix| of_job(ix) <= trace.jobs[stage.job].submitted_ns))
        };
        let mut after: Vec<StageIx> = stage.parents.iter().filter_map(parent).collect();
        after.sort_unstable();
        after.dedup();
        let submitted_ns = clock.at(stage.submitted_ms.unwrap_or(clock.origin_ms));
        trace.stages.push(Stage {
            job: stage.job as JobIx,
            name: stage.operators.unwrap_or(stage.name),
            attempt: stage.attempt.min(u64::from(u32::MAX)) as u32,
            call_site: stage.call_site,
            after,
            submitted_ns,
            not_split: Vec::new(),
            id: Some(stage.id),
            tasks: stage.tasks.map(|tasks| tasks.min(u64::from(u32::MAX)) as u32),
        });
        latest.insert(stage.id, (ix, stage.job));
        if let Some(rdd) = stage.rdd {
            computed.insert(rdd, ix);
        }
        if let Some(end) = stage.end {
            let ended_ns = clock.maybe(end.at_ms).unwrap_or(submitted_ns).max(submitted_ns);
            trace.stage_ends.push(StageEnd { stage: ix, ended_ns, outcome: outcome(&end), error: end.error });
        }
    }
}

/// Adds the operators of each query whose plan is kept. A stage's index is that of the log.
fn add_query_operators(trace: &mut Trace, log: &mut Log, queries: &HashMap<u64, QueryIx>) {
    let kept = std::mem::take(&mut log.query_operators);
    log.warnings.dropped_plans = kept.dropped;
    let mut operators = kept.into_records(queries);
    operators.sort_by_key(|operator| operator.query);
    trace.query_operators = operators;
}

fn application(log: &mut Log, clock: &Clock) -> Application {
    let settings = std::mem::take(&mut log.settings);
    let redaction = Redaction::of(&settings);
    if let Some(why) = &redaction.fell_back {
        log.warnings.add(why.clone());
    }
    let start = std::mem::take(&mut log.start);
    let name_of = |key: &str| settings.get(key).cloned();
    let events = std::mem::take(&mut log.events).into_iter();
    let events: BTreeMap<String, u64> =
        events.map(|(name, count)| (String::from_utf8_lossy(&name).into_owned(), count)).collect();
    let started_ns = clock.maybe(start.at_ms);
    Application {
        engine: "Spark".into(),
        engine_version: log.version.take(),
        name: start.name.or_else(|| name_of("spark.app.name")),
        id: start.id.or_else(|| name_of("spark.app.id")),
        attempt: start.attempt,
        user: start.user,
        started_ns,
        ended_ns: clock.maybe(log.ended_ms).map(|ended| ended.max(started_ns.unwrap_or(0))),
        properties: settings.into_iter().map(|(key, value)| redaction.apply(key, value)).collect(),
        events,
    }
}
