//! Partitions of exchanges that are too large for a multitask.
//!
//! When the inputs of a stage are complete, their sizes are known. A partition that is larger than its share of memory is
//! divided again, by more bits of the hashes of its keys, in as many parts as it needs. All exchanges that a stage reads
//! by the same number of partitions are divided alike, since the stage may join them partition by partition.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::StreamExt;

use crate::execute::exchange::{Exchange, ExchangeExec};
use crate::execute::sink::{Division, Next, Sink};
use crate::execute::waiting;
use crate::plan::cut::{Node, Output, StagePlan, key};

/// Maximum number of parts of a partition.
const MAX_PARTS: u64 = 256;

/// An exchange that a stage reads by hash partitions.
struct Leaf {
    node: Node,
    stage: usize,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    exchange: Arc<Exchange>,
    /// True for the side of a join of which it keeps nothing.
    streams: bool,
}

/// An exchange whose partitions have been divided again.
pub(crate) struct Finer {
    /// The node that reads it.
    pub node: Node,
    /// The stage that wrote it.
    pub stage: usize,
    pub exchange: Arc<Exchange>,
    /// A node whose partitions divide those of the exchange and have no rows.
    pub divide: Node,
}

/// Divides what stage `index` reads, where a partition has more than `max_bytes`. The outputs of multitasks may grow by
/// `step` bytes before they are reserved.
///
/// # Errors
/// Returns an error if DataFusion refuses a node.
pub(crate) fn divide_again(
    plan: &StagePlan,
    index: usize,
    exchanges: &dyn Fn(usize) -> Option<Arc<Exchange>>,
    max_bytes: u64,
    step: u64,
) -> Result<Vec<Finer>> {
    let mut groups: BTreeMap<usize, Vec<Leaf>> = BTreeMap::new();
    for leaf in leaves(plan, index, exchanges) {
        let group = groups.entry(leaf.exchange.partitions()).or_default();
        if group.iter().all(|other| other.stage != leaf.stage) {
            group.push(leaf);
        }
    }
    let mut finer = Vec::new();
    for (count, group) in groups {
        let sizes = |partition| {
            group.iter().filter(|leaf| !leaf.streams).map(move |leaf| leaf.exchange.batch_bytes(partition))
        };
        let parts: Vec<u64> = (0..count).map(|at| parts(sizes(at).max().unwrap_or(0), max_bytes)).collect();
        if parts.iter().any(|parts| *parts > 1) {
            for leaf in group {
                finer.push(divided(leaf, &parts, step)?);
            }
        }
    }
    Ok(finer)
}

/// Returns the number of parts of a partition: about half of what fits each, since they differ.
pub(crate) fn parts(bytes: u64, max_bytes: u64) -> u64 {
    if bytes <= max_bytes { 1 } else { bytes.div_ceil((max_bytes / 2).max(1)).min(MAX_PARTS) }
}

/// Returns the exchanges that a stage reads by hash partitions, except those that become the tables of a whole stage.
fn leaves(plan: &StagePlan, index: usize, exchanges: &dyn Fn(usize) -> Option<Arc<Exchange>>) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut tables = Vec::new();
    let mut streams = Vec::new();
    plan.visit(index, &mut |node| {
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            match plan.divided(node, index) {
                Some((_, false)) => tables.push(key(join.left())),
                _ => streams.push(key(join.right())),
            }
        }
        let Some(stage) = plan.cut(node, index) else { return true };
        if let Output::Divide(Partitioning::Hash(keys, _)) = &plan.stage(stage).output
            && !tables.contains(&key(node))
            && let Some(exchange) = exchanges(stage)
        {
            let streams = streams.contains(&key(node));
            leaves.push(Leaf { node: Arc::clone(node), stage, keys: keys.clone(), exchange, streams });
        }
        false
    });
    leaves
}

/// Divides each partition of a leaf's exchange into `parts`. Partitions of one part only move.
fn divided(leaf: Leaf, parts: &[u64], step: u64) -> Result<Finer> {
    let total: u64 = parts.iter().sum();
    let from = &leaf.exchange;
    let to = from.divided_again(total as usize).movable();
    let input: Node = ExchangeExec::in_place_of(&leaf.node, Arc::clone(from));
    let schema = input.schema();
    let mut at = 0;
    let mut dividing: Vec<Arc<dyn PartitionStream>> = Vec::new();
    for (partition, &parts) in parts.iter().enumerate() {
        if parts > 1 || !from.move_to(partition, &to, at) {
            let (input, keys, to) = (Arc::clone(&input), leaf.keys.clone(), Arc::clone(&to));
            let (before, parts) = (from.partitions(), parts as usize);
            let part = Dividing { input, partition, keys, before, to, at, parts, step };
            dividing.push(Arc::new(Divide(Arc::new(part), Arc::clone(&schema))));
        }
        at += parts as usize;
    }
    let divide = Arc::new(StreamingTableExec::try_new(schema, dividing, None, [], false, None)?);
    Ok(Finer { node: leaf.node, stage: leaf.stage, exchange: to, divide })
}

/// A partition that is divided again.
struct Dividing {
    input: Node,
    partition: usize,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The number of partitions by which the hashes have been divided.
    before: usize,
    to: Arc<Exchange>,
    /// The first of its parts.
    at: usize,
    parts: usize,
    step: u64,
}

impl Dividing {
    async fn run(self: Arc<Self>, context: Arc<TaskContext>) -> Result<RecordBatch> {
        let schema = self.input.schema();
        let (before, parts) = (self.before as u64, self.parts as u64);
        let division = Division::Further { keys: self.keys.clone(), before, parts };
        let to = self.at..self.at + self.parts;
        let mut sink = Sink::divide(&self.to, self.partition, division, to, &schema, self.step);
        let mut input = self.input.execute(self.partition, context)?;
        while let Some(batch) = input.next().await {
            if let Next::Write(monotask) = sink.push(batch?)? {
                waiting::done(vec![monotask]).await;
            }
        }
        let rest = sink.finish()?;
        waiting::done(rest.into_iter().collect()).await;
        Ok(RecordBatch::new_empty(schema))
    }
}

/// The stream of a partition that is divided again, which has no rows.
struct Divide(Arc<Dividing>, SchemaRef);

impl fmt::Debug for Divide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} in {} parts", self.0.partition, self.0.parts)
    }
}

impl PartitionStream for Divide {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let divided = futures::stream::once(Arc::clone(&self.0).run(context));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.1), divided))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_even_if_they_differ() {
        assert_eq!([0, 100, 101, 1000, u64::MAX].map(|bytes| parts(bytes, 100)), [1, 1, 3, 20, MAX_PARTS]);
        assert_eq!(parts(5, 1), 5);
    }
}
