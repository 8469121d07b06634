//! Messages between workers and the controller.
//!
//! Messages may be delayed, reordered and duplicated. A message is only lost together with its connection.
//! Each message carries the generation of the job, which grows with every recovery: receivers ignore
//! messages of an earlier generation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dataflow::data::Chunk;
use crate::dataflow::index::{BundleIx, DatasetIx, DatasetSet, StatementIx, WorkerIx};
use crate::dataflow::plan::Instance;
use crate::error::JobError;
use crate::protocol::records::{Arrival, Entry, JobState, Part, Report, Saved, Signal, TraceBatch};

/// The sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Peer {
    Controller,
    Worker(WorkerIx),
}

/// A message with the job generation that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub generation: u32,
    pub message: Message,
}

/// A message. The kinds that serde skips have a binary form (`transport/wire.rs`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Worker to worker: an arrival that is the same for several bundles, each with the version of its map entry
    /// that the sender knows.
    #[serde(skip)]
    Deliver { to: Vec<(BundleIx, u32)>, arrival: Arrival },
    /// Worker to worker: signals by epoch.
    #[serde(skip)]
    Signals(Vec<(u64, Signal)>),
    /// Worker to worker: a bundle that the receiver takes over.
    #[serde(skip)]
    Install(Box<Packed>),
    /// Worker to worker: the receiver has left the job, and the sender sends it nothing more.
    Drained,

    /// Controller to worker: start the job, or roll back and restart it.
    Begin(#[serde(with = "shared")] Arc<JobState>),
    /// Controller to worker: changes of the partition map.
    Map(Vec<(BundleIx, Entry)>),
    /// Controller to worker: the workers in the job, and the version of this list.
    Members { version: u32, members: Vec<WorkerIx> },
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
    Drain { members: Vec<WorkerIx> },
    /// Controller to worker: stop immediately.
    Stop,
    /// Controller to worker: the addresses that workers listen on. The transport handles it.
    Addresses(Vec<(WorkerIx, String)>),

    /// Worker to controller: periodic report.
    Report(Box<Report>),
    /// Worker to controller: samples recorded since the last message, if the job is traced.
    #[serde(skip)]
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
    #[serde(skip)]
    Output { dataset: DatasetIx, partition: u32, content: Chunk },
    /// Worker to controller: all results were sent. This is the last message.
    Finished(Box<Report>),
    /// Worker to controller: another worker is unreachable.
    Unreachable { worker: WorkerIx, cause: String },
    /// Worker to controller: the job failed here.
    Failed(JobError),
}

/// A bundle in transit.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    pub bundle: BundleIx,
    pub version: u32,
    pub position: Instance,
    pub deferred: Vec<Instance>,
    pub gathered: Vec<StatementIx>,
    pub iteration: u64,
    pub since_snapshot: u32,
    pub written: DatasetSet,
    pub written_before: Vec<(u64, DatasetSet)>,
    pub saved: Vec<Part>,
    pub passed: Vec<(WorkerIx, u64)>,
    pub tasks: u64,
    /// Chunks received for gathers that have not run: instance, place of the source, chunk.
    pub chunks: Vec<(Instance, u32, Option<Chunk>)>,
    /// Content by dataset.
    pub states: Vec<(DatasetIx, Chunk)>,
    /// Signals that the receiver may not have.
    pub signals: Vec<(u64, Signal)>,
}

/// Serialization of a shared value as the value itself.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<Arc<T>, D::Error> {
        T::deserialize(input).map(Arc::new)
    }
}
