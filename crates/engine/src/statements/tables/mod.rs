//! Tables in memory: their columns and constraints, and the statements that create and change them.
//!
//! A table is immutable. A statement that changes it computes the new rows, checks all constraints, and
//! then replaces the table in the catalog. So a statement applies whole or not at all, and a transaction is
//! a copy of the catalog.

pub(crate) mod alter;
pub(crate) mod change;
pub(crate) mod checks;
pub(crate) mod conflict;
pub(crate) mod create;
pub(crate) mod insert;
pub(crate) mod merge;
pub(crate) mod returning;
pub(crate) mod table;
