//! What passes between two stages: batches in memory, given away one by one.
//!
//! The writing stage puts each multitask's batches under the partition that they
//! are for; the reading stage's multitasks take them from the front, so that memory
//! is freed while they compute and not at their end. Batches stand in the order of
//! the multitasks that made them, not of their arrival: the same plan gives the same
//! answer, sums of floating point numbers included.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::Stream;

/// What an exchange knows of the job that it belongs to.
pub(crate) trait Ledger: Send + Sync {
    /// `bytes` more are held.
    ///
    /// # Errors
    /// The memory budget does not allow it.
    fn hold(&self, bytes: u64) -> Result<()>;
    /// `bytes` fewer are held.
    fn release(&self, bytes: u64);
    /// The job has ended early: whoever computes may as well stop.
    fn is_stopped(&self) -> bool;
}

/// What a stream ends with when its job has ended early.
pub(crate) fn stopped() -> DataFusionError {
    DataFusionError::External(Box::new(pellucid_runtime::Cancelled))
}

/// A batch, the multitask that made it and the memory that it was counted with.
struct Held {
    from: u32,
    bytes: u64,
    batch: RecordBatch,
}

/// One partition's batches.
type Part = VecDeque<Held>;

/// The batches of one exchange, by partition.
pub(crate) struct Exchange {
    parts: Vec<Mutex<Part>>,
    /// More than one leaf reads it: batches are shared, not given away.
    shared: bool,
    ledger: Arc<dyn Ledger>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} partitions)", self.parts.len())
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic while a batch was pushed or popped leaves the queue whole.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    pub(crate) fn new(partitions: usize, shared: bool, ledger: Arc<dyn Ledger>) -> Self {
        Self { parts: (0..partitions).map(|_| Mutex::default()).collect(), shared, ledger }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// Adds what multitask `from` made for `partition`.
    ///
    /// # Errors
    /// The memory budget does not allow it.
    pub(crate) fn put(&self, partition: usize, from: u32, batches: Vec<RecordBatch>) -> Result<()> {
        if batches.is_empty() {
            return Ok(());
        }
        let held: Part =
            batches.into_iter().map(|batch| Held { from, bytes: batch_bytes(&batch), batch }).collect();
        self.ledger.hold(held.iter().map(|h| h.bytes).sum())?;
        lock(&self.parts[partition]).extend(held);
        Ok(())
    }

    /// Counts memory that will be put here.
    ///
    /// # Errors
    /// The memory budget does not allow it.
    pub(crate) fn hold(&self, bytes: u64) -> Result<()> {
        self.ledger.hold(bytes)
    }

    /// It is counted no more.
    pub(crate) fn release(&self, bytes: u64) {
        self.ledger.release(bytes);
    }

    /// Puts every partition into the order of the multitasks that wrote it.
    pub(crate) fn seal(&self) {
        for part in &self.parts {
            // Stable, so that each multitask's own order stays.
            lock(part).make_contiguous().sort_by_key(|h| h.from);
        }
    }

    fn take(&self, partition: usize, position: usize) -> Option<RecordBatch> {
        let mut part = lock(&self.parts[partition]);
        if self.shared {
            return part.get(position).map(|h| h.batch.clone());
        }
        let held = part.pop_front()?;
        drop(part);
        self.ledger.release(held.bytes);
        Some(held.batch)
    }

    /// Memory held for one partition.
    pub(crate) fn bytes(&self, partition: usize) -> u64 {
        lock(&self.parts[partition]).iter().map(|h| h.bytes).sum()
    }

    /// Everything in one partition, without taking it.
    pub(crate) fn peek(&self, partition: usize) -> Vec<RecordBatch> {
        lock(&self.parts[partition]).iter().map(|h| h.batch.clone()).collect()
    }

    /// Takes everything, partition by partition.
    pub(crate) fn drain(&self) -> Vec<RecordBatch> {
        let mut all = Vec::new();
        for partition in 0..self.parts.len() {
            let taken: Part = std::mem::take(&mut *lock(&self.parts[partition]));
            self.ledger.release(taken.iter().map(|h| h.bytes).sum());
            all.extend(taken.into_iter().map(|h| h.batch));
        }
        all
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.drain();
    }
}

/// Memory behind a batch. Buffers that several batches share count in each: the
/// ledger errs towards less admission, never towards more.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch
        .columns()
        .iter()
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size()) as u64)
        .sum()
}

/// The leaf that a reading stage's plan has where the exchange was.
#[derive(Debug)]
pub(crate) struct ExchangeExec {
    exchange: Arc<Exchange>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl ExchangeExec {
    /// What it reads.
    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// A leaf in place of `node`: the same schema, ordering and partitioning, with as
    /// many partitions as the exchange has.
    pub(crate) fn in_place_of(node: &Arc<dyn ExecutionPlan>, exchange: Arc<Exchange>) -> Arc<Self> {
        let n = exchange.partitions();
        let planned = node.output_partitioning();
        let partitioning = if planned.partition_count() == n {
            planned.clone()
        } else {
            Partitioning::UnknownPartitioning(n)
        };
        let properties = Arc::new(node.properties().as_ref().clone().with_partitioning(partitioning));
        Arc::new(Self { exchange, schema: node.schema(), properties })
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExchangeExec: partitions={}", self.exchange.partitions())
    }
}

impl ExecutionPlan for ExchangeExec {
    fn name(&self) -> &str {
        "ExchangeExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(TakeStream {
            exchange: Arc::clone(&self.exchange),
            schema: Arc::clone(&self.schema),
            partition,
            position: 0,
        }))
    }
}

struct TakeStream {
    exchange: Arc<Exchange>,
    schema: SchemaRef,
    partition: usize,
    position: usize,
}

impl Stream for TakeStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.exchange.ledger.is_stopped() {
            return Poll::Ready(Some(Err(stopped())));
        }
        let batch = self.exchange.take(self.partition, self.position);
        self.position += 1;
        Poll::Ready(batch.map(Ok))
    }
}

impl RecordBatchStream for TakeStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
