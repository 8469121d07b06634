//! Stragglers and their causes (blocked-time-nsdi15 §5.1, §5.3).
//!
//! A task's inverse progress rate is its time over what it read: bytes where every
//! task's are known and trusted, else records, else 1 (then it is the time alone). A
//! straggler's is over 1.5 times its stage's median. A part of the time is a cause
//! if, once it is taken away from all tasks of the stage, the task is no straggler. Output skew, being
//! first on an executor, failures and slow machines are told by the rules in [`Causes`]. Several may hold.
//!
//! Only tasks that ended well are judged: what failed has its own cause. A task that
//! read nothing in a stage where others did has no progress rate, and is judged by its time.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

use super::schedule::Schedule;
use super::task::{Part, Task};
use crate::analysis::{Denominator, StragglerTask, Stragglers};

/// Times the median above which a task is a straggler.
pub(crate) const STRAGGLES: f64 = 1.5;
/// Tasks of a machine below which it is not called slow.
const ENOUGH: usize = 5;
/// Stragglers of a stage that are named.
const NAMED: usize = 5;

/// Parts of time that can be a cause, by the cause's name.
const PARTS: [(&str, &[Part]); 6] = [
    ("scheduler", &[Part::Scheduler]),
    ("input_read", &[Part::Input]),
    ("shuffle_read", &[Part::Fetch, Part::ShuffleRead]),
    ("shuffle_write", &[Part::ShuffleWrite, Part::Spill]),
    ("output_write", &[Part::Output]),
    ("gc", &[Part::Gc]),
];

/// A stage's tasks, judged.
#[derive(Debug)]
pub(crate) struct Judged {
    pub stragglers: Stragglers,
    /// Index of each task that is slower than the median rate, and how long it takes at that rate (§5.1).
    pub at_median_ns: Vec<(u32, u64)>,
    /// Stragglers that nothing inherent explains: neither their output nor being first. The same pairs.
    pub avoidable_ns: Vec<(u32, u64)>,
}

/// One judged task.
#[derive(Debug, Clone, Copy)]
struct Rated<'t> {
    ix: u32,
    task: &'t Task,
    read: f64,
}

impl Rated<'_> {
    fn rate(&self, ms: f64) -> f64 {
        ms / self.read
    }
}

/// Judges the tasks of one stage; `slow` are the machines found slow ([`slow_machines`]).
pub(crate) fn judge(
    trace: &Trace,
    all: &[Task],
    schedule: &Schedule,
    of_stage: &[u32],
    slow: &[bool],
) -> Option<Judged> {
    let ended: Vec<u32> = of_stage.iter().copied().filter(|ix| all[*ix as usize].ok()).collect();
    if ended.len() < 2 {
        return None;
    }
    let (denominator, rated) = rate(all, &ended);
    let rates: Vec<f64> = rated.iter().map(|r| r.rate(r.task.duration_ms())).collect();
    let median = median(rates.clone())?;
    let at_median = |r: &Rated| (r.ix, (median * r.read * 1e6) as u64);
    let slower = rated.iter().zip(&rates).filter(|(_, rate)| **rate > median);
    let at_median_ns = slower.map(|(r, _)| at_median(r)).collect();
    let straggles: Vec<usize> = (0..rated.len()).filter(|ix| rates[*ix] > STRAGGLES * median).collect();
    let mut causes = Causes::of(trace, all, of_stage, &rated, slow);
    causes.first_task(all, schedule, of_stage, &rated, &rates);
    let mut out = Stragglers { count: straggles.len() as u64, denominator, ..Stragglers::default() };
    out.causes = causes.known.iter().map(|(name, known)| (*name, known.then_some(0))).collect();
    let mut avoidable_ns = Vec::new();
    for ix in straggles {
        let found = causes.of_task(ix);
        for cause in &found {
            match cause.at_most {
                true => *out.at_most.entry(cause.name).or_default() += 1,
                false => *out.causes.entry(cause.name).or_default().get_or_insert(0) += 1,
            }
        }
        let unexplained = found.iter().all(|cause| cause.at_most);
        *out.causes.entry("unexplained").or_insert(Some(0)).get_or_insert(0) += u64::from(unexplained);
        if !found.iter().any(|cause| matches!(cause.name, "output_skew" | "first_task")) {
            avoidable_ns.push(at_median(&rated[ix]));
        }
        let task = rated[ix].task;
        out.tasks.push(StragglerTask {
            partition: task.partition,
            attempt: task.attempt,
            executor: trace.resources[task.resource as usize].name.clone(),
            duration_ms: task.duration_ms(),
            times_median: rates[ix] / median,
            causes: found.into_iter().map(|cause| cause.name).collect(),
        });
    }
    out.tasks.sort_by(|a, b| b.duration_ms.total_cmp(&a.duration_ms));
    out.tasks.truncate(NAMED);
    Some(Judged { stragglers: out, at_median_ns, avoidable_ns })
}

/// What each task read, by the best measure that all have.
fn rate<'t>(all: &'t [Task], ended: &[u32]) -> (Denominator, Vec<Rated<'t>>) {
    let tasks = || ended.iter().map(|ix| &all[*ix as usize]);
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
        let task = &all[*ix as usize];
        Rated { ix: *ix, task, read: read(task).unwrap_or(1.0) }
    });
    (denominator, rated.collect())
}

/// A cause of one straggler.
#[derive(Debug, Clone, Copy)]
struct Found {
    name: &'static str,
    /// Its part is only bounded: it may be the cause.
    at_most: bool,
}

/// Which tasks of a stage would be stragglers for which reason.
struct Causes {
    /// By task: the causes that hold for it, should it be a straggler.
    by_task: Vec<Vec<Found>>,
    known: BTreeMap<&'static str, bool>,
}

impl Causes {
    fn of(trace: &Trace, all: &[Task], of_stage: &[u32], rated: &[Rated], slow: &[bool]) -> Causes {
        let mut causes = Causes { by_task: vec![Vec::new(); rated.len()], known: BTreeMap::new() };
        for (name, parts) in PARTS {
            causes.without(name, parts, rated);
        }
        causes.output_skew(rated);
        let failed: Vec<u32> =
            of_stage.iter().map(|ix| &all[*ix as usize]).filter(|t| !t.ok()).map(|t| t.partition).collect();
        causes.add("failure", true, |ix| {
            rated[ix].task.attempt > 0 || failed.contains(&rated[ix].task.partition)
        });
        let machine = |task: &Task| trace.resources[task.resource as usize].machine as usize;
        let several = slow.len() > 1;
        causes.add("slow_machine", several, |ix| slow.get(machine(rated[ix].task)).copied().unwrap_or(false));
        causes
    }

    fn of_task(&self, ix: usize) -> Vec<Found> {
        self.by_task[ix].clone()
    }

    fn add(&mut self, name: &'static str, known: bool, holds: impl Fn(usize) -> bool) {
        self.known.insert(name, known);
        for (ix, found) in self.by_task.iter_mut().enumerate() {
            if known && holds(ix) {
                found.push(Found { name, at_most: false });
            }
        }
    }

    /// A straggler that is none once the parts are taken away from all.
    fn without(&mut self, name: &'static str, parts: &[Part], rated: &[Rated]) {
        let measures = |task: &Task| parts.iter().filter_map(|p| task.part(*p)).collect::<Vec<_>>();
        let known = rated.iter().any(|r| !measures(r.task).is_empty());
        let measured = rated.iter().any(|r| measures(r.task).iter().any(|m| !m.at_most));
        self.known.insert(name, measured);
        if !known {
            return;
        }
        let left =
            |r: &Rated| (r.task.duration_ms() - measures(r.task).iter().map(|m| m.ms).sum::<f64>()).max(0.0);
        let rates: Vec<f64> = rated.iter().map(|r| r.rate(left(r))).collect();
        let Some(median) = median(rates.clone()) else { return };
        for (found, rate) in self.by_task.iter_mut().zip(rates) {
            if rate <= STRAGGLES * median {
                found.push(Found { name, at_most: !measured });
            }
        }
    }

    /// A straggler by what it read, but not by what it wrote.
    fn output_skew(&mut self, rated: &[Rated]) {
        let written: Option<Vec<f64>> = rated
            .iter()
            .map(|r| Some(r.task.duration_ms() / r.task.out_bytes().filter(|b| *b > 0.0)?))
            .collect();
        let median = written.clone().and_then(median);
        self.add("output_skew", written.is_some(), |ix| {
            written.as_ref().zip(median).is_some_and(|(rates, median)| rates[ix] <= STRAGGLES * median)
        });
    }

    /// Began before any other task of the stage had ended on its executor, and straggles not among such.
    fn first_task(
        &mut self,
        all: &[Task],
        schedule: &Schedule,
        of_stage: &[u32],
        rated: &[Rated],
        rates: &[f64],
    ) {
        let mut first_end: BTreeMap<u32, u64> = BTreeMap::new();
        for ix in of_stage {
            let task = &all[*ix as usize];
            // Ends are written down late: it had ended when its slot was given away.
            let ended = task.ended_ns().saturating_sub(u64::from(schedule.tasks[*ix as usize].early_ns));
            let end = first_end.entry(task.resource).or_insert(u64::MAX);
            *end = (*end).min(ended);
        }
        let is_first = |ix: usize| {
            first_end.get(&rated[ix].task.resource).is_some_and(|end| rated[ix].task.launched_ns < *end)
        };
        let of_first = (0..rated.len()).filter(|ix| is_first(*ix)).map(|ix| rates[ix]);
        let median = median(of_first.collect());
        self.add("first_task", true, |ix| is_first(ix) && median.is_some_and(|m| rates[ix] <= STRAGGLES * m));
    }
}

/// By machine: whether its tasks take over 1.5 times as long as those of the others, stage by stage.
pub(crate) fn slow_machines(trace: &Trace, all: &[Task], by_stage: &[Vec<u32>]) -> Vec<bool> {
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); trace.machines.len()];
    if ratios.len() > 1 {
        for of_stage in by_stage {
            let ended: Vec<u32> = of_stage.iter().copied().filter(|ix| all[*ix as usize].ok()).collect();
            let (_, rated) = rate(all, &ended);
            let rates: Vec<f64> = rated.iter().map(|r| r.rate(r.task.duration_ms())).collect();
            let Some(median) = median(rates.clone()).filter(|m| *m > 0.0) else { continue };
            for (rated, rate) in rated.iter().zip(rates) {
                let machine = trace.resources[rated.task.resource as usize].machine as usize;
                ratios.get_mut(machine).into_iter().for_each(|of| of.push(rate / median));
            }
        }
    }
    let medians: Vec<Option<f64>> =
        ratios.into_iter().map(|of| median(of.clone()).filter(|_| of.len() >= ENOUGH)).collect();
    let typical = median(medians.iter().flatten().copied().collect());
    medians.iter().map(|m| m.zip(typical).is_some_and(|(m, typical)| m > STRAGGLES * typical)).collect()
}

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(if values.len() % 2 == 1 { upper } else { (lower + upper) / 2.0 })
}
