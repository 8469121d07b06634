//! Another memory budget: a job that did not fit into its own spills less with more of it, and more with less.
//!
//! With the budget that would have sufficed, nothing is spilled. Up to there, what a job spills is what its exchanges hold
//! beyond [`HeldMemory::exchange_limit`], which depends on the budget and on the memory of a multitask.

use std::collections::BTreeMap;
use std::sync::Arc;

use pellucid_trace::{HeldMemory, Phase, kind};

use super::recorded::{EXCHANGE_SHARE, Recorded, Task};
use super::rework;
use super::scenario::Scenario;
use crate::index::{JobIx, StageIx, Table};
use crate::numbers::ratio;
use crate::units::size;
use crate::whatif::{Amount, WhatIfError};

impl Scenario {
    pub(super) fn memory(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        let budgets = self.recorded.memory_bytes.iter().flatten();
        let before = budgets.min().map(|bytes| *bytes as f64);
        let Some(after) = amount.of(before) else {
            let why =
                "memory: this trace does not say its budget; set an absolute one, for example memory=4GiB";
            return Err(WhatIfError::Usage(why.into()));
        };
        let (mut factors, mut spills) = (Table::filled(self.recorded.jobs.len(), 1.0), false);
        for (job, memory) in self.recorded.memory.rows() {
            if memory.core_ns.is_none() {
                // A budget that has sufficed, and any larger one, suffices.
                let enough = memory.sufficient.into_iter().chain(before).any(|enough| after >= enough);
                let less =
                    memory.sufficient.map_or("less".into(), |bytes| format!("less than {}", size(bytes)));
                if !enough {
                    return Err(WhatIfError::Usage(format!(
                        "memory: the job spilled nothing, so the trace does not say how long spilling takes; it may spill \
                         with {less}: run it with --memory to see"
                    )));
                }
                continue;
            }
            let beyond = |budget: f64| match memory.sufficient? {
                all if budget < all => {
                    Some((held(all) - exchange_limit(&self.recorded, job, budget)).max(0.0))
                }
                _ => Some(0.0),
            };
            let both = before.and_then(beyond).zip(beyond(after));
            let Some(factor) = both.and_then(|(before, after)| ratio(after, before)) else {
                let why = "memory: the job spilled although the budget in the trace suffices: SET memory_limit changed it";
                return Err(WhatIfError::Usage(why.into()));
            };
            factors[job] = factor;
            spills = true;
        }
        self.rework(|recorded| {
            for (job, factor) in factors.rows() {
                spill_times(recorded, job, *factor);
            }
        });
        for job in self.recorded.memory.indices() {
            let limit = exchange_limit(&self.recorded, job, after);
            let memory = &mut self.recorded.memory[job];
            if memory.core_ns.is_some() {
                memory.exchange_bytes = memory.sufficient.map_or(limit, |all| limit.min(held(all)));
            }
        }
        for budget in self.recorded.memory_bytes.iter_mut() {
            *budget = Some(after as u64);
        }
        if spills {
            self.assume(
                "what is spilled is what exchanges hold beyond their part of the budget; the job has the same multitasks \
                 with any budget"
                    .into(),
            );
            self.uncertainty = (self.uncertainty.0 + 0.05, self.uncertainty.1 + 0.05);
        } else {
            self.assume("the job spilled nothing, and spills nothing with this budget".into());
        }
        Ok(())
    }
}

/// Returns what the exchanges of a job held, in memory and on disks, from the budget that would have sufficed.
fn held(sufficient: f64) -> f64 {
    sufficient * EXCHANGE_SHARE * 4.0 / HeldMemory::EXCHANGE_QUARTERS as f64
}

/// Returns the bytes that the exchanges of a job may take of a budget, beside multitasks of the stage that spills most.
fn exchange_limit(recorded: &Recorded, job: JobIx, budget: f64) -> f64 {
    let mut stages: BTreeMap<StageIx, (f64, Vec<u64>)> = BTreeMap::new();
    for task in recorded.tasks.iter().filter(|task| recorded.stages[task.stage].job == job) {
        let (work, memory) = stages.entry(task.stage).or_default();
        let written = task.monotasks.iter().filter(|monotask| monotask.phase == Phase::Spill);
        *work += written.map(|monotask| monotask.work).sum::<f64>();
        memory.push(task.memory_bytes);
    }
    let most = stages.into_values().max_by(|one, other| one.0.total_cmp(&other.0));
    let mut memory = most.map_or_else(Vec::new, |(_, memory)| memory);
    memory.sort_unstable();
    let median = memory.get(memory.len() / 2).copied().unwrap_or(0);
    let cores = recorded.services.iter().filter(|service| service.kind == kind::CPU);
    let cores = cores.map(|service| service.max_concurrency).max().unwrap_or(1);
    HeldMemory::exchange_limit(budget as u64, u64::from(cores) + 1, median) as f64
}

/// Makes a job spill `factor` times as much: its monotasks on disks and, next to each, the core time of encoding or
/// decoding.
fn spill_times(recorded: &mut Recorded, job: JobIx, factor: f64) {
    let Some(core_ns) = recorded.memory[job].core_ns.filter(|_| factor != 1.0) else { return };
    let of_job = |task: &Task| recorded.stages[task.stage].job == job;
    let spilled = recorded.tasks.iter().filter(|task| of_job(task));
    let spilled = spilled.flat_map(|task| task.monotasks.iter().filter(|monotask| monotask.spills));
    let all: f64 = spilled.map(|monotask| monotask.work).sum();
    let core_per_work = ratio(core_ns, all).unwrap_or(0.0);
    let stages = recorded.stages.clone();
    for task in Arc::make_mut(&mut recorded.tasks).iter_mut().filter(|task| stages[task.stage].job == job) {
        for place in 0..task.monotasks.len() {
            let monotask = &task.monotasks[place];
            if !monotask.spills {
                continue;
            }
            let core = core_per_work * monotask.work * (factor - 1.0);
            let computes = |at: &usize| task.monotasks[*at].phase == Phase::Compute;
            let of_its_core = match monotask.phase {
                Phase::Spill => monotask.after.iter().map(|at| *at as usize).rfind(computes),
                _ => {
                    let waits = |at: &usize| task.monotasks[*at].after.contains(&(place as u32));
                    (place + 1..task.monotasks.len()).find(|at| waits(at) && computes(at))
                }
            };
            let monotask = &mut task.monotasks[place];
            rework::times(monotask, factor);
            monotask.lag_ns = (monotask.lag_ns as f64 * factor) as u64;
            if let Some(compute) = of_its_core {
                let compute = &mut task.monotasks[compute];
                let times = ratio((compute.work + core).max(0.0), compute.work).unwrap_or(1.0);
                rework::times(compute, times);
            }
        }
    }
    if factor == 0.0 {
        rework::drop_each(recorded, |task, monotask| stages[task.stage].job == job && monotask.spills);
    }
}
