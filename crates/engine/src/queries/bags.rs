//! `EXCEPT ALL` and `INTERSECT ALL`, which keep duplicates, and the names of the columns of VALUES.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, SetOperator, SetQuantifier, Statement, TableFactor, VisitorMut,
};

use super::template;
use crate::sql::tree;

/// Rewrites the bodies of all queries.
pub(super) fn rewrite(tree: &mut Tree) {
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut Bags { inserted: false });
}

struct Bags {
    /// True before VALUES that keep their names: of an INSERT, or below an alias with columns.
    inserted: bool,
}

impl VisitorMut for Bags {
    type Break = std::convert::Infallible;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Self::Break> {
        self.inserted = matches!(statement, Statement::Insert(_) | Statement::Merge(_));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        // The alias names the columns.
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = table {
            self.inserted = !alias.columns.is_empty() && matches!(*subquery.body, SetExpr::Values(_));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let inserted = std::mem::take(&mut self.inserted);
        if !(inserted && matches!(*query.body, SetExpr::Values(_))) {
            body(&mut query.body);
        }
        ControlFlow::Continue(())
    }
}

fn body(set: &mut SetExpr) {
    let replaced = match set {
        SetExpr::SetOperation { op, set_quantifier, left, right } => {
            let marker = match (&op, &set_quantifier) {
                (SetOperator::Except | SetOperator::Minus, SetQuantifier::All) => "__except_all",
                (SetOperator::Intersect, SetQuantifier::All) => "__intersect_all",
                _ => {
                    body(left);
                    body(right);
                    return;
                }
            };
            combined(left, right, marker)
        }
        SetExpr::Values(_) => named(set),
        _ => None,
    };
    if let Some(replaced) = replaced {
        *set = replaced;
    }
}

/// Returns a SELECT from a marked join of two queries.
fn combined(left: &SetExpr, right: &SetExpr, marker: &str) -> Option<SetExpr> {
    let sql = format!(
        "SELECT * FROM (SELECT 1) AS __left ASOF JOIN (SELECT 1) AS __right MATCH_CONDITION ({marker})"
    );
    let mut query = template::query(&sql)?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let tables = select.from.first_mut()?;
    put(&mut tables.relation, left)?;
    put(&mut tables.joins.first_mut()?.relation, right)?;
    Some(*query.body)
}

fn put(table: &mut TableFactor, body: &SetExpr) -> Option<()> {
    let TableFactor::Derived { subquery, .. } = table else { return None };
    *subquery.body = body.clone();
    Some(())
}

/// Names the columns of VALUES `col0`, `col1` and so on.
fn named(values: &SetExpr) -> Option<SetExpr> {
    let SetExpr::Values(rows) = values else { return None };
    let width = rows.rows.first()?.content.len();
    let names: Vec<String> = (0..width).map(|n| format!("col{n}")).collect();
    let mut query =
        template::query(&format!("SELECT * FROM (SELECT 1) AS valueslist({})", names.join(", ")))?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let table = &mut select.from.first_mut()?.relation;
    put(table, values)?;
    Some(*query.body)
}
