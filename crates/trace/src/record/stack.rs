//! Call stacks that were sampled while compute monotasks ran.

use serde::{Deserialize, Serialize};

use super::index::StageIx;

/// A call stack and the number of samples that found it in a stage and operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Stage whose compute monotask ran.
    pub stage: StageIx,
    /// The operator that ran; absent for the beginning and the end of a monotask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<u32>,
    /// Number of samples, each of which stands for one period of core time.
    pub count: u64,
    /// Names of the functions, the outermost first, separated by `;`. One text takes less memory than a list.
    pub frames: String,
}

impl Stack {
    /// Samples per second of core time of a thread.
    pub const RATE_HZ: u64 = 99;
    /// The only frame of samples that were counted, but whose functions did not fit into the thread's buffer.
    pub const LOST: &str = "[lost]";
    /// The outermost frame of a stack whose outer functions are missing.
    pub const TRUNCATED: &str = "[truncated]";
}
