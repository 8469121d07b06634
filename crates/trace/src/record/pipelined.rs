//! Tasks that use several resources concurrently, as in Spark.
//!
//! Such a task cannot be split into work on single resources; only its totals and
//! blocked times are known. Spark distinguishes these sequential parts of its
//! duration:
//!
//! ```text
//! duration = scheduler + deserialize + run + result serialisation + getting the result
//! run      ⊇ core time, fetch wait, shuffle write, GC, and time without a metric
//! ```
//!
//! [`PipelinedTasks`](crate::PipelinedTasks) keeps millions of them in little memory.

use serde::{Deserialize, Serialize};

use super::index::{ResourceIx, StageIx};
use super::outcome::Outcome;

/// A blocked time that was measured or only has an upper bound. `None` of this type means not measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocked {
    /// Measured: stalled for this long.
    MeasuredNs(u64),
    /// Upper bound: stalled for at most this long.
    AtMostNs(u64),
}

/// The distance between a task and its data, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Locality {
    /// In the process that holds the data.
    Process,
    /// On the machine that holds the data.
    Node,
    /// The task has no preferred location.
    NoPreference,
    /// In the rack that holds the data.
    Rack,
    /// Further away.
    Any,
}

/// The cause of a task's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Its code failed.
    Exception,
    /// Its shuffle input was lost.
    FetchFailed,
    /// Its executor was lost.
    ExecutorLost,
    /// It ran out of memory.
    OutOfMemory,
    /// It was stopped: another attempt finished first, or its job was cancelled.
    Killed,
    /// It was not allowed to commit its output.
    CommitDenied,
    /// It succeeded, but its output was lost with its executor.
    OutputLost,
    /// Anything else.
    Other,
}

/// A task that used several resources concurrently, as in Spark logs.
///
/// Demands are totals over the task; a part that its source did not record is `None`.
/// Upper bounds (`AtMostNs`) of one task may cover the same unexplained time, so they
/// must not be added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PipelinedTask {
    /// Stage of the task.
    pub stage: StageIx,
    /// Partition within the stage.
    pub partition: u32,
    /// Attempt, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// The slots on which it ran (a resource of kind `slots`).
    pub resource: ResourceIx,
    /// Launch time.
    pub launched_ns: u64,
    /// Time from launch to end.
    pub duration_ns: u64,
    /// ID in the source system (Spark's task ID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The part of `duration_ns` in which it computed or stalled; excludes the
    /// scheduler and (de)serialisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// Core time within `run_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Core time within `deserialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deserialize_cpu_ns: Option<u64>,
    /// Time for serialising its result, after `run_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_serialize_ns: Option<u64>,
    /// Time for transferring a large result to the driver, after `run_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub getting_result_ns: Option<u64>,
    /// Time in scans within `run_ns`: waiting for input, and decoding it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_ns: Option<u64>,
    /// Time for committing its output within `run_ns`, after it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_ns: Option<u64>,
    /// Time for decoding and decompressing within `run_ns`, if the engine's operators measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_ns: Option<u64>,
    /// Time waiting within `run_ns` for a permit of the executor's scheduler (the
    /// plugin's): queue time, not blocked time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ns: Option<u64>,
    /// Bytes of input read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Records of input read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_records: Option<u64>,
    /// Bytes of output written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Records of output written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_records: Option<u64>,
    /// Shuffle bytes fetched from other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_remote_bytes: Option<u64>,
    /// Shuffle bytes read from this machine's disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_local_bytes: Option<u64>,
    /// Shuffle records read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_read_records: Option<u64>,
    /// Shuffle bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_write_bytes: Option<u64>,
    /// Shuffle records written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_write_records: Option<u64>,
    /// Bytes spilled to disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_bytes: Option<u64>,
    /// Size of the spilled data in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_spill_bytes: Option<u64>,
    /// Size of its result, as sent to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// Peak memory of its operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Blocked on the network (fetch wait).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_network: Option<Blocked>,
    /// Blocked reading input from a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_input: Option<Blocked>,
    /// Blocked reading shuffle data from this machine's disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_shuffle_read: Option<Blocked>,
    /// Blocked writing shuffle files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_shuffle_write: Option<Blocked>,
    /// Blocked writing and reading spills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_spill: Option<Blocked>,
    /// Blocked writing output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_output: Option<Blocked>,
    /// Garbage collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc: Option<Blocked>,
    /// Scheduler delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Blocked>,
    /// Deserialising the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deserialize: Option<Blocked>,
    /// Distance from its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// True for a speculative copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub speculative: bool,
    /// Outcome.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// Cause of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The engine's error message, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PipelinedTask {
    /// Returns the time at which it ended.
    pub fn ended_ns(&self) -> u64 {
        self.launched_ns.saturating_add(self.duration_ns)
    }
}
