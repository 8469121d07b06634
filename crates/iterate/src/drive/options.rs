//! Options for running a plan.

use std::time::Duration;

use pellucid_trace::Recorder;

use crate::dataflow::outcome::Progress;
use crate::drive::job_control::JobControl;
use crate::snapshot::store::Snapshots;
use crate::tracing::bandwidth::Bandwidth;

/// Options for running a job. The default is one worker thread per core, in this process.
pub struct RunOptions {
    /// Worker threads in this process.
    pub threads: usize,
    /// Location and interval of snapshots. `None` takes none: after a loss the job restarts from the beginning.
    pub snapshots: Option<Snapshots>,
    /// Recorder of the job's trace: stages and exchanges exactly, tasks by sampling.
    pub recorder: Option<Recorder>,
    /// Measured memory bandwidth by number of threads, for the trace.
    pub memory: Vec<Bandwidth>,
    /// Callback that receives the progress a few times per second, on the thread that called [`run`](crate::run).
    #[allow(clippy::type_complexity)]
    pub progress: Option<Box<dyn FnMut(&Progress) + Send>>,
    /// Handle to pause, resume or cancel the job from another thread.
    pub control: Option<JobControl>,
    /// Maximum time to wait for an expected event, such as a message from a worker.
    pub wait_limit: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            snapshots: None,
            recorder: None,
            memory: Vec::new(),
            progress: None,
            control: None,
            wait_limit: Duration::from_secs(60),
        }
    }
}
