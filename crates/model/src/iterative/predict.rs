//! What-ifs on iterative jobs: more or fewer workers.
//!
//! A stage's run is a task a partition, each as long as that partition's tasks were on average. The analytic
//! predictor divides a stage's time by the workers that can have a task. The simulated one takes stages that ran as
//! often as each other for the body of a loop, whose end is a signal that all wait for. Within a body a task begins
//! when its inputs are there and a worker is free: its inputs are the partitions of the stage before that cover the
//! same share of the data, which is right for transforms, broadcasts, reductions and exchanges between neighbours.
//! Where every partition sends to every other, it lets tasks begin too early.
//!
//! What lies before the second iteration and is in no task is loading, which workers share; what else is in none stays.
//!
//! Beside more others a task is slower where memory is what it waits for. It demands its bytes over its time; a
//! worker's share of the bandwidth is that of so many threads, as measured, over their number. Where the
//! former is larger than the latter, the task takes as many times longer. One that already took all of its share
//! gets faster beside fewer, in the same ratio.
//!
//! Of links it is known what was sent over them, and not how long that took: on one machine nearly nothing. So another
//! rate adds the time in which the busiest link carries all its bytes, and the interval reaches down to none of it, since
//! what is sent while tasks run takes no time of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use pellucid_trace::{Trace, kind};

use super::{bandwidths, tasks, time_ns, workers};
use crate::analysis::Bottleneck;
use crate::whatif::{Amount, Baseline, Basis, Change, Changes, Estimate, Refused, Tasks, recorded_ns};
use crate::{ms, ratio};

/// Share of a worker's bandwidth from which a task is taken to wait for memory.
const BOUND: f64 = 0.85;
/// Doubt where it is not known how fast so many threads read memory.
const UNKNOWN_MEMORY: f64 = 0.15;
/// By how much numbers of runs may differ within a loop's body.
const SAME_RUNS: f64 = 0.05;
/// Share of all tasks' time up to which a stage is short.
const SHORT: f64 = 0.01;
/// Doubt that loading is shared evenly, as a share of loading in the whole.
const LOADING: f64 = 0.3;

/// A stage over all its runs.
struct Stage {
    /// Tasks over partitions.
    runs: f64,
    /// Mean time of each partition's tasks.
    tasks_ns: Vec<f64>,
    /// Bytes a second that a task demands; `None`: not known.
    bytes_per_s: Option<f64>,
}

impl Stage {
    /// Of all its tasks.
    fn all_ns(&self) -> f64 {
        self.runs * self.tasks_ns.iter().sum::<f64>()
    }
}

/// Stages that follow each other in one loop.
struct Body<'s> {
    /// `None`: not known.
    runs: Option<f64>,
    /// With how often each ran.
    stages: Vec<(&'s Stage, Option<f64>)>,
}

/// The basis of what-ifs on a trace of sampled tasks.
pub(crate) struct IterativeBasis {
    stages: Vec<Stage>,
    workers: u32,
    measured_ns: f64,
    loading_ns: f64,
    /// By number of threads: bytes a second.
    bandwidths: BTreeMap<u32, f64>,
    /// Over the busiest link; `None`: nothing went over any.
    sent_bytes: Option<f64>,
    bottleneck: Option<Bottleneck>,
}

impl IterativeBasis {
    /// Takes a trace apart.
    ///
    /// # Errors
    /// When it does not say how many threads ran its tasks.
    pub fn of(trace: &Trace) -> Result<IterativeBasis, Refused> {
        let workers = workers(trace).ok_or_else(|| {
            Refused::Failed(
                "the trace does not say how many workers ran its tasks; record the job again".into(),
            )
        })?;
        let mut found: BTreeMap<u32, BTreeMap<u32, (f64, f64)>> = BTreeMap::new();
        let mut bytes: BTreeMap<u32, Option<f64>> = BTreeMap::new();
        for task in tasks(trace) {
            let partition = found.entry(task.stage).or_default().entry(task.partition).or_default();
            partition.0 += time_ns(task);
            partition.1 += task.weight;
            let all = bytes.entry(task.stage).or_insert(Some(0.0));
            *all = all.zip(task.bytes).map(|(all, bytes)| all + bytes as f64 * task.weight);
        }
        let stages = found.iter().map(|(ix, partitions)| {
            let time: f64 = partitions.values().map(|(ns, _)| ns).sum();
            let count: f64 = partitions.values().map(|(_, count)| count).sum();
            let planned = trace.stages[*ix as usize].tasks.map_or(partitions.len(), |tasks| tasks as usize);
            let width = planned.clamp(partitions.len(), 1 << 20);
            let mut tasks_ns: Vec<f64> = partitions.values().map(|(ns, count)| ns / count).collect();
            tasks_ns.resize(width, time / count);
            Stage {
                runs: count / width as f64,
                tasks_ns,
                bytes_per_s: bytes[ix].and_then(|bytes| ratio(bytes * 1e9, time)),
            }
        });
        let analysis = super::analyze(trace);
        let mut basis = IterativeBasis {
            stages: stages.collect(),
            workers,
            measured_ns: recorded_ns(trace) as f64,
            loading_ns: 0.0,
            bandwidths: bandwidths(trace).into_iter().map(|(threads, (_, rate))| (threads, rate)).collect(),
            sent_bytes: sent_bytes(trace),
            bottleneck: analysis.jobs.first().and_then(|job| job.bottleneck.clone()),
        };
        basis.loading_ns = basis.loading(trace);
        Ok(basis)
    }

    /// Time before the second iteration that is in no task.
    fn loading(&self, trace: &Trace) -> f64 {
        let begun = trace.jobs.iter().map(|job| job.submitted_ns).min().unwrap_or(0);
        let second = tasks(trace).filter(|task| task.iteration.is_some_and(|at| at > 0));
        let until = second.map(|task| task.started_ns).min().unwrap_or(u64::MAX);
        let first = tasks(trace).filter(|task| task.started_ns < until);
        let end = first.clone().map(|task| task.started_ns + task.service_ns).max().unwrap_or(begun);
        // A task that stands for others stands for later ones.
        let mut busy: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        first.for_each(|task| busy.entry(task.stage).or_default().push(task.service_ns as f64));
        let busy = divided_ns(&busy.into_values().collect::<Vec<_>>(), self.workers);
        (until.min(end).saturating_sub(begun) as f64 - busy).max(0.0)
    }

    /// Bytes a second that each of so many workers can have, and whether that was measured.
    fn share(&self, workers: u32) -> Option<(f64, bool)> {
        let measured = self.bandwidths.get(&workers).map(|rate| (*rate, true));
        // More threads than were measured have together what the most had; fewer, at most what they had each.
        let more = || self.bandwidths.range(..workers).next_back().map(|(_, rate)| (*rate, false));
        let fewer = || {
            let (threads, rate) = self.bandwidths.range(workers..).next()?;
            Some((rate / f64::from(*threads) * f64::from(workers), false))
        };
        let (rate, measured) = measured.or_else(more).or_else(fewer)?;
        Some((rate / f64::from(workers), measured))
    }

    /// How many times as long a stage's tasks take with so many workers; at most as many as it has tasks compete.
    fn slowdown(&self, stage: &Stage, workers: u32) -> f64 {
        let beside = |workers: u32| workers.min(stage.tasks_ns.len() as u32).max(1);
        let (Some(demand), Some((before, _)), Some((after, _))) =
            (stage.bytes_per_s, self.share(beside(self.workers)), self.share(beside(workers)))
        else {
            return 1.0;
        };
        if beside(workers) < beside(self.workers) && demand > BOUND * before {
            return (before / after).min(1.0);
        }
        // It had what it demanded, whatever was measured.
        (demand.min(before) / after).max(1.0)
    }

    /// Time that a link of so many bytes a second takes for what was sent.
    fn sent_ns(&self, amount: &Amount) -> Result<f64, Refused> {
        let Some(bytes) = self.sent_bytes else {
            return Err(Refused::Usage(
                "network.rate: nothing was sent over a network; record a job over several processes (--processes)".into(),
            ));
        };
        match amount {
            Amount::Absolute(rate) if *rate > 0.0 => Ok(bytes / rate * 1e9),
            _ => Err(Refused::Usage(
                "network.rate: how fast the link is now was not measured; give a rate, such as network.rate=1Gbit/s".into(),
            )),
        }
    }

    /// Stages by the loop's body that they are in: those that ran equally often. Of short stages that is not known, since
    /// few of their tasks are sampled; they are where their neighbours are.
    fn bodies(&self) -> Vec<Body<'_>> {
        let all_ns: f64 = self.stages.iter().map(Stage::all_ns).sum();
        let mut bodies: Vec<Body> = Vec::new();
        for stage in &self.stages {
            let runs = (stage.all_ns() > SHORT * all_ns).then_some(stage.runs);
            let alike = |of: f64| runs.is_none_or(|runs| (runs - of).abs() <= SAME_RUNS * of);
            match bodies.last_mut().filter(|body| body.runs.is_none_or(alike)) {
                Some(body) => {
                    body.runs = body.runs.or(runs);
                    body.stages.push((stage, runs));
                }
                None => bodies.push(Body { runs, stages: vec![(stage, runs)] }),
            }
        }
        bodies
    }

    /// All runs of all stages.
    fn stages_ns(&self, workers: u32, run_ns: RunNs) -> f64 {
        let all = self.bodies().into_iter().map(|Body { runs: of_body, stages }| {
            let of_body = of_body.unwrap_or(1.0);
            let tasks_ns = |(stage, runs): &(&Stage, Option<f64>)| {
                let times = self.slowdown(stage, workers) * runs.unwrap_or(of_body) / of_body;
                stage.tasks_ns.iter().map(|ns| ns * times).collect()
            };
            let stages: Vec<Vec<f64>> = stages.iter().map(tasks_ns).collect();
            of_body * run_ns(&stages, workers)
        });
        all.sum()
    }

    /// The whole job by one predictor.
    fn total_ns(&self, workers: u32, run_ns: RunNs) -> f64 {
        let now = self.stages_ns(self.workers, run_ns);
        let rest = (self.measured_ns - self.loading_ns - now).max(0.0);
        let loading = self.loading_ns * f64::from(self.workers) / f64::from(workers);
        loading + rest + self.stages_ns(workers, run_ns)
    }
}

/// Time of one run of a loop's body by the times of each stage's tasks, with so many workers.
type RunNs = fn(&[Vec<f64>], u32) -> f64;

/// Bytes over the link that most went over.
fn sent_bytes(trace: &Trace) -> Option<f64> {
    let mut links: BTreeMap<u32, u64> = BTreeMap::new();
    trace.exchanges.iter().for_each(|sent| *links.entry(sent.resource).or_default() += sent.bytes);
    links.into_values().max().map(|bytes| bytes as f64)
}

/// One run: a task begins when its inputs are there and a worker is free; of those that may, the one that may longest.
fn scheduled_ns(stages: &[Vec<f64>], workers: u32) -> f64 {
    let most = stages.iter().map(Vec::len).sum::<usize>().max(1);
    let mut free: BinaryHeap<Reverse<u64>> =
        (0..(workers as usize).clamp(1, most)).map(|_| Reverse(0)).collect();
    // Inputs that are still missing, by stage and partition.
    let mut missing: Vec<Vec<usize>> = vec![vec![0; stages.first().map_or(0, Vec::len)]];
    missing.extend(stages.windows(2).map(|pair| {
        (0..pair[1].len()).map(|at| same_share(at, pair[1].len(), pair[0].len()).len()).collect()
    }));
    let mut ready: BinaryHeap<Reverse<(u64, usize, usize)>> =
        (0..stages.first().map_or(0, Vec::len)).map(|at| Reverse((0, 0, at))).collect();
    let mut inputs_ns: Vec<Vec<u64>> = stages.iter().map(|tasks| vec![0; tasks.len()]).collect();
    let mut end_ns = 0;
    while let (Some(Reverse((ready_ns, stage, at))), Some(Reverse(free_ns))) = (ready.pop(), free.pop()) {
        // Of a damaged trace it may be anything.
        let ended_ns = ready_ns.max(free_ns).saturating_add(stages[stage][at] as u64);
        end_ns = end_ns.max(ended_ns);
        free.push(Reverse(ended_ns));
        let Some(next) = stages.get(stage + 1) else { continue };
        for reader in same_share(at, stages[stage].len(), next.len()) {
            let inputs = &mut inputs_ns[stage + 1][reader];
            *inputs = ended_ns.max(*inputs);
            missing[stage + 1][reader] -= 1;
            if missing[stage + 1][reader] == 0 {
                ready.push(Reverse((*inputs, stage + 1, reader)));
            }
        }
    }
    end_ns as f64
}

/// Which of `others` partitions cover some of what partition `at` of `count` covers.
fn same_share(at: usize, count: usize, others: usize) -> Range<usize> {
    at * others / count..((at + 1) * others).div_ceil(count)
}

/// One run: each stage's time over the workers that can have a task.
fn divided_ns(stages: &[Vec<f64>], workers: u32) -> f64 {
    let of =
        |tasks: &Vec<f64>| tasks.iter().sum::<f64>() / f64::from(workers).min(tasks.len() as f64).max(1.0);
    stages.iter().map(of).sum()
}

impl Basis for IterativeBasis {
    fn tasks(&self) -> Tasks {
        Tasks::Sampled
    }

    fn baseline(&self) -> Baseline {
        Baseline {
            measured_ms: ms(self.measured_ns),
            modelled_ms: Some(ms(self.total_ns(self.workers, divided_ns))),
            simulated_ms: Some(ms(self.total_ns(self.workers, scheduled_ns))),
        }
    }

    fn bottleneck(&self) -> Option<Bottleneck> {
        self.bottleneck.clone()
    }

    /// The same work again and again: what chance there is evens out.
    fn spread(&self) -> f64 {
        0.0
    }

    fn estimate(&self, changes: &Changes) -> Result<Estimate, Refused> {
        let (mut workers, mut sent_ns) = (self.workers, 0.0);
        for change in changes.iter() {
            let amount = match change {
                Change::Machines(amount) | Change::Cores(amount) => amount,
                Change::NetworkRate(amount) => {
                    sent_ns = self.sent_ns(amount)?;
                    continue;
                }
                _ => {
                    return Err(Refused::Usage(
                        "the trace of an iterative job answers workers (or cores), and network.rate".into(),
                    ));
                }
            };
            let wanted = match amount {
                Amount::Absolute(wanted) => *wanted,
                Amount::Times(factor) => factor * f64::from(self.workers),
            };
            let whole = wanted.round();
            if !(1.0..=4096.0).contains(&whole) {
                return Err(Refused::Usage(format!(
                    "{wanted} workers: an iterative job has 1 to 4096, each with a core of its own"
                )));
            }
            workers = whole as u32;
        }
        let mut assumptions = Vec::new();
        let mut doubt = 0.0;
        if workers != self.workers {
            assumptions
                .push(format!("{workers} workers instead of {}, each with a core of its own", self.workers));
            assumptions.push("workers share what is loaded; what is neither loading nor tasks stays".into());
            doubt += LOADING * (self.loading_ns / self.measured_ns.max(1.0)).min(1.0);
            if self.share(workers).is_none_or(|(_, measured)| !measured) {
                assumptions.push(match self.bandwidths.is_empty() {
                    true => "tasks take as long beside more others: the memory's bandwidth was not measured \
                             (record with --bandwidth)"
                        .into(),
                    false => format!(
                        "{workers} workers together read memory no faster than was measured with fewer"
                    ),
                });
                doubt += UNKNOWN_MEMORY;
            }
        }
        let total_ns = self.total_ns(workers, scheduled_ns) + sent_ns;
        let mut below = doubt;
        if sent_ns > 0.0 {
            assumptions.push(
                "what was sent took no time when it was recorded, and is not sent while tasks run: at worst"
                    .into(),
            );
            if workers != self.workers {
                assumptions.push("as much is sent between more or fewer workers".into());
            }
            below += sent_ns / total_ns;
        }
        let waits = self.stages.iter().any(|stage| self.slowdown(stage, workers) > 1.0);
        let limit = |kind: &str| Bottleneck { kind: kind.into(), name: None };
        let bottleneck = if sent_ns > total_ns / 2.0 {
            Some(limit(kind::NETWORK))
        } else if waits {
            Some(limit(kind::MEMORY_BANDWIDTH))
        } else {
            self.bottleneck.clone()
        };
        Ok(Estimate {
            analytic_ms: Some(ms(self.total_ns(workers, divided_ns) + sent_ns)),
            simulated_ms: Some(ms(total_ns)),
            bottleneck,
            assumptions,
            doubt: (below, doubt),
        })
    }

    fn singles(&self) -> Vec<String> {
        vec!["workers=x2".into()]
    }
}
