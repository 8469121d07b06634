//! What iterative jobs record: tasks of which one stands for many, and what went over links between workers.

use serde::{Deserialize, Serialize};

use crate::record::{ResourceIx, StageIx};

/// One task that was recorded for the many like it that were not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampledTask {
    /// Stage that it belongs to.
    pub stage: StageIx,
    /// Partition that it worked on.
    pub partition: u32,
    /// The resource that it used.
    pub resource: ResourceIx,
    /// Iteration, where the stage is in a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<u64>,
    /// When it started.
    pub started_ns: u64,
    /// How long it ran.
    pub service_ns: u64,
    /// How many tasks it stands for, itself included; at least 1.
    pub weight: f64,
    /// Bytes that it touched, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// All that one worker sent to others for one stage in an interval. Nothing is left out; when each message went, and
/// how long it was on its way, is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Stage whose output, or whose signal, was sent.
    pub stage: StageIx,
    /// Link of the machine that sent it; of kind `network`.
    pub resource: ResourceIx,
    /// Beginning of the interval.
    pub started_ns: u64,
    /// Its length.
    pub interval_ns: u64,
    /// Messages; a message may carry the same data for several partitions.
    pub messages: u64,
    /// Bytes of the messages, heads and checksums included.
    pub bytes: u64,
}
