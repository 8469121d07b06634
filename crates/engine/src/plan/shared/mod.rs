//! Computes plans once that a query has several times, such as those of a CTE.
//!
//! DataFusion 55 plans a CTE once for each place that names it. Here, equal inputs of aliases become leaves ([`Shared`])
//! before the optimizer runs. Later ([`Planner`]), each of these inputs is optimized with the columns and the rows that any
//! of its places needs, and planned once: its places get the same node ([`exec::SharedExec`]), at which [`crate::plan::cut`]
//! cuts the plan.
//!
//! An input that only scans stays in all places. One that joins, but has no aggregates and no windows, is shared if all
//! places need all of its rows, which filters of its tables leave: otherwise, what each place leaves out while it scans may
//! be more than what is computed once.

pub(crate) mod equal;
pub(crate) mod exec;
pub(crate) mod places;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNode};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use crate::plan::cut::Node;
use crate::plan::shared::equal::{Body, Shared, key};
use crate::plan::shared::places::SharedLeaf;

/// Plans queries with [`Shared`] places.
#[derive(Debug)]
pub(crate) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Node> {
        let mut bodies = Vec::new();
        find(plan, &mut bodies)?;
        if bodies.is_empty() {
            return DefaultPhysicalPlanner::default().create_physical_plan(plan, session).await;
        }
        let state = session.as_any().downcast_ref::<SessionState>();
        let state = state.ok_or_else(|| internal_datafusion_err!("another session plans"))?;
        // The query, and then the plans of its places, those that have others first.
        let mut plans = vec![(None, pruned(plan.clone(), state)?)];
        let optimized = |plan| pruned(state.optimizer().optimize(plan, state, |_, _| {})?, state);
        for body in bodies.iter().rev() {
            let needs = Needs::of(body, plans.iter().map(|(_, plan)| plan))?;
            let plan = optimized(needs.plan)?;
            // The optimizer may have dropped the other places.
            let is_worth = needs.places > 1
                && (body.aggregates || needs.whole == needs.places && filters_tables(&plan)?);
            let place = if is_worth { &Shared::plan(body, plan.schema()) } else { &body.plan };
            for (_, around) in &mut plans {
                let placed = with_place(std::mem::take(around), body, place)?;
                let is_changed = placed.transformed && !is_worth;
                *around = if is_changed { optimized(placed.data)? } else { placed.data };
            }
            plans.extend(is_worth.then(|| (Some(key(body)), plan)));
        }
        let mut planned = Places::default();
        while let Some((of_body, plan)) = plans.pop() {
            let node = planned.clone().planner().create_physical_plan(&plan, session).await?;
            match of_body {
                Some(body) => planned.0.insert(body, Arc::new(SharedLeaf::new(node)?)),
                None => return Ok(node),
            };
        }
        Err(internal_datafusion_err!("the query is not planned"))
    }
}

/// Adds the plans of all places of a plan to `bodies`, each after those of its own places.
fn find(plan: &LogicalPlan, bodies: &mut Vec<Arc<Body>>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let Some(Shared { body, .. }) = Shared::of(node)
            && bodies.iter().all(|known| !Arc::ptr_eq(known, body))
        {
            find(&body.plan, bodies)?;
            bodies.push(Arc::clone(body));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Returns an optimized plan with the columns that it needs, and notes those that it needs of its places. Rules after
/// DataFusion's may have added others.
fn pruned(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]).optimize(plan, state, |_, _| {})
}

/// The columns and the rows that the places of a plan need.
struct Needs {
    /// The plan with the columns and the rows that any of them needs.
    plan: LogicalPlan,
    places: usize,
    /// Number of places that need all rows.
    whole: usize,
}

impl Needs {
    /// Returns what the places of `body` in `plans` need.
    fn of<'a>(body: &Arc<Body>, plans: impl Iterator<Item = &'a LogicalPlan>) -> Result<Self> {
        let (mut filters, mut whole) = (Vec::new(), 0);
        for plan in plans {
            plan.apply_with_subqueries(|node| {
                if let LogicalPlan::Filter(filter) = node
                    && is_place(without_projection(&filter.input), body)
                    && is_plain(&filter.predicate)?
                {
                    filters.push(filter.predicate.clone());
                    return Ok(TreeNodeRecursion::Jump);
                }
                whole += usize::from(is_place(node, body));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        let places = whole + filters.len();
        let mut plan = body.plan.clone();
        let columns: Vec<Expr> = plan.schema().iter().map(Expr::from).collect();
        if whole == 0
            && let Some(any) = of_any(&filters)
        {
            plan = LogicalPlan::Filter(Filter::try_new(any, Arc::new(plan))?);
        }
        let mut used = body.used().clone();
        if used.is_empty() {
            // The number of rows is needed.
            used.insert(0);
        }
        let columns =
            columns.into_iter().enumerate().filter(|(at, _)| used.contains(at)).map(|(_, column)| column);
        Ok(Self { plan: LogicalPlanBuilder::from(plan).project(columns)?.build()?, places, whole })
    }
}

/// Returns a predicate for the rows that any of some filters leaves.
fn of_any(filters: &[Expr]) -> Option<Expr> {
    let by_columns = |filter: &Expr| {
        let mut parts: BTreeMap<Vec<_>, Expr> = BTreeMap::new();
        for part in split_conjunction(filter) {
            let mut columns: Vec<_> = part.column_refs().into_iter().cloned().collect();
            columns.sort();
            let so_far = parts.remove(&columns);
            parts.insert(columns, so_far.map_or(part.clone(), |so_far| so_far.and(part.clone())));
        }
        parts
    };
    let parts: Vec<_> = filters.iter().map(by_columns).collect();
    // Those of the same columns may go below an aggregate or a join where the whole cannot.
    let common = parts.first()?.keys().filter_map(|columns| {
        let of_each: Option<Vec<Expr>> = parts.iter().map(|parts| parts.get(columns).cloned()).collect();
        disjunction(of_each?)
    });
    conjunction(common.chain(disjunction(filters.to_vec())))
}

/// Returns true if filters leave out rows of a table in an optimized plan.
fn filters_tables(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Filter(filter) => matches!(*filter.input, LogicalPlan::TableScan(_)),
            LogicalPlan::TableScan(scan) => !scan.filters.is_empty(),
            _ => false,
        })
    })
}

/// Returns the plan below a projection that only leaves columns out.
fn without_projection(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Projection(projection)
            if projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) =>
        {
            &projection.input
        }
        plan => plan,
    }
}

/// Returns true for a predicate that can be evaluated elsewhere.
fn is_plain(predicate: &Expr) -> Result<bool> {
    let depends = predicate.exists(|part| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        ))
    })?;
    Ok(!depends && !predicate.is_volatile())
}

fn is_place(plan: &LogicalPlan, body: &Arc<Body>) -> bool {
    Shared::of(plan).is_some_and(|place| Arc::ptr_eq(&place.body, body))
}

/// Replaces the places of `body` in a plan by another plan, which may have fewer columns.
fn with_place(plan: LogicalPlan, body: &Arc<Body>, place: &LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if is_place(&plan, body) {
        return Ok(Transformed::yes(place.clone()));
    }
    let subqueries = plan.map_subqueries(|plan| with_place(plan, body, place))?;
    let children = subqueries.data.map_children(|plan| with_place(plan, body, place))?;
    if children.transformed {
        return children.data.recompute_schema().map(Transformed::yes);
    }
    Ok(Transformed::new(children.data, subqueries.transformed, TreeNodeRecursion::Continue))
}

/// The nodes of places, by the [`key`] of their plan.
#[derive(Clone, Default)]
struct Places(HashMap<usize, Node>);

impl Places {
    fn planner(self) -> DefaultPhysicalPlanner {
        DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(self)])
    }
}

#[async_trait]
impl ExtensionPlanner for Places {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        _: &[Node],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Node>> {
        let place = node.as_any().downcast_ref::<Shared>();
        Ok(place.and_then(|place| self.0.get(&key(&place.body)).cloned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::HashSet;

    use datafusion::common::tree_node::TransformedResult;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::execution_plan::reset_plan_states;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use crate::plan::pushdown;
    use crate::plan::shared::equal::ShareEqual;
    use crate::plan::shared::exec::SharedExec;

    /// Runs a query. Returns the shared nodes of its plan, the text of each, and its sorted rows.
    async fn run(sql: &str, shares: bool) -> (Vec<String>, Vec<String>) {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if shares {
            builder = builder
                .with_analyzer_rule(Arc::new(ShareEqual))
                .with_query_planner(Arc::new(Planner))
                .with_physical_optimizer_rules(pushdown::rules());
        }
        let context = SessionContext::new_with_state(builder.build());
        let rows = "SELECT value AS id, value % 10 AS k, value % 7 AS d FROM range(1000)";
        context.sql(&format!("CREATE TABLE t AS {rows}")).await.unwrap().collect().await.unwrap();
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let (mut nodes, mut shared) = (HashSet::new(), Vec::new());
        plan.apply(|node| {
            if node.is::<SharedExec>() && nodes.insert(crate::plan::cut::key(node)) {
                shared.push(displayable(node.as_ref()).indent(false).to_string());
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        // Each partition of a node can run only once in DataFusion.
        let plan = plan
            .transform_down(|node| match node.downcast_ref::<SharedExec>() {
                Some(shared) => Ok(Transformed::yes(reset_plan_states(Arc::clone(shared.input()))?)),
                None => Ok(Transformed::no(node)),
            })
            .data()
            .unwrap();
        let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
        let table = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        let mut rows: Vec<String> = table.lines().map(str::to_string).collect();
        rows.sort();
        (shared, rows)
    }

    /// Names a CTE that has groups, and one of a join.
    const CTES: &str = "WITH c AS (SELECT k, d, sum(id) AS s, count(*) AS n, max(id) AS m FROM t GROUP BY k, d), \
                        j AS (SELECT t.k AS t, u.d AS u FROM t JOIN t u ON t.id = u.id WHERE t.d = 1) ";

    #[tokio::test]
    async fn places_have_the_rows_of_plans_of_their_own() {
        for (query, expected) in [
            ("SELECT a.k, b.s FROM c a JOIN c b ON a.k = b.k WHERE a.d = 1 AND b.d = 2", 1),
            ("SELECT (SELECT count(*) FROM c), (SELECT max(s) FROM c WHERE k = 3), min(n) FROM c", 1),
            ("SELECT k, s FROM c WHERE s > (SELECT avg(s) FROM c other WHERE other.k = c.k)", 1),
            ("SELECT d FROM c WHERE k IN (SELECT m % 10 FROM c WHERE d = 3) AND s > 9", 1),
            ("SELECT * FROM c UNION ALL SELECT * FROM c WHERE d = 1", 1),
            ("SELECT k, count(*) FROM (SELECT k, d FROM c UNION SELECT k, d FROM c) GROUP BY k", 1),
            (
                "SELECT a.s FROM c a, (SELECT k, sum(s) AS all FROM c GROUP BY k) b, \
              (SELECT k, sum(s) AS all FROM c GROUP BY k) e WHERE a.k = b.k AND b.k = e.k",
                2,
            ),
            ("SELECT count(*), sum(b.t) FROM j a, j b WHERE a.t = b.u", 1),
            // One place remains.
            ("SELECT k, s FROM c WHERE s > 5000 UNION ALL SELECT k, n FROM c WHERE false", 0),
            ("SELECT a.s FROM c a", 0),
        ] {
            let sql = format!("{CTES}{query}");
            let (shared, rows) = run(&sql, true).await;
            assert_eq!(shared.len(), expected, "{query}: {shared:?}");
            assert_eq!(rows, run(&sql, false).await.1, "{query}");
        }
    }

    #[tokio::test]
    async fn shared_plans_have_what_their_places_need() {
        let sql = format!("{CTES}SELECT a.k, b.s FROM c a JOIN c b ON a.k = b.k WHERE a.d = 1 AND b.d = 2");
        let (shared, _) = run(&sql, true).await;
        let (filter, sums) = (" = 1 OR ", "sum(t.id)");
        assert!(shared[0].contains(filter) && shared[0].contains(sums), "{shared:?}");
        assert!(!shared[0].contains("max(") && !shared[0].contains("count("), "{shared:?}");
    }

    #[tokio::test]
    async fn plans_that_differ_or_change_stay_apart() {
        for sql in [
            "SELECT * FROM (SELECT k, count(*) AS n FROM t GROUP BY k) a, \
             (SELECT k, count(*) AS n FROM t WHERE d = 1 GROUP BY k) b WHERE a.k = b.k",
            "WITH c AS (SELECT id FROM t WHERE d = 1) SELECT * FROM c a, c b WHERE a.id = b.id",
            "WITH c AS (SELECT t.id, u.k FROM t JOIN t u ON t.id = u.k WHERE t.d = 1) \
             SELECT a.id FROM c a, c b WHERE a.k = b.id AND a.k = 3",
            "WITH c AS (SELECT t.id, u.k FROM t JOIN t u ON t.id = u.k) SELECT count(*) FROM c a, c b WHERE a.k = b.id",
            "WITH c AS (SELECT k, max(id) AS m, random() AS r FROM t GROUP BY k) \
             SELECT a.m FROM c a, c b WHERE a.k = b.k",
            "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 4), \
             s AS (SELECT i FROM r) SELECT a.i FROM s a, s b WHERE a.i = b.i",
        ] {
            let (shared, rows) = run(sql, true).await;
            assert!(shared.is_empty(), "{sql}: {shared:?}");
            assert_eq!(rows, run(sql, false).await.1, "{sql}");
        }
    }
}
