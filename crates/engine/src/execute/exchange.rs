//! Exchanges between two stages.
//!
//! The writing stage puts each multitask's batches into the partition that will read them. The reading
//! stage's multitasks take batches from the front, so that memory is freed while they compute, not
//! when they end. Until then, batches are [`Compact`]. Batches are in the order of the multitasks that
//! wrote them, not of their arrival, so that a plan always returns the same result, including sums of
//! floating-point numbers.
//!
//! Batches beyond the memory budget go to disk ([`crate::execute::spill`]): the newest output, and when operators need more
//! memory, what is read last. The reading stage's multitasks load it block by block while they compute. The keys of a build
//! side stay in memory until its join's filter is filled, if they take little.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
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
use crate::execute::memory::ledger::Ledger;
use crate::execute::memory::usage::Movable;
use crate::execute::spill::{Block, Files, Load};
use crate::execute::waiting;
use crate::sync::lock;

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

impl Held {
    /// Returns true if both are batches of one multitask in memory.
    fn goes_with(&self, next: &Held) -> bool {
        self.from == next.from && self.item.batch().is_some() && next.item.batch().is_some()
    }
}

#[derive(Clone)]
enum Item {
    Batch(Compact),
    Block(Arc<Block>),
}

impl Item {
    /// Returns the batch; `None` if it is on disk.
    fn batch(&self) -> Option<&Compact> {
        match self {
            Item::Batch(batch) => Some(batch),
            Item::Block(_) => None,
        }
    }

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

/// The keys of a build side, by which its join filters the other side.
pub(crate) struct BuildKeys {
    columns: Vec<usize>,
    /// Maximum memory of those on disk.
    max_bytes: u64,
    /// The keys of batches on disk; `None` if they take more, or are not needed any more.
    on_disk: Mutex<Option<Vec<Compact>>>,
}

impl BuildKeys {
    pub(crate) fn new(columns: Vec<usize>, max_bytes: u64) -> Self {
        Self { columns, max_bytes, on_disk: Mutex::new(Some(Vec::new())) }
    }

    fn of<'a>(&self, batches: impl Iterator<Item = &'a Compact>) -> Result<Vec<Compact>> {
        Ok(batches.map(|batch| batch.project(&self.columns)).collect::<Result<_, _>>()?)
    }
}

/// Returns the memory of batches.
fn bytes_of(batches: &[Compact]) -> u64 {
    batches.iter().map(|batch| batch.bytes).sum()
}

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
    /// True if one multitask may read all partitions, such as a merge.
    merged: bool,
    keys: Option<BuildKeys>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} partitions)", self.parts.len())
    }
}

impl Exchange {
    pub(crate) fn new(partitions: usize, shared: bool, stage: StageIx, ledger: Arc<dyn Ledger>) -> Self {
        let parts = (0..partitions).map(|_| Mutex::default()).collect();
        Self { parts, shared, stage, ledger, files: None, merged: false, keys: None }
    }

    /// Lets batches that do not fit into memory go to `files`.
    pub(crate) fn spilling(mut self, files: Option<Files>, merged: bool) -> Self {
        (self.files, self.merged) = (files, merged);
        self
    }

    /// Keeps the keys of batches until [`Exchange::keys`].
    pub(crate) fn keeping(mut self, keys: Option<BuildKeys>) -> Self {
        self.keys = keys;
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
        if let Some(keys) = &self.keys {
            let kept = keys.of(parts.iter().flat_map(|(_, batches)| batches))?;
            let bytes = bytes_of(&kept);
            if self.ledger.hold(self.stage, bytes).is_err() {
                self.forget_keys();
            } else if !self.keep(kept, bytes) {
                self.release(bytes);
            }
        }
        let (blocks, monotask) = files.write(parts)?;
        for (partition, block) in blocks {
            lock(&self.parts[partition]).push_back(Held { from, item: Item::Block(Arc::new(block)) });
        }
        Ok(Some(monotask))
    }

    /// Returns the exchange. Operators may move its batches to disk.
    pub(crate) fn movable(self) -> Arc<Self> {
        let exchange = Arc::new(self);
        let weak = Arc::downgrade(&exchange);
        if let Some(files) = exchange.files.as_ref().filter(|_| !exchange.shared) {
            files.may_move(weak);
        }
        exchange
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
        Self::new(partitions, false, self.stage, Arc::clone(&self.ledger)).spilling(files, self.merged)
    }

    /// Moves a partition to one of another exchange of the same stages. Returns false if others read it as well.
    pub(crate) fn move_to(&self, partition: usize, to: &Exchange, at: usize) -> bool {
        if !self.shared {
            let moved = std::mem::take(&mut *lock(&self.parts[partition]));
            *lock(&to.parts[at]) = moved;
        }
        !self.shared
    }

    /// Keeps keys of batches that go to disk, of which `reserved` bytes are reserved. Returns false, and forgets all keys, if
    /// they take more, or too much.
    fn keep(&self, keys: Vec<Compact>, reserved: u64) -> bool {
        let Some(BuildKeys { max_bytes, on_disk, .. }) = &self.keys else { return false };
        let (mut on_disk, bytes) = (lock(on_disk), bytes_of(&keys));
        let fits =
            bytes <= reserved && on_disk.as_ref().is_some_and(|kept| bytes_of(kept) + bytes <= *max_bytes);
        match on_disk.as_mut().filter(|_| fits) {
            Some(kept) => kept.extend(keys),
            None => self.release(on_disk.take().map_or(0, |kept| bytes_of(&kept))),
        }
        fits
    }

    /// Returns the key columns, and the keys of all batches, which are kept no longer; `None` if those on disk take too much.
    ///
    /// # Errors
    /// Returns an error if the batches have no such columns.
    pub(crate) fn keys(&self) -> Result<Option<(&[usize], Vec<Compact>)>> {
        let Some(keys) = &self.keys else { return Ok(None) };
        let mut all = Vec::new();
        for part in &self.parts {
            all.extend(keys.of(lock(part).iter().filter_map(|held| held.item.batch()))?);
        }
        // Batches that go to disk meanwhile are there twice.
        let Some(on_disk) = self.forget_keys() else { return Ok(None) };
        all.extend(on_disk);
        Ok(Some((&keys.columns, all)))
    }

    fn forget_keys(&self) -> Option<Vec<Compact>> {
        let kept = lock(&self.keys.as_ref()?.on_disk).take()?;
        self.release(bytes_of(&kept));
        Some(kept)
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

impl Movable for Exchange {
    fn move_to_disk(&self, bytes: u64) -> Result<u64> {
        let Some(files) = self.files.as_ref().filter(|files| !files.waits_for_disk()) else { return Ok(0) };
        let mut moved = 0;
        // Those that are read last.
        for part in self.parts.iter().rev() {
            if moved >= bytes {
                break;
            }
            // A reader that comes meanwhile waits, and finds all batches.
            let mut part = lock(part);
            let (mut at, mut of_part) = (part.len(), 0);
            while at > 0 && moved + of_part < bytes {
                at -= 1;
                of_part += part[at].item.bytes();
            }
            if of_part == 0 {
                continue;
            }
            let tail: Vec<Held> = part.range(at..).cloned().collect();
            let runs: Vec<&[Held]> = tail.chunk_by(Held::goes_with).collect();
            let batches = |run: &[Held]| run.iter().filter_map(|held| held.item.batch().cloned()).collect();
            let keys =
                self.keys.as_ref().map(|keys| keys.of(tail.iter().filter_map(|held| held.item.batch())));
            let keys = keys.transpose()?.unwrap_or_default();
            let (blocks, monotask) =
                files.write(runs.iter().enumerate().map(|(run, held)| (run, batches(held))).collect())?;
            // Their memory is a part of what these batches have reserved, most of which is needed.
            let of_keys = bytes_of(&keys);
            let of_keys = if self.keep(keys, of_part / 2) { of_keys } else { 0 };
            let mut blocks = blocks.into_iter().peekable();
            part.truncate(at);
            for (at, run) in runs.iter().enumerate() {
                part.extend(run.iter().filter(|held| held.item.batch().is_none()).cloned());
                while let Some((_, block)) = blocks.next_if(|(run, _)| *run == at) {
                    part.push_back(Held { from: run[0].from, item: Item::Block(Arc::new(block)) });
                }
            }
            drop(part);
            self.release(of_part - of_keys);
            moved += of_part - of_keys;
            waiting::ask(vec![monotask], Waker::noop());
        }
        Ok(moved)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        (0..self.parts.len()).for_each(|partition| drop(self.clear(partition)));
        self.forget_keys();
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
    fn load(&mut self, block: Arc<Block>) {
        let Some(files) = &self.exchange.files else { return };
        let ahead =
            files.shares().ahead_bytes(if self.exchange.merged { self.exchange.partitions() } else { 1 });
        let mut bytes = block.bytes();
        let mut loads = vec![Load::new(block)];
        while bytes < ahead {
            let Some(next) = self.next_block() else { break };
            bytes += next.bytes();
            loads.push(Load::new(next));
        }
        waiting::read(&loads);
        self.loads = loads.into();
    }

    /// Takes the next item if it is a block.
    fn next_block(&mut self) -> Option<Arc<Block>> {
        let block = self.exchange.next_block(self.partition, self.position)?;
        self.position += 1;
        Some(block)
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
                    Ok(Some(batches)) => self.loaded = batches.into(),
                    Ok(None) => {
                        waiting::wait_for(load, cx.waker());
                        return Poll::Pending;
                    }
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
                self.loads.pop_front();
                // A merge that waits for one partition reads what it needs next of the others as well.
                if self.loads.is_empty()
                    && self.exchange.merged
                    && let Some(next) = self.next_block()
                {
                    self.load(next);
                }
                continue;
            }
            let item = self.exchange.next(self.partition, self.position);
            self.position += 1;
            match item {
                None => return Poll::Ready(None),
                Some(Item::Batch(batch)) => return Poll::Ready(Some(Ok(batch.batch()?))),
                Some(Item::Block(block)) => self.load(block),
            }
        }
    }
}

impl RecordBatchStream for ExchangeStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use futures::TryStreamExt;
    use pellucid_runtime::{Options, Runtime};

    use crate::execute::memory::ledger::Unlimited;
    use crate::execute::memory::shares::Shares;
    use crate::execute::memory::usage::{Holder, Usage, computing};
    use crate::execute::spill::{Folders, Spill};
    use crate::execute::waiting::Work;

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
    }

    /// Reads a partition to its end, without a disk.
    fn read(exchange: &Arc<Exchange>, partition: usize) -> Vec<i64> {
        let stream = ExchangeStream {
            exchange: Arc::clone(exchange),
            schema: batch(0..1).schema(),
            partition,
            position: 0,
            loads: VecDeque::new(),
            loaded: VecDeque::new(),
        };
        let batches = Work::new(stream.try_collect::<Vec<_>>()).unwrap().run().result.unwrap().unwrap();
        let values = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        batches.iter().flat_map(values).collect()
    }

    fn spill(usage: &Arc<Usage>) -> Arc<Spill> {
        let runtime = Runtime::new(Options { cores: 1, ..Options::default() }).unwrap();
        let folders = Folders::new(vec![std::env::temp_dir()]);
        Arc::new(Spill { runtime, folders, shares: Shares::of(400_000, 1), usage: Arc::clone(usage) })
    }

    /// Counts the bytes that are held, and has room for none.
    #[derive(Default)]
    struct Full(AtomicI64);

    impl Ledger for Full {
        fn has_room(&self, _bytes: u64) -> bool {
            false
        }

        fn hold(&self, _stage: StageIx, bytes: u64) -> Result<()> {
            self.0.fetch_add(bytes as i64, Ordering::Relaxed);
            Ok(())
        }

        fn release(&self, _stage: StageIx, bytes: u64) {
            self.0.fetch_sub(bytes as i64, Ordering::Relaxed);
        }

        fn is_stopped(&self) -> bool {
            false
        }
    }

    #[test]
    fn keys_of_batches_on_disk_are_kept() {
        let usage = Arc::new(Usage::default());
        let spill = spill(&usage);
        // Two bytes for each of 5,000 keys; one batch stays in memory.
        for (max_bytes, kept) in [(30_000, true), (29_000, false)] {
            let full = Arc::new(Full::default());
            let held = || full.0.load(Ordering::Relaxed);
            let ledger = Arc::clone(&full) as Arc<dyn Ledger>;
            let exchange = Exchange::new(2, false, 0, ledger).spilling(Some(spill.files()), false);
            let exchange = exchange.keeping(Some(BuildKeys::new(vec![1], max_bytes))).movable();
            for from in 0..4 {
                let keys = batch(from * 5000..(from + 1) * 5000);
                let wide: Int64Array =
                    batch(0..5000).column(0).as_primitive::<Int64Type>().unary(|v: i64| v << 40);
                let columns: [(_, ArrayRef); 2] =
                    [("wide", Arc::new(wide)), ("key", Arc::clone(keys.column(0)))];
                let compact = Compact::of(RecordBatch::try_from_iter(columns).unwrap());
                let (of_batch, part) = (compact.bytes, (from % 2) as usize);
                if from < 2 {
                    assert!(exchange.put(from as u32, vec![(part, vec![compact])]).unwrap().is_some());
                } else {
                    // It stays in memory, and makes room for others.
                    full.hold(0, of_batch).unwrap();
                    lock(&exchange.parts[part])
                        .push_back(Held { from: from as u32, item: Item::Batch(compact) });
                    if from == 3 {
                        assert!(exchange.move_to_disk(1).unwrap() > 30_000);
                    }
                }
            }
            let found = exchange.keys().unwrap();
            assert_eq!(found.is_some(), kept, "{max_bytes}");
            if let Some((columns, keys)) = found {
                let values = |keys: &Compact| {
                    keys.batch().unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()
                };
                let mut all: Vec<i64> = keys.iter().flat_map(values).collect();
                all.sort_unstable();
                assert_eq!((columns, all), ([1].as_slice(), (0..20_000).collect()));
            }
            assert!(exchange.keys().unwrap().is_none(), "they are kept no longer");
            assert!(held() > 40_000, "one batch is in memory: {}", held());
            drop(exchange);
            assert_eq!(held(), 0, "{max_bytes}");
        }
    }

    #[test]
    fn batches_that_make_room_stay_in_order() {
        let usage = Arc::new(Usage::default());
        let spill = spill(&usage);
        let exchange =
            Exchange::new(3, false, 0, Arc::new(Unlimited)).spilling(Some(spill.files()), false).movable();
        // Two batches for each partition from each of two multitasks, the later one first.
        let values = |from: i64, part: i64, at: i64| {
            let first = ((part * 2 + from) * 2 + at) * 5000;
            first..first + 5000
        };
        for from in [1, 0] {
            let batches = |part| (0..2).map(|at| Compact::of(batch(values(from, part, at)))).collect();
            let parts = (0..3).map(|part| (part as usize, batches(part))).collect();
            assert!(exchange.put(from as u32, parts).unwrap().is_none());
        }
        exchange.seal();
        let of_part = lock(&exchange.parts[0]).iter().map(|held| held.item.bytes()).sum::<u64>();
        let in_memory =
            |part: usize| lock(&exchange.parts[part]).iter().filter(|h| h.item.bytes() > 0).count();
        // One partition, and one batch of the next.
        let moved = exchange.move_to_disk(of_part + 1).unwrap();
        assert!(moved > of_part && moved < 2 * of_part, "{moved} of {of_part}");
        assert_eq!([0, 1, 2].map(in_memory), [4, 3, 0]);
        // The rest of that one, through what may be moved.
        assert!(computing(&usage, 0, || Holder::current("test")).unwrap().make_room(1).unwrap());
        assert_eq!([0, 1, 2].map(in_memory), [4, 2, 0]);
        for part in 0..3 {
            assert_eq!(
                read(&exchange, part as usize),
                (part * 20_000..(part + 1) * 20_000).collect::<Vec<_>>()
            );
        }
        drop(exchange);
        assert!(
            !computing(&usage, 0, || Holder::current("test")).unwrap().make_room(1).unwrap(),
            "none is left"
        );
    }
}
