//! Operators that depend on the types of their operands, as DuckDB has them.
//!
//! | operator | here | in DataFusion |
//! |---|---|---|
//! | `/` of whole or decimal numbers | DOUBLE; by zero: infinity | a number of the same type; by zero: an error |
//! | `%` of whole or decimal numbers by zero | NULL | an error |
//! | date ± whole number | a date | an error |
//! | `text[2:3]` | characters | an error |
//! | `map[1]`, `map['a']` | a key of the map's type | an error for a key of another type |
//! | `column.Field`, `column['Field']` of a struct | in any case | exactly |
//! | `column.key`, `column['key']`, `column[0]` of JSON | the value | an error |

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, TableReference};
use datafusion::functions::core::expr_fn::arrow_cast;
use datafusion::functions::expr_fn::{get_field, nullif};
use datafusion::functions_nested::expr_fn::{array_element, map_extract};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, GetFieldAccess, Operator, ScalarUDF, cast, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::types::arithmetic::type_of;
use crate::types::names::JSON;

/// The rules.
#[derive(Debug)]
pub(crate) struct Operators {
    /// The function that returns characters of a text.
    pub slice: Arc<ScalarUDF>,
    /// The function that returns a value within JSON.
    pub extract: Arc<ScalarUDF>,
}

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        let types = (type_of(&left, schema)?, type_of(&right, schema)?);
        let numbers = is_exact(&types.0) && is_exact(&types.1);
        let made = match op {
            BinaryOperator::Divide if numbers => {
                binary(cast(left, DataType::Float64), Operator::Divide, cast(right, DataType::Float64))
            }
            BinaryOperator::Modulo if numbers && !matches!(right, Expr::Literal(..)) => {
                binary(left, Operator::Modulo, nullif(right, lit(0_i64)))
            }
            // A DOUBLE modulo zero is NaN, but a number with a point is a decimal in DuckDB.
            BinaryOperator::Modulo
                if is_zero(&right) && (is_exact(&types.0) || matches!(left, Expr::Literal(..))) =>
            {
                let kind = if is_exact(&types.0) && !is_exact(&types.1) { &types.1 } else { &types.0 };
                Expr::Literal(ScalarValue::try_from(kind)?, None)
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
            GetFieldAccess::ListIndex { key } if kind == JSON => {
                Ok(PlannerResult::Planned(self.extract.call(vec![expr, *key])))
            }
            GetFieldAccess::NamedStructField { name } if kind == JSON => {
                Ok(PlannerResult::Planned(self.extract.call(vec![expr, lit(name)])))
            }
            GetFieldAccess::ListIndex { key } if text => {
                Ok(PlannerResult::Planned(self.slice.call(vec![expr, (*key).clone(), *key])))
            }
            GetFieldAccess::ListRange { start, stop, stride } if text && *stride == lit(1_i64) => {
                Ok(PlannerResult::Planned(self.slice.call(vec![expr, *start, *stop])))
            }
            GetFieldAccess::NamedStructField { name } if let Some(kind) = key_type(&kind) => {
                let name = name.cast_to(kind).unwrap_or(name);
                let field_access = GetFieldAccess::NamedStructField { name };
                Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }))
            }
            GetFieldAccess::NamedStructField { name } => {
                let exact = name.try_as_str().flatten().and_then(|name| field_of(&kind, name));
                let name = exact.map_or(name, |field| ScalarValue::from(field.name().as_str()));
                let field_access = GetFieldAccess::NamedStructField { name };
                Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }))
            }
            GetFieldAccess::ListIndex { key } if let Some(kind) = key_type(&kind) => {
                let key = match *key {
                    Expr::Literal(value, metadata) => {
                        Expr::Literal(value.cast_to(kind).unwrap_or(value), metadata)
                    }
                    key => {
                        return Ok(PlannerResult::Planned(array_element(map_extract(expr, key), lit(1_i64))));
                    }
                };
                let field_access = GetFieldAccess::ListIndex { key: Box::new(key) };
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
        if *kind == JSON {
            let extract = |expr, name: &String| self.extract.call(vec![expr, lit(name.as_str())]);
            return Ok(PlannerResult::Planned(nested_names.iter().fold(expr, extract)));
        }
        for name in nested_names {
            let Some(field) = field_of(kind, name) else { return Ok(PlannerResult::Original(Vec::new())) };
            expr = get_field(expr, field.name().as_str());
            kind = field.data_type();
        }
        Ok(PlannerResult::Planned(expr))
    }
}

/// Returns the type of a map's keys.
fn key_type(kind: &DataType) -> Option<&DataType> {
    let DataType::Map(entries, _) = kind else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    fields.first().map(|key| key.data_type())
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

fn is_zero(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => *number == 0,
        Expr::Literal(ScalarValue::Float64(Some(number)), _) => *number == 0.0,
        _ => false,
    }
}

/// Moves a date by a number of days. SQL has no casts between dates and numbers, so `arrow_cast` converts them.
fn days(date: Expr, op: Operator, number: Expr) -> Expr {
    let since = cast(arrow_cast(date, lit("Int32")), DataType::Int64);
    arrow_cast(cast(binary(since, op, cast(number, DataType::Int64)), DataType::Int32), lit("Date32"))
}
