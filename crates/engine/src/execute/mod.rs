//! Runs a cut plan: each stage when its inputs are complete, each multitask when it is admitted.
//!
//! The read monotasks of a multitask ([`multitask`]) load all bytes that it needs. Its compute monotask decodes them,
//! runs the stage's operators and partitions the output, which stays in an exchange, is spilled or goes to
//! [`Outputs`]. The last multitask of a stage fills the filters and starts the stages that wait for it.
//! This module has no threads: everything runs in monotasks, or on the thread that ended the last one.

mod clock;
pub(crate) mod compact;
mod divided_join;
pub(crate) mod exchange;
pub(crate) mod expressions;
mod finer;
pub(crate) mod memory;
mod multitask;
pub(crate) mod output;
pub(crate) mod sink;
pub(crate) mod spill;
pub(crate) mod stage;
pub(crate) mod timing;
mod waiting;
mod work;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryLimit;
use pellucid_runtime::{Error, Job, Runtime};
use pellucid_trace::StageIx;

use crate::execute::compact::Compact;
use crate::execute::exchange::Exchange;
use crate::execute::memory::ledger::{JobLedger, Ledger};
use crate::execute::memory::shares::Shares;
use crate::execute::memory::usage::Usage;
use crate::execute::multitask::StageTask;
use crate::execute::output::Outputs;
use crate::execute::spill::{Folders, Spill};
use crate::execute::stage::{Builder, ReadyStage};
use crate::plan::cut::{DividedJoin, Output, StagePlan};
use crate::plan::estimates::row_bytes;
use crate::plan::explain::{self, Description};
use crate::plan::operators::Operators;
use crate::plan::partitions::Partitions;
use crate::scan::Source;
use crate::scan::column_work::share;
use crate::scan::dynamic_filter;
use crate::scan::parquet::Metadata;
use crate::stores::JobIo;
use crate::sync::lock;

/// Maximum number of partitions because the output of a stage with inputs may be large.
const MAX_PLANNED_PARTS: u64 = 64;

/// Opens a file of a scan as a source.
pub(crate) type OpenFn = Box<dyn Fn(&FileScanConfig, &PartitionedFile) -> Result<Source> + Send + Sync>;

/// The running plan of one job.
pub(crate) struct Execution {
    params: ExecutionParams,
    ledger: Arc<JobLedger>,
    stages: Vec<StageState>,
    /// The operators of each stage, as planned.
    operators: Vec<Arc<Operators>>,
    partitions: Partitions,
    shares: Shares,
    spill: Option<Arc<Spill>>,
    result: Mutex<Vec<RecordBatch>>,
}

#[derive(Default)]
struct StageState {
    /// Number of stages that this one still waits for.
    waits_for: AtomicUsize,
    /// Stages that must end before this one starts.
    after: Mutex<Vec<usize>>,
    /// Stages that wait for this one.
    users: Mutex<Vec<usize>>,
    exchange: Mutex<Option<Arc<Exchange>>>,
    ix: OnceLock<StageIx>,
}

/// The parameters of an [`Execution`].
pub(crate) struct ExecutionParams {
    pub runtime: Runtime,
    pub job: Job,
    pub usage: Arc<Usage>,
    pub plan: StagePlan,
    pub context: Arc<TaskContext>,
    pub metadata: Metadata,
    pub io: Arc<JobIo>,
    pub outputs: Arc<Outputs>,
    pub open: OpenFn,
    pub min_partitions: usize,
    /// Folders for what does not fit into memory.
    pub folders: Arc<Folders>,
    /// Number of an operator and the factor on its core time.
    pub slow_operator: Option<(u32, f64)>,
    /// Receives the rows of a query whose end does not end the job.
    pub ended: Option<SyncSender<Vec<RecordBatch>>>,
}

impl Execution {
    pub(crate) fn new(params: ExecutionParams) -> Arc<Self> {
        let mut stages: Vec<StageState> = Vec::new();
        stages.resize_with(params.plan.stage_count(), StageState::default);
        for (i, stage) in params.plan.stages.iter().enumerate() {
            stages[i].waits_for = AtomicUsize::new(stage.after.len());
            *lock(&stages[i].after) = stage.after.clone();
            for &before in &stage.after {
                lock(&stages[before].users).push(i);
            }
        }
        let budget = match params.context.memory_pool().memory_limit() {
            MemoryLimit::Finite(bytes) => Some(bytes as u64),
            _ => None,
        };
        let shares = Shares::of(budget.unwrap_or(u64::MAX), params.runtime.cores().concurrency());
        let (runtime, usage) = (params.runtime.clone(), Arc::clone(&params.usage));
        let folders = Arc::clone(&params.folders);
        let spill = budget.map(|_| Arc::new(Spill { runtime, folders, shares, usage }));
        let (job, usage) = (params.job.clone(), Arc::clone(&params.usage));
        let ledger = Arc::new(JobLedger::new(job, usage, shares.exchanges, &params.context));
        let operators: Vec<Arc<Operators>> =
            Operators::of_stages(&params.plan).into_iter().map(Arc::new).collect();
        let partitions = Partitions::of(&params.plan);
        let result = Mutex::default();
        Arc::new(Self { params, ledger, stages, operators, partitions, shares, spill, result })
    }

    /// Starts the stages that do not wait for others.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        if let Some((number, _)) = self.params.slow_operator
            && self.operators.iter().all(|stage| stage.position(number).is_none())
        {
            let message = format!(
                "cannot slow operator {number}: the plan has no such operator; use a number of `pellucid analyze --json`"
            );
            return Err(DataFusionError::Configuration(message));
        }
        for index in 0..self.params.plan.stages.len() {
            if self.params.plan.stages[index].after.is_empty() {
                self.start_stage(index)?;
            }
        }
        Ok(())
    }

    /// Takes the batches of the result; call it after the job has succeeded.
    pub(crate) fn result(&self) -> Vec<RecordBatch> {
        std::mem::take(&mut lock(&self.result))
    }

    /// Returns each stage's index in the trace, which follows the order of starts; `None` if it did not
    /// start.
    pub(crate) fn trace_indices(&self) -> Vec<Option<StageIx>> {
        self.stages.iter().map(|stage| stage.ix.get().copied()).collect()
    }

    /// Describes every stage, with its multitasks as they are before filters of build sides apply.
    ///
    /// # Errors
    /// Returns an error if a file cannot be opened, or DataFusion cannot rebuild the plan.
    pub(crate) fn describe(&self) -> Result<Vec<Description>> {
        let plan = &self.params.plan;
        let planned: Vec<Mutex<Option<Arc<Exchange>>>> =
            self.stages.iter().map(|_| Mutex::default()).collect();
        let exchanges = |stage: usize| lock(&planned[stage]).clone();
        let describe = |index: usize| {
            let partitions = self.partitions.count(index, |same| self.partitions_for(same, None));
            let ready = self.ready(index, &self.operators[index], partitions, &exchanges)?;
            *lock(&planned[index]) = Some(Arc::clone(&ready.exchange));
            Ok(explain::stage(plan, index, &ready))
        };
        (0..plan.stages.len()).map(describe).collect()
    }

    /// Prepares stage `index`, which reads `exchanges` of other stages.
    fn ready(
        &self,
        index: usize,
        operators: &Arc<Operators>,
        partitions: usize,
        exchanges: &dyn Fn(usize) -> Option<Arc<Exchange>>,
    ) -> Result<ReadyStage> {
        let ledger: Arc<dyn Ledger> = Arc::clone(&self.ledger) as _;
        let builder = Builder {
            plan: &self.params.plan,
            operators,
            metadata: &self.params.metadata,
            io: &self.params.io,
            ledger: &ledger,
            // A plan that is only described has no index, and holds nothing.
            ix: self.stages[index].ix.get().copied().unwrap_or_default(),
            exchanges,
            open: &self.params.open,
            min_partitions: self.params.min_partitions,
            partitions,
            spill: self.spill.as_ref(),
            shares: self.shares,
        };
        builder.ready(index)
    }

    /// Returns the number of partitions for the outputs of `stages`, of which one `starts`.
    fn partitions_for(&self, stages: &[usize], starts: Option<usize>) -> usize {
        let plan = &self.params.plan;
        let count = |&index: &usize| {
            let Output::Divide(planned) = &plan.stage(index).output else { return 1 };
            let read = starts.filter(|starts| *starts == index).and_then(|_| self.read_share(index));
            let (part, whole) = read.unwrap_or((1, 1));
            // A probe side is divided only if the tables do not fit, and then as the build side was.
            let is_probe = index >= plan.stages.len();
            let bytes = if is_probe { 0 } else { share(self.planned_bytes(index), part, whole) };
            let parts =
                if bytes > self.shares.exchanges { finer::parts(bytes, self.shares.partition) } else { 1 };
            // To divide partitions again, once their sizes are known, costs more than too many of them. But the output of a
            // join is often planned for much too large.
            let parts = if plan.stage(index).after.is_empty() { parts } else { parts.min(MAX_PLANNED_PARTS) };
            planned.partition_count().max(parts as usize)
        };
        stages.iter().map(count).max().unwrap_or(1)
    }

    fn planned_bytes(&self, stage: usize) -> u64 {
        let bytes = row_bytes(&self.params.plan.stage(stage).root.schema()) as u64;
        self.operators[stage].planned_rows().saturating_mul(bytes)
    }

    /// Returns the bytes that a stage reads of exchanges, which are complete, and those that were planned; `None` if it
    /// reads files as well.
    fn read_share(&self, index: usize) -> Option<(u64, u64)> {
        let plan = &self.params.plan;
        let (mut bytes, mut planned, mut reads_files) = (0, 0_u64, false);
        plan.visit(index, &mut |node| {
            match plan.cut(node, index) {
                Some(stage) => {
                    bytes += self.exchange(stage).map_or(0, |exchange| exchange.all_bytes());
                    planned = planned.saturating_add(self.planned_bytes(stage));
                }
                None => reads_files |= node.children().is_empty(),
            }
            true
        });
        (!reads_files && planned > 0).then_some((bytes, planned))
    }

    /// Returns the stage that must divide the probe side of a join of stage `index` first, if the tables of its joins do
    /// not fit into memory together: that of the largest build side.
    fn probe_to_divide(&self, index: usize) -> Option<usize> {
        let plan = &self.params.plan;
        let mut joins = Vec::new();
        plan.visit(index, &mut |node| {
            joins.extend(plan.divided(node, index).filter(|(_, paired)| !paired));
            true
        });
        let bytes = |stage| self.exchange(stage).map_or(0, |exchange| exchange.all_bytes());
        let size = |(join, _): (DividedJoin, bool)| (bytes(join.build), join.probe);
        let sizes: Vec<(u64, usize)> = joins.into_iter().map(size).collect();
        let all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        let largest = sizes.into_iter().max();
        largest.filter(|_| all > self.shares.tables).map(|(_, probe)| probe)
    }

    fn exchange(&self, stage: usize) -> Option<Arc<Exchange>> {
        lock(&self.stages[stage].exchange).clone()
    }

    fn start_stage(self: &Arc<Self>, index: usize) -> Result<()> {
        let state = &self.stages[index];
        if let Some(probe) = self.probe_to_divide(index) {
            self.params.plan.divide_probe(probe);
            *lock(&self.stages[probe].after) = lock(&state.after).clone();
            lock(&self.stages[probe].users).push(index);
            lock(&state.after).push(probe);
            state.waits_for.store(1, Ordering::Release);
            return self.start_stage(probe);
        }
        let before = lock(&state.after).clone();
        let after: Vec<StageIx> = before.iter().filter_map(|&s| self.stages[s].ix.get().copied()).collect();
        let names = explain::names(&self.params.plan, index);
        let ix = self.params.job.stage(&names.name, &after, names.not_split);
        // A stage starts once, so its index is not set yet.
        let _ = self.stages[index].ix.set(ix);
        if index + 1 == self.params.plan.stages.len() && self.params.ended.is_none() {
            self.params.outputs.writer(self.params.job.clone(), ix);
        }
        let reads_probe = before.iter().any(|stage| *stage >= self.params.plan.stages.len());
        let operators = match &self.operators[index] {
            planned if reads_probe => &Arc::new(planned.again(&self.params.plan, index)),
            planned => planned,
        };
        let partitions = self.partitions.count(index, |same| self.partitions_for(same, Some(index)));
        let ready = Arc::new(self.ready(index, operators, partitions, &|stage| self.exchange(stage))?);
        // The ready plan holds its input exchanges. Batches are freed as they are taken, and an
        // exchange with its last reader.
        for before in before {
            self.release_exchange(before);
        }
        *lock(&self.stages[index].exchange) = Some(Arc::clone(&ready.exchange));
        self.submit(index, &ready, ready.reads.len());
        Ok(())
    }

    /// Submits the multitasks of a stage that start when `left` have not ended.
    fn submit(self: &Arc<Self>, stage: usize, ready: &Arc<ReadyStage>, left: usize) {
        let Some(&ix) = self.stages[stage].ix.get() else { return };
        let multitasks = ready.next(left).into_iter().map(|partition| (partition, ready.memory(partition)));
        let multitasks: Vec<(usize, u64)> = multitasks.collect();
        let mut memory: Vec<u64> = multitasks.iter().map(|(_, bytes)| *bytes).collect();
        memory.sort_unstable();
        // A few that are larger than most may run by themselves.
        if let Some(median) = memory.get(memory.len() / 2) {
            self.ledger.limit(self.shares.exchanges_beside(*median));
        }
        for (partition, bytes) in multitasks {
            let task = StageTask { execution: Arc::clone(self), stage, partition, ready: Arc::clone(ready) };
            self.params.job.submit(ix, partition as u32, bytes, Box::new(task));
        }
    }

    /// Drops the reference to a stage's exchange once all its readers hold one.
    fn release_exchange(&self, stage: usize) {
        let started = |user: &usize| self.stages[*user].ix.get().is_some();
        if lock(&self.stages[stage].users).iter().all(started) {
            lock(&self.stages[stage].exchange).take();
        }
    }

    /// Completes a stage's output after its last compute monotask: sorts the exchange, and fills
    /// subquery results and filters.
    fn complete_output(&self, index: usize, ready: &ReadyStage) -> Result<()> {
        ready.exchange.seal();
        let stage = self.params.plan.stage(index);
        if let Output::Scalar(results, at) = &stage.output {
            let batches = ready.exchange.drain()?;
            if batches.iter().map(RecordBatch::num_rows).sum::<usize>() > 1 {
                let message = "a scalar subquery returned more than one row; add LIMIT 1, or compare with IN";
                return Err(DataFusionError::Execution(message.to_string()));
            }
            let value = match batches.iter().find(|b| b.num_rows() > 0) {
                Some(batch) => ScalarValue::try_from_array(batch.column(0), 0)?,
                None => ScalarValue::try_from(stage.root.schema().field(0).data_type())?,
            };
            results.set(*at, value)?;
        }
        if stage.fills.is_empty() {
            return Ok(());
        }
        // A filter of some of the keys would drop rows.
        let Some((columns, keys)) = ready.exchange.keys()? else { return Ok(()) };
        let keys = keys.iter().map(Compact::batch).collect::<Result<Vec<_>, _>>()?;
        stage.fills.iter().try_for_each(|filter| dynamic_filter::fill(filter, columns, &keys))
    }

    fn end_stage(self: &Arc<Self>, index: usize, ready: &ReadyStage) -> Result<(), Error> {
        if let Some(&ix) = self.stages[index].ix.get() {
            let operators = &ready.operators;
            let ix_of = |stage: usize| self.stages[stage].ix.get().copied();
            ready.work.record(self.params.job.recorder(), operators, ix, &ix_of);
        }
        if index + 1 == self.params.plan.stages.len() {
            let execution = Arc::clone(self);
            let batches = ready.exchange.drain()?;
            if let Some(ended) = &self.params.ended {
                if let Some(&ix) = self.stages[index].ix.get() {
                    self.params.job.end_stage(ix);
                }
                // The receiver is gone if the job has ended.
                let _ = ended.send(batches);
                return Ok(());
            }
            return self.params.outputs.publish(Box::new(move || {
                execution.end_job(index, batches);
                Ok(())
            }));
        }
        if let Some(&ix) = self.stages[index].ix.get() {
            self.params.job.end_stage(ix);
        }
        let users = lock(&self.stages[index].users).clone();
        for user in users {
            if self.stages[user].waits_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.start_stage(user)?;
            }
        }
        Ok(())
    }

    fn end_job(&self, index: usize, batches: Vec<RecordBatch>) {
        self.params.job.set_rows(batches.iter().map(|b| b.num_rows() as u64).sum());
        *lock(&self.result) = batches;
        if let Some(&ix) = self.stages[index].ix.get() {
            self.params.job.end_stage(ix);
        }
        self.params.job.succeed();
    }
}
