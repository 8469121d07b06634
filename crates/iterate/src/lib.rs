//! Partition-local iterative jobs.
