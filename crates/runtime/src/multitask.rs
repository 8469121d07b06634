//! Multitasks, which callers submit to the runtime, and the monotasks that they plan.
//!
//! A multitask plans its monotasks when it is admitted, so that it can use the latest state (the ranges in
//! the page cache, the row groups that a finished build side has not pruned). Closures run without any lock
//! of the runtime and may call it.

use pellucid_scheduler::Phase;

use crate::context::Context;
use crate::{Error, ResourceHandle};

/// A stage's work on one partition.
pub trait Multitask: Send {
    /// Returns the monotasks. Called once, on admission, on the thread that caused it, so it must neither
    /// block nor compute for long.
    ///
    /// # Errors
    /// An error (or a panic) fails the job.
    fn plan(&mut self) -> Result<Vec<Monotask>, Error>;

    /// Called after all monotasks have succeeded. May submit more multitasks, and end the stage or the
    /// job. If the job has failed or was cancelled, the multitask is dropped instead.
    ///
    /// # Errors
    /// An error (or a panic) fails the job.
    fn done(self: Box<Self>) -> Result<(), Error>;
}

/// The closure of a monotask.
pub(crate) type Run = Box<dyn FnOnce(&Context) -> Result<Done, Error> + Send>;

/// A unit of work that uses exactly one resource.
pub struct Monotask {
    /// The resource that it uses.
    pub resource: ResourceHandle,
    /// Its step within the multitask.
    pub phase: Phase,
    /// Indices within the same multitask of the monotasks that must end first.
    pub after: Vec<u32>,
    /// Bytes to move or decode; 0 if not known in advance.
    pub bytes: u64,
    /// The work.
    pub run: Run,
}

impl Monotask {
    /// Creates a monotask on `resource`; see the fields for `after` and `bytes`.
    pub fn new(
        resource: &ResourceHandle,
        phase: Phase,
        after: Vec<u32>,
        bytes: u64,
        run: impl FnOnce(&Context) -> Result<Done, Error> + Send + 'static,
    ) -> Monotask {
        Monotask { resource: resource.clone(), phase, after, bytes, run: Box::new(run) }
    }
}

impl std::fmt::Debug for Monotask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monotask")
            .field("resource", &self.resource)
            .field("phase", &self.phase)
            .field("after", &self.after)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The result of a successful monotask. `None` means not measured, unless the field says otherwise.
#[derive(Debug, Default)]
pub struct Done {
    /// Bytes moved or decoded; `None` for the planned number.
    pub bytes: Option<u64>,
    /// Bytes that the device moved. `None` takes the kernel's count for the thread on a disk, and means
    /// not measured on other resources.
    pub device_bytes: Option<u64>,
    /// Input bytes that the page cache held (compute).
    pub cached_bytes: Option<u64>,
    /// Time spent decoding.
    pub decode_ns: Option<u64>,
    /// Time spent in operators.
    pub operator_ns: Option<u64>,
    /// Time spent partitioning or encoding output.
    pub encode_ns: Option<u64>,
    /// Time spent in operators that were not split.
    pub not_split_ns: Option<u64>,
    /// Number of output rows.
    pub rows: Option<u64>,
    /// More monotasks of the same multitask. Their indices continue those of the planned ones. The
    /// monotask that returns them counts as ended in their `after`.
    pub then: Vec<Monotask>,
}
