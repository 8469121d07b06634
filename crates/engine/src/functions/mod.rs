//! Functions and operators under the names of DuckDB and PostgreSQL.
//!
//! A function that can be written as an expression is a macro (`table.rs`), which `macros.rs` expands in the syntax
//! tree. The others are functions of DataFusion: over rows (`rows`, `dates`, `typed`, `json`), over groups and lists (`groups`)
//! and over windows (`ranks`).
//! `planner.rs` gives operators DuckDB's meaning where it depends on the types.

mod dates;
mod groups;
mod json;
mod macros;
mod planner;
mod ranks;
mod rows;
mod special;
mod table;
mod typed;

use std::sync::Arc;

use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::prelude::SessionContext;

pub(crate) use json::each::COLUMNS as JSON_COLUMNS;
pub(crate) use macros::{expand, names};

/// Registers the functions that are not macros.
pub(crate) fn register(context: &SessionContext) {
    for function in rows::all(&[
        rows::text::FUNCTIONS,
        rows::patterns::FUNCTIONS,
        rows::format::FUNCTIONS,
        dates::FUNCTIONS,
    ]) {
        context.register_udf(function);
    }
    for function in typed::all(&[
        typed::FUNCTIONS,
        typed::lists::FUNCTIONS,
        typed::maps::FUNCTIONS,
        typed::others::FUNCTIONS,
        json::FUNCTIONS,
    ]) {
        context.register_udf(function);
    }
    for function in typed::kinds::all() {
        context.register_udf(function);
    }
    for function in groups::aggregates::all().into_iter().chain(groups::best::all()) {
        context.register_udaf(function);
    }
    for function in ranks::all() {
        context.register_udwf(function);
    }
    for function in groups::lists::all(&context.state()) {
        context.register_udf(function);
    }
    for function in groups::lists::of_lambdas() {
        context.register_higher_order_function(Arc::new(function));
    }
}

/// Returns the rules for operators, which precede DataFusion's.
pub(crate) fn operators() -> Option<Arc<dyn ExprPlanner>> {
    let slice = rows::all(&[rows::text::FUNCTIONS]).into_iter().find(|f| f.name() == "pellucid_slice")?;
    let extract = typed::all(&[json::FUNCTIONS]).into_iter().find(|one| one.name() == "json_extract")?;
    Some(Arc::new(planner::Operators { slice: Arc::new(slice), extract: Arc::new(extract) }))
}
