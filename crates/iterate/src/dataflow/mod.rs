//! Programs: how an application describes its datasets and stages, and the plan that workers run.

pub mod data;
pub(crate) mod exchange;
pub(crate) mod plan;
pub mod program;
pub(crate) mod reduce;
pub(crate) mod sequential;
pub(crate) mod views;
