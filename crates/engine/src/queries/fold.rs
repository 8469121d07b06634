//! Joins that [`super::Relations`] plans: each becomes a relation of its own.
//!
//! `FROM a JOIN b ON … ASOF JOIN c ON … JOIN d ON …` becomes `FROM ((a JOIN b ON …) ASOF JOIN c ON …) JOIN d ON …`. The
//! match condition of such a join is a marker, which names its kind.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, Join, JoinConstraint, JoinOperator, Select, TableFactor, TableWithJoins, VisitorMut,
};

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
            for join in &mut table.joins {
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
                _ => tables.push(table),
            }
        }
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

/// Returns true for `unnest(t.list)`, whose lists are columns.
fn is_lateral_unnest(table: &TableFactor) -> bool {
    matches!(table, TableFactor::UNNEST { array_exprs, with_ordinality: false, with_offset: false, .. }
        if array_exprs.iter().any(|list| matches!(list, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_))))
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
