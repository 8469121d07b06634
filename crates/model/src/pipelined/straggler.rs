//! Stragglers and their causes (blocked-time-nsdi15 §5.1, §5.3).
//!
//! A task's inverse progress rate is its duration over the amount it read: bytes if known for every task,
//! else records, else 1 (the duration alone). A straggler's is over 1.5 times its stage's median. A part
//! of the time is a cause if the task is no longer a straggler once that part is removed from all tasks
//! of the stage. Output skew, being first on an executor, failures and slow machines follow the rules in
//! [`Causes`]. Several causes may apply.
//!
//! Only successful tasks are judged; failures have their own cause. A task that read nothing in a stage
//! where others did has no progress rate, and is judged by its duration.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pellucid_trace::Trace;

use super::replay::schedule::Schedule;
use super::task::{Part, Task};
use crate::analysis::{Denominator, StragglerTask, Stragglers};
use crate::index::{Ix, MachineIx, ResourceIx, StageIx, Table, TaskIx};
use crate::numbers::median;

/// Multiple of the median above which a task is a straggler.
pub(crate) const STRAGGLER_RATIO: f64 = 1.5;
/// Minimum tasks on a machine to call it slow.
const MIN_TASKS: usize = 5;
/// Maximum stragglers listed per stage.
const MAX_LISTED: usize = 5;

/// Parts of the time that can be a cause, by the cause's name.
const PARTS: [(&str, &[Part]); 6] = [
    ("scheduler", &[Part::Scheduler]),
    ("input_read", &[Part::Input]),
    ("shuffle_read", &[Part::Fetch, Part::ShuffleRead]),
    ("shuffle_write", &[Part::ShuffleWrite, Part::Spill]),
    ("output_write", &[Part::Output]),
    ("gc", &[Part::Gc]),
];

/// The judgement on a stage's tasks.
#[derive(Debug)]
pub(crate) struct Judged {
    pub stragglers: Stragglers,
    /// Tasks slower than the median rate, each with its duration at that rate (§5.1).
    pub at_median_ns: Vec<(TaskIx, u64)>,
    /// Stragglers without an inherent reason (output skew or being first), in the same form.
    pub avoidable_ns: Vec<(TaskIx, u64)>,
}

/// A task with the amount it read.
#[derive(Debug, Clone, Copy)]
struct Rated<'t> {
    ix: TaskIx,
    task: &'t Task,
    read: f64,
}

impl Rated<'_> {
    fn rate(&self, ms: f64) -> f64 {
        ms / self.read
    }
}

/// Judges the tasks of one stage; `slow` holds the slow machines from [`slow_machines`].
pub(crate) fn judge(
    trace: &Trace,
    all: &Table<TaskIx, Task>,
    schedule: &Schedule,
    of_stage: &[TaskIx],
    slow: &Table<MachineIx, bool>,
) -> Option<Judged> {
    let ended: Vec<TaskIx> = of_stage.iter().copied().filter(|ix| all[*ix].ok()).collect();
    if ended.len() < 2 {
        return None;
    }
    let (denominator, rated) = rate(all, &ended);
    let rates: Vec<f64> = rated.iter().map(|r| r.rate(r.task.duration_ms())).collect();
    let median = median(rates.clone())?;
    let at_median = |r: &Rated| (r.ix, (median * r.read * 1e6) as u64);
    let slower = rated.iter().zip(&rates).filter(|(_, rate)| **rate > median);
    let at_median_ns = slower.map(|(r, _)| at_median(r)).collect();
    let straggles: Vec<usize> = (0..rated.len()).filter(|ix| rates[*ix] > STRAGGLER_RATIO * median).collect();
    let mut causes = Causes::of_stage(trace, all, of_stage, &rated, &straggles, slow);
    causes.first_task(all, schedule, of_stage, &rates);
    let mut out = Stragglers { count: straggles.len() as u64, denominator, ..Stragglers::default() };
    out.causes = causes.known.iter().map(|(name, known)| (*name, known.then_some(0))).collect();
    let mut avoidable_ns = Vec::new();
    for (nth, ix) in straggles.iter().enumerate() {
        let (mut unexplained, mut inherent) = (true, false);
        for cause in causes.of(nth) {
            match cause.at_most {
                true => *out.at_most.entry(cause.name).or_default() += 1,
                false => *out.causes.entry(cause.name).or_default().get_or_insert(0) += 1,
            }
            unexplained &= cause.at_most;
            inherent |= matches!(cause.name, "output_skew" | "first_task");
        }
        *out.causes.entry("unexplained").or_insert(Some(0)).get_or_insert(0) += u64::from(unexplained);
        if !inherent {
            avoidable_ns.push(at_median(&rated[*ix]));
        }
    }
    let mut longest: Vec<usize> = (0..straggles.len()).collect();
    longest.sort_by_key(|nth| Reverse(rated[straggles[*nth]].task.duration_ns));
    out.tasks.extend(longest.into_iter().take(MAX_LISTED).map(|nth| {
        let task = rated[straggles[nth]].task;
        StragglerTask {
            partition: task.partition,
            attempt: task.attempt,
            executor: trace.resources[task.resource.at()].name.clone(),
            duration_ms: task.duration_ms(),
            times_median: rates[straggles[nth]] / median,
            causes: causes.of(nth).map(|cause| cause.name).collect(),
        }
    }));
    Some(Judged { stragglers: out, at_median_ns, avoidable_ns })
}

/// Returns the amount each task read, in the best unit that is known for all.
fn rate<'t>(all: &'t Table<TaskIx, Task>, ended: &[TaskIx]) -> (Denominator, Vec<Rated<'t>>) {
    let tasks = || ended.iter().map(|ix| &all[*ix]);
    let every = |read: fn(&Task) -> Option<f64>| tasks().all(|t| read(t).is_some_and(|r| r > 0.0));
    let denominator = if every(Task::in_bytes) {
        Denominator::Bytes
    } else if every(Task::in_records) {
        Denominator::Records
    } else {
        Denominator::None
    };
    let read = |task: &Task| match denominator {
        Denominator::Bytes => task.in_bytes(),
        Denominator::Records => task.in_records(),
        Denominator::None => None,
    };
    let rated = ended.iter().map(|ix| {
        let task = &all[*ix];
        Rated { ix: *ix, task, read: read(task).unwrap_or(1.0) }
    });
    (denominator, rated.collect())
}

/// A cause of one straggler.
#[derive(Debug, Clone, Copy)]
struct StragglerCause {
    name: &'static str,
    /// True if its part of the time is only bounded, so it may be the cause.
    at_most: bool,
}

/// The causes of a stage's stragglers.
struct Causes<'r> {
    rated: &'r [Rated<'r>],
    /// The stragglers, as indices into `rated`.
    straggles: &'r [usize],
    /// Every cause that may apply; fewer than a `u16` has bits.
    all: Vec<StragglerCause>,
    /// By straggler: a bitmask of the causes in `all` that apply.
    held: Vec<u16>,
    /// True for causes that the log allows to determine.
    known: BTreeMap<&'static str, bool>,
}

impl<'r> Causes<'r> {
    fn of_stage(
        trace: &Trace,
        all: &Table<TaskIx, Task>,
        of_stage: &[TaskIx],
        rated: &'r [Rated<'r>],
        straggles: &'r [usize],
        slow: &Table<MachineIx, bool>,
    ) -> Causes<'r> {
        let held = vec![0; straggles.len()];
        let mut causes = Causes { rated, straggles, all: Vec::new(), held, known: BTreeMap::new() };
        for (name, parts) in PARTS {
            causes.without(name, parts);
        }
        causes.output_skew();
        let of_stage = of_stage.iter().map(|ix| &all[*ix]);
        let failed: BTreeSet<u32> = of_stage.filter(|t| !t.ok()).map(|t| t.partition).collect();
        causes.add("failure", true, |task| task.attempt > 0 || failed.contains(&task.partition));
        let machine = |task: &Task| MachineIx(trace.resources[task.resource.at()].machine);
        let several = slow.len() > 1;
        causes.add("slow_machine", several, |task| slow.get(machine(task)).copied().unwrap_or(false));
        causes
    }

    /// Returns the causes of the straggler with this index.
    fn of(&self, nth: usize) -> impl Iterator<Item = StragglerCause> {
        let held = self.held[nth];
        let all = self.all.iter().enumerate();
        all.filter(move |(bit, _)| held >> bit & 1 == 1).map(|(_, cause)| *cause)
    }

    /// Adds a cause; if it can be determined (`known`), it applies to the stragglers that `holds`
    /// selects.
    fn add(&mut self, name: &'static str, known: bool, holds: impl Fn(&Task) -> bool) {
        self.known.insert(name, known);
        if known {
            self.mark(StragglerCause { name, at_most: false }, |rated| holds(rated.task));
        }
    }

    fn mark(&mut self, cause: StragglerCause, holds: impl Fn(&Rated<'r>) -> bool) {
        let bit = 1 << self.all.len();
        self.all.push(cause);
        for (held, ix) in self.held.iter_mut().zip(self.straggles) {
            *held |= if holds(&self.rated[*ix]) { bit } else { 0 };
        }
    }

    /// Adds a cause for stragglers that are none once these parts are removed from all tasks.
    fn without(&mut self, name: &'static str, parts: &[Part]) {
        let rated = self.rated;
        let measures = |r: &Rated<'r>| {
            let task = r.task;
            parts.iter().filter_map(move |part| task.part(*part))
        };
        let measured = rated.iter().any(|r| measures(r).any(|m| !m.at_most));
        self.known.insert(name, measured);
        let known = measured || rated.iter().any(|r| measures(r).next().is_some());
        if !known || self.straggles.is_empty() {
            return;
        }
        let left = |r: &Rated<'r>| {
            let gone: f64 = measures(r).map(|m| m.ms).sum();
            r.rate((r.task.duration_ms() - gone).max(0.0))
        };
        let Some(median) = median(rated.iter().map(left).collect()) else { return };
        self.mark(StragglerCause { name, at_most: !measured }, |r| left(r) <= STRAGGLER_RATIO * median);
    }

    /// Adds output skew: a straggler by the amount read, but not by the amount written.
    fn output_skew(&mut self) {
        let written = |r: &Rated| Some(r.task.duration_ms() / r.task.out_bytes().filter(|b| *b > 0.0)?);
        let known = self.rated.iter().all(|r| written(r).is_some());
        let among = if known && !self.straggles.is_empty() { self.rated } else { &[] };
        let median = median(among.iter().filter_map(written).collect());
        self.known.insert("output_skew", known);
        if let Some(median) = median {
            let cause = StragglerCause { name: "output_skew", at_most: false };
            self.mark(cause, |r| written(r).is_some_and(|rate| rate <= STRAGGLER_RATIO * median));
        }
    }

    /// Adds the cause of tasks that started before any other task of the stage ended on their executor,
    /// and are not stragglers among such tasks.
    fn first_task(
        &mut self,
        all: &Table<TaskIx, Task>,
        schedule: &Schedule,
        of_stage: &[TaskIx],
        rates: &[f64],
    ) {
        self.known.insert("first_task", true);
        if self.straggles.is_empty() {
            return;
        }
        let mut first_end: BTreeMap<ResourceIx, u64> = BTreeMap::new();
        for ix in of_stage {
            let task = &all[*ix];
            // Ends are recorded late: the task had ended when its slot was reused.
            let ended = task.ended_ns().saturating_sub(u64::from(schedule.tasks[*ix].early_ns));
            let end = first_end.entry(task.resource).or_insert(u64::MAX);
            *end = (*end).min(ended);
        }
        let is_first =
            |r: &Rated| first_end.get(&r.task.resource).is_some_and(|end| r.task.launched_ns < *end);
        let of_first = self.rated.iter().zip(rates).filter(|(r, _)| is_first(r)).map(|(_, rate)| *rate);
        let Some(median) = median(of_first.collect()) else { return };
        let cause = StragglerCause { name: "first_task", at_most: false };
        self.mark(cause, |r| is_first(r) && r.rate(r.task.duration_ms()) <= STRAGGLER_RATIO * median);
    }
}

/// Returns for each machine whether its tasks take over 1.5 times as long as the others', stage by stage.
pub(crate) fn slow_machines(
    trace: &Trace,
    all: &Table<TaskIx, Task>,
    by_stage: &Table<StageIx, Vec<TaskIx>>,
) -> Table<MachineIx, bool> {
    let mut ratios: Table<MachineIx, Vec<f64>> = Table::filled(trace.machines.len(), Vec::new());
    if ratios.len() > 1 {
        for of_stage in by_stage {
            let ended: Vec<TaskIx> = of_stage.iter().copied().filter(|ix| all[*ix].ok()).collect();
            let (_, rated) = rate(all, &ended);
            let rates: Vec<f64> = rated.iter().map(|r| r.rate(r.task.duration_ms())).collect();
            let Some(median) = median(rates.clone()).filter(|m| *m > 0.0) else { continue };
            for (rated, rate) in rated.iter().zip(rates) {
                let machine = MachineIx(trace.resources[rated.task.resource.at()].machine);
                ratios.get_mut(machine).into_iter().for_each(|of| of.push(rate / median));
            }
        }
    }
    let medians: Vec<Option<f64>> =
        ratios.into_iter().map(|of| median(of.clone()).filter(|_| of.len() >= MIN_TASKS)).collect();
    let typical = median(medians.iter().flatten().copied().collect());
    medians.iter().map(|m| m.zip(typical).is_some_and(|(m, typical)| m > STRAGGLER_RATIO * typical)).collect()
}
