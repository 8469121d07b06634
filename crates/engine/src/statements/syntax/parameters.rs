//! Parameters of statements: `$1`, `$name`, and `?`, which is numbered.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{Expr, Value, Visitor, VisitorMut};

use crate::sql::tree;

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
