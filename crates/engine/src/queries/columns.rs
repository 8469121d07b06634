//! `COLUMNS(…)` and `*`: the columns of a FROM clause, selected by name.
//!
//! An item of a SELECT list or a condition that contains `COLUMNS` is replaced by a name that no table has. When the
//! planner does not find it, its error lists the columns of the FROM clause, and the item is put back for
//! each column that matches.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, Result, SchemaError};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::{matching, template};
use crate::sql::tree;
pub(super) use matching::{Source, expand};

/// Start of the names that stand for items.
const NAME: &str = "__columns_";

/// Items that wait for the columns of their FROM clause.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<SelectItem>);

/// Replaces the items of all queries that need the columns of their FROM clause.
///
/// # Errors
/// Returns an error with its place for COLUMNS in another clause.
pub(super) fn hold(tree: &mut Tree) -> Result<Held> {
    let mut hold = Hold { held: Held::default() };
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut hold);
    Ok(hold.held)
}

struct Hold {
    held: Held,
}

impl Hold {
    fn replace(&mut self, item: SelectItem) -> Expr {
        let name = format!("{NAME}{}", self.held.0.len());
        self.held.0.push(item);
        Expr::Identifier(Ident::with_quote('"', name))
    }

    /// Holds `*`, and `t.*` if `tables` is true.
    fn stars(&mut self, select: &mut Select, tables: bool) {
        use SelectItemQualifiedWildcardKind::ObjectName;
        for item in &mut select.projection {
            let is_star = match item {
                SelectItem::Wildcard(_) => true,
                SelectItem::QualifiedWildcard(ObjectName(_), _) => tables,
                _ => false,
            };
            if is_star {
                let replaced = self.replace(item.clone());
                *item = SelectItem::UnnamedExpr(replaced);
            }
        }
    }
}

impl VisitorMut for Hold {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        // The number of columns must be known.
        if let Some(order) = &query.order_by
            && matches!(order.kind, OrderByKind::All(_))
            && let Some(select) = super::orders::leftmost(&mut query.body)
        {
            self.stars(select, true);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        // DataFusion shows the columns of USING at the place of the wrong table.
        if joins(&select.from).iter().any(|join| using(&join.join_operator).is_some()) {
            self.stars(select, false);
        }
        for item in &mut select.projection {
            let held = match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => has_columns(expr),
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                    let plain = WildcardAdditionalOptions {
                        wildcard_token: options.wildcard_token.clone(),
                        ..WildcardAdditionalOptions::default()
                    };
                    *options != plain
                }
                SelectItem::ExprWithAliases { .. } => false,
            };
            if held {
                let replaced = self.replace(item.clone());
                *item = SelectItem::UnnamedExpr(replaced);
            }
        }
        for condition in
            [&mut select.selection, &mut select.having, &mut select.qualify].into_iter().flatten()
        {
            if has_columns(condition) {
                *condition = self.replace(SelectItem::UnnamedExpr(condition.clone()));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns true if an expression contains COLUMNS, outside of subqueries.
fn has_columns(expr: &mut Expr) -> bool {
    struct Find {
        depth: usize,
    }
    impl VisitorMut for Find {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match matching::is_columns(expr) && self.depth == 0 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Find { depth: 0 }).is_break()
}

/// Puts the item back that an error did not find, for each of its columns. Returns false for another error.
///
/// # Errors
/// Returns an error with its place if no column matches.
pub(crate) fn restore(tree: &mut Tree, held: &Held, error: &DataFusionError) -> Result<bool> {
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return Ok(false) };
    let SchemaError::FieldNotFound { field, valid_fields } = inner.as_ref() else { return Ok(false) };
    let Some(item) = field.name.strip_prefix(NAME).and_then(|n| held.0.get(n.parse::<usize>().ok()?)) else {
        return Ok(false);
    };
    let mut restore = Restore { name: &field.name, item, fields: valid_fields, error: None, changed: false };
    let _ = tree::visit(tree, &mut restore);
    match restore.error {
        Some(error) => Err(error),
        None => Ok(restore.changed),
    }
}

struct Restore<'a> {
    name: &'a str,
    item: &'a SelectItem,
    fields: &'a [Column],
    error: Option<DataFusionError>,
    changed: bool,
}

impl Restore<'_> {
    fn is_name(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Identifier(name) if name.value == self.name)
    }

    fn put_back(&mut self, select: &mut Select) -> Result<()> {
        let source =
            Source { fields: self.fields.to_vec(), using: joined_columns(&select.from, self.fields) };
        let at = select.projection.iter().position(|item| {
            matches!(item, SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } if self.is_name(expr))
        });
        if let Some(at) = at {
            let items = items(self.item, &source)?;
            select.projection.splice(at..=at, items);
            self.changed = true;
        }
        for condition in
            [&mut select.selection, &mut select.having, &mut select.qualify].into_iter().flatten()
        {
            if let (true, SelectItem::UnnamedExpr(expr)) = (self.is_name(condition), self.item) {
                let all = expand(expr, &source)?
                    .into_iter()
                    .flatten()
                    .map(|(expr, _)| Expr::Nested(Box::new(expr)));
                let and = |left, right| Expr::BinaryOp {
                    left: Box::new(left),
                    op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
                    right: Box::new(right),
                };
                if let Some(all) = all.reduce(and) {
                    *condition = all;
                    self.changed = true;
                }
            }
        }
        Ok(())
    }
}

impl VisitorMut for Restore<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Err(error) = self.put_back(select) {
            self.error = Some(error);
            return ControlFlow::Break(());
        }
        if self.changed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Returns the items that one stands for.
fn items(item: &SelectItem, source: &Source) -> Result<Vec<SelectItem>> {
    let named = |expr: Expr, name: Option<String>| match (&expr, name) {
        (Expr::Identifier(column), Some(name)) if column.value == name => SelectItem::UnnamedExpr(expr),
        (Expr::CompoundIdentifier(parts), Some(name))
            if parts.last().is_some_and(|last| last.value == name) =>
        {
            SelectItem::UnnamedExpr(expr)
        }
        (_, Some(name)) => SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) },
        (_, None) => SelectItem::UnnamedExpr(expr),
    };
    let expanded = match item {
        SelectItem::Wildcard(options) => matching::star(options, None, source)?,
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), options) => {
            matching::star(options, Some(table), source)?
        }
        SelectItem::ExprWithAlias { expr, alias } => matching::aliased(expr, alias, source)?,
        SelectItem::UnnamedExpr(expr) => expand(expr, source)?.unwrap_or_default(),
        _ => Vec::new(),
    };
    Ok(expanded.into_iter().map(|(expr, name)| named(expr, name)).collect())
}

fn using(join: &JoinOperator) -> Option<(&JoinConstraint, Side)> {
    use JoinOperator as J;
    let (constraint, side) = match join {
        J::Join(on) | J::Inner(on) | J::Left(on) | J::LeftOuter(on) => (on, Side::Left),
        J::Right(on) | J::RightOuter(on) => (on, Side::Right),
        J::FullOuter(on) => (on, Side::Both),
        J::AsOf { constraint, .. } => (constraint, Side::Left),
        _ => return None,
    };
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural).then_some((constraint, side))
}

/// Returns all joins, also those within parentheses.
fn joins(from: &[TableWithJoins]) -> Vec<&Join> {
    let mut found = Vec::new();
    for tables in from {
        if let TableFactor::NestedJoin { table_with_joins, .. } = &tables.relation {
            found.extend(joins(std::slice::from_ref(table_with_joins)));
        }
        found.extend(&tables.joins);
    }
    found
}

/// The table whose value a joined column has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Left,
    Right,
    Both,
}

/// Returns the columns that joins with USING or NATURAL merge, in lower case.
fn joined_columns(from: &[TableWithJoins], fields: &[Column]) -> Vec<(String, Side)> {
    let mut found = Vec::new();
    for (constraint, side) in joins(from).into_iter().filter_map(|join| using(&join.join_operator)) {
        match constraint {
            JoinConstraint::Using(names) => {
                let names = names.iter().filter_map(|name| name.0.last()?.as_ident());
                found.extend(names.map(|name| (name.value.to_lowercase(), side)));
            }
            _ => {
                let mut seen = HashSet::new();
                let repeated = fields.iter().filter(|field| !seen.insert(field.name.as_str()));
                found.extend(repeated.map(|field| (field.name.to_lowercase(), side)));
            }
        }
    }
    found
}

/// Returns an expression of a column.
pub(super) fn reference(column: &Column) -> Expr {
    let name = Ident::with_quote('"', &column.name);
    let Some(table) = &column.relation else { return Expr::Identifier(name) };
    let parts = [table.catalog(), table.schema(), Some(table.table())].into_iter().flatten();
    Expr::CompoundIdentifier(parts.map(|part| Ident::with_quote('"', part)).chain([name]).collect())
}

/// Returns the first value of several columns that is not NULL.
pub(super) fn coalesced(columns: &[&Column]) -> Expr {
    let texts: Vec<String> = columns.iter().map(|column| reference(column).to_string()).collect();
    template::expr(&format!("coalesce({})", texts.join(", "))).unwrap_or_else(|| reference(columns[0]))
}

/// The place of an expression that was written.
pub(super) fn place(expr: &Expr) -> Span {
    datafusion::sql::sqlparser::ast::Spanned::span(expr)
}
