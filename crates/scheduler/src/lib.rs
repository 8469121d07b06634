//! Which monotask runs next: a pure state machine.
//!
//! A [`Scheduler`] is told what arrived and what ended, and at what time, and
//! answers with what to start. It has no thread, clock, I/O or random source, and
//! decides by ordered sets only: the same calls give the same answers, bit for bit.
//! So one piece of code serves the live engine, the what-ifs of the model, on a
//! virtual clock, and tests that run thousands of workloads in seconds.
//!
//! Three layers, after the monotasks paper (SOSP '17, §3.3 to §3.5):
//!
//! 1. **Admission** (`admission.rs`): at most as many multitasks at once as all
//!    resources can run together, and one more (§3.4), within the memory budget.
//! 2. **Local DAG** (`multitask.rs`): a monotask is queued once all that it comes
//!    after has ended.
//! 3. **Queues** (`queue.rs`): one a resource; fair over jobs, round robin over a
//!    job's phases, oldest multitask first within a phase. How many run at once is
//!    fixed, or tuned by a [`Controller`] (`controller.rs`).
//!
//! A driver tells one thing, then calls [`Scheduler::next`] until it says `None`:
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
//! It does not apply to how long a monotask runs (that is the driver's: hardware,
//! or a service model), to what a stage is, or to work spread over machines: one
//! scheduler serves one machine.

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

/// A multitask. Its slot is free for another once its `Ended` was handed out, so
/// that a driver can keep bodies in a vector; the generation tells the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MultitaskId {
    slot: u32,
    generation: u32,
}

impl MultitaskId {
    /// Place in a vector: below the largest number of multitasks that were ever
    /// submitted and not ended, and unique among those.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A monotask: its multitask, and its place among that multitask's monotasks in
/// the order in which `expand` and then each `complete` listed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotaskId {
    /// The multitask that it is part of.
    pub multitask: MultitaskId,
    /// Place in that multitask, from 0.
    pub index: u32,
}

/// A monotask's step within its multitask. Queues go round over these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Bytes from a disk into memory.
    Read,
    /// Bytes over a link into memory.
    Fetch,
    /// Decode, operators, encode; on a core.
    Compute,
    /// Bytes that memory has no room for, to a disk.
    Spill,
    /// Output, to a disk or over a link.
    Write,
}

/// What "it pays" means to the adaptive controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Bytes per second grow.
    Throughput {
        /// Least growth that pays, as a share: 0.07 is 7 %.
        gain: f64,
    },
    /// The congestion index does not rise (self-adaptive executors, §5.1 and §5.2).
    Index,
}

impl Default for Policy {
    /// The policy that found the optimum where the index misled (DESIGN, Execution).
    fn default() -> Self {
        Policy::Throughput { gain: 0.07 }
    }
}

/// How many monotasks a resource runs at once. A number below 1 counts as 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Concurrency {
    /// Always this many: cores, a spinning disk.
    Fixed(u32),
    /// As many as pay: flash, object stores.
    Adaptive {
        /// Where each climb starts; the paper's is 2.
        min: u32,
        /// Never more than this; below `min` counts as `min`.
        max: u32,
        /// When a doubling pays.
        policy: Policy,
    },
}

/// A resource as it is registered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceSpec {
    /// How many monotasks it runs at once.
    pub concurrency: Concurrency,
    /// Fetches of at most this many multitasks at once, oldest first, so that one
    /// has all its bytes before the next gets bandwidth (§3.3 found 4 best). Below
    /// 1 counts as 1; `None`: no such limit. Other phases are not limited by it.
    pub multitasks_at_once: Option<u32>,
}

/// What holds for the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Memory budget; `None`: no limit.
    pub memory_bytes: Option<u64>,
}

/// One monotask of a multitask, as it is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonotaskSpec {
    /// The one resource that it uses.
    pub resource: ResourceId,
    /// Its step within its multitask.
    pub phase: Phase,
    /// Monotasks of the same multitask that must end first, by index. Each is
    /// listed before this one, so that no cycle can be written down.
    pub after: Vec<u32>,
    /// Bytes that it is expected to move; 0 for none. For the driver, whose plan this
    /// is: no decision depends on a guess of how long something will run.
    pub bytes: u64,
}

/// A multitask as it is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultitaskSpec {
    /// The job that it is part of.
    pub job: JobId,
    /// Its stage, by any key that is unique within the job.
    pub stage: u32,
    /// Memory that it needs from its admission to its end.
    pub memory_bytes: u64,
}

/// What a monotask that ended well has to say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Completion {
    /// Bytes that it moved.
    pub bytes: u64,
    /// Time stalled on I/O. `None`: it did nothing but I/O, as on a disk or a
    /// store, and its whole service time counts.
    pub wait_ns: Option<u64>,
    /// More monotasks of the same multitask; they continue its numbering, and the
    /// one that just ended counts as ended.
    pub then: Vec<MonotaskSpec>,
}

/// How a multitask ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every monotask ended well.
    Done,
    /// It failed, and its job with it: the first of its job to do so.
    Failed,
    /// Its job failed elsewhere, or was cancelled.
    Cancelled,
}

/// What the driver is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The multitask has memory and a place: say its monotasks with
    /// [`Scheduler::expand`], or [`Scheduler::fail_expand`].
    Admit(MultitaskId),
    /// Run it, then tell [`Scheduler::complete`] or [`Scheduler::fail`].
    Start {
        /// What to run.
        monotask: MonotaskId,
        /// Where.
        resource: ResourceId,
    },
    /// Nothing of it runs or will run, and its memory is free. Comes exactly once
    /// for every submitted multitask; its id means nothing from here on.
    Ended {
        /// Which one.
        multitask: MultitaskId,
        /// How.
        outcome: Outcome,
    },
}

/// A call that cannot be: nothing was changed by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The multitask does not wait to be expanded.
    NotAdmitted(MultitaskId),
    /// The monotask does not run.
    NotRunning(MonotaskId),
    /// A monotask names a resource that was never added.
    Resource {
        /// Index of that monotask.
        index: u32,
        /// What it names.
        resource: ResourceId,
    },
    /// A monotask comes after one that is not listed before it.
    After {
        /// Index of that monotask.
        index: u32,
        /// The index that it names.
        after: u32,
    },
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::NotAdmitted(id) => write!(
                f,
                "multitask {} does not wait for its monotasks: expand it once, after Admit",
                id.slot
            ),
            Invalid::NotRunning(id) => write!(
                f,
                "monotask {} of multitask {} does not run: complete it once, after Start",
                id.index, id.multitask.slot
            ),
            Invalid::Resource { index, resource } => {
                write!(f, "monotask {index} names resource {}, which was never added", resource.0)
            }
            Invalid::After { index, after } => {
                write!(f, "monotask {index} comes after {after}, which is not listed before it")
            }
        }
    }
}

impl std::error::Error for Invalid {}
