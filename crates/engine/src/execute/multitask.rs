//! The monotasks of a multitask: its reads, and compute monotasks that decode, run the stage's operators and fill its
//! exchange.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlanProperties;
use futures::StreamExt;
use pellucid_runtime::{Done, Error, Monotask, Multitask, Phase};
use pellucid_trace::{Part, StageIx};

use crate::execute::exchange::stopped;
use crate::execute::memory::usage::{self, BUFFERS};
use crate::execute::sink::{Next, Sink};
use crate::execute::stage::ReadyStage;
use crate::execute::timing::{self, DecoderPanic, Slowed, timed};
use crate::execute::waiting::{self, Ran, Work};
use crate::execute::{Execution, clock};
use crate::plan::operators::Operators;
use crate::scan::{Need, damaged};

/// A stage's work on one partition.
pub(crate) struct StageTask {
    pub execution: Arc<Execution>,
    pub stage: usize,
    pub partition: usize,
    pub ready: Arc<ReadyStage>,
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

/// Returns true for an error of an expression's value (`types`), which is not the file's fault.
fn of_value(message: &str) -> bool {
    ["cannot cast ", "cannot compute ", "cannot add up "].iter().any(|start| message.starts_with(start))
}
