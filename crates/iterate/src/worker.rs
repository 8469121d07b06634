//! A worker: its bundles, what it knows of the others, and what it does with messages.
//!
//! It is a state machine: messages and ticks go in (`protocol.rs`), messages go out through
//! [`Network`], and turns of bundles are run by whoever holds a [`Thread`](crate::thread::Thread): real
//! threads, or a simulator that runs one turn at a time. It reads no clock; times are handed in.
//! It asks nobody what to run: its bundles say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use crate::bundle::{Arrival, Bundle};
use crate::cell::{Cell, Ring, lock};
use crate::error::JobError;
use crate::message::{Beginning, Entry, Envelope, Message, Peer, Spent};
use crate::plan::{BundleIx, Plan};
use crate::sampling::Kept;
use crate::signals::{Signal, Signals, TOLD_EVERY, WINDOW};

/// Takes messages to where they are for.
pub(crate) trait Network: Send + Sync {
    /// Sends; never waits for the receiver.
    fn send(&self, to: Peer, envelope: Envelope);
    /// Whether so much waits to be sent that who can wait should.
    fn is_full(&self) -> bool {
        false
    }
    /// A worker was lost: what waits to be sent to it is void.
    fn forget(&self, _worker: u32) {}
}

/// What is called when a save has ended.
pub(crate) type SaveDone = Box<dyn FnOnce(Result<(), JobError>) + Send>;

/// Keeps the partitions of snapshots.
pub(crate) trait Store: Send + Sync {
    /// Writes objects, each whole or not at all, and then calls `done`; returns before that.
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone);
    /// Reads one.
    ///
    /// # Errors
    /// What the store said, with the place.
    fn load(&self, object: &str) -> Result<bytes::Bytes, JobError>;
    /// Whether what was handed in before is still being written: another snapshot should wait for it.
    fn is_busy(&self) -> bool {
        false
    }
}

/// How a worker is set up.
#[derive(Clone)]
pub(crate) struct WorkerOptions {
    pub rank: u32,
    pub threads: usize,
    /// A snapshot every so many iterations; 0: on command only.
    pub snapshot_every: u32,
    /// Memory for partitions; `None`: not limited.
    pub memory_bytes: Option<u64>,
}

/// See the [module](self).
pub(crate) struct Worker {
    pub plan: Arc<Plan>,
    pub options: WorkerOptions,
    cells: Box<[OnceLock<Box<Cell>>]>,
    /// The partition map: version and worker by bundle.
    owners: Box<[AtomicU64]>,
    pub signals: Signals,
    pub rings: Box<[Ring]>,
    pub generation: AtomicU32,
    /// With how many changes there were before.
    pub members: RwLock<(u32, Arc<Vec<u32>>)>,
    pub control: Mutex<Control>,
    pub network: Arc<dyn Network>,
    pub store: Option<Arc<dyn Store>>,
    pub snapshot_wanted: AtomicBool,
    /// Turns are to end soon: somebody pauses, rolls back or stops.
    pub interrupt: AtomicBool,
    pub paused: AtomicBool,
    pub stopped: AtomicBool,
    /// The epoch that all bundles here have passed, as it was last told.
    told: AtomicU64,
    /// Signals before this epoch may be published.
    allowed: AtomicU64,
    /// By statement: the newest number that was observed, with its epoch.
    pub observed: Mutex<BTreeMap<u32, (u64, u64)>>,
    /// Of outermost loops whose signals are computed here.
    pub iterations: Mutex<Iterations>,
    /// Of a worker in a process of its own, if the job's trace is kept.
    pub kept: OnceLock<Arc<Kept>>,
}

/// When signals of outermost loops were computed, and what the worker had spent by the first and the last of them.
#[derive(Default)]
pub(crate) struct Iterations {
    pub at_ns: Vec<u64>,
    pub first: Spent,
    pub last: Spent,
}

/// What only messages and the rarer moments of a bundle's life touch.
#[derive(Default)]
pub(crate) struct Control {
    /// For bundles that will come.
    pub early: BTreeMap<BundleIx, Vec<Arrival>>,
    /// Bundles that are to leave, and where to.
    pub leaving: BTreeMap<BundleIx, Entry>,
    /// Bundles that left and have not been heard to have arrived, with their epochs.
    pub away: BTreeMap<BundleIx, (u32, u64)>,
    /// Of generations to come.
    pub held: Vec<(Peer, Envelope)>,
    pub resident: Vec<BundleIx>,
    /// From where everything goes on, for bundles that have to be loaded.
    pub beginning: Option<Arc<Beginning>>,
    pub reports: u64,
    pub busy_before: BTreeMap<BundleIx, u64>,
    /// Tasks and core time of bundles that left.
    pub gone: (u64, u64),
    /// Workers that take part no more, and have not been told that nothing more comes from here.
    pub parting: Vec<u32>,
    /// Workers from which nothing more comes.
    pub parted: BTreeSet<u32>,
    /// Of a worker that was let go: whose last words it waits for, and for how many reports.
    pub released: Option<(BTreeSet<u32>, u32)>,
}

impl Worker {
    pub fn new(
        plan: Arc<Plan>,
        options: WorkerOptions,
        network: Arc<dyn Network>,
        store: Option<Arc<dyn Store>>,
    ) -> Self {
        let bundles = plan.bundles as usize;
        Self {
            cells: (0..bundles).map(|_| OnceLock::new()).collect(),
            owners: (0..bundles).map(|_| AtomicU64::new(u64::from(u32::MAX))).collect(),
            signals: Signals::new(),
            rings: (0..options.threads.max(1)).map(|_| Ring::new()).collect(),
            generation: AtomicU32::new(0),
            members: RwLock::new((0, Arc::new(Vec::new()))),
            control: Mutex::new(Control::default()),
            network,
            store,
            snapshot_wanted: AtomicBool::new(false),
            interrupt: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            told: AtomicU64::new(0),
            allowed: AtomicU64::new(0),
            observed: Mutex::new(BTreeMap::new()),
            iterations: Mutex::default(),
            kept: OnceLock::new(),
            plan,
            options,
        }
    }

    pub fn rank(&self) -> u32 {
        self.options.rank
    }

    pub fn send(&self, to: Peer, message: Message) {
        self.network.send(to, Envelope { generation: self.generation.load(Ordering::Acquire), message });
    }

    pub fn cell(&self, bundle: BundleIx) -> &Cell {
        let threads = self.rings.len() as u32;
        self.cells[bundle as usize].get_or_init(|| Box::new(Cell::new(bundle % threads)))
    }

    /// Where a bundle is, as this worker knows.
    pub fn owner(&self, bundle: BundleIx) -> Entry {
        let entry = self.owners[bundle as usize].load(Ordering::Acquire);
        Entry { worker: entry as u32, version: (entry >> 32) as u32 }
    }

    /// Takes a newer entry of the partition map; an older one changes nothing.
    pub fn set_owner(&self, bundle: BundleIx, entry: Entry) {
        let new = u64::from(entry.version) << 32 | u64::from(entry.worker);
        self.owners[bundle as usize].fetch_max(new, Ordering::AcqRel);
    }

    /// Takes a whole map as it is.
    pub fn reset_owner(&self, bundle: BundleIx, entry: Entry) {
        let new = u64::from(entry.version) << 32 | u64::from(entry.worker);
        self.owners[bundle as usize].store(new, Ordering::Release);
    }

    /// Puts a bundle into its thread's ring, unless it is in one or runs.
    pub fn notify(&self, bundle: BundleIx) {
        let cell = self.cell(bundle);
        if cell.notify() {
            self.queue(bundle, cell);
        }
    }

    /// Puts a bundle into its ring, and wakes who sleeps.
    pub fn queue(&self, bundle: BundleIx, cell: &Cell) {
        let ring = &self.rings[cell.home.load(Ordering::Relaxed) as usize % self.rings.len()];
        ring.push(bundle);
        if !ring.wake() && ring.len() > 1 && self.rings.len() > 1 {
            let _ = self.rings.iter().any(Ring::wake);
        }
    }

    /// Wakes every thread that sleeps.
    pub fn wake_all(&self) {
        for ring in &self.rings {
            ring.wake();
        }
    }

    /// Hands something to a bundle, here or elsewhere. `version`: of the map that brought it here.
    pub fn deliver(&self, to: BundleIx, version: u32, arrival: Arrival) {
        let cell = self.cell(to);
        match cell.post(arrival) {
            Ok(()) => {
                if cell.notify() {
                    self.queue(to, cell);
                }
            }
            Err(arrival) => self.deliver_astray(to, version, arrival),
        }
    }

    /// For a bundle that is not here: it has left, or is still to come (§4.2).
    fn deliver_astray(&self, to: BundleIx, version: u32, arrival: Arrival) {
        let mut control = lock(&self.control);
        let Err(arrival) = self.cell(to).post(arrival) else {
            drop(control);
            self.notify(to);
            return;
        };
        let owner = self.owner(to);
        if owner.worker == self.rank() || version > owner.version {
            control.early.entry(to).or_default().push(arrival);
        } else {
            drop(control);
            let to = vec![(to, owner.version)];
            self.send(Peer::Worker(owner.worker), Message::Deliver { to, arrival });
        }
    }

    /// Hands something to a bundle wherever the map says it is.
    pub fn route(&self, to: BundleIx, arrival: Arrival) {
        let owner = self.owner(to);
        if owner.worker == self.rank() {
            self.deliver(to, owner.version, arrival);
        } else {
            let to = vec![(to, owner.version)];
            self.send(Peer::Worker(owner.worker), Message::Deliver { to, arrival });
        }
    }

    /// Publishes a signal to all workers.
    pub fn publish(&self, epoch: u64, signal: Signal) {
        if signal.snapshot {
            self.snapshot_wanted.store(false, Ordering::Release);
        }
        self.signals.insert(epoch, signal);
        let members = self.members();
        for &worker in members.iter().filter(|&&worker| worker != self.rank()) {
            self.send(Peer::Worker(worker), Message::Signals(vec![(epoch, signal)]));
        }
        if self.rings.len() > 1 {
            self.wake_all();
        }
    }

    /// What its threads have spent on turns that have ended.
    pub fn spent(&self) -> Spent {
        let sum = |of: fn(&Ring) -> &AtomicU64| {
            self.rings.iter().map(|ring| of(ring).load(Ordering::Relaxed)).sum()
        };
        Spent { busy_ns: sum(|ring| &ring.busy_ns), tasks: sum(|ring| &ring.tasks) }
    }

    pub fn members(&self) -> Arc<Vec<u32>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Whether the signal of an epoch may be published, given what workers told of how far they are.
    pub fn may_publish(&self, epoch: u64, passed: &[(u32, u64)]) -> bool {
        if epoch < self.allowed.load(Ordering::Acquire) {
            return true;
        }
        let mut behind = u64::MAX;
        let mut last = u32::MAX;
        for bundle in 0..self.plan.bundles {
            let worker = self.owner(bundle).worker;
            if worker != last {
                let told = passed.iter().find(|p| p.0 == worker).map_or(0, |p| p.1);
                behind = behind.min(told);
                last = worker;
            }
        }
        let allowed = behind.saturating_add(WINDOW);
        self.allowed.fetch_max(allowed, Ordering::AcqRel);
        epoch < allowed
    }

    /// Tells bundles that compute signals how far the bundles here are, once in some epochs.
    pub fn tell_passed(&self, again: bool) {
        let control = lock(&self.control);
        let here = control.resident.iter().map(|&bundle| self.cell(bundle).epoch.load(Ordering::Acquire));
        let away = control.away.values().map(|&(_, epoch)| epoch);
        let Some(behind) = here.chain(away).min() else { return };
        let behind = behind / TOLD_EVERY * TOLD_EVERY;
        let before = self.told.fetch_max(behind, Ordering::AcqRel);
        if before < behind || again {
            let epoch = before.max(behind);
            drop(control);
            for bundle in self.plan.signal_bundles() {
                self.route(bundle, Arrival::Passed { worker: self.rank(), epoch });
            }
        }
    }

    /// Starts counting anew; only while nothing runs.
    pub fn forget_passed(&self) {
        self.told.store(0, Ordering::Release);
        self.allowed.store(0, Ordering::Release);
    }

    /// Puts a bundle into its cell; only while no thread touches it.
    pub fn place(&self, control: &mut Control, bundle: Box<Bundle>, version: u32) {
        let ix = bundle.ix;
        let cell = self.cell(ix);
        cell.version.store(version, Ordering::Release);
        cell.epoch.store(bundle.position.epoch, Ordering::Release);
        cell.iteration.store(bundle.iteration, Ordering::Release);
        cell.tasks.store(bundle.tasks, Ordering::Release);
        cell.size_bytes.store(bundle.size_bytes(), Ordering::Release);
        *cell.bundle() = Some(bundle);
        let mut inbox = lock(&cell.inbox);
        inbox.resident = true;
        inbox.arrivals.extend(control.early.remove(&ix).unwrap_or_default());
        drop(inbox);
        cell.has_mail();
        if !control.resident.contains(&ix) {
            control.resident.push(ix);
        }
    }

    /// Ends the job with an error.
    pub fn fail(&self, error: JobError) {
        self.stop();
        self.send(Peer::Controller, Message::Failed(error));
    }

    /// Lets no further turn begin.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.interrupt.store(true, Ordering::SeqCst);
        self.wake_all();
    }
}
