//! Support for tests of programs: jobs that resume from a damaged partition, or receive one.
//!
//! A damaged partition has a right checksum here, so it reaches its decoder, the check of its dataset, and the kernels.
//! The worker runs on the calling thread, and the snapshots are in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::dataflow::data::{Chunk, DataError};
use crate::dataflow::index::{BundleIx, DatasetIx, Ix, StatementIx, Table, WorkerIx};
use crate::dataflow::load::load_partition;
use crate::dataflow::plan::Plan;
use crate::error::JobError;
use crate::exec::bundle::Bundle;
use crate::exec::host::Meter;
use crate::protocol::message::{Envelope, Message, Packed, Peer};
use crate::protocol::ports::{Network, SaveDone, Store};
use crate::protocol::records::{Entry, JobState, Manifest, Part, Saved};
use crate::snapshot::layout::object;
use crate::sync::lock;
use crate::transport::wire;
use crate::worker::state::{Worker, WorkerOptions};
use crate::worker::thread::Thread;

/// Returns the encoding of a dataset's first partition, as loaded.
///
/// # Panics
/// Panics if the dataset does not exist or cannot be loaded.
pub fn load(plan: &Plan, dataset: &str) -> Vec<u8> {
    let at = plan.datasets.find(|spec| spec.name == dataset);
    let loaded = load_partition(plan, at.unwrap_or_else(|| panic!("no dataset {dataset:?}")), 0);
    let mut bytes = Vec::new();
    loaded.unwrap_or_else(|error| panic!("{error}")).encode_any(&mut bytes);
    bytes
}

/// Decodes and checks a dataset's first partition.
///
/// # Errors
/// The error of the decoder or of the check.
///
/// # Panics
/// Panics if the dataset does not exist.
pub fn decode(plan: &Plan, dataset: &str, content: &[u8]) -> Result<(), DataError> {
    let spec = plan.datasets.iter().find(|spec| spec.name == dataset);
    (spec.unwrap_or_else(|| panic!("no dataset {dataset:?}")).decode)(0, content).map(drop)
}

/// A finished job with its snapshots.
pub struct Finished {
    plan: Arc<Plan>,
    manifests: Vec<Manifest>,
    objects: BTreeMap<String, Bytes>,
}

/// A partition in a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    snapshot: usize,
    bundle: BundleIx,
    dataset: DatasetIx,
}

impl Finished {
    /// Runs a plan, which takes a snapshot in each iteration.
    ///
    /// # Panics
    /// If the job fails, or takes fewer than three snapshots.
    pub fn run(plan: Arc<Plan>) -> Self {
        let outside = Outside::new(BTreeMap::new());
        turns(&worker(&plan, &outside, 1, None), &outside);
        let mut by_epoch: BTreeMap<u64, Vec<Saved>> = BTreeMap::new();
        lock(&outside.saved)
            .drain(..)
            .for_each(|saved| by_epoch.entry(saved.position.epoch).or_default().push(saved));
        let whole = by_epoch.into_values().filter(|saved| saved.len() == plan.bundle_count);
        let manifests = whole.map(|mut saved| {
            saved.sort_by_key(|saved| saved.bundle);
            let (position, iteration) = (saved[0].position, saved[0].iteration);
            Manifest { position, iteration, saved: saved.into_iter().map(|saved| saved.datasets).collect() }
        });
        let manifests: Vec<Manifest> = manifests.collect();
        assert!(manifests.len() > 2, "{}: {} snapshots", plan.name, manifests.len());
        let objects = std::mem::take(&mut *lock(&outside.objects));
        Self { plan, manifests, objects }
    }

    /// Returns the contents of all partitions in the snapshots.
    pub fn saved_contents(&self) -> Vec<Vec<u8>> {
        self.objects.values().map(|bytes| bytes.to_vec()).collect()
    }

    /// Returns the contents of all partitions at the second snapshot, also of those that no stage writes.
    pub fn contents(&self) -> Vec<Vec<u8>> {
        let targets = self.plan.bundles().flat_map(|bundle| self.targets(1, bundle));
        targets.map(|target| self.content(target)).collect()
    }

    /// Chooses a partition of a snapshot. `below` returns a number below its argument.
    pub fn saved_partition(&self, below: &mut dyn FnMut(usize) -> usize) -> Target {
        let snapshot = below(self.manifests.len());
        let saved = &self.manifests[snapshot].saved;
        let bundles: Vec<BundleIx> = saved.indexes().filter(|&bundle| !saved[bundle].is_empty()).collect();
        let bundle = bundles[below(bundles.len())];
        let parts = &saved[bundle];
        Target { snapshot, bundle, dataset: parts[below(parts.len())].dataset }
    }

    /// Chooses a partition, which a snapshot need not contain. `below` returns a number below its argument.
    pub fn any_partition(&self, below: &mut dyn FnMut(usize) -> usize) -> Target {
        let snapshot = below(self.manifests.len());
        let targets = self.targets(snapshot, BundleIx::of(below(self.plan.bundle_count)));
        targets[below(targets.len())]
    }

    /// Returns the content of a partition.
    pub fn content(&self, target: Target) -> Vec<u8> {
        let Target { snapshot, bundle, dataset } = target;
        let index = self.plan.locate(bundle).1;
        let mut parts = self.manifests[snapshot].saved[bundle].iter();
        match parts.find(|part| part.dataset == dataset) {
            Some(part) => self.objects[&object(&self.plan, dataset, index, part.epoch)].to_vec(),
            None => {
                let mut bytes = Vec::new();
                let loaded = load_partition(&self.plan, dataset, index);
                loaded.unwrap_or_else(|error| panic!("{error}")).encode_any(&mut bytes);
                bytes
            }
        }
    }

    /// Resumes from a snapshot with other content of a saved partition. Returns whether the job ends.
    ///
    /// # Panics
    /// If a kernel panics.
    pub fn resume(&self, target: Target, content: Vec<u8>) -> bool {
        let mut manifest = self.manifests[target.snapshot].clone();
        let mut parts = manifest.saved[target.bundle].iter_mut();
        let Some(part) = parts.find(|part| part.dataset == target.dataset) else { return false };
        let name = object(&self.plan, part.dataset, self.plan.locate(target.bundle).1, part.epoch);
        *part = Part::new(part.dataset, part.epoch, &content);
        assert_eq!(manifest.check(&self.plan), Ok(()));
        let outside = Outside::new(self.objects.clone());
        lock(&outside.objects).insert(name, content.into());
        turns(&worker(&self.plan, &outside, 1, Some(manifest)), &outside);
        lock(&outside.failure).is_none() && !outside.damaged.load(Ordering::Relaxed)
    }

    /// Resumes from a snapshot with one bundle on another worker, which sends it with other content of a partition.
    /// Returns whether the job ends.
    ///
    /// # Panics
    /// If a kernel panics.
    pub fn migrate(&self, target: Target, content: Vec<u8>) -> bool {
        let (plan, manifest, ix) = (&self.plan, &self.manifests[target.snapshot], target.bundle);
        let states = self.targets(target.snapshot, ix).into_iter().map(|other| {
            let own = other.dataset == target.dataset;
            let content = if own { content.clone() } else { self.content(other) };
            (other.dataset, Chunk::Encoded(content.into()))
        });
        let states = states.collect();
        let mut bundle = Bundle::new(plan, ix);
        (bundle.position, bundle.iteration) = (manifest.position, manifest.iteration);
        let packed = Packed { states, ..Packed::pack(bundle, 3, Vec::new()) };
        let message = Message::Install(packed.into());
        assert_eq!(message.check(plan, Peer::Worker(WorkerIx(1))), Ok(()));
        let outside = Outside::new(self.objects.clone());
        // All other bundles resume from the snapshot, and this one is expected from worker 1.
        let here = worker(plan, &outside, 1, None);
        let mut map = Table::filled(plan.bundle_count, Entry { worker: WorkerIx(0), version: 1 });
        map[ix] = Entry { worker: WorkerIx(1), version: 2 };
        let state =
            JobState { map, members: vec![WorkerIx(0)], version: 2, snapshot: Some(manifest.clone()) };
        here.handle(Peer::Controller, Envelope { generation: 2, message: Message::Begin(state.into()) });
        here.handle(Peer::Worker(WorkerIx(1)), Envelope { generation: 2, message });
        turns(&here, &outside);
        lock(&outside.failure).is_none()
    }

    /// Returns the partitions of a bundle.
    fn targets(&self, snapshot: usize, bundle: BundleIx) -> Vec<Target> {
        let datasets = self.plan.groups[self.plan.locate(bundle).0].datasets;
        let datasets = self.plan.datasets.indexes().filter(|&dataset| datasets.contains(dataset));
        datasets.map(|dataset| Target { snapshot, bundle, dataset }).collect()
    }
}

/// The network and store of a worker, which keep what it sends and saves.
#[derive(Default)]
pub(crate) struct Outside {
    objects: Mutex<BTreeMap<String, Bytes>>,
    saved: Mutex<Vec<Saved>>,
    failure: Mutex<Option<JobError>>,
    damaged: AtomicBool,
}

impl Outside {
    pub(crate) fn new(objects: BTreeMap<String, Bytes>) -> Arc<Self> {
        Arc::new(Self { objects: Mutex::new(objects), ..Self::default() })
    }
}

impl Network for Outside {
    fn send(&self, _: Peer, envelope: Envelope) {
        wire::encode(&envelope, &mut Vec::new());
        match envelope.message {
            Message::Saved(saved) => lock(&self.saved).push(*saved),
            Message::Failed(error) => *lock(&self.failure) = Some(error),
            Message::Damaged { .. } => self.damaged.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl Store for Outside {
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone) {
        lock(&self.objects).extend(objects.into_iter().map(|(name, bytes)| (name, bytes.into())));
        done(Ok(()));
    }

    fn load(&self, object: &str) -> Result<Option<Bytes>, JobError> {
        Ok(lock(&self.objects).get(object).cloned())
    }
}

struct NoMeter;

impl Meter for NoMeter {
    fn before(&mut self, _: BundleIx, _: StatementIx) {}
    fn after(&mut self, _: BundleIx, _: StatementIx, _: u64, _: impl FnOnce() -> u64) {}
    fn turn_begins(&mut self) {}
    fn turn_ends(&mut self) -> u64 {
        0
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Runs up to some turns of a worker.
///
/// # Panics
/// If a kernel panicked.
pub(crate) fn turns(worker: &Worker, outside: &Outside) {
    let mut thread = Thread::new(worker, 0, NoMeter);
    for _ in 0..500 {
        if !thread.work() {
            break;
        }
    }
    match &*lock(&outside.failure) {
        Some(error @ JobError::Kernel { cause, .. }) if cause.contains("panicked") => panic!("{error}"),
        _ => {}
    }
}

/// Starts a worker of rank 0 that holds all bundles.
pub(crate) fn worker(
    plan: &Arc<Plan>,
    outside: &Arc<Outside>,
    members: usize,
    snapshot: Option<Manifest>,
) -> Worker {
    let options = WorkerOptions { rank: WorkerIx(0), threads: 1, snapshot_every: 1 };
    let worker = Worker::new(plan.clone(), options, outside.clone(), Some(outside.clone() as Arc<dyn Store>));
    let map = Table::filled(plan.bundle_count, Entry { worker: WorkerIx(0), version: 1 });
    let state = JobState { map, members: WorkerIx::first(members).collect(), version: 1, snapshot };
    worker.handle(Peer::Controller, Envelope { generation: 1, message: Message::Begin(state.into()) });
    worker
}
