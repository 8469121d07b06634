//! Recorded pipelined tasks under changes: other durations and blocked times, other executors, and the
//! assumptions made.
//!
//! Not supported: changes to the number or size of tasks (`partitions`), and rates in bytes per second,
//! since a log does not record current rates.

use pellucid_trace::Outcome;

use super::disks::durations_ms;
use super::recorded::{Executors, Recorded};
use crate::analysis::{BlockedTime, BlockedTimes};
use crate::index::{Ix, TaskIx};
use crate::pipelined::blocked::{Without, blocked, overhead_ms};
use crate::pipelined::findings::settings::Settings;
use crate::pipelined::replay::allocation::{self, NEVER};
use crate::pipelined::task::Task;
use crate::whatif::{Amount, Change, Changes, InputFrom, WhatIfError};

/// Uncertainty of task times on more executors: more of the shuffle crosses the network.
const MORE_EXECUTORS: f64 = 0.1;
/// Uncertainty of task times with more tasks in one executor, which share cores, memory and heap. With
/// fewer, half of it, since the JVM's compiler and collector threads compete for fewer cores.
const MORE_CORES: f64 = 0.15;
/// Uncertainty of modelling a machine's cores and disks as two stations with exponential service, and
/// several disks as one.
const CONTENTION: f64 = 0.1;

/// The keys that an event log supports.
const SUPPORTED: &str = "executors, executor.cores, cores (local mode), idle.timeout, disk.rate and network.rate relative to now (x2), \
                        input=memory, input.scale, and no=gc, scheduler, deserialize, stragglers, skew, disk or network";
const NO_RATES: &str = "an event log does not record the rates of disks and links; set disk.rate or network.rate \
                        relative to now, for example x2";
const NO_MACHINES: &str = "an event log records executors, not machines; set executors";

/// The recorded tasks under changes, before the replay.
pub(super) struct Scenario<'r> {
    recorded: &'r Recorded<'r>,
    pub durations_ns: Vec<u64>,
    /// The durations if the changes have their smallest effect, and their largest.
    pub min_effect_ns: Vec<u64>,
    pub max_effect_ns: Vec<u64>,
    /// The changed executors.
    pub executors: Option<Executors>,
    /// The blocked time over all tasks. Changes apply to its measured part only.
    pub blocked: BlockedTimes,
    /// The parts that are removed, as `no=` names them.
    pub removed: Vec<String>,
    /// In words.
    pub assumptions: Vec<String>,
    /// Uncertainty of the assumptions, as shares of the prediction: faster and slower.
    pub uncertainty: (f64, f64),
}

impl<'r> Scenario<'r> {
    /// Applies changes to the tasks.
    ///
    /// # Errors
    /// Returns an error for a change that the log does not support; the message names those it does.
    pub fn of(recorded: &'r Recorded<'r>, changes: &Changes) -> Result<Scenario<'r>, WhatIfError> {
        let durations_ns = recorded.replays.tasks.durations_ns();
        let mut scenario = Scenario {
            recorded,
            min_effect_ns: durations_ns.clone(),
            max_effect_ns: durations_ns.clone(),
            durations_ns,
            executors: None,
            blocked: blocked(recorded.replays.tasks.all.iter()),
            removed: Vec::new(),
            assumptions: vec!["the driver's time and the gaps between stages stay the same".into()],
            uncertainty: (0.0, 0.0),
        };
        let trace = recorded.replays.trace;
        let failed = trace.job_ends.iter().filter(|end| end.outcome != Outcome::Ok).count();
        if failed > 0 {
            scenario.assume(format!("{failed} jobs that failed or were cancelled repeat the same work"));
        }
        if trace.truncated.is_some() {
            scenario.assume("the log is incomplete: only the recorded part is predicted");
        }
        changes.iter().try_for_each(|change| scenario.apply(change))?;
        Ok(scenario)
    }

    fn assume(&mut self, words: impl Into<String>) {
        self.assumptions.push(words.into());
    }

    /// Widens the uncertainty to at least these shares.
    fn widen(&mut self, faster: f64, slower: f64) {
        self.uncertainty = (self.uncertainty.0.max(faster), self.uncertainty.1.max(slower));
    }

    fn times(&mut self) -> [&mut Vec<u64>; 3] {
        [&mut self.durations_ns, &mut self.min_effect_ns, &mut self.max_effect_ns]
    }

    fn executors(&mut self) -> &mut Executors {
        let recorded = self.recorded;
        self.executors.get_or_insert_with(|| Executors { slots: recorded.executors(), idle_timeout_ns: None })
    }

    fn apply(&mut self, change: &Change) -> Result<(), WhatIfError> {
        match change {
            Change::No(part) => self.remove_part(part)?,
            Change::DiskRate(None, Amount::Times(factor)) => self.change_disk_rate(*factor),
            Change::NetworkRate(Amount::Times(factor)) => self.change_network_rate(*factor),
            Change::DiskRate(..) | Change::NetworkRate(_) => return Err(WhatIfError::Usage(NO_RATES.into())),
            Change::Input(InputFrom::Memory) => self.remove_input(),
            Change::InputScale(factor) => self.scale_input(*factor),
            Change::Executors(amount) => self.change_executors(*amount)?,
            Change::IdleTimeout(timeout_ns) => self.set_idle_timeout(*timeout_ns)?,
            Change::ExecutorCores(amount) => self.change_executor_cores(*amount)?,
            Change::Cores(amount) => self.change_cores(*amount)?,
            Change::Machines(_) => return Err(WhatIfError::Usage(NO_MACHINES.into())),
            Change::Disks(_)
            | Change::StoreRate(_)
            | Change::Concurrency(..)
            | Change::Memory(_)
            | Change::Partitions(_)
            | Change::Input(InputFrom::MemoryDecoded)
            | Change::Storage(_) => {
                return Err(WhatIfError::Usage(format!(
                    "an event log does not support this change; supported: {SUPPORTED}"
                )));
            }
            Change::OperatorTime(..)
            | Change::OperatorBytes(..)
            | Change::OperatorMultitasks(..)
            | Change::Columns(..)
            | Change::DecodeTime(_)
            | Change::Rows(..)
            | Change::NoExchange(_) => {
                return Err(WhatIfError::Usage(format!(
                    "an event log does not have the core time of operators, so changes to them cannot be predicted; \
                     supported: {SUPPORTED}"
                )));
            }
        }
        Ok(())
    }

    fn remove_part(&mut self, part: &str) -> Result<(), WhatIfError> {
        let recorded = self.recorded;
        self.removed.push(part.to_string());
        if part == "stragglers" {
            let assumption = "every task slower than its stage's median rate runs at that rate";
            return self.replace(&recorded.at_median_ns, assumption);
        }
        if part == "skew" {
            let assumption = "the excess of skewed partitions is spread over their stage's tasks";
            return self.replace(&recorded.even_ns, assumption);
        }
        let without = Without::named(part).ok_or_else(|| {
            WhatIfError::Usage(format!(
                "`no={part}`: an event log supports no=gc, scheduler, deserialize, stragglers, skew, disk or network"
            ))
        })?;
        if self.recorded.replays.tasks.all.iter().all(|t| without.blocked_ms(t).is_none()) {
            return Err(WhatIfError::Usage(format!(
                "`no={part}`: this log does not record how long tasks were blocked on it; supported: {SUPPORTED}"
            )));
        }
        self.shorten(|task| without.blocked_ms(task), 1.0);
        if let Some(time) = without.time_of(&mut self.blocked) {
            scale(time, 0.0);
        }
        self.assume(format!("no task is ever blocked on {part}: the upper bound of fixing it"));
        Ok(())
    }

    fn remove_input(&mut self) {
        self.shorten(|task| Without::Input.blocked_ms(task), 1.0);
        let tasks = self.recorded.replays.tasks.all.iter();
        let input: f64 = tasks.filter_map(|task| Without::Input.blocked_ms(task)).map(|b| b.0).sum();
        let disk = &mut self.blocked.disk.measured_ms;
        *disk = disk.map(|ms| (ms - input).max(0.0));
        self.assume("no task waits for input; it is still decoded");
    }

    fn scale_input(&mut self, factor: f64) {
        let grown = |task: &Task, ns: u64| {
            let fixed = (overhead_ms(task) * 1e6).min(ns as f64);
            (fixed + (ns as f64 - fixed) * factor) as u64
        };
        let tasks = &self.recorded.replays.tasks.all;
        for times in self.times() {
            times.iter_mut().zip(tasks).for_each(|(ns, task)| *ns = grown(task, *ns));
        }
        self.assume("the number of tasks stays the same; each task's input and run time scale");
        self.widen(0.0, 0.2 * (factor.ln()).abs());
    }

    fn replace(&mut self, replaced: &[(TaskIx, u64)], assumption: &str) -> Result<(), WhatIfError> {
        let tasks = &self.recorded.replays.tasks.all;
        for times in self.times() {
            for (ix, ns) in replaced {
                let (now, was) = (times[ix.at()], tasks[*ix].duration_ns.max(1));
                times[ix.at()] = (now as f64 * *ns as f64 / was as f64) as u64;
            }
        }
        self.assume(assumption);
        Ok(())
    }

    /// Changes the disk rate: between separate waits and a disk that sets the pace, or by station
    /// utilization where a machine's cores are known (see [`super::disks`]).
    fn change_disk_rate(&mut self, factor: f64) {
        let (durations, shared) = durations_ms(&self.recorded.replays, factor);
        let scaled = |ns: u64, to: f64, whole: f64| (ns as f64 * to / whole.max(1e-6)).max(0.0) as u64;
        for (ix, (task, other)) in self.recorded.replays.tasks.all.iter().zip(durations).enumerate() {
            let Some(other) = other else { continue };
            let whole = task.duration_ms();
            self.durations_ns[ix] = scaled(self.durations_ns[ix], other.likely, whole);
            self.min_effect_ns[ix] = scaled(self.min_effect_ns[ix], other.least, whole);
            self.max_effect_ns[ix] = scaled(self.max_effect_ns[ix], other.most, whole);
        }
        if shared {
            self.widen(CONTENTION, CONTENTION);
            self.assume("concurrent tasks share their machine's cores, whose number is in the log");
        }
        scale(&mut self.blocked.disk, 1.0 / factor);
        self.assume("all time that tasks may wait for disks scales with the disk rate");
    }

    fn change_network_rate(&mut self, factor: f64) {
        self.shorten(|task| Without::Network.blocked_ms(task), 1.0 - 1.0 / factor);
        scale(&mut self.blocked.network, 1.0 / factor);
        self.assume("all time that tasks wait for shuffle data scales with the link rate");
    }

    /// Removes a share of each task's blocked time from its duration; a negative share adds to it.
    fn shorten(&mut self, blocked_ms: impl Fn(&Task) -> Option<(f64, f64)>, share: f64) {
        let less = |ns: u64, ms: f64| (ns as f64 - ms * share * 1e6).max(0.0) as u64;
        for (ix, task) in self.recorded.replays.tasks.all.iter().enumerate() {
            let Some((sure, most)) = blocked_ms(task) else { continue };
            self.durations_ns[ix] = less(self.durations_ns[ix], most);
            self.max_effect_ns[ix] = less(self.max_effect_ns[ix], most);
            self.min_effect_ns[ix] = less(self.min_effect_ns[ix], sure);
        }
    }

    fn change_executors(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        let now = self.recorded.executors();
        let wanted = checked_count("executors", amount.of(Some(now.len() as f64)), 10_000.0)?;
        // Additional executors arrive like the recorded ones, in turn.
        self.executors().slots = (0..wanted).map(|ix| now[ix % now.len()]).collect();
        self.assume(format!("{wanted} executors instead of {}; task durations stay the same", now.len()));
        self.widen(0.0, if wanted > now.len() { MORE_EXECUTORS } else { MORE_EXECUTORS / 2.0 });
        Ok(())
    }

    fn change_cores(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        if self.recorded.executors().len() > 1 {
            return Err(WhatIfError::Usage(
                "`cores` applies to a single machine; on a cluster set executors or executor.cores".into(),
            ));
        }
        self.change_executor_cores(amount)
    }

    fn change_executor_cores(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        let now = self.recorded.executors();
        let wanted = |slots: usize| checked_count("executor.cores", amount.of(Some(slots as f64)), 1024.0);
        for (_, slots) in &mut self.executors().slots {
            *slots = wanted(*slots)?;
        }
        let (before, after) = (now[0].1, wanted(now[0].1)?);
        self.assume(format!("{after} slots per executor instead of {before}; task durations stay the same"));
        let more = after > before;
        let (faster, slower) =
            if more { (MORE_CORES / 2.0, MORE_CORES) } else { (MORE_CORES, MORE_CORES / 2.0) };
        self.widen(faster, slower);
        Ok(())
    }

    /// Removes executors after this idle time and brings them back on demand, or (never) has all of them
    /// from the start.
    fn set_idle_timeout(&mut self, timeout_ns: u64) -> Result<(), WhatIfError> {
        if Settings::of(self.recorded.replays.trace).local {
            return Err(WhatIfError::Usage(
                "`idle.timeout` needs separate executors; this application's tasks ran in its driver".into(),
            ));
        }
        let executors = self.executors();
        executors.idle_timeout_ns = Some(timeout_ns);
        if timeout_ns == NEVER {
            executors.slots.iter_mut().for_each(|(added, _)| *added = None);
            self.assume("all executors are present before the first job and stay");
            return Ok(());
        }
        let known = allocation::arrival_ns(&self.recorded.replays.schedule);
        let assumed = if known.is_none() { " (assumed: this log shows no executor arrive)" } else { "" };
        self.assume(format!(
            "executors that a stage lacks arrive {:.1} s after its submission{assumed}",
            known.unwrap_or(allocation::ASSUMED_ARRIVAL_NS) as f64 / 1e9
        ));
        let uncertainty = if known.is_some() { MORE_EXECUTORS } else { 2.0 * MORE_EXECUTORS };
        self.widen(uncertainty / 2.0, uncertainty);
        Ok(())
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

fn scale(time: &mut BlockedTime, factor: f64) {
    time.measured_ms = time.measured_ms.map(|ms| ms * factor);
}

#[cfg(test)]
mod tests {
    use super::SUPPORTED;
    use crate::whatif::{KEYS, Tasks};

    #[test]
    fn refusal_lists_the_keys_of_event_logs() {
        let words = SUPPORTED.split([' ', ',']);
        let listed: Vec<&str> = words.filter_map(|word| word.split('=').next()).collect();
        for key in KEYS {
            assert_eq!(listed.contains(&key.name), key.is_for(Tasks::Pipelined), "{}", key.name);
        }
    }
}
