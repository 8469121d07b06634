//! Executes monotasks on cores, disks and network links, within a memory budget.
//!
//! The scheduler makes all decisions and has no threads; this crate has the threads and makes no
//! decisions. It receives resources and closures, and does not depend on storage backends. Each core has
//! one thread, and each disk and store as many as its concurrency, so a closure that blocks delays only
//! the resource for which it was queued (papers/monotasks-sosp17 §3.1, §3.3). Every closure writes one
//! record to its job's trace: queue time, service time, core time, and the bytes that the kernel counted
//! for its thread.
//!
//! Call [`Runtime::new`] once, [`Runtime::begin`] for each query, [`Job::submit`] for each multitask, and
//! [`Job::wait`] for the end. [`File`] reads byte ranges and [`Output`] writes whole files, in monotasks of
//! their disk.
//!
//! A closure must not use two resources: time that a core waits for a device would be recorded as
//! computing. [`File::residency`] tells which bytes a core can read without such a wait.

#![warn(missing_docs)]
// A list of one range is intended here, not its elements.
#![allow(clippy::single_range_in_vec_init)]

mod buffer;
mod chunks;
mod driver;
mod entry;
mod file;
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
pub use pellucid_scheduler::Phase;
pub use residency::Residency;
pub use resource::ResourceHandle;
pub use runtime::{IoMode, Options, Runtime};

/// The error type of closures, plans and the runtime itself.
pub type Error = pellucid_trace::guard::Error;

/// The error of a monotask that stops because its job was cancelled.
///
/// It is never the cause of a failed job: the job reports [`JobError::Cancelled`] or its first failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cancelled")
    }
}

impl std::error::Error for Cancelled {}
