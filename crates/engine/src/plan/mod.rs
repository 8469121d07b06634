//! Physical plans: how they are cut into stages, and shown.

pub(crate) mod cut;
pub(crate) mod estimates;
pub(crate) mod explain;
pub(crate) mod grouping_sets;
pub(crate) mod join_filters;
pub(crate) mod join_order;
pub(crate) mod keys;
pub(crate) mod operators;
pub(crate) mod outer_joins;
pub(crate) mod partitions;
pub(crate) mod pushdown;
pub(crate) mod scans;
pub(crate) mod semi_joins;
pub(crate) mod shared;
pub(crate) mod window_limits;
