//! Names of a job's folder and objects in the snapshot store.

use crate::dataflow::index::DatasetIx;
use crate::dataflow::plan::Plan;

/// Returns the name of a partition's object in the snapshot store.
pub(crate) fn object(plan: &Plan, dataset: DatasetIx, partition: u32, epoch: u64) -> String {
    format!("{}/{dataset}-{partition}-{epoch:020}", parts_folder(plan))
}

/// Returns the folder of a job's objects.
pub(crate) fn parts_folder(plan: &Plan) -> String {
    format!("{}/partitions", folder(plan))
}

/// Returns the folder of a job's snapshots. Several jobs may share a store.
pub(crate) fn folder(plan: &Plan) -> String {
    format!("job-{:016x}", plan.fingerprint())
}
