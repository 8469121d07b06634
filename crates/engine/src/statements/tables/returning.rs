//! RETURNING, and queries over the rows that a statement changes.

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Select, SelectItem, SetExpr, TableFactor};

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::statements::run::{self, Rows, Temporary};

/// Returns a query of a temporary table under a name of the statement, whose parts `change` sets.
///
/// # Errors
/// Returns an error if the query cannot be made.
pub(crate) fn query_of(source: &str, alias: &Ident, change: impl FnOnce(&mut Select)) -> Result<Box<Query>> {
    let mut query = run::query(&format!("SELECT 1 FROM {} AS t", run::name(source)))?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        if let Some(TableFactor::Table { alias: Some(of_table), .. }) =
            select.from.first_mut().map(|from| &mut from.relation)
        {
            of_table.name = alias.clone();
        }
        change(select);
    }
    Ok(query)
}

/// Returns an expression with an alias.
pub(crate) fn aliased(expr: Expr, alias: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias) }
}

/// Returns a column of a table.
pub(crate) fn column(table: &Ident, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), Ident::with_quote('"', column)])
}

/// Returns the rows of RETURNING, or the number of changed rows.
///
/// # Errors
/// Returns the errors of the expressions, with their places.
pub(crate) async fn result(
    context: &SessionContext,
    statement: &Statement,
    rows: RecordBatch,
    alias: &Ident,
    items: Option<Vec<SelectItem>>,
) -> Result<Rows, EngineError> {
    let Some(items) = items else { return run::count(rows.num_rows()) };
    let source = Temporary::rows(context, rows)?;
    let query = query_of(&source.name, alias, |select| select.projection = items)?;
    let rows = run::compute(context, statement, query).await?;
    Ok((rows.schema(), vec![rows]))
}
