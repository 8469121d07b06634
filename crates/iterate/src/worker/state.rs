//! A worker: its bundles, and its knowledge of the other workers.
//!
//! A worker is a state machine. Messages and ticks go in (`handlers.rs`) and messages go out through
//! [`Network`]. Turns of bundles are run by whichever [`Thread`](crate::worker::thread::Thread) takes them: real
//! threads, or a simulator that runs one turn at a time. Scheduling is local: the bundles themselves
//! determine the next tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::dataflow::index::{BundleIx, StatementIx, Table, WorkerIx};
use crate::dataflow::plan::Plan;
use crate::error::JobError;
use crate::exec::run_queue::RunQueue;
use crate::exec::signals::Signals;
use crate::exec::slot::Slot;
use crate::protocol::message::{Envelope, Message, Peer};
use crate::protocol::ports::{Network, Store};
use crate::protocol::records::{Arrival, Usage};
use crate::sync::lock;
use crate::tracing::sampling::SampleBuffer;
use crate::worker::gate::Gate;
use crate::worker::membership::{Members, Membership};
use crate::worker::migration::Migration;
use crate::worker::partition_map::PartitionMap;
use crate::worker::reporting::{Iterations, Reporting};
use crate::worker::signalling::Window;

/// Configuration of a worker.
#[derive(Clone)]
pub(crate) struct WorkerOptions {
    pub rank: WorkerIx,
    pub threads: usize,
    /// Iterations between snapshots; 0 takes them only on request.
    pub snapshot_every: u32,
}

/// See the [module](self).
pub(crate) struct Worker {
    pub plan: Arc<Plan>,
    pub options: WorkerOptions,
    slots: Table<BundleIx, OnceLock<Box<Slot>>>,
    pub map: PartitionMap,
    pub signals: Signals,
    pub run_queues: Box<[RunQueue]>,
    pub generation: AtomicU32,
    pub members: Members,
    pub control: Mutex<Control>,
    pub network: Arc<dyn Network>,
    pub store: Option<Arc<dyn Store>>,
    pub snapshot_requested: AtomicBool,
    pub gate: Gate,
    pub window: Window,
    /// By statement: epoch and bits of the latest observed value.
    pub observed: Mutex<BTreeMap<StatementIx, (u64, u64)>>,
    /// Iterations of outermost loops whose signals are computed on this worker.
    pub iterations: Mutex<Iterations>,
    /// Samples of a traced job, if the worker runs in its own process.
    pub samples: OnceLock<Arc<SampleBuffer>>,
    /// Limit for the messages of a future generation from one sender.
    pub max_deferred: OnceLock<usize>,
}

/// State used only by message handlers and by rare events in a bundle's life.
#[derive(Default)]
pub(crate) struct Control {
    pub membership: Membership,
    pub migration: Migration,
    pub reporting: Reporting,
    /// Messages of future generations, by sender.
    pub deferred_messages: BTreeMap<Peer, Vec<Envelope>>,
    /// Workers that have reported their progress to bundles here.
    pub reporters: BTreeSet<WorkerIx>,
}

impl Worker {
    pub fn new(
        plan: Arc<Plan>,
        options: WorkerOptions,
        network: Arc<dyn Network>,
        store: Option<Arc<dyn Store>>,
    ) -> Self {
        Self {
            slots: plan.bundles().map(|_| OnceLock::new()).collect(),
            map: PartitionMap::new(&plan),
            signals: Signals::new(),
            run_queues: (0..options.threads.max(1)).map(|_| RunQueue::new()).collect(),
            generation: AtomicU32::new(0),
            members: Members::default(),
            control: Mutex::new(Control::default()),
            network,
            store,
            snapshot_requested: AtomicBool::new(false),
            gate: Gate::default(),
            window: Window::default(),
            observed: Mutex::new(BTreeMap::new()),
            iterations: Mutex::default(),
            samples: OnceLock::new(),
            max_deferred: OnceLock::new(),
            plan,
            options,
        }
    }

    pub fn rank(&self) -> WorkerIx {
        self.options.rank
    }

    pub fn send(&self, to: Peer, message: Message) {
        self.network.send(to, Envelope { generation: self.generation.load(Ordering::Acquire), message });
    }

    pub fn slot(&self, bundle: BundleIx) -> &Slot {
        let threads = self.run_queues.len() as u32;
        self.slots[bundle].get_or_init(|| Box::new(Slot::new(bundle.0 % threads)))
    }

    /// Makes a bundle ready: puts it into its thread's run queue, unless it is queued or running.
    pub fn notify(&self, bundle: BundleIx) {
        let slot = self.slot(bundle);
        if slot.notify() {
            self.enqueue(bundle, slot);
        }
    }

    /// Puts a bundle into its run queue and wakes a sleeping thread.
    pub fn enqueue(&self, bundle: BundleIx, slot: &Slot) {
        let queue = &self.run_queues[slot.home.load(Ordering::Relaxed) as usize % self.run_queues.len()];
        queue.push(bundle);
        if !queue.wake() && queue.len() > 1 && self.run_queues.len() > 1 {
            let _ = self.run_queues.iter().any(RunQueue::wake);
        }
    }

    /// Returns whether no thread runs a turn.
    pub fn is_idle(&self) -> bool {
        self.run_queues.iter().all(|queue| queue.idle.load(Ordering::SeqCst))
    }

    /// Wakes all sleeping threads.
    pub fn wake_all(&self) {
        for queue in &self.run_queues {
            queue.wake();
        }
    }

    /// Delivers an arrival that was sent to this worker. `version` is the sender's version of the map entry.
    pub fn deliver(&self, to: BundleIx, version: u32, arrival: Arrival) {
        let slot = self.slot(to);
        match slot.post(arrival) {
            Ok(()) => {
                if slot.notify() {
                    self.enqueue(to, slot);
                }
            }
            Err(arrival) => self.forward_misrouted(to, version, arrival),
        }
    }

    /// Handles an arrival for a bundle that has left or has not arrived yet (§4.2).
    fn forward_misrouted(&self, to: BundleIx, version: u32, arrival: Arrival) {
        let mut control = lock(&self.control);
        let Err(arrival) = self.slot(to).post(arrival) else {
            drop(control);
            self.notify(to);
            return;
        };
        let owner = self.map.get(to);
        if owner.worker == self.rank() || version > owner.version {
            control.migration.keep(to, arrival);
        } else {
            drop(control);
            let to = vec![(to, owner.version)];
            self.send(Peer::Worker(owner.worker), Message::Deliver { to, arrival });
        }
    }

    /// Sends an arrival to the worker that holds the bundle, according to the map.
    pub fn route(&self, to: BundleIx, arrival: Arrival) {
        let owner = self.map.get(to);
        if owner.worker == self.rank() {
            self.deliver(to, owner.version, arrival);
        } else {
            let to = vec![(to, owner.version)];
            self.send(Peer::Worker(owner.worker), Message::Deliver { to, arrival });
        }
    }

    /// Returns the threads' total usage in finished turns.
    pub fn usage(&self) -> Usage {
        let sum = |of: fn(&RunQueue) -> &AtomicU64| {
            self.run_queues.iter().map(|queue| of(queue).load(Ordering::Relaxed)).sum()
        };
        Usage { busy_ns: sum(|queue| &queue.busy_ns), tasks: sum(|queue| &queue.tasks) }
    }

    pub fn members(&self) -> Arc<Vec<WorkerIx>> {
        self.members.get()
    }

    /// Fails the job with an error and stops this worker.
    pub fn fail(&self, error: JobError) {
        self.stop();
        self.send(Peer::Controller, Message::Failed(error));
    }

    /// Stops this worker: no further turn begins.
    pub fn stop(&self) {
        self.gate.stop();
        self.wake_all();
    }
}
