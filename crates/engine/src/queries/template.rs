//! Syntax trees from SQL text, whose parts are then replaced.

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
