//! Joins that [`super::Relations`] plans: each becomes a relation of its own.
//!
//! `FROM a JOIN b ON … ASOF JOIN c ON … JOIN d ON …` becomes `FROM ((a JOIN b ON …) ASOF JOIN c ON …) JOIN d ON …`. The
//! match condition of such a join is a marker, which names its kind.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint, JoinOperator, Select, SetExpr,
    Spanned, TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins, VisitorMut, visit_expressions,
};

use super::template;
use crate::functions::JSON_COLUMNS;
use crate::sql::tree;

/// The kind of a marked join.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Asof {
        left: bool,
    },
    Positional,
    ExceptAll,
    IntersectAll,
    /// The elements of the left side's lists; `left` keeps rows without any.
    Unnest {
        left: bool,
    },
    /// A sample of the left side; the right side is not used.
    Sample(Box<Function>),
}

/// Folds the marked joins of all queries.
pub(super) fn rewrite(tree: &mut Tree) {
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut Fold);
}

struct Fold;

impl VisitorMut for Fold {
    type Break = std::convert::Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let is_sample = |join: &Join| matches!(kind(join), Some(Kind::Sample(_)));
        if let [_, .., last] = &mut select.from[..]
            && last.joins.last().is_some_and(is_sample)
            && let Some(sample) = last.joins.pop()
        {
            // A sample is one of all tables.
            let mut tables = std::mem::take(&mut select.from).into_iter();
            if let Some(mut all) = tables.next() {
                all.joins.extend(tables.map(|table| Join {
                    relation: nested(table),
                    global: false,
                    join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
                }));
                all.joins.push(sample);
                select.from = vec![all];
            }
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            let operator = std::mem::replace(&mut join.join_operator, JoinOperator::CrossApply);
            join.join_operator = match operator {
                JoinOperator::Semi(on) => JoinOperator::LeftSemi(on),
                JoinOperator::Anti(on) => JoinOperator::LeftAnti(on),
                other => other,
            };
        }
        let mut tables: Vec<TableWithJoins> = Vec::new();
        for mut table in std::mem::take(&mut select.from) {
            as_unnest(&mut table.relation);
            json_as_unnest(&mut table.relation);
            for join in &mut table.joins {
                as_unnest(&mut join.relation);
                json_as_unnest(&mut join.relation);
                let constant = |on: &JoinConstraint| match on {
                    JoinConstraint::None => true,
                    JoinConstraint::On(on) => on.to_string().eq_ignore_ascii_case("true"),
                    _ => false,
                };
                use JoinOperator as J;
                let left = match &join.join_operator {
                    J::CrossJoin(on) | J::Join(on) | J::Inner(on) if constant(on) => false,
                    J::Left(on) | J::LeftOuter(on) if constant(on) => true,
                    _ => continue,
                };
                if is_lateral_unnest(&join.relation) {
                    join.join_operator = unnest(left);
                }
            }
            match tables.last_mut() {
                Some(before) if is_lateral_unnest(&table.relation) => {
                    before.joins.push(Join {
                        relation: table.relation,
                        global: false,
                        join_operator: unnest(false),
                    });
                    before.joins.extend(table.joins);
                }
                _ => {
                    with_one_row(&mut table.relation);
                    tables.push(table);
                }
            }
        }
        name_subqueries(&mut tables);
        select.from = tables;
        select.from.iter_mut().for_each(fold);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = table
            && !is_folded(table_with_joins)
        {
            fold(table_with_joins);
        }
        ControlFlow::Continue(())
    }
}

/// Names subqueries beside other tables, so that columns of the same name differ in their table.
fn name_subqueries(tables: &mut [TableWithJoins]) {
    let relations = tables.iter_mut().flat_map(|table| {
        std::iter::once(&mut table.relation).chain(table.joins.iter_mut().map(|join| &mut join.relation))
    });
    let relations: Vec<&mut TableFactor> = relations.collect();
    if relations.len() < 2 {
        return;
    }
    let mut number = 0;
    for relation in relations {
        if let TableFactor::Derived { alias: alias @ None, .. } = relation {
            number += 1;
            let suffix = if number > 1 { number.to_string() } else { String::new() };
            let name = Ident::new(format!("unnamed_subquery{suffix}"));
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
    }
}

/// Returns true for `unnest(t.list)`, whose lists are columns.
fn is_lateral_unnest(table: &TableFactor) -> bool {
    matches!(table, TableFactor::UNNEST { array_exprs, with_ordinality: false, with_offset: false, .. }
        if array_exprs.iter().any(|list| matches!(list, Expr::Function(_)) || has_column(list)))
}

/// Returns true for an expression that may depend on the row.
fn has_column(expr: &Expr) -> bool {
    let column = |one: &Expr| match one {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(expr, column).is_break()
}

/// Replaces `LATERAL unnest(list)`, which parses to a function, by the same without LATERAL.
fn as_unnest(table: &mut TableFactor) {
    let TableFactor::Function { name, args, alias, .. } = table else { return };
    if !name.to_string().eq_ignore_ascii_case("unnest") {
        return;
    }
    let lists = args.iter().map(|one| match one {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(list)) => Some(list.clone()),
        _ => None,
    });
    if let Some(array_exprs) = lists.collect() {
        let alias = alias.take();
        *table = TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: false,
        };
    }
}

/// Replaces `json_each(x)` and `json_tree(x)` by an unnest of the list of their rows.
fn json_as_unnest(table: &mut TableFactor) {
    let (name, args, alias) = match table {
        TableFactor::Table { name, args: Some(args), alias, .. } => (name, &args.args, alias),
        TableFactor::Function { name, args, alias, .. } => (name, &*args, alias),
        _ => return,
    };
    let function = name.to_string().to_lowercase();
    if !matches!(function.as_str(), "json_each" | "json_tree") {
        return;
    }
    let arguments = args.iter().map(|one| match one {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let Some(arguments) = arguments.collect() else { return };
    let own = || TableAlias { explicit: true, name: Ident::new(&function), columns: Vec::new(), at: None };
    let mut alias = alias.take().unwrap_or_else(own);
    let given = alias.columns.len().min(JSON_COLUMNS.len());
    let column = |name: &&str| TableAliasColumnDef { name: Ident::new(*name), data_type: None };
    alias.columns.extend(JSON_COLUMNS[given..].iter().map(column));
    let call = tree::call_at(name.span(), &format!("pellucid_{function}"), arguments);
    *table = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: vec![call],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
}

/// Returns true for the list of the rows of `json_each` or `json_tree`, whose fields are columns.
pub(super) fn has_fields(list: &Expr) -> bool {
    matches!(list, Expr::Function(call) if call.name.to_string().starts_with("pellucid_json_"))
}

/// Name of the column of a table with one row.
pub(super) const ONE: &str = "__one";

/// Joins `json_each` without a table before it to a table with one row.
fn with_one_row(table: &mut TableFactor) {
    let is_json =
        matches!(table, TableFactor::UNNEST { array_exprs, .. } if array_exprs.iter().any(has_fields));
    if !is_json {
        return;
    }
    let one = template::query(&format!("SELECT * FROM (SELECT 1 AS {ONE}) AS {ONE}"));
    let Some(SetExpr::Select(mut select)) = one.map(|query| *query.body) else { return };
    if let Some(mut tables) = select.from.pop() {
        let relation = std::mem::replace(table, unit());
        tables.joins.push(Join { relation, global: false, join_operator: unnest(false) });
        *table = nested(tables);
    }
}

fn unnest(left: bool) -> JoinOperator {
    let marker = if left { "__unnest_left" } else { "__unnest" };
    JoinOperator::AsOf { match_condition: Expr::Identifier(marker.into()), constraint: JoinConstraint::None }
}

/// Returns true for a single marked join.
pub(super) fn is_folded(tables: &TableWithJoins) -> bool {
    matches!(&tables.joins[..], [join] if kind(join).is_some())
}

/// Returns the kind of a marked join.
pub(super) fn kind(join: &Join) -> Option<Kind> {
    let JoinOperator::AsOf { match_condition, .. } = &join.join_operator else { return None };
    match match_condition {
        Expr::Identifier(name) => match name.value.as_str() {
            "__asof" => Some(Kind::Asof { left: false }),
            "__asof_left" => Some(Kind::Asof { left: true }),
            "__positional" => Some(Kind::Positional),
            "__unnest" => Some(Kind::Unnest { left: false }),
            "__unnest_left" => Some(Kind::Unnest { left: true }),
            "__except_all" => Some(Kind::ExceptAll),
            "__intersect_all" => Some(Kind::IntersectAll),
            _ => None,
        },
        Expr::Function(function) if function.name.to_string() == "__sample" => {
            Some(Kind::Sample(Box::new(function.clone())))
        }
        _ => None,
    }
}

fn fold(tables: &mut TableWithJoins) {
    if !tables.joins.iter().any(|join| kind(join).is_some()) {
        return;
    }
    for join in std::mem::take(&mut tables.joins) {
        let marked = kind(&join).is_some();
        if marked && !tables.joins.is_empty() {
            enclose(tables);
        }
        tables.joins.push(join);
        if marked {
            enclose(tables);
        }
    }
}

/// Makes one relation of a table and its joins.
fn enclose(tables: &mut TableWithJoins) {
    let relation = std::mem::replace(&mut tables.relation, unit());
    let joins = std::mem::take(&mut tables.joins);
    tables.relation = nested(TableWithJoins { relation, joins });
}

fn nested(tables: TableWithJoins) -> TableFactor {
    if tables.joins.is_empty() {
        return tables.relation;
    }
    TableFactor::NestedJoin { table_with_joins: Box::new(tables), alias: None }
}

/// A relation that is replaced at once.
fn unit() -> TableFactor {
    TableFactor::UNNEST {
        alias: None,
        array_exprs: Vec::new(),
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}
