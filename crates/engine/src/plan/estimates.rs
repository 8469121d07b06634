//! Estimated sizes of the sides of joins, by which DataFusion chooses the side to build a table of.
//!
//! DataFusion 55 takes the bytes of a join's output from the columns of its inputs, whatever its rows: the semi join of TPC-H
//! query 21 is estimated at 600,000 rows and 951 MB, so that the table was built of the 38 million rows of the other side.
//! Here the size of any node is its rows times their width in a hash table.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::operator_statistics::{
    ExtendedStatistics, StatisticsProvider, StatisticsRegistry, StatisticsResult,
};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

/// Bytes of a hash table for each row beside its columns.
const TABLE_BYTES: usize = 20;
/// Assumed bytes of a value of no fixed width.
const VARIABLE_BYTES: usize = 32;

/// Returns what DataFusion asks for estimates.
pub(crate) fn registry() -> StatisticsRegistry {
    StatisticsRegistry::with_providers(vec![Arc::new(Sizes)])
}

/// DataFusion's estimates, with the sizes of nodes by their rows.
#[derive(Debug)]
struct Sizes;

impl StatisticsProvider for Sizes {
    fn compute_statistics(
        &self,
        plan: &dyn ExecutionPlan,
        inputs: &[ExtendedStatistics],
    ) -> Result<StatisticsResult> {
        let inputs: Vec<_> = inputs.iter().map(|input| Arc::clone(input.base_arc())).collect();
        let mut estimate =
            Arc::unwrap_or_clone(plan.statistics_from_inputs(&inputs, &StatisticsArgs::new())?);
        if let Some(rows) = estimate.num_rows.get_value() {
            estimate.total_byte_size = Precision::Inexact(rows.saturating_mul(row_bytes(&plan.schema())));
        }
        Ok(StatisticsResult::Computed(estimate.into()))
    }
}

/// Returns DataFusion's estimates for a node.
pub(crate) fn statistics(node: &dyn ExecutionPlan) -> Result<Arc<Statistics>> {
    StatisticsContext::new().compute(node, &StatisticsArgs::new())
}

/// Returns the estimated number of rows of a node; `None` if it is unknown.
pub(crate) fn rows(node: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    Ok(statistics(node.as_ref())?.num_rows.get_value().copied())
}

/// Returns the estimated bytes of a row in a hash table.
pub(crate) fn row_bytes(schema: &Schema) -> usize {
    let bytes = |data_type: &DataType| data_type.primitive_width().unwrap_or(VARIABLE_BYTES);
    TABLE_BYTES + schema.fields().iter().map(|field| bytes(field.data_type())).sum::<usize>()
}
