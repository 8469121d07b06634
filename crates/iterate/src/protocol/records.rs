//! The contents of messages: entries of the partition map, parts of snapshots, arrivals, reports and samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dataflow::data::Chunk;
use crate::dataflow::index::{BundleIx, DatasetIx, StatementIx, Table, WorkerIx};
use crate::dataflow::plan::Instance;

/// An entry of the partition map: the worker that holds a bundle, and the number of moves that led there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub worker: WorkerIx,
    pub version: u32,
}

/// A boolean that directs control flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signal {
    pub value: bool,
    /// Bundles save themselves as they pass this signal.
    pub snapshot: bool,
}

/// An item delivered to a bundle, from any worker.
#[derive(Debug, Clone)]
pub(crate) enum Arrival {
    /// A chunk of a source partition for a gather; `None` if the source sent nothing.
    Chunk { gather: Instance, source: u32, chunk: Option<Chunk> },
    /// All bundles of a worker have passed `epoch` signals.
    Passed { worker: WorkerIx, epoch: u64 },
}

/// The state that a job starts or restarts from: placement, members and snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobState {
    pub map: Table<BundleIx, Entry>,
    pub members: Vec<WorkerIx>,
    /// Version of `members`.
    pub version: u32,
    pub snapshot: Option<Manifest>,
}

/// The manifest of a complete snapshot, from which a job can resume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Position of every bundle: the signal of this epoch.
    pub position: Instance,
    pub iteration: u64,
    /// The content of each bundle's datasets.
    pub saved: Table<BundleIx, Vec<Part>>,
}

/// The content of one partition in the snapshot store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub dataset: DatasetIx,
    /// Epoch of the snapshot that wrote it; it has not changed since.
    pub epoch: u64,
    pub bytes: u64,
    /// CRC-32.
    pub checksum: u32,
}

impl Part {
    pub fn new(dataset: DatasetIx, epoch: u64, content: &[u8]) -> Self {
        Self { dataset, epoch, bytes: content.len() as u64, checksum: crc32fast::hash(content) }
    }

    /// Compares length and checksum of the bytes that were read back.
    ///
    /// # Errors
    /// If they differ.
    pub fn verify(&self, content: &[u8]) -> Result<(), String> {
        let Self { bytes, checksum, .. } = *self;
        if content.len() as u64 != bytes {
            return Err(format!("it has {} bytes instead of {bytes}", content.len()));
        }
        if crc32fast::hash(content) != checksum {
            return Err("its checksum differs".into());
        }
        Ok(())
    }
}

/// One bundle's part of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub bundle: BundleIx,
    pub position: Instance,
    pub iteration: u64,
    pub datasets: Vec<Part>,
}

/// A machine as named in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub name: String,
    pub cores: u32,
}

/// A recorded task that stands for several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub statement: StatementIx,
    pub bundle: BundleIx,
    pub iteration: u64,
    /// Start, in ticks of the process's clock.
    pub start_ticks: u64,
    pub service_ns: u64,
    pub weight: f64,
    pub bytes: u64,
}

/// All messages sent for a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub statement: StatementIx,
    pub messages: u64,
    pub bytes: u64,
}

/// A batch of a job's trace, recorded by one worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TraceBatch {
    pub host: Host,
    pub threads: u32,
    /// Time of sending, on the worker's clock.
    pub now_ns: u64,
    /// Time since the last batch.
    pub interval_ns: u64,
    /// Tasks, each with the nanoseconds between its start and `now_ns`.
    pub tasks: Vec<(u64, Sample)>,
    pub exchanges: Vec<Exchanged>,
}

/// A worker's periodic report, sent by time and not by iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub worker: WorkerIx,
    /// Increasing number; the controller drops reports that arrive out of order.
    pub number: u64,
    /// Time since the last report.
    pub interval_ns: u64,
    pub threads: u32,
    /// True if a task is running now.
    pub running: bool,
    /// For each bundle on the worker: core time in tasks since the last report, in ns, and size in bytes.
    pub bundles: Vec<(BundleIx, u64, u64)>,
    /// Epoch of the bundle that is furthest behind.
    pub epoch: u64,
    pub iteration: u64,
    pub tasks: u64,
    pub busy_ns: u64,
    /// Latest observed values by statement: epoch and value. The value is stored as bits because JSON has no NaN.
    pub observed: BTreeMap<StatementIx, (u64, u64)>,
    /// Times at which this worker computed signals of outermost loops; only in the last report.
    pub iterations_ns: Vec<u64>,
    /// Usage between the first and the last of these times.
    pub iterating: Usage,
}

/// Work done by a worker's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Core time in turns, without loading.
    pub busy_ns: u64,
    pub tasks: u64,
}
