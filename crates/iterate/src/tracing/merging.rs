//! Merges the trace batches of several processes into one trace on one clock.
//!
//! Batches carry times relative to their sending on the worker's clock. A batch arrives later than it was
//! sent, never earlier, so the smallest recent difference between arrival and sending time estimates the
//! offset of the clocks. It is too large by the shortest message delay, within which the times of different
//! workers can be compared.
//!
//! Machines are registered once every worker has sent its first batch, because workers on a machine share
//! its cores. Earlier batches are held until then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pellucid_trace::record::{MachineIx, ResourceIx};

use crate::dataflow::index::WorkerIx;
use crate::error::JobError;
use crate::protocol::records::{Host, TraceBatch};
use crate::tracing::bandwidth::Bandwidth;
use crate::tracing::recording::Recording;

/// Number of clock offsets kept: a few seconds, in which clocks drift by less than a message delay.
const MAX_OFFSETS: usize = 50;

/// See the [module](self).
pub(crate) struct TraceMerger {
    recording: Recording,
    memory: Vec<Bandwidth>,
    workers: BTreeMap<WorkerIx, Source>,
    /// By host name.
    hosts: BTreeMap<String, HostResources>,
    pending: Vec<(WorkerIx, TraceBatch)>,
}

struct Source {
    host: Host,
    threads: u32,
    /// Recent offsets: trace time minus the worker's time, in ns.
    offsets_ns: VecDeque<i64>,
}

#[derive(Clone, Copy)]
struct HostResources {
    machine: MachineIx,
    cores: ResourceIx,
    link: Option<ResourceIx>,
}

impl TraceMerger {
    pub fn new(recording: Recording, memory: Vec<Bandwidth>) -> Self {
        Self { recording, memory, workers: BTreeMap::new(), hosts: BTreeMap::new(), pending: Vec::new() }
    }

    /// Adds a batch from a worker; `members` are all workers in the job.
    pub fn take(&mut self, worker: WorkerIx, batch: TraceBatch, members: impl Iterator<Item = WorkerIx>) {
        let now_ns = self.recording.recorder.now_ns();
        let source = self.workers.entry(worker).or_insert_with(|| Source {
            host: batch.host.clone(),
            threads: batch.threads,
            offsets_ns: VecDeque::new(),
        });
        source.offsets_ns.truncate(MAX_OFFSETS - 1);
        source.offsets_ns.push_front(now_ns as i64 - batch.now_ns as i64);
        self.pending.push((worker, batch));
        let mut members = members;
        if !self.hosts.is_empty() || members.all(|member| self.workers.contains_key(&member)) {
            self.record();
        }
    }

    /// Ends the trace.
    pub fn end(mut self, error: Option<&JobError>) {
        self.record();
        self.recording.end(error);
    }

    fn record(&mut self) {
        let first = self.hosts.is_empty();
        let unknown: BTreeSet<String> = self
            .workers
            .values()
            .map(|source| source.host.name.clone())
            .filter(|name| !self.hosts.contains_key(name))
            .collect();
        for name in unknown {
            self.register(name, first);
        }
        for (worker, batch) in std::mem::take(&mut self.pending) {
            self.record_one(worker, &batch);
        }
    }

    fn register(&mut self, name: String, first: bool) {
        let sources = || self.workers.values().filter(|source| source.host.name == name);
        let threads = sources().map(|source| source.threads).sum();
        let cores = sources().map(|source| source.host.cores).max().unwrap_or(1);
        let single_host = self.workers.values().all(|source| source.host.name == name);
        let host = Host { name: name.clone(), cores };
        let (machine, cores) = self.recording.machine(&host, threads);
        // Memory bandwidth was measured on this machine and does not apply to others.
        if first && single_host && host.name == Host::here().name {
            self.recording.memory(machine, &self.memory);
        }
        self.hosts.insert(name, HostResources { machine, cores, link: None });
    }

    fn record_one(&mut self, worker: WorkerIx, batch: &TraceBatch) {
        let Some(source) = self.workers.get(&worker) else { return };
        let Some(resources) = self.hosts.get_mut(&source.host.name) else { return };
        let offset_ns = source.offsets_ns.iter().copied().min().unwrap_or(0);
        let sent_ns = u64::try_from(batch.now_ns as i64 + offset_ns).unwrap_or(0);
        for (ago_ns, sample) in &batch.tasks {
            self.recording.task(resources.cores, sent_ns.saturating_sub(*ago_ns), sample);
        }
        for sent in &batch.exchanges {
            let machine = resources.machine;
            let link = *resources.link.get_or_insert_with(|| self.recording.link(machine));
            self.recording.exchange(link, sent_ns, batch.interval_ns, sent);
        }
    }
}
