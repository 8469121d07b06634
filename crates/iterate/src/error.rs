//! What can be wrong with a program, and what can go wrong with a job.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a kernel or a loader gave up; any error, or a text.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What is wrong with a program; found when it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are named after what they are; the message says the rest.
#[non_exhaustive]
pub enum ProgramError {
    NoPartitions { dataset: String },
    TooManyDatasets { dataset: String },
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
                write!(f, "dataset {dataset:?} has no partition; give it one or more")
            }
            Self::TooManyDatasets { dataset } => write!(
                f,
                "dataset {dataset:?} is one too many: a program has at most {}, those of tree reduces and counters included",
                crate::program::MAX_DATASETS
            ),
            Self::ForeignDataset { stage } => {
                write!(f, "stage {stage:?} names a dataset of another program; use this program's own")
            }
            Self::NoDatasets { stage } => {
                write!(
                    f,
                    "stage {stage:?} names no dataset, so that no worker would run it; name what it reads or writes"
                )
            }
            Self::NamedTwice { stage, dataset } => write!(
                f,
                "stage {stage:?} names dataset {dataset:?} twice; what it writes it may read too: name it there only"
            ),
            Self::Partitionings { stage, left, right, partitions: [l, r] } => write!(
                f,
                "stage {stage:?} uses {left:?} of {l} partitions with {right:?} of {r}; \
                 move data from one partitioning to the other with scatter and gather"
            ),
            Self::NotSingle { stage, dataset, partitions } => write!(
                f,
                "{stage:?} needs a dataset of one partition, and {dataset:?} has {partitions}; reduce it into one first"
            ),
            Self::LoopWithoutSignal { name } => {
                write!(f, "loop {name:?} has no signal and would never end; add while_signal to its body")
            }
            Self::SignalOutsideLoop { stage } => {
                write!(f, "while_signal {stage:?} is in no loop; put it into the body of a repeat")
            }
            Self::Route { stage, source, message } => {
                write!(f, "stage {stage:?}, routes of partition {source}: {message}")
            }
            Self::Empty => f.write_str("the program has no stage"),
        }
    }
}

impl std::error::Error for ProgramError {}

/// Why a job did not end well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // As above.
#[non_exhaustive]
pub enum JobError {
    /// A kernel returned an error or panicked.
    Kernel { stage: String, partition: u32, cause: String },
    /// A partition could not be loaded, encoded or read back.
    Load { dataset: String, partition: u32, cause: String },
    /// A snapshot could not be written or read.
    Snapshot { place: String, cause: String },
    /// No worker is left, or one was lost when nothing could be computed again.
    WorkerLost { worker: u32, cause: String },
    /// A peer could not be reached, or was refused.
    Connection { peer: String, cause: String },
    /// Something that should have happened did not, for too long.
    TimedOut { waited_for: String, limit: Duration },
    /// Memory of all workers together is too small.
    Memory { needed_bytes: u64, available_bytes: u64 },
    /// Cancelled from outside.
    Cancelled,
    /// A result was asked for that the job does not have.
    Result { dataset: String, cause: String },
}

impl JobError {
    /// The system gives no thread more.
    pub(crate) fn no_thread(there: usize, wanted: usize, error: &std::io::Error) -> Self {
        let cause = format!("only {there} of {wanted} threads can be started ({error}); say fewer workers");
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
                write!(f, "{place}: {cause}; free space or choose another place for snapshots")
            }
            Self::WorkerLost { worker, cause } => write!(f, "worker {worker} was lost: {cause}"),
            Self::Connection { peer, cause } => write!(f, "{peer}: {cause}"),
            Self::TimedOut { waited_for, limit } => {
                write!(f, "waited {:.1} s for {waited_for}, in vain", limit.as_secs_f64())
            }
            Self::Memory { needed_bytes, available_bytes } => write!(
                f,
                "the partitions take {needed_bytes} bytes and the workers have {available_bytes}; \
                 add workers or memory"
            ),
            Self::Cancelled => f.write_str("the job was cancelled"),
            Self::Result { dataset, cause } => write!(f, "result {dataset:?}: {cause}"),
        }
    }
}

impl std::error::Error for JobError {}
