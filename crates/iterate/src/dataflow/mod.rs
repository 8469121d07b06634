//! Programs: how an application describes its datasets and stages, and the plan that workers run.

pub(crate) mod compile;
pub mod data;
pub(crate) mod exchange;
pub(crate) mod index;
pub(crate) mod load;
pub(crate) mod outcome;
pub(crate) mod plan;
pub mod program;
pub(crate) mod reduce;
pub(crate) mod routes;
pub(crate) mod sequential;
pub(crate) mod views;
