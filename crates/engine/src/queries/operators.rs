//! Operators without a meaning in DataFusion: `COLLATE`, ANY and ALL over a subquery, rows in a subquery and in GROUP BY,
//! and functions after a dot (`name.upper()`). Those that are calls of functions are rewritten in `functions`.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName,
    OrderByKind, Query, Select, SetExpr, TableFactor, Value, VisitorMut,
};

use super::{columns::place, error, template};
use crate::sql::tree;

/// Rewrites the operators of a statement.
///
/// # Errors
/// Returns an error with its place for an operator or a collation that does not exist.
pub(super) fn rewrite(tree: &mut Tree) -> Result<()> {
    let mut operators = Operators { error: None };
    let _ = tree::visit(tree, &mut operators);
    operators.error.map_or(Ok(()), Err)
}

struct Operators {
    error: Option<DataFusionError>,
}

impl VisitorMut for Operators {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match replaced(expr) {
            Ok(Some(new)) => *expr = new,
            Ok(None) => {}
            Err(error) => {
                self.error = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        use datafusion::sql::sqlparser::ast::{GroupByExpr, SelectItem};
        // The values themselves do not change.
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                plain(expr, false);
            }
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            // `GROUP BY (a, b)` is by both.
            let parts = |key| match key {
                Expr::Tuple(parts) if !parts.is_empty() => parts,
                key => vec![key],
            };
            *keys = std::mem::take(keys).into_iter().flat_map(parts).collect();
            keys.iter_mut().for_each(|key| plain(key, true));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            keys.iter_mut().for_each(|key| plain(&mut key.expr, true));
        }
        ControlFlow::Continue(())
    }
}

/// Removes a collation; with `folded`, the text is compared without case.
fn plain(expr: &mut Expr, folded: bool) {
    if let Expr::Collate { expr: inner, collation } = expr {
        *expr = match folded && is_nocase(collation) {
            true => folded_case((**inner).clone()),
            false => (**inner).clone(),
        };
    }
}

fn is_nocase(collation: &ObjectName) -> bool {
    collation.to_string().eq_ignore_ascii_case("nocase")
}

fn folded_case(expr: Expr) -> Expr {
    tree::call("lower", vec![expr])
}

/// Returns the expression that an operator stands for.
fn replaced(expr: &Expr) -> Result<Option<Expr>> {
    use BinaryOperator as B;
    Ok(Some(match expr {
        Expr::BinaryOp { left, op, right } => {
            let (a, b) = ((**left).clone(), (**right).clone());
            match op {
                B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq => {
                    let nocase =
                        |side: &Expr| matches!(side, Expr::Collate { collation, .. } if is_nocase(collation));
                    if !matches!(a, Expr::Collate { .. }) && !matches!(b, Expr::Collate { .. }) {
                        return Ok(None);
                    }
                    let folded = nocase(&a) || nocase(&b);
                    let side = |side: Expr| {
                        let inner = match side {
                            Expr::Collate { expr, .. } => *expr,
                            other => other,
                        };
                        Box::new(if folded { folded_case(inner) } else { inner })
                    };
                    Expr::BinaryOp { left: side(a), op: op.clone(), right: side(b) }
                }
                _ => return Ok(None),
            }
        }
        Expr::RLike { .. } => {
            let message = "cannot use RLIKE or REGEXP as an operator; use regexp_matches(text, pattern)";
            return Err(error(place(expr), message.to_string()));
        }
        Expr::Collate { collation, .. } => {
            let known = ["nocase", "binary", "c", "posix"];
            if !known.contains(&collation.to_string().to_lowercase().as_str()) {
                let message =
                    format!("cannot use COLLATE {collation}: the collations are NOCASE, BINARY, C and POSIX");
                return Err(error(place(expr), message));
            }
            return Ok(None);
        }
        Expr::InList { expr, list, negated } => {
            let collated = |one: &Expr| matches!(one, Expr::Collate { .. });
            let nocase = |one: &Expr| matches!(one, Expr::Collate { collation, .. } if is_nocase(collation));
            let mut all = std::iter::once(&**expr).chain(list);
            if !all.clone().any(collated) {
                return Ok(None);
            }
            let folded = all.any(nocase);
            let compared = |one: &Expr| {
                let mut one = one.clone();
                plain(&mut one, false);
                if folded { folded_case(one) } else { one }
            };
            let list = list.iter().map(compared).collect();
            Expr::InList { expr: Box::new(compared(expr)), list, negated: *negated }
        }
        Expr::AnyOp { left, compare_op: B::Eq, right, .. } => match member(left, right, false) {
            Some(member) => member,
            None => return Ok(None),
        },
        Expr::AllOp { left, compare_op: B::NotEq, right } => match member(left, right, true) {
            Some(member) => member,
            None => return Ok(None),
        },
        Expr::InSubquery { expr, subquery, negated: false } => match &**expr {
            Expr::Tuple(parts) => match row_member(parts, subquery) {
                Some(member) => member,
                None => return Ok(None),
            },
            _ => return Ok(None),
        },
        Expr::Interval(interval) => match &*interval.value {
            // DataFusion takes only texts in the frame of a window.
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) => {
                    let mut interval = interval.clone();
                    *interval.value =
                        Expr::Value(Value::SingleQuotedString(number.clone()).with_span(value.span));
                    Expr::Interval(interval)
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        },
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("grouping_id") => {
            let mut function = function.clone();
            function.name = ObjectName::from(vec!["grouping".into()]);
            Expr::Function(function)
        }
        Expr::Function(function) if arguments(function).any(|one| matches!(one, Expr::Tuple(_))) => {
            let mut function = function.clone();
            for argument in arguments_of(&mut function) {
                if let Expr::Tuple(parts) = argument {
                    *argument = tree::call("struct", std::mem::take(parts));
                }
            }
            Expr::Function(function)
        }
        Expr::Function(function) if has_collation(function) => {
            let mut function = function.clone();
            for argument in arguments_of(&mut function) {
                if let Expr::Collate { collation, .. } = argument
                    && is_nocase(collation)
                {
                    let message = "cannot use COLLATE NOCASE in an argument of a function: it only compares and orders; use lower(…)";
                    return Err(error(place(expr), message.to_string()));
                }
                plain(argument, false);
            }
            Expr::Function(function)
        }
        Expr::Function(function) => return Ok(chained(function)),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.split_last() {
            Some((AccessExpr::Dot(Expr::Function(last)), before)) => {
                let first = match before {
                    [] => (**root).clone(),
                    before => {
                        let inner =
                            Expr::CompoundFieldAccess { root: root.clone(), access_chain: before.to_vec() };
                        replaced(&inner)?.unwrap_or(inner)
                    }
                };
                with_first(last, first)
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

fn has_collation(function: &Function) -> bool {
    arguments(function).any(|one| matches!(one, Expr::Collate { .. }))
}

/// Returns the arguments without a name.
fn arguments(function: &Function) -> impl Iterator<Item = &Expr> {
    let list = match &function.args {
        FunctionArguments::List(list) => &list.args[..],
        _ => &[],
    };
    list.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// Returns the arguments without a name, to change them.
fn arguments_of(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let list = match &mut function.args {
        FunctionArguments::List(list) => &mut list.args[..],
        _ => &mut [],
    };
    list.iter_mut().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// Returns `left IN (…)` for a comparison with ANY or ALL rows of a subquery.
fn member(left: &Expr, right: &Expr, negated: bool) -> Option<Expr> {
    let Expr::Subquery(subquery) = right else { return None };
    Some(Expr::InSubquery { expr: Box::new(left.clone()), subquery: subquery.clone(), negated })
}

/// Returns an EXISTS for `(a, b) IN (SELECT …)`.
fn row_member(parts: &[Expr], subquery: &Query) -> Option<Expr> {
    let names: Vec<String> = (0..parts.len()).map(|n| format!("__c{n}")).collect();
    let equal: Vec<String> =
        names.iter().zip(parts).map(|(name, part)| format!("__in.{name} = ({part})")).collect();
    let sql = format!(
        "EXISTS (SELECT 1 FROM (SELECT 1) AS __in({}) WHERE {})",
        names.join(", "),
        equal.join(" AND ")
    );
    let mut exists = template::expr(&sql)?;
    if let Expr::Exists { subquery: outer, .. } = &mut exists
        && let SetExpr::Select(select) = outer.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery: inner, .. } = &mut from.relation
    {
        **inner = subquery.clone();
        return Some(exists);
    }
    None
}

/// Returns `f(x)` for `x.f()`.
fn chained(function: &Function) -> Option<Expr> {
    let mut parts: Vec<_> = function.name.0.iter().filter_map(|part| part.as_ident().cloned()).collect();
    let name = parts.pop()?;
    let first = match &parts[..] {
        [] => return None,
        [schema] if ["main", "pg_catalog", "system"].contains(&schema.value.to_lowercase().as_str()) => {
            let mut plain = function.clone();
            plain.name = ObjectName::from(vec![name]);
            return Some(Expr::Function(plain));
        }
        [column] => Expr::Identifier(column.clone()),
        _ => Expr::CompoundIdentifier(parts),
    };
    let mut plain = function.clone();
    plain.name = ObjectName::from(vec![name]);
    Some(with_first(&plain, first))
}

/// Adds an argument before the others.
fn with_first(function: &Function, first: Expr) -> Expr {
    let mut function = function.clone();
    if let FunctionArguments::List(list) = &mut function.args {
        list.args.insert(0, FunctionArg::Unnamed(FunctionArgExpr::Expr(first)));
    }
    Expr::Function(function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement;

    fn rewritten(sql: &str) -> String {
        let mut tree = sql.parse::<Statement>().unwrap().tree().clone();
        rewrite(&mut tree).unwrap();
        tree.to_string()
    }

    #[test]
    fn functions_after_a_dot_and_collations_are_rewritten() {
        for (sql, expected) in [
            ("SELECT a.upper().replace('x', 'y')", "SELECT replace(upper(a), 'x', 'y')"),
            ("SELECT t.a.f(), main.upper(a)", "SELECT f(t.a), upper(a)"),
            (
                "SELECT a COLLATE NOCASE FROM t WHERE a COLLATE nocase = 'x' ORDER BY a COLLATE NOCASE",
                "SELECT a FROM t WHERE lower(a) = lower('x') ORDER BY lower(a)",
            ),
            ("SELECT 1 FROM t GROUP BY (a, b), c", "SELECT 1 FROM t GROUP BY a, b, c"),
            ("SELECT count(DISTINCT (a, b)) FROM t", "SELECT count(DISTINCT struct(a, b)) FROM t"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }
}
