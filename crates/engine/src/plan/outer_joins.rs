//! Makes outer joins inner if a join above drops the rows that they complete with nulls.
//!
//! In `(a LEFT JOIN b ON a.x = b.x) JOIN c ON b.y = c.y`, rows without a partner in `b` have no `b.y`, and so none in `c`.
//! DataFusion sees this in conditions of filters, but not in those of joins. Inner joins can be ordered, and filtered by
//! keys.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::logical_expr::{Cast, Expr, Join, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule, which runs after DataFusion's.
#[derive(Debug)]
pub(crate) struct InnerOuterJoins;

impl OptimizerRule for InnerOuterJoins {
    fn name(&self) -> &str {
        "inner_outer_joins"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let (mut of_left, mut of_right) = drops_unmatched(join.join_type);
        // NOT IN needs the nulls.
        if join.null_equality == NullEquality::NullEqualsNull || join.null_aware {
            (of_left, of_right) = (false, false);
        }
        let mut changed = false;
        for (left, right) in &join.on {
            for (input, key, drops) in [(&mut join.left, left, of_left), (&mut join.right, right, of_right)] {
                if let Some(inner) = column(key).filter(|_| drops).and_then(|key| without_nulls(input, key)) {
                    *input = Arc::new(inner);
                    changed = true;
                }
            }
        }
        let plan = LogicalPlan::Join(join);
        Ok(if changed { Transformed::yes(plan) } else { Transformed::no(plan) })
    }
}

/// Returns whether a join drops rows of its left, and of its right input, that have no partner.
fn drops_unmatched(join: JoinType) -> (bool, bool) {
    match join {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => (true, true),
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => (false, true),
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => (true, false),
        JoinType::Full => (false, false),
    }
}

/// Returns the column without which an expression has no value.
fn column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Cast(Cast { expr, .. }) => column(expr),
        Expr::Alias(alias) => column(&alias.expr),
        _ => None,
    }
}

/// Returns a plan whose rows in which `key` is not null are those of `plan`; `None` if there is none with fewer rows.
fn without_nulls(plan: &LogicalPlan, key: &Column) -> Option<LogicalPlan> {
    let mut plan = plan.clone();
    let (input, key) = match &mut plan {
        LogicalPlan::Projection(projection) => {
            let expr = &projection.expr[projection.schema.maybe_index_of_column(key)?];
            (&mut projection.input, column(expr)?.clone())
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let place = alias.schema.maybe_index_of_column(key)?;
            let key = alias.input.schema().columns().swap_remove(place);
            (&mut alias.input, key)
        }
        LogicalPlan::Filter(filter) => (&mut filter.input, key.clone()),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => (&mut sort.input, key.clone()),
        LogicalPlan::Join(join) => return of_join(join, key).map(LogicalPlan::Join),
        _ => return None,
    };
    *input = Arc::new(without_nulls(input, &key)?);
    Some(plan)
}

fn of_join(join: &Join, key: &Column) -> Option<Join> {
    use JoinType::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
    let is_left = match join.join_type {
        LeftSemi | LeftAnti | LeftMark => true,
        RightSemi | RightAnti | RightMark => false,
        Inner | Left | Right | Full => join.left.schema().has_column(key),
    };
    let join_type = match (join.join_type, is_left) {
        (Left, false) | (Right, true) => Inner,
        (Full, true) => Left,
        (Full, false) => Right,
        (same, _) => same,
    };
    let input = if is_left { &join.left } else { &join.right };
    let below = input.schema().has_column(key).then(|| without_nulls(input, key)).flatten().map(Arc::new);
    let mut inner = Join { join_type, ..join.clone() };
    if join_type == join.join_type && below.is_none() {
        return None;
    }
    match below {
        Some(below) if is_left => inner.left = below,
        Some(below) => inner.right = below,
        None => {}
    }
    Some(inner)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn rows_and_plan(context: &SessionContext, query: &str) -> (String, String) {
        for (table, rows) in [
            ("a", "(1, 1), (2, 2), (3, NULL), (NULL, 4)"),
            ("b", "(1, 7), (2, NULL), (5, 8), (NULL, 9)"),
            ("c", "(7, 1), (8, 2), (NULL, 3), (1, 4), (4, 5)"),
        ] {
            let view = format!("CREATE OR REPLACE VIEW {table}(x, y) AS VALUES {rows}");
            context.sql(&view).await.unwrap().collect().await.unwrap();
        }
        let frame = context.sql(query).await.unwrap();
        let plan = frame.clone().into_optimized_plan().unwrap().display_indent().to_string();
        let rows = pretty_format_batches(&frame.collect().await.unwrap()).unwrap().to_string();
        let mut rows: Vec<&str> = rows.lines().collect();
        rows.sort_unstable();
        (rows.join("\n"), plan)
    }

    #[tokio::test]
    async fn joins_become_inner_where_a_join_above_drops_nulls() {
        let outer = "SELECT a.x AS ax, a.y AS ay, b.x AS bx, b.y AS by FROM a";
        let cases = [
            (format!("SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x) t JOIN c ON t.by = c.x"), ""),
            (format!("SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x) t JOIN c ON t.ay = c.x"), "Left Join"),
            (format!("SELECT * FROM c JOIN ({outer} RIGHT JOIN b ON a.x = b.x) t ON t.ay = c.x"), ""),
            (format!("SELECT * FROM ({outer} FULL JOIN b ON a.x = b.x) t JOIN c ON t.ay = c.x"), "Left Join"),
            (
                format!("SELECT * FROM ({outer} FULL JOIN b ON a.x = b.x) t JOIN c ON t.by = c.x"),
                "Right Join",
            ),
            (
                format!(
                    "SELECT * FROM ({outer} FULL JOIN b ON a.x = b.x) t JOIN c ON t.by = c.x AND t.ay = c.y"
                ),
                "",
            ),
            (
                format!("SELECT * FROM c LEFT JOIN ({outer} LEFT JOIN b ON a.x = b.x) t ON t.by = c.x"),
                "Left Join",
            ),
            (
                format!("SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x) t LEFT JOIN c ON t.by = c.x"),
                "Left Join: Left Join",
            ),
            (
                format!(
                    "SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x) t JOIN c ON t.by IS NOT DISTINCT FROM c.x"
                ),
                "Left Join",
            ),
            (
                format!(
                    "SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x) t JOIN c ON coalesce(t.by, 1) = c.x"
                ),
                "Left Join",
            ),
            (
                format!(
                    "SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x ORDER BY 1 LIMIT 3) t JOIN c ON t.by = c.x"
                ),
                "Left Join",
            ),
            (
                "SELECT * FROM c WHERE c.x IN (SELECT b.y FROM a LEFT JOIN b ON a.x = b.x)".to_string(),
                "LeftSemi Join",
            ),
            (
                "SELECT * FROM c WHERE c.x NOT IN (SELECT b.y FROM a LEFT JOIN b ON a.x = b.x)".to_string(),
                "LeftAnti Join: Left Join",
            ),
            (
                format!(
                    "SELECT * FROM ({outer} LEFT JOIN b ON a.x = b.x) t WHERE t.by NOT IN (SELECT x FROM c WHERE x > 1)"
                ),
                "LeftAnti Join: Left Join",
            ),
        ];
        let plain = SessionContext::new();
        let ruled = SessionContext::new();
        ruled.add_optimizer_rule(Arc::new(InnerOuterJoins));
        for (query, joins) in cases {
            let (expected, _) = rows_and_plan(&plain, &query).await;
            let (got, plan) = rows_and_plan(&ruled, &query).await;
            assert_eq!(got, expected, "{query}\n{plan}");
            let kinds = ["Left Join", "Right Join", "Full Join", "LeftSemi Join", "LeftAnti Join"];
            let found = |line: &str| kinds.into_iter().find(|kind| line.trim_start().starts_with(kind));
            let found: Vec<&str> = plan.lines().filter_map(found).collect();
            assert_eq!(found.join(": "), joins, "{query}\n{plan}");
        }
    }
}
