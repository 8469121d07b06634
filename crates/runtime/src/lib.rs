//! Runs monotasks for real: on cores, disks and links, within a memory budget.
//!
//! The scheduler decides and knows no thread; this crate has the threads and
//! decides nothing. It is handed a resource and a closure, and knows no backend.
//! Each core has a thread of its own, each disk and store as many as run on it at
//! once, so a closure that blocks holds up the one resource that it was queued
//! for (papers/monotasks-sosp17 §3.1, §3.3). Every closure that runs leaves one
//! record in its job's trace: how long it was queued, how long it ran, the core
//! time it took and the bytes that the kernel counted for its thread.
//!
//! Use: [`Runtime::new`], [`Runtime::begin`] for each query, [`Job::submit`] for
//! each multitask, [`Job::wait`] for the end. [`File`] reads byte ranges and
//! [`Output`] writes whole files, in monotasks of the disk that they are on.
//!
//! It does not apply where a closure uses two resources at once: a core that
//! waits for a device would be recorded as computing. [`File::residency`] is
//! there so that cores touch only what is in memory.

#![warn(missing_docs)]
// A list of one range is what it says, not a slip for all its elements.
#![allow(clippy::single_range_in_vec_init)]

mod buffer;
mod chunks;
mod driver;
mod entry;
mod file;
mod guard;
mod job;
mod multitask;
mod output;
mod pacer;
mod platform;
mod quota;
mod ranges;
mod residency;
mod resource;
mod runtime;
mod sampler;
mod worker;

pub use file::{File, Segment, slice};
pub use job::{Job, JobError, Progress};
pub use multitask::{Context, Done, Monotask, Multitask};
pub use output::Output;
pub use pacer::Pacer;
pub use pellucid_scheduler::{Phase, Policy};
pub use residency::Residency;
pub use resource::ResourceHandle;
pub use runtime::{IoMode, Options, Runtime};

/// What a closure, a plan or the runtime itself fails with.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a monotask ends with once it sees that its job was cancelled.
///
/// It is never a cause: a job that ends by it says `Cancelled`, or the failure
/// that came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for Cancelled {}
