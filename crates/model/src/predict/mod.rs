//! Predictions of a job under changes, by the kind of its tasks.

pub(crate) mod iterative;
pub(crate) mod monotasks;
pub(crate) mod pipelined;
