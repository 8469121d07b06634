//! Sinks of compute monotasks, which partition or collect their batches into an exchange.

use std::sync::atomic::Ordering;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;

use crate::execute::exchange::{Exchange, batch_bytes, coalescer};
use crate::execute::stage::ReadyStage;
use crate::plan::cut::Output;

/// The sink of a compute monotask's batches.
pub(crate) enum Sink<'a> {
    Divide {
        /// Boxed because it is as large as the rest of the enum.
        partitioner: Box<BatchPartitioner>,
        coalescers: Vec<BatchCoalescer>,
        parts: Vec<Vec<RecordBatch>>,
        from: u32,
        memory: OutputMemory<'a>,
    },
    Collect {
        to: usize,
        fetch: Option<usize>,
        batches: Vec<RecordBatch>,
        from: u32,
        ready: &'a ReadyStage,
        memory: OutputMemory<'a>,
    },
}

/// The memory of a monotask's output until it goes to the exchange. Output beyond [`STEP_BYTES`] is
/// reserved from the memory budget in steps, which may fail; less is part of the memory with which
/// the multitask was admitted.
pub(crate) struct OutputMemory<'a> {
    exchange: &'a Exchange,
    bytes: u64,
    held: u64,
}

/// Output memory that may grow before it is reserved.
const STEP_BYTES: u64 = 32 << 20;

impl OutputMemory<'_> {
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        self.bytes += batch_bytes(batch);
        let more = self.bytes - self.held;
        if more > STEP_BYTES {
            self.exchange.hold(more)?;
            self.held = self.bytes;
        }
        Ok(())
    }
}

impl Drop for OutputMemory<'_> {
    fn drop(&mut self) {
        self.exchange.release(self.held);
    }
}

impl<'a> Sink<'a> {
    pub(crate) fn new(
        output: &Output,
        partition: usize,
        ready: &'a ReadyStage,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let from = partition as u32;
        let memory = OutputMemory { exchange: &ready.exchange, bytes: 0, held: 0 };
        let collect =
            |to, fetch, memory| Sink::Collect { to, fetch, batches: Vec::new(), from, ready, memory };
        Ok(match output {
            Output::Divide(to) => {
                let n = to.partition_count();
                let partitioner = Box::new(BatchPartitioner::try_new(to.clone(), Time::new(), partition, 1)?);
                Sink::Divide {
                    partitioner,
                    coalescers: (0..n).map(|_| coalescer(schema)).collect(),
                    parts: vec![Vec::new(); n],
                    from,
                    memory,
                }
            }
            Output::Keep => collect(partition, None, memory),
            Output::Gather { fetch } => collect(0, *fetch, memory),
            Output::Scalar(..) => collect(0, None, memory),
        })
    }

    /// Adds a batch. Returns false once no more rows are needed.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<bool> {
        let (Sink::Divide { memory, .. } | Sink::Collect { memory, .. }) = self;
        memory.add(&batch)?;
        match self {
            Sink::Divide { partitioner, coalescers, parts, .. } => {
                partitioner.partition(batch, |to, part| {
                    coalescers[to].push_batch(part)?;
                    while let Some(full) = coalescers[to].next_completed_batch() {
                        parts[to].push(full);
                    }
                    Ok(())
                })?;
                Ok(true)
            }
            Sink::Collect { fetch: None, batches, .. } => {
                batches.push(batch);
                Ok(true)
            }
            Sink::Collect { fetch: Some(fetch), batches, ready, .. } => {
                let before = ready.rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
                let wanted = fetch.saturating_sub(before).min(batch.num_rows());
                if wanted > 0 {
                    batches.push(batch.slice(0, wanted));
                }
                let full = before + batch.num_rows() >= *fetch;
                if full {
                    ready.stop.store(true, Ordering::Relaxed);
                }
                Ok(!full)
            }
        }
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self {
            Sink::Divide { mut coalescers, mut parts, from, memory, .. } => {
                let exchange = memory.exchange;
                drop(memory); // the exchange reserves it from here on
                for (to, coalescer) in coalescers.iter_mut().enumerate() {
                    coalescer.finish_buffered_batch()?;
                    while let Some(rest) = coalescer.next_completed_batch() {
                        parts[to].push(rest);
                    }
                }
                parts.into_iter().enumerate().try_for_each(|(to, part)| exchange.put(to, from, part))
            }
            Sink::Collect { to, batches, from, ready, memory, .. } => {
                drop(memory);
                ready.exchange.put(to, from, batches)
            }
        }
    }
}
