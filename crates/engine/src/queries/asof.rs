//! ASOF JOIN: each row of the left side with the last row of the right side that is not after it.
//!
//! The rows of both sides are sorted together, within those of equal keys, and each left row takes the last right row
//! before it. So the time grows with the number of rows, not with that of pairs.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, DataFusionError, ExprSchema, Result, ScalarValue};
use datafusion::functions::core::expr_fn::named_struct;
use datafusion::functions::core::get_field;
use datafusion::functions_window::nth_value::last_value_udwf;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, WindowFrame,
    WindowFunctionDefinition, cast, lit,
};
use datafusion::sql::sqlparser::ast::JoinConstraint;

use super::template::column;

/// The condition of a join.
#[derive(Default)]
struct Condition {
    /// Equal expressions of both sides.
    keys: Vec<(Expr, Expr)>,
    /// The expressions of the inequality.
    times: Option<(Expr, Operator, Expr)>,
    /// Conditions of one side alone.
    left: Vec<Expr>,
    right: Vec<Expr>,
}

/// Plans the join of two sides. With `outer`, left rows without a match stay.
pub(super) fn plan(
    left: LogicalPlan,
    right: LogicalPlan,
    constraint: JoinConstraint,
    outer: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let both = left.schema().join(right.schema())?;
    let condition = match constraint {
        JoinConstraint::On(on) => {
            let on = context.sql_to_expr(on, &both)?;
            condition(on, left.schema(), right.schema())?
        }
        JoinConstraint::Using(names) => {
            let mut condition = Condition::default();
            let count = names.len();
            for (index, name) in names.into_iter().enumerate() {
                let Some(name) = name.0.last().and_then(|part| part.as_ident()).cloned() else { continue };
                let name = context.normalize_ident(name);
                let of = |side: &DFSchema| -> Result<Expr> {
                    let (table, field) = side.qualified_field_with_unqualified_name(&name)?;
                    Ok(Expr::Column(Column::new(table.cloned(), field.name())))
                };
                let (a, b) = (of(left.schema())?, of(right.schema())?);
                match index + 1 == count {
                    true => condition.times = Some((a, Operator::GtEq, b)),
                    false => condition.keys.push((a, b)),
                }
            }
            condition
        }
        _ => return Err(misuse()),
    };
    let Some((time, operator, other_time)) = condition.times else { return Err(misuse()) };
    // A left row follows the right rows that it matches.
    let (ascending, right_first) = match operator {
        Operator::GtEq => (true, true),
        Operator::Gt => (true, false),
        Operator::LtEq => (false, true),
        _ => (false, false),
    };
    let mut keys = condition.keys;
    keys.push((time, other_time));
    let matched = condition.left.into_iter().reduce(Expr::and);
    let mut right = LogicalPlanBuilder::from(right);
    for filter in condition.right.into_iter().chain(keys.iter().map(|(_, key)| key.clone().is_not_null())) {
        right = right.filter(filter)?;
    }
    let right = right.build()?;
    let (a, b) = (left.schema().clone(), right.schema().clone());
    let row =
        b.columns().into_iter().enumerate().flat_map(|(n, one)| [lit(format!("c{n}")), Expr::Column(one)]);
    let row = named_struct(row.collect());
    let row_type = row.get_type(&b)?;
    let null = |kind: &DataType| ScalarValue::try_from(kind).map(lit);
    let mut left_columns =
        vec![lit(if right_first { 1_i32 } else { 0 }).alias("__side"), null(&row_type)?.alias("__row")];
    let mut right_columns =
        vec![lit(if right_first { 0_i32 } else { 1 }).alias("__side"), row.alias("__row")];
    for (n, (key, other)) in keys.iter().enumerate() {
        let (kind, other_kind) = (key.get_type(&a)?, other.get_type(&b)?);
        let common = comparison_coercion(&kind, &other_kind).unwrap_or(kind);
        left_columns.push(cast(key.clone(), common.clone()).alias(format!("__k{n}")));
        right_columns.push(cast(other.clone(), common).alias(format!("__k{n}")));
    }
    left_columns.push(matched.unwrap_or_else(|| lit(true)).alias("__may_match"));
    right_columns.push(lit(true).alias("__may_match"));
    for (n, one) in a.columns().into_iter().enumerate() {
        right_columns.push(null(a.field_from_column(&one)?.data_type())?.alias(format!("__l{n}")));
        left_columns.push(Expr::Column(one).alias(format!("__l{n}")));
    }
    let last = keys.len() - 1;
    let key = |n: usize| Expr::Column(column(&format!("__k{n}")));
    let side = || Expr::Column(column("__side"));
    let window = WindowFunction::new(
        WindowFunctionDefinition::WindowUDF(last_value_udwf()),
        vec![Expr::Column(column("__row"))],
    );
    let found = Expr::from(window)
        .partition_by((0..last).map(key).collect())
        .order_by(vec![key(last).sort(ascending, true), side().sort(true, true)])
        .window_frame(WindowFrame::new(Some(true)))
        .null_treatment(NullTreatment::IgnoreNulls)
        .build()?
        .alias("__match");
    let right = LogicalPlanBuilder::from(right).project(right_columns)?.build()?;
    let mut plan = LogicalPlanBuilder::from(left)
        .project(left_columns)?
        .union(right)?
        .window([found])?
        .filter(side().eq(lit(if right_first { 1_i32 } else { 0 })))?;
    let found = Expr::Column(column("__match"));
    let may_match = Expr::Column(column("__may_match")).and(key(last).is_not_null());
    if !outer {
        plan = plan.filter(may_match.clone().and(found.clone().is_not_null()))?;
    }
    let mut output = Vec::new();
    for (n, (table, field)) in a.iter().enumerate() {
        output.push(Expr::Column(column(&format!("__l{n}"))).alias_qualified(table.cloned(), field.name()));
    }
    for (n, (table, field)) in b.iter().enumerate() {
        let value = get_field().call(vec![found.clone(), lit(format!("c{n}"))]);
        let value = match outer {
            true => datafusion::logical_expr::when(may_match.clone(), value).end()?,
            false => value,
        };
        output.push(value.alias_qualified(table.cloned(), field.name()));
    }
    plan.project(output)?.build()
}

/// Divides a condition into its parts.
fn condition(on: Expr, left: &DFSchema, right: &DFSchema) -> Result<Condition> {
    let mut condition = Condition::default();
    let within =
        |columns: &HashSet<&Column>, schema: &DFSchema| columns.iter().all(|one| schema.has_column(one));
    for part in split_conjunction_owned(on) {
        let columns = part.column_refs();
        if within(&columns, right) {
            condition.right.push(part);
            continue;
        }
        if within(&columns, left) {
            condition.left.push(part);
            continue;
        }
        let Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) = part else { return Err(misuse()) };
        let (a, op, b) = match (within(&one.column_refs(), left), within(&other.column_refs(), right)) {
            (true, true) => (*one, op, *other),
            _ if within(&one.column_refs(), right) && within(&other.column_refs(), left) => {
                (*other, op.swap().ok_or_else(misuse)?, *one)
            }
            _ => return Err(misuse()),
        };
        match op {
            Operator::Eq => condition.keys.push((a, b)),
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq if condition.times.is_none() => {
                condition.times = Some((a, op, b));
            }
            _ => return Err(misuse()),
        }
    }
    Ok(condition)
}

fn misuse() -> DataFusionError {
    DataFusionError::Plan(
        "cannot plan the ASOF JOIN: its ON needs exactly one inequality between the tables, beside equalities; write \
         ON a.key = b.key AND a.time >= b.time"
            .to_string(),
    )
}
