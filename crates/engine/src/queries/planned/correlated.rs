//! Correlated subqueries that DataFusion does not join, or joins to wrong rows: LATERAL, values, EXISTS and IN.
//!
//! The others are left to DataFusion, whose plans read the outer table once.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, exec_err};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, FetchType, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility, check_subquery_expr, lit,
};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::counted;
use super::domain::Domain;

/// Joins the correlated subqueries of a plan.
pub(super) fn join(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found = plan.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let joined = plan.transform_up_with_subqueries(|plan| {
        let made = match &plan {
            LogicalPlan::Join(join) => lateral(join)?,
            LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Aggregate(_) => values(&plan)?,
            _ => None,
        };
        Ok(made.map_or_else(|| Transformed::no(plan), Transformed::yes))
    })?;
    Ok(joined.data)
}

/// Returns the join that a LATERAL subquery stands for.
fn lateral(join: &Join) -> Result<Option<LogicalPlan>> {
    let (subquery, alias) = match join.right.as_ref() {
        LogicalPlan::Subquery(subquery) => (subquery, None),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => (subquery, Some(&alias.alias)),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(None);
    }
    let Some(domain) = not_joined(&subquery.subquery, &join.left, Use::Lateral)? else { return Ok(None) };
    let Some(mut rows) = domain.over(&subquery.subquery)? else { return Ok(None) };
    if let Some(alias) = alias {
        rows = domain.aliased(rows, alias)?;
    }
    let on = join.on.iter().map(|(a, b)| a.clone().eq(b.clone())).chain(join.filter.clone());
    let conditions: Vec<Expr> = domain.conditions().chain(on).collect();
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(join.left.as_ref().clone())
        .join_on(rows, join.join_type, conditions)?
        .project(columns)?
        .build()
        .map(Some)
}

/// Returns the operator with columns in place of the subqueries of its expressions, which are joined below it.
fn values(node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let inputs = node.inputs();
    let [input] = inputs[..] else { return Ok(None) };
    let mut below = input.clone();
    let mut changed = false;
    let names = NamePreserver::new_for_projection();
    let exprs = node.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        let counted = expr.transform_up(|expr| match &expr {
            Expr::Exists(exists) if is_counted(&exists.subquery, input, Use::Exists)? => {
                counted::mark(expr, input.schema())
            }
            Expr::InSubquery(member)
                if is_counted(&member.subquery, input, Use::Member { negated: member.negated })? =>
            {
                counted::mark(expr, input.schema())
            }
            _ => Ok(Transformed::no(expr)),
        })?;
        let is_counted = counted.transformed;
        let made = counted.data.transform_up(|expr| match &expr {
            Expr::ScalarSubquery(subquery) if is_refused(node, input, subquery, &expr)? => {
                let Some((joined, value)) = value(&below, input, subquery)? else {
                    return Ok(Transformed::no(expr));
                };
                below = joined;
                Ok(Transformed::yes(value))
            }
            _ => Ok(Transformed::no(expr)),
        })?;
        if !is_counted && !made.transformed {
            return Ok(made.data);
        }
        changed = true;
        Ok(name.restore(made.data))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    if !changed {
        return Ok(None);
    }
    let made = match node {
        LogicalPlan::Filter(_) => {
            let own: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
            let predicate =
                exprs.into_iter().map(Expr::unalias).reduce(Expr::and).unwrap_or_else(|| lit(true));
            LogicalPlanBuilder::from(below).filter(predicate)?.project(own)?.build()?
        }
        node => node.with_new_exprs(exprs, vec![below])?,
    };
    Ok(Some(made))
}

/// Returns true for a value that DataFusion does not join.
fn is_refused(node: &LogicalPlan, input: &LogicalPlan, subquery: &Subquery, expr: &Expr) -> Result<bool> {
    let body = &subquery.subquery;
    // Another number of columns is an error.
    if subquery.outer_ref_columns.is_empty() || body.schema().fields().len() != 1 {
        return Ok(false);
    }
    Ok(check_subquery_expr(node, body, expr).is_err() || not_joined(body, input, Use::Value)?.is_some())
}

/// The place of a subquery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Lateral,
    Value,
    Exists,
    Member { negated: bool },
}

/// Returns the domain of a subquery that DataFusion does not join to `outer`, or joins to the wrong rows; `None` for one
/// that uses no columns of `outer`.
fn not_joined(body: &LogicalPlan, outer: &LogicalPlan, of: Use) -> Result<Option<Domain>> {
    let Some(domain) = Domain::new(body, outer, outer)? else { return Ok(None) };
    let has_rows = matches!(of, Use::Exists | Use::Member { .. });
    let (mut wrong, mut aggregates) = (of == Use::Member { negated: true }, 0);
    body.apply(|plan| {
        // A part without outer columns is the same for all outer rows.
        if !domain.is_used(plan)? {
            return Ok(TreeNodeRecursion::Jump);
        }
        // Operators that DataFusion would compute over the rows of all outer rows, and subqueries of FROM
        // (`unnest(outer.list)`).
        wrong |= match plan {
            LogicalPlan::Window(_) | LogicalPlan::Subquery(_) => true,
            LogicalPlan::Filter(filter) => {
                matches!(*filter.input, LogicalPlan::Aggregate(_)) && domain.is_used(&filter.input)?
            }
            LogicalPlan::Distinct(_) => !has_rows,
            LogicalPlan::Limit(limit) => limit.skip.is_some(),
            LogicalPlan::Aggregate(aggregate) => {
                aggregates += 1;
                aggregates > 1 || has_rows && aggregate.group_expr.is_empty()
            }
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    if wrong {
        return Ok(Some(domain));
    }
    let mut pull_up = PullUpCorrelatedExpr::new()
        .with_need_handle_count_bug(!has_rows)
        .with_exists_sub_query(of == Use::Exists);
    // An error, such as that of a wrong type, is DataFusion's to report.
    let is_joined = body.clone().rewrite(&mut pull_up).is_err() || pull_up.can_pull_up;
    Ok((!is_joined).then_some(domain))
}

/// Returns true if a subquery of EXISTS or IN must become a count of rows.
fn is_counted(subquery: &Subquery, outer: &LogicalPlan, of: Use) -> Result<bool> {
    let body = &subquery.subquery;
    let Some(domain) = not_joined(body, outer, of)? else { return Ok(false) };
    Ok(domain.over(body)?.is_some())
}

/// Returns a plan with the value of a subquery for each row of `below`, and the column of the value. The subquery uses
/// columns of `input`.
fn value(
    below: &LogicalPlan,
    input: &LogicalPlan,
    subquery: &Subquery,
) -> Result<Option<(LogicalPlan, Expr)>> {
    let body = &subquery.subquery;
    let Some(domain) = Domain::new(body, input, below)? else { return Ok(None) };
    let (Some(rows), Some(column)) = (domain.over(body)?, body.schema().columns().into_iter().next()) else {
        return Ok(None);
    };
    let name = domain.own("value");
    let column = Expr::Column(column);
    let rows = if has_one_row(body)? {
        LogicalPlanBuilder::from(rows).project(domain.columns().into_iter().chain([column.alias(&name)]))?
    } else {
        let (first, number) = (domain.own("first"), domain.own("rows"));
        let aggregates =
            vec![first_value(column, Vec::new()).alias(&first), count(lit(1_i64)).alias(&number)];
        let groups =
            LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(rows), domain.columns(), aggregates)?);
        let parts = [first, number].map(|name| Expr::Column(Column::new_unqualified(name)));
        let single = ScalarUDF::new_from_impl(Single::new()).call(parts.to_vec()).alias(&name);
        LogicalPlanBuilder::from(groups).project(domain.columns().into_iter().chain([single]))?
    };
    let joined = LogicalPlanBuilder::from(below.clone())
        .join_on(rows.build()?, JoinType::Left, domain.conditions())?
        .build()?;
    Ok(Some((joined, Expr::Column(Column::new_unqualified(name)))))
}

/// Returns true if a subquery has at most one row.
fn has_one_row(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input)?,
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input)?,
        LogicalPlan::Filter(filter) => has_one_row(&filter.input)?,
        LogicalPlan::Sort(sort) => has_one_row(&sort.input)?,
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Limit(limit) => matches!(limit.get_fetch_type()?, FetchType::Literal(Some(0 | 1))),
        _ => false,
    })
}

/// The value of a subquery, from that of its first row and the number of its rows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Single {
    signature: Signature,
}

impl Single {
    fn new() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Single {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, rows] = &args.args[..] else { return exec_err!("single_value takes two arguments") };
        let counts = rows.to_array(args.number_rows)?;
        if counts.as_primitive::<Int64Type>().iter().flatten().any(|count| count > 1) {
            return exec_err!(
                "a scalar subquery returned more than one row; add LIMIT 1, or compare with IN"
            );
        }
        Ok(value.clone())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// Returns the rows of a query over two tables, sorted.
    async fn rows(sql: &str) -> Result<Vec<String>> {
        let context = SessionContext::new();
        for table in [
            "CREATE TABLE o AS SELECT * FROM (VALUES (1, 1), (2, 2), (3, 1), (NULL, 4)) AS v(k, n)",
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 2, 1), (1, 3, 2), (1, 1, 3), (2, 5, 1), (2, 6, 2), (4, 7, 1)) AS v(k, x, y)",
        ] {
            context.sql(table).await?.collect().await?;
        }
        let plan = join(context.state().create_logical_plan(sql).await?)?;
        let mut rows = Vec::new();
        for batch in context.execute_logical_plan(plan).await?.collect().await? {
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter().map(|column| array_value_to_string(column, row));
                rows.push(values.collect::<std::result::Result<Vec<_>, _>>()?.join(" "));
            }
        }
        rows.sort();
        Ok(rows)
    }

    #[tokio::test]
    async fn lateral_subqueries_run_for_each_row() {
        for (sql, expected) in [
            (
                "SELECT o.k, s.x FROM o, LATERAL (SELECT x FROM t WHERE t.k = o.k ORDER BY y LIMIT 2) s",
                &["1 2", "1 3", "2 5", "2 6"][..],
            ),
            (
                "SELECT o.k, s.x FROM o LEFT JOIN LATERAL (SELECT x FROM t WHERE t.k < o.k ORDER BY x DESC LIMIT 1) s ON true",
                &[" ", "1 ", "2 3", "3 6"],
            ),
            (
                "SELECT o.k, s.r FROM o, LATERAL (SELECT row_number() OVER (ORDER BY y) AS r FROM t WHERE t.k = o.k) s",
                &["1 1", "1 2", "1 3", "2 1", "2 2"],
            ),
            (
                "SELECT o.k, s.c FROM o, LATERAL (SELECT count(*) AS c FROM t WHERE t.k = o.k LIMIT 1) s",
                &[" 0", "1 3", "2 2", "3 0"],
            ),
            (
                "SELECT o.k, s.x FROM o, LATERAL (SELECT DISTINCT x % 2 AS x FROM t WHERE t.k < o.k) s",
                &["2 0", "2 1", "3 0", "3 1"],
            ),
            ("SELECT o.k, s.z FROM o, LATERAL (SELECT o.n + 1 AS z) s", &[" 5", "1 2", "2 3", "3 2"]),
            (
                "SELECT o.k, s.x FROM o, LATERAL (SELECT x FROM t WHERE t.k = o.k AND y > 1 UNION ALL SELECT o.n) s",
                &[" 4", "1 1", "1 1", "1 3", "2 2", "2 6", "3 1"],
            ),
        ] {
            assert_eq!(rows(sql).await.unwrap(), expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn values_come_from_one_row() {
        for (sql, expected) in [
            (
                "SELECT k, (SELECT x FROM t WHERE t.k = o.k AND y = 1) AS x FROM o",
                &[" ", "1 2", "2 5", "3 "][..],
            ),
            (
                "SELECT k, (SELECT x FROM t WHERE t.k = o.k ORDER BY y DESC LIMIT 1) AS x FROM o",
                &[" ", "1 1", "2 6", "3 "],
            ),
            (
                "SELECT k, (SELECT sum(x) + o.n FROM t WHERE t.k = o.k) AS a, (SELECT count(*) FROM (SELECT 1 FROM t WHERE t.k = o.k LIMIT 2)) AS b FROM o",
                &["  0", "1 7 2", "2 13 2", "3  0"],
            ),
            (
                "SELECT k FROM o WHERE (SELECT x FROM t WHERE t.k = o.k ORDER BY x DESC LIMIT 1 OFFSET 1) > 2",
                &["2"],
            ),
            ("SELECT k FROM o WHERE 2 IN (SELECT x FROM t WHERE t.k = o.k ORDER BY y LIMIT 1)", &["1"]),
            ("SELECT k FROM o WHERE k NOT IN (SELECT x FROM t WHERE t.k = o.k AND x < 3)", &["", "2", "3"]),
            ("SELECT k FROM o WHERE EXISTS (SELECT count(*) FROM t WHERE t.k = o.k)", &["", "1", "2", "3"]),
            ("SELECT k FROM o WHERE EXISTS (SELECT x FROM t WHERE t.k = o.k LIMIT 5 OFFSET 2)", &["1"]),
            (
                "SELECT k, (SELECT count(*) FROM t WHERE t.k = o.k HAVING count(*) > 2) AS n FROM o",
                &[" ", "1 3", "2 ", "3 "],
            ),
            (
                "SELECT k FROM o WHERE EXISTS (SELECT row_number() OVER () FROM t WHERE t.k = o.k AND t.x > 4)",
                &["2"],
            ),
            ("SELECT sum((SELECT x FROM t WHERE t.k = o.k AND y = 1)) AS s FROM o", &["7"]),
        ] {
            assert_eq!(rows(sql).await.unwrap(), expected, "{sql}");
        }
        let error = rows("SELECT (SELECT x FROM t WHERE t.k = o.k) FROM o").await.unwrap_err().to_string();
        assert!(error.contains("a scalar subquery returned more than one row"), "{error}");
    }
}
