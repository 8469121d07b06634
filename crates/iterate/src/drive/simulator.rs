//! A simulator that runs a whole job in one thread on a virtual clock: workers, controller, and a network that
//! delays, reorders and duplicates messages.
//!
//! Workers and controller are the code of live jobs. Kernels run for real, so that results can be compared,
//! but their times come from a cost function. The same seed gives the same run. Tests use the simulator for
//! migrations, losses and imbalance at random moments, and for questions of scale, such as the number of
//! messages that a thousand workers need. It does not model multiple threads per worker or bandwidth: the
//! delay of a message does not depend on its size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex};

use crate::control::controller::Controller;
use crate::dataflow::index::{BundleIx, Ix, StatementIx, Table, WorkerIx};
use crate::dataflow::outcome::Outcome;
use crate::dataflow::plan::Plan;
use crate::error::JobError;
use crate::exec::host::Meter;
use crate::protocol::message::{Envelope, Message, Peer};
use crate::protocol::ports::{Network, SaveDone, Store};
use crate::sync::lock;
use crate::worker::state::{Worker, WorkerOptions};
use crate::worker::thread::Thread;

/// A pseudo-random number generator (SplitMix64), the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// Returns a place in a list of `length` items, or 0 if it is empty.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns true with a probability of `thousandths` / 1000.
    pub fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }
}

/// An external event during the simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The controller moves a random bundle to a random worker.
    Migrate,
    /// Another worker joins.
    Join,
    /// A worker hands over its bundles and leaves.
    Leave(u32),
    /// A worker dies.
    Kill(u32),
    /// A worker's tasks take this many times as long from now on.
    Slow(u32, f64),
    /// A snapshot is requested.
    Snapshot,
    /// A random object in the snapshot store is damaged or, with `true`, lost.
    Damage(bool),
}

/// Parameters of a simulation.
pub struct Simulation {
    /// Number of workers at the start.
    pub workers: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Minimum delay of a message.
    pub latency_ns: u64,
    /// Maximum additional random delay.
    pub jitter_ns: u64,
    /// Number of messages per thousand that are duplicated.
    pub repeated: u64,
    /// Time between a worker's reports; 0 disables reports.
    pub report_ns: u64,
    /// True if the controller balances load.
    pub balances: bool,
    /// Iterations between snapshots; 0 takes them only on [`Event::Snapshot`].
    pub snapshot_every: u32,
    /// Core time of a task, by stage and partition.
    #[allow(clippy::type_complexity)]
    pub cost_ns: Box<dyn Fn(&str, u32) -> u64 + Send + Sync>,
    /// Events with their virtual times, in ns.
    pub events: Vec<(u64, Event)>,
    /// Virtual time at which the simulation is aborted.
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
            cost_ns: Box::new(|_, _| 1_000),
            events: Vec::new(),
            limit_ns: 20_000_000_000,
        }
    }
}

/// The result of a simulation.
#[derive(Debug)]
pub struct Simulated {
    /// Outcome, as of a live job.
    pub outcome: Outcome,
    /// Virtual time from start to end.
    pub elapsed_ns: u64,
    /// Number of messages between workers.
    pub worker_messages: u64,
    /// Number of messages from and to the controller, without reports.
    pub controller_messages: u64,
    /// Number of reports.
    pub reports: u64,
    /// Virtual start time of the first task of each iteration.
    pub iterations_ns: Vec<u64>,
    /// Warnings about damaged snapshots.
    pub damages: Vec<String>,
    /// Number of bundles on each worker at the end.
    pub bundles: BTreeMap<u32, usize>,
}

/// State shared by all parts of a simulation: the clock, and messages just sent.
#[derive(Default)]
struct Shared {
    now_ns: u64,
    sent: Vec<(Peer, Peer, Envelope)>,
    iterations_ns: Vec<u64>,
    slowness: Table<WorkerIx, f64>,
}

struct SimulatedNetwork {
    from: Peer,
    shared: Arc<Mutex<Shared>>,
}

impl Network for SimulatedNetwork {
    fn send(&self, to: Peer, envelope: Envelope) {
        lock(&self.shared).sent.push((self.from, to, envelope));
    }
}

#[derive(Default)]
struct MemoryStore(Mutex<BTreeMap<String, bytes::Bytes>>);

impl Store for MemoryStore {
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone) {
        lock(&self.0).extend(objects.into_iter().map(|(name, bytes)| (name, bytes.into())));
        done(Ok(()));
    }

    fn load(&self, object: &str) -> Result<Option<bytes::Bytes>, JobError> {
        Ok(lock(&self.0).get(object).cloned())
    }
}

/// A meter that charges the times of the cost function.
struct CostMeter<'s> {
    simulation: &'s Simulation,
    plan: &'s Plan,
    worker: WorkerIx,
    shared: Arc<Mutex<Shared>>,
    charged_ns: u64,
}

impl Meter for CostMeter<'_> {
    fn before(&mut self, _: BundleIx, _: StatementIx) {}

    fn after(&mut self, bundle: BundleIx, statement: StatementIx, iteration: u64, _: impl FnOnce() -> u64) {
        let name = &self.plan.statements[statement].name;
        let cost = (self.simulation.cost_ns)(name, self.plan.locate(bundle).1);
        let mut shared = lock(&self.shared);
        while shared.iterations_ns.len() <= iteration as usize {
            let now = shared.now_ns;
            shared.iterations_ns.push(now);
        }
        let cost = (cost as f64 * shared.slowness[self.worker]) as u64;
        shared.now_ns += cost;
        self.charged_ns += cost;
    }

    fn turn_begins(&mut self) {
        self.charged_ns = 0;
    }

    fn turn_ends(&mut self) -> u64 {
        self.charged_ns
    }

    fn now_ns(&self) -> u64 {
        lock(&self.shared).now_ns
    }
}

enum Action {
    Message(Peer, Peer, Box<Envelope>),
    Turn(WorkerIx),
    Tick(WorkerIx),
    External(Event),
    Lost(WorkerIx),
}

struct Run<'s, 'w> {
    simulation: &'s Simulation,
    shared: Arc<Mutex<Shared>>,
    random: Random,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    /// The actions of the queue's entries.
    actions: BTreeMap<u64, Action>,
    next_id: u64,
    now_ns: u64,
    workers: &'w Table<WorkerIx, Worker>,
    threads: Table<WorkerIx, Thread<'w, CostMeter<'s>>>,
    /// Arrival time of the last message of each connection.
    last: BTreeMap<(Peer, Peer), u64>,
    /// True if a turn is running or scheduled.
    busy: Table<WorkerIx, bool>,
    alive: Table<WorkerIx, bool>,
    /// The next worker to join.
    next: WorkerIx,
    controller: Controller,
    store: Arc<MemoryStore>,
    result: Simulated,
}

/// Runs a plan in a simulation.
///
/// # Errors
/// If the job fails, or the limit of virtual time is exceeded.
pub fn simulate(plan: &Arc<Plan>, simulation: &Simulation) -> Result<Simulated, JobError> {
    let joins = simulation.events.iter().filter(|(_, event)| *event == Event::Join).count();
    let expected = simulation.workers as usize;
    let count = expected + joins;
    let shared = Arc::new(Mutex::new(Shared { slowness: Table::filled(count, 1.0), ..Shared::default() }));
    let store = Arc::new(MemoryStore::default());
    let worker = |rank| {
        let options = WorkerOptions { rank, threads: 1, snapshot_every: simulation.snapshot_every };
        let network = Arc::new(SimulatedNetwork { from: Peer::Worker(rank), shared: shared.clone() });
        Worker::new(plan.clone(), options, network, Some(store.clone() as Arc<dyn Store>))
    };
    let workers: Table<WorkerIx, Worker> = WorkerIx::first(count).map(worker).collect();
    let thread = |worker| {
        let rank = Worker::rank(worker);
        let meter = CostMeter { simulation, plan, worker: rank, shared: shared.clone(), charged_ns: 0 };
        Thread::new(worker, 0, meter)
    };
    let run = Run {
        simulation,
        shared: shared.clone(),
        random: Random::new(simulation.seed),
        queue: BinaryHeap::new(),
        actions: BTreeMap::new(),
        next_id: 0,
        now_ns: 0,
        workers: &workers,
        threads: workers.iter().map(thread).collect(),
        last: BTreeMap::new(),
        busy: Table::filled(count, false),
        alive: Table::filled(count, true),
        next: WorkerIx::of(expected),
        controller: Controller::new(plan.clone(), expected, simulation.balances, Vec::new()),
        store: store.clone(),
        result: Simulated {
            outcome: Outcome::new(plan),
            elapsed_ns: 0,
            worker_messages: 0,
            controller_messages: 0,
            reports: 0,
            iterations_ns: Vec::new(),
            damages: Vec::new(),
            bundles: BTreeMap::new(),
        },
    };
    run.run()
}

impl Run<'_, '_> {
    fn run(mut self) -> Result<Simulated, JobError> {
        for (at, event) in self.simulation.events.clone() {
            self.schedule(at, Action::External(event));
        }
        WorkerIx::first(self.next.place()).for_each(|worker| self.controller.joined(worker));
        self.workers.indexes().for_each(|worker| self.schedule_tick(worker));
        self.dispatch();
        while self.controller.result.is_none() {
            let Some(Reverse((at, number))) = self.queue.pop() else {
                return Err(self.timed_out("an event: deadlock"));
            };
            if at > self.simulation.limit_ns {
                return Err(self.timed_out("the end of the simulation"));
            }
            self.now_ns = at;
            lock(&self.shared).now_ns = at;
            if let Some(action) = self.actions.remove(&number) {
                self.perform(action);
            }
            self.dispatch();
        }
        self.result.elapsed_ns = self.now_ns;
        self.result.iterations_ns = std::mem::take(&mut lock(&self.shared).iterations_ns);
        for worker in self.workers.iter() {
            self.result.bundles.insert(worker.rank().0, lock(&worker.control).migration.resident().len());
        }
        self.result.damages = std::mem::take(&mut self.controller.warnings);
        self.result.outcome = self.controller.into_outcome()?;
        Ok(self.result)
    }

    fn timed_out(&self, waited_for: &str) -> JobError {
        let limit = std::time::Duration::from_nanos(self.now_ns);
        let mut waited_for = format!("{waited_for}; {}", self.controller.describe());
        for worker in self.workers.iter() {
            for &bundle in lock(&worker.control).migration.resident() {
                if let Some(bundle) = &*worker.slot(bundle).bundle() {
                    waited_for += &format!("; worker {}: {}", worker.rank(), bundle.describe(&worker.plan));
                }
            }
        }
        JobError::TimedOut { waited_for, limit }
    }

    /// Returns whether a worker handles messages: it has neither been killed nor stopped.
    fn runs(&self, worker: WorkerIx) -> bool {
        self.alive[worker] && !self.workers[worker].gate.is_stopped()
    }

    fn schedule(&mut self, at_ns: u64, action: Action) {
        self.queue.push(Reverse((at_ns, self.next_id)));
        self.actions.insert(self.next_id, action);
        self.next_id += 1;
    }

    fn schedule_tick(&mut self, worker: WorkerIx) {
        if self.simulation.report_ns > 0 {
            self.schedule(self.now_ns + self.simulation.report_ns, Action::Tick(worker));
        }
    }

    fn perform(&mut self, action: Action) {
        // As in a mesh, so that all valid messages are known to pass the check.
        if let Action::Message(from, _, envelope) = &action
            && let Err(cause) = envelope.message.check(self.controller.plan(), *from)
        {
            return self.controller.fail(JobError::Connection { peer: format!("{from:?}"), cause });
        }
        match action {
            Action::Message(from, Peer::Controller, envelope) => {
                if let Peer::Worker(from) = from {
                    self.controller.handle(from, *envelope);
                }
            }
            Action::Message(from, Peer::Worker(to), envelope) => {
                if self.runs(to) {
                    let worker = &self.workers[to];
                    if let Err(cause) = worker.admit(from, &envelope) {
                        let peer = format!("{from:?}");
                        return self.controller.fail(JobError::Connection { peer, cause });
                    }
                    // A simulated thread runs no turn meanwhile.
                    let waiting = worker.handle(from, *envelope);
                    debug_assert!(waiting.is_none());
                    self.wake(to);
                }
            }
            Action::Turn(worker) => self.turn(worker),
            Action::Tick(worker) => {
                if self.runs(worker) {
                    self.workers[worker].tick(self.simulation.report_ns);
                    self.schedule_tick(worker);
                }
            }
            Action::External(event) => self.apply(event),
            Action::Lost(worker) => self.controller.lost(worker, "it was killed"),
        }
    }

    fn wake(&mut self, worker: WorkerIx) {
        if !std::mem::replace(&mut self.busy[worker], true) {
            self.schedule(self.now_ns, Action::Turn(worker));
        }
    }

    fn turn(&mut self, worker: WorkerIx) {
        self.busy[worker] = false;
        let here = &self.workers[worker];
        if self.alive[worker] && !here.gate.is_closed() && self.threads[worker].work() {
            self.busy[worker] = true;
            let until = lock(&self.shared).now_ns.max(self.now_ns + 1);
            self.schedule(until, Action::Turn(worker));
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Migrate => {
                let members: Vec<WorkerIx> = self.controller.members().collect();
                let bundle = BundleIx::of(self.random.place(self.controller.plan().bundle_count));
                if let Some(&to) = members.get(self.random.place(members.len())) {
                    self.controller.move_bundle(bundle, to);
                }
            }
            Event::Join => {
                self.controller.joined(self.next);
                self.next = WorkerIx(self.next.0 + 1);
            }
            Event::Leave(worker) => self.controller.leave(WorkerIx(worker)),
            Event::Kill(worker) => {
                let worker = WorkerIx(worker);
                self.alive[worker] = false;
                let noticed = self.now_ns + self.random.below(20 * self.simulation.latency_ns);
                self.schedule(noticed, Action::Lost(worker));
            }
            Event::Slow(worker, factor) => lock(&self.shared).slowness[WorkerIx(worker)] = factor,
            Event::Snapshot => self.controller.take_snapshot(),
            Event::Damage(lost) => self.damage(lost),
        }
    }

    fn damage(&mut self, lost: bool) {
        let mut objects = lock(&self.store.0);
        let at = self.random.place(objects.len());
        let Some(name) = objects.keys().nth(at).cloned() else { return };
        if lost {
            objects.remove(&name);
        } else if let Some(bytes) = objects.get_mut(&name) {
            let mut damaged = bytes.to_vec();
            let at = self.random.place(damaged.len());
            damaged.get_mut(at).into_iter().for_each(|byte| *byte ^= 1);
            *bytes = damaged.into();
        }
    }

    /// Transmits messages of workers and the controller, and commits manifests.
    fn dispatch(&mut self) {
        for manifest in std::mem::take(&mut self.controller.commits) {
            self.controller.committed(manifest);
        }
        for (worker, envelope) in std::mem::take(&mut self.controller.out) {
            self.transmit(self.now_ns, Peer::Controller, Peer::Worker(worker), envelope);
        }
        let (sent, now) = {
            let mut shared = lock(&self.shared);
            (std::mem::take(&mut shared.sent), shared.now_ns)
        };
        for (from, to, envelope) in sent {
            self.transmit(now, from, to, envelope);
        }
    }

    fn transmit(&mut self, now_ns: u64, from: Peer, to: Peer, envelope: Envelope) {
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
            if matches!(envelope.message, Message::Drained) {
                // This is the last message of its connection.
                at = at.max(*last + 1);
            }
            *last = at.max(*last);
            self.schedule(at, Action::Message(from, to, Box::new(envelope.clone())));
        }
    }
}
