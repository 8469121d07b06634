//! What-ifs from pipelined tasks: other executors, faster disks or links, part of the time removed.
//!
//! The simulated predictor replays the tasks with other durations or on other slots. A task's blocked
//! time is known, so a faster resource shortens that part; its computing stays the same. A wait that is
//! only bounded is taken at its bound, which gives the best the change can do; the interval reaches down
//! to no gain. On other executors every stage may use every slot, both before and after the change.
//!
//! A disk that several tasks read from is the exception. The kernel reads ahead while they compute, so a
//! disk that is always busy sets their pace: at twice its rate they take half as long, or as long as they
//! compute, whichever is longer. How busy the disk is follows from the waits: it is idle only while none
//! of the concurrent tasks waits. The prediction interpolates between the two laws by that share
//! ([`paced_ms`]). Where the log gives the machine's number of cores (the plugin's does), its tasks
//! compute no faster than those allow: see [`stretched`].
//!
//! The analytic predictor sums over stages the tasks' time divided by the slots, or the longest task if
//! that takes longer. It ignores waves, gaps and overlapping stages.
//!
//! Not supported: changes to the number or size of tasks (`partitions`), and rates in bytes per second,
//! since a log does not record current rates.

mod contention;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pellucid_trace::{Outcome, Trace};

use crate::analysis::{Bottleneck, Cause};
use crate::pipelined::blocked::{Without, blocked, overhead_ms};
use crate::pipelined::findings::settings::Settings;
use crate::pipelined::limit::{limit, limit_after};
use crate::pipelined::replay::allocation::{self, DynamicAllocation, NEVER};
use crate::pipelined::replay::bounds::Replays;
use crate::pipelined::replay::simulate::{Change as Replaced, Slots, replay};
use crate::pipelined::straggler::median;
use crate::pipelined::task::{Part, Task};
use crate::pipelined::{SlowTasks, failed};
use crate::whatif::{
    Amount, Baseline, Basis, Change, Changes, Estimate, InputFrom, Tasks as Kind, WhatIfError,
};
use contention::stretched;

/// Uncertainty of task times on more executors: more of the shuffle crosses the network.
const MORE_EXECUTORS: f64 = 0.1;
/// Uncertainty of task times with more tasks in one executor, which share cores, memory and heap. With
/// fewer, half of it, since the JVM's compiler and collector threads compete for fewer cores.
const MORE_CORES: f64 = 0.15;
/// Uncertainty of modelling a machine's cores and disks as two stations with exponential service, and
/// several disks as one.
const CONTENTION: f64 = 0.1;

/// Standard deviations per median absolute deviation, for a normal distribution.
const DEVIATION: f64 = 1.4826;
/// The keys that an event log supports.
const SUPPORTED: &str = "executors, executor.cores, cores (local mode), idle.timeout, disk.rate and network.rate relative to now (x2), \
                        input=memory, input.scale, and no=gc, scheduler, deserialize, stragglers, skew, disk or network";

/// Tasks that run side by side: their stage and machine.
type Group = (u32, u32);
/// When the executor of a slot arrives, as `replay` takes it.
type Added = Option<(u32, u64)>;

/// The basis of what-ifs on a trace of pipelined tasks.
pub(crate) struct PipelinedBasis<'t> {
    replays: Replays<'t>,
    at_median_ns: Vec<(u32, u64)>,
    even_ns: Vec<(u32, u64)>,
    /// Computed on first use, because it takes a whole analysis.
    first_cause: OnceLock<Option<Cause>>,
}

/// A changed job before the replay.
struct Draft {
    durations_ns: Vec<u64>,
    /// The durations if the changes have their smallest effect, and their largest.
    min_effect_ns: Vec<u64>,
    max_effect_ns: Vec<u64>,
    /// The changed executors: when each arrives, and its slots.
    executors: Option<Vec<(Added, usize)>>,
    /// Idle time after which an executor is removed.
    idle_timeout_ns: Option<u64>,
    assumptions: Vec<String>,
    uncertainty: (f64, f64),
}

impl<'t> PipelinedBasis<'t> {
    /// Reads a trace and replays it once.
    ///
    /// # Errors
    /// Returns an error if no job in the trace took any time.
    pub fn of(trace: &'t Trace) -> Result<PipelinedBasis<'t>, WhatIfError> {
        let replays = Replays::of(trace);
        if replays.error().is_none() || replays.tasks.all.is_empty() {
            return Err(WhatIfError::Failed(
                "cannot predict: the log holds no job that ran tasks; use a log of a run with jobs".into(),
            ));
        }
        let SlowTasks { at_median_ns, even_ns, .. } = SlowTasks::of(&replays);
        Ok(PipelinedBasis { replays, at_median_ns, even_ns, first_cause: OnceLock::new() })
    }

    /// Returns when each executor that ran tasks arrived, and its slots, ordered by first task.
    fn executors(&self) -> Vec<(Added, usize)> {
        let mut executors: Vec<(u32, Added, usize)> = Vec::new();
        for slot in &self.replays.schedule.slots {
            match executors.iter_mut().find(|(resource, ..)| *resource == slot.resource) {
                Some((.., slots)) => *slots += 1,
                None => executors.push((slot.resource, slot.added, 1)),
            }
        }
        let capacity = |resource: u32| self.replays.trace.resources[resource as usize].capacity;
        let whole =
            |resource: u32, used: usize| capacity(resource).map_or(used, |c| (c as usize).clamp(used, 4096));
        executors.into_iter().map(|(resource, added, used)| (added, whole(resource, used))).collect()
    }

    /// Returns the analytic time of the stages on this many slots; see the module documentation.
    fn analytic_ms(&self, durations_ns: &[u64], slots: Option<usize>) -> f64 {
        let schedule = &self.replays.schedule;
        let now = slots_of(&self.executors()).len().max(1);
        let of_stage = schedule.by_stage.iter().zip(&schedule.stages).filter_map(|(tasks, place)| {
            let used = place.as_ref()?.lanes.len().max(1);
            let lanes = slots.map_or(used, |slots| (used * slots).div_ceil(now).clamp(1, tasks.len().max(1)));
            let times = tasks.iter().map(|ix| durations_ns[*ix as usize] as f64);
            let longest = times.clone().fold(0.0, f64::max);
            Some((times.sum::<f64>() / lanes as f64).max(longest))
        });
        crate::ms(of_stage.sum())
    }

    fn apply(&self, draft: &mut Draft, change: &Change) -> Result<(), WhatIfError> {
        match change {
            Change::No(part) => self.remove_part(draft, part),
            Change::DiskRate(None, Amount::Times(factor)) => {
                self.change_disk_rate(draft, *factor);
                draft
                    .assumptions
                    .push("all time that tasks may wait for disks scales with the disk rate".into());
                Ok(())
            }
            Change::NetworkRate(Amount::Times(factor)) => {
                self.shorten(draft, |task| Without::Network.blocked_ms(task), 1.0 - 1.0 / factor);
                draft
                    .assumptions
                    .push("all time that tasks wait for shuffle data scales with the link rate".into());
                Ok(())
            }
            Change::Input(InputFrom::Memory) => {
                self.shorten(draft, |task| Without::Input.blocked_ms(task), 1.0);
                draft.assumptions.push("no task waits for input; it is still decoded".into());
                Ok(())
            }
            Change::InputScale(factor) => {
                let grown = |task: &Task, ns: u64| {
                    let fixed = (overhead_ms(task) * 1e6).min(ns as f64);
                    (fixed + (ns as f64 - fixed) * factor) as u64
                };
                for times in draft.times() {
                    times
                        .iter_mut()
                        .zip(&self.replays.tasks.all)
                        .for_each(|(ns, task)| *ns = grown(task, *ns));
                }
                draft
                    .assumptions
                    .push("the number of tasks stays the same; each task's input and run time scale".into());
                draft.uncertainty.1 = draft.uncertainty.1.max(0.2 * (factor.ln()).abs());
                Ok(())
            }
            Change::Executors(amount) => self.change_executors(draft, *amount),
            Change::IdleTimeout(timeout_ns) => self.set_idle_timeout(draft, *timeout_ns),
            Change::ExecutorCores(amount) | Change::Cores(amount) => {
                self.change_cores(draft, *amount, change)
            }
            other => Err(unsupported(other)),
        }
    }

    fn remove_part(&self, draft: &mut Draft, part: &str) -> Result<(), WhatIfError> {
        let without = match part {
            "gc" => Without::Gc,
            "scheduler" => Without::Scheduler,
            "deserialize" => Without::Deserialize,
            "disk" => Without::Disk,
            "network" => Without::Network,
            "stragglers" => {
                return self.replace(
                    draft,
                    &self.at_median_ns,
                    "every task slower than its stage's median rate runs at that rate",
                );
            }
            "skew" => {
                return self.replace(
                    draft,
                    &self.even_ns,
                    "the excess of skewed partitions is spread over their stage's tasks",
                );
            }
            _ => {
                return Err(WhatIfError::Usage(format!(
                    "`no={part}`: an event log supports no=gc, scheduler, deserialize, stragglers, skew, disk or network"
                )));
            }
        };
        if self.replays.tasks.all.iter().all(|t| without.blocked_ms(t).is_none()) {
            return Err(WhatIfError::Usage(format!(
                "`no={part}`: this log does not record how long tasks were blocked on it; supported: {SUPPORTED}"
            )));
        }
        self.shorten(draft, |task| without.blocked_ms(task), 1.0);
        draft.assumptions.push(format!("no task is ever blocked on {part}: the upper bound of fixing it"));
        Ok(())
    }

    fn replace(
        &self,
        draft: &mut Draft,
        replaced: &[(u32, u64)],
        assumption: &str,
    ) -> Result<(), WhatIfError> {
        for times in draft.times() {
            for (ix, ns) in replaced {
                let (now, was) =
                    (times[*ix as usize], self.replays.tasks.all[*ix as usize].duration_ns.max(1));
                times[*ix as usize] = (now as f64 * *ns as f64 / was as f64) as u64;
            }
        }
        draft.assumptions.push(assumption.into());
        Ok(())
    }

    /// Changes the disk rate, as the module documentation describes: between separate waits and a disk
    /// that sets the pace, or by station utilization where a machine's cores are known.
    fn change_disk_rate(&self, draft: &mut Draft, factor: f64) {
        let beside = self.concurrent_tasks();
        let shared = self.shared(&beside, factor);
        let scaled = |ns: u64, to: f64, whole: f64| (ns as f64 * to / whole.max(1e-6)).max(0.0) as u64;
        for (ix, task) in self.replays.tasks.all.iter().enumerate() {
            let Some((sure, most)) = Without::Disk.blocked_ms(task) else { continue };
            let whole = task.duration_ms();
            let group = self.group(task);
            let readers = beside.get(&group).copied().unwrap_or(1);
            let apart = |wait: f64| whole - wait * (1.0 - 1.0 / factor);
            let stretch = |wait: f64, [computing, waits]: [f64; 2]| (whole - wait) * computing + wait * waits;
            let [least, most, likely] = match shared.get(&group) {
                Some([if_sure, if_most]) => {
                    let likely = stretch(most, *if_most);
                    [stretch(sure, *if_sure), likely, likely]
                }
                // Nothing is read ahead for writes.
                None if task.part(Part::Input).is_none() => [apart(sure), apart(most), apart(most)],
                None => {
                    let [most, likely] = paced_ms(whole, overhead_ms(task), most, readers, factor);
                    [apart(sure), most, likely]
                }
            };
            draft.durations_ns[ix] = scaled(draft.durations_ns[ix], likely, whole);
            draft.min_effect_ns[ix] = scaled(draft.min_effect_ns[ix], least, whole);
            draft.max_effect_ns[ix] = scaled(draft.max_effect_ns[ix], most, whole);
        }
        if !shared.is_empty() {
            draft.uncertainty = (draft.uncertainty.0.max(CONTENTION), draft.uncertainty.1.max(CONTENTION));
            draft
                .assumptions
                .push("concurrent tasks share their machine's cores, whose number is in the log".into());
        }
    }

    fn group(&self, task: &Task) -> Group {
        (task.stage, self.replays.trace.resources[task.resource as usize].machine)
    }

    /// Returns how computing and waits stretch for a stage's tasks on machines whose cores are known: for
    /// the certain waits, and for the longest possible ones.
    fn shared(&self, beside: &BTreeMap<Group, usize>, factor: f64) -> BTreeMap<Group, [[f64; 2]; 2]> {
        let mut sums: BTreeMap<Group, (usize, [f64; 3])> = BTreeMap::new();
        for task in &self.replays.tasks.all {
            let group = self.group(task);
            if self.cores(group).is_none() {
                continue;
            }
            let (sure, most) = Without::Disk.blocked_ms(task).unwrap_or_default();
            let (tasks, times) = sums.entry(group).or_default();
            *tasks += 1;
            times.iter_mut().zip([task.duration_ms(), sure, most]).for_each(|(sum, ms)| *sum += ms);
        }
        let both = |(group, (tasks, [whole, sure, most])): (Group, (usize, [f64; 3]))| {
            let cores = self.cores(group)? as usize;
            let at_once = beside.get(&group).copied().unwrap_or(1).min(tasks);
            let stretch =
                |wait: f64| stretched(at_once, cores, crate::ratio(wait, whole).unwrap_or(0.0), factor);
            Some((group, [stretch(sure), stretch(most)]))
        };
        sums.into_iter().filter_map(both).collect()
    }

    /// Returns the cores of a group's machine, if the log gives them.
    fn cores(&self, (_, machine): Group) -> Option<u32> {
        self.replays.trace.machines.get(machine as usize)?.cores
    }

    /// Returns each stage's slots on each machine: tasks that run side by side on its disks.
    fn concurrent_tasks(&self) -> BTreeMap<Group, usize> {
        let schedule = &self.replays.schedule;
        let mut beside = BTreeMap::new();
        for (stage, place) in schedule.stages.iter().enumerate() {
            for lane in place.iter().flat_map(|place| &place.lanes) {
                let resource = schedule.slots[lane.slot as usize].resource as usize;
                *beside.entry((stage as u32, self.replays.trace.resources[resource].machine)).or_insert(0) +=
                    1;
            }
        }
        beside
    }

    /// Removes a share of each task's blocked time from its duration; a negative share adds to it.
    fn shorten(&self, draft: &mut Draft, blocked_ms: impl Fn(&Task) -> Option<(f64, f64)>, share: f64) {
        let less = |ns: u64, ms: f64| (ns as f64 - ms * share * 1e6).max(0.0) as u64;
        for (ix, task) in self.replays.tasks.all.iter().enumerate() {
            let Some((sure, most)) = blocked_ms(task) else { continue };
            draft.durations_ns[ix] = less(draft.durations_ns[ix], most);
            draft.max_effect_ns[ix] = less(draft.max_effect_ns[ix], most);
            draft.min_effect_ns[ix] = less(draft.min_effect_ns[ix], sure);
        }
    }

    fn change_executors(&self, draft: &mut Draft, amount: Amount) -> Result<(), WhatIfError> {
        let now = self.executors();
        let wanted = checked_count("executors", amount.of(Some(now.len() as f64)), 10_000.0)?;
        // Additional executors arrive like the recorded ones, in turn.
        draft.executors = Some((0..wanted).map(|ix| now[ix % now.len()]).collect());
        draft
            .assumptions
            .push(format!("{wanted} executors instead of {}; task durations stay the same", now.len()));
        draft.uncertainty.1 =
            draft.uncertainty.1.max(if wanted > now.len() { MORE_EXECUTORS } else { MORE_EXECUTORS / 2.0 });
        Ok(())
    }

    fn change_cores(&self, draft: &mut Draft, amount: Amount, change: &Change) -> Result<(), WhatIfError> {
        let now = self.executors();
        if matches!(change, Change::Cores(_)) && now.len() > 1 {
            return Err(WhatIfError::Usage(
                "`cores` applies to a single machine; on a cluster set executors or executor.cores".into(),
            ));
        }
        let wanted = |slots: usize| checked_count("executor.cores", amount.of(Some(slots as f64)), 1024.0);
        let executors = draft.executors.get_or_insert_with(|| now.clone());
        for (_, slots) in executors.iter_mut() {
            *slots = wanted(*slots)?;
        }
        let (before, after) = (now[0].1, wanted(now[0].1)?);
        draft
            .assumptions
            .push(format!("{after} slots per executor instead of {before}; task durations stay the same"));
        let more = after > before;
        let (faster, slower) =
            if more { (MORE_CORES / 2.0, MORE_CORES) } else { (MORE_CORES, MORE_CORES / 2.0) };
        draft.uncertainty = (draft.uncertainty.0.max(faster), draft.uncertainty.1.max(slower));
        Ok(())
    }

    /// Removes executors after this idle time and brings them back on demand, or (never) has all of them
    /// from the start.
    fn set_idle_timeout(&self, draft: &mut Draft, timeout_ns: u64) -> Result<(), WhatIfError> {
        if Settings::of(self.replays.trace).local {
            return Err(WhatIfError::Usage(
                "`idle.timeout` needs separate executors; this application's tasks ran in its driver".into(),
            ));
        }
        let executors = draft.executors.get_or_insert_with(|| self.executors());
        draft.idle_timeout_ns = Some(timeout_ns);
        if timeout_ns == NEVER {
            executors.iter_mut().for_each(|(added, _)| *added = None);
            draft.assumptions.push("all executors are present before the first job and stay".into());
            return Ok(());
        }
        let known = allocation::arrival_ns(&self.replays);
        let assumed = if known.is_none() { " (assumed: this log shows no executor arrive)" } else { "" };
        draft.assumptions.push(format!(
            "executors that a stage lacks arrive {:.1} s after its submission{assumed}",
            known.unwrap_or(allocation::ASSUMED_ARRIVAL_NS) as f64 / 1e9
        ));
        let uncertainty = if known.is_some() { MORE_EXECUTORS } else { 2.0 * MORE_EXECUTORS };
        draft.uncertainty =
            (draft.uncertainty.0.max(uncertainty / 2.0), draft.uncertainty.1.max(uncertainty));
        Ok(())
    }

    /// Returns the jobs' time under a draft with these durations, and a description of the slot time
    /// held.
    fn simulated_ms(&self, durations_ns: &[u64], draft: &Draft) -> (f64, Option<String>) {
        let r = &self.replays;
        let Some(executors) = &draft.executors else { return (r.with(durations_ns).jobs_ms(), None) };
        let open = |durations_ns, slots: &[Added], idle| {
            replay(&r.schedule, Replaced { slots: Slots::Open(slots), idle, ..Replaced::of(durations_ns) })
        };
        let idle = draft.idle_timeout_ns.map(|timeout_ns| DynamicAllocation::of(r, executors, timeout_ns));
        let changed = open(durations_ns, &slots_of(executors), idle.as_ref());
        let unchanged = open(&r.tasks.durations_ns(), &slots_of(&self.executors()), None).jobs_ms();
        let ratio = crate::ratio(changed.jobs_ms(), unchanged).unwrap_or(1.0);
        (r.unchanged.jobs_ms() * ratio, idle.map(|_| allocation::describe_held(r, changed.held_ns)))
    }
}

/// Rounds a requested count, and rejects one too large to simulate.
fn checked_count(key: &str, wanted: Option<f64>, max: f64) -> Result<usize, WhatIfError> {
    let whole = wanted.unwrap_or(1.0).round();
    if (1.0..=max).contains(&whole) {
        return Ok(whole as usize);
    }
    Err(WhatIfError::Usage(format!("{key}={whole}: expected a number from 1 to {max}")))
}

/// Returns when each slot of these executors arrives.
fn slots_of(executors: &[(Added, usize)]) -> Vec<Added> {
    executors.iter().flat_map(|(added, slots)| vec![*added; *slots]).collect()
}

impl Draft {
    fn times(&mut self) -> [&mut Vec<u64>; 3] {
        [&mut self.durations_ns, &mut self.min_effect_ns, &mut self.max_effect_ns]
    }
}

/// Returns how long a task of `whole` ms takes with disks of `factor` times the rate: if the disk is
/// always busy, and the likely time with this many `readers`, itself included. The task waited `most` ms
/// for the disk and had `fixed` ms of overhead.
fn paced_ms(whole: f64, fixed: f64, most: f64, readers: usize, factor: f64) -> [f64; 2] {
    let apart = whole - most * (1.0 - 1.0 / factor);
    let body = (whole - fixed).max(0.0);
    let together = whole - body + (body / factor).max(body - most);
    let waits = (most / whole.max(1e-6)).clamp(0.0, 1.0);
    let busy = 1.0 - (1.0 - waits).powi(readers.clamp(1, 1000) as i32);
    [together, busy * together + (1.0 - busy) * apart]
}

fn unsupported(change: &Change) -> WhatIfError {
    WhatIfError::Usage(match change {
        Change::DiskRate(..) | Change::NetworkRate(_) => {
            "an event log does not record the rates of disks and links; set disk.rate or network.rate relative to now, for example x2".into()
        }
        Change::Machines(_) => "an event log records executors, not machines; set executors".into(),
        _ => format!("an event log does not support this change; supported: {SUPPORTED}"),
    })
}

impl Basis for PipelinedBasis<'_> {
    fn tasks(&self) -> Kind {
        Kind::Pipelined
    }

    fn baseline(&self) -> Baseline {
        Baseline {
            measured_ms: self.replays.measured_ms,
            modelled_ms: Some(self.analytic_ms(&self.replays.tasks.durations_ns(), None))
                .filter(|ms| *ms > 0.0),
            simulated_ms: Some(self.replays.unchanged.jobs_ms()),
        }
    }

    fn bottleneck(&self) -> Option<Bottleneck> {
        let blocked = blocked(self.replays.tasks.all.iter());
        limit(Some(&blocked), self.first_cause().as_ref())
    }

    fn first_cause(&self) -> Option<Cause> {
        self.first_cause.get_or_init(|| crate::analyze(self.replays.trace).first_cause()).clone()
    }

    /// Returns the relative standard error of the sum of task times. It falls with the number of tasks.
    /// The median absolute deviation is used, so that stragglers and skew do not count as chance.
    fn spread(&self) -> f64 {
        let (mut variance, mut total) = (0.0, 0.0);
        for tasks in &self.replays.schedule.by_stage {
            let times: Vec<f64> =
                tasks.iter().map(|ix| self.replays.tasks.all[*ix as usize].duration_ms()).collect();
            total += times.iter().sum::<f64>();
            let Some(usual) = median(times.clone()) else { continue };
            let deviation = median(times.iter().map(|ms| (ms - usual).abs()).collect()).unwrap_or(0.0);
            variance += times.len() as f64 * (DEVIATION * deviation).powi(2);
        }
        crate::ratio(variance.sqrt(), total).unwrap_or(0.0)
    }

    fn estimate(&self, changes: &Changes) -> Result<Estimate, WhatIfError> {
        let durations_ns = self.replays.tasks.durations_ns();
        let mut draft = Draft {
            min_effect_ns: durations_ns.clone(),
            max_effect_ns: durations_ns.clone(),
            durations_ns,
            executors: None,
            idle_timeout_ns: None,
            assumptions: vec!["the driver's time and the gaps between stages stay the same".into()],
            uncertainty: (0.0, 0.0),
        };
        let trace = self.replays.trace;
        let failed = trace.job_ends.iter().filter(|end| end.outcome != Outcome::Ok).count();
        if failed > 0 {
            draft
                .assumptions
                .push(format!("{failed} jobs that failed or were cancelled repeat the same work"));
        }
        if trace.truncated.is_some() {
            draft.assumptions.push("the log is incomplete: only the recorded part is predicted".into());
        }
        changes.iter().try_for_each(|change| self.apply(&mut draft, change))?;
        let (simulated, held) = self.simulated_ms(&draft.durations_ns, &draft);
        draft.assumptions.extend(held);
        let slots = draft.executors.as_deref().map(|executors| slots_of(executors).len());
        let mut bounded = false;
        for end_ns in [&draft.min_effect_ns, &draft.max_effect_ns] {
            if *end_ns == draft.durations_ns {
                continue;
            }
            bounded = true;
            let (end, _) = self.simulated_ms(end_ns, &draft);
            // `uncertainty` is the logarithm of the error factor; see `interval`.
            let off = crate::ratio(end, simulated).filter(|r| *r > 0.0).map_or(0.0, f64::ln);
            match off >= 0.0 {
                true => draft.uncertainty.1 += off,
                false => draft.uncertainty.0 -= off,
            }
        }
        if bounded {
            draft.assumptions.push(
                "Spark does not record all of these waits; the prediction uses their upper bounds".into(),
            );
        }
        Ok(Estimate {
            analytic_ms: Some(self.analytic_ms(&draft.durations_ns, slots)),
            simulated_ms: Some(simulated),
            bottleneck: limit_after(&self.replays.tasks.all, self.first_cause(), changes),
            assumptions: draft.assumptions,
            uncertainty: draft.uncertainty,
        })
    }

    fn singles(&self) -> Vec<String> {
        let trace = self.replays.trace;
        let local = Settings::of(trace).local;
        // More capacity does not fix an application that failed.
        let failed = failed(trace);
        let slots: &[&str] = match (failed, local) {
            (true, _) => &[],
            (false, true) => &["cores=x2"],
            (false, false) => &["executors=x2", "executor.cores=x2"],
        };
        let any = |without: Without| {
            self.replays.tasks.all.iter().any(|t| without.blocked_ms(t).is_some_and(|b| b.1 > 0.0))
        };
        let rates = [
            ("disk.rate=x2", Without::Disk),
            ("network.rate=x2", Without::Network),
            ("input=memory", Without::Input),
            ("no=gc", Without::Gc),
            ("no=scheduler", Without::Scheduler),
            ("no=deserialize", Without::Deserialize),
            ("no=disk", Without::Disk),
            ("no=network", Without::Network),
        ];
        let rates = rates.into_iter().filter(|(_, without)| any(*without)).map(|(setting, _)| setting);
        let late = (!local && !failed && allocation::arrival_ns(&self.replays).is_some_and(|ns| ns > 0))
            .then_some("idle.timeout=never");
        let tasks = [("no=stragglers", &self.at_median_ns), ("no=skew", &self.even_ns)];
        let tasks = tasks.into_iter().filter(|(_, changed)| !changed.is_empty()).map(|(setting, _)| setting);
        slots.iter().copied().chain(late).chain(rates).chain(tasks).map(str::to_owned).collect()
    }
}
