//! What workers and the controller say to each other.
//!
//! All of it may be delayed, reordered and told twice; nothing may be lost without the connection being
//! lost too. Every message carries the generation of the job, which grows with each recovery: what was
//! said before one is void.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bundle::Arrival;
use crate::data::Chunk;
use crate::error::JobError;
use crate::plan::{BundleIx, Instance};
use crate::recording::Host;
use crate::sampling::{Exchanged, Sample};
use crate::signals::Signal;

/// Who a message is for, or from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Peer {
    Controller,
    Worker(u32),
}

/// An entry of the partition map: where a bundle is, and since how many changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub worker: u32,
    pub version: u32,
}

/// A message with the generation of the job that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub generation: u32,
    pub message: Message,
}

#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// Worker to worker: the same for each of some bundles, with the map's versions as the sender
    /// knows them.
    Deliver { to: Vec<(BundleIx, u32)>, arrival: Arrival },
    /// Worker to worker.
    Signals(Vec<(u64, Signal)>),
    /// Worker to worker: a bundle, which is the receiver's from here on.
    Install(Box<Packed>),
    /// Worker to worker: the receiver takes part no more, and nothing more comes from the sender.
    Parted,

    /// Controller to worker: begin, or roll back and begin again.
    Begin(Arc<Beginning>),
    /// Controller to worker: changes of the partition map.
    Map(Vec<(BundleIx, Entry)>),
    /// Controller to worker: who takes part, and after how many changes.
    Members { version: u32, members: Vec<u32> },
    /// Controller to worker: hand a bundle over.
    Migrate { bundle: BundleIx, to: Entry },
    /// Controller to worker: let the next signal of an outermost loop be one to save at.
    Snapshot,
    /// Controller to worker.
    Pause(bool),
    /// Controller to worker: the program has ended everywhere; hand results in.
    Finish,
    /// Controller to worker: you hold nothing any more; forward what is on its way, and end once these have parted.
    Release { members: Vec<u32> },
    /// Controller to worker: end now, whatever you do.
    Stop,

    /// Worker to controller.
    Report(Box<Report>),
    /// Worker to controller: what it recorded since it last told; of a job whose trace is kept.
    Traced(Box<Traced>),
    /// Worker to controller: a bundle that migrated is there.
    Installed { bundle: BundleIx, version: u32 },
    /// Worker to controller: a bundle's part of a snapshot is durable.
    Saved(Box<Saved>),
    /// Worker to controller: a bundle is at the program's end.
    Ended { bundle: BundleIx },
    /// Worker to controller: a partition of a result.
    Output { dataset: u32, partition: u32, content: Chunk },
    /// Worker to controller: all results are handed in; the last message.
    Finished(Box<Report>),
    /// Worker to controller: another worker cannot be reached.
    Unreachable { worker: u32 },
    /// Worker to controller.
    Failed(JobError),
}

/// Where everything is and from where it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beginning {
    pub map: Vec<Entry>,
    pub members: Vec<u32>,
    /// How many changes of members there were.
    pub version: u32,
    pub snapshot: Option<Manifest>,
}

/// A whole snapshot: what it takes to go on from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Where every bundle is: at the signal of this epoch.
    pub position: Instance,
    pub iteration: u64,
    /// By bundle: datasets with the epoch of the snapshot that holds their content.
    pub saved: Vec<Vec<(u32, u64)>>,
}

/// A bundle's part of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub bundle: BundleIx,
    pub position: Instance,
    pub iteration: u64,
    pub datasets: Vec<(u32, u64)>,
}

/// A bundle on its way.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    pub bundle: BundleIx,
    pub version: u32,
    pub position: Instance,
    pub aside: Vec<Instance>,
    pub gathered: Vec<u32>,
    pub iteration: u64,
    pub evaluated: u32,
    pub written: u64,
    pub written_before: Vec<(u64, u64)>,
    pub saved: Vec<(u32, u64)>,
    pub passed: Vec<(u32, u64)>,
    pub tasks: u64,
    /// What has arrived for gathers that have not run: instance, source, chunk.
    pub chunks: Vec<(Instance, u32, Option<Chunk>)>,
    /// Content by dataset.
    pub states: Vec<(u32, Chunk)>,
    /// Signals that the receiver may have missed.
    pub signals: Vec<(u64, Signal)>,
}

/// A part of a job's trace, as a worker recorded it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Traced {
    pub host: Host,
    pub threads: u32,
    /// When it was told, on the worker's clock.
    pub now_ns: u64,
    /// Since it last told.
    pub interval_ns: u64,
    /// Tasks, with how long before `now_ns` each began, in ns.
    pub tasks: Vec<(u64, Sample)>,
    pub exchanges: Vec<Exchanged>,
}

/// What a worker tells of itself, by time and not by iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub worker: u32,
    /// Grows; the controller drops what was overtaken.
    pub number: u64,
    /// Time since the last report.
    pub interval_ns: u64,
    pub threads: u32,
    /// Memory for partitions; `None`: not limited.
    pub memory_bytes: Option<u64>,
    /// A task runs at this moment.
    pub running: bool,
    /// Core time in tasks since the last report, with bytes, by bundle that the worker has.
    pub bundles: Vec<(BundleIx, u64, u64)>,
    /// Of the bundle that is furthest behind.
    pub epoch: u64,
    pub iteration: u64,
    pub tasks: u64,
    pub busy_ns: u64,
    /// Newest numbers of observe stages: epoch and value, as its bits, by statement. (JSON has no NaN.)
    pub observed: BTreeMap<u32, (u64, u64)>,
    /// When signals of outermost loops were computed there; of the last report only.
    pub iterations_ns: Vec<u64>,
    /// What the worker spent between the first and the last of these.
    pub iterating: Spent,
}

/// What a worker's threads did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Core time in turns, loading left out.
    pub busy_ns: u64,
    pub tasks: u64,
}
