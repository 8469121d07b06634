//! Constructs of queries that DataFusion does not plan.
//!
//! Some are rewritten in the syntax tree ([`rewrite`]). Those that need the columns of a FROM clause are replaced by a
//! name that is not found: the error lists the columns ([`columns`], [`aliases`]). Relations that SQL
//! cannot express (PIVOT, samples, ASOF joins) are planned by [`Relations`].

pub(crate) mod aliases;
mod asof;
mod bags;
pub(crate) mod columns;
mod fold;
mod limits;
mod matching;
mod merged;
mod operators;
mod orders;
pub(crate) mod pivot;
pub(crate) mod planned;
mod plans;
mod sample;
mod template;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::queries::columns::Held;
use crate::queries::pivot::values::Values;
use crate::sql::place::error;

/// Registers the functions that rewritten statements call.
pub(crate) fn register(context: &SessionContext) {
    context.register_udf(sample::function());
}

/// Rewrites a statement to constructs that DataFusion plans. Returns the items of SELECT lists that wait for the columns of
/// their FROM clause.
///
/// # Errors
/// Returns an error with its place if a construct is used wrongly.
pub(crate) fn rewrite(tree: &mut Tree) -> Result<Held> {
    operators::rewrite(tree)?;
    limits::rewrite(tree)?;
    bags::rewrite(tree);
    merged::rewrite(tree);
    fold::rewrite(tree);
    let held = columns::hold(tree)?;
    orders::rewrite(tree);
    Ok(held)
}

/// Replaces `ORDER BY ALL` once the columns are known.
pub(crate) fn order(tree: &mut Tree) {
    orders::rewrite(tree);
}

/// Plans the relations of this module.
#[derive(Debug)]
pub(crate) struct Relations(pub Arc<Values>);

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (plan, alias) = match relation {
            TableFactor::Pivot { table, aggregate_functions, alias, .. } => {
                (pivot::plan(&self.0, *table, aggregate_functions, context)?, alias)
            }
            TableFactor::Unpivot { table, value, name, columns, null_inclusion, alias } => {
                let unpivot = pivot::unpivot::Unpivot { value, name, columns, null_inclusion };
                (pivot::unpivot::plan(*table, unpivot, context)?, alias)
            }
            TableFactor::NestedJoin { table_with_joins, alias } if fold::is_folded(&table_with_joins) => {
                (plans::plan(*table_with_joins, context)?, alias)
            }
            mut other => {
                let sample = sample::take(&mut other);
                match sample {
                    Some(kind) => (sample::plan_kind(context.plan(other)?, &kind)?, None),
                    None => return Ok(RelationPlanning::Original(Box::new(other))),
                }
            }
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}
