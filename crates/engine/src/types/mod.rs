//! Types and their values as DuckDB has them: names of types, arithmetic without overflow, casts and time zones.
//!
//! Most of it are rewrites around DataFusion's coercion of types ([`rules`]): before it, arithmetic of dates gets its
//! types; after it, operators that could wrap around and casts that mean something else in DuckDB are replaced by
//! functions of this folder. Everything else stays DataFusion's. Names of types are planned by [`names`], and what only
//! the syntax tree shows is replaced by [`syntax`]. [`places`] finds the place of a value that failed.

pub(crate) mod arithmetic;
pub(crate) mod average;
pub(crate) mod cast;
mod enums;
mod from_state;
pub(crate) mod json;
mod keywords;
pub(crate) mod names;
pub(crate) mod operators;
pub(crate) mod places;
pub(crate) mod rules;
pub(crate) mod sum;
pub(crate) mod syntax;
pub(crate) mod zone;
