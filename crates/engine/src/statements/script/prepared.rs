//! PREPARE, EXECUTE and DEALLOCATE.

use std::collections::{BTreeSet, HashMap};

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, Ident, ObjectName, Spanned, Statement as SqlStatement,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::logical::nearest::hint;
use crate::sql::statements::Statement;
use crate::statements::script::state::{Prepared, State};
use crate::statements::syntax::parameters::{placeholders, substitute};

/// Returns the statement that EXECUTE runs, with its parameters' values.
///
/// # Errors
/// Returns an error with its place if the name or a parameter is unknown, or a parameter has no value.
pub(crate) fn executed(
    state: &State,
    statement: &Statement,
    name: Option<&ObjectName>,
    parameters: &[Expr],
) -> Result<Statement, EngineError> {
    let Some(name) = name else {
        return Err(statement.refuse(Span::empty(), "EXECUTE needs the name of a prepared statement"));
    };
    let prepared = state.prepared();
    let Some(found) = prepared.get(&name.to_string().to_lowercase()) else {
        let known: Vec<String> = prepared.keys().cloned().collect();
        let hint = match known.is_empty() {
            true => "PREPARE it first".to_string(),
            false => hint(&name.to_string(), known, "the prepared statements are"),
        };
        return Err(statement.refuse(name.span(), &format!("cannot find prepared statement {name}; {hint}")));
    };
    let mut values: HashMap<String, Expr> = HashMap::new();
    for (at, parameter) in parameters.iter().enumerate() {
        let (key, value) = match parameter {
            Expr::BinaryOp { left, op: BinaryOperator::Assignment, right } => {
                (format!("${left}").to_lowercase(), right.as_ref())
            }
            value => (format!("${}", at + 1), value),
        };
        let value = match found.types.get(at) {
            Some(data_type) => Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value.clone()),
                data_type: data_type.clone(),
                array: false,
                format: None,
            },
            None => value.clone(),
        };
        values.insert(key, value);
    }
    let mut tree = found.tree.clone();
    let used = placeholders(&tree);
    if let Some(more) = values.keys().find(|key| !used.contains(*key)) {
        let message = format!(
            "cannot execute {name}: it has no parameter {more}; its parameters are {}",
            listed(&used)
        );
        return Err(statement.refuse(name.span(), &message));
    }
    if let Some(missing) = used.iter().find(|key| !values.contains_key(*key)) {
        let message = format!(
            "cannot execute {name}: parameter {missing} has no value; its parameters are {}",
            listed(&used)
        );
        return Err(statement.refuse(name.span(), &message));
    }
    substitute(&mut tree, &values);
    let mut made = statement.with_tree(tree);
    made.set_own(found.own.clone());
    Ok(made)
}

fn listed(used: &BTreeSet<String>) -> String {
    if used.is_empty() { "none".to_string() } else { used.iter().cloned().collect::<Vec<_>>().join(", ") }
}

/// Keeps a statement for EXECUTE.
pub(crate) fn prepare(state: &State, statement: &Statement, tree: &SqlStatement) {
    if let SqlStatement::Prepare { name, data_types, statement: inner } = tree {
        let prepared = Prepared {
            tree: Tree::Statement(inner.clone()),
            own: statement.own().cloned(),
            types: data_types.clone(),
        };
        state.prepared().insert(name.value.to_lowercase(), prepared);
    }
}

/// Forgets a prepared statement.
///
/// # Errors
/// Returns an error with its place if there is none of this name.
pub(crate) fn deallocate(state: &State, statement: &Statement, name: &Ident) -> Result<(), EngineError> {
    if name.value.eq_ignore_ascii_case("all") && name.quote_style.is_none() {
        state.prepared().clear();
        return Ok(());
    }
    match state.prepared().remove(&name.value.to_lowercase()) {
        Some(_) => Ok(()),
        None => {
            Err(statement
                .refuse(name.span, &format!("cannot find prepared statement {name}; PREPARE it first")))
        }
    }
}
