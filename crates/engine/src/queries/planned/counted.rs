//! EXISTS, IN, ANY and ALL with a subquery.
//!
//! DataFusion joins them only in WHERE. Among the columns of a query, they become counts of the subquery's rows, which it
//! joins there too. And it compares with ANY and ALL by the name of the subquery's column, so that this column gets one
//! that no table has: in `x > ALL (SELECT x FROM t)`, both sides may be columns of the same table.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_datafusion_err};
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    Subquery, binary_expr, lit, when,
};

/// Name of the column of a subquery to compare with.
const COMPARED: &str = "__compared";

/// Replaces the expressions of a plan.
pub(super) fn replace(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        found = has_mark(plan);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let replaced = plan.transform_up_with_subqueries(|plan| match plan {
        plan if !has_mark(&plan) => Ok(Transformed::no(plan)),
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let names = NamePreserver::new_for_projection();
            let exprs = expr.into_iter().map(|expr| {
                let name = names.save(&expr);
                let made = expr.transform_up(|expr| mark(expr, input.schema()))?;
                Ok(name.restore(made.data))
            });
            let exprs = exprs.collect::<Result<Vec<_>>>()?;
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
        }
        LogicalPlan::Aggregate(aggregate) => {
            Ok(Transformed::yes(LogicalPlan::Aggregate(below_aggregate(aggregate)?)))
        }
        plan => plan.map_expressions(|expr| expr.transform_up(renamed)),
    })?;
    Ok(replaced.data)
}

/// Returns true for a plan with an expression to replace.
fn has_mark(plan: &LogicalPlan) -> bool {
    let is_comparison = |expr: &Expr| Ok(matches!(expr, Expr::SetComparison(_)));
    let is_mark =
        |expr: &Expr| Ok(matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)));
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().any(|expr| expr.exists(is_mark).unwrap_or_default())
        }
        LogicalPlan::Aggregate(aggregate) => {
            let mut exprs = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
            exprs.any(|expr| expr.exists(is_mark).unwrap_or_default())
        }
        LogicalPlan::Filter(filter) => filter.predicate.exists(is_comparison).unwrap_or_default(),
        _ => false,
    }
}

/// Replaces the expressions of an aggregate by columns of a projection below it, which keep the aggregate's names.
fn below_aggregate(aggregate: Aggregate) -> Result<Aggregate> {
    let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
    let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut replaced = |expr: Expr| -> Result<Expr> {
        let name = expr.schema_name().to_string();
        let made = expr.transform_up(|expr| {
            let made = mark(expr, input.schema())?;
            if !made.transformed {
                return Ok(made);
            }
            let name = format!("__mark_{}", columns.len());
            columns.push(made.data.alias(&name));
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
        })?;
        let has_name = !made.transformed || matches!(made.data, Expr::Alias(_));
        Ok(if has_name { made.data } else { made.data.alias(name) })
    };
    let group_expr = group_expr.into_iter().map(&mut replaced).collect::<Result<Vec<_>>>()?;
    let aggr_expr = aggr_expr.into_iter().map(&mut replaced).collect::<Result<Vec<_>>>()?;
    let plan = input.as_ref().clone();
    let input = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    Aggregate::try_new(Arc::new(input), group_expr, aggr_expr)
}

/// Renames the column that ANY and ALL compare with.
fn renamed(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::SetComparison(mut comparison) = expr else { return Ok(Transformed::no(expr)) };
    comparison.subquery.subquery = Arc::new(with_name(&comparison.subquery)?);
    Ok(Transformed::yes(Expr::SetComparison(comparison)))
}

/// Returns the plan of a subquery, whose column is [`COMPARED`].
fn with_name(subquery: &Subquery) -> Result<LogicalPlan> {
    let column = subquery.subquery.schema().columns().into_iter().next();
    let column = column.ok_or_else(|| plan_datafusion_err!("the subquery has no column; select one"))?;
    LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
        .project([Expr::Column(column).alias(COMPARED)])?
        .build()
}

/// Returns the expression over counts of rows that replaces EXISTS, IN, ANY or ALL.
pub(super) fn mark(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(Transformed::yes(match expr {
        Expr::Exists(Exists { subquery, negated }) => {
            let rows = counted(subquery, None, Vec::new())?;
            if negated { rows.eq(lit(0_i64)) } else { rows.gt(lit(0_i64)) }
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let found = any(*expr, Operator::Eq, subquery, schema)?;
            if negated { Expr::Not(Box::new(found)) } else { found }
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
            match (quantifier, op.negate()) {
                (SetQuantifier::All, Some(op)) => Expr::Not(Box::new(any(*expr, op, subquery, schema)?)),
                _ => any(*expr, op, subquery, schema)?,
            }
        }
        other => return Ok(Transformed::no(other)),
    }))
}

/// Returns `value op ANY (subquery)`, which is NULL if it is true for no row and one of both sides is NULL.
fn any(value: Expr, op: Operator, subquery: Subquery, schema: &DFSchema) -> Result<Expr> {
    let subquery = Subquery { subquery: Arc::new(with_name(&subquery)?), ..subquery };
    let column = Expr::Column(Column::new_unqualified(COMPARED));
    let compared = |aggregate| -> Result<Expr> {
        let bound = scalar(subquery.subquery.as_ref().clone(), aggregate, subquery.clone())?;
        Ok(Expr::IsTrue(Box::new(binary_expr(value.clone(), op, bound))))
    };
    let found = match op {
        Operator::Gt | Operator::GtEq => compared(min(column.clone()))?,
        Operator::Lt | Operator::LtEq => compared(max(column.clone()))?,
        Operator::NotEq => compared(min(column.clone()))?.or(compared(max(column.clone()))?),
        // DataFusion joins only equal values.
        _ => {
            let mut columns = Vec::new();
            let outer = value.clone().transform_up(|expr| {
                let Expr::Column(column) = expr else { return Ok(Transformed::no(expr)) };
                let field = Arc::clone(schema.qualified_field_from_column(&column)?.1);
                let column = Expr::OuterReferenceColumn(field, column);
                columns.push(column.clone());
                Ok(Transformed::yes(column))
            })?;
            let is_true = binary_expr(outer.data, op, column.clone());
            counted(subquery.clone(), Some(is_true), columns)?.gt(lit(0_i64))
        }
    };
    if !subquery.subquery.schema().field(0).is_nullable() && !value.nullable(schema)? {
        return Ok(found);
    }
    let is_empty = counted(subquery.clone(), None, Vec::new())?.eq(lit(0_i64));
    let has_null = counted(subquery, Some(column.is_null()), Vec::new())?.gt(lit(0_i64));
    when(found, lit(true))
        .when(is_empty, lit(false))
        .when(value.is_null().or(has_null), lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))
}

/// Returns the number of rows of a subquery that meet a condition, which uses some columns of the query around it.
fn counted(subquery: Subquery, condition: Option<Expr>, columns: Vec<Expr>) -> Result<Expr> {
    let plan = subquery.subquery.as_ref().clone();
    let plan = match condition {
        Some(condition) => LogicalPlanBuilder::from(plan).filter(condition)?.build()?,
        None => without_order(plan),
    };
    let new: Vec<Expr> =
        columns.into_iter().filter(|one| !subquery.outer_ref_columns.contains(one)).collect();
    let outer_ref_columns = subquery.outer_ref_columns.iter().cloned().chain(new).collect();
    scalar(plan, count(lit(1_i64)), Subquery { outer_ref_columns, ..subquery })
}

/// Returns the value of an aggregate over a plan, in place of that of a subquery.
fn scalar(plan: LogicalPlan, aggregate: Expr, subquery: Subquery) -> Result<Expr> {
    let plan = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), [aggregate])?;
    let value: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    Ok(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan.project(value)?.build()?), ..subquery }))
}

/// Removes what does not change whether a plan has rows.
fn without_order(plan: LogicalPlan) -> LogicalPlan {
    let is_positive = |fetch: &Expr| matches!(fetch, Expr::Literal(ScalarValue::Int64(Some(1..)), _));
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => without_order(Arc::unwrap_or_clone(sort.input)),
        LogicalPlan::Distinct(Distinct::All(input)) => without_order(Arc::unwrap_or_clone(input)),
        LogicalPlan::Limit(limit)
            if limit.skip.is_none() && limit.fetch.as_deref().is_some_and(is_positive) =>
        {
            without_order(Arc::unwrap_or_clone(limit.input))
        }
        plan => plan,
    }
}
