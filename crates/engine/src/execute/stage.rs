//! Prepares a planned stage for execution: its plan with leaves in memory, and its multitasks' reads.
//!
//! A stage is prepared after all stages that it waits for have ended, so that filters of build sides
//! prune its scans. Leaves at cuts read exchanges. Scans are divided into multitasks. Operators that
//! are not split are wrapped so that their time is measured.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{Distribution, Partitioning, PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::union::UnionExec;

use crate::execute::exchange::{Exchange, ExchangeExec, Ledger};
use crate::execute::timing::{Part, TimedExec};
use crate::plan::cut::{Node, Output, PlannedStage, StagePlan, key, pairs_partitions};
use crate::scan::dynamic_filter::KeyFilter;
use crate::scan::parquet::{self, Division, Metadata, ParquetScan};
use crate::scan::text;
use crate::scan::{Scan, Source};
use crate::stores::{JobIo, in_store};

/// Scans that a multitask reads, each with the index of the scan's own multitask.
pub(crate) type Reads = Vec<(Arc<Scan>, usize)>;

/// A stage that is ready to run.
pub(crate) struct ReadyStage {
    pub plan: Node,
    /// Reads of each multitask.
    pub reads: Vec<Reads>,
    /// Memory that each multitask needs for admission.
    pub memory: Vec<u64>,
    /// Receives the stage's output.
    pub exchange: Arc<Exchange>,
    /// True if one multitask runs all partitions of `plan`.
    pub whole: bool,
    /// Number of multitasks that have not finished computing.
    pub computing: AtomicUsize,
    /// Number of multitasks that have not ended.
    pub left: AtomicUsize,
    /// Number of output rows, counted only if there is a limit.
    pub rows: AtomicUsize,
    /// Set when a limit is reached; multitasks that have not run skip their work.
    pub stop: AtomicBool,
}

/// Builds stages that are ready to run.
pub(crate) struct Builder<'a> {
    pub plan: &'a StagePlan,
    pub metadata: &'a Metadata,
    pub io: &'a JobIo,
    pub ledger: &'a Arc<dyn Ledger>,
    /// Returns the exchange of a stage that has started.
    pub exchanges: &'a dyn Fn(usize) -> Option<Arc<Exchange>>,
    pub open: &'a dyn Fn(
        &datafusion::datasource::physical_plan::FileScanConfig,
        &PartitionedFile,
    ) -> Result<Source>,
    /// Minimum number of multitasks of a divided scan.
    pub min_partitions: usize,
}

/// Constraints that the nodes above put on a node's partitions.
#[derive(Clone, Copy)]
struct Constraints {
    /// True if the number of partitions must not change.
    pinned: bool,
    /// True if a scan of one partition may be divided.
    divisible: bool,
}

impl Builder<'_> {
    /// Prepares stage `index`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be opened, or DataFusion cannot rebuild the plan.
    pub(crate) fn ready(&self, index: usize) -> Result<ReadyStage> {
        let stage = &self.plan.stages[index];
        let mut scans = HashMap::new();
        let constraints = Constraints { pinned: stage.whole, divisible: stage.divisible };
        let plan = self.node(&stage.root, stage, index, constraints, &mut scans)?;
        let partitions = plan.output_partitioning().partition_count();
        let reads: Vec<Reads> = if stage.whole {
            vec![scans.values().flat_map(|s| (0..s.tasks.len()).map(|t| (Arc::clone(s), t))).collect()]
        } else {
            (0..partitions).map(|p| reads_of(&plan, p, &scans)).collect()
        };
        let memory = (0..reads.len()).map(|p| memory_of(&plan, p, &reads[p])).collect();
        let out = match &stage.output {
            Output::Divide(p) => p.partition_count(),
            Output::Keep => partitions,
            Output::Gather { .. } | Output::Scalar(..) => 1,
        };
        let shared = self.plan.cuts.values().any(|c| c.stage == index && c.readers > 1);
        let n = reads.len();
        Ok(ReadyStage {
            plan,
            reads,
            memory,
            exchange: Arc::new(Exchange::new(out, shared, Arc::clone(self.ledger))),
            whole: stage.whole,
            computing: AtomicUsize::new(n),
            left: AtomicUsize::new(n),
            rows: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn node(
        &self,
        node: &Node,
        stage: &PlannedStage,
        index: usize,
        constraints: Constraints,
        scans: &mut HashMap<usize, Arc<Scan>>,
    ) -> Result<Node> {
        let cut = self.plan.cuts.get(&key(node)).filter(|c| c.stage != index && !stage.whole);
        if let Some(exchange) = cut.and_then(|c| (self.exchanges)(c.stage)) {
            return Ok(ExchangeExec::in_place_of(node, exchange));
        }
        if !stage.whole {
            if let Some(r) = node.downcast_ref::<RepartitionExec>()
                && matches!(r.partitioning(), Partitioning::RoundRobinBatch(_))
            {
                let constraints = Constraints { divisible: true, ..constraints };
                return self.node(r.input(), stage, index, constraints, scans);
            }
            if let Some(s) = node.downcast_ref::<ScalarSubqueryExec>() {
                return self.node(s.input(), stage, index, constraints, scans);
            }
        }
        if let Some(scan) = self.scan(node, constraints, scans)? {
            return Ok(scan);
        }
        let children = node.children();
        if children.is_empty() {
            return Ok(Arc::clone(node));
        }
        let pinned = constraints.pinned || pairs_partitions(node);
        // More partitions would break a node that requires a single partition or limits each of them.
        let divisible = constraints.divisible && node.fetch().is_none();
        let wanted = node.input_distribution_requirements().into_per_child();
        let mut children = children
            .into_iter()
            .enumerate()
            .map(|(i, child)| {
                let divisible =
                    divisible && matches!(wanted.get(i), None | Some(Distribution::UnspecifiedDistribution));
                self.node(child, stage, index, Constraints { pinned, divisible }, scans)
            })
            .collect::<Result<Vec<_>>>()?;
        let split = is_split(node) && !stage.whole;
        if !split {
            children =
                children.into_iter().map(|c| TimedExec::wrap(c, Part::Operators, self.ledger)).collect();
        }
        let rebuilt = replace_children_if_necessary(Arc::clone(node), children)?;
        Ok(if split { rebuilt } else { TimedExec::wrap(rebuilt, Part::NotSplit, self.ledger) })
    }

    /// Returns the leaf that decodes a file scan from memory; `None` for other nodes.
    fn scan(
        &self,
        node: &Node,
        constraints: Constraints,
        scans: &mut HashMap<usize, Arc<Scan>>,
    ) -> Result<Option<Node>> {
        let Some(config) = text::file_scan(node) else { return Ok(None) };
        let one = config.file_groups.len() <= 1;
        // Nodes above may rely on the order within each planned partition.
        let ordered = !one && !config.output_ordering.is_empty();
        let pinned = constraints.pinned
            || ordered
            || (one && !constraints.divisible)
            || config.limit.is_some() && one
            || (config.output_partitioning.is_some() && !constraints.divisible);
        let division = Division { pinned, min_partitions: self.min_partitions };
        let open = |file: &PartitionedFile| (self.open)(config, file);
        let (leaf, scan) = match ParquetScan::of(node) {
            Some(scan) => parquet::divide(&scan, division, self.metadata, &open)?,
            None => {
                let (leaf, scan, paths) = text::divide(config, division, &open)?;
                for (source, path) in paths.iter().enumerate() {
                    self.io.add(in_store(config.object_store_url.as_ref(), path), &scan, source);
                }
                (leaf, scan)
            }
        };
        let timed = TimedExec::wrap(leaf, Part::Decode, self.ledger);
        scans.insert(key(&timed), scan);
        let filtered = match ParquetScan::of(node).and_then(|s| s.source.filter()) {
            Some(predicate) => with_key_filters(timed, &predicate)?,
            None => timed,
        };
        Ok(Some(filtered))
    }
}

/// Adds the key filters of build sides above a scan.
fn with_key_filters(mut leaf: Node, predicate: &Arc<dyn PhysicalExpr>) -> Result<Node> {
    for part in split_conjunction(predicate) {
        let Some(dynamic) = part.downcast_ref::<DynamicFilterPhysicalExpr>() else { continue };
        let current = dynamic.current()?;
        for known in split_conjunction(&current) {
            if known.is::<KeyFilter>() {
                // Skips a key that is not a column of the scan's output.
                if let Ok(known) = reassign_expr_columns(Arc::clone(known), &leaf.schema()) {
                    leaf = Arc::new(FilterExec::try_new(known, leaf)?);
                }
            }
        }
    }
    Ok(leaf)
}

/// Returns true for operators whose work is split into single-resource monotasks.
pub(crate) fn is_split(node: &Node) -> bool {
    const SPLIT: [&str; 25] = [
        "AggregateExec",
        "BoundedWindowAggExec",
        "CoalesceBatchesExec",
        "CoalescePartitionsExec",
        "CooperativeExec",
        "CrossJoinExec",
        "DataSinkExec",
        "DataSourceExec",
        "EmptyExec",
        "FilterExec",
        "GlobalLimitExec",
        "HashJoinExec",
        "InterleaveExec",
        "LocalLimitExec",
        "NestedLoopJoinExec",
        "PartialSortExec",
        "PartitionedTopKExec",
        "PlaceholderRowExec",
        "ProjectionExec",
        "RepartitionExec",
        "SortExec",
        "SortMergeJoinExec",
        "SortPreservingMergeExec",
        "UnionExec",
        "WindowAggExec",
    ];
    SPLIT.contains(&node.name()) || node.is::<ScalarSubqueryExec>()
}

/// Returns the scans that multitask `partition` of `node` reads.
fn reads_of(node: &Node, partition: usize, scans: &HashMap<usize, Arc<Scan>>) -> Reads {
    if let Some(scan) = scans.get(&key(node)) {
        return vec![(Arc::clone(scan), partition)];
    }
    let count = |n: &Node| n.output_partitioning().partition_count();
    if node.is::<UnionExec>() {
        let mut at = partition;
        for child in node.children() {
            if at < count(child) {
                return reads_of(child, at, scans);
            }
            at -= count(child);
        }
        return Vec::new();
    }
    let child = |c: &Node| reads_of(c, partition.min(count(c).saturating_sub(1)), scans);
    node.children().into_iter().flat_map(child).collect()
}

/// Estimates the memory of multitask `partition`: its input, both raw and decoded, and the batches in
/// its input exchanges (a hash table or a sort of them is about as large).
fn memory_of(plan: &Node, partition: usize, reads: &Reads) -> u64 {
    let read: u64 = reads
        .iter()
        .map(|(scan, task)| &scan.tasks[*task])
        .map(|t| t.decoded_bytes + t.needs.iter().map(crate::scan::Need::bytes).sum::<u64>())
        .sum();
    read + exchange_bytes(plan, partition)
}

fn exchange_bytes(node: &Node, partition: usize) -> u64 {
    if let Some(leaf) = node.downcast_ref::<ExchangeExec>() {
        let exchange = leaf.exchange();
        return if partition < exchange.partitions() { exchange.bytes(partition) } else { 0 };
    }
    node.children().into_iter().map(|c| exchange_bytes(c, partition)).sum()
}
