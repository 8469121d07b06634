//! Admission of multitasks, limited by places and memory.
//!
//! The number of places is the concurrency of all resources plus one, so that no queue runs empty while its
//! next multitask is being planned (monotasks §3.4). The memory of admitted multitasks and the memory that
//! jobs hold between stages must fit the budget. If no multitask is admitted, the next one is admitted
//! whatever its size, which guarantees progress.
//!
//! Admission is fair over jobs: the job with the fewest admitted multitasks is next, then the one that has
//! waited longest. Within a job, multitasks are admitted in the order of submission. A multitask that does
//! not fit into memory blocks those behind it, since it might otherwise starve.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{JobId, MultitaskId};

#[derive(Debug)]
pub(crate) struct Admission {
    budget_bytes: Option<u64>,
    /// 128 bits, since the sum of the drivers' estimates must not overflow.
    held_bytes: u128,
    admitted: u32,
    jobs: BTreeMap<JobId, JobQueue>,
    /// Jobs with waiting multitasks, ordered by admitted multitasks, then by their last turn.
    order: BTreeSet<(u32, u64, JobId)>,
    turns: u64,
    waits_for_memory: bool,
}

/// The multitasks of a job.
#[derive(Debug)]
struct JobQueue {
    waiting: VecDeque<(MultitaskId, u64)>,
    admitted: u32,
    /// Number of admissions when the job was added or last had its turn.
    turn: u64,
    held_bytes: u128,
}

impl Admission {
    pub fn new(budget_bytes: Option<u64>) -> Self {
        Admission {
            budget_bytes,
            held_bytes: 0,
            admitted: 0,
            jobs: BTreeMap::new(),
            order: BTreeSet::new(),
            turns: 0,
            waits_for_memory: false,
        }
    }

    pub fn add_job(&mut self, job: JobId) {
        let queue = JobQueue { waiting: VecDeque::new(), admitted: 0, turn: self.turns, held_bytes: 0 };
        self.jobs.insert(job, queue);
    }

    /// Removes a job that has ended.
    pub fn remove_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// Changes a job's queue and updates `order`.
    fn change<T>(&mut self, job: JobId, change: impl FnOnce(&mut JobQueue) -> T) -> Option<T> {
        let queue = self.jobs.get_mut(&job)?;
        let key = (queue.admitted, queue.turn, job);
        let was = !queue.waiting.is_empty();
        let result = change(queue);
        let (after, is) = ((queue.admitted, queue.turn, job), !queue.waiting.is_empty());
        if was && !(is && key == after) {
            self.order.remove(&key);
        }
        if is && !(was && key == after) {
            self.order.insert(after);
        }
        Some(result)
    }

    pub fn submit(&mut self, job: JobId, id: MultitaskId, memory_bytes: u64) {
        self.change(job, |queue| queue.waiting.push_back((id, memory_bytes)));
    }

    /// Admits the next multitask, if one is waiting and there are a place and memory for it.
    pub fn admit(&mut self, places: u32) -> Option<MultitaskId> {
        self.waits_for_memory = false;
        if self.admitted >= places {
            return None;
        }
        let &(_, _, job) = self.order.first()?;
        let &(id, bytes) = self.jobs.get(&job)?.waiting.front()?;
        let fits =
            self.budget_bytes.is_none_or(|budget| self.held_bytes + u128::from(bytes) <= budget.into());
        if !fits && self.admitted > 0 {
            self.waits_for_memory = true;
            return None;
        }
        self.turns += 1;
        let turn = self.turns;
        self.change(job, |queue| {
            queue.waiting.pop_front();
            queue.admitted += 1;
            queue.turn = turn;
        });
        self.admitted += 1;
        self.held_bytes += u128::from(bytes);
        Some(id)
    }

    /// Frees the place and memory of an admitted multitask.
    pub fn ended(&mut self, job: JobId, memory_bytes: u64) {
        self.change(job, |queue| queue.admitted -= 1);
        self.admitted -= 1;
        self.held_bytes -= u128::from(memory_bytes);
    }

    /// Removes and returns all waiting multitasks of a job.
    pub fn drop_waiting(&mut self, job: JobId) -> VecDeque<(MultitaskId, u64)> {
        self.change(job, |queue| std::mem::take(&mut queue.waiting)).unwrap_or_default()
    }

    pub fn hold(&mut self, job: JobId, bytes: u64) {
        if let Some(queue) = self.jobs.get_mut(&job) {
            queue.held_bytes += u128::from(bytes);
            self.held_bytes += u128::from(bytes);
        }
    }

    pub fn release(&mut self, job: JobId, bytes: u64) {
        if let Some(queue) = self.jobs.get_mut(&job) {
            let bytes = queue.held_bytes.min(bytes.into());
            queue.held_bytes -= bytes;
            self.held_bytes -= bytes;
        }
    }

    /// Returns whether the job holds no memory between stages.
    pub fn holds_nothing(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_none_or(|queue| queue.held_bytes == 0)
    }

    /// Returns whether over 80 % of the budget is held, or the last call of `admit` failed for lack of
    /// memory.
    pub fn memory_is_short(&self) -> bool {
        self.waits_for_memory
            || self.budget_bytes.is_some_and(|budget| self.held_bytes > u128::from(budget - budget / 5))
    }

    pub fn held_bytes(&self) -> u64 {
        u64::try_from(self.held_bytes).unwrap_or(u64::MAX)
    }

    pub fn admitted(&self) -> u32 {
        self.admitted
    }

    pub fn waiting(&self) -> usize {
        self.jobs.values().map(|queue| queue.waiting.len()).sum()
    }
}
