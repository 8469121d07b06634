//! Jobs: one query each, with its stages, outcome and trace.
//!
//! [`Job::wait`] returns after a job has ended, once all code of the job has returned and all its closures
//! and multitasks are dropped.

use std::sync::Arc;

use pellucid_trace::{Peak, Recorder, ResourceIx, Spill, StageIx};

use crate::drive::driver::Shared;
use crate::state::{Ending, JobInner};
use crate::{Error, JobError, Multitask, Progress, ResourceHandle};

/// A job. Clones refer to the same job. If the last one is dropped before the job has ended, the job is
/// cancelled.
#[derive(Clone)]
pub struct Job(Arc<Owner>);

struct Owner {
    job: Arc<JobInner>,
    shared: Arc<Shared>,
}

impl Job {
    pub(crate) fn new(job: Arc<JobInner>, shared: Arc<Shared>) -> Job {
        Job(Arc::new(Owner { job, shared }))
    }

    /// Registers a stage that starts after the stages in `after` have ended. `not_split` lists operators
    /// that run in it whole.
    pub fn stage(&self, name: &str, after: &[StageIx], not_split: Vec<String>) -> StageIx {
        self.0.job.stage(name, after, not_split)
    }

    /// Queues a multitask for admission. If the job has ended, the multitask is dropped.
    pub fn submit(&self, stage: StageIx, partition: u32, memory_bytes: u64, body: Box<dyn Multitask>) {
        self.0.shared.submit(&self.0.job, stage, partition, memory_bytes, body);
    }

    /// Records that all multitasks of a stage are done. Stages that have not ended when the job ends get
    /// its outcome.
    pub fn end_stage(&self, stage: StageIx) {
        self.0.job.end_stage(stage);
    }

    /// Counts memory that is held between stages (exchanges) against the budget.
    pub fn hold(&self, bytes: u64) {
        let job = &self.0.job;
        job.hold(bytes);
        self.0.shared.update(|s| s.hold(job.id, bytes));
    }

    /// Releases held memory. Memory that is still held when the job ends is released then.
    pub fn release(&self, bytes: u64) {
        let job = &self.0.job;
        let bytes = job.release(bytes);
        self.0.shared.update(|s| s.release(job.id, bytes));
    }

    /// Cancels the job: queued work is dropped, running work stops within 100 ms.
    pub fn cancel(&self) {
        self.0.shared.stop(&self.0.job, Ending::Cancelled);
    }

    /// Fails the job for a cause outside its monotasks.
    pub fn fail(&self, error: Error) {
        self.0.shared.stop(&self.0.job, Ending::Failed(error));
    }

    /// Ends the job successfully. Work that is still queued or running is not needed, and is stopped.
    pub fn succeed(&self) {
        self.0.shared.stop(&self.0.job, Ending::Succeeded);
    }

    /// Sets the number of rows of the result, for the trace. Must be called before the job ends.
    pub fn set_rows(&self, rows: u64) {
        self.0.job.set_rows(rows);
    }

    /// Sets the source of the memory that the job held at its peak, and of what did not fit, for the trace. It is asked when
    /// the job ends.
    pub fn set_memory(&self, memory: impl Fn() -> (Option<Peak>, Option<Spill>) + Send + Sync + 'static) {
        self.0.job.set_memory(Box::new(memory));
    }

    /// Returns true once the job was cancelled, has failed or has succeeded, so that no more work is needed.
    pub fn is_cancelled(&self) -> bool {
        self.0.job.is_stopped()
    }

    /// Blocks until the job has ended. Must not be called from a closure or plan of the job, which would
    /// wait for itself.
    ///
    /// # Errors
    /// Returns a [`JobError`]. The first caller gets the original error, later callers its message only.
    pub fn wait(&self) -> Result<(), JobError> {
        self.0.job.wait()
    }

    /// Returns the progress of the job.
    pub fn progress(&self) -> Progress {
        self.0.job.progress()
    }

    /// Returns the recorder of the job's trace.
    pub fn recorder(&self) -> &Recorder {
        &self.0.job.recorder
    }

    /// Returns the trace's index of a resource, for storage operations.
    pub fn resource_ix(&self, resource: &ResourceHandle) -> ResourceIx {
        self.0.job.resource_ix(resource)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop(&self.job, Ending::Cancelled);
    }
}
