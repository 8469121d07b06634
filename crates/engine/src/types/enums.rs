//! Order of ENUM values, which are stored as text: by their position in the type. And of intervals: by their length.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Sort, SortExpr, case, lit,
};

use crate::types::cast::stored::members;
use crate::types::names::TEXT_KIND;
use crate::types::operators::length;

/// Replaces ENUM values and intervals in ORDER BY of a query by numbers in their order.
pub(super) fn sorted(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Sort(Sort { mut expr, input, fetch }) = plan else { return Ok(Transformed::no(plan)) };
    let changed = by_position(&mut expr, input.schema())?;
    Ok(Transformed::new_transformed(LogicalPlan::Sort(Sort { expr, input, fetch }), changed))
}

/// Replaces ENUM values and intervals in ORDER BY of an aggregate or a window, and in `min` and `max`, by numbers in their
/// order, and ENUM values in comparisons.
pub(super) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let changed = by_position(&mut params.order_by, schema)?;
            let place = match &params.args[..] {
                [value] if matches!(func.name(), "min" | "max") => place(value, schema)?,
                _ => None,
            };
            match place {
                // The first one in this order.
                Some(place) => {
                    params.order_by = vec![place.sort(func.name() == "min", false)];
                    let func = first_value_udaf();
                    Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
                }
                None => {
                    let expr = Expr::AggregateFunction(AggregateFunction { func, params });
                    Transformed::new_transformed(expr, changed)
                }
            }
        }
        Expr::WindowFunction(mut window) => {
            let changed = by_position(&mut window.params.order_by, schema)?;
            Transformed::new_transformed(Expr::WindowFunction(window), changed)
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq),
            right,
        }) => match (values(&left, schema)?, values(&right, schema)?) {
            // With text, it compares as text.
            (Some(values), Some(other)) if values == other => {
                let (left, right) = (position(*left, &values)?, position(*right, &values)?);
                Transformed::yes(Expr::BinaryExpr(BinaryExpr {
                    left: Box::new(left),
                    op,
                    right: Box::new(right),
                }))
            }
            _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        },
        expr => Transformed::no(expr),
    })
}

/// Returns true if anything changed.
fn by_position(order: &mut [SortExpr], schema: &DFSchema) -> Result<bool> {
    let mut changed = false;
    for one in order {
        if let Some(place) = place(&one.expr, schema)? {
            one.expr = place;
            changed = true;
        }
    }
    Ok(changed)
}

/// Returns the number that orders a value; `None` if the value does so itself.
fn place(expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    if let Some(values) = values(expr, schema)? {
        return position(expr.clone(), &values).map(Some);
    }
    let is_interval = matches!(expr.get_type(schema), Ok(DataType::Interval(_)));
    Ok(is_interval.then(|| length(expr.clone())))
}

/// Returns the values of an expression's type if it is an ENUM.
fn values(expr: &Expr, schema: &DFSchema) -> Result<Option<Vec<String>>> {
    // Only a column or a cast keeps the type.
    if !matches!(expr, Expr::Column(_) | Expr::Cast(_) | Expr::TryCast(_) | Expr::Alias(_)) {
        return Ok(None);
    }
    let Ok((_, field)) = expr.to_field(schema) else { return Ok(None) };
    let kind = field.metadata().get(TEXT_KIND).filter(|kind| kind.starts_with("ENUM("));
    Ok(kind.map(|kind| members(kind)))
}

/// Returns the position of a value; NULL for others.
fn position(expr: Expr, values: &[String]) -> Result<Expr> {
    let mut places = (0_i64..).zip(values);
    let Some((first, value)) = places.next() else { return Ok(expr) };
    let mut found = case(expr).when(lit(value.as_str()), lit(first));
    for (place, value) in places {
        found = found.when(lit(value.as_str()), lit(place));
    }
    found.end()
}
