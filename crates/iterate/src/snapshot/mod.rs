//! Snapshots of a job on a local disk or in an object store.

pub(crate) mod layout;
pub(crate) mod manifest;
pub(crate) mod store;
