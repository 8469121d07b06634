//! UNPIVOT: a row for each of several columns, with the column's name and value.
//!
//! Each input row becomes arrays of names and values, which are unnested, so the rows keep their order.

use std::collections::HashSet;

use datafusion::common::{Column, Result, UnnestOptions};
use datafusion::functions_nested::make_array::make_array;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, ExprWithAlias, Ident, NullInclusion, Spanned, TableFactor,
};

use crate::queries::columns::{Source, expand};
use crate::queries::error;
use crate::types::names::name;

/// The parts of an UNPIVOT.
pub(in crate::queries) struct Unpivot {
    /// The names of the value columns: a name, or a tuple of names.
    pub value: SqlExpr,
    pub name: Ident,
    pub columns: Vec<ExprWithAlias>,
    pub null_inclusion: Option<NullInclusion>,
}

/// Plans an UNPIVOT.
pub(in crate::queries) fn plan(
    table: TableFactor,
    unpivot: Unpivot,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let input = context.plan(table)?;
    let schema = input.schema().as_ref().clone();
    let ident = |expr: SqlExpr| match expr {
        SqlExpr::Identifier(name) => Ok(name.value),
        other => {
            Err(error(other.span(), format!("cannot name the values of UNPIVOT {other}; write one name")))
        }
    };
    let span = unpivot.value.span();
    let values = match unpivot.value {
        SqlExpr::Tuple(names) => names.into_iter().map(ident).collect::<Result<Vec<_>>>()?,
        name => vec![ident(name)?],
    };
    let mut used: HashSet<Column> = HashSet::new();
    let mut names = Vec::new();
    // The expressions of each value column.
    let mut lists: Vec<Vec<(Expr, String)>> = vec![Vec::new(); values.len()];
    let source = Source { fields: schema.columns(), using: Vec::new() };
    for ExprWithAlias { expr, alias } in unpivot.columns {
        for (expr, label) in expand(&expr, &source)?.unwrap_or_else(|| vec![(expr.clone(), None)]) {
            let parts = match expr {
                SqlExpr::Tuple(parts) => parts,
                part => vec![part],
            };
            if parts.len() != values.len() {
                let message = format!(
                    "cannot unpivot {} columns into {}: write as many names after VALUE as columns in parentheses",
                    parts.len(),
                    values.len()
                );
                return Err(error(span, message));
            }
            let mut part_names = Vec::new();
            for (part, list) in parts.into_iter().zip(&mut lists) {
                let text = part.to_string();
                let planned = context.sql_to_expr(part, &schema)?;
                let columns = planned.column_refs();
                let first = columns.iter().min_by_key(|column| schema.maybe_index_of_column(column));
                part_names.push(first.map_or_else(|| text.clone(), |column| column.name.clone()));
                used.extend(columns.into_iter().cloned());
                list.push((planned, text));
            }
            let alias = alias.as_ref().map(|alias| alias.value.clone());
            names.push(lit(alias.or(label).unwrap_or_else(|| part_names.join("_"))));
        }
    }
    let others = schema.columns().into_iter().filter(|column| !used.contains(column));
    let mut arrays: Vec<Expr> = others
        .map(|column| {
            let name = column.name.clone();
            Expr::Column(column).alias(name)
        })
        .collect();
    let kept = arrays.len();
    arrays.push(make_array(names).alias(&unpivot.name.value));
    for (list, name) in lists.into_iter().zip(&values) {
        arrays.push(array(list, &schema)?.alias(name));
    }
    let plan = LogicalPlanBuilder::from(input).project(arrays)?;
    let unnested: Vec<Column> = plan.schema().columns().into_iter().skip(kept).collect();
    let found =
        unnested[1..].iter().map(|column| Expr::Column(column.clone()).is_not_null()).reduce(Expr::and);
    let plan = plan.unnest_columns_with_options(unnested, UnnestOptions::default())?;
    match (unpivot.null_inclusion, found) {
        (None | Some(NullInclusion::ExcludeNulls), Some(found)) => plan.filter(found)?.build(),
        _ => plan.build(),
    }
}

/// Returns an array of values of one type.
fn array(list: Vec<(Expr, String)>, schema: &datafusion::common::DFSchema) -> Result<Expr> {
    let mut types = Vec::new();
    for (expr, _) in &list {
        types.push(expr.get_type(schema)?);
    }
    let texts = types.iter().filter(|kind| kind.is_string()).count();
    let common = type_union_resolution(&types).filter(|_| texts == 0 || texts == types.len());
    let Some(common) = common else {
        let (first, one) = (&list[0].1, &types[0]);
        let other = types.iter().position(|kind| kind != one).unwrap_or(0);
        return Err(datafusion::common::DataFusionError::Plan(format!(
            "cannot unpivot {first} and {}: they are {} and {}; cast one, for example {first}::VARCHAR",
            list[other].1,
            name(one),
            name(&types[other])
        )));
    };
    Ok(make_array(list.into_iter().map(|(expr, _)| cast(expr, common.clone())).collect()))
}
