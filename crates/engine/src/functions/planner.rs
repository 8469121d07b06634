//! Operators that depend on the types of their operands, as DuckDB has them.
//!
//! | operator | here | in DataFusion |
//! |---|---|---|
//! | `/` of whole or decimal numbers | DOUBLE; by zero: infinity | a number of the same type; by zero: an error |
//! | `%` by zero | NULL | an error |
//! | date ± whole number | a date | an error |
//! | interval `*` and `/` number | an interval | an error |
//! | `text[2:3]` | characters | an error |
//! | `column.Field`, `column['Field']` of a struct | in any case | exactly |
//! | `sum` of booleans | number of true ones | an error |

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::functions::core::expr_fn::arrow_cast;
use datafusion::functions::expr_fn::{get_field, nullif};
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawFieldAccessExpr, RawWindowExpr,
};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, GetFieldAccess, Operator, ScalarUDF, cast, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// The rules.
#[derive(Debug)]
pub(crate) struct Operators {
    /// The function that returns characters of a text.
    pub slice: Arc<ScalarUDF>,
    /// The function that multiplies an interval.
    pub scale: Arc<ScalarUDF>,
}

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        let types = (left.get_type(schema)?, right.get_type(schema)?);
        let numbers = is_exact(&types.0) && is_exact(&types.1);
        let made = match op {
            BinaryOperator::Divide if numbers => {
                binary(cast(left, DataType::Float64), Operator::Divide, cast(right, DataType::Float64))
            }
            BinaryOperator::Modulo if numbers && !matches!(right, Expr::Literal(..)) => {
                binary(left, Operator::Modulo, not_zero(right))
            }
            BinaryOperator::Modulo if is_zero(&right) => {
                Expr::Literal(ScalarValue::try_from(&types.0)?, None)
            }
            BinaryOperator::Multiply if is_interval(&types.0) && types.1.is_numeric() => {
                self.scale.call(vec![left, right])
            }
            BinaryOperator::Multiply if types.0.is_numeric() && is_interval(&types.1) => {
                self.scale.call(vec![right, left])
            }
            BinaryOperator::Divide if is_interval(&types.0) && types.1.is_numeric() => {
                let factor = binary(lit(1.0), Operator::Divide, cast(right, DataType::Float64));
                self.scale.call(vec![left, factor])
            }
            BinaryOperator::Plus if is_date(&types.0) && types.1.is_integer() => {
                days(left, Operator::Plus, right)
            }
            BinaryOperator::Plus if types.0.is_integer() && is_date(&types.1) => {
                days(right, Operator::Plus, left)
            }
            BinaryOperator::Minus if is_date(&types.0) && types.1.is_integer() => {
                days(left, Operator::Minus, right)
            }
            _ => return Ok(PlannerResult::Original(RawBinaryExpr { op, left, right })),
        };
        Ok(PlannerResult::Planned(made))
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr { field_access, expr } = expr;
        let kind = expr.get_type(schema)?;
        let text = kind.is_string();
        match field_access {
            GetFieldAccess::ListIndex { key } if text => {
                Ok(PlannerResult::Planned(self.slice.call(vec![expr, (*key).clone(), *key])))
            }
            GetFieldAccess::ListRange { start, stop, stride } if text && *stride == lit(1_i64) => {
                Ok(PlannerResult::Planned(self.slice.call(vec![expr, *start, *stop])))
            }
            GetFieldAccess::NamedStructField { name } => {
                let exact = name.try_as_str().flatten().and_then(|name| field_of(&kind, name));
                let name = exact.map_or(name, |field| ScalarValue::from(field.name().as_str()));
                let field_access = GetFieldAccess::NamedStructField { name };
                Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }))
            }
            field_access => Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr })),
        }
    }

    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let mut expr = Expr::Column(Column::from((qualifier, field)));
        let mut kind = field.data_type();
        for name in nested_names {
            let Some(field) = field_of(kind, name) else { return Ok(PlannerResult::Original(Vec::new())) };
            expr = get_field(expr, field.name().as_str());
            kind = field.data_type();
        }
        Ok(PlannerResult::Planned(expr))
    }

    fn plan_aggregate(&self, mut expr: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        count_true(expr.func.name(), &mut expr.args);
        Ok(PlannerResult::Original(expr))
    }

    fn plan_window(&self, mut expr: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        count_true(expr.func_def.name(), &mut expr.args);
        Ok(PlannerResult::Original(expr))
    }
}

/// Returns the field of a struct with this name, or the only one with the name in another case.
fn field_of<'a>(kind: &'a DataType, name: &str) -> Option<&'a Field> {
    let DataType::Struct(fields) = kind else { return None };
    if let Some(field) = fields.iter().find(|field| field.name() == name) {
        return Some(field);
    }
    let mut like = fields.iter().filter(|field| field.name().to_lowercase() == name.to_lowercase());
    like.next().filter(|_| like.next().is_none()).map(AsRef::as_ref)
}

/// Makes numbers of booleans that are summed. The type of a column is not known here, so that it stays.
fn count_true(name: &str, arguments: &mut [Expr]) {
    if let ("sum", [argument]) = (name, arguments)
        && is_condition(argument)
    {
        *argument = cast(argument.clone(), DataType::Int64);
    }
}

fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => op.is_logic_operator() || op.supports_propagation(),
        Expr::Literal(value, _) => value.data_type() == DataType::Boolean,
        Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::Like(_)
        | Expr::Between(_)
        | Expr::InList(_) => true,
        _ => false,
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// Returns true for whole and decimal numbers, and NULL.
fn is_exact(kind: &DataType) -> bool {
    kind.is_integer() || kind.is_decimal() || kind.is_null()
}

fn is_date(kind: &DataType) -> bool {
    matches!(kind, DataType::Date32)
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_))
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(0)), _))
}

/// Returns a divisor with NULL in place of zero.
fn not_zero(divisor: Expr) -> Expr {
    match &divisor {
        Expr::Literal(..) if !is_zero(&divisor) => divisor,
        _ => nullif(divisor, lit(0_i64)),
    }
}

/// Moves a date by a number of days. SQL has no casts between dates and numbers, so `arrow_cast` converts them.
fn days(date: Expr, op: Operator, number: Expr) -> Expr {
    let since = cast(arrow_cast(date, lit("Int32")), DataType::Int64);
    arrow_cast(cast(binary(since, op, cast(number, DataType::Int64)), DataType::Int32), lit("Date32"))
}
