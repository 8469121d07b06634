//! Prepares a planned stage for execution: its plan with leaves in memory, and its multitasks' reads.
//!
//! A stage is prepared after all stages that it waits for have ended, so that filters of build sides
//! prune its scans. Leaves at cuts read exchanges. Scans are divided into multitasks. Every node is
//! wrapped so that its core time is measured, and so are expressions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{Distribution, Partitioning, PhysicalExpr, split_conjunction};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlanProperties, InputOrderMode};
use pellucid_trace::StageIx;

use crate::execute::divided_join::DividedJoinExec;
use crate::execute::exchange::{BuildKeys, Exchange, ExchangeExec};
use crate::execute::expressions;
use crate::execute::finer;
use crate::execute::memory::ledger::Ledger;
use crate::execute::memory::shares::Shares;
use crate::execute::sink::Limit;
use crate::execute::spill::Spill;
use crate::execute::timing::{Measure, TimedExec, known_as, unordered};
use crate::execute::work::StageWork;
use crate::plan::cut::{Node, Output, PlannedStage, StagePlan, key, pairs_partitions};
use crate::plan::estimates::row_bytes;
use crate::plan::operators::{Operators, Place, detail};
use crate::scan::columns::{ColumnsExec, Keys};
use crate::scan::dynamic_filter::KeyFilter;
use crate::scan::parquet::{self, Division, Metadata, ParquetScan};
use crate::scan::text::{self, Divided};
use crate::scan::{MULTITASK_BYTES, Need, Scan, Source};
use crate::stores::{JobIo, in_store};

/// Scans that a multitask reads, each with the index of the scan's own multitask.
pub(crate) type Reads = Vec<(Arc<Scan>, usize)>;

/// A stage that is ready to run.
pub(crate) struct ReadyStage {
    pub plan: Node,
    /// Reads of each multitask.
    pub reads: Vec<Reads>,
    /// Partitions without rows, which prepare inputs of the others. They are the multitasks after those of `plan`, and run
    /// first.
    pub builds: Vec<Build>,
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
    /// When it is reached, multitasks that have not run skip their work.
    pub limit: Limit,
    pub work: StageWork,
    pub operators: Arc<Operators>,
    /// Output of a multitask that may grow before it is reserved.
    pub step: u64,
}

/// A partition that builds the table of a join, or divides that of an exchange again.
pub(crate) struct Build {
    pub node: Node,
    pub partition: usize,
    /// Memory that it needs for admission.
    memory: u64,
}

impl ReadyStage {
    /// Returns the partition that a multitask runs instead of one of `plan`.
    pub(crate) fn build(&self, multitask: usize) -> Option<&Build> {
        self.builds.get(multitask.checked_sub(self.reads.len() - self.builds.len())?)
    }

    /// Estimates the memory that a multitask needs, once those that run before it have ended: its input, both raw and
    /// decoded, and the batches in its input exchanges (a hash table or a sort of them is about as large).
    pub(crate) fn memory(&self, multitask: usize) -> u64 {
        if let Some(build) = self.build(multitask) {
            return build.memory;
        }
        let reads = self.reads[multitask].iter().map(|(scan, task)| &scan.tasks[*task]);
        let read = reads.map(|task| task.decoded_bytes + task.needs.iter().map(Need::bytes).sum::<u64>());
        let read = read.sum::<u64>();
        // A sort has its input and its output at once. From an exchange, both fit by its share of the budget.
        let read = match sorted_bytes(&self.plan) {
            Some(sorted) => 2 * read.max(read * sorted as u64 / leaf_bytes(&self.plan).max(1) as u64),
            None => read,
        };
        read + exchange_bytes(&self.plan, multitask)
    }

    /// Returns the multitasks that start when `left` have not ended: those that prepare inputs, then the others, then the
    /// last ones.
    pub(crate) fn next(&self, left: usize) -> Vec<usize> {
        let of_plan = self.reads.len() - self.builds.len();
        if left > of_plan {
            return if left == self.reads.len() { (of_plan..left).collect() } else { Vec::new() };
        }
        match self.last.len().checked_sub(left) {
            Some(at) => self.last[at..].iter().take(1).copied().collect(),
            None if left == of_plan => {
                let mut others = self.spread();
                others.retain(|multitask| *multitask < of_plan && !self.last.contains(multitask));
                others
            }
            None => Vec::new(),
        }
    }

    /// Returns the multitasks in an order that alternates between the disks that they read first, so that all disks are
    /// busy from the start.
    fn spread(&self) -> Vec<usize> {
        let disk = |reads: &Reads| {
            let (scan, task) = reads.first()?;
            match &scan.sources[scan.tasks[*task].needs.first()?.source] {
                Source::Local(file) => Some(file.disk().name().to_string()),
                Source::Remote { .. } => None,
            }
        };
        let mut turns: BTreeMap<Option<String>, usize> = BTreeMap::new();
        let turn = |(multitask, reads)| {
            let turn = turns.entry(disk(reads)).or_default();
            *turn += 1;
            (*turn, multitask)
        };
        let mut order: Vec<(usize, usize)> = self.reads.iter().enumerate().map(turn).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, multitask)| multitask).collect()
    }
}

/// Builds stages that are ready to run.
pub(crate) struct Builder<'a> {
    pub plan: &'a StagePlan,
    pub operators: &'a Arc<Operators>,
    pub metadata: &'a Metadata,
    pub io: &'a JobIo,
    pub ledger: &'a Arc<dyn Ledger>,
    /// The stage in the trace.
    pub ix: StageIx,
    /// Returns the exchange of a stage that has started.
    pub exchanges: &'a dyn Fn(usize) -> Option<Arc<Exchange>>,
    pub open: &'a dyn Fn(
        &datafusion::datasource::physical_plan::FileScanConfig,
        &PartitionedFile,
    ) -> Result<Source>,
    /// Minimum number of multitasks of a divided scan.
    pub min_partitions: usize,
    /// Number of partitions of the output, if it is divided by hash.
    pub partitions: usize,
    /// `None` if exchanges must stay in memory.
    pub spill: Option<&'a Arc<Spill>>,
    pub shares: Shares,
}

/// The scans, timers and builds that the plan of a stage has.
#[derive(Default)]
struct Found {
    /// By the [`key`] of their leaf.
    scans: HashMap<usize, Arc<Scan>>,
    work: StageWork,
    builds: Vec<Build>,
    /// Exchanges whose partitions are divided again, by the stage that wrote them.
    finer: HashMap<usize, Arc<Exchange>>,
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
        let stage = self.plan.stage(index);
        let constraints = Constraints { pinned: stage.whole, divisible: stage.divisible };
        let mut found = Found::default();
        let step = self.shares.step;
        for finer in finer::divide_again(self.plan, index, self.exchanges, self.shares.partition, step)? {
            let place = self.operators.places.get(&key(&finer.node)).copied();
            let divide = self.timed(finer.divide, measure_of(place));
            found.builds.extend(builds(&divide, |_| 2 * step));
            found.finer.insert(finer.stage, finer.exchange);
        }
        let plan = self.node(&stage.root, stage, index, constraints, &mut found)?;
        let Found { scans, work, builds, .. } = found;
        let partitions = plan.output_partitioning().partition_count();
        let mut reads: Vec<Reads> = if stage.whole {
            vec![scans.values().flat_map(|s| (0..s.tasks.len()).map(|t| (Arc::clone(s), t))).collect()]
        } else {
            (0..partitions).map(|p| reads_of(&plan, p, &scans)).collect()
        };
        reads.resize_with(reads.len() + builds.len(), Vec::new);
        let last = if stage.whole { Vec::new() } else { last_of(&plan) };
        let out = match &stage.output {
            Output::Divide(Partitioning::Hash(..)) => self.partitions,
            Output::Divide(planned) => planned.partition_count(),
            Output::Keep => partitions,
            Output::Gather { .. } | Output::Scalar(..) => 1,
        };
        // A result, and a value, are needed in memory.
        let stays = index + 1 == self.plan.stages.len() || matches!(stage.output, Output::Scalar(..));
        let files = self.spill.filter(|_| !stays).map(Spill::files);
        let shared = self.plan.cuts.values().any(|c| c.stage == index && c.readers > 1);
        let keys = stage.key_columns().map(|columns| {
            // Texts would keep the buffers that they share.
            let schema = stage.root.schema();
            let fixed = columns.iter().all(|&at| schema.field(at).data_type().primitive_width().is_some());
            BuildKeys::new(columns, if fixed { self.shares.keys } else { 0 })
        });
        let n = reads.len();
        Ok(ReadyStage {
            plan,
            reads,
            builds,
            last,
            exchange: Exchange::new(out, shared, self.ix, Arc::clone(self.ledger))
                .spilling(files, matches!(stage.output, Output::Keep))
                .keeping(keys)
                .movable(),
            whole: stage.whole,
            computing: AtomicUsize::new(n),
            left: AtomicUsize::new(n),
            limit: Limit::default(),
            work,
            operators: Arc::clone(self.operators),
            step,
        })
    }

    fn node(
        &self,
        node: &Node,
        stage: &PlannedStage,
        index: usize,
        constraints: Constraints,
        found: &mut Found,
    ) -> Result<Node> {
        let place = self.operators.places.get(&key(node)).copied();
        let read = |stage| found.finer.get(&stage).cloned().or_else(|| (self.exchanges)(stage));
        if let Some(exchange) = self.plan.cut(node, index).and_then(read) {
            let leaf = ExchangeExec::in_place_of(node, exchange);
            return Ok(
                self.timed(leaf, measure_of(place).map(|measure| Measure { counts_bytes: true, ..measure }))
            );
        }
        if let Some(input) = self.plan.skipped(node).filter(|_| !stage.whole) {
            let divisible = constraints.divisible || !node.is::<ScalarSubqueryExec>();
            return self.node(input, stage, index, Constraints { divisible, ..constraints }, found);
        }
        if let Some(scan) = self.scan(node, constraints, place, found)? {
            return Ok(scan);
        }
        let children = node.children();
        let join = self.plan.divided(node, index);
        let divided = join.is_some_and(|(_, paired)| !paired);
        let pinned = constraints.pinned || pairs_partitions(node) && !divided;
        // More partitions would break a node that requires a single partition or limits each of them.
        let divisible = constraints.divisible && node.fetch().is_none();
        let wanted = node.input_distribution_requirements().into_per_child();
        let by_constants = groups_by_constants(node);
        let children = children
            .into_iter()
            .enumerate()
            .map(|(i, child)| {
                let divisible =
                    divisible && matches!(wanted.get(i), None | Some(Distribution::UnspecifiedDistribution));
                let child = self.node(child, stage, index, Constraints { pinned, divisible }, found)?;
                let child = if by_constants { unordered(child) } else { child };
                // A join with a build side has built it when it first asks for a row of its other side.
                let probes = place.filter(|place| i > 0 && place.build.is_some() && !divided);
                let probes = probes.map(|place| place.own);
                Ok(match probes {
                    Some(probe) => TimedExec::remeasured(child, |measure| measure.caller = Some(probe)),
                    None if sorts_all(node) && self.spill.is_some() => {
                        TimedExec::remeasured(child, |measure| measure.sorted = true)
                    }
                    None => child,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let rebuilt = replace_children_if_necessary(Arc::clone(node), children)?;
        let Some((place, measure)) = place.zip(measure_of(place)) else { return Ok(rebuilt) };
        let (timed, timers) = expressions::timed(Arc::clone(&rebuilt))?;
        found.work.timers.extend(timers.into_iter().map(|timer| (place.own, timer)));
        let join = timed.downcast_ref::<HashJoinExec>().zip(join);
        let Some(join) = join.map(|(join, (_, paired))| DividedJoinExec::new(join, paired)) else {
            found.work.nodes.push((measure.operator, Arc::clone(&timed)));
            let wrapped = TimedExec::wrap(timed, rebuilt.properties(), measure, self.ledger);
            return Ok(if by_constants {
                known_as(node.equivalence_properties().clone(), wrapped)
            } else {
                wrapped
            });
        };
        let mut measure = measure;
        if !join.is_paired() {
            let build = self.timed(join.builds()?, Some(measure));
            found.builds.extend(builds(&build, |partition| exchange_bytes(join.build(), partition)));
            measure.operator = place.own;
        }
        let join: Node = Arc::new(join);
        found.work.nodes.push((place.build.unwrap_or(place.own), Arc::clone(&join)));
        Ok(self.timed(join, Some(measure)))
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
        place: Option<Place>,
        found: &mut Found,
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
        let max_bytes = self.shares.partition.min(MULTITASK_BYTES);
        let division = Division { pinned, min_partitions: self.min_partitions, max_bytes, in_order };
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
        let predicate = ParquetScan::of(node).and_then(|scan| scan.source.filter());
        let mut filters = predicate.map_or_else(|| Ok(Vec::new()), |predicate| key_filters(&predicate))?;
        let keys = place.and_then(|place| place.keys);
        let leaf: Node = match leaf.downcast_ref::<ColumnsExec>().zip(keys) {
            Some((scan, operator)) => scan.filtered(Keys { filters: std::mem::take(&mut filters), operator }),
            None => leaf,
        };
        found.scans.insert(key(&leaf), scan);
        if let Some(place) = place {
            found.work.timers.extend(timers.into_iter().map(|timer| (place.own, timer)));
            found.work.nodes.push((place.own, Arc::clone(&leaf)));
        }
        let decodes = |measure| Measure { decodes: true, counts_bytes: true, ..measure };
        let timed = self.timed(leaf, measure_of(place).map(decodes));
        let filtered = with_key_filters(timed, filters)?;
        Ok(Some(self.timed(filtered, keys.map(|operator| Measure { operator, ..Measure::default() }))))
    }
}

/// Returns true for a scan below a TopK, whose row groups DataFusion's opener sorts so that it can leave out most of them.
fn is_ordered_by_top_k(node: &Node) -> bool {
    let predicate = ParquetScan::of(node).and_then(|scan| scan.source.filter());
    let tightens = predicate.is_some_and(|predicate| parquet::may_tighten(&predicate));
    // The source has no other way to ask for its order.
    tightens && detail(node).is_some_and(|detail| detail.contains(", sort_order_for_reorder=["))
}

/// Returns the key filters of build sides that a scan's predicate has.
fn key_filters(predicate: &Arc<dyn PhysicalExpr>) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let mut filters = Vec::new();
    for part in split_conjunction(predicate) {
        if let Some(dynamic) = part.downcast_ref::<DynamicFilterPhysicalExpr>() {
            let current = dynamic.current()?;
            filters.extend(
                split_conjunction(&current).into_iter().filter(|known| known.is::<KeyFilter>()).cloned(),
            );
        }
    }
    Ok(filters)
}

/// Adds filters above a scan that does not apply them itself.
fn with_key_filters(mut leaf: Node, filters: Vec<Arc<dyn PhysicalExpr>>) -> Result<Node> {
    for filter in filters {
        // Skips a key that is not a column of the scan's output.
        if let Ok(filter) = reassign_expr_columns(filter, &leaf.schema()) {
            leaf = Arc::new(FilterExec::try_new(filter, leaf)?);
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

/// Returns the bytes of a row that a node, or one below it, sorts with all others; `None` if none does.
fn sorted_bytes(node: &Node) -> Option<usize> {
    if sorts_all(node) {
        return Some(row_bytes(&node.schema()));
    }
    node.children().into_iter().find_map(sorted_bytes)
}

/// Returns the bytes of a row of each leaf.
fn leaf_bytes(node: &Node) -> usize {
    match node.children().as_slice() {
        [] => row_bytes(&node.schema()),
        children => children.iter().map(|child| leaf_bytes(child)).sum(),
    }
}

/// Returns how the node at a place is measured.
fn measure_of(place: Option<Place>) -> Option<Measure> {
    place.map(|place| Measure { operator: place.build.unwrap_or(place.own), ..Measure::default() })
}

fn sorts_all(node: &Node) -> bool {
    node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none())
}

/// Returns true for an aggregate whose input counts as sorted only because it has the same value of some keys in all rows,
/// which a filter has chosen. DataFusion would compare each row with the one before, to find the end of a group. That takes
/// ten times as long as to group by all keys.
fn groups_by_constants(node: &Node) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return false };
    let InputOrderMode::PartiallySorted(sorted) = aggregate.input_order_mode() else { return false };
    let known = aggregate.input().equivalence_properties();
    let keys = aggregate.group_expr().input_exprs();
    let is_constant = |at: &usize| keys.get(*at).is_some_and(|key| known.is_expr_constant(key).is_some());
    let in_any_order = aggregate.aggr_expr().iter().all(|function| function.order_bys().is_empty());
    in_any_order && sorted.iter().all(is_constant)
}

/// Returns the partitions of a node without rows, with the memory of each.
fn builds(node: &Node, memory: impl Fn(usize) -> u64) -> Vec<Build> {
    let partitions = 0..node.output_partitioning().partition_count();
    let build = |partition| Build { node: Arc::clone(node), partition, memory: memory(partition) };
    partitions.map(build).collect()
}

fn exchange_bytes(node: &Node, partition: usize) -> u64 {
    if let Some(leaf) = node.downcast_ref::<ExchangeExec>() {
        let exchange = leaf.exchange();
        return if partition < exchange.partitions() { exchange.batch_bytes(partition) } else { 0 };
    }
    // Of the rows that it looks up in the table of one partition, a join keeps nothing.
    let paired = node.downcast_ref::<DividedJoinExec>().filter(|join| join.is_paired());
    let children = paired.map_or_else(|| node.children(), |join| vec![join.build()]);
    children.into_iter().map(|c| exchange_bytes(c, partition)).sum()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::execute::memory::ledger::Unlimited;

    /// Returns a plan whose aggregates by constants do not compare rows.
    fn without_order(node: &Node) -> Node {
        let ledger: Arc<dyn Ledger> = Arc::new(Unlimited);
        let children = node.children().into_iter().map(|child| {
            let child = without_order(child);
            let child = TimedExec::wrap(Arc::clone(&child), child.properties(), Measure::default(), &ledger);
            if groups_by_constants(node) { unordered(child) } else { child }
        });
        let rebuilt = replace_children_if_necessary(Arc::clone(node), children.collect()).unwrap();
        let wrapped =
            TimedExec::wrap(Arc::clone(&rebuilt), rebuilt.properties(), Measure::default(), &ledger);
        if groups_by_constants(node) {
            known_as(node.equivalence_properties().clone(), wrapped)
        } else {
            rebuilt
        }
    }

    fn modes(node: &Node, into: &mut Vec<InputOrderMode>) {
        into.extend(node.downcast_ref::<AggregateExec>().map(|node| node.input_order_mode().clone()));
        node.children().into_iter().for_each(|child| modes(child, into));
    }

    #[tokio::test]
    async fn constant_keys_do_not_order_rows() {
        use InputOrderMode::{Linear, PartiallySorted};
        let context = SessionContext::new();
        let rows = "SELECT value % 3 AS y, value % 50 AS x, value AS v FROM range(5000)";
        context.sql(&format!("CREATE TABLE t AS {rows}")).await.unwrap().collect().await.unwrap();
        let sorted = PartiallySorted(vec![0]);
        for (query, before, after) in [
            ("SELECT y, x, sum(v) FROM t WHERE y = 1 GROUP BY y, x", &sorted, &Linear),
            ("SELECT y, x, first_value(v ORDER BY v) FROM t WHERE y = 1 GROUP BY y, x", &sorted, &sorted),
            (
                "SELECT y, x, sum(v) FROM (SELECT * FROM t ORDER BY y, v LIMIT 4000) GROUP BY y, x",
                &sorted,
                &sorted,
            ),
            ("SELECT y, x, sum(v) FROM t GROUP BY y, x", &Linear, &Linear),
            // The window relies on the order by constants.
            (
                "SELECT *, rank() OVER (PARTITION BY y ORDER BY x) FROM (SELECT DISTINCT 5 AS y, x, v FROM t)",
                &sorted,
                &Linear,
            ),
        ] {
            let mut answers = Vec::new();
            for (changed, expected) in [(false, before), (true, after)] {
                // Planned anew, since a limited sort that ran keeps the bound that it found.
                let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
                let plan = if changed { without_order(&plan) } else { plan };
                let mut found = Vec::new();
                modes(&plan, &mut found);
                assert!(!found.is_empty() && found.iter().all(|mode| mode == expected), "{query}: {found:?}");
                let rows = pretty_format_batches(&collect(plan, context.task_ctx()).await.unwrap());
                let rows = rows.unwrap().to_string();
                let mut rows: Vec<String> = rows.lines().map(str::to_string).collect();
                rows.sort_unstable();
                answers.push(rows);
            }
            assert_eq!(answers[0], answers[1], "{query}");
        }
    }
}
