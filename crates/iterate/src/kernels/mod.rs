//! What a task computes on its partition: plain functions over memory, at the memory's speed.
//!
//! Kernels know nothing of programs, workers or files. Each reads its partition once, in blocks that stay
//! in the innermost cache while they are used, with the widest instructions of the machine ([`simd`]), and
//! in an order of additions that depends on the partition alone. What an iteration costs is then what the
//! memory's bandwidth allows ([`bandwidth`]), and an answer does not depend on who computed it.

pub mod bandwidth;
pub mod kmeans;
mod line;
pub mod logistic;
pub mod pagerank;
pub mod pages;
pub mod random;
pub mod rows;
pub mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;
