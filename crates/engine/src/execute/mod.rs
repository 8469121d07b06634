//! Runs a cut plan: each stage when its inputs are complete, each multitask when it is admitted.
//!
//! The read monotasks of a multitask load all bytes that it needs. Its compute monotask decodes them,
//! runs the stage's operators and partitions the output, which stays in an exchange, is spilled or goes to
//! [`Outputs`]. The last multitask of a stage fills the filters and starts the stages that wait for it.
//! This module has no threads: everything runs in monotasks, or on the thread that ended the last one.

mod clock;
pub(crate) mod compact;
mod divided_join;
pub(crate) mod exchange;
pub(crate) mod expressions;
mod finer;
pub(crate) mod output;
pub(crate) mod sink;
pub(crate) mod spill;
pub(crate) mod stage;
pub(crate) mod timing;
pub(crate) mod usage;
mod waiting;
mod work;

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlanProperties;
use futures::StreamExt;
use pellucid_runtime::{Done, Error, Job, Monotask, Multitask, Phase, Runtime};
use pellucid_trace::{Part, StageIx};

use crate::execute::compact::Compact;
use crate::execute::exchange::{Exchange, Ledger, lock, stopped};
use crate::execute::output::Outputs;
use crate::execute::sink::{Next, Sink};
use crate::execute::spill::{Folders, Shares, Spill};
use crate::execute::stage::{Builder, ReadyStage};
use crate::execute::timing::{DecoderPanic, Slowed, timed};
use crate::execute::usage::{BUFFERS, EXCHANGE, Usage};
use crate::execute::waiting::{Ran, Work};
use crate::plan::cut::{DividedJoin, Output, PlannedStage, StagePlan};
use crate::plan::estimates::row_bytes;
use crate::plan::explain::{self, Description};
use crate::plan::operators::Operators;
use crate::scan::dynamic_filter;
use crate::scan::parquet::Metadata;
use crate::scan::{Need, Source, damaged};
use crate::stores::JobIo;

/// Maximum number of partitions because the output of a stage with inputs may be large.
const MAX_PLANNED_PARTS: u64 = 64;

/// Changes of exchange memory accumulate up to this size before the scheduler is updated.
const LEDGER_STEP_BYTES: i64 = 4 << 20;

/// Accounts for the memory of a job's exchanges, in DataFusion's memory pool and in the scheduler's
/// admission.
pub(crate) struct JobLedger {
    job: Job,
    reservation: MemoryReservation,
    usage: Arc<Usage>,
    /// Maximum bytes of exchanges that can spill.
    max_bytes: AtomicU64,
    /// Change that is not yet reported to the scheduler.
    unreported: AtomicI64,
}

impl JobLedger {
    pub(crate) fn new(job: Job, usage: Arc<Usage>, max_bytes: u64, context: &TaskContext) -> Self {
        let reservation = MemoryConsumer::new("exchange").register(context.memory_pool());
        Self { job, reservation, usage, max_bytes: AtomicU64::new(max_bytes), unreported: AtomicI64::new(0) }
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
    fn has_room(&self, bytes: u64) -> bool {
        bytes.saturating_add(self.reservation.size() as u64) <= self.max_bytes.load(Ordering::Relaxed)
    }

    fn limit(&self, bytes: u64) {
        self.max_bytes.store(bytes, Ordering::Relaxed);
    }

    fn hold(&self, stage: StageIx, bytes: u64) -> Result<()> {
        self.reservation.try_grow(bytes as usize)?;
        self.usage.grow(stage, EXCHANGE, bytes);
        self.change(bytes as i64);
        Ok(())
    }

    fn release(&self, stage: StageIx, bytes: u64) {
        self.reservation.shrink(bytes as usize);
        self.usage.shrink(stage, EXCHANGE, bytes);
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
    /// The operators of each stage, as planned.
    operators: Vec<Arc<Operators>>,
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
            MemoryLimit::Finite(bytes) => Some(bytes),
            _ => None,
        };
        let shares = Shares::of(budget, params.runtime.cores().concurrency());
        let (runtime, usage) = (params.runtime.clone(), Arc::clone(&params.usage));
        let folders = Arc::clone(&params.folders);
        let spill = budget.map(|_| Arc::new(Spill { runtime, folders, shares, usage }));
        let (job, usage) = (params.job.clone(), Arc::clone(&params.usage));
        let ledger = Arc::new(JobLedger::new(job, usage, shares.exchanges, &params.context));
        let operators: Vec<Arc<Operators>> =
            Operators::of_stages(&params.plan).into_iter().map(Arc::new).collect();
        let mut params = params;
        let parts = |(stage, operators): (&PlannedStage, &Arc<Operators>)| {
            let Output::Divide(_) = &stage.output else { return 1 };
            let bytes = operators.planned_rows().saturating_mul(row_bytes(&stage.root.schema()) as u64);
            let parts = if bytes > shares.exchanges { finer::parts(bytes, shares.partition) } else { 1 };
            // To divide partitions again, once their sizes are known, costs more than too many of them. But the output of a
            // join is often planned for much too large.
            if stage.after.is_empty() { parts } else { parts.min(MAX_PLANNED_PARTS) }
        };
        let parts = params.plan.stages.iter().zip(&operators).map(parts).max().unwrap_or(1);
        params.plan.divide_into(parts as usize);
        Arc::new(Self { params, ledger, stages, operators, shares, spill, result: Mutex::default() })
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
            self.stages.iter().map(|_| Mutex::default()).collect();
        let exchanges = |stage: usize| planned[stage].lock().unwrap_or_else(PoisonError::into_inner).clone();
        let describe = |index: usize| {
            let ready = self.ready(index, &self.operators[index], &exchanges)?;
            *planned[index].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Arc::clone(&ready.exchange));
            Ok(explain::stage(plan, index, &ready))
        };
        (0..plan.stages.len()).map(describe).collect()
    }

    /// Prepares stage `index`, which reads `exchanges` of other stages.
    fn ready(
        &self,
        index: usize,
        operators: &Arc<Operators>,
        exchanges: &dyn Fn(usize) -> Option<Arc<Exchange>>,
    ) -> Result<ReadyStage> {
        let builder = Builder {
            plan: &self.params.plan,
            operators,
            metadata: &self.params.metadata,
            io: &self.params.io,
            ledger: &self.ledger,
            // A plan that is only described has no index, and holds nothing.
            ix: self.stages[index].ix.get().copied().unwrap_or_default(),
            exchanges,
            open: &self.params.open,
            min_partitions: self.params.min_partitions,
            spill: self.spill.as_ref(),
            shares: self.shares,
        };
        builder.ready(index)
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
        self.stages[stage].exchange.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        let ready = Arc::new(self.ready(index, operators, &|stage| self.exchange(stage))?);
        // The ready plan holds its input exchanges. Batches are freed as they are taken, and an
        // exchange with its last reader.
        for before in before {
            self.release_exchange(before);
        }
        *self.stages[index].exchange.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::clone(&ready.exchange));
        self.submit(index, &ready, ready.reads.len());
        Ok(())
    }

    /// Submits the multitasks of a stage that start when `left` have not ended.
    fn submit(self: &Arc<Self>, stage: usize, ready: &Arc<ReadyStage>, left: usize) {
        let Some(&ix) = self.stages[stage].ix.get() else { return };
        let next = ready.next(left);
        let mut memory: Vec<u64> = next.iter().map(|multitask| ready.memory(*multitask)).collect();
        memory.sort_unstable();
        // A few that are larger than most may run by themselves.
        if let Some(median) = memory.get(memory.len() / 2) {
            self.ledger.limit(self.shares.exchanges_beside(*median));
        }
        for partition in next {
            let task = StageTask { execution: Arc::clone(self), stage, partition, ready: Arc::clone(ready) };
            self.params.job.submit(ix, partition as u32, ready.memory(partition), Box::new(task));
        }
    }

    /// Drops the reference to a stage's exchange once all its readers hold one.
    fn release_exchange(&self, stage: usize) {
        let started = |user: &usize| self.stages[*user].ix.get().is_some();
        if lock(&self.stages[stage].users).iter().all(started) {
            self.stages[stage].exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
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
        // A filter of some of the keys would drop rows, and all of them do not fit into memory.
        let Some(batches) = ready.exchange.peek() else { return Ok(()) };
        let batches = batches.iter().map(Compact::batch).collect::<Result<Vec<_>, _>>()?;
        stage.fills.iter().try_for_each(|filter| dynamic_filter::fill(filter, &batches))
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

/// A stage's work on one partition.
struct StageTask {
    execution: Arc<Execution>,
    stage: usize,
    partition: usize,
    ready: Arc<ReadyStage>,
}

impl StageTask {
    /// Returns the stage in the trace; it has started.
    fn ix(&self) -> StageIx {
        self.execution.stages[self.stage].ix.get().copied().unwrap_or_default()
    }
}

impl Multitask for StageTask {
    fn plan(&mut self) -> Result<Vec<Monotask>, Error> {
        let mut monotasks = Vec::new();
        let mut cached: Vec<(usize, Vec<Need>)> = Vec::new();
        let mut input_bytes = 0;
        if !self.ready.limit.is_reached() {
            for (at, (scan, task)) in self.ready.reads[self.partition].iter().enumerate() {
                let (reads, held) = scan.reads(*task);
                input_bytes += held.iter().map(Need::bytes).sum::<u64>();
                monotasks.extend(reads);
                cached.push((at, held));
            }
        }
        input_bytes += monotasks.iter().map(|m| m.bytes).sum::<u64>();
        self.execution.params.usage.grow(self.ix(), BUFFERS, input_bytes);
        let compute = Compute {
            ix: self.ix(),
            execution: Arc::clone(&self.execution),
            stage: self.stage,
            partition: self.partition,
            ready: Arc::clone(&self.ready),
            cached,
            cached_bytes: 0,
            input_bytes,
            planned: monotasks.len() as u32 + 1,
            running: None,
        };
        let after = (0..monotasks.len() as u32).collect();
        monotasks.push(compute.monotask(after));
        Ok(monotasks)
    }

    fn done(self: Box<Self>) -> Result<(), Error> {
        let left = self.ready.left.fetch_sub(1, Ordering::AcqRel) - 1;
        if left == 0 {
            return self.execution.end_stage(self.stage, &self.ready);
        }
        self.execution.submit(self.stage, &self.ready, left);
        Ok(())
    }
}

/// The compute monotasks of a multitask, one after the other.
struct Compute {
    execution: Arc<Execution>,
    stage: usize,
    /// The stage in the trace.
    ix: StageIx,
    partition: usize,
    ready: Arc<ReadyStage>,
    /// Ranges that the page cache held when the multitask was planned, by index into its reads.
    cached: Vec<(usize, Vec<Need>)>,
    /// Bytes copied from the page cache so far.
    cached_bytes: u64,
    input_bytes: u64,
    /// Number of monotasks of the multitask so far, including this one.
    planned: u32,
    /// The work once it has begun, which returns its number of rows.
    running: Option<Work<Result<u64>>>,
}

impl Compute {
    fn monotask(self, after: Vec<u32>) -> Monotask {
        let cores = self.execution.params.runtime.cores();
        let bytes = self.input_bytes;
        Monotask::new(&cores, Phase::Compute, after, bytes, move |_| {
            let usage = Arc::clone(&self.execution.params.usage);
            usage::computing(&usage, self.ix, || self.run())
        })
    }

    fn run(mut self) -> Result<Done, Error> {
        timing::reset(self.operators().number(0), self.slowed());
        let start_ns = clock::now_ns();
        let evicted = if self.cached.iter().all(|(_, needs)| needs.is_empty()) {
            Vec::new()
        } else {
            timed(self.operators().input, || self.read_cached())?
        };
        if !evicted.is_empty() {
            let measured = self.measured(start_ns);
            return Ok(self.go_on_after(evicted, measured));
        }
        let ran = if self.running.is_none() && self.ready.limit.is_reached() {
            Ran { result: Some(Ok(0)), io: Vec::new() }
        } else {
            self.compute()?
        };
        let Some(rows) = ran.result else {
            let measured = self.measured(start_ns);
            return Ok(self.go_on_after(ran.io, measured));
        };
        let rows = rows.map_err(|e| self.with_files(e))?;
        let reads = &self.ready.reads[self.partition];
        if !reads.is_empty() {
            timed(self.operators().input, || reads.iter().for_each(|(scan, task)| scan.clear(*task)));
        }
        self.execution.params.usage.shrink(self.ix, BUFFERS, self.input_bytes);
        if self.ready.computing.fetch_sub(1, Ordering::AcqRel) == 1 {
            timed(self.operators().output, || self.execution.complete_output(self.stage, &self.ready))?;
        }
        Ok(Done {
            bytes: Some(self.input_bytes),
            cached_bytes: Some(self.cached_bytes),
            rows: Some(rows),
            then: ran.io,
            ..self.measured(start_ns)
        })
    }

    /// Returns the times of a compute monotask that began at `start_ns`, and adds its work to that of the stage.
    fn measured(&self, start_ns: u64) -> Done {
        let core_ns = clock::now_ns() - start_ns;
        let work = timing::take(core_ns);
        let part = |part: Part| {
            let of_part = work.iter().zip(&self.operators().list).filter(|(_, o)| o.part == part);
            of_part.map(|(work, _)| work.cpu_ns).sum::<u64>()
        };
        let (decode_ns, encode_ns, not_split_ns) =
            (part(Part::Decode), part(Part::Encode), part(Part::NotSplit));
        // Operator time includes operators that were not split, and the monotask's own beginning and end.
        let operator_ns = core_ns.saturating_sub(decode_ns + encode_ns);
        self.ready.work.add(&work);
        Done {
            bytes: Some(0),
            cached_bytes: Some(0),
            decode_ns: Some(decode_ns),
            encode_ns: Some(encode_ns),
            not_split_ns: Some(not_split_ns),
            operator_ns: Some(operator_ns),
            rows: Some(0),
            ..Done::default()
        }
    }

    fn operators(&self) -> &Operators {
        &self.ready.operators
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

    /// Ends this monotask with I/O, and another compute monotask after it.
    fn go_on_after(mut self, mut then: Vec<Monotask>, measured: Done) -> Done {
        let io = self.planned..self.planned + then.len() as u32;
        self.planned = io.end + 1;
        then.push(self.monotask(io.collect()));
        Done { then, ..measured }
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

    /// Begins the work of the multitask, or goes on with it.
    fn compute(&mut self) -> Result<Ran<Result<u64>>, Error> {
        if self.running.is_none() {
            self.check_files()?;
            let (execution, ready) = (Arc::clone(&self.execution), Arc::clone(&self.ready));
            self.running = Some(Work::new(stream(execution, self.stage, ready, self.partition))?);
        }
        let ran = self.running.as_mut().map(Work::run);
        ran.ok_or_else(|| "a multitask has no work".into())
    }
}

/// Runs a multitask of a stage. Returns its number of rows.
async fn stream(
    execution: Arc<Execution>,
    stage: usize,
    ready: Arc<ReadyStage>,
    multitask: usize,
) -> Result<u64> {
    let context = &execution.params.context;
    if let Some(build) = ready.build(multitask) {
        let mut built = build.node.execute(build.partition, Arc::clone(context))?;
        while built.next().await.transpose()?.is_some() {}
        return Ok(0);
    }
    let plan = &ready.plan;
    let partitions =
        if ready.whole { 0..plan.output_partitioning().partition_count() } else { multitask..multitask + 1 };
    // Operators of a whole stage may wait for each other, so all partitions run concurrently.
    let streams = partitions
        .map(|partition| {
            let stream = plan.execute(partition, Arc::clone(context));
            let (execution, ready) = (&execution, &ready);
            async move { run_partition(execution, stage, ready, partition, stream?).await }
        })
        .collect::<Vec<_>>();
    let rows = futures::future::try_join_all(streams).await?;
    Ok(rows.into_iter().sum())
}

async fn run_partition(
    execution: &Execution,
    stage: usize,
    ready: &ReadyStage,
    partition: usize,
    mut stream: SendableRecordBatchStream,
) -> Result<u64> {
    let planned = execution.params.plan.stage(stage);
    let (to, limit, step) = (&ready.exchange, &ready.limit, ready.step);
    let mut sink = Sink::new(&planned.output, partition, to, limit, step, &stream.schema())?;
    let output = ready.operators.output;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        if execution.params.job.is_cancelled() {
            return Err(stopped());
        }
        let batch = batch?;
        rows += batch.num_rows() as u64;
        if batch.num_rows() == 0 {
            continue;
        }
        match timed(output, || sink.push(batch))? {
            Next::More => {}
            Next::Write(monotask) => waiting::done(vec![monotask]).await,
            Next::Enough => break,
        }
    }
    // Operators need no memory while the output is written.
    drop(stream);
    let rest = timed(output, || sink.finish())?;
    waiting::done(rest.into_iter().collect()).await;
    Ok(rows)
}
