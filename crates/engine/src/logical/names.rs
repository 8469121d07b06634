//! Names of columns: they keep the case in which they were written, and are found in any case.
//!
//! DataFusion folds unquoted names to lower case and compares exactly. So an alias that has capitals is
//! quoted, and a name that is not found is replaced by the only column that differs from it in case alone.

use std::ops::ControlFlow;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, ExcludeSelectItem, Expr, Ident, IdentWithAlias, Join, JoinConstraint, JoinOperator,
    ObjectName, ObjectNamePart, OrderByKind, Query, RenameSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::logical::labels;
use crate::sql::tree;

/// Quotes the aliases with capitals in all queries of a statement, and the names that refer to them in
/// the clauses of the same query.
pub(crate) fn keep_case(tree: &mut Tree) {
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut KeepCase);
}

struct KeepCase;

impl VisitorMut for KeepCase {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            cte.alias.columns.iter_mut().for_each(|column| quote(&mut column.name));
        }
        let aliases = match &*query.body {
            SetExpr::Select(select) => aliases(select),
            _ => Vec::new(),
        };
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(expressions) = &mut order.kind
        {
            expressions.iter_mut().for_each(|one| refer(&mut one.expr, &aliases));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => quote(alias),
                SelectItem::ExprWithAliases { aliases, .. } => aliases.iter_mut().for_each(quote),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        let alias = match table {
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => alias,
            _ => return ControlFlow::Continue(()),
        };
        for column in alias.iter_mut().flat_map(|alias| &mut alias.columns) {
            quote(&mut column.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Self::Break> {
        if let Statement::CreateTable(table) = statement {
            table.columns.iter_mut().for_each(|column| quote(&mut column.name));
        }
        ControlFlow::Continue(())
    }
}

/// Returns the aliases with capitals of a query.
fn aliases(select: &Select) -> Vec<String> {
    let aliases = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    });
    aliases.filter(|alias| has_capitals(alias)).collect()
}

fn has_capitals(name: &str) -> bool {
    name.chars().any(char::is_uppercase)
}

fn quote(name: &mut Ident) {
    if name.quote_style.is_none() && has_capitals(&name.value) {
        name.quote_style = Some('"');
    }
}

/// Replaces a name that is an alias in another case.
fn refer(expr: &mut Expr, aliases: &[String]) {
    if let Expr::Identifier(name) = expr
        && let Some(alias) = aliases.iter().find(|alias| alias.eq_ignore_ascii_case(&name.value))
    {
        name.value.clone_from(alias);
        name.quote_style = Some('"');
    }
}

/// Returns the name that an error did not find, and the only column that differs from it in case alone. A subquery's error
/// does not list the columns of the query around it, so those of all tables are `known`.
pub(crate) fn other_case(error: &DataFusionError, known: &[String]) -> Option<(String, String)> {
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return None };
    let SchemaError::FieldNotFound { field, valid_fields } = inner.as_ref() else { return None };
    let mut found = valid_fields.iter().filter(|valid| {
        let same_table = match (&field.relation, &valid.relation) {
            (Some(wanted), Some(other)) => wanted.table().eq_ignore_ascii_case(other.table()),
            (Some(_), None) => false,
            (None, _) => true,
        };
        same_table && valid.name != field.name && lower(&valid.name) == lower(&field.name)
    });
    let Some(first) = found.next() else {
        return of_range(field, valid_fields)
            .or_else(|| of_struct(field, valid_fields))
            .or_else(|| of_query_around(field, known));
    };
    found.all(|other| other.name == first.name).then(|| (field.name.clone(), first.name.clone()))
}

/// Returns the column of the table function `range`, which DataFusion calls `value`.
fn of_range(field: &Column, valid: &[Column]) -> Option<(String, String)> {
    let mut names = valid.iter().map(|column| column.name.as_str());
    let range = names.find(|name| matches!(*name, "range" | "generate_series"))?;
    (field.name == "value").then(|| (field.name.clone(), range.to_string()))
}

/// Returns the name that an error did not find, and the only field with it of a struct that a subquery unnests, whose
/// column DataFusion names by the expression.
pub(crate) fn unnested(tree: &Tree, error: &DataFusionError) -> Option<(String, String)> {
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return None };
    let SchemaError::FieldNotFound { field, valid_fields } = inner.as_ref() else { return None };
    let is_field = |name: &str| {
        let last = name.rsplit_once('.').map(|(_, last)| last.trim_matches('"'));
        last.is_some_and(|last| lower(last) == lower(&field.name))
    };
    let mut found = valid_fields.iter().filter(|valid| is_field(&valid.name));
    let first = found.next().filter(|_| found.next().is_none() && labels::has_unnest(tree))?;
    Some((field.name.clone(), first.name.clone()))
}

/// Returns the name of a column, and the only one among those of all tables that differs from it in case alone.
fn of_query_around(field: &Column, known: &[String]) -> Option<(String, String)> {
    let mut found = known.iter().filter(|name| lower(name) == lower(&field.name));
    let first = found.next().filter(|first| **first != field.name)?;
    found.all(|other| other == first).then(|| (field.name.clone(), first.clone()))
}

/// Returns a name before a dot, and the only column that differs from it in case alone. It may be a struct.
fn of_struct(field: &Column, valid: &[Column]) -> Option<(String, String)> {
    let relation = field.relation.as_ref()?;
    let names = [relation.catalog(), relation.schema(), Some(relation.table())];
    names.into_iter().flatten().find_map(|name| {
        let mut found =
            valid.iter().filter(|column| lower(&column.name) == lower(name) && column.name != name);
        let column = found.next()?;
        found.all(|other| other.name == column.name).then(|| (name.to_string(), column.name.clone()))
    })
}

/// Replaces `column.*` by `unnest(column)`, the fields of a struct, if no table has the name. Returns true if anything
/// changed.
pub(crate) fn unnest_struct(tree: &mut Tree, error: &DataFusionError) -> bool {
    struct Unnest<'a>(&'a str, bool);
    impl VisitorMut for Unnest<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
            for item in &mut select.projection {
                if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) =
                    item
                    && let [ObjectNamePart::Identifier(column)] = &name.0[..]
                    && column.value.eq_ignore_ascii_case(self.0)
                {
                    let column = Expr::Identifier(column.clone());
                    *item = SelectItem::UnnamedExpr(tree::call("unnest", vec![column]));
                    self.1 = true;
                }
            }
            ControlFlow::Continue(())
        }
    }
    let DataFusionError::Plan(message) = error.find_root() else { return false };
    let Some(qualifier) = message.strip_prefix("Invalid qualifier ") else { return false };
    let mut unnest = Unnest(qualifier.trim(), false);
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut unnest);
    unnest.1
}

/// Names the fields of structs in SELECT lists if the name that an error did not find is one of them: `sku` of
/// `SELECT l.sku`. Returns true if anything changed.
pub(crate) fn names_field(tree: &mut Tree, error: &DataFusionError) -> bool {
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return false };
    let SchemaError::FieldNotFound { field, valid_fields } = inner.as_ref() else { return false };
    let wanted = format!("[{}]", lower(&field.name));
    let names = valid_fields.iter().map(|valid| valid.name.as_str());
    labels::of_fields(tree, names.filter(|name| lower(name).ends_with(&wanted)))
}

fn lower(name: &str) -> String {
    name.to_lowercase()
}

/// Replaces the column `from`, as DataFusion names it, by `to` in all expressions of a statement, or in the
/// one that begins at `only`. Returns true if anything changed.
pub(crate) fn rename_columns(tree: &mut Tree, from: &str, to: &str, only: Option<Location>) -> bool {
    let mut rename = RenameColumns { from, to, only, changed: false };
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut rename);
    rename.changed
}

struct RenameColumns<'a> {
    from: &'a str,
    to: &'a str,
    only: Option<Location>,
    changed: bool,
}

impl RenameColumns<'_> {
    fn ident(&mut self, name: &mut Ident) {
        let same = match name.quote_style {
            Some(_) => name.value == self.from,
            None => lower(&name.value) == lower(self.from),
        };
        if same && self.only.is_none_or(|start| start == name.span.start) {
            name.value = self.to.to_string();
            name.quote_style = Some('"');
            self.changed = true;
        }
    }

    fn last(&mut self, name: &mut ObjectName) {
        if let Some(ObjectNamePart::Identifier(name)) = name.0.last_mut() {
            self.ident(name);
        }
    }

    /// Renames the columns of USING.
    fn using(&mut self, join: &mut Join) {
        use JoinOperator as J;
        if let J::Join(on)
        | J::Inner(on)
        | J::Left(on)
        | J::LeftOuter(on)
        | J::Right(on)
        | J::RightOuter(on)
        | J::FullOuter(on)
        | J::Semi(on)
        | J::LeftSemi(on)
        | J::RightSemi(on)
        | J::Anti(on)
        | J::LeftAnti(on)
        | J::RightAnti(on)
        | J::AsOf { constraint: on, .. } = &mut join.join_operator
            && let JoinConstraint::Using(names) = on
        {
            names.iter_mut().for_each(|name| self.last(name));
        }
    }

    fn wildcard(&mut self, options: &mut WildcardAdditionalOptions) {
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => self.last(name),
            Some(ExcludeSelectItem::Multiple(names)) => names.iter_mut().for_each(|name| self.last(name)),
            None => {}
        }
        if let Some(ExceptSelectItem { first_element, additional_elements }) = &mut options.opt_except {
            self.ident(first_element);
            additional_elements.iter_mut().for_each(|name| self.ident(name));
        }
        if let Some(replace) = &mut options.opt_replace {
            replace.items.iter_mut().for_each(|item| self.ident(&mut item.column_name));
        }
        let renamed = |item: &mut IdentWithAlias, this: &mut Self| this.ident(&mut item.ident);
        match &mut options.opt_rename {
            Some(RenameSelectItem::Single(item)) => renamed(item, self),
            Some(RenameSelectItem::Multiple(items)) => items.iter_mut().for_each(|item| renamed(item, self)),
            None => {}
        }
    }
}

impl VisitorMut for RenameColumns<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for item in &mut select.projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
                self.wildcard(options);
            }
        }
        select.from.iter_mut().flat_map(|from| &mut from.joins).for_each(|join| self.using(join));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = table {
            table_with_joins.joins.iter_mut().for_each(|join| self.using(join));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Identifier(name) => self.ident(name),
            Expr::CompoundIdentifier(names) => {
                // The place of a qualified column is that of its table.
                let only = self.only.take_if(|start| names.first().is_some_and(|n| n.span.start == *start));
                // A struct's field may follow the column.
                names.iter_mut().for_each(|name| self.ident(name));
                self.only = self.only.or(only);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
