//! Sinks of compute monotasks, which partition or collect their batches into an exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{BatchCoalescer, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::hash_utils::create_hashes;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::{BatchPartitioner, REPARTITION_RANDOM_STATE};
use pellucid_runtime::Monotask;

use crate::execute::compact::{Compact, batch_bytes};
use crate::execute::exchange::{Exchange, coalescer};
use crate::plan::cut::Output;

/// The sink of a compute monotask's batches.
pub(crate) struct Sink<'a> {
    to: To<'a>,
    /// The multitask.
    from: u32,
    memory: OutputMemory<'a>,
}

/// The limit of a stage's rows, which its multitasks share.
#[derive(Default)]
pub(crate) struct Limit {
    /// Number of output rows, counted only if there is a limit.
    rows: AtomicUsize,
    reached: AtomicBool,
}

impl Limit {
    /// Returns true once no more rows are needed.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Counts rows, and returns how many of them are within the limit.
    fn count(&self, rows: usize, limit: usize) -> usize {
        let before = self.rows.fetch_add(rows, Ordering::Relaxed);
        if before + rows >= limit {
            self.reached.store(true, Ordering::Relaxed);
        }
        limit.saturating_sub(before).min(rows)
    }
}

enum To<'a> {
    Divide { division: Division, first: usize, coalescers: Vec<BatchCoalescer>, parts: Vec<Vec<Compact>> },
    Collect { to: usize, fetch: Option<usize>, batches: Vec<Compact>, limit: &'a Limit },
}

/// How rows are divided.
pub(crate) enum Division {
    /// As planned.
    Planned(Box<BatchPartitioner>),
    /// Further, by hashes that have been divided by a number of partitions before.
    Further { keys: Vec<Arc<dyn PhysicalExpr>>, before: u64, parts: u64 },
}

impl Division {
    fn divide(
        &mut self,
        batch: RecordBatch,
        mut put: impl FnMut(usize, RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let (keys, before, parts) = match self {
            Division::Planned(partitioner) => return partitioner.partition(batch, put),
            Division::Further { keys, before, parts } => (keys, *before, *parts),
        };
        let arrays = evaluate_expressions_to_arrays(keys.iter(), &batch)?;
        let mut hashes = vec![0; batch.num_rows()];
        create_hashes(&arrays, REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
        let mut rows = vec![Vec::new(); parts as usize];
        for (row, hash) in (0_u32..).zip(hashes) {
            rows[(hash / before % parts) as usize].push(row);
        }
        let mut some = rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        some.try_for_each(|(to, rows)| put(to, take_record_batch(&batch, &UInt32Array::from(rows))?))
    }
}

/// The memory of a monotask's output until it goes to the exchange. Output beyond a step is reserved from the memory
/// budget; less is part of the memory with which the multitask was admitted.
struct OutputMemory<'a> {
    exchange: &'a Exchange,
    /// Bytes between two reservations.
    step: u64,
    bytes: u64,
    held: u64,
}

impl OutputMemory<'_> {
    /// Adds a batch to the count. Returns false if the output so far cannot be reserved and must be spilled.
    fn add(&mut self, batch: &RecordBatch) -> Result<bool> {
        self.bytes += batch_bytes(batch);
        let more = self.bytes - self.held;
        if more > self.step {
            if !self.exchange.hold(more)? {
                return Ok(false);
            }
            self.held = self.bytes;
        }
        Ok(true)
    }

    fn release(&mut self) {
        self.exchange.release(self.held);
        (self.bytes, self.held) = (0, 0);
    }
}

impl Drop for OutputMemory<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The next step after a batch.
pub(crate) enum Next {
    More,
    /// More, once this has been written.
    Write(Monotask),
    /// No more rows.
    Enough,
}

impl<'a> Sink<'a> {
    /// Creates the sink of a multitask. Output may grow by `step` bytes before it is reserved.
    ///
    /// # Errors
    /// Returns an error if rows cannot be divided as planned.
    pub(crate) fn new(
        output: &Output,
        multitask: usize,
        exchange: &'a Exchange,
        limit: &'a Limit,
        step: u64,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let partitions = exchange.partitions();
        if let Some(division) = output.division(partitions) {
            let partitioner = BatchPartitioner::try_new(division, Time::new(), multitask, 1)?;
            let division = Division::Planned(Box::new(partitioner));
            return Ok(Self::divide(exchange, multitask, division, 0..partitions, schema, step));
        }
        let (to, fetch) = match output {
            Output::Gather { fetch } => (0, *fetch),
            Output::Keep | Output::Divide(_) => (multitask, None),
            Output::Scalar(..) => (0, None),
        };
        let to = To::Collect { to, fetch, batches: Vec::new(), limit };
        let memory = OutputMemory { exchange, step, bytes: 0, held: 0 };
        Ok(Self { to, from: multitask as u32, memory })
    }

    /// Creates a sink of multitask `from` that divides its rows into some partitions of an exchange.
    pub(crate) fn divide(
        exchange: &'a Exchange,
        from: usize,
        division: Division,
        partitions: std::ops::Range<usize>,
        schema: &SchemaRef,
        step: u64,
    ) -> Self {
        let (first, count) = (partitions.start, partitions.len());
        let coalescers = (0..count).map(|_| coalescer(schema)).collect();
        let to = To::Divide { division, first, coalescers, parts: vec![Vec::new(); count] };
        Self { to, from: from as u32, memory: OutputMemory { exchange, step, bytes: 0, held: 0 } }
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted and the exchange cannot spill.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<Next> {
        let has_room = self.memory.add(&batch)?;
        match &mut self.to {
            To::Divide { division, coalescers, parts, .. } => division.divide(batch, |to, part| {
                coalescers[to].push_batch(part)?;
                while let Some(full) = coalescers[to].next_completed_batch() {
                    parts[to].push(Compact::of(full));
                }
                Ok(())
            })?,
            To::Collect { fetch: None, batches, .. } => batches.push(Compact::of(batch)),
            To::Collect { fetch: Some(fetch), batches, limit, .. } => {
                let wanted = limit.count(batch.num_rows(), *fetch);
                if wanted > 0 {
                    batches.push(Compact::of(batch.slice(0, wanted)));
                }
                if limit.is_reached() {
                    return Ok(Next::Enough);
                }
            }
        }
        if has_room {
            return Ok(Next::More);
        }
        let parts = self.take();
        self.memory.release();
        let written = self.memory.exchange.spill(self.from, parts)?;
        Ok(written.map_or(Next::More, Next::Write))
    }

    /// Takes the batches so far, by partition.
    fn take(&mut self) -> Vec<(usize, Vec<Compact>)> {
        match &mut self.to {
            To::Divide { first, parts, .. } => {
                let parts = parts.iter_mut().map(std::mem::take).enumerate();
                parts.filter(|(_, part)| !part.is_empty()).map(|(to, part)| (*first + to, part)).collect()
            }
            To::Collect { to, batches, .. } => vec![(*to, std::mem::take(batches))],
        }
    }

    /// Puts the output into the exchange. Returns what must be written if it does not fit into memory.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted and the exchange cannot spill.
    pub(crate) fn finish(mut self) -> Result<Option<Monotask>> {
        if let To::Divide { coalescers, parts, .. } = &mut self.to {
            for (coalescer, part) in coalescers.iter_mut().zip(parts) {
                coalescer.finish_buffered_batch()?;
                while let Some(rest) = coalescer.next_completed_batch() {
                    part.push(Compact::of(rest));
                }
            }
        }
        let parts = self.take();
        self.memory.release(); // the exchange reserves it from here on
        self.memory.exchange.put(self.from, parts)
    }
}
