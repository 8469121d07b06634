//! Prevents DataFusion's filter pushdown from losing rows where column names are ambiguous.
//!
//! When DataFusion 55 pushes a filter from node to node, it resolves the filter's columns by name in
//! each of them (`FilterRemapper`). If a node's output has two columns of one name, as that of a
//! self-join has, the filter moves to the first of them: `WHERE a.d > b.d` becomes `a.d > a.d`, and
//! a build side's keys for `b.d` drop rows by `a.d`. The same happens below a union whose inputs have
//! other column names than its output, and in a semi join that pushes a filter on a key of one side
//! to a column of that name on the other side.
//!
//! The pushdown rules therefore run on a plan with a barrier above each such node, a node that
//! accepts no filter. The barriers are removed afterwards. Filters above a barrier stay there, so
//! scans below it may prune less, but the result is correct.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::plan::cut::Node;
use crate::plan::grouping_sets::SetsOfGroups;
use crate::plan::join_order::JoinOrder;
use crate::plan::semi_joins::EarlySemiJoins;
use crate::plan::shared::places::SharedPlaces;
use crate::plan::window_limits::WindowLimits;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Returns DataFusion's physical optimizer rules, with barriers around filter pushdown, early semi joins, joins in order,
/// grouping sets of groups, limits of ranks below windows, and shared plans in their places.
pub(crate) fn rules() -> Vec<Rule> {
    let guard = |rule: Rule| -> Rule {
        if rule.name().starts_with("FilterPushdown") { Arc::new(GuardedPushdown(rule)) } else { rule }
    };
    let mut rules: Vec<Rule> = PhysicalOptimizer::new().rules.into_iter().map(guard).collect();
    let sides = rules.iter().position(|rule| rule.name() == "join_selection").unwrap_or(0);
    rules.splice(sides..sides, [Arc::new(EarlySemiJoins) as Rule, Arc::new(JoinOrder)]);
    rules.extend([Arc::new(SetsOfGroups::default()) as Rule, Arc::new(WindowLimits), Arc::new(SharedPlaces)]);
    rules
}

/// A pushdown rule that runs on a plan with barriers.
#[derive(Debug)]
struct GuardedPushdown(Rule);

impl PhysicalOptimizerRule for GuardedPushdown {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        let with_barriers = plan.transform_up(|node| {
            Ok(if has_ambiguous_columns(&node) {
                Transformed::yes(Arc::new(Barrier(node)) as Node)
            } else {
                Transformed::no(node)
            })
        });
        let pushed = self.0.optimize(with_barriers.data()?, config)?;
        let remove_barrier = |node: Node| {
            let below = node.downcast_ref::<Barrier>().map(|barrier| Arc::clone(&barrier.0));
            Ok(below.map_or_else(|| Transformed::no(Arc::clone(&node)), Transformed::yes))
        };
        pushed.transform_up(remove_barrier).data()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// Returns true for a node through which a column name may resolve to the wrong column.
fn has_ambiguous_columns(node: &Node) -> bool {
    let schema = node.schema();
    let mut names: Vec<&String> = schema.fields().iter().map(|f| f.name()).collect();
    if node.is::<UnionExec>() || node.is::<InterleaveExec>() {
        let renames =
            |child: &&Node| !child.schema().fields().iter().map(|f| f.name()).eq(names.iter().copied());
        if node.children().iter().any(renames) {
            return true;
        }
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && matches!(join.join_type(), JoinType::LeftSemi | JoinType::RightSemi)
    {
        let has = |side: &Node, name: &str| side.schema().fields().iter().any(|f| f.name() == name);
        if names.iter().any(|name| has(join.left(), name) && has(join.right(), name)) {
            return true;
        }
    }
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// A node that passes everything through except filters. It relies on the default implementation of
/// `ExecutionPlan`, which accepts no filters.
#[derive(Debug)]
struct Barrier(Node);

impl DisplayAs for Barrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Barrier")
    }
}

impl ExecutionPlan for Barrier {
    fn name(&self) -> &str {
        "Barrier"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Node> {
        vec![&self.0]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Node>) -> Result<Node> {
        Ok(Arc::new(Self(children.pop().unwrap_or_else(|| Arc::clone(&self.0)))))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

    async fn session(folder: &std::path::Path, guarded: bool) -> Result<SessionContext> {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(4));
        if guarded {
            builder = builder.with_physical_optimizer_rules(rules());
        }
        let context = SessionContext::new_with_state(builder.build());
        let path = folder.join("t.parquet").display().to_string();
        if !folder.join("t.parquet").exists() {
            let rows = "SELECT value AS id, value % 10 AS k, value % 7 AS d FROM range(100)";
            context.sql(&format!("COPY ({rows}) TO '{path}'")).await?.collect().await?;
        }
        context.register_parquet("t", path, ParquetReadOptions::default()).await?;
        Ok(context)
    }

    async fn count(context: &SessionContext, sql: &str) -> usize {
        context.sql(sql).await.unwrap().collect().await.unwrap().iter().map(|b| b.num_rows()).sum()
    }

    #[tokio::test]
    async fn filter_on_columns_of_one_name_keeps_its_columns() {
        let folder = tempfile::tempdir().unwrap();
        let sql = "SELECT b.id FROM t a FULL JOIN t b ON a.k = b.k \
                   WHERE coalesce(b.d, 0) >= coalesce(a.d, 3) AND coalesce(b.d, 0) <= b.id";
        // Every key matches on both sides, so the full join equals an inner join.
        let pairs = (0..100).flat_map(|a| (0..100).map(move |b| (a, b)));
        let expected = pairs.filter(|(a, b)| a % 10 == b % 10 && b % 7 >= a % 7 && b % 7 <= *b).count();
        assert_eq!(count(&session(folder.path(), true).await.unwrap(), sql).await, expected);
        // If this fails, DataFusion has fixed the bug and this module can be removed.
        assert_ne!(count(&session(folder.path(), false).await.unwrap(), sql).await, expected);
    }

    #[tokio::test]
    async fn barriers_are_removed_and_filters_reach_scans() {
        let folder = tempfile::tempdir().unwrap();
        let context = session(folder.path(), true).await.unwrap();
        for sql in
            ["SELECT id FROM t WHERE d = 3", "SELECT a.d, b.d FROM t a JOIN t b ON a.k = b.k WHERE a.d = 3"]
        {
            let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            let text = displayable(plan.as_ref()).indent(false).to_string();
            assert!(!text.contains("Barrier") && text.contains("predicate=d@"), "{text}");
        }
    }
}
