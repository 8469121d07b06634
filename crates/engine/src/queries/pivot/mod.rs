//! PIVOT: a column for each value of an expression, and a row for each group.
//!
//! `PIVOT t ON year USING sum(x) GROUP BY city` aggregates `sum(x) FILTER (WHERE year = '2024')` and so on by city. Values
//! compare as text, as in DuckDB. Without GROUP BY, all columns that are not mentioned are groups.

pub(crate) mod unpivot;
pub(crate) mod values;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr as SqlExpr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Query, Spanned, TableFactor, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use self::values::{MAX_VALUES, Values};
use crate::queries::error;

/// An expression of ON, with its values.
struct On {
    /// The parts of the expression, as text; several for `(a, b) IN (…)`.
    texts: Vec<Expr>,
    /// Each value's parts, and its name.
    values: Vec<(Vec<Option<String>>, String)>,
}

/// Plans a PIVOT. Its columns and groups are markers among the aggregates (`crate::sql::rewrites`).
pub(super) fn plan(
    values: &Values,
    table: TableFactor,
    items: Vec<ExprWithAlias>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let input = context.plan(table)?;
    let schema = input.schema().as_ref().clone();
    let (mut on, mut groups, mut aggregates, mut used) = (Vec::new(), None, Vec::new(), HashSet::new());
    for ExprWithAlias { expr, alias } in items {
        match marker(&expr) {
            Some(("__pivot_on", arguments)) => {
                for argument in arguments {
                    on.push(column(values, &input, argument, &mut used, context)?);
                }
            }
            Some(("__pivot_group", arguments)) => {
                let planned = arguments.into_iter().map(|one| context.sql_to_expr(one, &schema));
                groups = Some(planned.collect::<Result<Vec<_>>>()?);
            }
            _ => {
                let (label, span) = (expr.to_string(), expr.span());
                let planned = context.sql_to_expr(expr, &schema)?;
                used.extend(planned.column_refs().into_iter().cloned());
                let is_aggregate = planned.exists(|e| Ok(matches!(e, Expr::AggregateFunction(_))))?;
                if !is_aggregate {
                    return Err(error(
                        span,
                        format!(
                            "cannot use {label} in PIVOT: it is not an aggregate; use sum(…), count(*), first(…)"
                        ),
                    ));
                }
                aggregates.push((planned, alias.map(|alias| alias.value), label));
            }
        }
    }
    let groups = match groups {
        Some(groups) => groups,
        None if on.is_empty() => Vec::new(),
        None => schema.columns().into_iter().filter(|one| !used.contains(one)).map(Expr::Column).collect(),
    };
    let mut columns: Vec<(Option<Expr>, String)> = vec![(None, String::new())];
    for one in &on {
        columns = crossed(&columns, one)?;
    }
    let mut taken: HashSet<String> = groups.iter().map(name).collect();
    let mut output: Vec<Expr> = groups.iter().map(|group| group.clone().alias(name(group))).collect();
    let mut filtered = Vec::new();
    for (condition, value) in &columns {
        for (aggregate, alias, label) in &aggregates {
            let part = alias.as_deref().or((aggregates.len() > 1 || value.is_empty()).then_some(label));
            let parts: Vec<&str> = [Some(value.as_str()).filter(|v| !v.is_empty() || !on.is_empty()), part]
                .into_iter()
                .flatten()
                .collect();
            let name = free(parts.join("_"), &mut taken);
            filtered.push(with_filter(aggregate.clone(), condition.as_ref())?.alias(&name));
            output.push(Expr::Column(Column::new_unqualified(name)));
        }
    }
    let aggregated = LogicalPlanBuilder::from(input).aggregate(groups.clone(), filtered)?;
    // Names of groups lose their table, which is not visible outside.
    let schema = aggregated.schema().as_ref().clone();
    let groups = schema.columns().into_iter().take(groups.len()).map(|one| {
        let name = one.name.clone();
        Expr::Column(one).alias(name)
    });
    let rest = output.split_off(groups.len());
    aggregated.project(groups.chain(rest).collect::<Vec<_>>())?.build()
}

/// Plans one expression of ON, and finds its values.
fn column(
    values: &Values,
    input: &LogicalPlan,
    argument: SqlExpr,
    used: &mut HashSet<Column>,
    context: &mut dyn RelationPlannerContext,
) -> Result<On> {
    let (expr, list) = match argument {
        SqlExpr::InList { expr, list, negated: false } => (*expr, Some(list)),
        other => (other, None),
    };
    let span = expr.span();
    let parts = match expr {
        SqlExpr::Tuple(parts) => parts,
        SqlExpr::Nested(part) => vec![*part],
        part => vec![part],
    };
    let mut texts = Vec::new();
    for part in parts {
        let planned = context.sql_to_expr(text(part), input.schema())?;
        used.extend(planned.column_refs().into_iter().cloned());
        texts.push(planned);
    }
    let values = match list {
        Some(list) => list
            .into_iter()
            .map(|value| constants(value, texts.len(), context))
            .collect::<Result<Vec<_>>>()?,
        None => {
            let [text] = &texts[..] else {
                let message = "cannot PIVOT ON several columns in parentheses without values; add IN (…), or list the columns without parentheses";
                return Err(error(span, message.to_string()));
            };
            let query = LogicalPlanBuilder::from(input.clone())
                .project([text.clone().alias("value")])?
                .filter(Expr::Column(Column::new_unqualified("value")).is_not_null())?
                .distinct()?
                .limit(0, Some(MAX_VALUES + 1))?
                .build()?;
            values.get(query)?.into_iter().map(|value| (vec![Some(value.clone())], value)).collect()
        }
    };
    Ok(On { texts, values })
}

/// Returns the parts of a value of IN, as text, and its name.
fn constants(
    value: SqlExpr,
    parts: usize,
    context: &mut dyn RelationPlannerContext,
) -> Result<(Vec<Option<String>>, String)> {
    let span = value.span();
    let (value, alias) = match marker(&value) {
        Some(("__pivot_named", arguments)) => match <[SqlExpr; 2]>::try_from(arguments) {
            Ok([value, SqlExpr::Identifier(alias)]) => (value, Some(alias.value)),
            Ok([value, _]) => (value, None),
            Err(_) => (value, None),
        },
        _ => (value, None),
    };
    let values = match value {
        SqlExpr::Tuple(values) => values,
        SqlExpr::Nested(value) => vec![*value],
        value => vec![value],
    };
    if values.len() != parts {
        return Err(error(
            span,
            format!("cannot use this value in PIVOT: it has {} parts, and ON has {parts}", values.len()),
        ));
    }
    let constants = values.into_iter().map(|value| constant(value, context)).collect::<Result<Vec<_>>>()?;
    let names: Vec<&str> = constants.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
    let name = alias.unwrap_or_else(|| names.join("_"));
    Ok((constants, name))
}

/// Returns a constant as text.
fn constant(value: SqlExpr, context: &mut dyn RelationPlannerContext) -> Result<Option<String>> {
    let (span, shown) = (value.span(), value.to_string());
    let schema = DFSchema::empty();
    let planned = context.sql_to_expr(text(value), &schema)?;
    let simplifier = ExprSimplifier::new(SimplifyContext::default());
    match simplifier.coerce(planned, &schema).and_then(|planned| simplifier.simplify(planned))? {
        Expr::Literal(value, _) => {
            Ok(match value.cast_to(&datafusion::arrow::datatypes::DataType::Utf8)? {
                ScalarValue::Utf8(text) => text,
                _ => None,
            })
        }
        _ => Err(error(span, format!("cannot use {shown} in the IN of PIVOT: it is not a constant"))),
    }
}

/// Returns a CAST to text.
fn text(expr: SqlExpr) -> SqlExpr {
    let data_type = SqlType::Varchar(None);
    SqlExpr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Adds the values of another expression to every column.
fn crossed(columns: &[(Option<Expr>, String)], on: &On) -> Result<Vec<(Option<Expr>, String)>> {
    let mut crossed = Vec::new();
    for (condition, name) in columns {
        for (value, value_name) in &on.values {
            let parts = on.texts.iter().zip(value).map(|(text, value)| match value {
                Some(value) => text.clone().eq(lit(value.as_str())),
                None => text.clone().is_null(),
            });
            let all = condition.iter().cloned().chain(parts).reduce(Expr::and);
            let name = if condition.is_none() { value_name.clone() } else { format!("{name}_{value_name}") };
            crossed.push((all, name));
        }
    }
    if crossed.len() > MAX_VALUES {
        return Err(error(
            Span::empty(),
            format!("cannot make more than {MAX_VALUES} columns with PIVOT; list fewer values with IN (…)"),
        ));
    }
    Ok(crossed)
}

/// Adds a condition to the FILTER of the aggregates in an expression.
fn with_filter(aggregate: Expr, condition: Option<&Expr>) -> Result<Expr> {
    let Some(condition) = condition else { return Ok(aggregate) };
    let filtered = aggregate.transform(|expr| match expr {
        Expr::AggregateFunction(mut function) => {
            let filter = function.params.filter.take();
            let both = filter.map_or_else(|| condition.clone(), |filter| filter.and(condition.clone()));
            function.params.filter = Some(Box::new(both));
            Ok(Transformed::yes(Expr::AggregateFunction(function)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(filtered.data)
}

fn name(expr: &Expr) -> String {
    match expr {
        Expr::Column(column) => column.name.clone(),
        other => other.schema_name().to_string(),
    }
}

/// Returns a name with a number if it is taken.
fn free(name: String, taken: &mut HashSet<String>) -> String {
    let free = match taken.contains(&name) {
        true => (1..).map(|n| format!("{name}_{n}")).find(|one| !taken.contains(one)).unwrap_or(name),
        false => name,
    };
    taken.insert(free.clone());
    free
}

/// Returns the first expression of PIVOT in a query whose values are found in the data.
pub(crate) fn without_values(query: &Query) -> Option<SqlExpr> {
    struct Find;
    impl Visitor for Find {
        type Break = SqlExpr;

        fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<SqlExpr> {
            let TableFactor::Pivot { aggregate_functions, .. } = table else {
                return ControlFlow::Continue(());
            };
            for item in aggregate_functions {
                if let Some(("__pivot_on", arguments)) = marker(&item.expr)
                    && let Some(open) =
                        arguments.into_iter().find(|one| !matches!(one, SqlExpr::InList { .. }))
                {
                    return ControlFlow::Break(open);
                }
            }
            ControlFlow::Continue(())
        }
    }
    query.visit(&mut Find).break_value()
}

/// Returns the name and the arguments of a marker.
fn marker(expr: &SqlExpr) -> Option<(&'static str, Vec<SqlExpr>)> {
    let SqlExpr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expr else {
        return None;
    };
    let name = name.to_string();
    let name = ["__pivot_on", "__pivot_group", "__pivot_named"].into_iter().find(|marker| *marker == name)?;
    let arguments = list.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    Some((name, arguments.collect()))
}
