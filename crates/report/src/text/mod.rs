//! Analyses, comparisons and timelines as text for a terminal.
//!
//! `terminal` and `pipelined` render the screen of an analysis, `overview` that of several. All of them write
//! to a `page` of limited `width`.

pub(crate) mod comparison;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod pipelined;
pub(crate) mod summary;
pub(crate) mod terminal;
pub(crate) mod timeline;
mod tuning;
pub(crate) mod width;
