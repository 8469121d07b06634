//! Limits that DataFusion does not plan: `LIMIT 10%`, `LIMIT (SELECT …)` and `FETCH FIRST 5 ROWS ONLY`.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, Fetch, LimitClause, OrderByKind, Query, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
    visit_expressions_mut,
};

use super::columns::place;
use super::{error, template};
use crate::sql::tree;

/// Rewrites the limits of a statement.
///
/// # Errors
/// Returns an error with its place for a percentage or a subquery with an ORDER BY that is not by columns of the result.
pub(super) fn rewrite(tree: &mut Tree) -> Result<()> {
    let mut limits = Limits { error: None };
    let _ = tree::visit(tree, &mut limits);
    limits.error.map_or(Ok(()), Err)
}

struct Limits {
    error: Option<DataFusionError>,
}

impl VisitorMut for Limits {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(Fetch { with_ties: false, percent: false, quantity }) = &query.fetch {
            let first = quantity.clone().or_else(|| template::expr("1"));
            let offset = match query.limit_clause.take() {
                Some(LimitClause::LimitOffset { offset, .. }) => offset,
                _ => None,
            };
            query.limit_clause =
                Some(LimitClause::LimitOffset { limit: first, offset, limit_by: Vec::new() });
            query.fetch = None;
        }
        match computed(query) {
            Ok(Some(new)) => *query = new,
            Ok(None) => {}
            Err(error) => {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns the query that numbers its rows for `LIMIT n%`, or a LIMIT or OFFSET that is a subquery.
fn computed(query: &Query) -> Result<Option<Query>> {
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause else { return Ok(None) };
    let offset = offset.as_ref().map(|offset| &offset.value);
    let (most, cause) = match (limit, offset) {
        (Some(Expr::Function(call)), _) if call.name.to_string() == "__percent" => {
            let most = format!("floor(__rows * CAST({} AS DOUBLE) / 100)", call.args);
            (template::expr(&most), Expr::Function(call.clone()))
        }
        (Some(limit), _) if is_subquery(limit) => (rows(limit, "__rows"), limit.clone()),
        // Without a limit, all rows are within it.
        (limit, Some(offset)) if is_subquery(offset) => {
            (limit.clone().or_else(|| template::expr("__rows")), offset.clone())
        }
        _ => return Ok(None),
    };
    let skipped = match offset {
        None => template::expr("0"),
        Some(offset) if is_subquery(offset) => rows(offset, "0"),
        Some(offset) => Some(offset.clone()),
    };
    let (Some(most), Some(skipped)) = (most, skipped) else { return Ok(None) };
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        None => String::new(),
        Some(OrderByKind::Expressions(keys)) if keys.iter().all(|key| is_column(&key.expr, query)) => {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!("ORDER BY {}", keys.join(", "))
        }
        Some(OrderByKind::All(options)) if let Some(names) = names(query) => {
            let keys: Vec<String> = names.iter().map(|name| format!("{name}{options}")).collect();
            format!("ORDER BY {}", keys.join(", "))
        }
        Some(_) => {
            let message = "cannot use LIMIT with a percentage or a subquery here: ORDER BY must name columns of the result; name them with AS";
            return Err(error(place(&cause), message.to_string()));
        }
    };
    let sql = format!(
        "SELECT * EXCLUDE (__row, __rows) FROM (SELECT *, row_number() OVER ({order}) AS __row, count(*) OVER () AS __rows \
         FROM (SELECT 1) AS __all) AS __numbered WHERE __row > __skipped AND __row <= __skipped + __most ORDER BY __row"
    );
    let Some(mut new) = template::query(&sql) else { return Ok(None) };
    let mut inner = query.clone();
    new.with = inner.with.take();
    (inner.order_by, inner.limit_clause) = (None, None);
    // `Break` is `Infallible`.
    let _ = new.visit(&mut Put { inner: Some(inner), most, skipped });
    Ok(Some(new))
}

fn is_subquery(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_subquery(inner),
        expr => matches!(expr, Expr::Subquery(_)),
    }
}

/// Returns the number of rows that a subquery gives; `none` for NULL.
fn rows(subquery: &Expr, none: &str) -> Option<Expr> {
    let mut number = template::expr(&format!("CAST(coalesce(__subquery, {none}) AS BIGINT)"))?;
    let _ = visit_expressions_mut(&mut number, |expr| {
        if matches!(expr, Expr::Identifier(name) if name.value == "__subquery") {
            *expr = subquery.clone();
        }
        ControlFlow::<()>::Continue(())
    });
    Some(number)
}

/// Returns true for the name of a column of a query's result, or one that it may have.
fn is_column(key: &Expr, query: &Query) -> bool {
    let Expr::Identifier(key) = key else { return false };
    names(query)
        .is_none_or(|names| names.iter().any(|name| name.trim_matches('"').eq_ignore_ascii_case(&key.value)))
}

/// Returns the names of a query's columns, if each has one.
fn names(query: &Query) -> Option<Vec<String>> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) | SelectItem::ExprWithAlias { alias: name, .. } => {
            Some(name.to_string())
        }
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

/// Replaces the innermost table of a template, and the numbers of rows.
struct Put {
    inner: Option<Query>,
    most: Expr,
    skipped: Expr,
}

impl VisitorMut for Put {
    type Break = std::convert::Infallible;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table
            && alias.name.value == "__all"
            && let Some(inner) = self.inner.take()
        {
            **subquery = inner;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Identifier(name) = expr {
            match name.value.as_str() {
                "__most" => *expr = self.most.clone(),
                "__skipped" => *expr = self.skipped.clone(),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }
}
