//! Replacements in the syntax tree: constructs that DataFusion's planner reads as something else than DuckDB.
//!
//! | text | becomes |
//! |---|---|
//! | `t AT TIME ZONE z` | `timezone(z, t)` |
//! | `9223372036854775808` | `CAST('9223372036854775808' AS HUGEINT)` |
//! | `2.5::INT`, of a decimal and not of a float | `CAST('2.5' AS INT)` |
//! | `INTERVAL '1 day 04:05'` | `CAST('1 day 04:05' AS INTERVAL)` |
//! | `SET TimeZone = europe/berlin` | the zone's own name, or an error |

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, Diagnostic, Result, Span as DiagnosticSpan};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Interval, Set, Spanned, Statement, UnaryOperator, Value, ValueWithSpan,
    VisitorMut,
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
            Expr::Interval(Interval { value, leading_field: None, .. }) => {
                if let Expr::Value(text) = value.as_ref()
                    && matches!(text.value, Value::SingleQuotedString(_))
                {
                    *expr = cast_to(text.clone(), DataType::Interval { fields: None, precision: None });
                }
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                let arguments = vec![time_zone.as_ref().clone(), timestamp.as_ref().clone()];
                *expr = tree::call("timezone", arguments);
            }
            _ => {}
        }
        ControlFlow::Continue(())
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
            ("SELECT (-2.50)::VARCHAR", "SELECT '-2.50'::VARCHAR"),
            ("SELECT INTERVAL '1 day 04:05'", "SELECT CAST('1 day 04:05' AS INTERVAL)"),
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
