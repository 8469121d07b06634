//! The recorded schedule: tasks by slot, dependencies, and gaps.
//!
//! A replay (`replay.rs`) separates inputs from consequences. Inputs are the task durations and the
//! *gaps*: the time a free slot took to start a runnable task (offers, locality waits), the driver's time
//! between the end of a stage and the next submission and between two jobs (planning, the user's
//! program), and the time from a job's submission to an executor's arrival. A task's start time is a
//! consequence. Blocked-time-nsdi15 §2.3.2 leaves out the pauses between stages and names them as its
//! largest error (footnote 4).
//!
//! A stage's *lanes* are the slots that ran its tasks; each opens after the gap before its first task.
//! The number of slots over time is therefore the recorded one, without a model of the cluster's
//! scheduling.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use pellucid_trace::Trace;

use crate::index::{Ix, JobIx, ResourceIx, SlotIx, StageIx, Table, TaskIx};
use crate::pipelined::task::Tasks;

/// Maximum delay from a slot's reuse to the recorded end of its previous task, where the number of slots
/// is unknown.
const MAX_RECORDING_DELAY_NS: u64 = 100_000_000;
/// Marks a slot's first task of a stage: its gap is the lane's.
pub(crate) const FIRST: u64 = u64::MAX;

/// A task's place. A trace may hold millions, so rare properties are kept in [`Schedule`] instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Time from when it could have started on its slot until it did; or [`FIRST`].
    pub gap_ns: u64,
    /// Time from its slot's reuse to its recorded end: the driver learns of an end and offers the slot before
    /// it records the time.
    pub early_ns: u32,
    pub stage: StageIx,
}

/// The last job submitted before an executor arrived, and the delay after it; `None` if it was present
/// from the start.
pub(crate) type Arrival = Option<(JobIx, u64)>;

/// A slot of an executor.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// The executor: index of its resource in the trace.
    pub resource: ResourceIx,
    pub added: Arrival,
    /// The last job submitted before the executor's removal, and the delay after it.
    pub removed: Option<(JobIx, u64)>,
}

/// A slot's part in a stage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub slot: SlotIx,
    /// Gap before the slot's first task of the stage.
    pub first_gap_ns: u64,
}

/// A stage's place.
#[derive(Debug, Clone, Default)]
pub(crate) struct StagePlace {
    pub job: JobIx,
    pub submitted_ns: u64,
    pub ended_ns: u64,
    /// Stages of the job that it waits for.
    pub after: Vec<StageIx>,
    /// Time from the end of the last of those (or the job's submission) to its submission.
    pub gap_ns: u64,
    /// Number of tasks that its end waited for.
    pub needed: usize,
    /// Time from the end of the last of those to its own end.
    pub tail_ns: u64,
    /// By slot.
    pub lanes: Vec<Lane>,
    /// Median gap of tasks that were not first on their slot.
    pub usual_gap_ns: u64,
}

/// A job's place.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobPlace {
    pub submitted_ns: u64,
    pub ended_ns: u64,
    /// The job that had ended last when it was submitted, and the time between.
    pub after: Option<(JobIx, u64)>,
    /// Number of stages that its end waited for.
    pub needed: usize,
    /// Time from the end of the last of those to its own end.
    pub tail_ns: u64,
}

/// The schedule except for the task durations.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// By index in the trace; `None` where only the submission is known.
    pub jobs: Table<JobIx, Option<JobPlace>>,
    pub stages: Table<StageIx, Option<StagePlace>>,
    pub slots: Table<SlotIx, Slot>,
    pub tasks: Table<TaskIx, Place>,
    /// Tasks by stage, in launch order.
    pub by_stage: Table<StageIx, Vec<TaskIx>>,
    /// The attempt that repeats or copies each task, by the task.
    pub repeats: BTreeMap<TaskIx, TaskIx>,
    /// Those attempts, each with the time from the first one's launch to its own if it did not wait for
    /// its end.
    pub retry_delays: BTreeMap<TaskIx, Option<u64>>,
    /// Tasks that their stage's end did not wait for.
    pub unneeded: BTreeSet<TaskIx>,
}

impl Schedule {
    /// Reads the schedule of `trace`.
    pub fn of(trace: &Trace, tasks: &Tasks) -> Schedule {
        let by_stage = tasks.by_stage(trace.stages.len());
        let stages = stages(trace, tasks, &by_stage);
        let jobs = jobs(trace, &stages);
        let mut schedule = Schedule { jobs, stages, by_stage, ..Schedule::default() };
        schedule.place(trace, tasks);
        schedule
    }

    /// Assigns every task to a slot of its executor, and computes the gaps.
    fn place(&mut self, trace: &Trace, tasks: &Tasks) {
        let submissions = self.submissions();
        let mut free: BTreeMap<ResourceIx, BTreeSet<(u64, SlotIx)>> = BTreeMap::new();
        let mut on_slot: Table<SlotIx, Option<TaskIx>> = Table::default();
        let mut previous: BTreeMap<(StageIx, u32), TaskIx> = BTreeMap::new();
        let mut lanes: Table<StageIx, BTreeMap<SlotIx, u64>> =
            Table::filled(self.stages.len(), BTreeMap::new());
        let repeated = repeated(tasks);
        self.tasks = Vec::with_capacity(tasks.all.len()).into();
        for (ix, task) in tasks.all.rows() {
            let slots = free.entry(task.resource).or_default();
            let executor = &trace.resources[task.resource.at()];
            let (freed, slot) = take(slots, task.launched_ns, executor.capacity).unwrap_or_else(|| {
                on_slot.push(None);
                let slot = self.slots.push(slot(trace, task.resource, &submissions));
                (executor.added_ns.unwrap_or(0), slot)
            });
            slots.insert((task.ended_ns(), slot));
            if let Some(before) = on_slot[slot].replace(ix) {
                let early_ns = freed.saturating_sub(task.launched_ns).min(u64::from(u32::MAX));
                self.tasks[before].early_ns = early_ns as u32;
            }
            let stage = self.stages[task.stage].as_ref();
            let (submitted, until) = stage.map_or((0, 0), |s| (s.submitted_ns, s.ended_ns));
            if task.ended_ns() > until {
                self.unneeded.insert(ix);
            }
            let mut earliest = freed.max(submitted);
            let key = (task.stage, task.partition);
            if let Some(previous) = previous.get(&key) {
                let before = &tasks.all[*previous];
                let waited = before.ended_ns() <= task.launched_ns;
                if waited {
                    earliest = earliest.max(before.ended_ns());
                }
                self.repeats.insert(*previous, ix);
                self.retry_delays.insert(ix, (!waited).then(|| task.launched_ns - before.launched_ns));
            }
            if repeated.contains(&key) {
                previous.insert(key, ix);
            }
            let mut gap_ns = task.launched_ns.saturating_sub(earliest).min(FIRST - 1);
            if let Entry::Vacant(lane) = lanes[task.stage].entry(slot) {
                lane.insert(std::mem::replace(&mut gap_ns, FIRST));
            }
            self.tasks.push(Place { gap_ns, early_ns: 0, stage: task.stage });
        }
        for (ix, lanes) in lanes.rows() {
            let Some(stage) = &mut self.stages[ix] else { continue };
            let lanes =
                lanes.iter().map(|(slot, first_gap_ns)| Lane { slot: *slot, first_gap_ns: *first_gap_ns });
            stage.lanes = lanes.collect();
            let gaps = self.by_stage[ix].iter().map(|task| self.tasks[*task].gap_ns);
            let mut gaps: Vec<u64> = gaps.filter(|gap_ns| *gap_ns != FIRST).collect();
            let middle = gaps.len() / 2;
            stage.usual_gap_ns = if gaps.is_empty() { 0 } else { *gaps.select_nth_unstable(middle).1 };
        }
    }

    /// Returns the stage of a task.
    pub fn stage_of(&self, task: TaskIx) -> StageIx {
        self.tasks[task].stage
    }

    /// Returns the jobs' submission times, in order.
    fn submissions(&self) -> Vec<(u64, JobIx)> {
        let jobs = self.jobs.rows();
        let mut out: Vec<_> = jobs.filter_map(|(ix, job)| Some((job.as_ref()?.submitted_ns, ix))).collect();
        out.sort_unstable();
        out
    }
}

fn slot(trace: &Trace, resource: ResourceIx, submissions: &[(u64, JobIx)]) -> Slot {
    let executor = &trace.resources[resource.at()];
    let anchored = |at: u64| {
        let earlier = submissions.partition_point(|(submitted, _)| *submitted <= at);
        let (submitted, job) = submissions[earlier.checked_sub(1)?];
        Some((job, at - submitted))
    };
    Slot {
        resource,
        added: executor.added_ns.and_then(anchored),
        removed: executor.removed_ns.and_then(anchored),
    }
}

/// Takes the slot that became free last before `at`, which leaves the smallest gap. If none is free and
/// the executor has no more, takes the one that is free next: its task's end was recorded late.
fn take(slots: &mut BTreeSet<(u64, SlotIx)>, at: u64, capacity: Option<f64>) -> Option<(u64, SlotIx)> {
    let late = match capacity {
        Some(capacity) if slots.len() as f64 >= capacity => u64::MAX,
        Some(_) => 0,
        None => MAX_RECORDING_DELAY_NS,
    };
    let free = slots.range(..=(at, SlotIx(u32::MAX))).next_back();
    let next = || slots.first().filter(|(freed, _)| freed - at <= late);
    let taken = *free.or_else(next)?;
    slots.remove(&taken);
    Some(taken)
}

/// Returns the stage and partition of tasks that ran more than once.
fn repeated(tasks: &Tasks) -> BTreeSet<(StageIx, u32)> {
    let again = tasks.all.iter().filter(|t| t.attempt > 0 || t.speculative);
    again.map(|t| (t.stage, t.partition)).collect()
}

fn stages(
    trace: &Trace,
    tasks: &Tasks,
    by_stage: &Table<StageIx, Vec<TaskIx>>,
) -> Table<StageIx, Option<StagePlace>> {
    let mut ended: Table<StageIx, Option<u64>> = Table::filled(trace.stages.len(), None);
    for end in &trace.stage_ends {
        ended[StageIx(end.stage)] = Some(end.ended_ns);
    }
    let mut out: Table<StageIx, Option<StagePlace>> = Table::default();
    for (ix, stage) in by_stage.indices().zip(&trace.stages) {
        let of_stage = by_stage[ix].iter().map(|t| &tasks.all[*t]);
        let last = of_stage.clone().map(|t| t.ended_ns()).max();
        let first = of_stage.clone().map(|t| t.launched_ns).min();
        let Some(ended_ns) = ended[ix].or(last) else {
            out.push(None);
            continue;
        };
        // A stage without a recorded submission started with its first task.
        let submitted_ns = first.map_or(stage.submitted_ns, |first| match stage.submitted_ns {
            0 => first,
            submitted => submitted.min(first),
        });
        let needed = of_stage.clone().filter(|t| t.ended_ns() <= ended_ns).count();
        let last_needed = of_stage.map(|t| t.ended_ns()).filter(|end| *end <= ended_ns).max();
        // A repeated stage waits for the failed one, others for their parents.
        let mut after: Vec<StageIx> = match stage.attempt {
            0 => stage.after.iter().copied().map(StageIx).collect(),
            _ => out.indices().collect(),
        };
        after.retain(|other| {
            let ended = out.get(*other).and_then(|o| Some(o.as_ref()?.ended_ns));
            trace.stages[other.at()].job == stage.job && ended.is_some_and(|ended| ended <= submitted_ns)
        });
        let job_submitted = trace.jobs.get(stage.job as usize).map_or(0, |job| job.submitted_ns);
        let waited = after.iter().filter_map(|o| Some(out[*o].as_ref()?.ended_ns)).max();
        out.push(Some(StagePlace {
            job: JobIx(stage.job),
            submitted_ns,
            ended_ns: ended_ns.max(submitted_ns),
            gap_ns: submitted_ns.saturating_sub(waited.unwrap_or(job_submitted)),
            after,
            needed,
            tail_ns: ended_ns.saturating_sub(last_needed.unwrap_or(submitted_ns)),
            ..StagePlace::default()
        }));
    }
    out
}

fn jobs(trace: &Trace, stages: &Table<StageIx, Option<StagePlace>>) -> Table<JobIx, Option<JobPlace>> {
    let mut ended: Table<JobIx, Option<u64>> = Table::filled(trace.jobs.len(), None);
    for end in &trace.job_ends {
        ended[JobIx(end.job)] = Some(end.ended_ns);
    }
    let mut ends: Table<JobIx, Vec<u64>> = Table::filled(trace.jobs.len(), Vec::new());
    for stage in stages.iter().flatten() {
        ends.get_mut(stage.job).into_iter().for_each(|of_job| of_job.push(stage.ended_ns));
    }
    let mut out: Table<JobIx, Option<JobPlace>> = trace
        .jobs
        .iter()
        .zip(ended.rows())
        .map(|(job, (ix, ended))| {
            let ends = &ends[ix];
            let last = ends.iter().copied().max();
            let ended_ns = ended.or(last)?.max(job.submitted_ns);
            let needed = ends.iter().copied().filter(|end| *end <= ended_ns);
            let last_needed = needed.clone().max();
            Some(JobPlace {
                submitted_ns: job.submitted_ns,
                ended_ns,
                after: None,
                needed: needed.count(),
                tail_ns: ended_ns
                    .saturating_sub(last_needed.unwrap_or(job.submitted_ns).max(job.submitted_ns)),
            })
        })
        .collect();
    // The driver continues when a job ends, so each job follows the one that ended last before it. The
    // order of submission and index prevents two jobs of zero length from waiting for each other.
    let mut order: Vec<(u64, JobIx)> = Vec::new();
    order.extend(out.rows().filter_map(|(ix, job)| Some((job.as_ref()?.submitted_ns, ix))));
    order.sort_unstable();
    let mut by_end: BTreeSet<(u64, JobIx)> = BTreeSet::new();
    for (submitted, ix) in order {
        let last = by_end.range(..=(submitted, JobIx(u32::MAX))).next_back().copied();
        if let Some(job) = &mut out[ix] {
            job.after = last.map(|(end, before)| (before, submitted - end));
            by_end.insert((job.ended_ns, ix));
        }
    }
    out
}
