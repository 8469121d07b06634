//! Indices of registered entities, each counted from 0 in the order of registration.

/// Index of a [`Machine`](crate::Machine).
pub type MachineIx = u32;
/// Index of a [`Resource`](crate::Resource).
pub type ResourceIx = u32;
/// Index of a [`Query`](crate::Query).
pub type QueryIx = u32;
/// Index of a [`Job`](crate::Job).
pub type JobIx = u32;
/// Index of a [`Stage`](crate::Stage).
pub type StageIx = u32;
/// Index of a [`Multitask`](crate::Multitask).
pub type MultitaskIx = u32;
