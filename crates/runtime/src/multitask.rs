//! What the runtime is handed: multitasks, and the monotasks that they plan.
//!
//! A multitask says its monotasks when it is admitted, not before, so that what
//! is read is decided on what is known by then (which ranges the page cache
//! holds, which row groups a finished build side left). Closures run outside
//! every lock of the runtime and may call it freely.

use std::sync::Arc;

use pellucid_scheduler::Phase;

use crate::job::JobInner;
use crate::{Error, ResourceHandle};

/// What a stage does on one partition.
pub trait Multitask: Send {
    /// Its monotasks; called once, when it is admitted. It runs on whichever
    /// thread caused the admission, so it must neither block nor compute for long.
    ///
    /// # Errors
    /// An error (or a panic) fails the job.
    fn plan(&mut self) -> Result<Vec<Monotask>, Error>;

    /// Every monotask ended well. May submit more multitasks, end the stage or
    /// the job. Not called for a job that failed or was cancelled: the box is
    /// dropped instead.
    ///
    /// # Errors
    /// An error (or a panic) fails the job.
    fn done(self: Box<Self>) -> Result<(), Error>;
}

/// The closure of a monotask.
pub(crate) type Run = Box<dyn FnOnce(&Context) -> Result<Done, Error> + Send>;

/// A unit of work that uses exactly one resource.
pub struct Monotask {
    /// The resource that it is queued at.
    pub resource: ResourceHandle,
    /// Its step within the multitask.
    pub phase: Phase,
    /// Indices, within the same multitask, of those that must end first.
    pub after: Vec<u32>,
    /// Bytes that it is asked to move or to decode; 0 where not known before.
    pub bytes: u64,
    /// The work.
    pub run: Run,
}

impl Monotask {
    /// A monotask on `resource`; `after` and `bytes` as the fields say.
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

/// What a monotask says when it ends well. What it did not measure stays `None`.
#[derive(Debug, Default)]
pub struct Done {
    /// Bytes moved or decoded; `None`: as many as it was asked to.
    pub bytes: Option<u64>,
    /// Bytes that the device moved; `None`: what the kernel counted for the
    /// thread, on a disk, and not measured elsewhere.
    pub device_bytes: Option<u64>,
    /// Input bytes that the page cache held (compute).
    pub cached_bytes: Option<u64>,
    /// Part of its time spent decoding.
    pub decode_ns: Option<u64>,
    /// Part spent in operators.
    pub operator_ns: Option<u64>,
    /// Part spent partitioning or encoding output.
    pub encode_ns: Option<u64>,
    /// Part spent in operators that were not split.
    pub not_split_ns: Option<u64>,
    /// Rows put out.
    pub rows: Option<u64>,
    /// More monotasks of the same multitask, indexed on from those planned; in
    /// their `after`, the one that returns this counts as ended.
    pub then: Vec<Monotask>,
}

/// What a running monotask may ask.
pub struct Context {
    pub(crate) job: Arc<JobInner>,
}

impl Context {
    /// True once the job was cancelled, failed or ended early. A monotask that
    /// runs for long asks at least every 50 ms and returns [`crate::Cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.job.is_stopped()
    }
}
