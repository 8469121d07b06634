//! Analyzer rules before and after DataFusion's coercion of types.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::AnalyzerRule;

use crate::types::names::name;
use crate::types::{arithmetic, cast, zone};

type Rule = Arc<dyn AnalyzerRule + Send + Sync>;

/// Returns DataFusion's analyzer rules, with ours around the coercion of types.
pub(crate) fn analyzer_rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for rule in Analyzer::new().rules {
        match rule.name() {
            "type_coercion" => {
                rules.extend([Arc::new(BeforeCoercion) as Rule, rule, Arc::new(AfterCoercion) as Rule])
            }
            _ => rules.push(rule),
        }
    }
    rules
}

/// Gives dates plus intervals the type TIMESTAMP, refuses casts that DuckDB does not have, and converts columns with
/// a time zone to that of the session.
#[derive(Debug)]
struct BeforeCoercion;

impl AnalyzerRule for BeforeCoercion {
    fn name(&self) -> &str {
        "types_before_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let session = zone::of_session(config);
        rewrite(plan, &|expr, schema| before(expr, schema), &|plan| zone::in_session(plan, &session))
    }
}

/// Replaces operators that could wrap around, and casts that differ from DuckDB's.
#[derive(Debug)]
struct AfterCoercion;

impl AnalyzerRule for AfterCoercion {
    fn name(&self) -> &str {
        "types_after_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite(plan, &|expr, schema| after(expr, schema), &|plan| Ok(Transformed::no(plan)))
    }
}

/// Rewrites all expressions of a plan from the leaves up, which keep their names, and then each plan.
fn rewrite(
    plan: LogicalPlan,
    expression: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
    node: &dyn Fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema
                .merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| expression(expr, &schema))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?
        .transform_data(node)?
        .map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(rewritten.data)
}

/// The type of a date plus an interval.
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

fn before(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let kind = |expr: &Expr| expr.get_type(schema).unwrap_or(DataType::Null);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
            let timestamp = |date: Box<Expr>| Box::new(Expr::Cast(Cast::new(date, TIMESTAMP)));
            let (left, right, changed) = match (kind(&left), kind(&right)) {
                (DataType::Date32, DataType::Interval(_)) => (timestamp(left), right, true),
                (DataType::Interval(_), DataType::Date32) if op == Operator::Plus => {
                    (left, timestamp(right), true)
                }
                _ => (left, right, false),
            };
            let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new_transformed(expr, changed))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            let (left, right) = match (kind(&left), kind(&right)) {
                (DataType::Date32, TIMESTAMP) => (left, Box::new(as_date(*right, schema))),
                (TIMESTAMP, DataType::Date32) => (Box::new(as_date(*left, schema)), right),
                _ => (left, right),
            };
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Between(Between { expr, negated, low, high }) if kind(&expr) == DataType::Date32 => {
            let (low, high) = (Box::new(as_date(*low, schema)), Box::new(as_date(*high, schema)));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::Cast(Cast { expr: ref from, ref field })
        | Expr::TryCast(TryCast { expr: ref from, ref field }) => {
            let (from, to) = (kind(from), field.data_type());
            if cast::exists(&from, to) {
                return Ok(Transformed::no(expr));
            }
            Err(DataFusionError::Plan(format!(
                "cannot cast {} to {}: there is no such cast; {}",
                name(&from),
                name(to),
                cast::way_out(&from, to)
            )))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// Removes the cast to TIMESTAMP from a date plus or minus whole days or months, whose result is midnight. Compared
/// with a date, it then stays a date, and the date's column needs no cast and can be pruned by.
fn as_date(expr: Expr, schema: &DFSchema) -> Expr {
    let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) = &expr
    else {
        return expr;
    };
    let date = |side: &Expr| match side {
        Expr::Cast(Cast { expr, .. }) => {
            matches!(expr.get_type(schema), Ok(DataType::Date32)).then(|| expr.as_ref().clone())
        }
        Expr::BinaryExpr(_) => {
            let inner = as_date(side.clone(), schema);
            matches!(inner.get_type(schema), Ok(DataType::Date32)).then_some(inner)
        }
        _ => None,
    };
    let (left, right) = if is_whole(right) {
        (date(left), Some(right.as_ref().clone()))
    } else if is_whole(left) && *op == Operator::Plus {
        (Some(left.as_ref().clone()), date(right))
    } else {
        (None, None)
    };
    match (left, right) {
        (Some(left), Some(right)) => {
            Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op: *op, right: Box::new(right) })
        }
        _ => expr,
    }
}

/// Returns true for an interval of whole days and months.
fn is_whole(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) if interval.nanoseconds == 0
    )
}

fn after(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply),
            right,
        }) => match arithmetic::checked(op, &left.get_type(schema)?, &right.get_type(schema)?) {
            Some(operator) => Ok(Transformed::yes(operator.call(vec![*left, *right]))),
            None => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
        },
        Expr::Negative(operand) => match arithmetic::negation(&operand.get_type(schema)?) {
            Some(operator) => Ok(Transformed::yes(operator.call(vec![*operand]))),
            None => Ok(Transformed::no(Expr::Negative(operand))),
        },
        Expr::Cast(Cast { expr, field }) => match cast::function(&expr, &field, false, schema)? {
            Some(function) => Ok(Transformed::yes(function.call(vec![*expr]))),
            None => Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
        },
        Expr::TryCast(TryCast { expr, field }) => match cast::function(&expr, &field, true, schema)? {
            Some(function) => Ok(Transformed::yes(function.call(vec![*expr]))),
            None => Ok(Transformed::no(Expr::TryCast(TryCast { expr, field }))),
        },
        expr => Ok(Transformed::no(expr)),
    }
}
