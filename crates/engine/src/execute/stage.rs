//! Prepares a planned stage for execution: its plan with leaves in memory, and its multitasks' reads.
//!
//! A stage is prepared after all stages that it waits for have ended, so that filters of build sides
//! prune its scans. Leaves at cuts read exchanges. Scans are divided into multitasks. Every node is
//! wrapped so that its core time is measured, and so are expressions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, DynamicFilterTracking};
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{Distribution, PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::union::UnionExec;

use crate::execute::divided_join::DividedJoinExec;
use crate::execute::exchange::{Exchange, ExchangeExec, Ledger};
use crate::execute::expressions;
use crate::execute::timing::{Measure, TimedExec};
use crate::execute::work::StageWork;
use crate::plan::cut::{Node, Output, PlannedStage, StagePlan, key, pairs_partitions};
use crate::plan::operators::{Operators, Place, detail};
use crate::scan::columns::ColumnsExec;
use crate::scan::dynamic_filter::KeyFilter;
use crate::scan::parquet::{self, Division, Metadata, ParquetScan};
use crate::scan::text::{self, Divided};
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
    /// Multitasks that start one after the other when all others have ended, ascending.
    pub last: Vec<usize>,
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
    pub work: StageWork,
}

/// Builds stages that are ready to run.
pub(crate) struct Builder<'a> {
    pub plan: &'a StagePlan,
    /// The operators of each stage.
    pub operators: &'a [Operators],
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
        let mut work = StageWork::default();
        let plan = self.node(&stage.root, stage, index, constraints, &mut scans, &mut work)?;
        let partitions = plan.output_partitioning().partition_count();
        let reads: Vec<Reads> = if stage.whole {
            vec![scans.values().flat_map(|s| (0..s.tasks.len()).map(|t| (Arc::clone(s), t))).collect()]
        } else {
            (0..partitions).map(|p| reads_of(&plan, p, &scans)).collect()
        };
        let memory = (0..reads.len()).map(|p| memory_of(&plan, p, &reads[p])).collect();
        let last = if stage.whole { Vec::new() } else { last_of(&plan) };
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
            last,
            exchange: Arc::new(Exchange::new(out, shared, Arc::clone(self.ledger))),
            whole: stage.whole,
            computing: AtomicUsize::new(n),
            left: AtomicUsize::new(n),
            rows: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            work,
        })
    }

    fn node(
        &self,
        node: &Node,
        stage: &PlannedStage,
        index: usize,
        constraints: Constraints,
        scans: &mut HashMap<usize, Arc<Scan>>,
        work: &mut StageWork,
    ) -> Result<Node> {
        let place = self.operators[index].places.get(&key(node)).copied();
        let cut = self.plan.cuts.get(&key(node)).filter(|c| c.stage != index && !stage.whole);
        if let Some(exchange) = cut.and_then(|c| (self.exchanges)(c.stage)) {
            let leaf = ExchangeExec::in_place_of(node, exchange);
            return Ok(
                self.timed(leaf, Measure::of(place).map(|measure| Measure { counts_bytes: true, ..measure }))
            );
        }
        if let Some(input) = self.plan.skipped(node).filter(|_| !stage.whole) {
            let divisible = constraints.divisible || !node.is::<ScalarSubqueryExec>();
            return self.node(input, stage, index, Constraints { divisible, ..constraints }, scans, work);
        }
        if let Some(scan) = self.scan(node, constraints, scans, place, work)? {
            return Ok(scan);
        }
        let children = node.children();
        let divided = self.plan.divided.contains(&key(node)) && !stage.whole;
        let pinned = constraints.pinned || pairs_partitions(node) && !divided;
        // More partitions would break a node that requires a single partition or limits each of them.
        let divisible = constraints.divisible && node.fetch().is_none();
        let wanted = node.input_distribution_requirements().into_per_child();
        let children = children
            .into_iter()
            .enumerate()
            .map(|(i, child)| {
                let divisible =
                    divisible && matches!(wanted.get(i), None | Some(Distribution::UnspecifiedDistribution));
                let child = self.node(child, stage, index, Constraints { pinned, divisible }, scans, work)?;
                // A join with a build side has built it when it first asks for a row of its other side.
                let probes = place.filter(|place| i > 0 && place.build.is_some()).map(|place| place.own);
                Ok(match probes {
                    Some(probe) => TimedExec::called_by(child, probe),
                    None => child,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let rebuilt = replace_children_if_necessary(Arc::clone(node), children)?;
        let Some((place, measure)) = place.zip(Measure::of(place)) else { return Ok(rebuilt) };
        let properties = Arc::clone(rebuilt.properties());
        let (timed, timers) = expressions::timed(rebuilt)?;
        let (timed, properties) = match timed.downcast_ref::<HashJoinExec>().filter(|_| divided) {
            Some(join) => {
                let join: Node = Arc::new(DividedJoinExec::new(join));
                let properties = Arc::clone(join.properties());
                (join, properties)
            }
            None => (timed, properties),
        };
        work.nodes.push((place.build.unwrap_or(place.own), Arc::clone(&timed)));
        work.timers.extend(timers.into_iter().map(|timer| (place.own, timer)));
        Ok(TimedExec::wrap(timed, &properties, measure, self.ledger))
    }

    fn timed(&self, node: Node, measure: Option<Measure>) -> Node {
        match measure {
            Some(measure) => TimedExec::wrap(Arc::clone(&node), node.properties(), measure, self.ledger),
            None => node,
        }
    }

    /// Returns the leaf that decodes a file scan from memory; `None` for other nodes.
    fn scan(
        &self,
        node: &Node,
        constraints: Constraints,
        scans: &mut HashMap<usize, Arc<Scan>>,
        place: Option<Place>,
        work: &mut StageWork,
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
        let in_order = !is_ordered_by_top_k(node);
        let division = Division { pinned, min_partitions: self.min_partitions, in_order };
        let open = |file: &PartitionedFile| (self.open)(config, file);
        let (leaf, scan, timers) = match ParquetScan::of(node) {
            Some(scan) => {
                let (leaf, scan) = parquet::divide(&scan, division, self.metadata, &open)?;
                let by_column = leaf.downcast_ref::<ColumnsExec>();
                let timers = by_column.into_iter().flat_map(ColumnsExec::timers).cloned().collect();
                (leaf, scan, timers)
            }
            None => {
                let Divided { leaf, scan, paths, timers } = text::divide(config, division, &open)?;
                for (source, path) in paths.iter().enumerate() {
                    self.io.add(in_store(config.object_store_url.as_ref(), path), &scan, source);
                }
                (leaf, scan, timers)
            }
        };
        scans.insert(key(&leaf), scan);
        if let Some(place) = place {
            work.timers.extend(timers.into_iter().map(|timer| (place.own, timer)));
            work.nodes.push((place.own, Arc::clone(&leaf)));
        }
        let decodes = |measure| Measure { decodes: true, counts_bytes: true, ..measure };
        let timed = self.timed(leaf, Measure::of(place).map(decodes));
        let filtered = match ParquetScan::of(node).and_then(|s| s.source.filter()) {
            Some(predicate) => with_key_filters(timed, &predicate)?,
            None => timed,
        };
        let keys = place.and_then(|place| place.keys);
        Ok(Some(self.timed(filtered, keys.map(|operator| Measure { operator, ..Measure::default() }))))
    }
}

/// Returns true for a scan below a TopK, whose row groups DataFusion's opener sorts so that it can leave out most of them.
fn is_ordered_by_top_k(node: &Node) -> bool {
    let predicate = ParquetScan::of(node).and_then(|scan| scan.source.filter());
    let tightens = predicate.is_some_and(|predicate| {
        matches!(DynamicFilterTracking::classify(&predicate), DynamicFilterTracking::Watching(_))
    });
    // The source has no other way to ask for its order.
    tightens && detail(node).is_some_and(|detail| detail.contains(", sort_order_for_reorder=["))
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
    if node.downcast_ref::<DividedJoinExec>().is_some_and(|join| join.last() == Some(partition)) {
        return Vec::new();
    }
    let child = |c: &Node| reads_of(c, partition.min(count(c).saturating_sub(1)), scans);
    node.children().into_iter().flat_map(child).collect()
}

/// Returns the partitions of `node` that may run only after those before them, ascending.
fn last_of(node: &Node) -> Vec<usize> {
    let mut last = Vec::new();
    let mut from = 0;
    for child in node.children() {
        last.extend(last_of(child).into_iter().map(|partition| from + partition));
        if node.is::<UnionExec>() {
            from += child.output_partitioning().partition_count();
        }
    }
    last.extend(node.downcast_ref::<DividedJoinExec>().and_then(DividedJoinExec::last));
    last
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
