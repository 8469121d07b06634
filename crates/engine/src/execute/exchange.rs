//! In-memory exchanges between two stages.
//!
//! The writing stage puts each multitask's batches into the partition that will read them. The reading
//! stage's multitasks take batches from the front, so that memory is freed while they compute, not
//! when they end. Batches are in the order of the multitasks that wrote them, not of their arrival, so
//! that a plan always returns the same result, including sums of floating-point numbers.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::Stream;

/// The memory accounting and the state of the job that an exchange belongs to.
pub(crate) trait Ledger: Send + Sync {
    /// Reserves `bytes`.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted.
    fn hold(&self, bytes: u64) -> Result<()>;
    /// Releases `bytes`.
    fn release(&self, bytes: u64);
    /// Returns true if the job has ended early, so that computing should stop.
    fn is_stopped(&self) -> bool;
}

/// Returns the error of a stream whose job has ended early.
pub(crate) fn stopped() -> DataFusionError {
    DataFusionError::External(Box::new(pellucid_runtime::Cancelled))
}

/// A batch, the multitask that wrote it, and its reserved memory.
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
    /// True if several leaves read the exchange. Batches are then shared, and stay until it is dropped.
    shared: bool,
    ledger: Arc<dyn Ledger>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} partitions)", self.parts.len())
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic during a push or pop leaves the queue consistent.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    pub(crate) fn new(partitions: usize, shared: bool, ledger: Arc<dyn Ledger>) -> Self {
        Self { parts: (0..partitions).map(|_| Mutex::default()).collect(), shared, ledger }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// Adds the batches of multitask `from` for `partition`.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted.
    pub(crate) fn put(&self, partition: usize, from: u32, batches: Vec<RecordBatch>) -> Result<()> {
        if batches.is_empty() {
            return Ok(());
        }
        let held = |batch| {
            let batch = without_slack(batch)?;
            Ok(Held { from, bytes: batch_bytes(&batch), batch })
        };
        let held: Part = batches.into_iter().map(held).collect::<Result<_>>()?;
        self.ledger.hold(held.iter().map(|h| h.bytes).sum())?;
        lock(&self.parts[partition]).extend(held);
        Ok(())
    }

    /// Reserves memory of batches that are not in the exchange yet.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted.
    pub(crate) fn hold(&self, bytes: u64) -> Result<()> {
        self.ledger.hold(bytes)
    }

    /// Releases memory that [`Exchange::hold`] reserved.
    pub(crate) fn release(&self, bytes: u64) {
        self.ledger.release(bytes);
    }

    /// Sorts every partition by the multitasks that wrote its batches.
    pub(crate) fn seal(&self) {
        for part in &self.parts {
            // A stable sort keeps the order within each multitask.
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

    /// Returns the memory of one partition.
    pub(crate) fn bytes(&self, partition: usize) -> u64 {
        lock(&self.parts[partition]).iter().map(|h| h.bytes).sum()
    }

    /// Returns the batches of one partition without taking them.
    pub(crate) fn peek(&self, partition: usize) -> Vec<RecordBatch> {
        lock(&self.parts[partition]).iter().map(|h| h.batch.clone()).collect()
    }

    /// Takes all batches, partition by partition.
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

/// Rows per batch in an exchange; DataFusion's default.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Returns a coalescer of the small batches into which rows are divided.
pub(crate) fn coalescer(schema: &SchemaRef) -> BatchCoalescer {
    BatchCoalescer::new(Arc::clone(schema), BATCH_ROWS).with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 2))
}

/// Returns a batch without the room for more rows that its builder has left in its buffers: a coalescer makes room for a
/// whole batch, and the last one of a multitask may have a few rows.
fn without_slack(batch: RecordBatch) -> Result<RecordBatch> {
    if batch.get_array_memory_size() as u64 <= 2 * batch_bytes(&batch) {
        return Ok(batch);
    }
    let (schema, mut columns, rows) = batch.into_parts();
    columns.iter_mut().for_each(Array::shrink_to_fit);
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// Returns the memory of a batch. Shared buffers count in each batch that refers to them, so the ledger
/// may overestimate memory but never underestimates it.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(array_bytes).sum()
}

/// Returns the memory of an array, like [`batch_bytes`].
pub(crate) fn array_bytes(array: &ArrayRef) -> u64 {
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size()) as u64
}

/// The leaf of a stage's plan that reads an exchange.
#[derive(Debug)]
pub(crate) struct ExchangeExec {
    exchange: Arc<Exchange>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl ExchangeExec {
    /// Returns the exchange that the leaf reads.
    pub(crate) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Creates a leaf that replaces `node`, with its schema and ordering. It also has the node's
    /// partitioning if the exchange has as many partitions.
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
        Ok(Box::pin(ExchangeStream {
            exchange: Arc::clone(&self.exchange),
            schema: Arc::clone(&self.schema),
            partition,
            position: 0,
        }))
    }
}

struct ExchangeStream {
    exchange: Arc<Exchange>,
    schema: SchemaRef,
    partition: usize,
    position: usize,
}

impl Stream for ExchangeStream {
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

impl RecordBatchStream for ExchangeStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
