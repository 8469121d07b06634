//! Where a compute monotask's batches go: divided among partitions, or as they are.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::common::Result;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;

use crate::cut::Output;
use crate::exchange::{Exchange, batch_bytes};
use crate::stage::ReadyStage;

/// Where a compute monotask's batches go.
pub(crate) enum Sink<'a> {
    Divide {
        /// Boxed: it is as large as all else.
        partitioner: Box<BatchPartitioner>,
        coalescers: Vec<BatchCoalescer>,
        parts: Vec<Vec<RecordBatch>>,
        from: u32,
        made: Made<'a>,
    },
    Collect {
        to: usize,
        fetch: Option<usize>,
        batches: Vec<RecordBatch>,
        from: u32,
        ready: &'a ReadyStage,
        made: Made<'a>,
    },
}

/// What a monotask has made so far: the exchange holds it when all is there. Some of it is within what the
/// multitask was admitted with; of more the memory budget hears on the way, and may refuse it.
pub(crate) struct Made<'a> {
    exchange: &'a Exchange,
    bytes: u64,
    held: u64,
}

/// What is told at once.
const STEP_BYTES: u64 = 32 << 20;

impl Made<'_> {
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

impl Drop for Made<'_> {
    fn drop(&mut self) {
        self.exchange.release(self.held);
    }
}

/// Rows of a batch in an exchange; DataFusion's own default.
const BATCH_ROWS: usize = 8192;

impl<'a> Sink<'a> {
    pub(crate) fn new(
        output: &Output,
        partition: usize,
        ready: &'a ReadyStage,
        schema: datafusion::arrow::datatypes::SchemaRef,
    ) -> Result<Self> {
        let from = partition as u32;
        let made = Made { exchange: &ready.exchange, bytes: 0, held: 0 };
        let collect = |to, fetch, made| Sink::Collect { to, fetch, batches: Vec::new(), from, ready, made };
        Ok(match output {
            Output::Divide(to) => {
                let n = to.partition_count();
                let partitioner = Box::new(BatchPartitioner::try_new(to.clone(), Time::new(), partition, 1)?);
                let coalescer = || {
                    BatchCoalescer::new(Arc::clone(&schema), BATCH_ROWS)
                        .with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 2))
                };
                Sink::Divide {
                    partitioner,
                    coalescers: (0..n).map(|_| coalescer()).collect(),
                    parts: vec![Vec::new(); n],
                    from,
                    made,
                }
            }
            Output::Keep => collect(partition, None, made),
            Output::Gather { fetch } => collect(0, *fetch, made),
            Output::Scalar(..) => collect(0, None, made),
        })
    }

    /// False once no more rows are needed.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<bool> {
        let (Sink::Divide { made, .. } | Sink::Collect { made, .. }) = self;
        made.add(&batch)?;
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
            Sink::Divide { mut coalescers, mut parts, from, made, .. } => {
                let exchange = made.exchange;
                drop(made); // the exchange counts it from here on
                for (to, coalescer) in coalescers.iter_mut().enumerate() {
                    coalescer.finish_buffered_batch()?;
                    while let Some(rest) = coalescer.next_completed_batch() {
                        parts[to].push(rest);
                    }
                }
                parts.into_iter().enumerate().try_for_each(|(to, part)| exchange.put(to, from, part))
            }
            Sink::Collect { to, batches, from, ready, made, .. } => {
                drop(made);
                ready.exchange.put(to, from, batches)
            }
        }
    }
}
