//! Compact records of pipelined tasks: the place in the schedule, the parts of the time, bytes.
//!
//! A trace packs its tasks to be read in order; analyses need them by stage, by slot and in launch order.
//! One pass keeps about a hundred bytes per task. The parts are milliseconds in single precision: the
//! logs count milliseconds, and a part of four hours is still exact. Unmeasured parts are `None`; parts
//! that are only bounded are marked.
//!
//! Impossible parts (longer than the run time that contains them) are cut to it and counted.

use pellucid_trace::{Blocked, Failure, Outcome, PipelinedTask, Trace};

use crate::index::{ResourceIx, StageIx, Table, TaskIx};

/// Slowest rate assumed for a store, after the first byte.
const MIN_BYTES_PER_S: u64 = 1_000_000;
/// Longest wait assumed for a split's first bytes: requests for footer and data to a slow object store.
const FIRST_BYTES_NS: u64 = 250_000_000;

/// The parts of a task's time that an analysis can remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Shipping the task to its executor, and reporting its end to the driver.
    Scheduler,
    /// Deserializing the task.
    Deserialize,
    /// Garbage collection.
    Gc,
    /// Waiting for shuffle data: on the network and on the disks that it is read from.
    Fetch,
    /// Reading shuffle data from this machine's disks.
    ShuffleRead,
    /// Writing shuffle files.
    ShuffleWrite,
    /// Writing and reading spills.
    Spill,
    /// Reading input.
    Input,
    /// Writing output.
    Output,
    /// Core time within the run time.
    Cpu,
    /// The rest of the run time.
    Rest,
}

impl Part {
    /// All parts, in the order of [`Task::parts`].
    pub const ALL: [Part; 11] = [
        Part::Scheduler,
        Part::Deserialize,
        Part::Gc,
        Part::Fetch,
        Part::ShuffleRead,
        Part::ShuffleWrite,
        Part::Spill,
        Part::Input,
        Part::Output,
        Part::Cpu,
        Part::Rest,
    ];
}

/// A part of a task's time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measure {
    pub ms: f64,
    /// True if `ms` is only an upper bound.
    pub at_most: bool,
}

/// A task.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub launched_ns: u64,
    pub duration_ns: u64,
    pub stage: StageIx,
    pub resource: ResourceIx,
    pub partition: u32,
    pub attempt: u32,
    /// By [`Part`]; NaN if not measured.
    parts: [f32; Part::ALL.len()],
    /// Bitmask by [`Part`]: the time is only a bound.
    bounds: u16,
    pub speculative: bool,
    pub outcome: Outcome,
    pub failure: Option<Failure>,
    /// Input and shuffle bytes read; NaN unless all of them are known.
    in_bytes: f32,
    /// The same in records.
    in_records: f32,
    /// Output and shuffle bytes written.
    out_bytes: f32,
}

impl Task {
    pub fn duration_ms(&self) -> f64 {
        self.duration_ns as f64 / 1e6
    }

    pub fn ended_ns(&self) -> u64 {
        self.launched_ns.saturating_add(self.duration_ns)
    }

    pub fn part(&self, part: Part) -> Option<Measure> {
        let ms = f64::from(self.parts[part as usize]);
        (!ms.is_nan()).then_some(Measure { ms, at_most: self.bounds & (1 << part as u16) != 0 })
    }

    /// Returns a part that was measured, not only bounded.
    pub fn measured(&self, part: Part) -> Option<f64> {
        self.part(part).filter(|m| !m.at_most).map(|m| m.ms)
    }

    /// Returns the bytes it read, as input and from shuffles.
    pub fn in_bytes(&self) -> Option<f64> {
        known(self.in_bytes)
    }

    /// Returns the records it read, as input and from shuffles.
    pub fn in_records(&self) -> Option<f64> {
        known(self.in_records)
    }

    /// Returns the bytes it wrote, as output and for shuffles.
    pub fn out_bytes(&self) -> Option<f64> {
        known(self.out_bytes)
    }

    pub fn ok(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    fn set(&mut self, part: Part, value: Option<Blocked>, max_ms: f64) -> bool {
        let (ns, at_most) = match value {
            None => return false,
            Some(Blocked::MeasuredNs(ns)) => (ns, false),
            Some(Blocked::AtMostNs(ns)) => (ns, true),
        };
        let ms = ns as f64 / 1e6;
        self.parts[part as usize] = ms.min(max_ms) as f32;
        self.bounds |= u16::from(at_most) << part as u16;
        // Rounding may add up to a millisecond.
        ms > max_ms + 1.0 && !at_most
    }
}

fn known(value: f32) -> Option<f64> {
    (!value.is_nan()).then_some(f64::from(value))
}

/// The tasks of a trace, and counts of damaged ones.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// In launch order; tasks launched together are in trace order.
    pub all: Table<TaskIx, Task>,
    /// Tasks with a part longer than the time that contains it.
    pub impossible: usize,
    /// Tasks of stages or resources that the trace does not hold.
    pub skipped: usize,
}

impl Tasks {
    /// Reads the tasks of `trace`.
    pub fn of(trace: &Trace) -> Tasks {
        let mut tasks =
            Tasks { all: Vec::with_capacity(trace.pipelined_tasks.len()).into(), ..Tasks::default() };
        for task in &trace.pipelined_tasks {
            if has_invalid_index(trace, &task) {
                tasks.skipped += 1;
                continue;
            }
            let (task, impossible) = read(&task);
            tasks.impossible += usize::from(impossible);
            tasks.all.push(task);
        }
        let launched = |ix: &u32| tasks.all[TaskIx(*ix)].launched_ns;
        let mut order: Vec<u32> = (0..tasks.all.len() as u32).collect();
        order.sort_by_key(launched);
        permute(&mut tasks.all, order);
        tasks
    }

    /// Returns each task's duration, by index.
    pub fn durations_ns(&self) -> Vec<u64> {
        self.all.iter().map(|task| task.duration_ns).collect()
    }

    /// Returns indices into `all` by stage, in launch order.
    pub fn by_stage(&self, stages: usize) -> Table<StageIx, Vec<TaskIx>> {
        let mut counts: Table<StageIx, usize> = Table::filled(stages, 0);
        self.all.iter().for_each(|task| counts[task.stage] += 1);
        let mut by_stage: Table<StageIx, _> = counts.iter().map(|tasks| Vec::with_capacity(*tasks)).collect();
        for (ix, task) in self.all.rows() {
            by_stage[task.stage].push(ix);
        }
        by_stage
    }
}

/// Permutes `tasks` in place so that position `i` gets the task from position `from[i]`. Sorting indices
/// and permuting moves each task once and needs no second copy of a million tasks.
fn permute(tasks: &mut [Task], mut from: Vec<u32>) {
    for start in 0..from.len() {
        // Follow the cycle of the permutation that starts here.
        let mut at = start;
        while from[at] as usize != start {
            let next = from[at] as usize;
            tasks.swap(at, next);
            from[at] = at as u32;
            at = next;
        }
        from[at] = at as u32;
    }
}

/// Returns true if a task refers to a stage or resource missing from the trace.
fn has_invalid_index(trace: &Trace, task: &PipelinedTask) -> bool {
    task.stage as usize >= trace.stages.len() || task.resource as usize >= trace.resources.len()
}

/// Returns the tasks' durations if each took this much less, in the order of [`Tasks::all`].
pub(crate) fn shorter_ns(trace: &Trace, less_ns: &[u64]) -> Vec<u64> {
    let tasks = trace.pipelined_tasks.iter().zip(less_ns.iter().copied().chain(std::iter::repeat(0)));
    let kept = tasks.filter(|(task, _)| !has_invalid_index(trace, task));
    let mut times: Vec<(u64, u64)> =
        kept.map(|(task, less)| (task.launched_ns, task.duration_ns.saturating_sub(less))).collect();
    times.sort_by_key(|(launched, _)| *launched);
    times.into_iter().map(|(_, ns)| ns).collect()
}

/// Reads a task; returns true with it if one of its parts was impossible.
fn read(from: &PipelinedTask) -> (Task, bool) {
    let mut task = Task {
        launched_ns: from.launched_ns,
        duration_ns: from.duration_ns,
        stage: StageIx(from.stage),
        resource: ResourceIx(from.resource),
        partition: from.partition,
        attempt: from.attempt,
        parts: [f32::NAN; Part::ALL.len()],
        bounds: 0,
        speculative: from.speculative,
        outcome: from.outcome,
        failure: from.failure,
        in_bytes: amount(&[from.input_bytes, from.shuffle_remote_bytes, from.shuffle_local_bytes]),
        in_records: amount(&[from.input_records, from.shuffle_read_records]),
        out_bytes: amount(&[from.output_bytes, from.shuffle_write_bytes]),
    };
    let whole = task.duration_ms();
    let run = from.run_ns.map_or(whole, |ns| (ns as f64 / 1e6).min(whole));
    let mut impossible = false;
    let outside = [(Part::Scheduler, from.scheduler), (Part::Deserialize, from.deserialize)];
    for (part, value) in outside {
        impossible |= task.set(part, value, whole);
    }
    let inside = [
        (Part::Gc, from.gc),
        (Part::Fetch, from.blocked_network),
        (Part::ShuffleRead, from.blocked_shuffle_read),
        (Part::ShuffleWrite, from.blocked_shuffle_write),
        (Part::Spill, from.blocked_spill),
        (Part::Input, input_wait(from)),
        (Part::Output, from.blocked_output),
        (Part::Cpu, from.cpu_ns.map(Blocked::MeasuredNs)),
    ];
    for (part, value) in inside {
        // A thread's core time and its run time come from different clocks.
        let slack = if part == Part::Cpu { whole.max(run) } else { run };
        impossible |= task.set(part, value, slack);
    }
    if from.run_ns.is_some() && from.cpu_ns.is_some() {
        let queued = from.queue_ns.map_or(0.0, |ns| ns as f64 / 1e6);
        let named = queued + inside.iter().filter_map(|(part, _)| task.measured(*part)).sum::<f64>();
        task.parts[Part::Rest as usize] = (run - named).max(0.0) as f32;
    }
    (task, impossible)
}

/// Returns the wait for input. A bound is also limited by the longest time that reading its bytes could
/// take.
fn input_wait(from: &PipelinedTask) -> Option<Blocked> {
    match (from.blocked_input?, from.input_bytes) {
        // Generated rows (a range) count as input records of zero bytes.
        (_, Some(0)) => None,
        (Blocked::AtMostNs(ns), Some(bytes)) => {
            let worst = FIRST_BYTES_NS.saturating_add(bytes.saturating_mul(1_000_000_000 / MIN_BYTES_PER_S));
            Some(Blocked::AtMostNs(ns.min(worst)))
        }
        (wait, _) => Some(wait),
    }
}

/// Sums the known values; NaN if none is known.
fn amount(values: &[Option<u64>]) -> f32 {
    let mut known = values.iter().flatten().peekable();
    if known.peek().is_none() {
        return f32::NAN;
    }
    known.map(|v| *v as f64).sum::<f64>() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permute_applies_every_permutation() {
        // Every permutation of five positions, with cycles of every length.
        for code in 0..5_u32.pow(5) {
            let from: Vec<u32> = (0..5).map(|place| code / 5_u32.pow(place) % 5).collect();
            if (0..5).any(|place| !from.contains(&place)) {
                continue;
            }
            let named = |partition| read(&PipelinedTask { partition, ..PipelinedTask::default() }).0;
            let mut tasks: Vec<Task> = (0..5).map(named).collect();
            permute(&mut tasks, from.clone());
            assert_eq!(tasks.iter().map(|task| task.partition).collect::<Vec<_>>(), from);
        }
    }
}
