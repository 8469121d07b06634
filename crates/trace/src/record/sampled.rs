//! Records of iterative jobs: sampled tasks, and data sent between workers.

use serde::{Deserialize, Serialize};

use super::index::{ResourceIx, StageIx};

/// One task that represents several similar tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampledTask {
    /// Stage of the task.
    pub stage: StageIx,
    /// Partition of the task.
    pub partition: u32,
    /// The resource that it used.
    pub resource: ResourceIx,
    /// Iteration, if the stage is in a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
    /// Start time.
    pub started_ns: u64,
    /// Service time.
    pub service_ns: u64,
    /// Number of tasks that it represents, including itself; at least 1.
    pub weight: f64,
    /// Bytes that it accessed, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The data that one worker sent to others for one stage in an interval. The totals are complete, but the time and
/// latency of each message are not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Stage whose output or signal was sent.
    pub stage: StageIx,
    /// Link of the sending machine; of kind `network`.
    pub resource: ResourceIx,
    /// Start of the interval.
    pub started_ns: u64,
    /// Length of the interval.
    pub interval_ns: u64,
    /// Number of messages; one message may carry the same data for several partitions.
    pub messages: u64,
    /// Bytes of the messages, including headers and checksums.
    pub bytes: u64,
}
