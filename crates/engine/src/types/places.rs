//! The place in a statement of a value that failed while running.
//!
//! Such an error names the value, the type or the operator, and the column; the kernels do not know the text. So the
//! place is that of the only expression which fits these, or of the one that fits best.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as SqlType, Expr, Spanned, TypedString, UnaryOperator, Value,
    ValueWithSpan, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::sql::{place, tree};
use crate::types::names::{TypeNames, name, text_kind};

/// Adds the place to the error of a value that failed while running, if it is known.
pub(crate) fn mark(statement: &Statement, error: EngineError) -> EngineError {
    let EngineError::Failed(message) = &error else { return error };
    match cause(message).and_then(|cause| find(statement, cause)) {
        Some(span) => EngineError::Failed(place::mark(statement.text(), span, message)),
        None => error,
    }
}

/// A failure, as its message has it.
enum Cause<'a> {
    Cast { value: &'a str, column: Option<&'a str>, to: &'a str },
    Operator { left: &'a str, op: &'a str, right: &'a str },
    Function(&'a str),
}

fn cause(message: &str) -> Option<Cause<'_>> {
    if let Some((_, rest)) = message.split_once("cannot cast ") {
        let (rest, _) = rest.rsplit_once("; TRY_CAST")?;
        let (value, to) = rest.rsplit_once(" to ")?;
        let (value, column) = match value.rsplit_once(" of column ") {
            Some((value, column)) => (value, Some(column)),
            None => (value, None),
        };
        return Some(Cause::Cast { value, column, to: to.split_once(": ")?.0 });
    }
    if message.contains("cannot add up the values of sum(…)") {
        return Some(Cause::Function("sum"));
    }
    let (_, rest) = message.split_once("cannot compute ")?;
    if rest.starts_with("abs(") {
        return Some(Cause::Function("abs"));
    }
    let (operation, _) = rest.split_once(": the result exceeds ")?;
    if let Some(right) = operation.strip_prefix("- ") {
        return Some(Cause::Operator { left: "", op: "-", right });
    }
    let (left, rest) = operation.split_once(' ')?;
    let (op, right) = rest.split_once(' ')?;
    Some(Cause::Operator { left, op, right })
}

/// Returns the place of the expression that fits best, unless several fit only in kind.
fn find(statement: &Statement, cause: Cause<'_>) -> Option<Span> {
    let mut found = Find { cause, fitting: Vec::new() };
    // `Break` is `Infallible`.
    let _ = tree::inspect(statement.tree(), &mut found);
    let best = found.fitting.iter().map(|(score, _)| *score).max()?;
    let mut spans = found.fitting.iter().filter(|(score, _)| *score == best).map(|(_, span)| *span);
    let first = spans.next()?;
    (best > 1 || spans.next().is_none()).then_some(first)
}

struct Find<'a> {
    cause: Cause<'a>,
    /// How well an expression fits, and its place.
    fitting: Vec<(u8, Span)>,
}

impl Visitor for Find<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        let score = match &self.cause {
            Cause::Cast { value, column, to } => cast(expr, value, *column, to),
            Cause::Operator { left, op, right } => operator(expr, left, op, right),
            Cause::Function(name) => match expr {
                Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case(name) => 1,
                _ => 0,
            },
        };
        if score > 0 && expr.span() != Span::empty() {
            self.fitting.push((score, expr.span()));
        }
        ControlFlow::Continue(())
    }
}

/// Returns how well an expression fits a failed cast, which may be an implicit one.
fn cast(expr: &Expr, value: &str, column: Option<&str>, to: &str) -> u8 {
    let is_column = |expr: &Expr| match (expr, column) {
        (Expr::Identifier(name), Some(column)) => name.value.eq_ignore_ascii_case(column),
        (Expr::CompoundIdentifier(names), Some(column)) => {
            names.last().is_some_and(|name| name.value.eq_ignore_ascii_case(column))
        }
        _ => false,
    };
    let is_value = |expr: &Expr| expr.to_string() == value;
    match expr {
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. }
            if is_type(data_type, to) =>
        {
            1 + 3 * u8::from(is_value(inner) || is_column(inner))
        }
        Expr::TypedString(TypedString { data_type, value: text, .. }) if is_type(data_type, to) => {
            1 + 3 * u8::from(text.value.to_string() == value)
        }
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) if is_value(expr) => 3,
        expr if is_column(expr) => 2,
        _ => 0,
    }
}

fn is_type(sql: &SqlType, to: &str) -> bool {
    let known =
        || TypeNames::new("UTC".into(), true).planned(sql).ok().flatten().map(|data_type| name(&data_type));
    let base = |name: &str| name.split('(').next().map(str::to_string);
    text_kind(sql).or_else(known).is_some_and(|name| name == to || base(&name) == base(to))
}

/// Returns how well an expression fits a failed operator.
fn operator(expr: &Expr, left: &str, op: &str, right: &str) -> u8 {
    match expr {
        Expr::BinaryOp { left: a, op: operator, right: b } => {
            let same = match operator {
                BinaryOperator::Plus => op == "+",
                BinaryOperator::Minus => op == "-" && !left.is_empty(),
                BinaryOperator::Multiply => op == "*",
                _ => false,
            };
            u8::from(same) * (1 + u8::from(a.to_string() == left) + u8::from(b.to_string() == right))
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if op == "-" && left.is_empty() => {
            1 + u8::from(expr.to_string().trim_matches(['(', ')']) == right)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(sql: &str, message: &str) -> String {
        mark(&sql.parse().unwrap(), EngineError::Failed(message.to_string())).to_string()
    }

    #[test]
    fn failed_casts_have_their_place() {
        let message =
            "cannot cast 'x' of column City to INTEGER: it is not a number; TRY_CAST gives NULL instead";
        assert!(marked("SELECT a::INT, city::INT FROM t", message).contains("line 1, column 16"));
        assert!(marked("SELECT a FROM t WHERE city = 5", message).contains("line 1, column 23"));
        let message = "cannot cast '1 to 2' to DATE: it is not a date; TRY_CAST gives NULL instead";
        assert!(marked("SELECT DATE '2024-01-01', DATE '1 to 2'", message).contains("line 1, column 32"));
        // Several casts fit in kind alone.
        assert_eq!(marked("SELECT max(a)::DATE, max(b)::DATE FROM t", message), message);
    }

    #[test]
    fn failed_operators_have_their_place() {
        let message =
            "cannot compute 5 + 9223372036854775807: the result exceeds BIGINT; cast an operand to HUGEINT";
        assert!(marked("SELECT a * 2, a + 1 FROM t", message).contains("line 1, column 15"));
        assert!(
            marked("SELECT a + 1, a + 9223372036854775807 FROM t", message).contains("line 1, column 15")
        );
        assert_eq!(marked("SELECT a + b, c + d FROM t", message), message);
    }
}
