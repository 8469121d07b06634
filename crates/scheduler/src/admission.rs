//! Which multitask may start: places and memory.
//!
//! Places: as many as all resources can run together, plus one, so that a queue is
//! not skipped while its next multitask is on its way (monotasks §3.4). Memory: what
//! the admitted multitasks need and what jobs hold between stages stays within the
//! budget. When nothing is admitted, the next multitask is, whatever its size: so
//! everything ends.
//!
//! Fair over jobs: the job with the fewest admitted multitasks is next, among equals
//! the one that has waited longest; within a job, in the order of submission. A
//! multitask that does not fit in memory is waited for, not overtaken: overtaken by
//! small ones it would never run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{JobId, MultitaskId};

#[derive(Debug)]
pub(crate) struct Admission {
    budget_bytes: Option<u64>,
    /// Wide, because a sum of sizes that drivers guess must not overflow.
    held_bytes: u128,
    admitted: u32,
    jobs: BTreeMap<JobId, Line>,
    /// Jobs with something waiting: fewest admitted, then longest without a turn.
    order: BTreeSet<(u32, u64, JobId)>,
    turns: u64,
    waits_for_memory: bool,
}

#[derive(Debug)]
struct Line {
    waiting: VecDeque<(MultitaskId, u64)>,
    admitted: u32,
    /// Count of admissions when it came or was last admitted from.
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
        let line = Line { waiting: VecDeque::new(), admitted: 0, turn: self.turns, held_bytes: 0 };
        self.jobs.insert(job, line);
    }

    /// Forgets a job of which nothing is left.
    pub fn remove_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// Changes a job's line and keeps `order` true to it.
    fn change<T>(&mut self, job: JobId, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        let line = self.jobs.get_mut(&job)?;
        let key = (line.admitted, line.turn, job);
        let was = !line.waiting.is_empty();
        let result = change(line);
        let (after, is) = ((line.admitted, line.turn, job), !line.waiting.is_empty());
        if was && !(is && key == after) {
            self.order.remove(&key);
        }
        if is && !(was && key == after) {
            self.order.insert(after);
        }
        Some(result)
    }

    pub fn submit(&mut self, job: JobId, id: MultitaskId, memory_bytes: u64) {
        self.change(job, |line| line.waiting.push_back((id, memory_bytes)));
    }

    /// Admits the next multitask, if one waits and there is room.
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
        self.change(job, |line| {
            line.waiting.pop_front();
            line.admitted += 1;
            line.turn = turn;
        });
        self.admitted += 1;
        self.held_bytes += u128::from(bytes);
        Some(id)
    }

    /// An admitted multitask ended.
    pub fn ended(&mut self, job: JobId, memory_bytes: u64) {
        self.change(job, |line| line.admitted -= 1);
        self.admitted -= 1;
        self.held_bytes -= u128::from(memory_bytes);
    }

    /// Takes out all that waits of a job.
    pub fn drop_waiting(&mut self, job: JobId) -> VecDeque<(MultitaskId, u64)> {
        self.change(job, |line| std::mem::take(&mut line.waiting)).unwrap_or_default()
    }

    pub fn hold(&mut self, job: JobId, bytes: u64) {
        if let Some(line) = self.jobs.get_mut(&job) {
            line.held_bytes += u128::from(bytes);
            self.held_bytes += u128::from(bytes);
        }
    }

    pub fn release(&mut self, job: JobId, bytes: u64) {
        if let Some(line) = self.jobs.get_mut(&job) {
            let bytes = line.held_bytes.min(bytes.into());
            line.held_bytes -= bytes;
            self.held_bytes -= bytes;
        }
    }

    /// The job holds nothing between stages.
    pub fn holds_nothing(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_none_or(|line| line.held_bytes == 0)
    }

    /// Over 80 % of the budget is held, or the last try to admit waited for memory.
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
        self.jobs.values().map(|line| line.waiting.len()).sum()
    }
}
