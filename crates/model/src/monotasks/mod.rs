//! Monotasks: work that uses one resource at a time, so that ideal times explain it (monotasks-sosp17 §6.1).
//!
//! Everything starts from the [`demand`]s of a trace and the [`capacity`] of its resources. Their ratios
//! are the [`ideal`] times; a [`job`] is cut into [`spans`], whose largest ideal times are summed.

pub(crate) mod capacity;
pub(crate) mod cause;
pub(crate) mod demand;
pub(crate) mod ideal;
pub(crate) mod job;
mod operators;
pub(crate) mod spans;
pub(crate) mod stage;
pub(crate) mod steps;
pub(crate) mod timeline;
