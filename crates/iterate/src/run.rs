//! Running a plan: options, progress, and what comes out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pellucid_trace::Recorder;
use url::Url;

use crate::data::{Chunk, Data};
use crate::error::JobError;
use crate::kernels::bandwidth::Bandwidth;
use crate::message::Report;
use crate::plan::Plan;
use crate::views::Dataset;

/// How a job is run. `RunOptions::default()` is one worker thread a core, in this process.
pub struct RunOptions {
    /// Worker threads in this process.
    pub threads: usize,
    /// Where and how often snapshots are taken; `None`: never, and a lost job starts again.
    pub snapshots: Option<Snapshots>,
    /// Records stages and exchanges exactly and tasks by samples.
    pub recorder: Option<Recorder>,
    /// How fast memory is read, by numbers of threads: for the recorder.
    pub memory: Vec<Bandwidth>,
    /// Called a few times a second, on the thread that called [`run`].
    #[allow(clippy::type_complexity)]
    pub progress: Option<Box<dyn FnMut(&Progress) + Send>>,
    /// Pause, resume and cancel from elsewhere.
    pub control: Option<crate::JobControl>,
    /// How long a wait for something that should happen may take.
    pub wait_limit: Duration,
}

/// Snapshots of a job.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// A folder (`file://`) or a prefix in an object store (`s3://`).
    pub place: Url,
    /// One every so many iterations of outermost loops.
    pub every_iterations: u32,
}

/// How far a job is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Iterations of outermost loops that all workers have begun.
    pub iteration: u64,
    /// Newest numbers of [`Program::observe`](crate::Program::observe), by stage name.
    pub observed: BTreeMap<String, f64>,
    /// Tasks that ran so far.
    pub tasks: u64,
    /// Mean over maximum of the workers' core time since the last report: 1 is even.
    pub balance: Option<f64>,
    /// Workers that take part.
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

/// A job that ended well.
#[derive(Debug)]
pub struct Outcome {
    program: u32,
    names: Vec<String>,
    outputs: BTreeMap<(u32, u32), Chunk>,
    /// By statement: the epoch of what `observed` has.
    newest: BTreeMap<u32, (u64, u64)>,
    /// Iterations of outermost loops.
    pub iterations: u64,
    /// Tasks that ran.
    pub tasks: u64,
    /// Newest numbers of [`Program::observe`](crate::Program::observe), by stage name.
    pub observed: BTreeMap<String, f64>,
    /// From start to end, loading included.
    pub elapsed_ns: Option<u64>,
    /// What iterations took, in order: from one signal of an outermost loop to the next.
    pub iterations_ns: Vec<u64>,
    /// Core time in tasks, over all workers.
    pub busy_ns: Option<u64>,
    /// Core time in tasks, and their number, over the iterations that `iterations_ns` has; `None` where more than one
    /// worker ended the job: each knows its own only.
    pub iterating: Option<(u64, u64)>,
    workers: u32,
    /// The iteration of an earlier run's snapshot that the job went on from; `None`: it began at its start.
    pub resumed_at: Option<u64>,
    /// How often the job went on from a snapshot, or from its start, since a worker was lost.
    pub recoveries: u64,
    /// How many times partitions used together moved from one worker to another.
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

    /// Takes in a partition of a result; whether it is new.
    pub(crate) fn put(&mut self, dataset: u32, partition: u32, content: Chunk) -> bool {
        self.outputs.insert((dataset, partition), content).is_none()
    }

    /// Takes in a worker's last report.
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

    /// The newest numbers that workers reported.
    pub(crate) fn observed<'a>(
        plan: &Plan,
        reports: impl Iterator<Item = &'a Report>,
    ) -> BTreeMap<String, f64> {
        let mut outcome = Self::new(plan);
        reports.for_each(|report| outcome.add(plan, report));
        outcome.observed
    }

    /// All partitions of a dataset that the program marked as output, in order.
    ///
    /// # Errors
    /// A dataset that was not marked, or is of another program.
    pub fn partitions<T: Data + Clone>(&self, dataset: Dataset<T>) -> Result<Vec<T>, JobError> {
        Ok(self.shared(dataset)?.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// As [`Outcome::partitions`], without a copy.
    ///
    /// # Errors
    /// As [`Outcome::partitions`].
    pub fn shared<T: Data>(&self, dataset: Dataset<T>) -> Result<Vec<Arc<T>>, JobError> {
        (0..dataset.partitions).map(|partition| self.partition(dataset, partition)).collect()
    }

    /// The one partition of a dataset of one.
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
            return Err(wrong("it is no output of this program; name it in Program::output".into()));
        };
        match content.clone().take::<T>() {
            Ok(Ok(value)) => Ok(Arc::new(value)),
            Ok(Err(shared)) => Ok(shared),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}

/// Runs a plan in this process to its end.
///
/// # Errors
/// What failed, with stage and partition where it was a kernel.
pub fn run(plan: Arc<Plan>, options: RunOptions) -> Result<Outcome, JobError> {
    crate::local::run(plan, options)
}
