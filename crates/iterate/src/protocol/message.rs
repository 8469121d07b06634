//! Messages between workers and the controller.
//!
//! Messages may be delayed, reordered and duplicated. A message is only lost together with its connection.
//! Each message carries the generation of the job, which grows with every recovery: receivers ignore
//! messages of an earlier generation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dataflow::data::Chunk;
use crate::dataflow::plan::{BundleIx, Instance};
use crate::error::JobError;
use crate::exec::bundle::Arrival;
use crate::exec::signals::Signal;
use crate::tracing::recording::Host;
use crate::tracing::sampling::{Exchanged, Sample};

/// The sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Peer {
    Controller,
    Worker(u32),
}

/// An entry of the partition map: the worker that holds a bundle, and the number of moves that led there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub worker: u32,
    pub version: u32,
}

/// A message with the job generation that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub generation: u32,
    pub message: Message,
}

#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// Worker to worker: an arrival that is the same for several bundles, each with the version of its map entry
    /// that the sender knows.
    Deliver { to: Vec<(BundleIx, u32)>, arrival: Arrival },
    /// Worker to worker: signals by epoch.
    Signals(Vec<(u64, Signal)>),
    /// Worker to worker: a bundle that the receiver takes over.
    Install(Box<Packed>),
    /// Worker to worker: the receiver has left the job, and the sender sends it nothing more.
    Drained,

    /// Controller to worker: start the job, or roll back and restart it.
    Begin(Arc<JobState>),
    /// Controller to worker: changes of the partition map.
    Map(Vec<(BundleIx, Entry)>),
    /// Controller to worker: the workers in the job, and the version of this list.
    Members { version: u32, members: Vec<u32> },
    /// Controller to worker: hand over a bundle.
    Migrate { bundle: BundleIx, to: Entry },
    /// Controller to worker: take a snapshot at the next signal of an outermost loop.
    Snapshot,
    /// Controller to worker: pause or resume.
    Pause(bool),
    /// Controller to worker: the program has ended on all workers; send the results.
    Finish,
    /// Controller to a worker that no longer holds bundles: forward messages in flight, and stop once all `members`
    /// have sent [`Message::Drained`].
    Drain { members: Vec<u32> },
    /// Controller to worker: stop immediately.
    Stop,

    /// Worker to controller: periodic report.
    Report(Box<Report>),
    /// Worker to controller: samples recorded since the last message, if the job is traced.
    Trace(Box<TraceBatch>),
    /// Worker to controller: a migrated bundle has arrived.
    Installed { bundle: BundleIx, version: u32 },
    /// Worker to controller: a bundle's part of a snapshot is durable.
    Saved(Box<Saved>),
    /// Worker to controller: a part of the snapshot that the job resumed from is damaged.
    Damaged { cause: String },
    /// Worker to controller: a bundle has reached the end of the program.
    Ended { bundle: BundleIx },
    /// Worker to controller: a partition of a result.
    Output { dataset: u32, partition: u32, content: Chunk },
    /// Worker to controller: all results were sent. This is the last message.
    Finished(Box<Report>),
    /// Worker to controller: another worker is unreachable.
    Unreachable { worker: u32, cause: String },
    /// Worker to controller: the job failed here.
    Failed(JobError),
}

/// The state that a job starts or restarts from: placement, members and snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobState {
    pub map: Vec<Entry>,
    pub members: Vec<u32>,
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
    /// By bundle: the content of its datasets.
    pub saved: Vec<Vec<Part>>,
}

/// The content of one partition in the snapshot store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub dataset: u32,
    /// Epoch of the snapshot that wrote it; it has not changed since.
    pub epoch: u64,
    pub bytes: u64,
    /// CRC-32.
    pub checksum: u32,
}

impl Part {
    pub fn new(dataset: u32, epoch: u64, content: &[u8]) -> Self {
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

/// A bundle in transit.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    pub bundle: BundleIx,
    pub version: u32,
    pub position: Instance,
    pub deferred: Vec<Instance>,
    pub gathered: Vec<u32>,
    pub iteration: u64,
    pub since_snapshot: u32,
    pub written: u64,
    pub written_before: Vec<(u64, u64)>,
    pub saved: Vec<Part>,
    pub passed: Vec<(u32, u64)>,
    pub tasks: u64,
    /// Chunks received for gathers that have not run: instance, place of the source, chunk.
    pub chunks: Vec<(Instance, u32, Option<Chunk>)>,
    /// Content by dataset.
    pub states: Vec<(u32, Chunk)>,
    /// Signals that the receiver may not have.
    pub signals: Vec<(u64, Signal)>,
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
    pub worker: u32,
    /// Increasing number; the controller drops reports that arrive out of order.
    pub number: u64,
    /// Time since the last report.
    pub interval_ns: u64,
    pub threads: u32,
    /// Memory available for partitions; `None` is unlimited.
    pub memory_bytes: Option<u64>,
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
    pub observed: BTreeMap<u32, (u64, u64)>,
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
