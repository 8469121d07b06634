//! `ORDER BY ALL`: by the columns of the result, from left to right.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, SetQuantifier, Value, VisitorMut,
};

use crate::sql::tree;

/// Replaces `ORDER BY ALL` by the positions of the columns where their number is known.
pub(crate) fn rewrite(tree: &mut Tree) {
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut Orders);
}

struct Orders;

impl VisitorMut for Orders {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let Some(order) = &mut query.order_by
            && let OrderByKind::All(options) = &order.kind
            && let Some(columns) = width(&query.body)
        {
            let key = |position: usize| OrderByExpr {
                expr: Expr::Value(Value::Number(position.to_string(), false).with_empty_span()),
                options: *options,
                with_fill: None,
            };
            order.kind = OrderByKind::Expressions((1..=columns).map(key).collect());
        }
        ControlFlow::Continue(())
    }
}

/// Returns the number of columns of a query; `None` if it is not known.
fn width(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let known = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => !name.value.starts_with("__columns_"),
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => false,
                _ => true,
            };
            select.projection.iter().all(known).then_some(select.projection.len())
        }
        SetExpr::SetOperation { left, right, set_quantifier, .. } => match set_quantifier {
            SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName => {
                let mut names = names(left)?;
                for name in self::names(right)? {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                Some(names.len())
            }
            _ => width(left),
        },
        SetExpr::Query(query) => width(&query.body),
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}

/// Returns the names of the columns of a query, in lower case.
fn names(body: &SetExpr) -> Option<Vec<String>> {
    match body {
        SetExpr::Select(select) => {
            width(body)?;
            let name = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => name.value.to_lowercase(),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                    parts.last().map_or_else(String::new, |last| last.value.to_lowercase())
                }
                SelectItem::ExprWithAlias { alias, .. } => alias.value.to_lowercase(),
                other => other.to_string().to_lowercase(),
            };
            Some(select.projection.iter().map(name).collect())
        }
        SetExpr::SetOperation { left, right, .. } => {
            let mut names = names(left)?;
            for name in self::names(right)? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            Some(names)
        }
        SetExpr::Query(query) => names(&query.body),
        _ => None,
    }
}

/// Returns the SELECT that names the columns of a query.
pub(super) fn leftmost(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { left, .. } => leftmost(left),
        SetExpr::Query(query) => leftmost(&mut query.body),
        _ => None,
    }
}
