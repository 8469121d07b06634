//! Computes keys of sorts, windows and aggregates below them, where DataFusion would refuse its own plan.
//!
//! To check that a sort satisfies an order, DataFusion 55 asks each part of a key for its range. Most functions do not
//! know theirs, and comparing or adding it is an error, after which the key counts as unordered: `ORDER BY length(name) <
//! 9` failed as not sorted. Such keys become columns, which are also computed once instead of by each node.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::expr::{AggregateFunction, BinaryExpr, WindowFunction};
use datafusion::logical_expr::{Aggregate, Cast, Expr, LogicalPlan, Operator, Projection, Sort, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule, which runs after DataFusion's.
#[derive(Debug)]
pub(crate) struct ComputedKeys;

impl OptimizerRule for ComputedKeys {
    fn name(&self) -> &str {
        "computed_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(sort) => of_sort(sort),
            LogicalPlan::Window(window) => of_window(window),
            LogicalPlan::Aggregate(aggregate) => of_aggregate(aggregate),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn of_sort(Sort { mut expr, input, fetch }: Sort) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::of(input.schema());
    expr.iter_mut().for_each(|sort| keys.take(&mut sort.expr));
    if keys.taken.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(Sort { expr, input, fetch })));
    }
    let columns = columns(input.schema());
    let sort = Sort { expr, input: keys.below(input)?, fetch };
    let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Sort(sort)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

fn of_window(Window { input, mut window_expr, schema }: Window) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::of(input.schema());
    for WindowFunction { params, .. } in window_expr.iter_mut().filter_map(function) {
        params.partition_by.iter_mut().for_each(|key| keys.take(key));
        params.order_by.iter_mut().for_each(|sort| keys.take(&mut sort.expr));
    }
    let computed = keys.taken.len();
    if computed == 0 {
        return Ok(Transformed::no(LogicalPlan::Window(Window { input, window_expr, schema })));
    }
    let width = input.schema().fields().len();
    let window = Window::try_new(window_expr, keys.below(input)?)?;
    let mut all = columns(&window.schema);
    all.drain(width..width + computed);
    named(all, &schema, LogicalPlan::Window(window))
}

fn of_aggregate(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut keys = Keys::of(aggregate.input.schema());
    let mut aggr_expr = aggregate.aggr_expr.clone();
    for AggregateFunction { params, .. } in aggr_expr.iter_mut().filter_map(aggregate_function) {
        // The keys of distinct values are the values.
        if !params.distinct {
            params.order_by.iter_mut().for_each(|sort| keys.take(&mut sort.expr));
        }
    }
    if keys.taken.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let Aggregate { input, group_expr, schema, .. } = aggregate;
    let aggregate = Aggregate::try_new(keys.below(input)?, group_expr, aggr_expr)?;
    named(columns(&aggregate.schema), &schema, LogicalPlan::Aggregate(aggregate))
}

/// Returns a projection of columns with the names that they had: functions have keys in theirs.
fn named(all: Vec<Expr>, before: &DFSchema, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let named = all.into_iter().zip(before.iter()).map(|(column, (qualifier, field))| match &column {
        Expr::Column(same) if same.relation.as_ref() == qualifier && same.name == *field.name() => column,
        _ => column.alias_qualified(qualifier.cloned(), field.name()),
    });
    let projection = Projection::try_new(named.collect(), Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// Returns the function of an aggregate's expression.
fn aggregate_function(expr: &mut Expr) -> Option<&mut AggregateFunction> {
    match expr {
        Expr::AggregateFunction(function) => Some(function),
        Expr::Alias(alias) => aggregate_function(&mut alias.expr),
        _ => None,
    }
}

/// Returns the function of a window's expression.
fn function(expr: &mut Expr) -> Option<&mut WindowFunction> {
    match expr {
        Expr::WindowFunction(window) => Some(window),
        Expr::Alias(alias) => function(&mut alias.expr),
        _ => None,
    }
}

/// Returns the columns of a plan.
fn columns(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// Keys that become columns.
struct Keys {
    /// The columns of the plan below.
    schema: DFSchemaRef,
    /// Each key and its column.
    taken: Vec<(Expr, Column)>,
}

impl Keys {
    fn of(schema: &DFSchemaRef) -> Self {
        Self { schema: Arc::clone(schema), taken: Vec::new() }
    }

    /// Replaces a key by a column, if DataFusion may not know its range.
    fn take(&mut self, key: &mut Expr) {
        if !may_be_unknown(key) {
            return;
        }
        let known = self.taken.iter().find(|(taken, _)| taken == key).map(|(_, column)| column.clone());
        let column = known.unwrap_or_else(|| {
            let is_free = |name: &String| {
                !self.schema.fields().iter().any(|field| field.name() == name)
                    && self.taken.iter().all(|(_, column)| column.name != *name)
            };
            // Some number is free, since there are finitely many columns.
            let name = (0..).map(|number| format!("__key_{number}")).find(is_free);
            let column = Column::from_name(name.unwrap_or_default());
            self.taken.push((key.clone(), column.clone()));
            column
        });
        *key = Expr::Column(column);
    }

    /// Adds the columns to the plan below.
    fn below(self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let computed = self.taken.into_iter().map(|(key, column)| key.alias(column.name));
        let all = columns(input.schema()).into_iter().chain(computed).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(all, input)?)))
    }
}

/// Returns true for a key with a comparison or arithmetic of anything but columns and literals.
fn may_be_unknown(key: &Expr) -> bool {
    let part = |part: &Expr| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                asks_ranges(op) && !(is_plain(left) && is_plain(right))
            }
            Expr::Between(between) => !is_plain(&between.expr),
            _ => false,
        })
    };
    // The closure returns no error.
    key.exists(part).unwrap_or(false)
}

fn asks_ranges(op: &Operator) -> bool {
    use Operator::{Divide, Gt, GtEq, Lt, LtEq, Minus, Multiply, Plus};
    matches!(op, Lt | LtEq | Gt | GtEq | Plus | Minus | Multiply | Divide)
}

/// Returns true for an expression that has a range of its type.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        // DataFusion knows what its common expressions are, and asks them.
        Expr::Column(column) => !column.name.starts_with("__common_expr_"),
        Expr::Literal(..) => true,
        Expr::Cast(Cast { expr, .. }) => is_plain(expr),
        _ => false,
    }
}
