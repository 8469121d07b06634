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
//! [`Job::wait`] for the end. [`File`] reads byte ranges, [`Output`] writes whole files, and [`Scratch`] keeps what
//! does not fit into memory, in monotasks of their disk.
//!
//! `drive` has the threads and the driver that feeds them, `io` the monotasks that move bytes, `platform`
//! the counters of the system, and `stacks` the sampled call stacks.
//!
//! A closure must not use two resources: time that a core waits for a device would be recorded as
//! computing. [`File::residency`] tells which bytes a core can read without such a wait.

#![warn(missing_docs)]
// A list of one range is intended here, not its elements.
#![allow(clippy::single_range_in_vec_init)]

mod context;
mod drive;
mod io;
mod job;
mod multitask;
mod platform;
mod quota;
mod resource;
mod runtime;
mod samples;
mod stacks;
mod state;

pub use context::{Cancelled, Context};
pub use io::file::{File, IoMode, Segment, slice};
pub use io::output::Output;
pub use io::pacer::Pacer;
pub use io::residency::Residency;
pub use io::scratch::Scratch;
pub use job::Job;
pub use multitask::{Done, Monotask, Multitask};
pub use pellucid_scheduler::Phase;
pub use platform::thread_cpu_ns;
pub use quota::available_memory_bytes;
pub use resource::ResourceHandle;
pub use runtime::{Options, Runtime};
pub use stacks::mark_operator;
pub use state::{JobError, Progress};

/// The error type of closures, plans and the runtime itself.
pub type Error = pellucid_trace::guard::Error;
