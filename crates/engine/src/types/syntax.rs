//! Replacements in the syntax tree: constructs that DataFusion's planner reads as something else than DuckDB.
//!
//! | text | becomes |
//! |---|---|
//! | `t AT TIME ZONE z` | `timezone(z, t)` |
//! | `a // b` | `a / b`, which is a whole number for whole numbers |
//! | `9223372036854775808` | `CAST('9223372036854775808' AS HUGEINT)` |
//! | `2.5::INT`, of a decimal and not of a float | `CAST('2.5' AS INT)` |
//! | `INTERVAL '1 day 04:05'` | `CAST('1 day 04:05' AS INTERVAL)` |
//! | `INTERVAL (n) DAY` | `(n) * INTERVAL '1 DAY'` |
//! | `SET TimeZone = europe/berlin` | the zone's own name, or an error |

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Diagnostic, Result, Span as DiagnosticSpan};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, Interval, ObjectName, Set, Spanned, Statement, UnaryOperator, Value,
    ValueWithSpan, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::sql::tree;
use crate::types::zone;

/// Replaces the constructs in a statement. A second time, it changes nothing.
///
/// # Errors
/// Returns an error if the statement sets an unknown time zone.
pub(crate) fn apply(tree: &mut Tree) -> Result<()> {
    match tree::visit(tree, &mut Replace) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Replace;

impl VisitorMut for Replace {
    // Boxed, since errors are large.
    type Break = Box<DataFusionError>;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Self::Break> {
        let value = match statement {
            Statement::Set(Set::SetTimeZone { value, .. }) => Some(value),
            Statement::Set(Set::SingleAssignment { variable, values, .. })
                if ["timezone", "time.zone", "datafusion.execution.time_zone"]
                    .contains(&variable.to_string().to_lowercase().as_str()) =>
            {
                values.first_mut()
            }
            _ => None,
        };
        let Some(value) = value else { return ControlFlow::Continue(()) };
        let zone = match value {
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(zone), .. }) => zone.clone(),
            Expr::Identifier(zone) => zone.value.clone(),
            _ => return ControlFlow::Continue(()),
        };
        match zone::canonical(&zone) {
            Ok(zone) => {
                *value = Expr::Value(Value::SingleQuotedString(zone).with_span(value.span()));
                ControlFlow::Continue(())
            }
            Err(error) => {
                let span = DiagnosticSpan::try_from_sqlparser_span(value.span());
                let diagnostic = Diagnostic::new_error(error.strip_backtrace(), span);
                ControlFlow::Break(Box::new(error.with_diagnostic(diagnostic)))
            }
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), span }) => {
                if let Some(huge) = huge(digits, false) {
                    *expr = cast(Value::SingleQuotedString(huge).with_span(*span));
                }
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: operand } => {
                if let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), span }) = operand.as_mut()
                {
                    if let Some(huge) = huge(digits, true) {
                        *expr = cast(Value::SingleQuotedString(huge).with_span(*span));
                    } else if digits == "9223372036854775808" {
                        // BIGINT has it, but not without the sign.
                        let text = Value::SingleQuotedString(format!("-{digits}")).with_span(*span);
                        *expr = cast_to(text, DataType::BigInt(None));
                    }
                }
            }
            Expr::Cast { expr: operand, data_type, .. }
                if !matches!(data_type, DataType::Boolean | DataType::Bool) =>
            {
                if let Some((digits, span)) = decimal(operand) {
                    **operand = Expr::Value(Value::SingleQuotedString(digits).with_span(span));
                }
            }
            Expr::Interval(interval) => self.interval(interval).into_iter().for_each(|new| *expr = new),
            Expr::BinaryOp { op: op @ BinaryOperator::DuckIntegerDivide, .. } => *op = BinaryOperator::Divide,
            Expr::AtTimeZone { timestamp, time_zone } => {
                let arguments = [time_zone.as_ref(), timestamp.as_ref()].map(Clone::clone);
                *expr = call("timezone", arguments);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Replace {
    /// Returns what an interval is replaced by; `None` if DataFusion's planner reads it as DuckDB does.
    fn interval(&self, interval: &Interval) -> Option<Expr> {
        match (interval.value.as_ref(), &interval.leading_field) {
            (Expr::Value(text), None) if matches!(text.value, Value::SingleQuotedString(_)) => {
                let data_type = DataType::Interval { fields: None, precision: None };
                Some(cast_to(text.clone(), data_type))
            }
            (Expr::Value(_) | Expr::UnaryOp { .. }, _) | (_, None) => None,
            (number, Some(unit)) => {
                let text = Value::SingleQuotedString(format!("1 {unit}")).with_empty_span();
                let one = cast_to(text, DataType::Interval { fields: None, precision: None });
                let number = Box::new(number.clone());
                Some(Expr::BinaryOp { left: number, op: BinaryOperator::Multiply, right: Box::new(one) })
            }
        }
    }
}

/// Returns the digits of a number with a point and without an exponent, which is a decimal in DuckDB.
fn decimal(expr: &Expr) -> Option<(String, Span)> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), span }) => {
            (digits.contains('.') && !digits.contains(['e', 'E'])).then(|| (digits.clone(), *span))
        }
        Expr::Nested(inner) => decimal(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => decimal(expr)
            .filter(|(digits, _)| !digits.starts_with('-'))
            .map(|(digits, span)| (format!("-{digits}"), span)),
        _ => None,
    }
}

/// Returns a whole number that is beyond BIGINT and within HUGEINT.
fn huge(digits: &str, negative: bool) -> Option<String> {
    let digits = digits.replace('_', "");
    if digits.len() < 19 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = if negative { format!("-{digits}") } else { digits };
    (number.parse::<i64>().is_err() && number.parse::<i128>().is_ok()).then_some(number)
}

fn cast(text: ValueWithSpan) -> Expr {
    cast_to(text, DataType::HugeInt)
}

fn cast_to(text: ValueWithSpan, data_type: DataType) -> Expr {
    let expr = Box::new(Expr::Value(text));
    Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None }
}

fn call(name: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    let args = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(args),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement as Parsed;

    fn replaced(sql: &str) -> Result<String> {
        let parsed: Parsed = sql.parse().unwrap();
        let mut tree = parsed.tree().clone();
        apply(&mut tree)?;
        Ok(tree.to_string())
    }

    #[test]
    fn constructs_are_replaced() {
        for (sql, expected) in [
            ("SELECT t AT TIME ZONE 'UTC'", "SELECT timezone('UTC', t)"),
            ("SELECT a // b", "SELECT a / b"),
            ("SELECT (-2.50)::VARCHAR", "SELECT '-2.50'::VARCHAR"),
            ("SELECT INTERVAL '1 day 04:05'", "SELECT CAST('1 day 04:05' AS INTERVAL)"),
            ("SELECT INTERVAL (n + 1) DAY", "SELECT (n + 1) * CAST('1 DAY' AS INTERVAL)"),
            ("SELECT INTERVAL 5 DAY", "SELECT INTERVAL 5 DAY"),
            ("SELECT 9223372036854775807", "SELECT 9223372036854775807"),
            ("SELECT 9223372036854775808", "SELECT CAST('9223372036854775808' AS HUGEINT)"),
            ("SELECT -9223372036854775808", "SELECT CAST('-9223372036854775808' AS BIGINT)"),
            ("SELECT -9223372036854775809", "SELECT CAST('-9223372036854775809' AS HUGEINT)"),
            ("SET TimeZone = 'europe/berlin'", "SET TIMEZONE = 'Europe/Berlin'"),
        ] {
            assert_eq!(replaced(sql).unwrap(), expected);
        }
        assert!(
            replaced("SET TimeZone = 'nowhere'").unwrap_err().to_string().contains("cannot find time zone")
        );
    }
}
