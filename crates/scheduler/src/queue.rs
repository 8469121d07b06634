//! One resource's queue: which of the waiting monotasks is next.
//!
//! 1. The job that the resource has served least so far. A job is charged the mean
//!    service time when a monotask starts and the difference when it ends, so that
//!    one with many places does not look idle meanwhile. A job that comes, or comes
//!    back, begins at the service of the one served last: it can neither claim the
//!    time before nor be made to pay for it.
//! 2. Of that job, the phase after the one served last (monotasks §3.3: otherwise
//!    new reads stand behind a line of writes while the cores run dry).
//! 3. Of that phase, the multitask admitted first: so multitasks end one by one and
//!    their memory comes free early.
//!
//! When memory is short, writes and spills go before all else (§3.5), of whatever
//! job; but after [`WRITES_IN_A_ROW`] of them one other is let through, so that no
//! phase starves.
//!
//! Fetches may be limited to those of a few multitasks at once (§3.3): each new one
//! waits until one of these has no fetch running or queued.

use std::collections::{BTreeMap, BTreeSet};

use crate::{JobId, MonotaskId, MultitaskId, Nanos, Phase};

/// Writes that may pass others in a row when memory is short.
pub(crate) const WRITES_IN_A_ROW: u32 = 8;

/// Least charge for a monotask: even those of no duration use up a turn.
const MIN_CHARGE_NS: u64 = 1_000;

const PHASES: [Phase; 5] = [Phase::Read, Phase::Fetch, Phase::Compute, Phase::Spill, Phase::Write];

/// A set of phases, one bit each.
type PhaseSet = u8;

const fn only(phase: Phase) -> PhaseSet {
    1 << phase as u8
}

const ALL: PhaseSet = 0b1_1111;
const WRITES: PhaseSet = only(Phase::Spill) | only(Phase::Write);

#[derive(Debug)]
pub(crate) struct Queue {
    jobs: BTreeMap<JobId, Line>,
    /// For each phase, the jobs with work queued in it, least served first.
    by_phase: [BTreeSet<(u64, JobId)>; 5],
    queued: usize,
    /// Service of the job that was picked last.
    floor_ns: u64,
    mean_ns: u64,
    writes_in_a_row: u32,
    window: Option<Window>,
}

/// One job's monotasks.
#[derive(Debug, Default)]
struct Line {
    served_ns: u64,
    /// Index of the phase that was served last.
    last: usize,
    /// For each phase, what is queued, by age of its multitask.
    phases: [BTreeSet<(u64, MonotaskId)>; 5],
}

/// The multitasks whose fetches may run.
#[derive(Debug)]
struct Window {
    limit: usize,
    fetching: Vec<Fetching>,
}

#[derive(Debug, Clone, Copy)]
struct Fetching {
    job: JobId,
    age: u64,
    running: u32,
}

/// A monotask as it is taken from the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picked {
    pub monotask: MonotaskId,
    /// What its job was charged for it.
    pub charged_ns: u64,
}

impl Line {
    fn is_queued(&self, phase: usize) -> bool {
        !self.phases[phase].is_empty()
    }

    fn queued(&self) -> PhaseSet {
        (0..PHASES.len()).filter(|&p| self.is_queued(p)).fold(0, |set, p| set | 1 << p)
    }

    /// Its next fetch of the multitask of that age.
    fn fetch_of(&self, age: u64) -> Option<(u64, MonotaskId)> {
        let least = MultitaskId { slot: 0, generation: 0 };
        let least = MonotaskId { multitask: least, index: 0 };
        let mut from = self.phases[Phase::Fetch as usize].range((age, least)..);
        from.next().filter(|entry| entry.0 == age).copied()
    }
}

impl Queue {
    pub fn new(multitasks_at_once: Option<u32>) -> Self {
        Queue {
            jobs: BTreeMap::new(),
            by_phase: Default::default(),
            queued: 0,
            floor_ns: 0,
            mean_ns: MIN_CHARGE_NS,
            writes_in_a_row: 0,
            window: multitasks_at_once
                .map(|limit| Window { limit: limit.max(1) as usize, fetching: Vec::new() }),
        }
    }

    pub fn len(&self) -> usize {
        self.queued
    }

    pub fn push(&mut self, job: JobId, age: u64, monotask: MonotaskId, phase: Phase) {
        let line = self.jobs.entry(job).or_default();
        if line.queued() == 0 {
            line.served_ns = line.served_ns.max(self.floor_ns);
        }
        self.by_phase[phase as usize].insert((line.served_ns, job));
        line.phases[phase as usize].insert((age, monotask));
        self.queued += 1;
    }

    /// Takes what is next; `None`: nothing is queued, or only fetches that wait for
    /// others to end.
    pub fn pick(&mut self, memory_is_short: bool) -> Option<Picked> {
        if self.queued == 0 {
            return None;
        }
        let first = match memory_is_short {
            true if self.writes_in_a_row < WRITES_IN_A_ROW => WRITES,
            true => ALL & !WRITES,
            false => ALL,
        };
        let job = self.least_served(first).or_else(|| self.least_served(ALL))?;
        let phases = self.open_phases(job);
        // The job has one of `first`, unless no job has.
        let phases = if phases & first != 0 { phases & first } else { phases };
        let line = self.jobs.get_mut(&job)?;
        let phase = (1..=PHASES.len())
            .map(|step| (line.last + step) % PHASES.len())
            .find(|&p| phases & (1 << p) != 0)?;
        self.writes_in_a_row = match WRITES & (1 << phase) {
            0 => 0,
            _ => self.writes_in_a_row.saturating_add(1),
        };
        let entry = self.next_of(job, phase)?;
        Some(self.take(job, phase, entry))
    }

    /// The least served job that could start something of these phases.
    fn least_served(&self, phases: PhaseSet) -> Option<JobId> {
        (0..PHASES.len())
            .filter(|p| phases & (1 << p) != 0)
            .filter_map(|p| self.least_served_in(p))
            .min()
            .map(|(_, job)| job)
    }

    fn least_served_in(&self, phase: usize) -> Option<(u64, JobId)> {
        match self.full_window(phase) {
            None => self.by_phase[phase].first().copied(),
            Some(window) => window
                .iter()
                .filter_map(|f| Some((f, self.jobs.get(&f.job)?)))
                .filter(|(f, line)| line.fetch_of(f.age).is_some())
                .map(|(f, line)| (line.served_ns, f.job))
                .min(),
        }
    }

    /// The multitasks that alone may start a monotask of this phase; `None`: any may.
    fn full_window(&self, phase: usize) -> Option<&[Fetching]> {
        let window = self.window.as_ref().filter(|_| phase == Phase::Fetch as usize)?;
        (window.fetching.len() >= window.limit).then_some(&window.fetching[..])
    }

    /// The phases that the job could start a monotask of.
    fn open_phases(&self, job: JobId) -> PhaseSet {
        let queued = self.jobs.get(&job).map_or(0, Line::queued);
        let fetch = only(Phase::Fetch);
        if queued & fetch != 0 && self.next_of(job, Phase::Fetch as usize).is_none() {
            return queued & !fetch;
        }
        queued
    }

    /// The job's oldest monotask of the phase that may start.
    fn next_of(&self, job: JobId, phase: usize) -> Option<(u64, MonotaskId)> {
        let line = self.jobs.get(&job)?;
        match self.full_window(phase) {
            None => line.phases[phase].first().copied(),
            Some(window) => window.iter().filter(|f| f.job == job).filter_map(|f| line.fetch_of(f.age)).min(),
        }
    }

    fn take(&mut self, job: JobId, phase: usize, entry: (u64, MonotaskId)) -> Picked {
        let (age, monotask) = entry;
        if let Some(window) = self.window.as_mut().filter(|_| phase == Phase::Fetch as usize) {
            match window.fetching.iter_mut().find(|f| f.age == age) {
                Some(fetching) => fetching.running += 1,
                None => window.fetching.push(Fetching { job, age, running: 1 }),
            }
        }
        let charged_ns = self.mean_ns;
        if let Some(line) = self.jobs.get_mut(&job) {
            self.floor_ns = self.floor_ns.max(line.served_ns);
            line.last = phase;
            line.phases[phase].remove(&entry);
            self.queued -= 1;
            if !line.is_queued(phase) {
                self.by_phase[phase].remove(&(line.served_ns, job));
            }
        }
        self.charge(job, i128::from(charged_ns));
        Picked { monotask, charged_ns }
    }

    /// A monotask runs no more. Told after what became ready by it was pushed, so
    /// that a multitask with more to fetch keeps its place.
    pub fn stopped(&mut self, job: JobId, age: u64, phase: Phase, charged_ns: u64, took_ns: Nanos) {
        let took_ns = took_ns.max(MIN_CHARGE_NS);
        self.mean_ns = (self.mean_ns / 8 * 7).saturating_add(took_ns / 8).max(MIN_CHARGE_NS);
        self.charge(job, i128::from(took_ns) - i128::from(charged_ns));
        let Some(window) = self.window.as_mut().filter(|_| phase == Phase::Fetch) else {
            return;
        };
        let line = self.jobs.get(&job);
        window.fetching.retain_mut(|f| {
            if f.age == age {
                f.running -= 1;
            }
            f.running > 0 || line.is_some_and(|line| line.fetch_of(f.age).is_some()) || f.job != job
        });
    }

    fn charge(&mut self, job: JobId, by_ns: i128) {
        let Some(line) = self.jobs.get_mut(&job) else {
            return;
        };
        let before = line.served_ns;
        let after = (i128::from(before) + by_ns).clamp(0, i128::from(u64::MAX)) as u64;
        line.served_ns = after;
        for phase in (0..PHASES.len()).filter(|&p| line.is_queued(p)) {
            self.by_phase[phase].remove(&(before, job));
            self.by_phase[phase].insert((after, job));
        }
    }

    /// Drops all that is queued of a job; what runs is still to be `stopped`.
    pub fn drop_queued(&mut self, job: JobId) {
        let Some(line) = self.jobs.get_mut(&job) else {
            return;
        };
        for (phase, queued) in line.phases.iter_mut().enumerate() {
            self.queued -= queued.len();
            queued.clear();
            self.by_phase[phase].remove(&(line.served_ns, job));
        }
        if let Some(window) = &mut self.window {
            window.fetching.retain(|f| f.running > 0 || f.job != job);
        }
    }

    /// Forgets a job of which nothing is queued or runs.
    pub fn remove_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }
}
