//! Cuts a physical plan into stages at its exchanges (monotasks-sosp17 §3.2).
//!
//! The plan is cut where rows move between partitions: at a repartitioning, a merge of partitions
//! into one, the collected build side of a join, a scalar subquery, and a plan that several places
//! share. The stage below a cut puts its output into an
//! [`Exchange`](crate::execute::exchange::Exchange), which a leaf of the stage above reads.
//! Round-robin repartitionings are dropped, since the input of a stage determines its number of
//! multitasks.
//!
//! A partitioned hash join needs an exchange for its build side only
//! ([`DividedJoinExec`](crate::execute::divided_join::DividedJoinExec)), unless a node above it relies on its partitions.
//! The repartitioning of its probe side is then dropped too. Whether the tables fit into memory is known only when the
//! build side is complete, so the stage that divides the probe side is planned as well, and runs if they do not.
//!
//! Nodes that cannot be cut inside (a recursive query, an order-preserving repartitioning) become a
//! stage of one multitask that runs the node whole, which the trace records as `not_split`.
//!
//! This module only plans; [`crate::execute`] runs the stages.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::{NullEquality, Result};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{Distribution, Partitioning, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::InterleaveExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::plan::shared::exec::SharedExec;
use crate::scan::MULTITASK_BYTES;

/// A node of a physical plan.
pub(crate) type Node = Arc<dyn ExecutionPlan>;

/// The destination of a stage's output.
pub(crate) enum Output {
    /// Repartitioned for the reading stage.
    Divide(Partitioning),
    /// Merged into one partition, in the order of the multitasks, with at most `fetch` rows.
    Gather {
        /// Number of rows after which the other multitasks need not run.
        fetch: Option<usize>,
    },
    /// One partition per multitask.
    Keep,
    /// A single value for the expressions that refer to it.
    Scalar(ScalarSubqueryResults, SubqueryIndex),
}

impl Output {
    /// Returns how rows are divided into `partitions`, which may be others than planned; `None` if they are not divided.
    pub(crate) fn division(&self, partitions: usize) -> Option<Partitioning> {
        match self {
            Self::Divide(Partitioning::Hash(keys, _)) => Some(Partitioning::Hash(keys.clone(), partitions)),
            Self::Divide(planned) => Some(planned.clone()),
            Self::Gather { .. } | Self::Keep | Self::Scalar(..) => None,
        }
    }
}

/// A filter on a join's probe side, filled when its build side is complete.
pub(crate) struct JoinFilter {
    /// A `DynamicFilterPhysicalExpr`.
    pub filter: Arc<dyn PhysicalExpr>,
    /// `(build side, probe side)` of each equality.
    pub on: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
    pub null_equality: NullEquality,
}

/// A planned stage.
pub(crate) struct PlannedStage {
    /// Topmost node; nodes below a cut belong to other stages.
    pub root: Node,
    pub output: Output,
    /// Stages that must end before this one starts, ascending.
    pub after: Vec<usize>,
    /// Filters that this stage's output fills.
    pub fills: Vec<JoinFilter>,
    /// True if one multitask runs all partitions of `root` and everything below it.
    pub whole: bool,
    /// True if a scan that was planned as one partition may be divided: only row-by-row nodes are above
    /// it, and the output keeps the order of the multitasks.
    pub divisible: bool,
}

impl PlannedStage {
    /// Returns the columns of its output that the keys of [`PlannedStage::fills`] need; `None` if it fills no filters.
    pub(crate) fn key_columns(&self) -> Option<Vec<usize>> {
        let keys = self.fills.iter().flat_map(|filter| &filter.on).flat_map(|(key, _)| collect_columns(key));
        let columns: BTreeSet<usize> = keys.map(|key| key.index()).collect();
        (!self.fills.is_empty()).then(|| columns.into_iter().collect())
    }
}

/// A plan cut into stages; the last one returns the result.
#[derive(Default)]
pub(crate) struct StagePlan {
    pub stages: Vec<PlannedStage>,
    /// Cuts, by the [`key`] of the node at which the plan was cut.
    pub cuts: HashMap<usize, Cut>,
    /// Joins whose build side is divided and whose probe side need not be, by [`key`].
    divided: HashMap<usize, DividedJoin>,
    /// Repartitionings of those probe sides, by [`key`].
    dropped: HashSet<usize>,
    /// Stages that divide those probe sides, which run only if tables do not fit into memory. They are numbered after
    /// `stages`.
    probes: Vec<ProbeStage>,
}

/// A join whose build side is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DividedJoin {
    /// The stage of the build side.
    pub build: usize,
    /// The stage that divides the probe side, if it runs.
    pub probe: usize,
}

struct ProbeStage {
    stage: PlannedStage,
    /// The [`key`] of the probe side in the join.
    input: usize,
    runs: AtomicBool,
}

impl StagePlan {
    /// Returns the number of all stages, with those that may not run.
    pub(crate) fn stage_count(&self) -> usize {
        self.stages.len() + self.probes.len()
    }

    /// Returns a stage.
    pub(crate) fn stage(&self, index: usize) -> &PlannedStage {
        self.stages.get(index).unwrap_or_else(|| &self.probes[index - self.stages.len()].stage)
    }

    /// Returns the stages of the build side and of the divided probe side of joins whose probe side need not be divided.
    pub(crate) fn divided_probes(&self) -> impl Iterator<Item = (usize, usize)> {
        self.divided.values().map(|join| (join.build, self.stages.len() + join.probe))
    }

    /// Lets a stage run that divides the probe side of a join, which then reads its output.
    pub(crate) fn divide_probe(&self, stage: usize) {
        self.probes[stage - self.stages.len()].runs.store(true, Ordering::Release);
    }

    /// Returns the stage whose output is that of `node` in stage `index`, if `node` is not of that stage.
    pub(crate) fn cut(&self, node: &Node, index: usize) -> Option<usize> {
        if self.stage(index).whole {
            return None;
        }
        let runs = |probe: &ProbeStage| probe.input == key(node) && probe.runs.load(Ordering::Acquire);
        let probe = self.probes.iter().position(runs).map(|at| self.stages.len() + at);
        let cut = self.cuts.get(&key(node)).map(|cut| cut.stage);
        probe.into_iter().chain(cut).find(|stage| *stage != index)
    }

    /// Returns a join of stage `index` whose build side is divided, and whether its probe side is as well.
    pub(crate) fn divided(&self, node: &Node, index: usize) -> Option<(DividedJoin, bool)> {
        let join = self.divided.get(&key(node)).filter(|_| !self.stage(index).whole)?;
        let (probe, divided) = (join.probe, &self.probes[join.probe].runs);
        Some((DividedJoin { probe: self.stages.len() + probe, ..*join }, divided.load(Ordering::Acquire)))
    }

    /// Calls `f` for the nodes of stage `index`, and for those at which it is cut off from others, outermost first. Nodes
    /// below one for which `f` returns false are left out.
    pub(crate) fn visit<'a>(&'a self, index: usize, f: &mut dyn FnMut(&'a Node) -> bool) {
        self.visit_below(index, &self.stage(index).root, f);
    }

    fn visit_below<'a>(&'a self, index: usize, node: &'a Node, f: &mut dyn FnMut(&'a Node) -> bool) {
        if self.cut(node, index).is_none()
            && let Some(input) = self.skipped(node).filter(|_| !self.stage(index).whole)
        {
            return self.visit_below(index, input, f);
        }
        if f(node) && self.cut(node, index).is_none() {
            node.children().into_iter().for_each(|child| self.visit_below(index, child, f));
        }
    }

    /// Returns the input of a node that stages leave out.
    pub(crate) fn skipped<'a>(&self, node: &'a Node) -> Option<&'a Node> {
        if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
            let round_robin = matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_));
            return (round_robin || self.dropped.contains(&key(node))).then(|| repartition.input());
        }
        node.downcast_ref::<ScalarSubqueryExec>().map(ScalarSubqueryExec::input)
    }
}

/// A point at which a plan was cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    /// The stage below the cut.
    pub stage: usize,
    /// Number of leaves that read its output.
    pub readers: usize,
}

/// Returns the identity of a node. It is unique because plans keep their nodes alive.
pub(crate) fn key(node: &Node) -> usize {
    Arc::as_ptr(node).cast::<()>() as usize
}

/// Cuts `plan` into stages.
///
/// # Errors
/// Currently none: a plan that cannot be cut runs whole.
pub(crate) fn cut(plan: &Node) -> Result<StagePlan> {
    let mut cutter = Cutter::default();
    let divisible = row_by_row_scan(plan).is_some();
    cutter.stage(plan, Output::Keep, false, divisible)?;
    Ok(cutter.plan)
}

/// Returns true for a node that pairs the partitions of its inputs, so that their number must not
/// change.
pub(crate) fn pairs_partitions(node: &Node) -> bool {
    node.downcast_ref::<HashJoinExec>().is_some_and(|j| *j.partition_mode() == PartitionMode::Partitioned)
        || node.is::<SortMergeJoinExec>()
        || node.is::<InterleaveExec>()
}

/// Returns the file scan below `node`, if only row-by-row nodes are in between and the scan has one file
/// group and no limit.
fn row_by_row_scan(node: &Node) -> Option<&FileScanConfig> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
        return (config.file_groups.len() == 1 && config.limit.is_none()).then_some(config);
    }
    let row_by_row = node.downcast_ref::<FilterExec>().is_some_and(|f| f.fetch().is_none())
        || node.is::<ProjectionExec>()
        || node.is::<CooperativeExec>();
    if row_by_row { row_by_row_scan(node.children().first()?) } else { None }
}

/// Returns true if dividing the scan below `node` is worth the cost of an exchange.
fn worth_dividing(node: &Node) -> bool {
    row_by_row_scan(node).is_some_and(|config| {
        let bytes: u64 = config.file_groups.iter().flat_map(|g| g.iter()).map(|f| f.effective_size()).sum();
        bytes > MULTITASK_BYTES / 4
    })
}

/// Returns true for a node that must run whole, with everything below it.
pub(crate) fn runs_whole(node: &Node) -> bool {
    node.is::<RecursiveQueryExec>()
        || node.downcast_ref::<RepartitionExec>().is_some_and(|r| {
            r.preserve_order()
                || !matches!(
                    r.partitioning(),
                    Partitioning::Hash(..) | Partitioning::Range(..) | Partitioning::RoundRobinBatch(_)
                )
        })
}

/// Returns true for a partitioned hash join that may have its probe side as it is, if no node above relies on partitions.
fn can_divide(join: &HashJoinExec) -> bool {
    let build = join.left();
    let divided_by_keys = match hash_repartitioned(build) {
        Some((_, keys)) => keys.iter().eq(join.on().iter().map(|(build, _)| build)),
        None => !build.is::<RepartitionExec>(),
    };
    *join.partition_mode() == PartitionMode::Partitioned
        && build.output_partitioning().partition_count() > 1
        && divided_by_keys
        && !join.null_aware
        // An outer join returns the rows of a batch that have no partner after the others.
        && join.properties().output_ordering().is_none()
}

/// Returns the input and the keys of a repartitioning by hash.
fn hash_repartitioned(node: &Node) -> Option<(&Node, &[Arc<dyn PhysicalExpr>])> {
    let repartition = node.downcast_ref::<RepartitionExec>().filter(|r| !r.preserve_order())?;
    match repartition.partitioning() {
        Partitioning::Hash(keys, _) => Some((repartition.input(), keys)),
        _ => None,
    }
}

#[derive(Default)]
struct Cutter {
    plan: StagePlan,
    /// Stages that all further stages must wait for (subqueries, build sides).
    after: Vec<usize>,
}

impl Cutter {
    fn stage(&mut self, root: &Node, output: Output, whole: bool, divisible: bool) -> Result<usize> {
        let mut after = self.after.clone();
        if !whole {
            self.walk(root, true, &mut after)?;
        }
        after.sort_unstable();
        after.dedup();
        self.plan.stages.push(PlannedStage {
            root: Arc::clone(root),
            output,
            after,
            fills: Vec::new(),
            whole,
            divisible,
        });
        Ok(self.plan.stages.len() - 1)
    }

    /// Cuts the plan at `at`: `root` and the nodes below it become a stage, and `at` becomes a leaf of the
    /// stage that reads it.
    fn cut(&mut self, at: &Node, root: &Node, output: Output, after: &mut Vec<usize>) -> Result<()> {
        if let Some(cut) = self.plan.cuts.get_mut(&key(at)) {
            cut.readers += 1;
            after.push(cut.stage);
            return Ok(());
        }
        let whole = runs_whole(root);
        let divisible = row_by_row_scan(root).is_some();
        let stage = self.stage(root, output, whole, divisible)?;
        self.plan.cuts.insert(key(at), Cut { stage, readers: 1 });
        after.push(stage);
        Ok(())
    }

    /// Walks `node`, which is `free` if no node of its stage relies on its partitions.
    fn walk(&mut self, node: &Node, free: bool, after: &mut Vec<usize>) -> Result<()> {
        if runs_whole(node) {
            return self.cut(node, node, Output::Keep, after);
        }
        if let Some(shared) = node.downcast_ref::<SharedExec>() {
            return self.cut(node, shared.input(), Output::Keep, after);
        }
        if let Some(r) = node.downcast_ref::<RepartitionExec>() {
            return match r.partitioning() {
                Partitioning::RoundRobinBatch(_) => self.walk(r.input(), free, after),
                p => self.cut(node, r.input(), Output::Divide(p.clone()), after),
            };
        }
        if let Some(c) = node.downcast_ref::<CoalescePartitionsExec>() {
            return self.cut(node, c.input(), Output::Gather { fetch: c.fetch() }, after);
        }
        if let Some(m) = node.downcast_ref::<SortPreservingMergeExec>() {
            let input = m.input();
            return if input.output_partitioning().partition_count() > 1 {
                self.cut(input, input, Output::Keep, after)
            } else {
                self.walk(input, free, after)
            };
        }
        if let Some(s) = node.downcast_ref::<ScalarSubqueryExec>() {
            let mark = self.after.len();
            for q in s.subqueries() {
                let output = Output::Scalar(s.results().clone(), q.index);
                let stage = self.stage(&q.plan, output, false, false)?;
                self.after.push(stage);
            }
            after.extend_from_slice(&self.after[mark..]);
            self.walk(s.input(), free, after)?;
            self.after.truncate(mark);
            return Ok(());
        }
        self.walk_children(node, free, after)
    }

    fn walk_children(&mut self, node: &Node, free: bool, after: &mut Vec<usize>) -> Result<()> {
        let children: Vec<Node> = node.children().into_iter().map(Arc::clone).collect();
        let Some(first) = children.first() else { return Ok(()) };
        let join = node.downcast_ref::<HashJoinExec>();
        let collects_left = join.is_some_and(|j| *j.partition_mode() == PartitionMode::CollectLeft)
            || node.is::<NestedLoopJoinExec>()
            || node.is::<CrossJoinExec>();
        let divides = free && join.is_some_and(can_divide);
        let wanted = node.input_distribution_requirements().into_per_child();
        let is_free = |input: usize| {
            let unspecified = matches!(wanted.get(input), None | Some(Distribution::UnspecifiedDistribution));
            divides || free && !pairs_partitions(node) && unspecified
        };
        let before = self.plan.stages.len();
        if let Some(join) = join.filter(|_| divides) {
            let root = hash_repartitioned(first).map_or(first, |(input, _)| input);
            let keys = join.on().iter().map(|(build, _)| Arc::clone(build)).collect();
            let partitions = first.output_partitioning().partition_count();
            self.cut(first, root, Output::Divide(Partitioning::Hash(keys, partitions)), after)?;
            if hash_repartitioned(&children[1]).is_some() {
                self.plan.dropped.insert(key(&children[1]));
            }
        } else if collects_left && !first.is::<CoalescePartitionsExec>() {
            self.cut(first, first, Output::Gather { fetch: None }, after)?;
        } else {
            self.walk_input(node, first, is_free(0), after)?;
        }
        let mark = self.after.len();
        if let Some(join) = join {
            // NOT IN needs the NULLs of the probe side.
            let produced = if join.null_aware { Vec::new() } else { join.dynamic_expressions_produced() };
            let filter = produced.into_iter().find(|e| e.is::<DynamicFilterPhysicalExpr>());
            // All keys are known only at the end of a stage that is the build side alone.
            let cut = self.plan.cuts.get(&key(first)).copied().filter(|c| c.stage >= before);
            if let Some((filter, cut)) = filter.zip(cut) {
                self.plan.stages[cut.stage].fills.push(JoinFilter {
                    filter,
                    on: join.on().to_vec(),
                    null_equality: join.null_equality(),
                });
                self.after.push(cut.stage);
            }
        }
        for (input, child) in children.iter().enumerate().skip(1) {
            let child =
                if divides { hash_repartitioned(child).map_or(child, |(input, _)| input) } else { child };
            self.walk_input(node, child, is_free(input), after)?;
        }
        if let Some(join) = join.filter(|_| divides) {
            self.divided(node, join);
        }
        self.after.truncate(mark);
        Ok(())
    }

    /// Plans the stage that divides the probe side of a join, whose nodes have been walked as those of the join's stage.
    fn divided(&mut self, node: &Node, join: &HashJoinExec) {
        let Some(build) = self.plan.cuts.get(&key(join.left())).map(|cut| cut.stage) else { return };
        let root = hash_repartitioned(join.right()).map_or(join.right(), |(input, _)| input);
        let keys = join.on().iter().map(|(_, probe)| Arc::clone(probe)).collect();
        let partitions = join.left().output_partitioning().partition_count();
        let stage = PlannedStage {
            root: Arc::clone(root),
            output: Output::Divide(Partitioning::Hash(keys, partitions)),
            after: Vec::new(),
            fills: Vec::new(),
            whole: false,
            divisible: row_by_row_scan(root).is_some(),
        };
        self.plan.divided.insert(key(node), DividedJoin { build, probe: self.plan.probes.len() });
        self.plan.probes.push(ProbeStage { stage, input: key(join.right()), runs: AtomicBool::new(false) });
    }

    /// Walks one input of `node`, and cuts off a large scan that is planned as one partition.
    fn walk_input(&mut self, node: &Node, input: &Node, free: bool, after: &mut Vec<usize>) -> Result<()> {
        let row_by_row = row_by_row_scan(node).is_some();
        if !row_by_row && !pairs_partitions(node) && worth_dividing(input) {
            return self.cut(input, input, Output::Gather { fetch: None }, after);
        }
        self.walk(input, free, after)
    }
}
