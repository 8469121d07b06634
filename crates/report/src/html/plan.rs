//! The plans' data: the operators of each job or query, and the frames around them: the stages of a job, and the
//! fragments of a query's plan, each with the stage that ran it.

use std::collections::{BTreeMap, BTreeSet};

use pellucid_model::ExchangeRead;
use pellucid_trace::{Operator, Outcome, Phase, QueryOperator, Trace};
use serde::Serialize;

/// Maximum number of operators of all queries' plans together. Those of the shortest queries are left out.
const MAX_QUERY_OPERATORS: usize = 10_000;

/// A plan.
#[derive(Debug, Serialize)]
pub(crate) struct Plan<'a> {
    /// Index of the job, if its operators were recorded with their core time.
    job: Option<usize>,
    /// The query, if its operators were recorded with the metrics of its engine.
    query: Option<PlanQuery<'a>>,
    /// Stages or fragments with operators.
    frames: Vec<Frame>,
    operators: Vec<Node<'a>>,
}

#[derive(Debug, Serialize)]
struct PlanQuery<'a> {
    id: u64,
    name: &'a str,
    duration_ms: Option<f64>,
    /// Run time of the tasks of all stages of the query.
    task_ms: f64,
}

/// An operator, as in the trace.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Node<'a> {
    OfJob {
        #[serde(flatten)]
        of: &'a Operator,
        misestimate: bool,
    },
    OfQuery(&'a QueryOperator),
}

/// A stage, or a fragment.
#[derive(Debug, Serialize)]
struct Frame {
    /// Its number; inputs have lower ones.
    frame: u32,
    stage: Option<u32>,
    /// Compute monotasks, over which the core time of its operators was summed.
    monotasks: usize,
    /// True on the critical path.
    critical: bool,
    /// Of a query: shuffle bytes that its tasks read, if they did.
    shuffle_read: Option<ExchangeRead>,
}

/// Returns the plans of a trace, by job or query.
pub(crate) fn plans(trace: &Trace) -> Vec<Plan<'_>> {
    let mut plans = of_jobs(trace);
    plans.extend(of_queries(trace));
    plans
}

fn of_jobs<'t>(trace: &'t Trace) -> Vec<Plan<'t>> {
    let mut monotasks = vec![0; trace.stages.len()];
    for m in trace.monotasks.iter().filter(|m| m.phase == Phase::Compute) {
        let stage = trace.multitasks.get(m.multitask as usize).map(|task| task.stage as usize);
        stage.and_then(|stage| monotasks.get_mut(stage)).into_iter().for_each(|count| *count += 1);
    }
    let mut by_job: BTreeMap<u32, Vec<&Operator>> = BTreeMap::new();
    for operator in &trace.operators {
        let stage = trace.stages.get(operator.stage as usize);
        stage.into_iter().for_each(|stage| by_job.entry(stage.job).or_default().push(operator));
    }
    let plan = |(job, operators): (u32, Vec<&'t Operator>)| {
        let critical = critical_path(trace, |of| of == job);
        let stages: BTreeSet<u32> = operators.iter().map(|o| o.stage).collect();
        let frames = stages.into_iter().map(|stage| Frame {
            frame: stage,
            stage: Some(stage),
            monotasks: monotasks[stage as usize],
            critical: critical.contains(&stage),
            shuffle_read: None,
        });
        let nodes = operators.iter().map(|of| Node::OfJob { of, misestimate: of.is_misestimate() });
        Plan { job: Some(job as usize), query: None, frames: frames.collect(), operators: nodes.collect() }
    };
    by_job.into_iter().map(plan).collect()
}

fn of_queries<'t>(trace: &'t Trace) -> Vec<Plan<'t>> {
    let mut by_query: BTreeMap<u32, Vec<&QueryOperator>> = BTreeMap::new();
    for operator in &trace.query_operators {
        by_query.entry(operator.query).or_default().push(operator);
    }
    if by_query.is_empty() {
        return Vec::new();
    }
    let mut ends = vec![None; trace.queries.len()];
    for end in &trace.query_ends {
        ends.get_mut(end.query as usize).into_iter().for_each(|of| *of = Some(end.ended_ns));
    }
    let duration_ns = |query: u32| {
        let (query, end) = (trace.queries.get(query as usize)?, ends.get(query as usize)?);
        end.map(|end| end.saturating_sub(query.submitted_ns))
    };
    let mut longest: Vec<(u32, Vec<&QueryOperator>)> = by_query.into_iter().collect();
    longest.sort_by_key(|(query, _)| std::cmp::Reverse(duration_ns(*query)));
    let mut left = MAX_QUERY_OPERATORS;
    longest.retain(|(_, operators)| {
        let fits = operators.len() <= left;
        left -= if fits { operators.len() } else { 0 };
        fits
    });
    let (run_ns, reads) = tasks_by_stage(trace);
    let plan = |(ix, operators): (u32, Vec<&'t QueryOperator>)| {
        let query = trace.queries.get(ix as usize)?;
        let of_query = |job: u32| trace.jobs.get(job as usize).is_some_and(|job| job.query == Some(ix));
        let critical = critical_path(trace, of_query);
        let stages = trace.stages.iter().zip(&run_ns).filter(|(stage, _)| of_query(stage.job));
        let task_ns: u64 = stages.map(|(_, run_ns)| run_ns).sum();
        let fragments: BTreeMap<u32, Option<u32>> =
            operators.iter().map(|operator| (operator.fragment, operator.stage)).collect();
        let frames = fragments.into_iter().map(|(frame, stage)| Frame {
            frame,
            stage,
            monotasks: 0,
            critical: stage.is_some_and(|stage| critical.contains(&stage)),
            shuffle_read: stage.and_then(|stage| ExchangeRead::of(reads.get(stage as usize)?)),
        });
        let query = PlanQuery {
            id: query.id.unwrap_or(u64::from(ix)),
            name: &query.name,
            duration_ms: duration_ns(ix).map(|ns| ns as f64 / 1e6),
            task_ms: task_ns as f64 / 1e6,
        };
        let operators = operators.into_iter().map(Node::OfQuery);
        Some(Plan { job: None, query: Some(query), frames: frames.collect(), operators: operators.collect() })
    };
    longest.into_iter().filter_map(plan).collect()
}

/// Returns the run time of each stage's tasks, and the shuffle bytes that each of them read.
fn tasks_by_stage(trace: &Trace) -> (Vec<u64>, Vec<Vec<u64>>) {
    let mut run_ns = vec![0_u64; trace.stages.len()];
    let mut reads = vec![Vec::new(); trace.stages.len()];
    for task in trace.pipelined_tasks.iter().filter(|task| task.outcome == Outcome::Ok) {
        let Some((run_ns, read)) =
            run_ns.get_mut(task.stage as usize).zip(reads.get_mut(task.stage as usize))
        else {
            continue;
        };
        *run_ns = run_ns.saturating_add(task.run_ns.unwrap_or(task.duration_ns));
        let bytes = [task.shuffle_remote_bytes, task.shuffle_local_bytes].into_iter().flatten();
        read.push(bytes.fold(0, u64::saturating_add));
    }
    (run_ns, reads)
}

/// Returns the stage of these jobs that ended last, the one that ended last of those that it waited for, and so on.
fn critical_path(trace: &Trace, is_of: impl Fn(u32) -> bool) -> BTreeSet<u32> {
    let mut ends = vec![None; trace.stages.len()];
    for end in &trace.stage_ends {
        ends.get_mut(end.stage as usize).into_iter().for_each(|of| *of = Some(end.ended_ns));
    }
    let end_of = |stage: u32| ends.get(stage as usize).copied().flatten();
    let last_of = |stages: &mut dyn Iterator<Item = u32>| {
        stages.filter(|stage| end_of(*stage).is_some()).max_by_key(|stage| end_of(*stage))
    };
    let of_jobs = trace.stages.iter().enumerate().filter(|(_, stage)| is_of(stage.job));
    let mut path = BTreeSet::new();
    let mut next = last_of(&mut of_jobs.map(|(ix, _)| ix as u32));
    // A damaged trace may have circles.
    while let Some(stage) = next.filter(|stage| path.insert(*stage)) {
        next = last_of(&mut trace.stages[stage as usize].after.iter().copied());
    }
    path
}
