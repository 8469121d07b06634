//! A whole job in one thread, on a virtual clock: workers, controller, and a network that delays,
//! reorders and repeats.
//!
//! Workers and controller are those of live jobs; kernels run for real, so that the answer can be
//! compared; their time is made up by a cost function. The same seed gives the same run. It serves
//! tests (migrations, losses, unevenness at random moments) and questions of scale (how many messages
//! a thousand workers need). What it leaves out: the threads of a worker, and bandwidth: a message takes
//! as long whatever its size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex};

use crate::cell::lock;
use crate::controller::Controller;
use crate::error::JobError;
use crate::message::{Envelope, Message, Peer};
use crate::plan::{BundleIx, Plan};
use crate::run::Outcome;
use crate::thread::{Meter, Thread};
use crate::worker::{Network, SaveDone, Store, Worker, WorkerOptions};

/// Pseudo-random numbers (SplitMix64); the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A sequence by its seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// One of `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// True with a probability in thousandths.
    pub fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }
}

/// Something that happens to the job from outside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The controller moves a random bundle to a random worker.
    Migrate,
    /// Another worker comes.
    Join,
    /// A worker hands everything over and goes.
    Leave(u32),
    /// A worker is gone from one moment to the next.
    Kill(u32),
    /// A worker's tasks take so many times as long from here on.
    Slow(u32, f64),
    /// The next iteration is saved.
    Snapshot,
}

/// What is simulated.
pub struct Simulation {
    /// Workers at the start.
    pub workers: u32,
    /// Of all that is random.
    pub seed: u64,
    /// What a message takes at least.
    pub latency_ns: u64,
    /// What it takes more, at most, at random.
    pub jitter_ns: u64,
    /// How many of a thousand messages come twice.
    pub repeated: u64,
    /// Time between the reports of a worker; 0: none.
    pub report_ns: u64,
    /// Whether the controller evens out loads.
    pub balances: bool,
    /// A snapshot every so many iterations; 0: only by [`Event::Snapshot`].
    pub snapshot_every: u32,
    /// Memory of each worker; `None`: not limited.
    pub memory_bytes: Option<u64>,
    /// Core time of a task, by stage and partition.
    #[allow(clippy::type_complexity)]
    pub cost_ns: Box<dyn Fn(&str, u32) -> u64 + Send + Sync>,
    /// What happens when.
    pub events: Vec<(u64, Event)>,
    /// The virtual time at which it is given up.
    pub limit_ns: u64,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            workers: 2,
            seed: 0,
            latency_ns: 10_000,
            jitter_ns: 0,
            repeated: 0,
            report_ns: 0,
            balances: false,
            snapshot_every: 0,
            memory_bytes: None,
            cost_ns: Box::new(|_, _| 1_000),
            events: Vec::new(),
            limit_ns: 20_000_000_000,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Simulated {
    /// As of a live job.
    pub outcome: Outcome,
    /// Virtual time from start to end.
    pub elapsed_ns: u64,
    /// Messages between workers.
    pub worker_messages: u64,
    /// Messages from and to the controller, reports apart.
    pub controller_messages: u64,
    /// Reports.
    pub reports: u64,
    /// When the first task of each iteration began.
    pub iterations_ns: Vec<u64>,
    /// By worker at the end: bundles that it has.
    pub bundles: BTreeMap<u32, usize>,
}

/// What all parts of a simulation share: the clock, and messages that were just sent.
#[derive(Default)]
struct Air {
    now_ns: u64,
    sent: Vec<(Peer, Peer, Envelope)>,
    iterations_ns: Vec<u64>,
    slowness: Vec<f64>,
}

struct Port {
    from: Peer,
    air: Arc<Mutex<Air>>,
}

impl Network for Port {
    fn send(&self, to: Peer, envelope: Envelope) {
        lock(&self.air).sent.push((self.from, to, envelope));
    }
}

#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, bytes::Bytes>>);

impl Store for Memory {
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone) {
        lock(&self.0).extend(objects.into_iter().map(|(name, bytes)| (name, bytes.into())));
        done(Ok(()));
    }

    fn load(&self, object: &str) -> Result<bytes::Bytes, JobError> {
        let found = lock(&self.0).get(object).cloned();
        found.ok_or(JobError::Snapshot { place: object.into(), cause: "it is not there".into() })
    }
}

/// Charges what the cost function says.
struct Charge<'s> {
    simulation: &'s Simulation,
    plan: &'s Plan,
    worker: u32,
    air: Arc<Mutex<Air>>,
    charged_ns: u64,
}

impl Meter for Charge<'_> {
    fn before(&mut self, _: BundleIx, _: u32) {}

    fn after(&mut self, bundle: BundleIx, statement: u32, iteration: u64, _: impl FnOnce() -> u64) {
        let name = &self.plan.statements[statement as usize].name;
        let cost = (self.simulation.cost_ns)(name, self.plan.locate(bundle).1);
        let mut air = lock(&self.air);
        while air.iterations_ns.len() <= iteration as usize {
            let now = air.now_ns;
            air.iterations_ns.push(now);
        }
        let cost = (cost as f64 * air.slowness[self.worker as usize]) as u64;
        air.now_ns += cost;
        self.charged_ns += cost;
    }

    fn turn_begins(&mut self) {
        self.charged_ns = 0;
    }

    fn turn_ends(&mut self) -> u64 {
        self.charged_ns
    }

    fn now_ns(&self) -> u64 {
        lock(&self.air).now_ns
    }
}

enum Next {
    Message(Peer, Peer, Box<Envelope>),
    Turn(u32),
    Tick(u32),
    Outside(Event),
    Lost(u32),
}

struct Run<'s, 'w> {
    simulation: &'s Simulation,
    air: Arc<Mutex<Air>>,
    random: Random,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    /// What the queue's entries stand for.
    next: BTreeMap<u64, Next>,
    numbers: u64,
    now_ns: u64,
    workers: &'w [Worker],
    threads: Vec<Thread<'w, Charge<'s>>>,
    /// When the last message of each connection arrives.
    last: BTreeMap<(Peer, Peer), u64>,
    /// When a worker's turn is under way or due.
    busy: Vec<bool>,
    alive: Vec<bool>,
    joined: u32,
    controller: Controller,
    result: Simulated,
}

/// Runs a plan in a simulation.
///
/// # Errors
/// What a live job's could be; and the limit of virtual time.
pub fn simulate(plan: &Arc<Plan>, simulation: &Simulation) -> Result<Simulated, JobError> {
    let joins = simulation.events.iter().filter(|(_, event)| *event == Event::Join).count() as u32;
    let count = simulation.workers + joins;
    let air = Arc::new(Mutex::new(Air { slowness: vec![1.0; count as usize], ..Air::default() }));
    let store = Arc::new(Memory::default());
    let worker = |rank| {
        let options = WorkerOptions {
            rank,
            threads: 1,
            snapshot_every: simulation.snapshot_every,
            memory_bytes: simulation.memory_bytes,
        };
        let network = Arc::new(Port { from: Peer::Worker(rank), air: air.clone() });
        Worker::new(plan.clone(), options, network, Some(store.clone() as Arc<dyn Store>))
    };
    let workers: Vec<Worker> = (0..count).map(worker).collect();
    let thread = |worker| {
        let rank = Worker::rank(worker);
        let meter = Charge { simulation, plan, worker: rank, air: air.clone(), charged_ns: 0 };
        Thread::new(worker, 0, meter)
    };
    let run = Run {
        simulation,
        air: air.clone(),
        random: Random::new(simulation.seed),
        queue: BinaryHeap::new(),
        next: BTreeMap::new(),
        numbers: 0,
        now_ns: 0,
        workers: &workers,
        threads: workers.iter().map(thread).collect(),
        last: BTreeMap::new(),
        busy: vec![false; count as usize],
        alive: vec![true; count as usize],
        joined: simulation.workers,
        controller: Controller::new(plan.clone(), simulation.workers as usize, simulation.balances, None),
        result: Simulated {
            outcome: Outcome::new(plan),
            elapsed_ns: 0,
            worker_messages: 0,
            controller_messages: 0,
            reports: 0,
            iterations_ns: Vec::new(),
            bundles: BTreeMap::new(),
        },
    };
    run.run()
}

impl Run<'_, '_> {
    fn run(mut self) -> Result<Simulated, JobError> {
        for (at, event) in self.simulation.events.clone() {
            self.schedule(at, Next::Outside(event));
        }
        (0..self.simulation.workers).for_each(|worker| self.controller.joined(worker));
        (0..self.workers.len() as u32).for_each(|worker| self.schedule_tick(worker));
        self.collect();
        while self.controller.result.is_none() {
            let Some(Reverse((at, number))) = self.queue.pop() else {
                return Err(self.gave_up("anything to happen: all wait for each other"));
            };
            if at > self.simulation.limit_ns {
                return Err(self.gave_up("the end of the simulation"));
            }
            self.now_ns = at;
            lock(&self.air).now_ns = at;
            if let Some(next) = self.next.remove(&number) {
                self.happen(next);
            }
            self.collect();
        }
        self.result.elapsed_ns = self.now_ns;
        self.result.iterations_ns = std::mem::take(&mut lock(&self.air).iterations_ns);
        for worker in self.workers {
            self.result.bundles.insert(worker.rank(), lock(&worker.control).resident.len());
        }
        self.result.outcome = self.controller.into_outcome()?;
        Ok(self.result)
    }

    fn gave_up(&self, waited_for: &str) -> JobError {
        let limit = std::time::Duration::from_nanos(self.now_ns);
        let mut waited_for = format!("{waited_for}; {}", self.controller.describe());
        for worker in self.workers {
            for &bundle in &lock(&worker.control).resident {
                if let Some(bundle) = &*worker.cell(bundle).bundle() {
                    waited_for += &format!("; worker {}: {}", worker.rank(), bundle.describe(&worker.plan));
                }
            }
        }
        JobError::TimedOut { waited_for, limit }
    }

    /// Whether a worker takes anything in: it has neither been killed nor ended.
    fn runs(&self, worker: u32) -> bool {
        let stopped = &self.workers[worker as usize].stopped;
        self.alive[worker as usize] && !stopped.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn schedule(&mut self, at_ns: u64, next: Next) {
        self.queue.push(Reverse((at_ns, self.numbers)));
        self.next.insert(self.numbers, next);
        self.numbers += 1;
    }

    fn schedule_tick(&mut self, worker: u32) {
        if self.simulation.report_ns > 0 {
            self.schedule(self.now_ns + self.simulation.report_ns, Next::Tick(worker));
        }
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Message(from, Peer::Controller, envelope) => {
                if let Peer::Worker(from) = from {
                    self.controller.handle(from, *envelope);
                }
            }
            Next::Message(from, Peer::Worker(to), envelope) => {
                if self.runs(to) {
                    self.workers[to as usize].handle(from, *envelope);
                    self.wake(to);
                }
            }
            Next::Turn(worker) => self.turn(worker),
            Next::Tick(worker) => {
                if self.runs(worker) {
                    self.workers[worker as usize].tick(self.simulation.report_ns);
                    self.schedule_tick(worker);
                }
            }
            Next::Outside(event) => self.outside(event),
            Next::Lost(worker) => self.controller.lost(worker, "it was killed"),
        }
    }

    fn wake(&mut self, worker: u32) {
        if !std::mem::replace(&mut self.busy[worker as usize], true) {
            self.schedule(self.now_ns, Next::Turn(worker));
        }
    }

    fn turn(&mut self, worker: u32) {
        self.busy[worker as usize] = false;
        let here = &self.workers[worker as usize];
        let interrupted = here.interrupt.load(std::sync::atomic::Ordering::SeqCst);
        if self.alive[worker as usize] && !interrupted && self.threads[worker as usize].work() {
            self.busy[worker as usize] = true;
            let until = lock(&self.air).now_ns.max(self.now_ns + 1);
            self.schedule(until, Next::Turn(worker));
        }
    }

    fn outside(&mut self, event: Event) {
        match event {
            Event::Migrate => {
                let members: Vec<u32> = self.controller.members().collect();
                let bundles = u64::from(self.workers[0].plan.bundles);
                let bundle = self.random.below(bundles) as u32;
                if let Some(&to) = members.get(self.random.below(members.len() as u64) as usize) {
                    self.controller.move_bundle(bundle, to);
                }
            }
            Event::Join => {
                self.controller.joined(self.joined);
                self.joined += 1;
            }
            Event::Leave(worker) => self.controller.leave(worker),
            Event::Kill(worker) => {
                self.alive[worker as usize] = false;
                let noticed = self.now_ns + self.random.below(20 * self.simulation.latency_ns);
                self.schedule(noticed, Next::Lost(worker));
            }
            Event::Slow(worker, factor) => lock(&self.air).slowness[worker as usize] = factor,
            Event::Snapshot => self.controller.take_snapshot(),
        }
    }

    /// Sends on what was sent, and what the controller wants.
    fn collect(&mut self) {
        for manifest in std::mem::take(&mut self.controller.commits) {
            self.controller.committed(manifest);
        }
        for (worker, envelope) in std::mem::take(&mut self.controller.out) {
            self.travel(self.now_ns, Peer::Controller, Peer::Worker(worker), envelope);
        }
        let (sent, now) = {
            let mut air = lock(&self.air);
            (std::mem::take(&mut air.sent), air.now_ns)
        };
        for (from, to, envelope) in sent {
            self.travel(now, from, to, envelope);
        }
    }

    fn travel(&mut self, now_ns: u64, from: Peer, to: Peer, envelope: Envelope) {
        match (from, to, &envelope.message) {
            (_, _, Message::Report(_)) => self.result.reports += 1,
            (Peer::Worker(_), Peer::Worker(_), _) => self.result.worker_messages += 1,
            _ => self.result.controller_messages += 1,
        }
        let copies = 1 + u64::from(self.random.chance(self.simulation.repeated));
        for _ in 0..copies {
            let jitter = self.random.below(self.simulation.jitter_ns + 1);
            let mut at = now_ns + self.simulation.latency_ns + jitter;
            let last = self.last.entry((from, to)).or_default();
            if matches!(envelope.message, Message::Parted) {
                // The last of its connection.
                at = at.max(*last + 1);
            }
            *last = at.max(*last);
            self.schedule(at, Next::Message(from, to, Box::new(envelope.clone())));
        }
    }
}
