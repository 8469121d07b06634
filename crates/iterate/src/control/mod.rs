//! The controller's decisions: placement, load balancing, and recovery from losses.

pub(crate) mod balance;
pub(crate) mod controller;
pub(crate) mod placement;
pub(crate) mod summary;
