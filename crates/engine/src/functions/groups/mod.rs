//! Aggregates, and functions of lists.

pub(crate) mod aggregates;
pub(crate) mod best;
pub(crate) mod lists;
mod samples;
mod statistics;
