//! Applications of iterative jobs: logistic regression, k-means and PageRank.
//!
//! - [`input`] reads tables and graphs, and writes results.
//! - [`kernels`] are the computations of tasks. They do not depend on programs, workers or files.
//! - [`applications`] are the programs over both, which `pellucid-iterate` runs.

pub mod applications;
pub mod input;
pub mod kernels;
