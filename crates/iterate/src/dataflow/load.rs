//! Loading of partitions with the program's loaders.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::dataflow::data::AnyData;
use crate::dataflow::plan::Plan;
use crate::error::JobError;

/// Creates the partitions of an index with their loaders.
pub(crate) fn load_bundle(
    plan: &Plan,
    datasets: u64,
    index: u32,
) -> Result<Vec<Option<Box<dyn AnyData>>>, JobError> {
    let load = |dataset| {
        if datasets >> dataset & 1 == 0 { Ok(None) } else { load_partition(plan, dataset, index).map(Some) }
    };
    (0..plan.datasets.len()).map(load).collect()
}

/// Creates a partition with its loader.
pub(crate) fn load_partition(plan: &Plan, dataset: usize, index: u32) -> Result<Box<dyn AnyData>, JobError> {
    let spec = &plan.datasets[dataset];
    let wrong = |cause: String| JobError::Load { dataset: spec.name.clone(), partition: index, cause };
    match catch_unwind(AssertUnwindSafe(|| (spec.load)(index))) {
        Ok(loaded) => loaded.map_err(|cause| wrong(cause.to_string())),
        Err(_) => Err(wrong("the loader panicked".into())),
    }
}
