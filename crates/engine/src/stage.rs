//! A planned stage made ready to run: its plan with memory leaves, its multitasks' reads.
//!
//! This happens when everything that the stage waits for has ended, so that its scans are
//! pruned with what the build sides know. Leaves above cuts read exchanges; scans are divided
//! into multitasks; what was not split is wrapped so that its time is counted.

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

use crate::cut::{Node, Output, PlannedStage, StagePlan, key, pairs_partitions};
use crate::dynamic_filter::KeyFilter;
use crate::exchange::{Exchange, ExchangeExec, Ledger};
use crate::parquet::{self, Division, Metadata, ParquetScan};
use crate::scan::{Scan, Source};
use crate::stores::{JobIo, in_store};
use crate::text;
use crate::timing::{Part, TimedExec};

/// A scan and the multitask of it.
pub(crate) type Reads = Vec<(Arc<Scan>, usize)>;

/// A stage that is ready to run.
pub(crate) struct ReadyStage {
    pub plan: Node,
    /// What each multitask reads.
    pub reads: Vec<Reads>,
    /// Memory that each multitask is admitted with.
    pub memory: Vec<u64>,
    /// Where its output goes.
    pub exchange: Arc<Exchange>,
    /// Partitions of `plan` that one multitask runs: all of them in a whole stage.
    pub whole: bool,
    /// Multitasks whose computing has not ended.
    pub computing: AtomicUsize,
    /// Multitasks that have not ended.
    pub left: AtomicUsize,
    /// Rows put out, counted where a limit needs it.
    pub rows: AtomicUsize,
    /// A limit is reached: what has not run need not.
    pub stop: AtomicBool,
}

/// What making a stage ready needs of its job.
pub(crate) struct Builder<'a> {
    pub plan: &'a StagePlan,
    pub metadata: &'a Metadata,
    pub io: &'a JobIo,
    pub ledger: &'a Arc<dyn Ledger>,
    /// Outputs of the stages so far.
    pub exchanges: &'a dyn Fn(usize) -> Option<Arc<Exchange>>,
    pub open: &'a dyn Fn(
        &datafusion::datasource::physical_plan::FileScanConfig,
        &PartitionedFile,
    ) -> Result<Source>,
    /// Multitasks that a divided scan should have at least.
    pub at_least: usize,
}

/// How a node stands within its stage.
#[derive(Clone, Copy)]
struct Place {
    /// Its number of partitions must stay.
    pinned: bool,
    /// A scan of one partition may be divided.
    free: bool,
}

impl Builder<'_> {
    /// Makes stage `index` ready.
    ///
    /// # Errors
    /// A file that cannot be opened; a plan that DataFusion refuses to rebuild.
    pub(crate) fn ready(&self, index: usize) -> Result<ReadyStage> {
        let stage = &self.plan.stages[index];
        let mut scans = HashMap::new();
        let place = Place { pinned: stage.whole, free: stage.divisible };
        let plan = self.node(&stage.root, stage, index, place, &mut scans)?;
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
        place: Place,
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
                return self.node(r.input(), stage, index, Place { free: true, ..place }, scans);
            }
            if let Some(s) = node.downcast_ref::<ScalarSubqueryExec>() {
                return self.node(s.input(), stage, index, place, scans);
            }
        }
        if let Some(scan) = self.scan(node, place, scans)? {
            return Ok(scan);
        }
        let children = node.children();
        if children.is_empty() {
            return Ok(Arc::clone(node));
        }
        let pinned = place.pinned || pairs_partitions(node);
        // One that wants all rows in one partition, or so many of each, would have several, or more.
        let free = place.free && node.fetch().is_none();
        let wanted = node.input_distribution_requirements().into_per_child();
        let mut children = children
            .into_iter()
            .enumerate()
            .map(|(i, child)| {
                let free =
                    free && matches!(wanted.get(i), None | Some(Distribution::UnspecifiedDistribution));
                self.node(child, stage, index, Place { pinned, free }, scans)
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

    /// The memory leaf of a scan of files.
    fn scan(&self, node: &Node, place: Place, scans: &mut HashMap<usize, Arc<Scan>>) -> Result<Option<Node>> {
        let Some(config) = text::file_scan(node) else { return Ok(None) };
        let one = config.file_groups.len() <= 1;
        // What stands above may rely on the order within each of the plan's partitions.
        let ordered = !one && !config.output_ordering.is_empty();
        let pinned = place.pinned
            || ordered
            || (one && !place.free)
            || config.limit.is_some() && one
            || (config.output_partitioning.is_some() && !place.free);
        let division = Division { pinned, at_least: self.at_least };
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

/// The scan's rows that a build side's keys let pass.
fn with_key_filters(mut leaf: Node, predicate: &Arc<dyn PhysicalExpr>) -> Result<Node> {
    for part in split_conjunction(predicate) {
        let Some(dynamic) = part.downcast_ref::<DynamicFilterPhysicalExpr>() else { continue };
        let current = dynamic.current()?;
        for known in split_conjunction(&current) {
            if known.is::<KeyFilter>() {
                // A key that the scan does not put out cannot be tested after it.
                if let Ok(known) = reassign_expr_columns(Arc::clone(known), &leaf.schema()) {
                    leaf = Arc::new(FilterExec::try_new(known, leaf)?);
                }
            }
        }
    }
    Ok(leaf)
}

/// Operators whose work is cut into single-resource monotasks.
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

/// Which scans multitask `partition` of `node` reads.
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

/// Memory that multitask `partition` needs: what it reads, decoded and not, and what its
/// exchanges hold for it (a hash table or a sort of them is about as large).
fn memory_of(plan: &Node, partition: usize, reads: &Reads) -> u64 {
    let read: u64 = reads
        .iter()
        .map(|(scan, task)| &scan.tasks[*task])
        .map(|t| t.decoded_bytes + t.needs.iter().map(crate::scan::Need::bytes).sum::<u64>())
        .sum();
    read + exchanged(plan, partition)
}

fn exchanged(node: &Node, partition: usize) -> u64 {
    if let Some(leaf) = node.downcast_ref::<ExchangeExec>() {
        let exchange = leaf.exchange();
        return if partition < exchange.partitions() { exchange.bytes(partition) } else { 0 };
    }
    node.children().into_iter().map(|c| exchanged(c, partition)).sum()
}
