//! Functions and operators under the names of DuckDB and PostgreSQL.
//!
//! A function that can be written as an expression is a macro (`table.rs`), which `macros.rs` expands in the syntax
//! tree. The others are functions of DataFusion: over rows (`text.rs`, `dates.rs`, …), over groups (`aggregates.rs`).
//! `planner.rs` gives operators DuckDB's meaning where it depends on the types.

mod aggregates;
mod best;
mod calendar;
mod dates;
mod format;
mod lists;
mod macros;
mod parts;
mod patterns;
mod planner;
mod rows;
mod special;
mod statistics;
mod table;
mod text;
mod typed;
mod types;

use std::sync::Arc;

use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::prelude::SessionContext;

pub(crate) use macros::{expand, names};
pub(crate) use special::function as call_of;

/// Registers the functions that are not macros.
pub(crate) fn register(context: &SessionContext) {
    for function in rows::all(&[text::FUNCTIONS, patterns::FUNCTIONS, format::FUNCTIONS, dates::FUNCTIONS]) {
        context.register_udf(function);
    }
    for function in typed::all() {
        context.register_udf(function);
    }
    for function in aggregates::all().into_iter().chain(best::all()) {
        context.register_udaf(function);
    }
    for function in lists::all(&context.state()) {
        context.register_udf(function);
    }
    for function in lists::of_lambdas() {
        context.register_higher_order_function(Arc::new(function));
    }
}

/// Returns the rules for operators, which precede DataFusion's.
pub(crate) fn operators() -> Option<Arc<dyn ExprPlanner>> {
    let functions = rows::all(&[text::FUNCTIONS, dates::FUNCTIONS]);
    let of = |name: &str| functions.iter().find(|function| function.name() == name).cloned().map(Arc::new);
    Some(Arc::new(planner::Operators { slice: of("pellucid_slice")?, scale: of("pellucid_scale")? }))
}
