//! Aliases that are used again in the same SELECT: `SELECT a + b AS c, c * 2 FROM t WHERE c > 1`.
//!
//! A column of a table wins, so an alias counts only if the planner does not find a column of its name. Then
//! the name is replaced by the expression.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Result, SchemaError};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::{Location, Span};

use super::error;
use crate::sql::{place, tree};

/// Functions that give another value for each call.
const VOLATILE: &[&str] = &["random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval"];

/// Replaces the name that an error did not find, if it is an alias of its SELECT. Returns true if it was.
///
/// # Errors
/// Returns an error with its place if the alias is defined after it, or its expression cannot be repeated.
pub(crate) fn replace(tree: &mut Tree, error: &DataFusionError) -> Result<bool> {
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return Ok(false) };
    let SchemaError::FieldNotFound { field, .. } = inner.as_ref() else { return Ok(false) };
    if field.relation.is_some() {
        return Ok(false);
    }
    let at = place::of(error).map(|span| span.start);
    let mut replace = Replace { name: &field.name, at, aliases: Vec::new(), outcome: None };
    let _ = tree::visit(tree, &mut replace);
    match replace.outcome {
        Some(outcome) => outcome.map(|()| true),
        None => Ok(false),
    }
}

struct Replace<'a> {
    name: &'a str,
    /// The place of the name.
    at: Option<Location>,
    /// The alias of this name in each of the SELECTs around.
    aliases: Vec<Option<(Expr, Span)>>,
    outcome: Option<Result<()>>,
}

impl Replace<'_> {
    fn is_name(&self, name: &Ident) -> bool {
        name.value.to_lowercase() == self.name.to_lowercase()
            && self.at.is_none_or(|at| at == name.span.start)
    }
}

impl VisitorMut for Replace<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let alias = select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias }
                if alias.value.to_lowercase() == self.name.to_lowercase() =>
            {
                Some((expr.clone(), alias.span))
            }
            _ => None,
        });
        // An alias cannot be part of itself.
        self.aliases.push(alias.filter(|(expr, _)| !contains(expr, self.name)));
        // In SELECT, an alias counts after its definition.
        let alias = self.aliases.last().and_then(Option::as_ref).map(|(expr, _)| expr);
        if let (Some(alias), Some(at)) = (alias, self.at) {
            let exprs = select.projection.iter().filter_map(|item| match item {
                SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) => Some(expr),
                _ => None,
            });
            if exprs.take_while(|expr| *expr != alias).any(|expr| contains_at(expr, self.name, self.at)) {
                let message = format!(
                    "cannot use alias {} here: it is defined later in the same SELECT; move it before this",
                    self.name
                );
                self.outcome = Some(Err(error(Span::new(at, at), message)));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<()> {
        self.aliases.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = expr else { return ControlFlow::Continue(()) };
        if !self.is_name(name) {
            return ControlFlow::Continue(());
        }
        let Some((alias, _)) = self.aliases.iter().rev().flatten().next() else {
            return ControlFlow::Continue(());
        };
        let volatile = VOLATILE.iter().any(|function| calls(alias, function));
        self.outcome = Some(match volatile {
            true => Err(error(
                name.span,
                format!(
                    "cannot use alias {} again: its expression has another value each time; compute it in a subquery",
                    self.name
                ),
            )),
            false => {
                *expr = match alias {
                    Expr::Identifier(_)
                    | Expr::CompoundIdentifier(_)
                    | Expr::Value(_)
                    | Expr::Function(_) => alias.clone(),
                    other => Expr::Nested(Box::new(other.clone())),
                };
                Ok(())
            }
        });
        ControlFlow::Break(())
    }
}

fn contains(expr: &Expr, name: &str) -> bool {
    contains_at(expr, name, None)
}

fn contains_at(expr: &Expr, name: &str, at: Option<Location>) -> bool {
    any(expr, |one| {
        matches!(one, Expr::Identifier(other)
            if other.value.to_lowercase() == name.to_lowercase() && at.is_none_or(|at| at == other.span.start))
    })
}

fn calls(expr: &Expr, function: &str) -> bool {
    any(
        expr,
        |one| matches!(one, Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case(function)),
    )
}

fn any(expr: &Expr, found: impl Fn(&Expr) -> bool) -> bool {
    struct Any<F>(F);
    impl<F: Fn(&Expr) -> bool> VisitorMut for Any<F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if self.0(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    expr.clone().visit(&mut Any(found)).is_break()
}
