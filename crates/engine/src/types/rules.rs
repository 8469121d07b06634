//! Analyzer rules before and after DataFusion's coercion of types.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::functions::{regex, string, unicode};
use datafusion::logical_expr::expr::{Between, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast, cast as cast_to, lit, not,
};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::AnalyzerRule;

use crate::types::names::{JSON, name};
use crate::types::{arithmetic, cast, enums, operators, zone};

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
        let node = |plan| enums::sorted(plan)?.transform_data(|plan| zone::in_session(plan, &session));
        let expression = |expr, schema: &DFSchema| {
            enums::compared(expr, schema)?.transform_data(|expr| before(expr, schema))
        };
        rewrite(plan, &may_change_before, &expression, &node)
    }
}

/// Replaces operators that could wrap around, casts that differ from DuckDB's, and lists of IN that DataFusion would take
/// for constant.
#[derive(Debug)]
struct AfterCoercion;

impl AnalyzerRule for AfterCoercion {
    fn name(&self) -> &str {
        "types_after_coercion"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite(plan, &may_change_after, &after, &|plan| Ok(Transformed::no(plan)))
    }
}

/// Rewrites all expressions of a plan from the leaves up, which keep their names, and then each plan. Expressions without
/// a part that `may_change`, and schemas above which nothing changed, stay as they are: both take long to make anew.
fn rewrite(
    plan: LogicalPlan,
    may_change: &dyn Fn(&Expr) -> bool,
    expression: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
    node: &dyn Fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    let mut changed = false;
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        let mut wanted = false;
        plan.apply_expressions(|expr| {
            wanted = expr.exists(|part| Ok(may_change(part)))?;
            Ok(if wanted { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        let rewritten = match wanted {
            true => expressions(plan, may_change, expression)?,
            false => Transformed::no(plan),
        };
        let rewritten = rewritten.transform_data(node)?;
        changed |= rewritten.transformed;
        if changed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    })?;
    Ok(rewritten.data)
}

/// Rewrites the expressions of one plan.
fn expressions(
    plan: LogicalPlan,
    may_change: &dyn Fn(&Expr) -> bool,
    expression: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        if !expr.exists(|part| Ok(may_change(part)))? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| expression(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

/// Replaces the casts and operators of an expression without columns, before it is computed.
///
/// # Errors
/// Returns an error for a cast that does not exist.
pub(crate) fn constant(expr: Expr) -> Result<Expr> {
    let schema = DFSchema::empty();
    let expr = expr.transform_up(|expr| before(expr, &schema))?.data;
    Ok(expr.transform_up(|expr| after(expr, &schema))?.data)
}

/// The functions of text.
static OF_TEXT: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let functions = [string::functions(), unicode::functions(), regex::functions()];
    functions.iter().flatten().map(|function| function.name().to_string()).collect()
});

/// The type of a date plus an interval.
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Returns true for an expression that [`before`] or [`enums::compared`] may change.
fn may_change_before(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(op, Operator::Plus | Operator::Minus | Operator::StringConcat)
                || op.supports_propagation()
        }
        Expr::ScalarFunction(ScalarFunction { func, .. }) => OF_TEXT.contains(func.name()),
        Expr::Between(_) | Expr::Cast(_) | Expr::TryCast(_) => true,
        Expr::AggregateFunction(_) | Expr::WindowFunction(_) => true,
        _ => false,
    }
}

/// Returns true for an expression that [`after`] may change.
fn may_change_after(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
        }
        Expr::Negative(_) | Expr::Cast(_) | Expr::TryCast(_) => true,
        Expr::InList(InList { list, .. }) => list.iter().any(differs_by_row),
        _ => false,
    }
}

/// Returns true for an item of a list that may have another value in each row.
fn differs_by_row(item: &Expr) -> bool {
    let differs = |part: &Expr| {
        use Expr::{Column, LambdaVariable, OuterReferenceColumn, ScalarSubquery};
        Ok(matches!(part, Column(_) | LambdaVariable(_) | OuterReferenceColumn(..) | ScalarSubquery(_)))
    };
    item.exists(differs).unwrap_or(true)
}

/// Compares with each of the items that differ by row: DataFusion 55 evaluates a list over no rows to see whether it is
/// constant, and takes CASE, whose value is then a scalar, for one.
fn in_list(InList { expr, list, negated }: InList) -> Expr {
    let (items, list): (Vec<Expr>, Vec<Expr>) = list.into_iter().partition(differs_by_row);
    let constant = (!list.is_empty()).then(|| expr.as_ref().clone().in_list(list, false));
    let equal = items.into_iter().map(|item| expr.as_ref().clone().eq(item));
    // There are items that differ.
    let any = constant.into_iter().chain(equal).reduce(Expr::or).unwrap_or(lit(false));
    if negated { not(any) } else { any }
}

fn before(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let kind = |expr: &Expr| arithmetic::type_of(expr, schema).unwrap_or(DataType::Null);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
            let timestamp = |date: Box<Expr>| Box::new(Expr::Cast(Cast::new(date, TIMESTAMP)));
            let (left, right, changed) = match (kind(&left), kind(&right)) {
                (DataType::Date32, DataType::Interval(_)) => (timestamp(left), right, true),
                (DataType::Interval(_), DataType::Date32) if op == Operator::Plus => {
                    (left, timestamp(right), true)
                }
                // Arrow would take a local time for one of UTC.
                (zoned @ DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, None)) => {
                    (left, Box::new(cast_to(*right, zoned)), true)
                }
                (DataType::Timestamp(_, None), zoned @ DataType::Timestamp(_, Some(_))) => {
                    (Box::new(cast_to(*left, zoned)), right, true)
                }
                _ => (left, right, false),
            };
            let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new_transformed(expr, changed))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op.supports_propagation() => {
            let (left, right, changed) = match (kind(&left), kind(&right)) {
                (DataType::Date32, TIMESTAMP) => (left, Box::new(as_date(*right, schema)), true),
                (TIMESTAMP, DataType::Date32) => (Box::new(as_date(*left, schema)), right, true),
                // DataFusion would compare months, then days, then times.
                (a, b) if is_interval(&a) && is_length(&b) || is_length(&a) && is_interval(&b) => {
                    (Box::new(length(*left, &a)), Box::new(length(*right, &b)), true)
                }
                _ => (left, right, false),
            };
            let expr = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new_transformed(expr, changed))
        }
        // The result of a function of text is text, also of JSON.
        Expr::ScalarFunction(ScalarFunction { func, args }) if OF_TEXT.contains(func.name()) => {
            let is_json = |expr: &Expr| kind(expr) == JSON;
            let changed = args.iter().any(is_json);
            let text = |expr| if is_json(&expr) { cast_to(expr, DataType::Utf8View) } else { expr };
            let args = if changed { args.into_iter().map(text).collect() } else { args };
            Ok(Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), changed))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let mut changed = false;
            let mut text = |expr: Box<Expr>| match kind(&expr) {
                JSON => {
                    changed = true;
                    Box::new(cast_to(*expr, DataType::Utf8View))
                }
                _ => expr,
            };
            let (left, right) = (text(left), text(right));
            let expr = Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right });
            Ok(Transformed::new_transformed(expr, changed))
        }
        Expr::Between(Between { expr, negated, low, high }) if kind(&expr) == DataType::Date32 => {
            let (low, high) = (Box::new(as_date(*low, schema)), Box::new(as_date(*high, schema)));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::Between(Between { expr, negated, low, high })
            if is_interval(&kind(&expr)) || is_interval(&kind(&low)) =>
        {
            let of = |expr: Expr| {
                let kind = kind(&expr);
                Box::new(length(expr, &kind))
            };
            let (expr, low, high) = (of(*expr), of(*low), of(*high));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::Cast(Cast { expr: ref from, ref field })
        | Expr::TryCast(TryCast { expr: ref from, ref field }) => {
            let (from, to) = (kind(from), field.data_type());
            if cast::exists(&from, to) {
                return Ok(Transformed::no(expr));
            }
            Err(DataFusionError::Plan(format!(
                "cannot cast {} to {}: this cast does not exist; {}",
                name(&from),
                name(to),
                cast::way_out(&from, to)
            )))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_))
}

/// Returns true for a type that compares with intervals.
fn is_length(kind: &DataType) -> bool {
    kind.is_string() || matches!(kind, DataType::Interval(_) | DataType::Duration(_))
}

/// Returns the length of an interval, or of a text that is one.
fn length(expr: Expr, kind: &DataType) -> Expr {
    let text = kind.is_string().then_some(DataType::Interval(IntervalUnit::MonthDayNano));
    operators::length(match text {
        Some(interval) => cast_to(expr, interval),
        None => expr,
    })
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
        }) => Ok(match arithmetic::checked(op, *left, *right, schema)? {
            Ok(call) => Transformed::yes(call),
            Err((left, right)) => Transformed::no(Expr::BinaryExpr(BinaryExpr {
                left: Box::new(left),
                op,
                right: Box::new(right),
            })),
        }),
        Expr::Negative(operand) => Ok(match arithmetic::negation(*operand, schema)? {
            Ok(call) => Transformed::yes(call),
            Err(operand) => Transformed::no(Expr::Negative(Box::new(operand))),
        }),
        Expr::Cast(Cast { expr, field }) => match cast::function(&expr, &field, false, schema)? {
            Some(function) => Ok(Transformed::yes(function.call(vec![*expr]))),
            None => Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
        },
        Expr::TryCast(TryCast { expr, field }) => match cast::function(&expr, &field, true, schema)? {
            Some(function) => Ok(Transformed::yes(function.call(vec![*expr]))),
            None => Ok(Transformed::no(Expr::TryCast(TryCast { expr, field }))),
        },
        Expr::InList(list) if list.list.iter().any(differs_by_row) => Ok(Transformed::yes(in_list(list))),
        expr => Ok(Transformed::no(expr)),
    }
}
