//! The memory of a job: who holds it, what exchanges may take, and how a budget is divided.

pub(crate) mod ledger;
pub(crate) mod shares;
pub(crate) mod usage;
