//! The threads, and the driver that gives them the monotasks that the scheduler starts.

pub(crate) mod driver;
pub(crate) mod entry;
pub(crate) mod sampler;
pub(crate) mod worker;
