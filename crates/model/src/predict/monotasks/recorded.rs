//! A recorded job as demands and dependencies, for the simulation.
//!
//! A trace records when things happened; a what-if needs to know why. Each time is therefore split into
//! parts that other resources would change and parts that they would not:
//!
//! * a monotask's *work*: bytes, or core time. Where bytes were not measured, its service time stands in,
//!   as if its resource served each monotask at its own pace;
//! * its *dependencies*: the monotasks of its multitask that had ended when it was queued, without those
//!   that others among them depend on;
//! * its *lag*: how long its slot was free before it started. That is the driver's work (planning the
//!   next multitask, waking a thread), and is replayed as measured;
//! * a multitask's *submission*: with its stage or, for one that only writes, by the compute monotask
//!   that was running at its admission, at the same share of that one's work;
//! * *gaps*: from a job's submission to its first stages (planning), from the end of a stage's
//!   dependencies to its submission (pruning, opening files), and from the last monotask to the job's
//!   end.

use std::collections::BinaryHeap;
use std::sync::Arc;

use pellucid_trace::{HeldMemory, Multitask, Part, Phase, Trace, kind};

use super::service::Service;
use crate::index::{Ix, JobIx, MachineIx, MonotaskIx, MultitaskIx, ResourceIx, StageIx, Table};
use crate::monotasks::demand::{Demands, core_time, service};
use crate::numbers::ratio;

/// A monotask to simulate.
#[derive(Debug, Clone)]
pub(crate) struct Mono {
    pub resource: ResourceIx,
    pub phase: Phase,
    /// Nanoseconds of an undisturbed core, bytes, or nanoseconds of service: see [`Service`].
    pub work: f64,
    /// Part of `work` that decodes input.
    pub decode: f64,
    /// Part of `work` during which it did not run because reader threads, or others, had its core.
    pub waits: f64,
    /// Input bytes that it copies out of the page cache.
    pub cached_bytes: f64,
    /// Time that its slot was free before it started, and that of spilling beside the disk.
    pub lag_ns: u64,
    /// True if it writes batches that did not fit into memory, or reads them back.
    pub spills: bool,
    /// Indices of the monotasks of its multitask that it depends on, ascending.
    pub after: Vec<u32>,
}

/// The time of a multitask's submission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Submission {
    /// This long after its stage's submission.
    WithStage(u64),
    /// When monotask `monotask` of multitask `multitask` has done `share` of its work.
    During { multitask: MultitaskIx, monotask: u32, share: f64 },
    /// This long after all other multitasks of its stage have ended.
    AfterStage(u64),
}

/// A multitask to simulate.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub stage: StageIx,
    /// The machine it runs on.
    pub machine: MachineIx,
    pub memory_bytes: u64,
    pub submission: Submission,
    /// Time from its admission until its monotasks were known.
    pub plan_ns: u64,
    pub monotasks: Vec<Mono>,
}

/// A stage to simulate.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub job: JobIx,
    pub after: Vec<StageIx>,
    /// Time from the end of its dependencies, or from its job's submission.
    pub gap_ns: u64,
}

/// A job to simulate.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The job that had to end first, as far as the trace shows.
    pub after: Option<JobIx>,
    /// Time from that end, or from the trace's first job, to its submission.
    pub gap_ns: u64,
    /// Time from its last monotask to its end.
    pub tail_ns: u64,
}

/// An operator of a stage.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub number: u32,
    pub name: String,
    pub stage: StageIx,
    pub part: Part,
    /// Numbers of the operators of its stage whose rows it takes.
    pub inputs: Vec<u32>,
    /// The stage whose output it reads.
    pub from: Option<StageIx>,
    /// True if a change has left out the exchange that it reads.
    pub left_out: bool,
    /// Rows of its output; `None` if it returns none.
    pub rows: Option<f64>,
    /// Bytes of its output, if they were counted.
    pub bytes: Option<f64>,
    /// Its share of the core time of the stage's compute monotasks.
    pub share: f64,
    /// True if all of its core time was in one monotask.
    pub once: bool,
    /// Columns that it decodes, if they were measured.
    pub columns: Vec<ReadColumn>,
}

/// A column that a scan decodes.
#[derive(Debug, Clone)]
pub(crate) struct ReadColumn {
    pub name: String,
    /// Its share of the core time of the stage's compute monotasks.
    pub core: f64,
    /// Its share of the bytes of the stage's input.
    pub bytes: f64,
}

/// The share of a memory budget that exchanges may take.
pub(crate) const EXCHANGE_SHARE: f64 = HeldMemory::EXCHANGE_FIFTHS as f64 / 5.0;

/// The memory of a recorded job.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// A budget with which it spills nothing; `None` if the trace does not say.
    pub sufficient: Option<f64>,
    /// Core time of encoding and decoding what it spilled; `None` if it spilled nothing.
    pub core_ns: Option<f64>,
    /// Memory of its exchanges at the peak.
    pub exchange_bytes: f64,
}

impl Memory {
    /// Returns the memory of each job of a trace.
    fn of_jobs(trace: &Trace) -> Table<JobIx, Memory> {
        let mut all = Table::filled(trace.jobs.len(), Memory::default());
        for end in &trace.job_ends {
            let Some(memory) = all.get_mut(JobIx(end.job)) else { continue };
            let held_by = end.peak.iter().flat_map(|peak| &peak.held_by);
            let exchanges = held_by.filter(|held| held.what == HeldMemory::EXCHANGE);
            let exchange_bytes = exchanges.map(|held| held.bytes as f64).sum();
            // An exchange that was full at the peak would have fit into its share.
            let held = end.peak.as_ref().map(|peak| (peak.bytes as f64).max(exchange_bytes / EXCHANGE_SHARE));
            let spilled = end.spill.map(|spill| spill.sufficient_memory_bytes as f64);
            let core_ns = end.spill.map(|spill| spill.core_ns as f64);
            *memory = Memory { sufficient: spilled.or(held), core_ns, exchange_bytes };
        }
        all
    }
}

/// The recorded jobs to simulate.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub jobs: Table<JobIx, Job>,
    pub stages: Table<StageIx, Stage>,
    /// Shared between changes that leave the work unchanged.
    pub tasks: Arc<Table<MultitaskIx, Task>>,
    /// In the order of the trace, so after their inputs. Shared between changes that leave them unchanged.
    pub operators: Arc<Vec<Operator>>,
    pub services: Table<ResourceIx, Service>,
    pub machines: u32,
    pub memory_bytes: Table<MachineIx, Option<u64>>,
    pub memory: Table<JobIx, Memory>,
}

impl Recorded {
    /// Builds the demands of a trace that can be predicted.
    pub fn of(
        trace: &Trace,
        demands: &Demands,
        services: Table<ResourceIx, Service>,
        order: Order,
    ) -> Recorded {
        let Order { members, ends, stage_ends, after } = order;
        let lags = lags(trace, &services);
        let tasks = members.rows().zip(after);
        let tasks =
            tasks.map(|((ix, of_task), after)| task(trace, demands, &services, of_task, (&lags, after), ix));
        let mut recorded = Recorded {
            jobs: jobs(trace, &stage_ends),
            stages: stages(trace, &stage_ends),
            tasks: Arc::new(tasks.collect()),
            operators: Arc::new(operators(trace)),
            services,
            machines: trace.machines.len().max(1) as u32,
            memory_bytes: trace.machines.iter().map(|m| m.memory_bytes).collect(),
            memory: Memory::of_jobs(trace),
        };
        if recorded.memory_bytes.is_empty() {
            recorded.memory_bytes.push(None);
        }
        mark_spills(&mut recorded);
        submissions(trace, &members, &ends, &mut recorded);
        recorded
    }

    /// Returns the indices of the machines.
    pub fn machines(&self) -> impl Iterator<Item = MachineIx> + use<> {
        (0..self.machines).map(MachineIx)
    }
}

/// The dependencies of a recorded job: the part that follows from the trace alone.
pub(crate) struct Order {
    members: Members,
    ends: Table<MultitaskIx, u64>,
    stage_ends: Table<StageIx, u64>,
    /// By multitask and monotask: see [`Mono::after`].
    after: Vec<Vec<Vec<u32>>>,
}

impl Order {
    /// Reads the order of a trace that can be predicted.
    pub fn of(trace: &Trace) -> Order {
        let members = members(trace);
        let ends = task_ends(trace, &members);
        let stage_ends = stage_ends(trace, &ends);
        let after = members.iter().map(|of_task| after(trace, of_task)).collect();
        Order { members, ends, stage_ends, after }
    }
}

/// Monotasks by multitask, in queueing order.
type Members = Table<MultitaskIx, Vec<MonotaskIx>>;

fn members(trace: &Trace) -> Members {
    let mut members = Members::filled(trace.multitasks.len(), Vec::new());
    for (ix, m) in (0..).map(MonotaskIx).zip(&trace.monotasks) {
        let known = (m.resource as usize) < trace.resources.len();
        if let Some(of_task) = members.get_mut(MultitaskIx(m.multitask)).filter(|_| known) {
            of_task.push(ix);
        }
    }
    for of_task in &mut members {
        of_task.sort_by_key(|ix| {
            let m = &trace.monotasks[ix.at()];
            (m.queued_ns, m.started_ns(), *ix)
        });
    }
    members
}

/// Returns the end of each multitask's last monotask, or its admission if it has none.
fn task_ends(trace: &Trace, members: &Members) -> Table<MultitaskIx, u64> {
    let end = |(of_task, task): (&Vec<MonotaskIx>, &Multitask)| {
        let ends = of_task.iter().map(|m| service(&trace.monotasks[m.at()]).1);
        ends.max().unwrap_or(task.admitted_ns)
    };
    members.iter().zip(&trace.multitasks).map(end).collect()
}

/// Returns the end of each stage's last monotask, or its submission if it has none.
fn stage_ends(trace: &Trace, task_ends: &Table<MultitaskIx, u64>) -> Table<StageIx, u64> {
    let mut ends: Table<StageIx, u64> = trace.stages.iter().map(|s| s.submitted_ns).collect();
    for (task, end) in trace.multitasks.iter().zip(task_ends) {
        if let Some(stage) = ends.get_mut(StageIx(task.stage)) {
            *stage = (*stage).max(*end);
        }
    }
    ends
}

fn jobs(trace: &Trace, stage_ends: &Table<StageIx, u64>) -> Table<JobIx, Job> {
    let end_of = |(ix, _)| trace.job_ends.iter().find(|e| e.job == ix).map_or(0, |e| e.ended_ns);
    let ends: Table<JobIx, u64> = (0..).zip(&trace.jobs).map(end_of).collect();
    let first = trace.jobs.iter().map(|j| j.submitted_ns).min().unwrap_or(0);
    let each = ends.indices().zip(&trace.jobs).map(|(ix, job)| {
        let before = ends.indices().filter(|o| *o != ix && ends[*o] <= job.submitted_ns);
        let after = before.max_by_key(|o| (ends[*o], *o));
        let stages = trace.stages.iter().zip(stage_ends).filter(|(s, _)| JobIx(s.job) == ix);
        let last = stages.map(|(_, end)| *end).max().unwrap_or(job.submitted_ns);
        Job {
            after,
            gap_ns: job.submitted_ns.saturating_sub(after.map_or(first, |o| ends[o])),
            tail_ns: ends[ix].saturating_sub(last.max(job.submitted_ns)),
        }
    });
    each.collect()
}

fn stages(trace: &Trace, ends: &Table<StageIx, u64>) -> Table<StageIx, Stage> {
    let each = ends.indices().zip(&trace.stages).map(|(ix, stage)| {
        // Only earlier stages can be dependencies; this prevents cycles in damaged traces.
        let after: Vec<StageIx> = stage.after.iter().copied().map(StageIx).filter(|a| *a < ix).collect();
        let from = after.iter().map(|a| ends[*a]).max();
        let job = JobIx(stage.job);
        let from = from.unwrap_or_else(|| trace.jobs[job.at()].submitted_ns);
        Stage { job, after, gap_ns: stage.submitted_ns.saturating_sub(from) }
    });
    each.collect()
}

fn operators(trace: &Trace) -> Vec<Operator> {
    // Core time and input of each stage's compute monotasks.
    let mut sums: Table<StageIx, (u64, u64)> = Table::filled(trace.stages.len(), (0, 0));
    for monotask in trace.monotasks.iter().filter(|m| m.phase == Phase::Compute) {
        let task = trace.multitasks.get(monotask.multitask as usize);
        if let Some((core_ns, bytes)) = task.and_then(|task| sums.get_mut(StageIx(task.stage))) {
            *core_ns = core_ns.saturating_add(monotask.cpu_ns.unwrap_or(0));
            *bytes = bytes.saturating_add(monotask.bytes.unwrap_or(0));
        }
    }
    let of = |operator: &pellucid_trace::Operator| {
        let stage = StageIx(operator.stage);
        let (core_ns, bytes) = sums.get(stage).map(|(core_ns, bytes)| (*core_ns as f64, *bytes as f64))?;
        let share = ratio(operator.cpu_ns as f64, core_ns);
        let from = operator.from.map(StageIx);
        let column = |column: &pellucid_trace::Column| ReadColumn {
            name: column.name.clone(),
            core: ratio(column.cpu_ns as f64, core_ns).unwrap_or(0.0),
            bytes: ratio(column.encoded_bytes as f64, bytes).unwrap_or(0.0),
        };
        Some(Operator {
            number: operator.operator,
            name: operator.name.clone(),
            stage,
            part: operator.part,
            inputs: operator.inputs.clone(),
            // As with stages, only earlier ones can be read.
            from: from.filter(|from| *from < stage),
            left_out: false,
            rows: operator.rows.map(|rows| rows as f64),
            bytes: operator.bytes.map(|bytes| bytes as f64),
            share: share.unwrap_or(0.0).min(1.0),
            once: operator.max_cpu_ns == operator.cpu_ns,
            columns: operator.columns.iter().map(column).collect(),
        })
    };
    trace.operators.iter().filter_map(of).collect()
}

/// Returns how long each monotask's slot was free, with the monotask queued, before it started.
///
/// Only for cores: a disk's concurrency may be tuned, and its monotasks then wait by the controller's
/// decision.
fn lags(trace: &Trace, services: &Table<ResourceIx, Service>) -> Table<MonotaskIx, u64> {
    let mut by_resource = Table::<ResourceIx, _>::filled(services.len(), Vec::new());
    for (ix, m) in (0..).map(MonotaskIx).zip(&trace.monotasks) {
        let resource = ResourceIx(m.resource);
        if services.get(resource).is_some_and(|s| s.timed) {
            by_resource[resource].push((m.started_ns(), ix));
        }
    }
    let mut lags = Table::filled(trace.monotasks.len(), 0);
    for (mut starts, service) in by_resource.into_iter().zip(services) {
        starts.sort_unstable();
        let mut busy: BinaryHeap<std::cmp::Reverse<u64>> = BinaryHeap::new();
        for (start, ix) in starts {
            let m = &trace.monotasks[ix.at()];
            let mut free = m.queued_ns;
            if busy.len() >= service.max_concurrency as usize {
                free = free.max(busy.pop().map_or(0, |end| end.0));
            }
            lags[ix] = start.saturating_sub(free);
            busy.push(std::cmp::Reverse(m.ended_ns()));
        }
    }
    lags
}

fn task(
    trace: &Trace,
    demands: &Demands,
    services: &Table<ResourceIx, Service>,
    of_task: &[MonotaskIx],
    (lags, mut after): (&Table<MonotaskIx, u64>, Vec<Vec<u32>>),
    ix: MultitaskIx,
) -> Task {
    let task = &trace.multitasks[ix.at()];
    let first = of_task.first().map(|m| &trace.monotasks[m.at()]);
    let machine = first.map_or(0, |m| trace.resources[m.resource as usize].machine);
    let queued = first.map(|m| m.queued_ns);
    let one = |(place, m): (usize, &MonotaskIx)| {
        let monotask = &trace.monotasks[m.at()];
        let (start, end) = service(monotask);
        let resource = ResourceIx(monotask.resource);
        let on = &trace.resources[resource.at()];
        let core_time = core_time(on, monotask);
        let work = core_time.unwrap_or_else(|| services[resource].work(demands.bytes(monotask), start, end));
        let spilled = if monotask.phase == Phase::Spill { work * services[resource].spill_ns } else { 0.0 };
        let took = monotask.service_ns.max(1) as f64;
        let on_cores = on.kind == kind::CPU;
        let share = |ns: Option<u64>| ns.filter(|_| on_cores).map(|ns| (ns as f64 / took).min(1.0) * work);
        Mono {
            resource,
            phase: monotask.phase,
            work,
            decode: share(monotask.decode_ns).unwrap_or(0.0),
            waits: share(monotask.cpu_ns).filter(|_| core_time.is_none()).map_or(0.0, |ran| work - ran),
            cached_bytes: monotask.cached_bytes.map_or(0.0, |b| b as f64),
            lag_ns: lags[*m] + spilled as u64,
            spills: false,
            after: std::mem::take(&mut after[place]),
        }
    };
    Task {
        stage: StageIx(task.stage),
        machine: MachineIx(machine),
        memory_bytes: task.memory_bytes.unwrap_or(0),
        submission: Submission::WithStage(0),
        plan_ns: queued.map_or(0, |at| at.saturating_sub(task.admitted_ns)),
        monotasks: of_task.iter().enumerate().map(one).collect(),
    }
}

/// Marks the monotasks of spilling, in jobs that spilled: what a multitask reads while it computes.
fn mark_spills(recorded: &mut Recorded) {
    for task in Arc::make_mut(&mut recorded.tasks) {
        if recorded.memory[recorded.stages[task.stage].job].core_ns.is_none() {
            continue;
        }
        for place in 0..task.monotasks.len() {
            let monotask = &task.monotasks[place];
            let computed =
                monotask.after.iter().any(|before| task.monotasks[*before as usize].phase == Phase::Compute);
            task.monotasks[place].spills =
                monotask.phase == Phase::Spill || monotask.phase == Phase::Read && computed;
        }
    }
}

/// Returns each monotask's dependencies in its multitask: those that had ended when it was queued,
/// without those that another dependency was queued after.
fn after(trace: &Trace, of_task: &[MonotaskIx]) -> Vec<Vec<u32>> {
    let at = |place: u32| &trace.monotasks[of_task[place as usize].at()];
    let mut by_end: Vec<u32> = (0..of_task.len() as u32).collect();
    by_end.sort_by_key(|place| (at(*place).ended_ns(), *place));
    // The latest queueing time of any monotask that had ended by then.
    let mut latest = 0;
    let latest_queued: Vec<u64> = by_end
        .iter()
        .map(|place| {
            latest = at(*place).queued_ns.max(latest);
            latest
        })
        .collect();
    // Limits the total length, so that a damaged trace cannot make it quadratic.
    let mut budget = 64 * of_task.len();
    let of = |place: u32| {
        let queued = at(place).queued_ns;
        let ended = by_end.partition_point(|p| at(*p).ended_ns() <= queued);
        let Some(latest) = ended.checked_sub(1).map(|last| latest_queued[last]) else { return Vec::new() };
        let first = by_end[..ended].partition_point(|p| at(*p).ended_ns() <= latest);
        let direct = by_end[first..ended].iter().copied().filter(|p| *p < place && at(*p).queued_ns < queued);
        let mut direct: Vec<u32> = direct.take(budget).collect();
        budget -= direct.len();
        direct.sort_unstable();
        direct
    };
    (0..of_task.len() as u32).map(of).collect()
}

/// Determines each multitask's submission.
fn submissions(trace: &Trace, members: &Members, ends: &Table<MultitaskIx, u64>, recorded: &mut Recorded) {
    let mut by_stage = Table::<StageIx, Vec<MultitaskIx>>::filled(trace.stages.len(), Vec::new());
    for (ix, task) in members.indices().zip(&trace.multitasks) {
        if let Some(stage) = by_stage.get_mut(StageIx(task.stage)) {
            stage.push(ix);
        }
    }
    // From the first monotask's end on, an admission may have waited for a slot.
    let mut sorted_ends: Vec<u64> = trace.monotasks.iter().map(|m| m.ended_ns()).collect();
    sorted_ends.sort_unstable();
    let tasks = Arc::make_mut(&mut recorded.tasks);
    for (of_stage, stage) in by_stage.iter().zip(&trace.stages) {
        let submitted = stage.submitted_ns;
        let freed = sorted_ends.get(sorted_ends.partition_point(|e| *e <= submitted)).copied();
        let freed = freed.unwrap_or(u64::MAX);
        let computes = computes(trace, members, of_stage);
        let computed = computes.iter().map(|r| r.end_ns).max().unwrap_or(0);
        let reached = ends_before(trace, ends, of_stage);
        let mut offset = 0;
        for (ix, others_end) in of_stage.iter().zip(reached) {
            let admitted = trace.multitasks[ix.at()].admitted_ns;
            tasks[*ix].submission =
                match by_compute(&tasks[*ix], &computes, admitted, computed.max(others_end)) {
                    Some(submission) => submission,
                    None => {
                        if admitted < freed {
                            offset = admitted.saturating_sub(submitted);
                        }
                        Submission::WithStage(offset)
                    }
                };
        }
    }
}

/// When a stage's compute monotask ran.
struct ComputeRun {
    start_ns: u64,
    end_ns: u64,
    multitask: MultitaskIx,
    monotask: u32,
}

/// Returns the compute monotasks of a stage by start; empty if none of its multitasks only writes.
fn computes(trace: &Trace, members: &Members, of_stage: &[MultitaskIx]) -> Vec<ComputeRun> {
    let phase = |m: &MonotaskIx| trace.monotasks[m.at()].phase;
    let only_writes =
        |ix: &MultitaskIx| !members[*ix].is_empty() && members[*ix].iter().all(|m| writes(phase(m)));
    if !of_stage.iter().any(only_writes) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for ix in of_stage {
        for (monotask, m) in (0..).zip(&members[*ix]).filter(|(_, m)| phase(m) == Phase::Compute) {
            let (start_ns, end_ns) = service(&trace.monotasks[m.at()]);
            all.push(ComputeRun { start_ns, end_ns, multitask: *ix, monotask });
        }
    }
    all.sort_by_key(|r| (r.start_ns, r.multitask));
    all
}

fn writes(phase: Phase) -> bool {
    matches!(phase, Phase::Spill | Phase::Write)
}

/// Returns for each multitask of a stage the latest end of those admitted before it.
fn ends_before(trace: &Trace, ends: &Table<MultitaskIx, u64>, of_stage: &[MultitaskIx]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..of_stage.len()).collect();
    order.sort_by_key(|place| (trace.multitasks[of_stage[*place].at()].admitted_ns, *place));
    let mut before = vec![0; of_stage.len()];
    let mut last = 0;
    for place in order {
        before[place] = last;
        last = last.max(ends[of_stage[place]]);
    }
    before
}

/// Returns the submission of a multitask that only writes: by a compute monotask, or after all others of
/// its stage (it publishes their output).
fn by_compute(
    task: &Task,
    computes: &[ComputeRun],
    admitted_ns: u64,
    others_end_ns: u64,
) -> Option<Submission> {
    if computes.is_empty() || task.monotasks.is_empty() || !task.monotasks.iter().all(|m| writes(m.phase)) {
        return None;
    }
    if others_end_ns <= admitted_ns {
        return Some(Submission::AfterStage(admitted_ns - others_end_ns));
    }
    let started = computes.partition_point(|r| r.start_ns <= admitted_ns);
    let running = computes[..started].iter().rev().take(1024).find(|r| r.end_ns >= admitted_ns);
    // A write may have waited for a slot until after its compute monotask ended.
    let submitter = running.or(computes[..started].last()).or(computes.first())?;
    let took = submitter.end_ns.saturating_sub(submitter.start_ns).max(1) as f64;
    let share = (admitted_ns.saturating_sub(submitter.start_ns) as f64 / took).min(1.0);
    Some(Submission::During { multitask: submitter.multitask, monotask: submitter.monotask, share })
}
