//! Running a plan: options, progress and results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pellucid_trace::Recorder;
use url::Url;

use crate::dataflow::data::{Chunk, Data};
use crate::dataflow::plan::Plan;
use crate::dataflow::views::Dataset;
use crate::error::JobError;
use crate::kernels::bandwidth::Bandwidth;
use crate::protocol::message::Report;

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
    /// Callback that receives the progress a few times per second, on the thread that called [`run`].
    #[allow(clippy::type_complexity)]
    pub progress: Option<Box<dyn FnMut(&Progress) + Send>>,
    /// Handle to pause, resume or cancel the job from another thread.
    pub control: Option<crate::JobControl>,
    /// Maximum time to wait for an expected event, such as a message from a worker.
    pub wait_limit: Duration,
}

/// Location and interval of a job's snapshots.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// Directory (`file://`) or object store prefix (`s3://`).
    pub place: Url,
    /// Iterations of outermost loops between snapshots.
    pub every_iterations: u32,
}

/// Progress of a running job.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Iterations of outermost loops that all workers have started.
    pub iteration: u64,
    /// Latest values of [`Program::observe`](crate::Program::observe), by stage name.
    pub observed: BTreeMap<String, f64>,
    /// Tasks run so far.
    pub tasks: u64,
    /// Mean divided by maximum of the workers' core time since the last report; 1 is perfectly balanced.
    pub balance: Option<f64>,
    /// Workers in the job.
    pub workers: u32,
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

/// The results and statistics of a successful job.
#[derive(Debug)]
pub struct Outcome {
    program: u32,
    names: Vec<String>,
    outputs: BTreeMap<(u32, u32), Chunk>,
    /// By statement: the epoch and the bits of the value in `observed`.
    newest: BTreeMap<u32, (u64, u64)>,
    /// Iterations of outermost loops.
    pub iterations: u64,
    /// Tasks run.
    pub tasks: u64,
    /// Latest values of [`Program::observe`](crate::Program::observe), by stage name.
    pub observed: BTreeMap<String, f64>,
    /// Time from start to end, including loading.
    pub elapsed_ns: Option<u64>,
    /// Duration of each iteration, in order, from one signal of an outermost loop to the next.
    pub iterations_ns: Vec<u64>,
    /// Core time spent in tasks, over all workers.
    pub busy_ns: Option<u64>,
    /// Core time in tasks and number of tasks over the iterations in `iterations_ns`. `None` if more than one worker
    /// finished the job, because each worker only measures itself.
    pub iterating: Option<(u64, u64)>,
    workers: u32,
    /// Iteration of the earlier run's snapshot that the job resumed from; `None` if it started from the beginning.
    pub resumed_at: Option<u64>,
    /// Number of times that the job restarted from a snapshot or from the beginning after losing a worker.
    pub recoveries: u64,
    /// Number of bundles (partitions that are used together) moved from one worker to another.
    pub migrations: u64,
}

impl Outcome {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            program: plan.program,
            names: plan.datasets.iter().map(|spec| spec.name.clone()).collect(),
            outputs: BTreeMap::new(),
            newest: BTreeMap::new(),
            iterations: 0,
            tasks: 0,
            observed: BTreeMap::new(),
            elapsed_ns: None,
            iterations_ns: Vec::new(),
            busy_ns: None,
            iterating: None,
            workers: 0,
            resumed_at: None,
            recoveries: 0,
            migrations: 0,
        }
    }

    /// Stores a partition of a result. Returns false if it was already stored.
    pub(crate) fn put(&mut self, dataset: u32, partition: u32, content: Chunk) -> bool {
        self.outputs.insert((dataset, partition), content).is_none()
    }

    /// Adds a worker's final report.
    pub(crate) fn add(&mut self, plan: &Plan, report: &Report) {
        if report.iteration != u64::MAX {
            self.iterations = self.iterations.max(report.iteration);
        }
        self.tasks = self.tasks.wrapping_add(report.tasks);
        *self.busy_ns.get_or_insert(0) += report.busy_ns;
        self.workers += 1;
        self.iterating = (self.workers == 1).then_some((report.iterating.busy_ns, report.iterating.tasks));
        self.iterations_ns
            .extend(report.iterations_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])));
        for (&statement, &(epoch, value)) in &report.observed {
            let newest = self.newest.entry(statement).or_insert((epoch, value));
            if newest.0 <= epoch {
                *newest = (epoch, value);
                self.observed.insert(plan.statements[statement as usize].name.clone(), f64::from_bits(value));
            }
        }
    }

    /// Returns the latest observed values over the workers' reports.
    pub(crate) fn observed<'a>(
        plan: &Plan,
        reports: impl Iterator<Item = &'a Report>,
    ) -> BTreeMap<String, f64> {
        let mut outcome = Self::new(plan);
        reports.for_each(|report| outcome.add(plan, report));
        outcome.observed
    }

    /// Returns all partitions of a dataset that the program marked as output, in order.
    ///
    /// # Errors
    /// If the dataset was not marked as output or belongs to another program.
    pub fn partitions<T: Data + Clone>(&self, dataset: Dataset<T>) -> Result<Vec<T>, JobError> {
        Ok(self.shared(dataset)?.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// Like [`Outcome::partitions`], but without copying.
    ///
    /// # Errors
    /// As [`Outcome::partitions`].
    pub fn shared<T: Data>(&self, dataset: Dataset<T>) -> Result<Vec<Arc<T>>, JobError> {
        (0..dataset.partitions).map(|partition| self.partition(dataset, partition)).collect()
    }

    /// Returns the partition of a dataset that has exactly one.
    ///
    /// # Errors
    /// As [`Outcome::partitions`].
    pub fn single<T: Data + Clone>(&self, dataset: Dataset<T>) -> Result<T, JobError> {
        self.partition(dataset, 0).map(Arc::unwrap_or_clone)
    }

    fn partition<T: Data>(&self, dataset: Dataset<T>, partition: u32) -> Result<Arc<T>, JobError> {
        let name = self.names.get(dataset.index as usize).cloned().unwrap_or_default();
        let wrong = |cause: String| JobError::Result { dataset: name, cause };
        let found = self.outputs.get(&(dataset.index, partition)).filter(|_| dataset.program == self.program);
        let Some(content) = found else {
            return Err(wrong("it is not an output of this program; mark it with Program::output".into()));
        };
        match content.clone().take::<T>() {
            Ok(Ok(value)) => Ok(Arc::new(value)),
            Ok(Err(shared)) => Ok(shared),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}

/// Runs a plan in this process until it ends.
///
/// # Errors
/// If the job fails; a kernel's failure names its stage and partition.
pub fn run(plan: Arc<Plan>, options: RunOptions) -> Result<Outcome, JobError> {
    crate::drive::local::run(plan, options)
}
