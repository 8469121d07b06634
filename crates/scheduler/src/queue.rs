//! The queue of one resource, which picks the next monotask.
//!
//! 1. The job with the least service so far is next. A job is charged the mean service time when a monotask
//!    starts, and the difference when it ends, so that a job with many running monotasks does not appear
//!    idle. A job that is new, or returns, starts with at least the service of the job served last, so it
//!    gets no credit for the time before.
//! 2. Within the job, the phase after the one served last is next. Otherwise new reads would queue behind
//!    many writes while the cores run out of work (monotasks §3.3).
//! 3. Within the phase, the multitask admitted first is next, so that multitasks end one by one and free
//!    their memory early.
//!
//! When memory is short, writes and spills of any job take precedence (§3.5). After [`MAX_WRITES_IN_A_ROW`]
//! of them, one other monotask runs, so that no phase starves.
//!
//! Fetches may be limited to a few multitasks at once (§3.3). Another multitask may then fetch only after
//! one of these has no more fetches running or queued.

use std::collections::{BTreeMap, BTreeSet};

use crate::{JobId, MonotaskId, MultitaskId, Nanos, Phase};

/// Maximum number of consecutive writes that take precedence when memory is short.
pub(crate) const MAX_WRITES_IN_A_ROW: u32 = 8;

/// Minimum charge for a monotask, so that even monotasks of no duration use up a turn.
const MIN_CHARGE_NS: u64 = 1_000;

const PHASES: [Phase; 5] = [Phase::Read, Phase::Fetch, Phase::Compute, Phase::Spill, Phase::Write];

/// A bit set of phases.
type PhaseSet = u8;

const fn only(phase: Phase) -> PhaseSet {
    1 << phase as u8
}

const ALL: PhaseSet = 0b1_1111;
const WRITES: PhaseSet = only(Phase::Spill) | only(Phase::Write);

#[derive(Debug)]
pub(crate) struct Queue {
    jobs: BTreeMap<JobId, JobQueue>,
    /// For each phase, the jobs with queued monotasks, ordered by service.
    by_phase: [BTreeSet<(u64, JobId)>; 5],
    queued: usize,
    /// Service of the job that was picked last, at which new jobs start.
    floor_ns: u64,
    mean_ns: u64,
    writes_in_a_row: u32,
    window: Option<Window>,
}

/// The queued monotasks of a job.
#[derive(Debug, Default)]
struct JobQueue {
    served_ns: u64,
    /// Index of the phase that was served last.
    last: usize,
    /// For each phase, the queued monotasks, ordered by the age of their multitask.
    phases: [BTreeSet<(u64, MonotaskId)>; 5],
}

/// The window of multitasks that may fetch.
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

/// A monotask taken from the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picked {
    pub monotask: MonotaskId,
    /// Time that its job was charged.
    pub charged_ns: u64,
}

impl JobQueue {
    fn is_queued(&self, phase: usize) -> bool {
        !self.phases[phase].is_empty()
    }

    fn queued(&self) -> PhaseSet {
        (0..PHASES.len()).filter(|&p| self.is_queued(p)).fold(0, |set, p| set | 1 << p)
    }

    /// Returns the next queued fetch of the multitask with this age.
    fn fetch_of(&self, age: u64) -> Option<(u64, MonotaskId)> {
        let min = MultitaskId { slot: 0, generation: 0 };
        let min = MonotaskId { multitask: min, index: 0 };
        let mut from = self.phases[Phase::Fetch as usize].range((age, min)..);
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
        let job_queue = self.jobs.entry(job).or_default();
        if job_queue.queued() == 0 {
            job_queue.served_ns = job_queue.served_ns.max(self.floor_ns);
        }
        self.by_phase[phase as usize].insert((job_queue.served_ns, job));
        job_queue.phases[phase as usize].insert((age, monotask));
        self.queued += 1;
    }

    /// Takes the next monotask. Returns `None` if the queue is empty, or has only fetches outside the window.
    pub fn pick(&mut self, memory_is_short: bool) -> Option<Picked> {
        if self.queued == 0 {
            return None;
        }
        let first = match memory_is_short {
            true if self.writes_in_a_row < MAX_WRITES_IN_A_ROW => WRITES,
            true => ALL & !WRITES,
            false => ALL,
        };
        let job = self.least_served(first).or_else(|| self.least_served(ALL))?;
        let phases = self.open_phases(job);
        // The job has a phase in `first`, unless no job has.
        let phases = if phases & first != 0 { phases & first } else { phases };
        let job_queue = self.jobs.get_mut(&job)?;
        let phase = (1..=PHASES.len())
            .map(|step| (job_queue.last + step) % PHASES.len())
            .find(|&p| phases & (1 << p) != 0)?;
        self.writes_in_a_row = match WRITES & (1 << phase) {
            0 => 0,
            _ => self.writes_in_a_row.saturating_add(1),
        };
        let entry = self.next_of(job, phase)?;
        Some(self.take(job, phase, entry))
    }

    /// Returns the job with the least service that can start a monotask of these phases.
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
                .filter(|(f, job_queue)| job_queue.fetch_of(f.age).is_some())
                .map(|(f, job_queue)| (job_queue.served_ns, f.job))
                .min(),
        }
    }

    /// Returns the only multitasks that may start a monotask of this phase, or `None` if all may.
    fn full_window(&self, phase: usize) -> Option<&[Fetching]> {
        let window = self.window.as_ref().filter(|_| phase == Phase::Fetch as usize)?;
        (window.fetching.len() >= window.limit).then_some(&window.fetching[..])
    }

    /// Returns the phases of which the job can start a monotask.
    fn open_phases(&self, job: JobId) -> PhaseSet {
        let queued = self.jobs.get(&job).map_or(0, JobQueue::queued);
        let fetch = only(Phase::Fetch);
        if queued & fetch != 0 && self.next_of(job, Phase::Fetch as usize).is_none() {
            return queued & !fetch;
        }
        queued
    }

    /// Returns the job's oldest monotask of the phase that may start.
    fn next_of(&self, job: JobId, phase: usize) -> Option<(u64, MonotaskId)> {
        let job_queue = self.jobs.get(&job)?;
        match self.full_window(phase) {
            None => job_queue.phases[phase].first().copied(),
            Some(window) => {
                window.iter().filter(|f| f.job == job).filter_map(|f| job_queue.fetch_of(f.age)).min()
            }
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
        if let Some(job_queue) = self.jobs.get_mut(&job) {
            self.floor_ns = self.floor_ns.max(job_queue.served_ns);
            job_queue.last = phase;
            job_queue.phases[phase].remove(&entry);
            self.queued -= 1;
            if !job_queue.is_queued(phase) {
                self.by_phase[phase].remove(&(job_queue.served_ns, job));
            }
        }
        self.charge(job, i128::from(charged_ns));
        Picked { monotask, charged_ns }
    }

    /// Records that a monotask stopped running. To be called after its successors are pushed, so that a
    /// multitask with further fetches stays in the window.
    pub fn stopped(&mut self, job: JobId, age: u64, phase: Phase, charged_ns: u64, took_ns: Nanos) {
        let took_ns = took_ns.max(MIN_CHARGE_NS);
        self.mean_ns = (self.mean_ns / 8 * 7).saturating_add(took_ns / 8).max(MIN_CHARGE_NS);
        self.charge(job, i128::from(took_ns) - i128::from(charged_ns));
        let Some(window) = self.window.as_mut().filter(|_| phase == Phase::Fetch) else {
            return;
        };
        let job_queue = self.jobs.get(&job);
        window.fetching.retain_mut(|f| {
            if f.age == age {
                f.running -= 1;
            }
            f.running > 0
                || job_queue.is_some_and(|job_queue| job_queue.fetch_of(f.age).is_some())
                || f.job != job
        });
    }

    fn charge(&mut self, job: JobId, by_ns: i128) {
        let Some(job_queue) = self.jobs.get_mut(&job) else {
            return;
        };
        let before = job_queue.served_ns;
        let after = (i128::from(before) + by_ns).clamp(0, i128::from(u64::MAX)) as u64;
        job_queue.served_ns = after;
        for phase in (0..PHASES.len()).filter(|&p| job_queue.is_queued(p)) {
            self.by_phase[phase].remove(&(before, job));
            self.by_phase[phase].insert((after, job));
        }
    }

    /// Removes all queued monotasks of a job. Its running monotasks are still to be reported with `stopped`.
    pub fn drop_queued(&mut self, job: JobId) {
        let Some(job_queue) = self.jobs.get_mut(&job) else {
            return;
        };
        for (phase, queued) in job_queue.phases.iter_mut().enumerate() {
            self.queued -= queued.len();
            queued.clear();
            self.by_phase[phase].remove(&(job_queue.served_ns, job));
        }
        if let Some(window) = &mut self.window {
            window.fetching.retain(|f| f.running > 0 || f.job != job);
        }
    }

    /// Removes a job without queued or running monotasks.
    pub fn remove_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }
}
