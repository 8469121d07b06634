//! Seeded random workloads on a virtual clock.
//!
//! A [`World`] drives a scheduler as an engine would: jobs arrive, multitasks are submitted, planned with a
//! delay, run, extended, failed and cancelled, and memory is held between stages. The world tracks its own
//! state and checks every decision against it. All calls and decisions are logged, for comparison with the
//! oracle.

mod check;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use pellucid_scheduler::*;

/// SplitMix64, a small seeded generator.
pub struct Random(pub u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The shape of a random workload.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub jobs: u64,
    /// Maximum number of multitasks of a job.
    pub multitasks: u64,
    /// Maximum number of planned monotasks of a multitask.
    pub monotasks: u64,
    /// Every monotask takes 10 µs, without memory budget, fetch limits or failures, so that monotasks wait
    /// only for their turn.
    pub uniform: bool,
}

/// A logged call, or a result of `next`.
#[derive(Debug, Clone, PartialEq)]
pub enum LogEntry {
    AddJob(JobId),
    Submit(MultitaskId, MultitaskSpec),
    Expand(MultitaskId, Vec<MonotaskSpec>),
    FailExpand(MultitaskId),
    Complete(MonotaskId, Completion),
    Fail(MonotaskId),
    Cancel(JobId),
    EndJob(JobId),
    /// The flag tells whether the job was still known, so that the memory counts.
    Hold(JobId, u64, bool),
    Release(JobId, u64),
    Next(Option<Decision>),
}

/// The result of a run.
pub struct Run {
    pub config: Config,
    pub resources: Vec<ResourceSpec>,
    pub log: Vec<(Nanos, LogEntry)>,
    /// Maximum number of starts on a resource while a job's phase with ready work was not served.
    pub longest_wait: u64,
    pub outcomes: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Submit(JobId, u32),
    Plan(MultitaskId),
    Stop(MonotaskId),
    Cancel(JobId),
    EndJob(JobId),
    Release(JobId, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MultitaskState {
    Waiting,
    Expanding,
    Expanded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MonotaskState {
    Waiting,
    Running,
    Ended,
}

#[derive(Debug)]
struct Body {
    spec: MultitaskSpec,
    state: MultitaskState,
    failed: bool,
    monotasks: Vec<(MonotaskSpec, MonotaskState)>,
}

#[derive(Debug, Default)]
struct JobState {
    stopped: bool,
    /// Number of multitasks that ended as failed; at most 1.
    failures: u32,
    failed: bool,
    held_bytes: u64,
}

pub struct World {
    random: Random,
    shape: Shape,
    config: Config,
    specs: Vec<ResourceSpec>,
    scheduler: Scheduler,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
    bodies: BTreeMap<MultitaskId, Body>,
    jobs: BTreeMap<JobId, JobState>,
    /// Number of starts since a job's phase with ready work was last served.
    passed: BTreeMap<(ResourceId, JobId, Phase), u64>,
    longest_wait: u64,
    submitted: u64,
    outcomes: BTreeMap<&'static str, u64>,
    log: Vec<(Nanos, LogEntry)>,
}

/// Runs one workload to its end and checks every decision.
pub fn run(seed: u64, shape: Shape) -> Run {
    let mut world = World::new(seed, shape);
    while let Some(Reverse((at, _, event))) = world.events.pop() {
        world.now = at;
        world.handle(event);
        world.drain();
    }
    world.check_end();
    Run {
        config: world.config,
        resources: world.specs,
        log: world.log,
        longest_wait: world.longest_wait,
        outcomes: world.outcomes,
    }
}

fn draw_resource(random: &mut Random, shape: Shape) -> ResourceSpec {
    let gain = match random.chance(50) {
        true => 0.0,
        false => controller::GAIN,
    };
    let concurrency = match shape.uniform || random.chance(60) {
        true => Concurrency::Fixed(1 + random.below(4) as u32),
        false => Concurrency::Adaptive { min: 2, max: 2 + random.below(15) as u32, gain },
    };
    let limited = !shape.uniform && random.chance(40);
    let multitasks_at_once = limited.then(|| 1 + random.below(4) as u32);
    ResourceSpec { concurrency, multitasks_at_once }
}

impl World {
    fn new(seed: u64, shape: Shape) -> Self {
        let mut random = Random(seed);
        let tight = !shape.uniform && random.chance(60);
        let config = Config { memory_bytes: tight.then(|| 20 + random.below(800)) };
        let mut scheduler = Scheduler::new(config);
        let specs: Vec<_> = (0..1 + random.below(4)).map(|_| draw_resource(&mut random, shape)).collect();
        for spec in &specs {
            scheduler.add_resource(*spec);
        }
        let mut world = World {
            random,
            shape,
            config,
            specs,
            scheduler,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            bodies: BTreeMap::new(),
            jobs: BTreeMap::new(),
            passed: BTreeMap::new(),
            longest_wait: 0,
            submitted: 0,
            outcomes: BTreeMap::new(),
            log: Vec::new(),
        };
        for _ in 0..1 + world.random.below(shape.jobs) {
            let at = world.random.below(2) * world.random.below(500_000);
            world.schedule(at, Event::Arrive);
        }
        world
    }

    fn schedule(&mut self, after_ns: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((self.now + after_ns, self.scheduled, event)));
    }

    fn record(&mut self, entry: LogEntry) {
        self.log.push((self.now, entry));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive => self.arrive(),
            Event::Submit(job, stage) => self.submit(job, stage),
            Event::Plan(id) => self.plan(id),
            Event::Stop(id) => self.stop(id),
            Event::Cancel(job) => {
                self.record(LogEntry::Cancel(job));
                self.scheduler.cancel(self.now, job);
                self.jobs.get_mut(&job).unwrap().stopped = true;
            }
            Event::EndJob(job) => {
                self.record(LogEntry::EndJob(job));
                self.scheduler.end_job(self.now, job);
            }
            Event::Release(job, bytes) => {
                self.record(LogEntry::Release(job, bytes));
                self.scheduler.release(job, bytes);
                self.jobs.get_mut(&job).unwrap().held_bytes -= bytes;
            }
        }
    }

    fn arrive(&mut self) {
        let job = self.scheduler.add_job(self.now);
        self.record(LogEntry::AddJob(job));
        self.jobs.insert(job, JobState::default());
        let together = self.random.chance(60);
        let mut after_ns = 0;
        for _ in 0..self.random.below(self.shape.multitasks + 1) {
            after_ns += if together { 0 } else { self.random.below(60_000) };
            let stage = self.random.below(3) as u32;
            self.schedule(after_ns, Event::Submit(job, stage));
        }
        if !self.shape.uniform && self.random.chance(15) {
            let at = self.random.below(after_ns + 300_000);
            self.schedule(at, Event::Cancel(job));
        }
        self.schedule(after_ns + 1, Event::EndJob(job));
    }

    fn submit(&mut self, job: JobId, stage: u32) {
        let large = self.random.chance(5);
        let memory_bytes = self.random.below(if large { 2_000 } else { 120 });
        let spec = MultitaskSpec { job, stage, memory_bytes };
        let id = self.scheduler.submit(self.now, spec);
        self.record(LogEntry::Submit(id, spec));
        self.submitted += 1;
        let body = Body { spec, state: MultitaskState::Waiting, failed: false, monotasks: Vec::new() };
        assert!(self.bodies.insert(id, body).is_none(), "an id was reused");
    }

    /// Draws a random DAG of at most `max` monotasks, with indices from `first`.
    fn draw_monotasks(&mut self, first: u32, max: u64) -> Vec<MonotaskSpec> {
        let phases = [Phase::Read, Phase::Fetch, Phase::Compute, Phase::Spill, Phase::Write];
        let last = first + self.random.below(max + 1) as u32;
        let mut monotasks = Vec::new();
        for index in first..last {
            let edges = self.random.below(3).min(index.into());
            let after = (0..edges).map(|_| self.random.below(index.into()) as u32).collect();
            monotasks.push(MonotaskSpec {
                resource: ResourceId(self.random.below(self.specs.len() as u64) as u32),
                phase: phases[self.random.below(5) as usize],
                after,
                bytes: self.random.below(1_000),
            });
        }
        monotasks
    }

    fn plan(&mut self, id: MultitaskId) {
        if !self.shape.uniform && self.random.chance(1) {
            self.record(LogEntry::FailExpand(id));
            self.scheduler.fail_expand(self.now, id);
            self.bodies.get_mut(&id).unwrap().state = MultitaskState::Expanded;
            self.job_fails(id);
            return;
        }
        let monotasks = self.draw_monotasks(0, self.shape.monotasks);
        self.record(LogEntry::Expand(id, monotasks.clone()));
        self.scheduler.expand(self.now, id, monotasks.clone()).unwrap();
        let stopped = self.jobs[&self.bodies[&id].spec.job].stopped;
        let body = self.bodies.get_mut(&id).unwrap();
        body.state = MultitaskState::Expanded;
        if !stopped {
            body.monotasks.extend(monotasks.into_iter().map(|m| (m, MonotaskState::Waiting)));
        }
    }

    fn job_fails(&mut self, id: MultitaskId) {
        let body = self.bodies.get_mut(&id).unwrap();
        let job = self.jobs.get_mut(&body.spec.job).unwrap();
        if !job.stopped {
            job.stopped = true;
            job.failed = true;
            body.failed = true;
        }
    }

    fn stop(&mut self, id: MonotaskId) {
        self.bodies.get_mut(&id.multitask).unwrap().monotasks[id.index as usize].1 = MonotaskState::Ended;
        if !self.shape.uniform && self.random.below(1_000) < 8 {
            self.record(LogEntry::Fail(id));
            self.scheduler.fail(self.now, id);
            self.job_fails(id.multitask);
            return;
        }
        let mut then = Vec::new();
        if self.random.chance(10) {
            let first = self.bodies[&id.multitask].monotasks.len() as u32;
            then = self.draw_monotasks(first, 2);
        }
        let completion = Completion { bytes: self.random.below(5_000), then };
        self.record(LogEntry::Complete(id, completion.clone()));
        self.scheduler.complete(self.now, id, completion.clone()).unwrap();
        let body = self.bodies.get_mut(&id.multitask).unwrap();
        if !self.jobs[&body.spec.job].stopped {
            body.monotasks.extend(completion.then.into_iter().map(|m| (m, MonotaskState::Waiting)));
        }
    }

    /// Takes, checks and carries out all decisions.
    fn drain(&mut self) {
        loop {
            let decision = self.scheduler.next(self.now);
            self.record(LogEntry::Next(decision));
            match decision {
                None => break,
                Some(Decision::Admit(id)) => {
                    self.check_admit(id);
                    self.bodies.get_mut(&id).unwrap().state = MultitaskState::Expanding;
                    let after_ns = self.random.below(2) * self.random.below(20_000);
                    self.schedule(after_ns, Event::Plan(id));
                }
                Some(Decision::Start { monotask, resource }) => {
                    self.check_start(monotask, resource);
                    let body = self.bodies.get_mut(&monotask.multitask).unwrap();
                    body.monotasks[monotask.index as usize].1 = MonotaskState::Running;
                    let after_ns = match self.shape.uniform {
                        true => 10_000,
                        false => self.random.below(100_000),
                    };
                    self.schedule(after_ns, Event::Stop(monotask));
                }
                Some(Decision::Ended { multitask, outcome }) => {
                    self.check_ended(multitask, outcome);
                    let job = self.bodies.remove(&multitask).unwrap().spec.job;
                    if outcome == Outcome::Done && self.random.chance(30) {
                        self.hold(job);
                    }
                }
            }
        }
        self.check_drained();
    }

    fn hold(&mut self, job: JobId) {
        let bytes = self.random.below(200);
        // The scheduler ignores the call if it has already removed the job.
        let before = self.scheduler.memory_held();
        self.scheduler.hold(job, bytes);
        let counts = self.scheduler.memory_held() > before;
        self.record(LogEntry::Hold(job, bytes, counts));
        if counts {
            self.jobs.get_mut(&job).unwrap().held_bytes += bytes;
            let after_ns = self.random.below(400_000);
            self.schedule(after_ns, Event::Release(job, bytes));
        }
    }
}
