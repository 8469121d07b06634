//! Rewrites of a query's logical plan, before it is optimized.

mod correlated;
mod counted;
mod domain;
mod kept_order;

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;

/// Rewrites a plan.
pub(crate) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    correlated::join(kept_order::keep(counted::replace(plan)?)?)
}
