//! Dynamic allocation of executors, as far as a replay needs it.
//!
//! An executor without tasks is removed after a timeout. When a submitted stage has more tasks than there
//! are free slots, the executors needed to run them are requested and arrive later. [`Executors`] tracks
//! which executors are present and idle, and how long slots were held; the replay keeps the clock. Two
//! details of Spark are left out: it requests executors in steps that double, and keeps those with cached
//! data or shuffle files for longer.

use super::schedule::{Arrival, Schedule};
use crate::index::{ExecutorIx, Ix, SlotIx, Table};
use crate::numbers::median;

/// The idle timeout after which no executor is ever removed.
pub(crate) const NEVER: u64 = u64::MAX;
/// Assumed arrival time of executors, where a log does not show it.
pub(crate) const ASSUMED_ARRIVAL_NS: u64 = 5_000_000_000;

/// When idle executors are removed, and how soon requested ones arrive.
#[derive(Debug, Clone)]
pub(crate) struct DynamicAllocation {
    /// The executor of each slot.
    pub executor_of: Table<SlotIx, ExecutorIx>,
    /// Idle time after which an executor is removed.
    pub timeout_ns: u64,
    /// Time from a stage's submission to the arrival of the executors it lacks.
    pub arrival_ns: u64,
}

impl DynamicAllocation {
    /// Builds the policy for executors with these slots; the recorded executors tell how soon others
    /// arrive.
    pub fn of(schedule: &Schedule, executors: &[(Arrival, usize)], timeout_ns: u64) -> DynamicAllocation {
        let executor_of =
            (0..).zip(executors).flat_map(|(ix, (_, slots))| vec![ExecutorIx(ix); *slots]).collect();
        DynamicAllocation {
            executor_of,
            timeout_ns,
            arrival_ns: arrival_ns(schedule).unwrap_or(ASSUMED_ARRIVAL_NS),
        }
    }
}

/// Returns the median time from a job's submission to the arrival of the executors added while it ran.
pub(crate) fn arrival_ns(schedule: &Schedule) -> Option<u64> {
    let came = schedule.slots.iter().filter_map(|slot| {
        let (job, after) = slot.added?;
        let place = schedule.jobs[job].as_ref()?;
        (after <= place.ended_ns - place.submitted_ns).then_some(after as f64)
    });
    median(came.collect()).map(|ns| ns as u64)
}

#[derive(Debug, Clone, Default)]
struct Executor {
    slots: Vec<SlotIx>,
    busy: u32,
    idle_since: u64,
    present_since: Option<u64>,
    /// Requested, or yet to arrive for the first time.
    requested: bool,
}

/// The executors that are present. Without a [`DynamicAllocation`] none is removed and every call does
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Executors<'a> {
    idle: Option<&'a DynamicAllocation>,
    all: Table<ExecutorIx, Executor>,
    /// Total time that slots were present.
    pub held_ns: u64,
}

impl<'a> Executors<'a> {
    /// Starts with all executors absent; they arrive as recorded.
    pub fn of(idle: Option<&'a DynamicAllocation>) -> Executors<'a> {
        let executors = idle.and_then(|idle| idle.executor_of.iter().max()).map_or(0, |last| last.at() + 1);
        let absent = Executor { requested: true, ..Executor::default() };
        let mut all = Table::filled(executors, absent);
        for (slot, executor) in idle.iter().flat_map(|idle| idle.executor_of.rows()) {
            all[*executor].slots.push(slot);
        }
        Executors { idle, all, held_ns: 0 }
    }

    /// Returns the executor of a slot, with its index.
    fn executor(&mut self, slot: SlotIx) -> Option<(ExecutorIx, &mut Executor)> {
        let executor = *self.idle?.executor_of.get(slot)?;
        Some((executor, self.all.get_mut(executor)?))
    }

    /// Marks the executor of a slot as present. Returns when to check which executor for idleness, should
    /// it get no task.
    pub fn arrive(&mut self, now: u64, slot: SlotIx) -> Option<(u64, ExecutorIx)> {
        let (_, executor) = self.executor(slot)?;
        executor.present_since.get_or_insert(now);
        executor.requested = false;
        self.slot_idle(now, slot)
    }

    /// Records that a task started on a slot.
    pub fn task_started(&mut self, slot: SlotIx) {
        self.executor(slot).into_iter().for_each(|(_, executor)| executor.busy += 1);
    }

    /// Records that a task ended on a slot.
    pub fn task_ended(&mut self, slot: SlotIx) {
        self.executor(slot)
            .into_iter()
            .for_each(|(_, executor)| executor.busy = executor.busy.saturating_sub(1));
    }

    /// Records that a slot gets no task. If its executor is now idle, returns when to check it again.
    pub fn slot_idle(&mut self, now: u64, slot: SlotIx) -> Option<(u64, ExecutorIx)> {
        let timeout_ns = self.idle?.timeout_ns;
        let (ix, executor) = self.executor(slot)?;
        if executor.busy > 0 || timeout_ns == NEVER {
            return None;
        }
        executor.idle_since = now;
        Some((now.saturating_add(timeout_ns), ix))
    }

    /// Removes an executor that has been idle for the timeout, and returns its slots.
    pub fn remove_if_idle(&mut self, now: u64, executor: ExecutorIx) -> Vec<SlotIx> {
        let Some((idle, of)) = self.idle.zip(self.all.get(executor)) else { return Vec::new() };
        if of.busy > 0 || of.idle_since.saturating_add(idle.timeout_ns) > now {
            return Vec::new();
        }
        let slots = of.slots.clone();
        self.remove(now, executor);
        slots
    }

    /// Requests executors for this many waiting tasks. Returns their slots and arrival time.
    pub fn request(&mut self, now: u64, tasks: usize) -> Option<(u64, Vec<SlotIx>)> {
        let at = now.saturating_add(self.idle?.arrival_ns);
        let mut slots = Vec::new();
        for executor in self.all.iter_mut() {
            if slots.len() >= tasks {
                break;
            }
            if executor.present_since.is_none() && !std::mem::replace(&mut executor.requested, true) {
                slots.extend(&executor.slots);
            }
        }
        Some((at, slots))
    }

    /// Removes all executors at the end of the replay.
    pub fn finish(&mut self, now: u64) {
        self.all.indices().for_each(|executor| self.remove(now, executor));
    }

    fn remove(&mut self, now: u64, executor: ExecutorIx) {
        let of = &mut self.all[executor];
        if let Some(since) = of.present_since.take() {
            self.held_ns += now.saturating_sub(since).saturating_mul(of.slots.len() as u64);
        }
    }
}
