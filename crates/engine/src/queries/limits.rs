//! Limits that DataFusion does not plan: `LIMIT 10%`, `FETCH FIRST 5 ROWS ONLY`, and the LIMIT 1 of a correlated subquery.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, Fetch, GroupByExpr, LimitClause, OrderByKind, Query, SelectItem, SetExpr, TableFactor, VisitMut,
    VisitorMut,
};

use super::columns::place;
use super::{error, template};
use crate::sql::tree;

/// Rewrites the limits of a statement.
///
/// # Errors
/// Returns an error with its place for a percentage with an ORDER BY that is not by columns of the result.
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
        match percent(query) {
            Ok(Some(new)) => *query = new,
            Ok(None) => {}
            Err(error) => {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expr {
            // The first row of a subquery is an aggregate, which DataFusion joins.
            let _ = first_row(query);
        }
        ControlFlow::Continue(())
    }
}

/// Returns the query that numbers its rows for `LIMIT n%`.
fn percent(query: &Query) -> Result<Option<Query>> {
    let Some(LimitClause::LimitOffset { limit: Some(Expr::Function(call)), offset, .. }) =
        &query.limit_clause
    else {
        return Ok(None);
    };
    if call.name.to_string() != "__percent" {
        return Ok(None);
    }
    let share = call.args.to_string();
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        None => String::new(),
        Some(OrderByKind::Expressions(keys))
            if keys.iter().all(|key| matches!(key.expr, Expr::Identifier(_))) =>
        {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!("ORDER BY {}", keys.join(", "))
        }
        Some(_) => {
            let message = "cannot use LIMIT with a percentage here: ORDER BY must name columns of the result; name them with AS";
            return Err(error(place(&Expr::Function(call.clone())), message.to_string()));
        }
    };
    let skipped = offset.as_ref().map_or_else(|| "0".to_string(), |offset| offset.value.to_string());
    let sql = format!(
        "SELECT * EXCLUDE (__row, __rows) FROM (SELECT *, row_number() OVER ({order}) AS __row, count(*) OVER () AS __rows \
         FROM (SELECT 1) AS __all) AS __numbered WHERE __row > {skipped} AND __row <= {skipped} + floor(__rows * CAST({share} AS \
         DOUBLE) / 100) ORDER BY __row"
    );
    let Some(mut new) = template::query(&sql) else { return Ok(None) };
    let mut inner = query.clone();
    new.with = inner.with.take();
    (inner.order_by, inner.limit_clause) = (None, None);
    let mut put = Put(Some(inner));
    let _ = new.visit(&mut put);
    Ok(Some(new))
}

/// Replaces the innermost table of a template.
struct Put(Option<Query>);

impl VisitorMut for Put {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table
            && alias.name.value == "__all"
            && let Some(inner) = self.0.take()
        {
            **subquery = inner;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Makes `SELECT first_value(a ORDER BY b) …` of `SELECT a … ORDER BY b LIMIT 1`.
fn first_row(query: &mut Query) -> Option<()> {
    let one = matches!(&query.limit_clause,
        Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, .. }) if limit.to_string() == "1");
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let plain = select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && select.selection.is_some()
        && matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &mut select.projection[..]
    else {
        return None;
    };
    if !one || !plain || !matches!(item, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(keys)) => {
            // A position is not one within an aggregate.
            if keys.iter().any(|key| matches!(key.expr, Expr::Value(_))) {
                return None;
            }
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            format!(" ORDER BY {}", keys.join(", "))
        }
        Some(OrderByKind::All(_)) => return None,
        None => String::new(),
    };
    *item = template::expr(&format!("first_value({item}{order})"))?;
    (query.order_by, query.limit_clause) = (None, None);
    Some(())
}
