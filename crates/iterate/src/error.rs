//! Errors in programs and failures of jobs.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The error of a kernel or loader: any error type, or a string.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The result of a kernel. An error or panic fails the job and names the stage and partition.
pub type KernelResult = Result<(), Cause>;

/// Shows a warning on standard error. Unlike `eprintln`, does not panic if that is closed.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(std::io::stderr(), "pellucid: {message}");
}

/// An error in a program, reported by [`Program::build`](crate::Program::build).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The field names and the messages below document the variants.
#[non_exhaustive]
pub enum ProgramError {
    NoPartitions { dataset: String },
    TooManyDatasets { dataset: String, limit: usize },
    ForeignDataset { stage: String },
    NoDatasets { stage: String },
    NamedTwice { stage: String, dataset: String },
    Partitionings { stage: String, left: String, right: String, partitions: [u32; 2] },
    NotSingle { stage: String, dataset: String, partitions: u32 },
    LoopWithoutSignal { name: String },
    SignalOutsideLoop { stage: String },
    Route { stage: String, source: u32, message: String },
    Empty,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPartitions { dataset } => {
                write!(f, "dataset {dataset:?} has no partitions; give it at least one")
            }
            Self::TooManyDatasets { dataset, limit } => write!(
                f,
                "cannot add dataset {dataset:?}: a program has at most {limit} datasets, including those of tree reduces \
                 and counters; use fewer"
            ),
            Self::ForeignDataset { stage } => {
                write!(f, "stage {stage:?} uses a dataset of another program; use this program's own")
            }
            Self::NoDatasets { stage } => {
                write!(
                    f,
                    "stage {stage:?} names no dataset, so no worker would run it; \
                     name a dataset that it reads or writes"
                )
            }
            Self::NamedTwice { stage, dataset } => write!(
                f,
                "stage {stage:?} names dataset {dataset:?} twice; a stage may read what it writes, \
                 so list it only under writes"
            ),
            Self::Partitionings { stage, left, right, partitions: [l, r] } => write!(
                f,
                "stage {stage:?} uses {left:?} with {l} partitions and {right:?} with {r}; \
                move data between partitionings with scatter and gather"
            ),
            Self::NotSingle { stage, dataset, partitions } => write!(
                f,
                "{stage:?} needs a dataset with one partition, but {dataset:?} has {partitions}; \
                 reduce it into one first"
            ),
            Self::LoopWithoutSignal { name } => {
                write!(f, "loop {name:?} has no signal and would never end; add while_signal to its body")
            }
            Self::SignalOutsideLoop { stage } => {
                write!(f, "while_signal {stage:?} is outside a loop; move it into the body of a repeat")
            }
            Self::Route { stage, source, message } => {
                write!(f, "stage {stage:?}, route of partition {source}: {message}")
            }
            Self::Empty => f.write_str("the program has no stages; add at least one"),
        }
    }
}

impl std::error::Error for ProgramError {}

/// The reason that a job failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // The field names and the messages below document the variants.
#[non_exhaustive]
pub enum JobError {
    /// A kernel returned an error or panicked.
    Kernel { stage: String, partition: u32, cause: String },
    /// A partition could not be loaded, encoded or read back.
    Load { dataset: String, partition: u32, cause: String },
    /// A snapshot could not be written or read.
    Snapshot { place: String, cause: String },
    /// The location of snapshots is in use, or holds snapshots that cannot be used.
    SnapshotPlace { place: String, cause: String },
    /// No worker is left, or a worker was lost and its work cannot be recomputed.
    WorkerLost { worker: u32, cause: String },
    /// A peer could not be reached or was refused.
    Connection { peer: String, cause: String },
    /// An expected event did not happen in time.
    TimedOut { waited_for: String, limit: Duration },
    /// The job was cancelled through its [`JobControl`](crate::JobControl).
    Cancelled,
    /// The requested result does not exist in this job.
    Result { dataset: String, cause: String },
}

impl JobError {
    /// Returns the error for a thread that the operating system refused to start.
    pub(crate) fn no_thread(started: usize, requested: usize, error: &std::io::Error) -> Self {
        let cause =
            format!("only {started} of {requested} threads can be started ({error}); use fewer workers");
        Self::Connection { peer: "threads".into(), cause }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { stage, partition, cause } => {
                write!(f, "stage {stage:?}, partition {partition}: {cause}")
            }
            Self::Load { dataset, partition, cause } => {
                write!(f, "dataset {dataset:?}, partition {partition}: {cause}")
            }
            Self::Snapshot { place, cause } => {
                write!(
                    f,
                    "cannot write or read snapshots in {place}: {cause}; check its disk and free space, or choose \
                     another location"
                )
            }
            Self::SnapshotPlace { place, cause } => {
                write!(f, "cannot use {place} for snapshots: {cause}")
            }
            Self::WorkerLost { worker, cause } => write!(f, "worker {worker} was lost: {cause}"),
            Self::Connection { peer, cause } => write!(f, "{peer}: {cause}"),
            Self::TimedOut { waited_for, limit } => {
                write!(f, "timed out after {:.1} s waiting for {waited_for}", limit.as_secs_f64())
            }
            Self::Cancelled => f.write_str("the job was cancelled"),
            Self::Result { dataset, cause } => write!(f, "result {dataset:?}: {cause}"),
        }
    }
}

impl std::error::Error for JobError {}
