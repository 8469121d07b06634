//! Macros: `CREATE MACRO f(a, b := 1) AS a + b`, and macros that are tables.
//!
//! A call is replaced by the macro's body in the syntax tree, before the statement is planned.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, MacroArg, MacroDefinition, ObjectName,
    Select, SelectItem, Spanned, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::sql::tree;
use crate::statements::describe::source::{derived, usual_alias};
use crate::statements::script::state::{Body, Macro, State};

/// Maximum number of macros that call each other.
const MAX_DEPTH: usize = 32;

/// Creates a macro.
///
/// # Errors
/// Returns an error with its place if it exists.
pub(crate) fn create(
    state: &State,
    statement: &Statement,
    name: &ObjectName,
    arguments: Option<&[MacroArg]>,
    definition: &MacroDefinition,
    or_replace: bool,
) -> Result<(), EngineError> {
    let key = name.to_string().to_lowercase();
    let mut names = state.names();
    if names.macros.contains_key(&key) && !or_replace {
        let message = format!(
            "cannot create macro {name}: it exists; use CREATE OR REPLACE MACRO, or DROP MACRO {name}"
        );
        return Err(statement.refuse(name.span(), &message));
    }
    let parameters =
        arguments.unwrap_or_default().iter().map(|a| (a.name.clone(), a.default_expr.clone())).collect();
    let body = match definition {
        MacroDefinition::Expr(expr) => Body::Value(expr.clone()),
        MacroDefinition::Table(query) => Body::Table(query.clone()),
    };
    names.macros.insert(key, Macro { parameters, body });
    Ok(())
}

/// Replaces the calls of macros in a statement.
///
/// # Errors
/// Returns an error with its place if a call has other arguments than the macro.
pub(crate) fn expand(state: &State, statement: &Statement, tree: &mut Tree) -> Result<(), EngineError> {
    let macros = state.names().macros.clone();
    if macros.is_empty() {
        return Ok(());
    }
    for _ in 0..MAX_DEPTH {
        let mut calls = Calls { macros: &macros, changed: false };
        match tree::visit(tree, &mut calls) {
            ControlFlow::Break((span, message)) => return Err(statement.refuse(span, &message)),
            ControlFlow::Continue(()) if !calls.changed => return Ok(()),
            ControlFlow::Continue(()) => {}
        }
    }
    let message = format!(
        "cannot expand the macros: more than {MAX_DEPTH} call each other; a macro cannot call itself"
    );
    Err(statement.refuse(Span::empty(), &message))
}

struct Calls<'a> {
    macros: &'a HashMap<String, Macro>,
    changed: bool,
}

impl Calls<'_> {
    fn find(&self, name: &ObjectName) -> Option<&Macro> {
        self.macros.get(&name.to_string().to_lowercase())
    }
}

impl VisitorMut for Calls<'_> {
    type Break = (Span, String);

    /// A column keeps the text of its call as its name.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr @ Expr::Function(_)) = item
                && let Expr::Function(function) = &*expr
                && self.find(&function.name).is_some()
            {
                let alias = Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Function(function) = &*expr else { return ControlFlow::Continue(()) };
        let Some(Macro { parameters, body: Body::Value(body) }) = self.find(&function.name) else {
            return ControlFlow::Continue(());
        };
        let FunctionArguments::List(list) = &function.args else { return ControlFlow::Continue(()) };
        match bound(&function.name, parameters, &list.args) {
            Ok(values) => {
                let mut made = body.clone();
                let _ = made.visit(&mut Parameters(&values));
                *expr = Expr::Nested(Box::new(made));
                self.changed = true;
                ControlFlow::Continue(())
            }
            Err(message) => ControlFlow::Break((function.name.span(), message)),
        }
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        let TableFactor::Table { name, args: Some(args), alias, .. } = &*table else {
            return ControlFlow::Continue(());
        };
        let Some(Macro { parameters, body: Body::Table(body) }) = self.find(name) else {
            return ControlFlow::Continue(());
        };
        match bound(name, parameters, &args.args) {
            Ok(values) => {
                let mut made = body.clone();
                let _ = made.visit(&mut Parameters(&values));
                *table = derived(made, alias.clone().or_else(|| usual_alias(name)));
                self.changed = true;
                ControlFlow::Continue(())
            }
            Err(message) => ControlFlow::Break((name.span(), message)),
        }
    }
}

/// Returns the values of a macro's parameters, by name in lower case.
fn bound(
    name: &ObjectName,
    parameters: &[(Ident, Option<Expr>)],
    arguments: &[FunctionArg],
) -> Result<HashMap<String, Expr>, String> {
    let names: Vec<String> = parameters.iter().map(|(p, _)| p.value.to_lowercase()).collect();
    let shown: Vec<&str> = parameters.iter().map(|(p, _)| p.value.as_str()).collect();
    let wrong = |cause: String| format!("cannot call macro {name}({}): {cause}", shown.join(", "));
    let mut values: HashMap<String, Expr> = HashMap::new();
    for (at, argument) in arguments.iter().enumerate() {
        let (parameter, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => match names.get(at) {
                Some(parameter) => (parameter.clone(), expr),
                None => return Err(wrong(format!("it has {} parameters", names.len()))),
            },
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                (name.value.to_lowercase(), expr)
            }
            other => return Err(wrong(format!("{other} is not a value"))),
        };
        if !names.contains(&parameter) {
            return Err(wrong(format!("it has no parameter {parameter}")));
        }
        values.insert(parameter, value.clone());
    }
    for (parameter, default) in parameters {
        let key = parameter.value.to_lowercase();
        match default {
            _ if values.contains_key(&key) => {}
            Some(default) => drop(values.insert(key, default.clone())),
            None => return Err(wrong(format!("{parameter} has no value"))),
        }
    }
    Ok(values)
}

/// Replaces parameters by their values.
struct Parameters<'a>(&'a HashMap<String, Expr>);

impl VisitorMut for Parameters<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Identifier(name) = expr
            && let Some(value) = self.0.get(&name.value.to_lowercase())
        {
            *expr = match value {
                plain @ (Expr::Value(_)
                | Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Nested(_)) => plain.clone(),
                other => Expr::Nested(Box::new(other.clone())),
            };
        }
        ControlFlow::Continue(())
    }
}
