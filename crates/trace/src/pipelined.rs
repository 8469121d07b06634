//! A task that used several resources at once, as Spark's do.
//!
//! Such a task cannot be taken apart into work on one resource each; what is
//! known are totals, and how long it stalled on what. The parts of its duration
//! that Spark tells apart follow one another:
//!
//! ```text
//! duration = scheduler + deserialize + run + result serialisation + getting the result
//! run      ⊇ core time, fetch wait, shuffle write, GC, and what no metric tells apart
//! ```
//!
//! [`PipelinedTasks`](crate::PipelinedTasks) keeps millions of them in little memory.

use serde::{Deserialize, Serialize};

use crate::record::{Outcome, ResourceIx, StageIx};

/// A time that was measured exactly, is only bounded, or was not measured (`None` around it).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocked {
    /// Measured: stalled for this long.
    MeasuredNs(u64),
    /// Only a bound is known: stalled for at most this long.
    AtMostNs(u64),
}

/// How near its data a task ran, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Locality {
    /// In the process that holds it.
    Process,
    /// On the machine that holds it.
    Node,
    /// Anywhere is as good.
    NoPreference,
    /// In the rack that holds it.
    Rack,
    /// Elsewhere.
    Any,
}

/// Why a task did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Its code failed.
    Exception,
    /// Shuffle data that it needed was gone.
    FetchFailed,
    /// Its executor was lost.
    ExecutorLost,
    /// It ran out of memory.
    OutOfMemory,
    /// It was told to stop: another attempt won, or its job was cancelled.
    Killed,
    /// It was not allowed to publish its output.
    CommitDenied,
    /// It had ended well, then its output was lost with its executor.
    OutputLost,
    /// Anything else.
    Other,
}

/// A task that used several resources at once; what Spark logs hold.
///
/// Demands are totals over the task; a part that its source did not record is `None`.
/// Bounds (`AtMostNs`) of one task are each a bound of its own: they may be the
/// same unexplained time, so they are not to be added.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PipelinedTask {
    /// Stage that it belongs to.
    pub stage: StageIx,
    /// Partition within the stage.
    pub partition: u32,
    /// Attempt, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// The slots that it ran on (a resource of kind `slots`).
    pub resource: ResourceIx,
    /// When it was launched.
    pub launched_ns: u64,
    /// From launch to end.
    pub duration_ns: u64,
    /// Its number where it came from (Spark's task id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The part of `duration_ns` in which it computed or stalled: not the
    /// scheduler, not (de)serialising.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// Core time within `run_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Core time within `deserialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deserialize_cpu_ns: Option<u64>,
    /// Serialising its result, after it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_serialize_ns: Option<u64>,
    /// Bringing a large result to the driver, after it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub getting_result_ns: Option<u64>,
    /// Spent in scans within `run_ns`: waiting for input, and decoding it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_ns: Option<u64>,
    /// Putting its output in place within `run_ns`, after it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_ns: Option<u64>,
    /// Decoding and decompressing within `run_ns`, where the engine's operators measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_ns: Option<u64>,
    /// Waiting within `run_ns` for a permit of the scheduler that its executor has
    /// (the plugin's): queue time, not blocked time.
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
    /// What was spilled, as large as it was in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_spill_bytes: Option<u64>,
    /// Size of its result, as sent to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// Most memory that its operators held.
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
    /// How near its data it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// True for a speculative copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub speculative: bool,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// Why it did not end well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The same in its engine's words, cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PipelinedTask {
    /// When it ended.
    pub fn ended_ns(&self) -> u64 {
        self.launched_ns.saturating_add(self.duration_ns)
    }
}
