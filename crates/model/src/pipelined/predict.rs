//! What-ifs from pipelined tasks: other executors, faster disks or links, a part of the time gone.
//!
//! The simulated predictor replays the tasks with other times or on other slots. What is known of a
//! task is how long it stalled, so that is what a faster resource shortens; its computing stays
//! (DESIGN: blocked parts scale, computing does not). A wait that is only bounded is taken as
//! long as it can be: that is the best that the change can do, and the doubt reaches down to nothing gained.
//! On other executors every stage may use every slot, on either side of the ratio.
//!
//! A disk that several tasks read from is the exception. The kernel reads ahead while they compute, so
//! that a disk which is always busy sets their pace: at twice its rate they take half as long, or what
//! they compute, whichever is longer, and not their computing plus half of their wait. How busy
//! it is follows from the waits: it rests only while none of the tasks beside each other waits. Between the
//! two laws the prediction is the mean, by that share ([`paced_ms`]). Where the log says how many cores a machine has
//! (the plugin's does), its tasks compute no faster than those can: see [`stretched`].
//!
//! The analytic predictor adds up, stage by stage, the tasks' time over the slots, or the longest
//! task where that is longer. It sees no waves, no gaps and no overlap of stages.
//!
//! Not answered: what changes the number or the size of tasks (`partitions`), and rates in
//! bytes a second, since a log does not say what the present rate is.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pellucid_trace::{Outcome, Trace};

use super::Judgement;
use super::allocation::{self, Idle, NEVER};
use super::blocked::{Without, overhead_ms};
use super::bounds::Replays;
use super::contention::stretched;
use super::limit::{limit, limit_after};
use super::replay::{Change as Replaced, Slots, replay};
use super::settings::Settings;
use super::straggler::median;
use super::task::{Part, Task};
use crate::analysis::{Bottleneck, Cause};
use crate::whatif::{Amount, Baseline, Basis, Change, Changes, Estimate, InputFrom, Refused, Tasks as Kind};

/// Doubt that tasks take as long on more executors: more of the shuffle crosses the network.
const MORE_EXECUTORS: f64 = 0.1;
/// Doubt that they take as long beside more others in one executor: cores, memory and heap are shared. And half
/// of it that the JVM's own threads, which compile and collect, take as much from the tasks on fewer cores.
const MORE_CORES: f64 = 0.15;
/// Doubt that a machine's cores and disks are two stations of exponential service, and several disks one.
const SHARED: f64 = 0.1;

/// Standard deviations in a median deviation, of what is spread normally.
const DEVIATION: f64 = 1.4826;
/// The keys that an event log answers.
const ANSWERED: &str = "executors, executor.cores, cores (local mode), idle.timeout, disk.rate and network.rate relative to now (x2), \
                        input=memory, input.scale, and no=gc, scheduler, deserialize, stragglers, skew, disk or network";

/// Tasks beside each other: their stage and machine.
type Group = (u32, u32);
/// When the executor of a slot comes: as `replay` takes it.
type Added = Option<(u32, u64)>;

/// The basis of what-ifs on a trace of pipelined tasks.
pub(crate) struct PipelinedBasis<'t> {
    replays: Replays<'t>,
    at_median_ns: Vec<(u32, u64)>,
    even_ns: Vec<(u32, u64)>,
    /// Made when it is first asked for: it takes an analysis.
    first_cause: OnceLock<Option<Cause>>,
}

/// A changed job before it is replayed.
struct Draft {
    durations_ns: Vec<u64>,
    /// The same with the least that the changes may do, and with the most.
    least_ns: Vec<u64>,
    most_ns: Vec<u64>,
    /// Executors that are not as they were: when each comes, and its slots.
    executors: Option<Vec<(Added, usize)>>,
    /// An executor goes when it was idle for so long.
    idle_timeout_ns: Option<u64>,
    assumptions: Vec<String>,
    doubt: (f64, f64),
}

impl<'t> PipelinedBasis<'t> {
    /// Reads a trace and replays it once.
    ///
    /// # Errors
    /// When no job of it took any time.
    pub fn of(trace: &'t Trace) -> Result<PipelinedBasis<'t>, Refused> {
        let replays = Replays::of(trace);
        if replays.error().is_none() || replays.tasks.all.is_empty() {
            return Err(Refused::Failed(
                "the log holds no job that ran tasks, so that there is nothing to predict from".into(),
            ));
        }
        let Judgement { at_median_ns, even_ns, .. } = Judgement::of(&replays);
        Ok(PipelinedBasis { replays, at_median_ns, even_ns, first_cause: OnceLock::new() })
    }

    /// Slots of each executor that ran tasks, and when it came; in the order of their first task.
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

    /// Time over all stages of the tasks on so many slots, as the module's head says.
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

    fn apply(&self, draft: &mut Draft, change: &Change) -> Result<(), Refused> {
        match change {
            Change::No(part) => self.take_away(draft, part),
            Change::DiskRate(None, Amount::Times(factor)) => {
                self.disks_become(draft, *factor);
                draft.assumptions.push("all that tasks may wait for disks scales with their rate".into());
                Ok(())
            }
            Change::NetworkRate(Amount::Times(factor)) => {
                self.shorten(draft, |task| Without::Network.blocked_ms(task), 1.0 - 1.0 / factor);
                draft
                    .assumptions
                    .push("all that tasks wait for shuffle data scales with the links' rate".into());
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
                    .push("as many tasks, each with so many times its input and its run time".into());
                draft.doubt.1 = draft.doubt.1.max(0.2 * (factor.ln()).abs());
                Ok(())
            }
            Change::Executors(amount) => self.executors_become(draft, *amount),
            Change::IdleTimeout(timeout_ns) => self.let_go(draft, *timeout_ns),
            Change::ExecutorCores(amount) | Change::Cores(amount) => {
                self.cores_become(draft, *amount, change)
            }
            other => Err(refused(other)),
        }
    }

    fn take_away(&self, draft: &mut Draft, part: &str) -> Result<(), Refused> {
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
                    "every task that is slower than its stage's median rate has that rate",
                );
            }
            "skew" => {
                return self.replace(
                    draft,
                    &self.even_ns,
                    "what skewed partitions have in excess is spread over their stage's tasks",
                );
            }
            _ => {
                return Err(Refused::Usage(format!(
                    "`no={part}`: an event log answers no=gc, scheduler, deserialize, stragglers, skew, disk or network"
                )));
            }
        };
        if self.replays.tasks.all.iter().all(|t| without.blocked_ms(t).is_none()) {
            return Err(Refused::Usage(format!(
                "`no={part}`: this log does not say how long tasks were blocked on it; it answers {ANSWERED}"
            )));
        }
        self.shorten(draft, |task| without.blocked_ms(task), 1.0);
        draft.assumptions.push(format!("no task is ever blocked on {part}: the upper bound of fixing it"));
        Ok(())
    }

    fn replace(&self, draft: &mut Draft, replaced: &[(u32, u64)], assumption: &str) -> Result<(), Refused> {
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

    /// As the module's head says: between computing apart from reading, and a disk that sets the pace; by what
    /// stations are busy where a machine's cores are known.
    fn disks_become(&self, draft: &mut Draft, factor: f64) {
        let beside = self.beside();
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
                // Nothing is read ahead of what is written.
                None if task.part(Part::Input).is_none() => [apart(sure), apart(most), apart(most)],
                None => {
                    let [most, likely] = paced_ms(whole, overhead_ms(task), most, readers, factor);
                    [apart(sure), most, likely]
                }
            };
            draft.durations_ns[ix] = scaled(draft.durations_ns[ix], likely, whole);
            draft.least_ns[ix] = scaled(draft.least_ns[ix], least, whole);
            draft.most_ns[ix] = scaled(draft.most_ns[ix], most, whole);
        }
        if !shared.is_empty() {
            draft.doubt = (draft.doubt.0.max(SHARED), draft.doubt.1.max(SHARED));
            draft
                .assumptions
                .push("tasks beside each other share their machine's cores, as many as its log says".into());
        }
    }

    fn group(&self, task: &Task) -> Group {
        (task.stage, self.replays.trace.resources[task.resource as usize].machine)
    }

    /// How computing and waits of a stage's tasks stretch on machines whose cores are known: if they wait as long as is
    /// sure, and as long as may be.
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

    /// Of its machine, where the log says it.
    fn cores(&self, (_, machine): Group) -> Option<u32> {
        self.replays.trace.machines.get(machine as usize)?.cores
    }

    /// Slots of a stage on one machine: tasks that run beside each other on its disks.
    fn beside(&self) -> BTreeMap<Group, usize> {
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

    /// Takes a share of what each task is blocked for from its time; negative: adds it.
    fn shorten(&self, draft: &mut Draft, blocked_ms: impl Fn(&Task) -> Option<(f64, f64)>, share: f64) {
        let less = |ns: u64, ms: f64| (ns as f64 - ms * share * 1e6).max(0.0) as u64;
        for (ix, task) in self.replays.tasks.all.iter().enumerate() {
            let Some((sure, most)) = blocked_ms(task) else { continue };
            draft.durations_ns[ix] = less(draft.durations_ns[ix], most);
            draft.most_ns[ix] = less(draft.most_ns[ix], most);
            draft.least_ns[ix] = less(draft.least_ns[ix], sure);
        }
    }

    fn executors_become(&self, draft: &mut Draft, amount: Amount) -> Result<(), Refused> {
        let now = self.executors();
        let wanted = within("executors", amount.of(Some(now.len() as f64)), 10_000.0)?;
        // More of them come as those that there are did, in turn.
        draft.executors = Some((0..wanted).map(|ix| now[ix % now.len()]).collect());
        draft
            .assumptions
            .push(format!("{wanted} executors instead of {}; tasks take as long on them", now.len()));
        draft.doubt.1 =
            draft.doubt.1.max(if wanted > now.len() { MORE_EXECUTORS } else { MORE_EXECUTORS / 2.0 });
        Ok(())
    }

    fn cores_become(&self, draft: &mut Draft, amount: Amount, change: &Change) -> Result<(), Refused> {
        let now = self.executors();
        if matches!(change, Change::Cores(_)) && now.len() > 1 {
            return Err(Refused::Usage(
                "`cores` is of one machine: on a cluster set executors or executor.cores".into(),
            ));
        }
        let wanted = |slots: usize| within("executor.cores", amount.of(Some(slots as f64)), 1024.0);
        let executors = draft.executors.get_or_insert_with(|| now.clone());
        for (_, slots) in executors.iter_mut() {
            *slots = wanted(*slots)?;
        }
        let (before, after) = (now[0].1, wanted(now[0].1)?);
        draft.assumptions.push(format!(
            "{after} slots an executor instead of {before}; tasks take as long beside so many"
        ));
        let more = after > before;
        let (faster, slower) =
            if more { (MORE_CORES / 2.0, MORE_CORES) } else { (MORE_CORES, MORE_CORES / 2.0) };
        draft.doubt = (draft.doubt.0.max(faster), draft.doubt.1.max(slower));
        Ok(())
    }

    /// Executors go when they were idle for so long, and come back; or all are there from the beginning.
    fn let_go(&self, draft: &mut Draft, timeout_ns: u64) -> Result<(), Refused> {
        if Settings::of(self.replays.trace).local {
            return Err(Refused::Usage(
                "`idle.timeout` is of executors that come and go; this application's tasks ran in its driver"
                    .into(),
            ));
        }
        let executors = draft.executors.get_or_insert_with(|| self.executors());
        draft.idle_timeout_ns = Some(timeout_ns);
        if timeout_ns == NEVER {
            executors.iter_mut().for_each(|(added, _)| *added = None);
            draft.assumptions.push("all executors are there before the first job, and stay".into());
            return Ok(());
        }
        let known = allocation::arrival_ns(&self.replays);
        let assumed = if known.is_none() { ", which is assumed: this log shows none come" } else { "" };
        draft.assumptions.push(format!(
            "executors that a stage lacks come {:.1} s after its submission{assumed}",
            known.unwrap_or(allocation::ASSUMED_ARRIVAL_NS) as f64 / 1e9
        ));
        let doubt = if known.is_some() { MORE_EXECUTORS } else { 2.0 * MORE_EXECUTORS };
        draft.doubt = (draft.doubt.0.max(doubt / 2.0), draft.doubt.1.max(doubt));
        Ok(())
    }

    /// The jobs' time under a draft with these times of its tasks, and what executors were held for.
    fn simulated_ms(&self, durations_ns: &[u64], draft: &Draft) -> (f64, Option<String>) {
        let r = &self.replays;
        let Some(executors) = &draft.executors else { return (r.with(durations_ns).jobs_ms(), None) };
        let open = |durations_ns, slots: &[Added], idle| {
            replay(&r.schedule, Replaced { slots: Slots::Open(slots), idle, ..Replaced::of(durations_ns) })
        };
        let idle = draft.idle_timeout_ns.map(|timeout_ns| Idle::of(r, executors, timeout_ns));
        let changed = open(durations_ns, &slots_of(executors), idle.as_ref());
        let unchanged = open(&r.tasks.durations_ns(), &slots_of(&self.executors()), None).jobs_ms();
        let ratio = crate::ratio(changed.jobs_ms(), unchanged).unwrap_or(1.0);
        (r.unchanged.jobs_ms() * ratio, idle.map(|_| allocation::held(r, changed.held_ns)))
    }
}

/// When each slot of these executors comes.
/// A whole number of them, if as many can be simulated.
fn within(key: &str, wanted: Option<f64>, most: f64) -> Result<usize, Refused> {
    let whole = wanted.unwrap_or(1.0).round();
    if (1.0..=most).contains(&whole) {
        return Ok(whole as usize);
    }
    Err(Refused::Usage(format!("{key}={whole}: 1 to {most} are simulated")))
}

fn slots_of(executors: &[(Added, usize)]) -> Vec<Added> {
    executors.iter().flat_map(|(added, slots)| vec![*added; *slots]).collect()
}

impl Draft {
    fn times(&mut self) -> [&mut Vec<u64>; 3] {
        [&mut self.durations_ns, &mut self.least_ns, &mut self.most_ns]
    }
}

/// How long a task of `whole` ms takes on disks of `factor` times the rate, of which it waited `most` and spent
/// `fixed` on being a task: were the disk always busy, and what is likely beside so many `readers`,
/// itself included.
fn paced_ms(whole: f64, fixed: f64, most: f64, readers: usize, factor: f64) -> [f64; 2] {
    let apart = whole - most * (1.0 - 1.0 / factor);
    let body = (whole - fixed).max(0.0);
    let together = whole - body + (body / factor).max(body - most);
    let waits = (most / whole.max(1e-6)).clamp(0.0, 1.0);
    let busy = 1.0 - (1.0 - waits).powi(readers.clamp(1, 1000) as i32);
    [together, busy * together + (1.0 - busy) * apart]
}

fn refused(change: &Change) -> Refused {
    Refused::Usage(match change {
        Change::DiskRate(..) | Change::NetworkRate(_) => {
            "an event log does not say how fast disks and links are: set disk.rate or network.rate relative to now, for example x2".into()
        }
        Change::Machines(_) => "an event log knows executors, not machines: set executors".into(),
        _ => format!("an event log cannot answer this; it answers {ANSWERED}"),
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
        let blocked = super::blocked::blocked(self.replays.tasks.all.iter());
        limit(Some(&blocked), self.first_cause().as_ref())
    }

    fn first_cause(&self) -> Option<Cause> {
        self.first_cause.get_or_init(|| crate::analyze(self.replays.trace).first_cause()).clone()
    }

    /// Tasks of one stage differ by chance as much as most of them differ: the more there are, the less
    /// their sum does. The median deviation, so that stragglers and skew do not count as chance.
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

    fn estimate(&self, changes: &Changes) -> Result<Estimate, Refused> {
        let durations_ns = self.replays.tasks.durations_ns();
        let mut draft = Draft {
            least_ns: durations_ns.clone(),
            most_ns: durations_ns.clone(),
            durations_ns,
            executors: None,
            idle_timeout_ns: None,
            assumptions: vec!["the driver's own time and the gaps between stages stay as they were".into()],
            doubt: (0.0, 0.0),
        };
        let trace = self.replays.trace;
        let failed = trace.job_ends.iter().filter(|end| end.outcome != Outcome::Ok).count();
        if failed > 0 {
            draft
                .assumptions
                .push(format!("{failed} jobs that did not end well do the same work as they did"));
        }
        if trace.truncated.is_some() {
            draft.assumptions.push("the log has no end: only what it holds is predicted".into());
        }
        changes.iter().try_for_each(|change| self.apply(&mut draft, change))?;
        let (simulated, held) = self.simulated_ms(&draft.durations_ns, &draft);
        draft.assumptions.extend(held);
        let slots = draft.executors.as_deref().map(|executors| slots_of(executors).len());
        let mut bounded = false;
        for end_ns in [&draft.least_ns, &draft.most_ns] {
            if *end_ns == draft.durations_ns {
                continue;
            }
            bounded = true;
            let (end, _) = self.simulated_ms(end_ns, &draft);
            // Doubt is a logarithm of how far off: see the interval.
            let off = crate::ratio(end, simulated).filter(|r| *r > 0.0).map_or(0.0, f64::ln);
            match off >= 0.0 {
                true => draft.doubt.1 += off,
                false => draft.doubt.0 -= off,
            }
        }
        if bounded {
            draft.assumptions.push(
                "Spark does not record all of these waits: they are taken as long as they can be".into(),
            );
        }
        Ok(Estimate {
            analytic_ms: Some(self.analytic_ms(&draft.durations_ns, slots)),
            simulated_ms: Some(simulated),
            bottleneck: limit_after(&self.replays.tasks.all, self.first_cause(), changes),
            assumptions: draft.assumptions,
            doubt: draft.doubt,
        })
    }

    fn singles(&self) -> Vec<String> {
        let trace = self.replays.trace;
        let local = Settings::of(trace).local;
        // More capacity does not mend an application that failed.
        let failed = super::failed(trace);
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
