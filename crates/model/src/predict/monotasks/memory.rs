//! Another memory budget: a job that did not fit into its own spills less with more of it, and more with less.
//!
//! With the budget that would have sufficed, nothing is spilled. Up to there, what a job spills falls in proportion to what
//! the budget lacks: exchanges have a fixed share of it, and what they hold beyond goes to disk.

use std::sync::Arc;

use pellucid_trace::Phase;

use super::recorded::{EXCHANGE_SHARE, Recorded, Task};
use super::rework;
use super::scenario::Scenario;
use crate::index::{JobIx, Table};
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
            let lacks = |budget: f64| memory.sufficient.map(|sufficient| (sufficient - budget).max(0.0));
            if memory.core_ns.is_none() {
                // A budget that has sufficed, and any larger one, suffices.
                let enough = lacks(after) == Some(0.0) || before.is_some_and(|before| after >= before);
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
            let factor =
                before.and_then(lacks).zip(lacks(after)).and_then(|(before, after)| ratio(after, before));
            let Some(factor) = factor else {
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
        for memory in self.recorded.memory.iter_mut().filter(|memory| memory.core_ns.is_some()) {
            let all = memory.sufficient.unwrap_or(after) * EXCHANGE_SHARE;
            memory.exchange_bytes = all.min(after * EXCHANGE_SHARE);
        }
        for budget in self.recorded.memory_bytes.iter_mut() {
            *budget = Some(after as u64);
        }
        if spills {
            self.assume(
                "what is spilled falls in proportion to what the budget lacks; the job has the same multitasks with any \
                 budget"
                    .into(),
            );
            self.uncertainty = (self.uncertainty.0 + 0.05, self.uncertainty.1 + 0.05);
        } else {
            self.assume("the job spilled nothing, and spills nothing with this budget".into());
        }
        Ok(())
    }
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
            rework::times(&mut task.monotasks[place], factor);
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
