//! Plans of marked joins: POSITIONAL JOIN, EXCEPT ALL and INTERSECT ALL here, others in their own modules.

use std::sync::Arc;

use datafusion::common::{
    Column, DataFusionError, JoinType, NullEquality, NullHandling, Result, TableReference, UnnestOptions,
};
use datafusion::functions::expr_fn::get_field;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, JoinOperator, TableAlias, TableFactor, TableWithJoins,
};

use super::fold::{Kind, ONE, has_fields, kind};
use super::template::{column, numbered};
use super::{asof, sample};
use crate::functions::JSON_COLUMNS;

/// Plans a relation with one marked join.
pub(super) fn plan(tables: TableWithJoins, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let TableWithJoins { relation, joins } = tables;
    let missing = || DataFusionError::Plan("cannot plan a join without its kind".to_string());
    let join = joins.into_iter().next().ok_or_else(missing)?;
    let kind = kind(&join).ok_or_else(missing)?;
    let left = context.plan(relation)?;
    if let Kind::Sample(call) = &kind {
        return sample::plan_kind(left, &sample::of_marker(call)?);
    }
    if let (Kind::Unnest { left: outer }, TableFactor::UNNEST { array_exprs, alias, .. }) =
        (&kind, &join.relation)
    {
        return unnest(left, array_exprs, alias.as_ref(), *outer, context);
    }
    let right = context.plan(join.relation)?;
    match (kind, join.join_operator) {
        (Kind::Asof { left: outer }, JoinOperator::AsOf { constraint, .. }) => {
            asof::plan(left, right, constraint, outer, context)
        }
        (Kind::Positional, _) => positional(left, right),
        (Kind::ExceptAll, _) => bag(left, right, JoinType::LeftAnti),
        (Kind::IntersectAll, _) => bag(left, right, JoinType::LeftSemi),
        _ => Err(missing()),
    }
}

/// Joins each row with the elements of its lists.
fn unnest(
    left: LogicalPlan,
    lists: &[SqlExpr],
    alias: Option<&TableAlias>,
    outer: bool,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let schema = Arc::clone(left.schema());
    let mut columns: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
    let mut output = columns.clone();
    output.retain(|one| !matches!(one, Expr::Column(column) if column.name == ONE));
    let mut unnested = Vec::new();
    let table = alias.map(|alias| TableReference::bare(context.normalize_ident(alias.name.clone())));
    for (n, list) in lists.iter().enumerate() {
        let inner = format!("__element{n}");
        columns.push(context.sql_to_expr(list.clone(), &schema)?.alias(&inner));
        let element = Expr::Column(column(&inner));
        if has_fields(list) {
            let names = alias.iter().flat_map(|alias| &alias.columns);
            for (field, given) in JSON_COLUMNS.iter().zip(names) {
                let name = context.normalize_ident(given.name.clone());
                output.push(get_field(element.clone(), *field).alias_qualified(table.clone(), name));
            }
        } else {
            let given = alias.and_then(|alias| alias.columns.get(n)).map(|one| one.name.clone());
            let name = given.map_or_else(|| "unnest".to_string(), |name| context.normalize_ident(name));
            output.push(element.alias_qualified(table.clone(), name));
        }
        unnested.push(column(&inner));
    }
    let nulls = if outer { NullHandling::PreserveAndExpandEmpty } else { NullHandling::Drop };
    LogicalPlanBuilder::from(left)
        .project(columns)?
        .unnest_columns_with_options(unnested, UnnestOptions::new().with_null_handling(nulls))?
        .project(output)?
        .build()
}

/// Joins the first rows of both sides, the second rows and so on. NULLs fill the shorter side.
fn positional(left: LogicalPlan, right: LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> =
        left.schema().columns().into_iter().chain(right.schema().columns()).map(Expr::Column).collect();
    let numbered = |plan, name: &str| numbered(plan, Vec::new(), name);
    let keys = (vec![column("__left_row")], vec![column("__right_row")]);
    let row = datafusion::functions::core::expr_fn::coalesce(vec![
        Expr::Column(column("__left_row")),
        Expr::Column(column("__right_row")),
    ]);
    LogicalPlanBuilder::from(numbered(left, "__left_row")?)
        .join(numbered(right, "__right_row")?, JoinType::Full, keys, None)?
        .sort([row.sort(true, false)])?
        .project(columns)?
        .build()
}

/// Keeps as many equal rows as the sides have: the n-th one of the left side if the right one has (no) n-th one.
fn bag(left: LogicalPlan, right: LogicalPlan, kind: JoinType) -> Result<LogicalPlan> {
    let (schema, other) = (Arc::clone(left.schema()), Arc::clone(right.schema()));
    let (width, other_width) = (schema.fields().len(), other.fields().len());
    if width != other_width {
        return Err(DataFusionError::Plan(format!(
            "cannot combine queries with {width} and {other_width} columns; select as many columns in both"
        )));
    }
    let types = schema.fields().iter().zip(other.fields()).map(|(a, b)| {
        type_union_resolution(&[a.data_type().clone(), b.data_type().clone()])
            .unwrap_or_else(|| a.data_type().clone())
    });
    let types: Vec<_> = types.collect();
    let side = |plan: LogicalPlan, table: &str| -> Result<LogicalPlan> {
        let columns = plan.schema().columns().into_iter().zip(&types).enumerate();
        let columns =
            columns.map(|(n, (one, kind))| cast(Expr::Column(one), kind.clone()).alias(format!("c{n}")));
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
        let keys = plan.schema().columns().into_iter().map(Expr::Column).collect();
        LogicalPlanBuilder::from(numbered(plan, keys, "__row")?).alias(table)?.build()
    };
    let (left, right) = (side(left, "__left")?, side(right, "__right")?);
    let keys = (left.schema().columns(), right.schema().columns());
    let joined = LogicalPlanBuilder::from(left).join_detailed(
        right,
        kind,
        keys,
        None,
        NullEquality::NullEqualsNull,
    )?;
    let names = schema.fields().iter().enumerate();
    let columns = names
        .map(|(n, field)| Expr::Column(Column::new(Some("__left"), format!("c{n}"))).alias(field.name()));
    joined.project(columns.collect::<Vec<_>>())?.build()
}
