//! The text of statements, until DataFusion plans it.

pub(crate) mod from_first;
pub(crate) mod logical;
pub(crate) mod nesting;
pub(crate) mod stack;
pub(crate) mod statements;
pub(crate) mod tree;
