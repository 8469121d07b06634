//! The monotask scheduler: a pure state machine that decides which monotask runs next.
//!
//! A driver reports arrivals and completions with their times, and the [`Scheduler`] answers with
//! decisions. It has no threads, clock, I/O or source of randomness, and iterates over ordered sets only,
//! so the same calls always give the same decisions. The live engine, the model's what-ifs on a virtual
//! clock, and tests over thousands of workloads therefore share one scheduler.
//!
//! The scheduler has three layers, after the monotasks paper (SOSP '17, §3.3 to §3.5):
//!
//! 1. **Admission** (`admission.rs`): the number of admitted multitasks is limited to the concurrency of all
//!    resources plus one (§3.4), and by the memory budget.
//! 2. **Local DAG** (`multitask.rs`): a monotask is queued once all its predecessors have ended.
//! 3. **Queues** (`queue.rs`): each resource has a queue that is fair over jobs, round robin over a job's
//!    phases, and oldest multitask first within a phase. The concurrency is fixed, or tuned by a
//!    [`Controller`] (`controller.rs`).
//!
//! After each call, a driver calls [`Scheduler::next`] until it returns `None`:
//!
//! ```
//! use pellucid_scheduler::*;
//! let mut scheduler = Scheduler::new(Config { memory_bytes: Some(64 << 20) });
//! let cores = scheduler.add_resource(ResourceSpec {
//!     concurrency: Concurrency::Fixed(4),
//!     multitasks_at_once: None,
//! });
//! let job = scheduler.add_job(0);
//! let id = scheduler.submit(0, MultitaskSpec { job, stage: 0, memory_bytes: 8 << 20 });
//! assert_eq!(scheduler.next(0), Some(Decision::Admit(id)));
//! let compute = MonotaskSpec { resource: cores, phase: Phase::Compute, after: vec![], bytes: 0 };
//! scheduler.expand(10, id, vec![compute])?;
//! let monotask = MonotaskId { multitask: id, index: 0 };
//! assert_eq!(scheduler.next(10), Some(Decision::Start { monotask, resource: cores }));
//! scheduler.complete(500, monotask, Completion::default())?;
//! let outcome = Outcome::Done;
//! assert_eq!(scheduler.next(500), Some(Decision::Ended { multitask: id, outcome }));
//! assert_eq!(scheduler.next(500), None);
//! # Ok::<(), Invalid>(())
//! ```
//!
//! The scheduler does not decide how long a monotask runs, which depends on the driver's hardware or service
//! model. A scheduler serves one machine; it does not distribute work over machines.

mod admission;
pub mod controller;
mod multitask;
mod queue;
mod scheduler;

pub use controller::{Controller, Sample};
pub use scheduler::Scheduler;

use std::fmt;

/// A time or a duration on the driver's clock, in nanoseconds.
pub type Nanos = u64;

/// A resource, numbered from 0 in the order of [`Scheduler::add_resource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// A job, numbered from 0 in the order of [`Scheduler::add_job`]; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

/// A multitask. Its slot is reused after its `Ended` decision, so that a driver can keep its own data in a
/// vector; the generation distinguishes multitasks with the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MultitaskId {
    slot: u32,
    generation: u32,
}

impl MultitaskId {
    /// Returns an index for use in a vector. It is unique among live multitasks, and less than the maximum
    /// number of multitasks that were live at the same time.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A monotask: its multitask, and its index among that multitask's monotasks, in the order in which `expand`
/// and then each `complete` listed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotaskId {
    /// The multitask of the monotask.
    pub multitask: MultitaskId,
    /// Index within the multitask, from 0.
    pub index: u32,
}

/// A monotask's step within its multitask. Queues are round robin over phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Reads bytes from a disk into memory.
    Read,
    /// Fetches bytes over a link into memory.
    Fetch,
    /// Decodes, runs operators and encodes, on a core.
    Compute,
    /// Writes bytes that do not fit into memory to a disk.
    Spill,
    /// Writes output to a disk or over a link.
    Write,
}

/// The number of monotasks that a resource runs at once. Values below 1 count as 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Concurrency {
    /// A fixed number, for cores and spinning disks.
    Fixed(u32),
    /// A number tuned by a [`Controller`], for flash and object stores.
    Adaptive {
        /// Initial number; 2 in the paper.
        min: u32,
        /// Maximum number; values below `min` count as `min`.
        max: u32,
        /// Minimum relative increase of bytes per second for which the number increases further: see
        /// [`controller::GAIN`].
        gain: f64,
    },
}

/// The specification of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceSpec {
    /// The number of monotasks that the resource runs at once.
    pub concurrency: Concurrency,
    /// Maximum number of multitasks that fetch at once, oldest first, so that one multitask has all its bytes
    /// before the next gets bandwidth (§3.3 found 4 best). Values below 1 count as 1; `None` means no limit.
    /// Other phases are not limited.
    pub multitasks_at_once: Option<u32>,
}

/// Settings of the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Memory budget; `None` means no limit.
    pub memory_bytes: Option<u64>,
}

/// The specification of a monotask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonotaskSpec {
    /// The resource that the monotask uses.
    pub resource: ResourceId,
    /// The monotask's step within its multitask.
    pub phase: Phase,
    /// Indices of predecessors in the same multitask. Predecessors must be listed before this monotask, which
    /// rules out cycles.
    pub after: Vec<u32>,
    /// Bytes that the monotask is expected to move, or 0. Decisions do not depend on this estimate; it is for
    /// the driver's use.
    pub bytes: u64,
}

/// The specification of a multitask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultitaskSpec {
    /// The job of the multitask.
    pub job: JobId,
    /// The stage of the multitask, as any key that is unique within the job.
    pub stage: u32,
    /// Memory that the multitask needs from its admission to its end.
    pub memory_bytes: u64,
}

/// The result of a monotask that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completion {
    /// Bytes moved.
    pub bytes: u64,
    /// Additional monotasks of the same multitask, which continue its numbering. They may depend on the
    /// monotask that just ended.
    pub then: Vec<MonotaskSpec>,
}

/// The outcome of a multitask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every monotask succeeded.
    Done,
    /// The multitask failed, as the first of its job, and caused the job to fail.
    Failed,
    /// The job failed in another multitask, or was cancelled.
    Cancelled,
}

/// An action for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The multitask is admitted: plan its monotasks and call [`Scheduler::expand`], or
    /// [`Scheduler::fail_expand`].
    Admit(MultitaskId),
    /// Run the monotask, then call [`Scheduler::complete`] or [`Scheduler::fail`].
    Start {
        /// The monotask to run.
        monotask: MonotaskId,
        /// The resource to run it on.
        resource: ResourceId,
    },
    /// The multitask has ended: none of its monotasks runs or will run, and its memory is free. Every
    /// submitted multitask ends exactly once; its id is invalid afterwards.
    Ended {
        /// The multitask that ended.
        multitask: MultitaskId,
        /// Its outcome.
        outcome: Outcome,
    },
}

/// An error for an invalid call, which leaves the scheduler unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The multitask is not waiting for `expand`.
    NotAdmitted(MultitaskId),
    /// The monotask is not running.
    NotRunning(MonotaskId),
    /// A monotask uses an unknown resource.
    Resource {
        /// Index of the monotask.
        index: u32,
        /// The unknown resource.
        resource: ResourceId,
    },
    /// A monotask depends on one that is not listed before it.
    After {
        /// Index of the monotask.
        index: u32,
        /// Index of the predecessor.
        after: u32,
    },
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::NotAdmitted(id) => write!(
                f,
                "cannot expand multitask {}: it is not waiting for monotasks; expand it once, after Admit",
                id.slot
            ),
            Invalid::NotRunning(id) => write!(
                f,
                "cannot complete monotask {} of multitask {}: it is not running; complete it once, after Start",
                id.index, id.multitask.slot
            ),
            Invalid::Resource { index, resource } => {
                write!(
                    f,
                    "cannot add monotask {index}: resource {} is unknown; call add_resource first",
                    resource.0
                )
            }
            Invalid::After { index, after } => {
                write!(
                    f,
                    "cannot add monotask {index}: its predecessor {after} is not listed before it; list \
                     predecessors first"
                )
            }
        }
    }
}

impl std::error::Error for Invalid {}
