//! Columns that a RIGHT, FULL or ASOF JOIN with USING merges: without a table, their name stands for the value of the
//! side that has a row, and of the left side in an ASOF JOIN. DataFusion would take that of one table, or of none.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, VisitMut, VisitorMut,
};

use super::template;
use crate::sql::tree;

/// Replaces the names of merged columns.
pub(super) fn rewrite(tree: &mut Tree) {
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut Merged);
}

struct Merged;

impl VisitorMut for Merged {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let SetExpr::Select(select) = query.body.as_mut() else { return ControlFlow::Continue(()) };
        let merged = merged(select);
        if merged.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut put = Put { merged: &merged, depth: 0 };
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    let alias = name.clone();
                    let mut expr = Expr::Identifier(alias.clone());
                    let _ = expr.visit(&mut put);
                    *item = SelectItem::ExprWithAlias { expr, alias };
                }
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    let _ = expr.visit(&mut put);
                }
                _ => {}
            }
        }
        for condition in
            [&mut select.selection, &mut select.having, &mut select.qualify].into_iter().flatten()
        {
            let _ = condition.visit(&mut put);
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            let _ = keys.visit(&mut put);
        }
        let shown = |name: &Ident| {
            select.projection.iter().any(|item| {
                matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value.eq_ignore_ascii_case(&name.value))
            })
        };
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            for key in keys {
                if !matches!(&key.expr, Expr::Identifier(name) if shown(name)) {
                    let _ = key.expr.visit(&mut put);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns the merged columns of a SELECT in lower case, and the expression of each.
fn merged(select: &Select) -> Vec<(String, Expr)> {
    use JoinOperator as J;
    let [from] = &select.from[..] else { return Vec::new() };
    let mut tables = vec![table(&from.relation)];
    let mut found: Vec<(String, Expr)> = Vec::new();
    for join in &from.joins {
        tables.push(table(&join.relation));
        let last = tables.last().cloned().flatten();
        // With several joins, the first table stands for those before.
        let (names, sides) = match &join.join_operator {
            J::FullOuter(JoinConstraint::Using(names)) => (names, [&tables[0], &last]),
            J::Right(JoinConstraint::Using(names)) | J::RightOuter(JoinConstraint::Using(names)) => {
                (names, [&last, &None])
            }
            J::AsOf { constraint: JoinConstraint::Using(names), .. } => (names, [&tables[0], &None]),
            _ => continue,
        };
        for name in names {
            let parts: Vec<String> =
                sides.into_iter().flatten().map(|table| format!("{table}.{name}")).collect();
            if let Some(expr) =
                template::expr(&format!("coalesce({})", parts.join(", "))).filter(|_| !parts.is_empty())
            {
                let name = name.to_string().trim_matches('"').to_lowercase();
                found.retain(|(other, _)| *other != name);
                found.push((name, expr));
            }
        }
    }
    found
}

/// Returns the name by which columns of a table are qualified.
fn table(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.to_string())
        }
        TableFactor::Table { name, alias: None, .. } => {
            let name = name.0.last()?.as_ident()?;
            Some(match name.quote_style {
                Some(_) => Ident::with_quote('"', &name.value).to_string(),
                None => name.to_string(),
            })
        }
        _ => None,
    }
}

/// Replaces names outside of subqueries.
struct Put<'a> {
    merged: &'a [(String, Expr)],
    depth: usize,
}

impl VisitorMut for Put<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Identifier(name) = expr
            && self.depth == 0
            && let Some((_, merged)) =
                self.merged.iter().find(|(column, _)| *column == name.value.to_lowercase())
        {
            *expr = merged.clone();
        }
        ControlFlow::Continue(())
    }
}
