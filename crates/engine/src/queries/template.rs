//! Syntax trees from SQL text, whose parts are then replaced, and pieces of plans.

use datafusion::common::{Column, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr as PlanExpr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{Expr, Query, Statement};
use datafusion::sql::sqlparser::parser::Parser;

use crate::sql::dialect::Pellucid;

/// Parses the text of a query, which is one of this crate's own.
pub(super) fn query(sql: &str) -> Option<Query> {
    match Parser::parse_sql(&Pellucid, sql).ok()?.pop()? {
        Statement::Query(query) => Some(*query),
        _ => None,
    }
}

/// Parses the text of an expression, which is one of this crate's own.
pub(super) fn expr(sql: &str) -> Option<Expr> {
    Parser::new(&Pellucid).try_with_sql(sql).ok()?.parse_expr().ok()
}

/// Adds the number of each row among those with the same keys.
pub(super) fn numbered(plan: LogicalPlan, keys: Vec<PlanExpr>, name: &str) -> Result<LogicalPlan> {
    let number = row_number().partition_by(keys).build()?.alias(name);
    LogicalPlanBuilder::from(plan).window([number])?.build()
}

pub(super) fn column(name: &str) -> Column {
    Column::new_unqualified(name)
}
