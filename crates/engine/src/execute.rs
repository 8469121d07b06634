//! Runs a cut plan: stages as their inputs end, multitasks as the runtime admits them.
//!
//! A multitask reads (its read monotasks bring all bytes that it needs), then computes (one
//! monotask decodes them, runs the stage's operators and divides the output), then its output
//! stays in an exchange or goes to [`Outputs`]. The last multitask of a stage fills the
//! filters that wait for it and makes the stages ready that wait for it. No thread here: all
//! of it runs in monotasks, and between them on whichever thread ended the last one.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
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
use pellucid_trace::StageIx;

use crate::cut::{Output, StagePlan};
use crate::dynamic_filter;
use crate::exchange::{Exchange, Ledger, stopped};
use crate::explain;
use crate::output::Outputs;
use crate::parquet::Metadata;
use crate::scan::{Need, Source};
use crate::sink::Sink;
use crate::stage::{Builder, ReadyStage};
use crate::stores::JobIo;
use crate::timing::{self, Part, timed};

/// Exchange memory changes that the scheduler need not hear of one by one.
const LEDGER_STEP_BYTES: i64 = 4 << 20;

/// Memory of a job's exchanges: the budget may refuse it, admission waits for it.
pub(crate) struct JobLedger {
    job: Job,
    reservation: MemoryReservation,
    /// Change since the scheduler was last told.
    untold: AtomicI64,
}

impl JobLedger {
    pub(crate) fn new(job: Job, context: &TaskContext) -> Self {
        let reservation = MemoryConsumer::new("exchange").register(context.memory_pool());
        Self { job, reservation, untold: AtomicI64::new(0) }
    }

    fn change(&self, bytes: i64) {
        let untold = self.untold.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if untold.abs() < LEDGER_STEP_BYTES {
            return;
        }
        match self.untold.swap(0, Ordering::Relaxed) {
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

/// Turns a file of a scan into a source.
pub(crate) type Open = Box<dyn Fn(&FileScanConfig, &PartitionedFile) -> Result<Source> + Send + Sync>;

/// One job's plan, running.
pub(crate) struct Execution {
    given: Parts,
    ledger: Arc<dyn Ledger>,
    stages: Vec<StageState>,
    result: Mutex<Vec<RecordBatch>>,
}

#[derive(Default)]
struct StageState {
    /// Stages that it still waits for.
    waits_for: AtomicUsize,
    /// Stages that wait for it.
    users: Vec<usize>,
    exchange: Mutex<Option<Arc<Exchange>>>,
    ix: OnceLock<StageIx>,
}

/// The parts of an [`Execution`] that its maker provides.
pub(crate) struct Parts {
    pub runtime: Runtime,
    pub job: Job,
    pub plan: StagePlan,
    pub context: Arc<TaskContext>,
    pub metadata: Metadata,
    pub io: Arc<JobIo>,
    pub outputs: Arc<Outputs>,
    pub open: Open,
    pub at_least: usize,
}

impl Execution {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let mut stages: Vec<StageState> = parts.plan.stages.iter().map(|_| StageState::default()).collect();
        for (i, stage) in parts.plan.stages.iter().enumerate() {
            stages[i].waits_for = AtomicUsize::new(stage.after.len());
            for &before in &stage.after {
                stages[before].users.push(i);
            }
        }
        let ledger = Arc::new(JobLedger::new(parts.job.clone(), &parts.context));
        Arc::new(Self { given: parts, ledger, stages, result: Mutex::default() })
    }

    /// Starts the stages that wait for nothing.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        for index in 0..self.given.plan.stages.len() {
            if self.given.plan.stages[index].after.is_empty() {
                self.start_stage(index)?;
            }
        }
        Ok(())
    }

    /// The result's batches, once the job has succeeded.
    pub(crate) fn result(&self) -> Vec<RecordBatch> {
        std::mem::take(&mut self.result.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Each stage's number in the trace, which has them as they began; `None`: it did not.
    pub(crate) fn numbers(&self) -> Vec<Option<StageIx>> {
        self.stages.iter().map(|stage| stage.ix.get().copied()).collect()
    }

    fn exchange(&self, stage: usize) -> Option<Arc<Exchange>> {
        self.stages[stage].exchange.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start_stage(self: &Arc<Self>, index: usize) -> Result<()> {
        let planned = &self.given.plan.stages[index];
        let after: Vec<StageIx> =
            planned.after.iter().filter_map(|&s| self.stages[s].ix.get().copied()).collect();
        let names = explain::names(&self.given.plan, index);
        let ix = self.given.job.stage(&names.name, &after, names.not_split);
        // A stage starts once, so that its index was not set before.
        let _ = self.stages[index].ix.set(ix);
        if index + 1 == self.given.plan.stages.len() {
            self.given.outputs.writer(self.given.job.clone(), ix);
        }
        let ready = Arc::new(
            Builder {
                plan: &self.given.plan,
                metadata: &self.given.metadata,
                io: &self.given.io,
                ledger: &self.ledger,
                exchanges: &|stage| self.exchange(stage),
                open: &self.given.open,
                at_least: self.given.at_least,
            }
            .ready(index)?,
        );
        // The plan has its own hold on what it reads: from here on batches are freed as they
        // are taken, and the exchange with its last reader.
        for &before in &planned.after {
            self.let_go(before);
        }
        *self.stages[index].exchange.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::clone(&ready.exchange));
        for partition in spread(&ready) {
            let memory = ready.memory[partition];
            let task =
                StageTask { execution: Arc::clone(self), stage: index, partition, ready: Arc::clone(&ready) };
            self.given.job.submit(ix, partition as u32, memory, Box::new(task));
        }
        Ok(())
    }

    /// Drops the hold on an exchange that all its readers have.
    fn let_go(&self, stage: usize) {
        let started = |user: &usize| self.stages[*user].ix.get().is_some();
        if self.stages[stage].users.iter().all(started) {
            self.stages[stage].exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// What the end of a stage's computing means: its exchange is in order, filters and
    /// subquery results are filled.
    fn settle(&self, index: usize, ready: &ReadyStage) -> Result<()> {
        ready.exchange.seal();
        let stage = &self.given.plan.stages[index];
        if let Output::Scalar(results, at) = &stage.output {
            let batches = ready.exchange.drain();
            if batches.iter().map(RecordBatch::num_rows).sum::<usize>() > 1 {
                let words = "a scalar subquery returned more than one row; limit it, or compare with IN";
                return Err(DataFusionError::Execution(words.to_string()));
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
        if index + 1 == self.given.plan.stages.len() {
            let execution = Arc::clone(self);
            let batches = ready.exchange.drain();
            return self.given.outputs.publish(Box::new(move || {
                execution.end_job(index, batches);
                Ok(())
            }));
        }
        if let Some(&ix) = self.stages[index].ix.get() {
            self.given.job.end_stage(ix);
        }
        for &user in &self.stages[index].users {
            if self.stages[user].waits_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.start_stage(user)?;
            }
        }
        Ok(())
    }

    fn end_job(&self, index: usize, batches: Vec<RecordBatch>) {
        self.given.job.set_rows(batches.iter().map(|b| b.num_rows() as u64).sum());
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = batches;
        if let Some(&ix) = self.stages[index].ix.get() {
            self.given.job.end_stage(ix);
        }
        self.given.job.succeed();
    }
}

/// Partitions in the order of submission: by turns over the disks that they read from first,
/// so that all of them are busy from the start.
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
        if self.ready.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.execution.end_stage(self.stage, &self.ready)?;
        }
        Ok(())
    }
}

/// A compute monotask.
struct Compute {
    execution: Arc<Execution>,
    stage: usize,
    partition: usize,
    ready: Arc<ReadyStage>,
    /// By index into the multitask's reads: what the page cache held when it was planned.
    cached: Vec<(usize, Vec<Need>)>,
    /// What was copied from it by an earlier try.
    cached_bytes: u64,
    input_bytes: u64,
    /// Monotasks of the multitask so far, this one included.
    planned: u32,
}

thread_local! {
    /// Polls DataFusion's streams. They wait for nothing but memory; tasks that an operator
    /// spawns run here as well, on the same core.
    static POLLER: std::io::Result<tokio::runtime::Runtime> =
        tokio::runtime::Builder::new_current_thread().enable_all().build();
}

impl Compute {
    fn monotask(self, after: Vec<u32>) -> Monotask {
        let cores = self.execution.given.runtime.cores();
        let bytes = self.input_bytes;
        Monotask::new(&cores, Phase::Compute, after, bytes, move |context| self.run(context))
    }

    fn run(mut self, context: &Context) -> Result<Done, Error> {
        timing::reset();
        let start = std::time::Instant::now();
        let lost = if self.cached.iter().all(|(_, needs)| needs.is_empty()) {
            Vec::new()
        } else {
            timed(Part::Decode, || self.read_cached())?
        };
        if !lost.is_empty() {
            return Ok(self.again(lost));
        }
        let rows = if self.ready.stop.load(Ordering::Relaxed) {
            0
        } else {
            self.compute(context).map_err(|e| self.explained(e))?
        };
        for (scan, task) in &self.ready.reads[self.partition] {
            scan.clear(*task);
        }
        if self.ready.computing.fetch_sub(1, Ordering::AcqRel) == 1 {
            timed(Part::Encode, || self.execution.settle(self.stage, &self.ready))?;
        }
        let total_ns = start.elapsed().as_nanos() as u64;
        let parts = timing::parts();
        // What was not split is operators too, run as they are.
        let others = parts.decode_ns + parts.encode_ns;
        Ok(Done {
            bytes: Some(self.input_bytes),
            cached_bytes: Some(self.cached_bytes),
            decode_ns: Some(parts.decode_ns),
            encode_ns: Some(parts.encode_ns),
            not_split_ns: Some(parts.not_split_ns),
            operator_ns: Some(total_ns.saturating_sub(others)),
            rows: Some(rows),
            ..Done::default()
        })
    }

    /// Copies what the page cache still holds; what it has lost must be read after all.
    fn read_cached(&mut self) -> Result<Vec<Monotask>, Error> {
        let mut lost = Vec::new();
        for (at, needs) in std::mem::take(&mut self.cached) {
            let (scan, task) = &self.ready.reads[self.partition][at];
            let (bytes, missing) = scan.read_cached(*task, &needs)?;
            self.cached_bytes += bytes;
            lost.extend(missing);
        }
        Ok(lost)
    }

    /// Reads what the page cache has lost, then computes.
    fn again(mut self, mut then: Vec<Monotask>) -> Done {
        let reads = self.planned..self.planned + then.len() as u32;
        self.planned = reads.end + 1;
        then.push(self.monotask(reads.collect()));
        Done { bytes: Some(0), cached_bytes: Some(0), then, ..Done::default() }
    }

    /// What went wrong, with the files that were being decoded. A computation that failed is no fault
    /// of theirs: of a division the query is named, elsewhere.
    fn explained(&self, error: DataFusionError) -> Error {
        let doing = match error.find_root() {
            DataFusionError::ArrowError(cause, _) => match cause.as_ref() {
                ArrowError::DivideByZero => return Box::new(error),
                ArrowError::ArithmeticOverflow(_) | ArrowError::CastError(_) => "computing over",
                _ => "decoding",
            },
            _ => "decoding",
        };
        let mut files: Vec<String> = self.ready.reads[self.partition]
            .iter()
            .flat_map(|(scan, task)| {
                scan.tasks[*task].needs.iter().map(|need| match &scan.sources[need.source] {
                    Source::Local(file) => file.path().display().to_string(),
                    Source::Remote { resource, path, .. } => format!("{}/{path}", resource.name()),
                })
            })
            .collect();
        files.dedup();
        if files.is_empty() || files.len() > 3 {
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
        // All partitions of a whole stage at once: its operators may wait for each other.
        let streams = partitions
            .map(|p| {
                let stream = plan.execute(p, Arc::clone(&self.execution.given.context));
                async move { self.one(p, stream?, context).await }
            })
            .collect::<Vec<_>>();
        let rows = futures::future::try_join_all(streams).await?;
        Ok(rows.into_iter().sum())
    }

    async fn one(
        &self,
        partition: usize,
        mut stream: datafusion::execution::SendableRecordBatchStream,
        context: &Context,
    ) -> Result<u64> {
        let stage = &self.execution.given.plan.stages[self.stage];
        let mut sink = Sink::new(&stage.output, partition, &self.ready, stream.schema())?;
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            if context.is_cancelled() {
                return Err(stopped());
            }
            let batch = batch?;
            rows += batch.num_rows() as u64;
            if batch.num_rows() > 0 && !timed(Part::Encode, || sink.push(batch))? {
                break;
            }
        }
        timed(Part::Encode, || sink.finish())?;
        Ok(rows)
    }
}
