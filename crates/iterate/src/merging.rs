//! One trace of a job over several processes: what workers tell, on one clock.
//!
//! A worker says how long ago things were when it told them. What it says arrives a little later, and never earlier,
//! than it was said: the smallest difference of late between the two clocks is how far they are apart, too large by the
//! shortest way of a message. So times of several workers can be compared to within that.
//!
//! Machines are registered when all workers have told something for the first time, since the threads of a machine
//! share its cores; what came before is held until then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pellucid_trace::record::{MachineIx, ResourceIx};

use crate::error::JobError;
use crate::kernels::bandwidth::Bandwidth;
use crate::message::Traced;
use crate::recording::{Host, Recording};

/// Differences of clocks that are kept: of some seconds, in which clocks drift by less than a message takes.
const LATE: usize = 50;

/// See the [module](self).
pub(crate) struct Merging {
    recording: Recording,
    memory: Vec<Bandwidth>,
    workers: BTreeMap<u32, Source>,
    /// By name.
    hosts: BTreeMap<String, Place>,
    held: Vec<(u32, Traced)>,
}

struct Source {
    host: Host,
    threads: u32,
    /// Trace time less the worker's, in ns.
    apart: VecDeque<i64>,
}

#[derive(Clone, Copy)]
struct Place {
    machine: MachineIx,
    cores: ResourceIx,
    link: Option<ResourceIx>,
}

impl Merging {
    pub fn new(recording: Recording, memory: Vec<Bandwidth>) -> Self {
        Self { recording, memory, workers: BTreeMap::new(), hosts: BTreeMap::new(), held: Vec::new() }
    }

    /// Takes in what a worker told; `members`: all that take part.
    pub fn take(&mut self, worker: u32, traced: Traced, members: impl Iterator<Item = u32>) {
        let now_ns = self.recording.recorder.now_ns();
        let source = self.workers.entry(worker).or_insert_with(|| Source {
            host: traced.host.clone(),
            threads: traced.threads,
            apart: VecDeque::new(),
        });
        source.apart.truncate(LATE - 1);
        source.apart.push_front(now_ns as i64 - traced.now_ns as i64);
        self.held.push((worker, traced));
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
        for (worker, traced) in std::mem::take(&mut self.held) {
            self.record_one(worker, &traced);
        }
    }

    fn register(&mut self, name: String, first: bool) {
        let there = || self.workers.values().filter(|source| source.host.name == name);
        let threads = there().map(|source| source.threads).sum();
        let cores = there().map(|source| source.host.cores).max().unwrap_or(1);
        let alone = self.workers.values().all(|source| source.host.name == name);
        let host = Host { name: name.clone(), cores };
        let (machine, cores) = self.recording.machine(&host, threads);
        // It was measured here, and says nothing of other machines.
        if first && alone && host.name == Host::here().name {
            self.recording.memory(machine, &self.memory);
        }
        self.hosts.insert(name, Place { machine, cores, link: None });
    }

    fn record_one(&mut self, worker: u32, traced: &Traced) {
        let Some(source) = self.workers.get(&worker) else { return };
        let Some(place) = self.hosts.get_mut(&source.host.name) else { return };
        let apart = source.apart.iter().copied().min().unwrap_or(0);
        let told_ns = u64::try_from(traced.now_ns as i64 + apart).unwrap_or(0);
        for (ago_ns, sample) in &traced.tasks {
            self.recording.task(place.cores, told_ns.saturating_sub(*ago_ns), sample);
        }
        for sent in &traced.exchanges {
            let machine = place.machine;
            let link = *place.link.get_or_insert_with(|| self.recording.link(machine));
            self.recording.exchange(link, told_ns, traced.interval_ns, sent);
        }
    }
}
