//! DESCRIBE, SUMMARIZE, SHOW, `information_schema` and the functions that list tables, replaced by queries of
//! their rows.
//!
//! `crate::statements::syntax` writes DESCRIBE as `SELECT * FROM __describe((…))`. Here, the call becomes a
//! subquery once the inner query's columns are known, so that it may stand wherever a table may.

pub(crate) mod columns;
mod listing;
pub(crate) mod quantile;
pub(crate) mod source;
mod summarize;

use std::ops::ControlFlow;

use datafusion::execution::context::SessionState;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, Query, Spanned, TableFactor, Value, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::sql::tree;
use crate::statements::describe::source::{derived, usual_alias};
use crate::statements::run;
use crate::statements::syntax::words;

/// A call of a function that lists tables or columns.
struct Call {
    name: String,
    argument: Option<Argument>,
    span: Span,
}

enum Argument {
    Query(Box<Query>),
    Text(String),
}

/// Replaces the calls in a statement by queries.
///
/// # Errors
/// Returns an error with its place if an inner query is invalid.
pub(crate) async fn expand(
    state: &SessionState,
    statement: &Statement,
    tree: &mut Tree,
) -> Result<(), EngineError> {
    while let Some(call) = first_call(tree) {
        let query = answer(state, statement, call).await?;
        replace_first(tree, query);
    }
    Ok(())
}

async fn answer(state: &SessionState, statement: &Statement, call: Call) -> Result<Box<Query>, EngineError> {
    match (call.name.as_str(), call.argument) {
        ("__describe", Some(Argument::Query(query))) => {
            let columns = columns::of_query(state, statement, query).await?;
            listing::describe(&columns)
        }
        ("__summarize", Some(Argument::Query(query))) => summarize::query(state, statement, query).await,
        ("pragma_table_info" | "pragma_show", Some(Argument::Text(name))) => {
            let quoted = if name.contains(['/', '.', '*']) { words::quoted(&name) } else { name };
            let of_table = run::query(&format!("SELECT * FROM {quoted}"));
            let of_table = of_table
                .map_err(|_| statement.refuse(call.span, "the argument must be the name of a table"))?;
            let columns = columns::of_query(state, statement, of_table).await?;
            if call.name == "pragma_show" {
                listing::describe(&columns)
            } else {
                listing::table_info(&columns)
            }
        }
        (name, argument) => match listing::query(state, name).await? {
            Some(query) if argument.is_none() => Ok(query),
            _ => {
                let shown = name.trim_start_matches('_');
                let message = match shown.strip_prefix("pragma_") {
                    Some(pragma) => format!("PRAGMA {pragma} is not supported; SHOW ALL lists the settings"),
                    None => format!("cannot call {shown}: it needs other arguments"),
                };
                Err(statement.refuse(call.span, &message))
            }
        },
    }
}

/// Returns the name of a table that is one of the functions, or a view of `information_schema`.
fn own_name(name: &ObjectName, is_call: bool) -> Option<String> {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| Some(part.as_ident()?.value.to_lowercase())).collect();
    let own = match (&parts[..], is_call) {
        ([one], true) => {
            one.starts_with("__") || one.starts_with("pragma_") || listing::FUNCTIONS.contains(&one.as_str())
        }
        ([.., schema, view], false) => {
            schema == "information_schema" && ["tables", "columns", "schemata"].contains(&view.as_str())
        }
        ([one], false) => listing::FUNCTIONS.contains(&one.as_str()),
        _ => false,
    };
    match &parts[..] {
        [.., schema, view] if own => Some(format!("{schema}.{view}")),
        [one] if own => Some(one.clone()),
        _ => None,
    }
}

/// Finds the first call, in the order of [`replace_first`].
fn first_call(tree: &Tree) -> Option<Call> {
    struct Find(Option<Call>);
    impl Visitor for Find {
        type Break = ();

        fn post_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
            let TableFactor::Table { name, args, .. } = table else { return ControlFlow::Continue(()) };
            let Some(own) = own_name(name, args.is_some()) else { return ControlFlow::Continue(()) };
            let argument = match args.as_ref().and_then(|args| args.args.first()) {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => match expr {
                    Expr::Subquery(query) => Some(Argument::Query(query.clone())),
                    Expr::Value(value) => match &value.value {
                        Value::SingleQuotedString(text) => Some(Argument::Text(text.clone())),
                        other => Some(Argument::Text(other.to_string())),
                    },
                    Expr::Identifier(name) => Some(Argument::Text(name.value.clone())),
                    _ => None,
                },
                _ => None,
            };
            self.0 = Some(Call { name: own, argument, span: name.span() });
            ControlFlow::Break(())
        }
    }
    let mut find = Find(None);
    let _ = tree::inspect(tree, &mut find);
    find.0
}

/// Replaces the first call by a subquery.
fn replace_first(tree: &mut Tree, query: Box<Query>) {
    struct Replace(Option<Box<Query>>);
    impl VisitorMut for Replace {
        type Break = ();

        fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, args, alias, .. } = table
                && own_name(name, args.is_some()).is_some()
                && let Some(query) = self.0.take()
            {
                let alias = alias.clone().or_else(|| usual_alias(name));
                *table = derived(query, alias);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }
    let _ = tree::visit(tree, &mut Replace(Some(query)));
}
