//! The text of statements, as syntax trees.

pub(crate) mod dialect;
mod from_first;
mod lambdas;
mod mistakes;
mod nesting;
mod operators;
pub(crate) mod place;
mod rewrites;
pub(crate) mod stack;
pub(crate) mod statements;
mod struct_types;
pub(crate) mod tree;
mod unsupported;
