//! The job that is being planned, which requests to stores outside monotasks belong to.

use std::sync::Arc;

use super::job_io::{JobIo, OperationRecorder};

tokio::task_local! {
    /// The job that is being planned. Planning uses the engine's stores, not the job's.
    static PLANNING_JOB: Arc<JobIo>;
}

/// Runs `planning` and attributes its requests to stores to `io`.
pub(crate) async fn with_planning_job<T>(io: Arc<JobIo>, planning: impl Future<Output = T>) -> T {
    PLANNING_JOB.scope(io, planning).await
}

/// Notes that the job that is being planned uses the store `name`; has no effect outside of planning.
pub(super) fn use_store(name: &str) {
    let _ = PLANNING_JOB.try_with(|job| job.use_store(name));
}

/// Returns the recorder of requests to the remote store `name`; `None` outside of planning.
pub(super) fn planning_recorder(name: &str) -> Option<OperationRecorder> {
    Some(PLANNING_JOB.try_with(Arc::clone).ok()?.store_recorder(name))
}
