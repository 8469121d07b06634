//! Puts shared nodes into their places in a physical plan.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::plan::cut::{Node, runs_whole};
use crate::plan::estimates::statistics;
use crate::plan::shared::exec::SharedExec;

/// A place while the plan around it is optimized. It has no children, so that no rule changes what other places have too.
#[derive(Debug)]
pub(super) struct SharedLeaf {
    shared: Node,
    statistics: Arc<Statistics>,
}

impl SharedLeaf {
    pub fn new(input: Node) -> Result<Self> {
        let statistics = statistics(input.as_ref())?;
        Ok(Self { shared: Arc::new(SharedExec::new(input)), statistics })
    }
}

impl DisplayAs for SharedLeaf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedLeaf")
    }
}

impl ExecutionPlan for SharedLeaf {
    fn name(&self) -> &str {
        "SharedLeaf"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.shared.properties()
    }

    fn children(&self) -> Vec<&Node> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Node>) -> Result<Node> {
        Ok(self)
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.shared.execute(partition, context)
    }
}

/// The rule that puts shared nodes into their places, after all others.
#[derive(Debug)]
pub(crate) struct SharedPlaces;

impl PhysicalOptimizerRule for SharedPlaces {
    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        let placed = plan.transform_down(|node| {
            if runs_whole(&node) {
                return Ok(Transformed::new(with_copies(node)?, true, TreeNodeRecursion::Jump));
            }
            let Some(leaf) = node.downcast_ref::<SharedLeaf>() else { return Ok(Transformed::no(node)) };
            // A node of its own, at which the plan can be cut for this place alone.
            let schema = leaf.schema();
            let columns = schema.fields().iter().enumerate().map(|(at, field)| {
                let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
                ProjectionExpr::from((column, field.name().clone()))
            });
            let columns: Vec<ProjectionExpr> = columns.collect();
            let place = ProjectionExec::try_new(columns, Arc::clone(&leaf.shared))?;
            Ok(Transformed::new(Arc::new(place) as Node, true, TreeNodeRecursion::Jump))
        });
        placed.data()
    }

    fn name(&self) -> &str {
        "shared_places"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Gives places below a node that runs whole plans of their own: there, each partition of a node can run only once.
fn with_copies(node: Node) -> Result<Node> {
    let copied = node.transform_up(|node| match node.downcast_ref::<SharedLeaf>() {
        Some(leaf) => reset_plan_states(Arc::clone(&leaf.shared)).map(Transformed::yes),
        None => Ok(Transformed::no(node)),
    });
    copied.data()
}
