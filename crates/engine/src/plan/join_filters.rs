//! Writes the columns of a join's condition before its constants.
//!
//! DataFusion 55 does so in filters only. From `b RIGHT JOIN a ON a.x = b.x AND 0 = a.x`, it derives `0 = b.x` for `b` each time
//! it moves filters, takes that and the `b.x = 0` of the time before for different conditions, and so `b` for empty.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule, which runs before filters are moved.
#[derive(Debug)]
pub(crate) struct ColumnsFirst;

impl OptimizerRule for ColumnsFirst {
    fn name(&self) -> &str {
        "columns_first"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let Some(filter) = join.filter else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
        let filter = filter.transform_up(|expr| Ok(swapped(expr)))?;
        join.filter = Some(filter.data);
        let join = LogicalPlan::Join(join);
        Ok(if filter.transformed { Transformed::yes(join) } else { Transformed::no(join) })
    }
}

fn swapped(expr: Expr) -> Transformed<Expr> {
    let Expr::BinaryExpr(mut binary) = expr else { return Transformed::no(expr) };
    let op = binary
        .op
        .swap()
        .filter(|_| matches!((&*binary.left, &*binary.right), (Expr::Literal(..), Expr::Column(_))));
    let Some(op) = op else { return Transformed::no(Expr::BinaryExpr(binary)) };
    binary = BinaryExpr { left: binary.right, op, right: binary.left };
    Transformed::yes(Expr::BinaryExpr(binary))
}
