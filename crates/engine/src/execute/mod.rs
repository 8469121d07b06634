//! Runs a cut plan: each stage when its inputs are complete, each multitask when it is admitted.
//!
//! The read monotasks of a multitask load all bytes that it needs. Its compute monotask decodes them,
//! runs the stage's operators and partitions the output, which stays in an exchange or goes to
//! [`Outputs`]. The last multitask of a stage fills the filters and starts the stages that wait for it.
//! This module has no threads: everything runs in monotasks, or on the thread that ended the last one.

mod clock;
mod divided_join;
pub(crate) mod exchange;
pub(crate) mod expressions;
pub(crate) mod output;
pub(crate) mod sink;
pub(crate) mod stage;
pub(crate) mod timing;
mod work;

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::ExecutionPlanProperties;
use futures::StreamExt;
use pellucid_runtime::{Context, Done, Error, Job, Monotask, Multitask, Phase, Runtime};
use pellucid_trace::{Part, StageIx};

use crate::execute::exchange::{Exchange, Ledger, stopped};
use crate::execute::output::Outputs;
use crate::execute::sink::Sink;
use crate::execute::stage::{Builder, ReadyStage};
use crate::execute::timing::{DecoderPanic, Slowed, timed};
use crate::plan::cut::{Output, StagePlan};
use crate::plan::explain::{self, Description};
use crate::plan::operators::Operators;
use crate::scan::dynamic_filter;
use crate::scan::parquet::Metadata;
use crate::scan::{Need, Source, damaged};
use crate::stores::JobIo;

/// Changes of exchange memory accumulate up to this size before the scheduler is updated.
const LEDGER_STEP_BYTES: i64 = 4 << 20;

/// Accounts for the memory of a job's exchanges, in DataFusion's memory pool and in the scheduler's
/// admission.
pub(crate) struct JobLedger {
    job: Job,
    reservation: MemoryReservation,
    /// Change that is not yet reported to the scheduler.
    unreported: AtomicI64,
}

impl JobLedger {
    pub(crate) fn new(job: Job, context: &TaskContext) -> Self {
        let reservation = MemoryConsumer::new("exchange").register(context.memory_pool());
        Self { job, reservation, unreported: AtomicI64::new(0) }
    }

    fn change(&self, bytes: i64) {
        let unreported = self.unreported.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unreported.abs() < LEDGER_STEP_BYTES {
            return;
        }
        match self.unreported.swap(0, Ordering::Relaxed) {
            held if held > 0 => self.job.hold(held.unsigned_abs()),
            freed => self.job.release(freed.unsigned_abs()),
        }
    }
}

impl Ledger for JobLedger {
    fn hold(&self, bytes: u64) -> Result<()> {
        self.reservation.try_grow(bytes as usize)?;
        self.change(bytes as i64);
        Ok(())
    }

    fn release(&self, bytes: u64) {
        self.reservation.shrink(bytes as usize);
        self.change(-(bytes as i64));
    }

    fn is_stopped(&self) -> bool {
        self.job.is_cancelled()
    }
}

/// Opens a file of a scan as a source.
pub(crate) type OpenFn = Box<dyn Fn(&FileScanConfig, &PartitionedFile) -> Result<Source> + Send + Sync>;

/// The running plan of one job.
pub(crate) struct Execution {
    params: ExecutionParams,
    ledger: Arc<dyn Ledger>,
    stages: Vec<StageState>,
    /// The operators of each stage.
    operators: Vec<Operators>,
    result: Mutex<Vec<RecordBatch>>,
}

#[derive(Default)]
struct StageState {
    /// Number of stages that this one still waits for.
    waits_for: AtomicUsize,
    /// Stages that wait for this one.
    users: Vec<usize>,
    exchange: Mutex<Option<Arc<Exchange>>>,
    ix: OnceLock<StageIx>,
}

/// The parameters of an [`Execution`].
pub(crate) struct ExecutionParams {
    pub runtime: Runtime,
    pub job: Job,
    pub plan: StagePlan,
    pub context: Arc<TaskContext>,
    pub metadata: Metadata,
    pub io: Arc<JobIo>,
    pub outputs: Arc<Outputs>,
    pub open: OpenFn,
    pub min_partitions: usize,
    /// Number of an operator and the factor on its core time.
    pub slow_operator: Option<(u32, f64)>,
    /// Receives the rows of a query whose end does not end the job.
    pub ended: Option<SyncSender<Vec<RecordBatch>>>,
}

impl Execution {
    pub(crate) fn new(params: ExecutionParams) -> Arc<Self> {
        let mut stages: Vec<StageState> = params.plan.stages.iter().map(|_| StageState::default()).collect();
        for (i, stage) in params.plan.stages.iter().enumerate() {
            stages[i].waits_for = AtomicUsize::new(stage.after.len());
            for &before in &stage.after {
                stages[before].users.push(i);
            }
        }
        let ledger = Arc::new(JobLedger::new(params.job.clone(), &params.context));
        let operators = Operators::of_stages(&params.plan);
        Arc::new(Self { params, ledger, stages, operators, result: Mutex::default() })
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
        std::mem::take(&mut self.result.lock().unwrap_or_else(PoisonError::into_inner))
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
            plan.stages.iter().map(|_| Mutex::default()).collect();
        let exchanges = |stage: usize| planned[stage].lock().unwrap_or_else(PoisonError::into_inner).clone();
        let describe = |index: usize| {
            let ready = self.ready(index, &exchanges)?;
            *planned[index].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Arc::clone(&ready.exchange));
            Ok(explain::stage(plan, index, &ready))
        };
        (0..plan.stages.len()).map(describe).collect()
    }

    /// Prepares stage `index`, which reads `exchanges` of other stages.
    fn ready(&self, index: usize, exchanges: &dyn Fn(usize) -> Option<Arc<Exchange>>) -> Result<ReadyStage> {
        let builder = Builder {
            plan: &self.params.plan,
            operators: &self.operators,
            metadata: &self.params.metadata,
            io: &self.params.io,
            ledger: &self.ledger,
            exchanges,
            open: &self.params.open,
            min_partitions: self.params.min_partitions,
        };
        builder.ready(index)
    }

    fn exchange(&self, stage: usize) -> Option<Arc<Exchange>> {
        self.stages[stage].exchange.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start_stage(self: &Arc<Self>, index: usize) -> Result<()> {
        let planned = &self.params.plan.stages[index];
        let after: Vec<StageIx> =
            planned.after.iter().filter_map(|&s| self.stages[s].ix.get().copied()).collect();
        let names = explain::names(&self.params.plan, index);
        let ix = self.params.job.stage(&names.name, &after, names.not_split);
        // A stage starts once, so its index is not set yet.
        let _ = self.stages[index].ix.set(ix);
        if index + 1 == self.params.plan.stages.len() && self.params.ended.is_none() {
            self.params.outputs.writer(self.params.job.clone(), ix);
        }
        let ready = Arc::new(self.ready(index, &|stage| self.exchange(stage))?);
        // The ready plan holds its input exchanges. Batches are freed as they are taken, and an
        // exchange with its last reader.
        for &before in &planned.after {
            self.release_exchange(before);
        }
        *self.stages[index].exchange.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::clone(&ready.exchange));
        let mut partitions = spread(&ready);
        partitions.retain(|partition| !ready.last.contains(partition));
        // Without others, the first of the last ones does not wait for any.
        let first = if partitions.is_empty() { ready.last.first() } else { None };
        for &partition in partitions.iter().chain(first) {
            self.submit(index, partition, &ready);
        }
        Ok(())
    }

    fn submit(self: &Arc<Self>, stage: usize, partition: usize, ready: &Arc<ReadyStage>) {
        let Some(&ix) = self.stages[stage].ix.get() else { return };
        let task = StageTask { execution: Arc::clone(self), stage, partition, ready: Arc::clone(ready) };
        self.params.job.submit(ix, partition as u32, ready.memory[partition], Box::new(task));
    }

    /// Drops the reference to a stage's exchange once all its readers hold one.
    fn release_exchange(&self, stage: usize) {
        let started = |user: &usize| self.stages[*user].ix.get().is_some();
        if self.stages[stage].users.iter().all(started) {
            self.stages[stage].exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Completes a stage's output after its last compute monotask: sorts the exchange, and fills
    /// subquery results and filters.
    fn complete_output(&self, index: usize, ready: &ReadyStage) -> Result<()> {
        ready.exchange.seal();
        let stage = &self.params.plan.stages[index];
        if let Output::Scalar(results, at) = &stage.output {
            let batches = ready.exchange.drain();
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
        if !stage.fills.is_empty() {
            let all: Vec<RecordBatch> =
                (0..ready.exchange.partitions()).flat_map(|p| ready.exchange.peek(p)).collect();
            for filter in &stage.fills {
                dynamic_filter::fill(filter, &all)?;
            }
        }
        Ok(())
    }

    fn end_stage(self: &Arc<Self>, index: usize, ready: &ReadyStage) -> Result<(), Error> {
        if let Some(&ix) = self.stages[index].ix.get() {
            let operators = &self.operators[index];
            let ix_of = |stage: usize| self.stages[stage].ix.get().copied();
            ready.work.record(self.params.job.recorder(), operators, ix, &ix_of);
        }
        if index + 1 == self.params.plan.stages.len() {
            let execution = Arc::clone(self);
            let batches = ready.exchange.drain();
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
        for &user in &self.stages[index].users {
            if self.stages[user].waits_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.start_stage(user)?;
            }
        }
        Ok(())
    }

    fn end_job(&self, index: usize, batches: Vec<RecordBatch>) {
        self.params.job.set_rows(batches.iter().map(|b| b.num_rows() as u64).sum());
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = batches;
        if let Some(&ix) = self.stages[index].ix.get() {
            self.params.job.end_stage(ix);
        }
        self.params.job.succeed();
    }
}

/// Returns true for an error of an expression's value (`types`), which is not the file's fault.
fn of_value(message: &str) -> bool {
    ["cannot cast ", "cannot compute ", "cannot add up "].iter().any(|start| message.starts_with(start))
}

/// Returns the partitions in the order of submission, which alternates between the disks that they
/// read first, so that all disks are busy from the start.
fn spread(ready: &ReadyStage) -> Vec<usize> {
    let disk = |partition: usize| {
        let (scan, task) = ready.reads.get(partition)?.first()?;
        match &scan.sources[scan.tasks[*task].needs.first()?.source] {
            Source::Local(file) => Some(file.disk().name().to_string()),
            Source::Remote { .. } => None,
        }
    };
    let mut turns: std::collections::BTreeMap<Option<String>, usize> = Default::default();
    let mut order: Vec<(usize, usize)> = (0..ready.reads.len())
        .map(|partition| {
            let turn = turns.entry(disk(partition)).or_default();
            *turn += 1;
            (*turn, partition)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, partition)| partition).collect()
}

/// A stage's work on one partition.
struct StageTask {
    execution: Arc<Execution>,
    stage: usize,
    partition: usize,
    ready: Arc<ReadyStage>,
}

impl Multitask for StageTask {
    fn plan(&mut self) -> Result<Vec<Monotask>, Error> {
        let mut monotasks = Vec::new();
        let mut cached: Vec<(usize, Vec<Need>)> = Vec::new();
        let mut input_bytes = 0;
        if !self.ready.stop.load(Ordering::Relaxed) {
            for (at, (scan, task)) in self.ready.reads[self.partition].iter().enumerate() {
                let (reads, held) = scan.reads(*task);
                input_bytes += held.iter().map(Need::bytes).sum::<u64>();
                monotasks.extend(reads);
                cached.push((at, held));
            }
        }
        input_bytes += monotasks.iter().map(|m| m.bytes).sum::<u64>();
        let compute = Compute {
            execution: Arc::clone(&self.execution),
            stage: self.stage,
            partition: self.partition,
            ready: Arc::clone(&self.ready),
            cached,
            cached_bytes: 0,
            input_bytes,
            planned: monotasks.len() as u32 + 1,
        };
        let after = (0..monotasks.len() as u32).collect();
        monotasks.push(compute.monotask(after));
        Ok(monotasks)
    }

    fn done(self: Box<Self>) -> Result<(), Error> {
        let left = self.ready.left.fetch_sub(1, Ordering::AcqRel) - 1;
        let last = &self.ready.last;
        if left == 0 {
            self.execution.end_stage(self.stage, &self.ready)?;
        } else if let Some(next) = last.len().checked_sub(left) {
            self.execution.submit(self.stage, last[next], &self.ready);
        }
        Ok(())
    }
}

/// The compute monotask of a multitask.
struct Compute {
    execution: Arc<Execution>,
    stage: usize,
    partition: usize,
    ready: Arc<ReadyStage>,
    /// Ranges that the page cache held when the multitask was planned, by index into its reads.
    cached: Vec<(usize, Vec<Need>)>,
    /// Bytes copied from the page cache so far.
    cached_bytes: u64,
    input_bytes: u64,
    /// Number of monotasks of the multitask so far, including this one.
    planned: u32,
}

thread_local! {
    /// Polls DataFusion's streams, which never wait for I/O. Tasks that an operator spawns run here as
    /// well, on the same core.
    static POLLER: std::io::Result<tokio::runtime::Runtime> =
        tokio::runtime::Builder::new_current_thread().enable_all().build();
}

impl Compute {
    fn monotask(self, after: Vec<u32>) -> Monotask {
        let cores = self.execution.params.runtime.cores();
        let bytes = self.input_bytes;
        Monotask::new(&cores, Phase::Compute, after, bytes, move |context| self.run(context))
    }

    fn run(mut self, context: &Context) -> Result<Done, Error> {
        timing::reset(self.operators().number(0), self.slowed());
        let start_ns = clock::now_ns();
        let evicted = if self.cached.iter().all(|(_, needs)| needs.is_empty()) {
            Vec::new()
        } else {
            timed(self.operators().input, || self.read_cached())?
        };
        if !evicted.is_empty() {
            self.ready.work.add(&timing::take());
            return Ok(self.retry_after(evicted));
        }
        let rows = if self.ready.stop.load(Ordering::Relaxed) {
            0
        } else {
            self.check_files()?;
            self.compute(context).map_err(|e| self.with_files(e))?
        };
        let reads = &self.ready.reads[self.partition];
        if !reads.is_empty() {
            timed(self.operators().input, || reads.iter().for_each(|(scan, task)| scan.clear(*task)));
        }
        if self.ready.computing.fetch_sub(1, Ordering::AcqRel) == 1 {
            timed(self.operators().output, || self.execution.complete_output(self.stage, &self.ready))?;
        }
        let work = timing::take();
        let part = |part: Part| {
            let of_part = work.iter().zip(&self.operators().list).filter(|(_, o)| o.part == part);
            of_part.map(|(work, _)| work.cpu_ns).sum::<u64>()
        };
        let (decode_ns, encode_ns, not_split_ns) =
            (part(Part::Decode), part(Part::Encode), part(Part::NotSplit));
        // Operator time includes operators that were not split, and the monotask's own beginning and end.
        let operator_ns = (clock::now_ns() - start_ns).saturating_sub(decode_ns + encode_ns);
        self.ready.work.add(&work);
        Ok(Done {
            bytes: Some(self.input_bytes),
            cached_bytes: Some(self.cached_bytes),
            decode_ns: Some(decode_ns),
            encode_ns: Some(encode_ns),
            not_split_ns: Some(not_split_ns),
            operator_ns: Some(operator_ns),
            rows: Some(rows),
            ..Done::default()
        })
    }

    fn operators(&self) -> &Operators {
        &self.execution.operators[self.stage]
    }

    /// Returns the operator of this stage to slow, if any.
    fn slowed(&self) -> Option<Slowed> {
        let (number, factor) = self.execution.params.slow_operator?;
        self.operators().position(number).map(|operator| Slowed { operator, factor })
    }

    /// Copies the ranges that the page cache still holds. Returns read monotasks for the evicted ones.
    fn read_cached(&mut self) -> Result<Vec<Monotask>, Error> {
        let mut evicted = Vec::new();
        for (at, needs) in std::mem::take(&mut self.cached) {
            let (scan, task) = &self.ready.reads[self.partition][at];
            let (bytes, missing) = scan.read_cached(*task, &needs)?;
            self.cached_bytes += bytes;
            evicted.extend(missing);
        }
        Ok(evicted)
    }

    /// Ends this monotask with more reads, and the compute monotask again after them.
    fn retry_after(mut self, mut then: Vec<Monotask>) -> Done {
        let reads = self.planned..self.planned + then.len() as u32;
        self.planned = reads.end + 1;
        then.push(self.monotask(reads.collect()));
        Done { bytes: Some(0), cached_bytes: Some(0), then, ..Done::default() }
    }

    /// Checks the files that will be decoded, as far as their decoder does not.
    fn check_files(&self) -> Result<()> {
        let mut checked = self.ready.reads[self.partition].iter().filter(|(scan, _)| scan.is_arrow_ipc);
        checked.try_for_each(|(scan, task)| timed(self.operators().input, || scan.check(*task)))
    }

    /// Adds the files that were being decoded to an error.
    fn with_files(&self, error: DataFusionError) -> Error {
        let doing = match error.find_root() {
            DataFusionError::ArrowError(cause, _) => match cause.as_ref() {
                ArrowError::DivideByZero | ArrowError::ArithmeticOverflow(_) | ArrowError::CastError(_) => {
                    "computing over"
                }
                _ => "decoding",
            },
            DataFusionError::Execution(text) if of_value(text) => "computing over",
            _ => "decoding",
        };
        let mut files: Vec<String> = self.ready.reads[self.partition]
            .iter()
            .flat_map(|(scan, task)| {
                scan.tasks[*task].needs.iter().map(|need| scan.sources[need.source].name())
            })
            .collect();
        files.dedup();
        if let DataFusionError::External(cause) = error.find_root()
            && let Some(panic) = cause.downcast_ref::<DecoderPanic>()
        {
            files.truncate(3);
            return Box::new(damaged(&files.join(" or "), &panic.to_string()));
        }
        // Decoders of text name the file and the line themselves.
        let named = matches!(error.find_root(), DataFusionError::Execution(text) if text.starts_with("cannot read /"));
        let local = files.iter().all(|file| file.starts_with('/'));
        if files.is_empty() || files.len() > 3 || (named && local) {
            return Box::new(error);
        }
        Box::new(error.context(format!("while {doing} {}", files.join(", "))))
    }

    fn compute(&self, context: &Context) -> Result<u64> {
        POLLER.with(|poller| match poller {
            Ok(poller) => poller.block_on(self.stream(context)),
            Err(e) => Err(DataFusionError::Execution(format!("cannot poll streams: {e}"))),
        })
    }

    async fn stream(&self, context: &Context) -> Result<u64> {
        let plan = &self.ready.plan;
        let partitions = if self.ready.whole {
            0..plan.output_partitioning().partition_count()
        } else {
            self.partition..self.partition + 1
        };
        // Operators of a whole stage may wait for each other, so all partitions run concurrently.
        let streams = partitions
            .map(|p| {
                let stream = plan.execute(p, Arc::clone(&self.execution.params.context));
                async move { self.run_partition(p, stream?, context).await }
            })
            .collect::<Vec<_>>();
        let rows = futures::future::try_join_all(streams).await?;
        Ok(rows.into_iter().sum())
    }

    async fn run_partition(
        &self,
        partition: usize,
        mut stream: datafusion::execution::SendableRecordBatchStream,
        context: &Context,
    ) -> Result<u64> {
        let stage = &self.execution.params.plan.stages[self.stage];
        let mut sink = Sink::new(&stage.output, partition, &self.ready, &stream.schema())?;
        let output = self.operators().output;
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            if context.is_cancelled() {
                return Err(stopped());
            }
            let batch = batch?;
            rows += batch.num_rows() as u64;
            if batch.num_rows() > 0 && !timed(output, || sink.push(batch))? {
                break;
            }
        }
        timed(output, || sink.finish())?;
        Ok(rows)
    }
}
