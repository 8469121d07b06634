//! Progress and results of a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dataflow::data::{Chunk, Data};
use crate::dataflow::index::{DatasetIx, StatementIx, Table};
use crate::dataflow::plan::Plan;
use crate::dataflow::views::Dataset;
use crate::error::JobError;

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

/// The results and statistics of a successful job.
#[derive(Debug)]
pub struct Outcome {
    program: u32,
    names: Table<DatasetIx, String>,
    outputs: BTreeMap<(DatasetIx, u32), Chunk>,
    /// By statement: the epoch and the bits of the value in `observed`.
    pub(crate) newest: BTreeMap<StatementIx, (u64, u64)>,
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
    /// Number of workers that finished the job.
    pub(crate) workers: u32,
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
    pub(crate) fn put(&mut self, dataset: DatasetIx, partition: u32, content: Chunk) -> bool {
        self.outputs.insert((dataset, partition), content).is_none()
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
        let name = self.names.get(dataset.index).cloned().unwrap_or_default();
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
