//! Kernels: the computations of tasks, as plain functions over memory that run at memory bandwidth.
//!
//! Kernels do not depend on programs, workers or files. Each reads its partition once, in blocks that stay in
//! the L1 cache while in use, with the widest instructions of the machine ([`simd`]), and in an order of
//! additions that depends only on the partition. The cost of an iteration is then bound by memory bandwidth
//! ([`bandwidth`]), and results do not depend on the machine.

pub mod bandwidth;
pub mod kmeans;
pub mod logistic;
pub mod pagerank;
pub mod pages;
pub mod random;
pub mod rows;
pub mod simd;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;
