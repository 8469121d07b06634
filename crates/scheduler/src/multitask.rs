//! The local DAG: dependencies between the monotasks of a multitask (monotasks §3.3).
//!
//! A monotask is queued for its resource only after all its predecessors have ended, so a monotask that
//! occupies a resource never waits for another. Edges point to monotasks listed earlier, so the DAG is
//! acyclic by construction. Multitasks are kept in a vector of reusable slots, so memory follows the number
//! of live multitasks.

use crate::{
    Invalid, JobId, MonotaskId, MonotaskSpec, MultitaskId, MultitaskSpec, Nanos, Outcome, Phase, ResourceId,
};

/// The state of a multitask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MultitaskState {
    /// Waiting for a place and memory.
    Waiting,
    /// Admitted; the driver is planning its monotasks.
    Expanding,
    /// Its monotasks are known.
    Expanded,
    /// Ended, but the driver has not been notified yet.
    Ended,
}

#[derive(Debug)]
pub(crate) struct Multitask {
    pub job: JobId,
    pub stage: u32,
    pub memory_bytes: u64,
    pub state: MultitaskState,
    /// Number of admissions before its own; older multitasks have smaller values.
    pub age: u64,
    /// Number of running monotasks.
    pub running: u32,
    /// True if this multitask caused its job to fail.
    pub failed: bool,
    unended: u32,
    monotasks: Vec<Monotask>,
}

#[derive(Debug)]
struct Monotask {
    resource: ResourceId,
    phase: Phase,
    /// Number of predecessors that have not ended.
    waits_for: u32,
    /// Indices of its successors.
    successors: Vec<u32>,
    state: MonotaskState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MonotaskState {
    Blocked,
    Queued,
    Running { start_ns: Nanos, charged_ns: u64 },
    Ended,
}

/// A monotask that is ready for its resource's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub index: u32,
    pub resource: ResourceId,
    pub phase: Phase,
}

/// A monotask that has just stopped running.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    pub resource: ResourceId,
    pub phase: Phase,
    pub start_ns: Nanos,
    /// Time that its job was charged when it started.
    pub charged_ns: u64,
}

impl Multitask {
    fn new(spec: MultitaskSpec) -> Self {
        Multitask {
            job: spec.job,
            stage: spec.stage,
            memory_bytes: spec.memory_bytes,
            state: MultitaskState::Waiting,
            age: 0,
            running: 0,
            failed: false,
            unended: 0,
            monotasks: Vec::new(),
        }
    }

    /// Returns whether all monotasks have ended.
    pub fn is_done(&self) -> bool {
        self.unended == 0
    }

    /// Checks whether `add` may be called with these monotasks.
    pub fn check(&self, specs: &[MonotaskSpec], resources: usize) -> Result<(), Invalid> {
        let first = self.monotasks.len();
        for (index, spec) in (first..).zip(specs) {
            let (resource, index) = (spec.resource, index as u32);
            if resource.0 as usize >= resources {
                return Err(Invalid::Resource { index, resource });
            }
            if let Some(&after) = spec.after.iter().find(|&&after| after >= index) {
                return Err(Invalid::After { index, after });
            }
        }
        Ok(())
    }

    /// Adds monotasks that passed `check`. Those without pending predecessors are also added to `ready`.
    pub fn add(&mut self, specs: Vec<MonotaskSpec>, ready: &mut Vec<Ready>) {
        for spec in specs {
            let index = self.monotasks.len() as u32;
            let mut waits_for = 0;
            for after in spec.after {
                let after = &mut self.monotasks[after as usize];
                if after.state != MonotaskState::Ended {
                    after.successors.push(index);
                    waits_for += 1;
                }
            }
            self.monotasks.push(Monotask {
                resource: spec.resource,
                phase: spec.phase,
                waits_for,
                successors: Vec::new(),
                state: MonotaskState::Blocked,
            });
            self.unended += 1;
            if waits_for == 0 {
                ready.push(self.queue(index));
            }
        }
    }

    fn queue(&mut self, index: u32) -> Ready {
        let monotask = &mut self.monotasks[index as usize];
        monotask.state = MonotaskState::Queued;
        let (resource, phase) = (monotask.resource, monotask.phase);
        Ready { index, resource, phase }
    }

    pub fn start(&mut self, index: u32, start_ns: Nanos, charged_ns: u64) {
        self.monotasks[index as usize].state = MonotaskState::Running { start_ns, charged_ns };
        self.running += 1;
    }

    pub fn is_running(&self, index: u32) -> bool {
        let monotask = self.monotasks.get(index as usize);
        monotask.is_some_and(|m| matches!(m.state, MonotaskState::Running { .. }))
    }

    /// Marks a running monotask as ended, whatever its outcome. Returns `None` if it was not running.
    pub fn stop(&mut self, index: u32) -> Option<Stopped> {
        let monotask = self.monotasks.get_mut(index as usize)?;
        let MonotaskState::Running { start_ns, charged_ns } = monotask.state else {
            return None;
        };
        monotask.state = MonotaskState::Ended;
        self.running -= 1;
        self.unended -= 1;
        let (resource, phase) = (monotask.resource, monotask.phase);
        Some(Stopped { resource, phase, start_ns, charged_ns })
    }

    /// Adds the successors that have no other pending predecessor to `ready`.
    pub fn release(&mut self, index: u32, ready: &mut Vec<Ready>) {
        for next in std::mem::take(&mut self.monotasks[index as usize].successors) {
            let monotask = &mut self.monotasks[next as usize];
            monotask.waits_for -= 1;
            if monotask.waits_for == 0 {
                ready.push(self.queue(next));
            }
        }
    }

    /// Returns the outcome of a multitask that is done, or whose job was stopped.
    pub fn outcome(&self, job_runs: bool) -> Outcome {
        match (self.failed, job_runs) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Done,
            (false, false) => Outcome::Cancelled,
        }
    }
}

/// All live multitasks, that is, those that were submitted and whose end was not yet returned.
#[derive(Debug, Default)]
pub(crate) struct Multitasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    multitask: Option<Multitask>,
}

impl Multitasks {
    pub fn insert(&mut self, spec: MultitaskSpec) -> MultitaskId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, multitask: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.multitask = Some(Multitask::new(spec));
        MultitaskId { slot, generation: place.generation }
    }

    pub fn get(&self, id: MultitaskId) -> Option<&Multitask> {
        let slot = self.slots.get(id.slot())?;
        slot.multitask.as_ref().filter(|_| slot.generation == id.generation)
    }

    pub fn get_mut(&mut self, id: MultitaskId) -> Option<&mut Multitask> {
        let slot = self.slots.get_mut(id.slot())?;
        slot.multitask.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub fn running(&mut self, id: MonotaskId) -> Option<&mut Multitask> {
        self.get_mut(id.multitask).filter(|m| m.is_running(id.index))
    }

    pub fn remove(&mut self, id: MultitaskId) -> Option<Multitask> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation != id.generation {
            return None;
        }
        let multitask = slot.multitask.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(multitask)
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
