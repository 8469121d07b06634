//! The order of the rows of subqueries, which SQL leaves open and DuckDB keeps.
//!
//! A query keeps the order of the subquery in its FROM clause (`enable_subquery_sort_elimination` is off). Aggregates and
//! window functions that give values in the order of their rows (`list(x) FROM (SELECT x … ORDER BY y)`) are ordered here
//! by what the subquery is ordered by, if they have no order of their own. An order by a column that the subquery does
//! not return is not kept.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, SortExpr, Window, WindowFrameUnits};

/// Aggregates of which each order of rows gives another value.
const AGGREGATES: &[&str] = &["array_agg", "first_value", "last_value", "nth_value", "string_agg"];
/// Window functions like that.
const WINDOWS: &[&str] = &["first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"];

/// Orders the functions of a plan by the order of their rows.
pub(super) fn keep(plan: LogicalPlan) -> Result<LogicalPlan> {
    // Most plans have none, and reading one costs less than taking it apart.
    if !has_ordered_rows(&plan)? {
        return Ok(plan);
    }
    let ordered = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, schema, .. })
            if !order(&input).is_empty() =>
        {
            let keys = order(&input);
            let aggregates = with_order(aggr_expr, |expr| aggregate(expr, &keys))?;
            let made = match aggregates.transformed {
                true => Aggregate::try_new(input, group_expr, aggregates.data)?,
                false => Aggregate::try_new_with_schema(input, group_expr, aggregates.data, schema)?,
            };
            Ok(Transformed::new_transformed(LogicalPlan::Aggregate(made), aggregates.transformed))
        }
        LogicalPlan::Window(Window { input, window_expr, .. }) if !order(&input).is_empty() => {
            let keys = order(&input);
            let windows = with_order(window_expr, |expr| window(expr, &keys))?;
            let made = Window::try_new(windows.data, input)?;
            Ok(Transformed::new_transformed(LogicalPlan::Window(made), windows.transformed))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(ordered.data)
}

/// Returns true if an aggregate or a window function of a plan has rows in some order.
fn has_ordered_rows(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found = match plan {
            LogicalPlan::Aggregate(Aggregate { input, .. }) | LogicalPlan::Window(Window { input, .. }) => {
                is_ordered(input)
            }
            _ => false,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Returns true if the rows of a plan come from a sorted one.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Filter(filter) => is_ordered(&filter.input),
        LogicalPlan::Limit(limit) => is_ordered(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        _ => false,
    }
}

/// Orders expressions, which keep their names.
fn with_order(
    exprs: Vec<Expr>,
    mut ordered: impl FnMut(Expr) -> Transformed<Expr>,
) -> Result<Transformed<Vec<Expr>>> {
    let mut changed = false;
    let exprs = exprs.into_iter().map(|expr| {
        let name = expr.schema_name().to_string();
        let made = expr.transform_down(|expr| Ok(ordered(expr)))?;
        changed |= made.transformed;
        let has_name = !made.transformed || matches!(made.data, Expr::Alias(_));
        Ok(if has_name { made.data } else { made.data.alias(name) })
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    Ok(Transformed::new_transformed(exprs, changed))
}

fn aggregate(expr: Expr, keys: &[SortExpr]) -> Transformed<Expr> {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params })
            if params.order_by.is_empty() && !params.distinct && AGGREGATES.contains(&func.name()) =>
        {
            params.order_by = keys.to_vec();
            let made = Expr::AggregateFunction(AggregateFunction { func, params });
            Transformed::new(made, true, TreeNodeRecursion::Jump)
        }
        other => Transformed::no(other),
    }
}

fn window(expr: Expr, keys: &[SortExpr]) -> Transformed<Expr> {
    match expr {
        Expr::WindowFunction(mut function) if is_ordered_by_rows(&function) => {
            function.params.order_by = keys.to_vec();
            Transformed::new(Expr::WindowFunction(function), true, TreeNodeRecursion::Jump)
        }
        other => Transformed::no(other),
    }
}

/// Returns true for a window function without an order whose values depend on that of the rows.
fn is_ordered_by_rows(function: &WindowFunction) -> bool {
    let name = function.fun.name();
    let by_rows = matches!(function.params.window_frame.units, WindowFrameUnits::Rows);
    function.params.order_by.is_empty() && (by_rows || WINDOWS.contains(&name) || AGGREGATES.contains(&name))
}

/// Returns the expressions that the rows of a plan are ordered by.
pub(super) fn order(plan: &LogicalPlan) -> Vec<SortExpr> {
    match plan {
        LogicalPlan::Sort(sort) => sort.expr.clone(),
        LogicalPlan::Filter(filter) => order(&filter.input),
        LogicalPlan::Limit(limit) => order(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => {
            let from: Vec<Expr> = alias.input.schema().columns().into_iter().map(Expr::Column).collect();
            outside(order(&alias.input), &from, &alias.schema.columns())
        }
        LogicalPlan::Projection(projection) => {
            let from: Vec<Expr> = projection.expr.iter().map(|one| one.clone().unalias()).collect();
            outside(order(&projection.input), &from, &projection.schema.columns())
        }
        _ => Vec::new(),
    }
}

/// Returns the keys of an order in terms of the columns `to`, which have the values of `from`, up to the first without one.
fn outside(keys: Vec<SortExpr>, from: &[Expr], to: &[Column]) -> Vec<SortExpr> {
    let column = |expr: &Expr| from.iter().position(|one| one == expr).map(|at| Expr::Column(to[at].clone()));
    let key = |key: SortExpr| {
        let made = key.expr.transform_down(|expr| {
            Ok(match column(&expr) {
                Some(column) => Transformed::new(column, true, TreeNodeRecursion::Jump),
                None => Transformed::no(expr),
            })
        });
        let expr = made.ok()?.data;
        let is_outside = expr.column_refs().into_iter().all(|one| to.contains(one));
        is_outside.then_some(SortExpr { expr, ..key })
    };
    keys.into_iter().map_while(key).collect()
}
