//! Loading of partitions with the program's loaders.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::dataflow::data::AnyData;
use crate::dataflow::index::{DatasetIx, DatasetSet};
use crate::dataflow::plan::Plan;
use crate::dataflow::views::States;
use crate::error::JobError;

/// Creates the partitions of an index with their loaders.
pub(crate) fn load_bundle(plan: &Plan, datasets: DatasetSet, index: u32) -> Result<States, JobError> {
    let load = |dataset| {
        if datasets.contains(dataset) { load_partition(plan, dataset, index).map(Some) } else { Ok(None) }
    };
    plan.datasets.indexes().map(load).collect()
}

/// Creates a partition with its loader.
pub(crate) fn load_partition(
    plan: &Plan,
    dataset: DatasetIx,
    index: u32,
) -> Result<Box<dyn AnyData>, JobError> {
    let spec = &plan.datasets[dataset];
    let wrong = |cause: String| JobError::Load { dataset: spec.name.clone(), partition: index, cause };
    match catch_unwind(AssertUnwindSafe(|| (spec.load)(index))) {
        Ok(loaded) => loaded.map_err(|cause| wrong(cause.to_string())),
        Err(_) => Err(wrong("the loader panicked".into())),
    }
}
