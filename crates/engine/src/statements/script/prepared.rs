//! PREPARE, EXECUTE and DEALLOCATE, and the values of parameters.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, Expr, Ident, ObjectName, Spanned, Statement as SqlStatement, Value, Visitor,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::logical::candidates::hint;
use crate::sql::statements::Statement;
use crate::sql::tree;
use crate::statements::script::state::{Prepared, State};

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

/// Returns the parameters of a statement.
pub(crate) fn placeholders(tree: &Tree) -> BTreeSet<String> {
    struct Find(BTreeSet<String>);
    impl Visitor for Find {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
            if let Expr::Value(value) = expr
                && let Value::Placeholder(name) = &value.value
            {
                self.0.insert(name.to_lowercase());
            }
            ControlFlow::Continue(())
        }
    }
    let mut find = Find(BTreeSet::new());
    // `Break` is `Infallible`.
    let _ = tree::inspect(tree, &mut find);
    find.0
}

/// Replaces parameters by their values.
pub(crate) fn substitute(tree: &mut Tree, values: &HashMap<String, Expr>) {
    struct Replace<'a>(&'a HashMap<String, Expr>);
    impl VisitorMut for Replace<'_> {
        type Break = std::convert::Infallible;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
            if let Expr::Value(value) = expr
                && let Value::Placeholder(name) = &value.value
                && let Some(value) = self.0.get(&name.to_lowercase())
            {
                *expr = match value {
                    plain @ (Expr::Value(_) | Expr::Nested(_)) => plain.clone(),
                    other => Expr::Nested(Box::new(other.clone())),
                };
            }
            ControlFlow::Continue(())
        }
    }
    // `Break` is `Infallible`.
    let _ = tree::visit(tree, &mut Replace(values));
}

/// Returns the literal of a parameter of the command line: a number, true, false, NULL or a text.
pub(crate) fn literal(text: &str) -> Expr {
    let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let number = text.strip_prefix('-').unwrap_or(text);
    let is_number = !number.is_empty()
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.parse::<f64>().is_ok_and(f64::is_finite);
    let value = match (quoted, text.to_ascii_lowercase().as_str()) {
        (Some(inner), _) => Value::SingleQuotedString(inner.replace("''", "'")),
        (None, "true") => Value::Boolean(true),
        (None, "false") => Value::Boolean(false),
        (None, "null") => Value::Null,
        _ if is_number => Value::Number(number.to_string(), false),
        _ => Value::SingleQuotedString(text.to_string()),
    };
    let negative = is_number && text.starts_with('-');
    let value = Expr::Value(value.with_empty_span());
    match negative {
        true => Expr::Nested(Box::new(Expr::UnaryOp {
            op: datafusion::sql::sqlparser::ast::UnaryOperator::Minus,
            expr: Box::new(value),
        })),
        false => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_the_command_line_have_types() {
        for (text, sql) in [
            ("3", "3"),
            ("-1.5", "(-1.5)"),
            ("true", "true"),
            ("null", "NULL"),
            ("Lyon", "'Lyon'"),
            ("'3'", "'3'"),
            ("1-2", "'1-2'"),
            ("inf", "'inf'"),
        ] {
            assert_eq!(literal(text).to_string(), sql);
        }
    }
}
