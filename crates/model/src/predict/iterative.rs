//! What-ifs on iterative jobs: more or fewer workers, another network rate.
//!
//! A run of a stage has one task per partition, with the mean duration of that partition's tasks. The
//! analytic predictor divides a stage's time by the workers that can have a task. The simulated predictor
//! takes stages that ran equally often as the body of a loop, which ends with a signal that all workers
//! wait for. Within a body a task starts when its inputs are ready and a worker is free. Its inputs are
//! the partitions of the previous stage that cover the same share of the data. This is correct for
//! transforms, broadcasts, reductions and exchanges between neighbours; where every partition sends to
//! every other, tasks start too early.
//!
//! Time before the second iteration outside of tasks is loading, which workers share. Other time outside
//! of tasks stays constant.
//!
//! More concurrent tasks slow each other where they wait for memory. A task's demand is its bytes over
//! its time. A worker's share is the measured bandwidth of that many threads, divided by their number. If
//! the demand exceeds the share, the task slows down by their ratio. A task that already used all of its
//! share speeds up with fewer workers, by the same ratio.
//!
//! The trace records the bytes sent over links but not how long that took; on one machine it takes almost
//! no time. Another rate therefore adds the time in which the busiest link carries all its bytes. The
//! interval reaches down to zero of it, since sending may overlap with tasks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use pellucid_trace::{Trace, kind};

use crate::analysis::Bottleneck;
use crate::analyze::analyze;
use crate::iterative::{bandwidths, tasks, time_ns, workers};
use crate::numbers::{measured_ns, ms, ratio};
use crate::whatif::{Amount, Baseline, Basis, Change, Changes, Estimate, Tasks, WhatIfError};

/// The refusal of any other key.
const SUPPORTED: &str = "the trace of an iterative job supports workers (or cores) and network.rate";
/// Share of a worker's bandwidth from which a task is assumed to wait for memory.
const MEMORY_BOUND: f64 = 0.85;
/// Uncertainty where the memory bandwidth of that many threads is unknown.
const UNKNOWN_MEMORY: f64 = 0.15;
/// Relative difference in the number of runs up to which stages belong to one loop body.
const MAX_RUNS_DIFFERENCE: f64 = 0.05;
/// Share of all tasks' time below which a stage is short.
const SHORT_STAGE: f64 = 0.01;
/// Uncertainty of sharing the loading evenly, as a multiple of loading's share of the whole.
const LOADING: f64 = 0.3;

/// A stage over all its runs.
struct Stage {
    /// Number of runs: tasks over partitions.
    runs: f64,
    /// Mean duration of each partition's tasks.
    tasks_ns: Vec<f64>,
    /// Memory bandwidth that a task demands, in bytes per second; `None` if unknown.
    bytes_per_s: Option<f64>,
}

impl Stage {
    /// Returns the time of all its tasks.
    fn all_ns(&self) -> f64 {
        self.runs * self.tasks_ns.iter().sum::<f64>()
    }
}

/// Consecutive stages in one loop.
struct Body<'s> {
    /// `None` if unknown.
    runs: Option<f64>,
    /// The stages, each with its number of runs.
    stages: Vec<(&'s Stage, Option<f64>)>,
}

/// The basis of what-ifs on a trace of sampled tasks.
pub(crate) struct IterativeBasis {
    stages: Vec<Stage>,
    workers: u32,
    measured_ns: f64,
    loading_ns: f64,
    /// Bytes per second by number of threads.
    bandwidths: BTreeMap<u32, f64>,
    /// Bytes over the busiest link; `None` if none were sent.
    sent_bytes: Option<f64>,
    bottleneck: Option<Bottleneck>,
}

impl IterativeBasis {
    /// Reads the stages and bandwidths from a trace.
    ///
    /// # Errors
    /// Returns an error if the trace does not hold the number of threads that ran its tasks.
    pub fn of(trace: &Trace) -> Result<IterativeBasis, WhatIfError> {
        let workers = workers(trace).ok_or_else(|| {
            WhatIfError::Failed(
                "cannot predict: the trace does not hold the number of workers; record the job again".into(),
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
        let analysis = analyze(trace);
        let mut basis = IterativeBasis {
            stages: stages.collect(),
            workers,
            measured_ns: measured_ns(trace) as f64,
            loading_ns: 0.0,
            bandwidths: bandwidths(trace).into_iter().map(|(threads, (_, rate))| (threads, rate)).collect(),
            sent_bytes: sent_bytes(trace),
            bottleneck: analysis.jobs.first().and_then(|job| job.bottleneck.clone()),
        };
        basis.loading_ns = basis.loading(trace);
        Ok(basis)
    }

    /// Returns the time before the second iteration outside of tasks.
    fn loading(&self, trace: &Trace) -> f64 {
        let submitted = trace.jobs.iter().map(|job| job.submitted_ns).min().unwrap_or(0);
        let second = tasks(trace).filter(|task| task.iteration.is_some_and(|at| at > 0));
        let until = second.map(|task| task.started_ns).min().unwrap_or(u64::MAX);
        let first = tasks(trace).filter(|task| task.started_ns < until);
        let end = first.clone().map(|task| task.started_ns + task.service_ns).max().unwrap_or(submitted);
        // A sampled task stands for later ones, so only its own run counts here.
        let mut busy: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        first.for_each(|task| busy.entry(task.stage).or_default().push(task.service_ns as f64));
        let busy = divided_ns(&busy.into_values().collect::<Vec<_>>(), self.workers);
        (until.min(end).saturating_sub(submitted) as f64 - busy).max(0.0)
    }

    /// Returns the bandwidth in bytes per second that each of `workers` can have, and whether it was
    /// measured.
    fn share(&self, workers: u32) -> Option<(f64, bool)> {
        let measured = self.bandwidths.get(&workers).map(|rate| (*rate, true));
        // More threads than measured share the largest measured bandwidth; fewer have at most their share
        // of it.
        let more = || self.bandwidths.range(..workers).next_back().map(|(_, rate)| (*rate, false));
        let fewer = || {
            let (threads, rate) = self.bandwidths.range(workers..).next()?;
            Some((rate / f64::from(*threads) * f64::from(workers), false))
        };
        let (rate, measured) = measured.or_else(more).or_else(fewer)?;
        Some((rate / f64::from(workers), measured))
    }

    /// Returns the factor on a stage's task durations with this many workers; at most one worker per task
    /// competes.
    fn slowdown(&self, stage: &Stage, workers: u32) -> f64 {
        let beside = |workers: u32| workers.min(stage.tasks_ns.len() as u32).max(1);
        let (Some(demand), Some((before, _)), Some((after, _))) =
            (stage.bytes_per_s, self.share(beside(self.workers)), self.share(beside(workers)))
        else {
            return 1.0;
        };
        if beside(workers) < beside(self.workers) && demand > MEMORY_BOUND * before {
            return (before / after).min(1.0);
        }
        // The task had what it demanded, whatever bandwidth was measured.
        (demand.min(before) / after).max(1.0)
    }

    /// Returns the time that a link with this rate takes for the bytes sent.
    fn sent_ns(&self, amount: Amount) -> Result<f64, WhatIfError> {
        let Some(bytes) = self.sent_bytes else {
            return Err(WhatIfError::Usage(
                "network.rate: no bytes were sent over a network; record a job over several processes (--processes)".into(),
            ));
        };
        match amount {
            Amount::Absolute(rate) if rate > 0.0 => Ok(bytes / rate * 1e9),
            _ => Err(WhatIfError::Usage(
                "network.rate: the link's rate was not measured; set an absolute rate, for example network.rate=1Gbit/s".into(),
            )),
        }
    }

    /// Applies changes to the job.
    ///
    /// # Errors
    /// Returns an error for a change that the trace does not support; the message names those it does.
    fn scenario(&self, changes: &Changes) -> Result<Scenario, WhatIfError> {
        let mut scenario = Scenario { workers: self.workers, sent_ns: 0.0 };
        for change in changes.iter() {
            match change {
                Change::Machines(amount) | Change::Cores(amount) => {
                    scenario.workers = self.wanted_workers(*amount)?;
                }
                Change::NetworkRate(amount) => scenario.sent_ns = self.sent_ns(*amount)?,
                _ => return Err(WhatIfError::Usage(SUPPORTED.into())),
            }
        }
        Ok(scenario)
    }

    fn wanted_workers(&self, amount: Amount) -> Result<u32, WhatIfError> {
        let wanted = match amount {
            Amount::Absolute(wanted) => wanted,
            Amount::Times(factor) => factor * f64::from(self.workers),
        };
        let whole = wanted.round();
        if !(1.0..=4096.0).contains(&whole) {
            return Err(WhatIfError::Usage(format!(
                "{wanted} workers: expected a number from 1 to 4096, with one core each"
            )));
        }
        Ok(whole as u32)
    }

    /// Groups consecutive stages into loop bodies by their number of runs. Few tasks of a short stage are
    /// sampled, so its number of runs is unknown and it joins its neighbours.
    fn bodies(&self) -> Vec<Body<'_>> {
        let all_ns: f64 = self.stages.iter().map(Stage::all_ns).sum();
        let mut bodies: Vec<Body> = Vec::new();
        for stage in &self.stages {
            let runs = (stage.all_ns() > SHORT_STAGE * all_ns).then_some(stage.runs);
            let alike = |of: f64| runs.is_none_or(|runs| (runs - of).abs() <= MAX_RUNS_DIFFERENCE * of);
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

    /// Returns the time of all runs of all stages.
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

    /// Returns the time of the whole job by one predictor.
    fn total_ns(&self, workers: u32, run_ns: RunNs) -> f64 {
        let now = self.stages_ns(self.workers, run_ns);
        let rest = (self.measured_ns - self.loading_ns - now).max(0.0);
        let loading = self.loading_ns * f64::from(self.workers) / f64::from(workers);
        loading + rest + self.stages_ns(workers, run_ns)
    }
}

/// The job under changes.
struct Scenario {
    workers: u32,
    /// Time that the busiest link adds; 0 if its rate stays the same.
    sent_ns: f64,
}

/// Returns the time of one run of a loop body, given the task durations by stage and the number of
/// workers.
type RunNs = fn(&[Vec<f64>], u32) -> f64;

/// Returns the bytes over the busiest link.
fn sent_bytes(trace: &Trace) -> Option<f64> {
    let mut links: BTreeMap<u32, u64> = BTreeMap::new();
    trace.exchanges.iter().for_each(|sent| *links.entry(sent.resource).or_default() += sent.bytes);
    links.into_values().max().map(|bytes| bytes as f64)
}

/// Simulates one run: a task starts when its inputs are ready and a worker is free, in the order in which
/// tasks become ready.
fn scheduled_ns(stages: &[Vec<f64>], workers: u32) -> f64 {
    let most = stages.iter().map(Vec::len).sum::<usize>().max(1);
    let mut free: BinaryHeap<Reverse<u64>> =
        (0..(workers as usize).clamp(1, most)).map(|_| Reverse(0)).collect();
    // Number of missing inputs, by stage and partition.
    let mut missing: Vec<Vec<usize>> = vec![vec![0; stages.first().map_or(0, Vec::len)]];
    missing.extend(stages.windows(2).map(|pair| {
        (0..pair[1].len()).map(|at| same_share(at, pair[1].len(), pair[0].len()).len()).collect()
    }));
    let mut ready: BinaryHeap<Reverse<(u64, usize, usize)>> =
        (0..stages.first().map_or(0, Vec::len)).map(|at| Reverse((0, 0, at))).collect();
    let mut inputs_ns: Vec<Vec<u64>> = stages.iter().map(|tasks| vec![0; tasks.len()]).collect();
    let mut end_ns = 0;
    while let (Some(Reverse((ready_ns, stage, at))), Some(Reverse(free_ns))) = (ready.pop(), free.pop()) {
        // A damaged trace may hold any value, so the sum saturates.
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

/// Returns the partitions out of `others` that overlap with partition `at` of `count`.
fn same_share(at: usize, count: usize, others: usize) -> Range<usize> {
    at * others / count..((at + 1) * others).div_ceil(count)
}

/// Returns the time of one run as the sum over stages of the time divided by the workers that can have a
/// task.
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

    /// Returns 0: over many repetitions of the same work, chance evens out.
    fn spread(&self) -> f64 {
        0.0
    }

    fn estimate(&self, changes: &Changes) -> Result<Estimate, WhatIfError> {
        let Scenario { workers, sent_ns } = self.scenario(changes)?;
        let mut assumptions = Vec::new();
        let mut uncertainty = 0.0;
        if workers != self.workers {
            assumptions.push(format!("{workers} workers instead of {}, with one core each", self.workers));
            assumptions
                .push("workers share the loading; time outside of loading and tasks stays the same".into());
            uncertainty += LOADING * (self.loading_ns / self.measured_ns.max(1.0)).min(1.0);
            if self.share(workers).is_none_or(|(_, measured)| !measured) {
                assumptions.push(match self.bandwidths.is_empty() {
                    true => "task durations stay the same: the memory bandwidth was not measured \
                             (record with --bandwidth)"
                        .into(),
                    false => format!(
                        "{workers} workers together read memory no faster than the nearest measured number"
                    ),
                });
                uncertainty += UNKNOWN_MEMORY;
            }
        }
        let total_ns = self.total_ns(workers, scheduled_ns) + sent_ns;
        let mut below = uncertainty;
        if sent_ns > 0.0 {
            assumptions.push(
                "upper bound: sending took no time in the recorded job, and does not overlap with tasks"
                    .into(),
            );
            if workers != self.workers {
                assumptions.push("the bytes sent do not change with the number of workers".into());
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
            uncertainty: (below, uncertainty),
        })
    }

    fn singles(&self) -> Vec<String> {
        vec!["workers=x2".into()]
    }
}

#[cfg(test)]
mod tests {
    use super::SUPPORTED;
    use crate::whatif::{KEYS, Tasks};

    #[test]
    fn refusal_lists_the_keys_of_iterative_jobs() {
        let listed: Vec<&str> = SUPPORTED.split([' ', '(', ')']).collect();
        for key in KEYS {
            assert_eq!(listed.contains(&key.name), key.is_for(Tasks::Sampled), "{}", key.name);
        }
    }
}
