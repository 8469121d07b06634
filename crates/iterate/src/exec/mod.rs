//! Execution of bundles: the next task, the slots that hold bundles, and the signals that direct them.

pub(crate) mod bundle;
pub(crate) mod host;
pub(crate) mod packing;
pub(crate) mod run_queue;
pub(crate) mod signals;
pub(crate) mod slot;
