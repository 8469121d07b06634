//! Workers: their state, their handlers for messages, and the threads that run their bundles.

pub(crate) mod admission;
pub(crate) mod gate;
pub(crate) mod handlers;
pub(crate) mod membership;
pub(crate) mod migration;
pub(crate) mod outbox;
pub(crate) mod partition_map;
pub(crate) mod reporting;
pub(crate) mod residency;
pub(crate) mod signalling;
pub(crate) mod state;
pub(crate) mod thread;
pub(crate) mod threads;
