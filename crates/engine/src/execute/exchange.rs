//! Exchanges between two stages.
//!
//! The writing stage puts each multitask's batches into the partition that will read them. The reading
//! stage's multitasks take batches from the front, so that memory is freed while they compute, not
//! when they end. Until then, batches are [`Compact`]. Batches are in the order of the multitasks that
//! wrote them, not of their arrival, so that a plan always returns the same result, including sums of
//! floating-point numbers.
//!
//! Batches beyond the memory budget go to disk ([`crate::execute::spill`]), the newest output first. The reading stage's
//! multitasks load it block by block while they compute.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::Stream;
use pellucid_runtime::Monotask;
use pellucid_trace::StageIx;

use crate::execute::compact::Compact;
use crate::execute::spill::{Block, Files, Load};
use crate::execute::waiting;

/// The memory accounting and the state of the job that an exchange belongs to.
pub(crate) trait Ledger: Send + Sync {
    /// Returns true if the job's exchanges may take `bytes` more.
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }
    /// Reserves `bytes` of the exchange that `stage` writes.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted.
    fn hold(&self, stage: StageIx, bytes: u64) -> Result<()>;
    /// Releases `bytes` of the exchange that `stage` writes.
    fn release(&self, stage: StageIx, bytes: u64);
    /// Returns true if the job has ended early, so that computing should stop.
    fn is_stopped(&self) -> bool;
}

/// Returns the error of a stream whose job has ended early.
pub(crate) fn stopped() -> DataFusionError {
    DataFusionError::External(Box::new(pellucid_runtime::Cancelled))
}

/// Batches, and the multitask that wrote them.
#[derive(Clone)]
struct Held {
    from: u32,
    item: Item,
}

#[derive(Clone)]
enum Item {
    Batch(Compact),
    Block(Arc<Block>),
}

impl Item {
    /// Returns the memory that it takes.
    fn bytes(&self) -> u64 {
        match self {
            Item::Batch(batch) => batch.bytes,
            Item::Block(_) => 0,
        }
    }

    /// Returns the memory of its batches as they are taken.
    fn batch_bytes(&self) -> u64 {
        match self {
            Item::Batch(batch) => batch.batch_bytes,
            Item::Block(block) => block.batch_bytes,
        }
    }
}

/// One partition's batches.
type Part = VecDeque<Held>;

/// The batches of one exchange, by partition.
pub(crate) struct Exchange {
    parts: Vec<Mutex<Part>>,
    /// True if several leaves read the exchange. Batches are then shared, and stay until it is dropped.
    shared: bool,
    /// The stage that writes it.
    stage: StageIx,
    ledger: Arc<dyn Ledger>,
    /// `None` if all batches must stay in memory.
    files: Option<Files>,
    /// True if a multitask reads one partition only, so that it may read ahead.
    reads_ahead: bool,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} partitions)", self.parts.len())
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic during a push or pop leaves the queue consistent.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    pub(crate) fn new(partitions: usize, shared: bool, stage: StageIx, ledger: Arc<dyn Ledger>) -> Self {
        let parts = (0..partitions).map(|_| Mutex::default()).collect();
        Self { parts, shared, stage, ledger, files: None, reads_ahead: false }
    }

    /// Lets batches that do not fit into memory go to `files`.
    pub(crate) fn spilling(mut self, files: Option<Files>, reads_ahead: bool) -> Self {
        (self.files, self.reads_ahead) = (files, reads_ahead);
        self
    }

    pub(crate) fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// Adds the batches of multitask `from` for some partitions. Returns the monotask that writes them, if they do not fit
    /// into memory.
    ///
    /// # Errors
    /// Returns an error if they can neither stay in memory nor go to disk.
    pub(crate) fn put(&self, from: u32, mut parts: Vec<(usize, Vec<Compact>)>) -> Result<Option<Monotask>> {
        parts.retain(|(_, batches)| !batches.is_empty());
        let bytes = parts.iter().flat_map(|(_, batches)| batches).map(|batch| batch.bytes).sum();
        if !self.hold(bytes)? {
            return self.spill(from, parts);
        }
        for (partition, batches) in parts {
            let held = batches.into_iter().map(|batch| Held { from, item: Item::Batch(batch) });
            lock(&self.parts[partition]).extend(held);
        }
        Ok(None)
    }

    /// Adds batches like [`Exchange::put`], on disk.
    pub(crate) fn spill(&self, from: u32, parts: Vec<(usize, Vec<Compact>)>) -> Result<Option<Monotask>> {
        let Some(files) = self.files.as_ref().filter(|_| !parts.is_empty()) else { return Ok(None) };
        let (blocks, monotask) = files.write(parts)?;
        for (partition, block) in blocks {
            lock(&self.parts[partition]).push_back(Held { from, item: Item::Block(Arc::new(block)) });
        }
        Ok(Some(monotask))
    }

    /// Reserves memory of batches. Returns false if there is none, so that the batches must go to disk.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted, and the exchange has no files.
    pub(crate) fn hold(&self, bytes: u64) -> Result<bool> {
        let spills = self.files.is_some();
        if spills && !self.ledger.has_room(bytes) {
            return Ok(false);
        }
        match self.ledger.hold(self.stage, bytes) {
            Ok(()) => Ok(true),
            Err(_) if spills => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases memory that [`Exchange::hold`] reserved.
    pub(crate) fn release(&self, bytes: u64) {
        self.ledger.release(self.stage, bytes);
    }

    /// Sorts every partition by the multitasks that wrote its batches.
    pub(crate) fn seal(&self) {
        for part in &self.parts {
            // A stable sort keeps the order within each multitask.
            lock(part).make_contiguous().sort_by_key(|h| h.from);
        }
    }

    /// Returns the item at `position`, and takes it unless others read it as well.
    fn next(&self, partition: usize, position: usize) -> Option<Item> {
        let mut part = lock(&self.parts[partition]);
        if self.shared {
            return part.get(position).map(|held| held.item.clone());
        }
        let Held { item, .. } = part.pop_front()?;
        drop(part);
        self.ledger.release(self.stage, item.bytes());
        Some(item)
    }

    /// Returns the item at `position` like [`Exchange::next`], if it is a block.
    fn next_block(&self, partition: usize, position: usize) -> Option<Arc<Block>> {
        let mut part = lock(&self.parts[partition]);
        let at = if self.shared { position } else { 0 };
        let Item::Block(block) = &part.get(at)?.item else { return None };
        let block = Arc::clone(block);
        if !self.shared {
            part.pop_front();
        }
        Some(block)
    }

    /// Returns the memory of one partition's batches as they are taken.
    pub(crate) fn batch_bytes(&self, partition: usize) -> u64 {
        lock(&self.parts[partition]).iter().map(|held| held.item.batch_bytes()).sum()
    }

    /// Returns the memory of all batches as they are taken.
    pub(crate) fn all_bytes(&self) -> u64 {
        (0..self.partitions()).map(|partition| self.batch_bytes(partition)).sum()
    }

    /// Returns an exchange for the same stages, with other partitions.
    pub(crate) fn divided_again(&self, partitions: usize) -> Self {
        let files = self.files.as_ref().map(Files::again);
        Self::new(partitions, false, self.stage, Arc::clone(&self.ledger)).spilling(files, self.reads_ahead)
    }

    /// Moves a partition to one of another exchange of the same stages. Returns false if others read it as well.
    pub(crate) fn move_to(&self, partition: usize, to: &Exchange, at: usize) -> bool {
        if !self.shared {
            let moved = std::mem::take(&mut *lock(&self.parts[partition]));
            *lock(&to.parts[at]) = moved;
        }
        !self.shared
    }

    /// Returns all batches without taking them, partition by partition; `None` if some are on disk.
    pub(crate) fn peek(&self) -> Option<Vec<Compact>> {
        let in_memory = |held: &Held| match &held.item {
            Item::Batch(batch) => Some(batch.clone()),
            Item::Block(_) => None,
        };
        let of_part = |part: &Mutex<Part>| lock(part).iter().map(in_memory).collect::<Option<Vec<_>>>();
        self.parts.iter().map(of_part).collect::<Option<Vec<_>>>().map(|parts| parts.concat())
    }

    /// Takes all batches, partition by partition. The exchange has no files.
    pub(crate) fn drain(&self) -> Result<Vec<RecordBatch>> {
        let mut all = Vec::new();
        for partition in 0..self.parts.len() {
            for held in self.clear(partition) {
                match held.item {
                    Item::Batch(batch) => all.push(batch.batch()?),
                    Item::Block(_) => return Err(internal_datafusion_err!("a result is on disk")),
                }
            }
        }
        Ok(all)
    }

    fn clear(&self, partition: usize) -> Part {
        let taken = std::mem::take(&mut *lock(&self.parts[partition]));
        self.ledger.release(self.stage, taken.iter().map(|held| held.item.bytes()).sum());
        taken
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        (0..self.parts.len()).for_each(|partition| drop(self.clear(partition)));
    }
}

/// Rows per batch in an exchange; DataFusion's default.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Returns a coalescer of the small batches into which rows are divided.
pub(crate) fn coalescer(schema: &SchemaRef) -> BatchCoalescer {
    BatchCoalescer::new(Arc::clone(schema), BATCH_ROWS).with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 2))
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
        let partitioning = match node.output_partitioning() {
            planned if planned.partition_count() == n => planned.clone(),
            // More partitions of the same keys.
            Partitioning::Hash(keys, _) => Partitioning::Hash(keys.clone(), n),
            _ => Partitioning::UnknownPartitioning(n),
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
            loads: VecDeque::new(),
            loaded: VecDeque::new(),
        }))
    }
}

struct ExchangeStream {
    exchange: Arc<Exchange>,
    schema: SchemaRef,
    partition: usize,
    position: usize,
    /// Blocks that are being read.
    loads: VecDeque<Arc<Load>>,
    /// Batches of a block.
    loaded: VecDeque<RecordBatch>,
}

impl ExchangeStream {
    /// Asks for `block`, and for those after it that are to be read at once.
    fn load(&mut self, block: Arc<Block>, waker: &Waker) {
        let Some(files) = &self.exchange.files else { return };
        let mut bytes = block.bytes();
        let mut blocks = vec![block];
        while self.exchange.reads_ahead && files.reads_more(bytes) {
            let Some(next) = self.exchange.next_block(self.partition, self.position) else { break };
            self.position += 1;
            bytes += next.bytes();
            blocks.push(next);
        }
        let (loads, monotasks) = files.read(blocks);
        self.loads = loads.into();
        waiting::ask(monotasks, waker);
    }
}

impl Stream for ExchangeStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.exchange.ledger.is_stopped() {
            return Poll::Ready(Some(Err(stopped())));
        }
        loop {
            if let Some(batch) = self.loaded.pop_front() {
                return Poll::Ready(Some(Ok(batch)));
            }
            if let Some(load) = self.loads.front() {
                match load.batches(&self.schema) {
                    Some(Ok(batches)) => self.loaded = batches.into(),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => {
                        waiting::ask(Vec::new(), cx.waker());
                        return Poll::Pending;
                    }
                }
                self.loads.pop_front();
                continue;
            }
            let item = self.exchange.next(self.partition, self.position);
            self.position += 1;
            match item {
                None => return Poll::Ready(None),
                Some(Item::Batch(batch)) => return Poll::Ready(Some(Ok(batch.batch()?))),
                Some(Item::Block(block)) => self.load(block, cx.waker()),
            }
        }
    }
}

impl RecordBatchStream for ExchangeStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
