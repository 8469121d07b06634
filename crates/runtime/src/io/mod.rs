//! Monotasks that move bytes: reads and writes of files, at the speed of a pacer.

pub(crate) mod buffer;
pub(crate) mod chunks;
pub(crate) mod file;
pub(crate) mod output;
pub(crate) mod pacer;
pub(crate) mod ranges;
pub(crate) mod residency;
pub(crate) mod scratch;
