//! UPDATE, DELETE and TRUNCATE of a table in memory.
//!
//! UPDATE and DELETE become a query of the numbers and new values of the rows that they change. The query runs
//! as a job; the rows are replaced when it has ended.

use std::collections::BTreeMap;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, FromTable, Ident, ObjectName, Query, SelectItem, Spanned, TableFactor, TableWithJoins,
    Update, UpdateTableFromKind,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::run::{self, Rows, Temporary};
use crate::statements::tables::conflict::{assignments, merged, taken, with_values};
use crate::statements::tables::insert::{existing, last};
use crate::statements::tables::returning::{aliased, column, query_of};
use crate::statements::tables::table::{Found, ROW, Table, replace};
use crate::statements::tables::{checks, returning};

/// A change that waits for its rows.
pub(crate) struct Change {
    statement: Statement,
    found: Found,
    alias: Ident,
    /// The columns that an UPDATE sets; `None` for a DELETE.
    columns: Option<Vec<usize>>,
    returning: Option<Vec<SelectItem>>,
    _source: Temporary,
}

/// The clauses that UPDATE and DELETE have in common.
struct Clauses<'a> {
    table: &'a TableWithJoins,
    others: &'a [TableWithJoins],
    selection: Option<&'a Expr>,
    returning: Option<&'a Vec<SelectItem>>,
    /// True for clauses of other engines.
    foreign: bool,
}

/// Returns the query of an UPDATE, and the change that waits for its rows.
///
/// # Errors
/// Returns an error with its place if a name is unknown, or the rows of the table cannot change.
pub(crate) async fn update(
    session: &Session,
    statement: &Statement,
    update: &Update,
) -> Result<(Box<Query>, Change), EngineError> {
    let others = match &update.from {
        None => &[][..],
        Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => from,
    };
    let clauses = Clauses {
        table: &update.table,
        others,
        selection: update.selection.as_ref(),
        returning: update.returning.as_ref(),
        foreign: update.or.is_some()
            || !update.order_by.is_empty()
            || update.limit.is_some()
            || update.output.is_some(),
    };
    let (found, alias) = target(session, statement, &clauses).await?;
    let set = match found.table() {
        Some(table) => assignments(statement, &table.definition, &update.assignments)?,
        None => Vec::new(),
    };
    begin(session, statement, &clauses, found, alias, Some(set))
}

/// Returns the query of a DELETE, and the change that waits for its rows.
///
/// # Errors
/// Returns an error with its place if a name is unknown, or the rows of the table cannot change.
pub(crate) async fn delete(
    session: &Session,
    statement: &Statement,
    delete: &Delete,
) -> Result<(Box<Query>, Change), EngineError> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [table] = &from[..] else {
        return Err(statement.refuse(delete.span(), "DELETE FROM needs one table; name others after USING"));
    };
    let clauses = Clauses {
        table,
        others: delete.using.as_deref().unwrap_or_default(),
        selection: delete.selection.as_ref(),
        returning: delete.returning.as_ref(),
        foreign: !delete.tables.is_empty()
            || !delete.order_by.is_empty()
            || delete.limit.is_some()
            || delete.output.is_some(),
    };
    let (found, alias) = target(session, statement, &clauses).await?;
    begin(session, statement, &clauses, found, alias, None)
}

/// Finds the table that a statement changes, and its name in the statement.
async fn target(
    session: &Session,
    statement: &Statement,
    clauses: &Clauses<'_>,
) -> Result<(Found, Ident), EngineError> {
    let span = clauses.table.relation.span();
    if clauses.foreign {
        let message = "ORDER BY, LIMIT, OUTPUT and OR of UPDATE and DELETE are not supported; select the rows with WHERE";
        return Err(statement.refuse(span, message));
    }
    let TableFactor::Table { name, alias, args: None, .. } = &clauses.table.relation else {
        return Err(statement.refuse(span, "UPDATE and DELETE need the name of a table"));
    };
    if !clauses.table.joins.is_empty() {
        return Err(
            statement.refuse(span, "UPDATE and DELETE change one table; name others after FROM or USING")
        );
    }
    let found = existing(session, statement, name).await?;
    check_memory(statement, &found, name)?;
    Ok((found, alias.as_ref().map_or_else(|| last(name), |alias| alias.name.clone())))
}

/// Refuses tables of files and views.
///
/// # Errors
/// Returns an error with its place if the rows of the table are not in memory.
pub(crate) fn check_memory(
    statement: &Statement,
    found: &Found,
    name: &ObjectName,
) -> Result<(), EngineError> {
    if found.table().is_some() {
        return Ok(());
    }
    let message = format!(
        "cannot change {name}: it is not a table in memory; copy it with CREATE TABLE … AS FROM {name}"
    );
    Err(statement.refuse(name.span(), &message))
}

fn begin(
    session: &Session,
    statement: &Statement,
    clauses: &Clauses<'_>,
    found: Found,
    alias: Ident,
    set: Option<Vec<(usize, Expr)>>,
) -> Result<(Box<Query>, Change), EngineError> {
    let Some(table) = found.table() else {
        return Err(statement.refuse(Span::empty(), "the table is not one in memory"));
    };
    let source = Temporary::rows(&session.context, table.numbered()?)?;
    let values = set.iter().flatten().enumerate();
    let values: Vec<SelectItem> =
        values.map(|(n, (_, value))| aliased(value.clone(), &format!("__set_{n}"))).collect();
    let query = query_of(&source.name, &alias, |select| {
        select.projection = vec![aliased(column(&alias, ROW), ROW)];
        select.projection.extend(values);
        select.from.extend_from_slice(clauses.others);
        select.selection = clauses.selection.cloned();
    })?;
    let change = Change {
        statement: statement.clone(),
        found,
        alias,
        columns: set.map(|set| set.into_iter().map(|(column, _)| column).collect()),
        returning: clauses.returning.cloned(),
        _source: source,
    };
    Ok((query, change))
}

impl Change {
    /// Changes the rows of the table.
    ///
    /// # Errors
    /// Returns an error that names the value if a row violates a constraint; then no row is changed.
    pub(crate) async fn finish(self, session: &Session, rows: Rows) -> Result<Rows, EngineError> {
        let context = &session.context;
        let Some(table) = self.found.table() else { return Ok(run::nothing()) };
        let (schema, batches) = rows;
        let found = concat_batches(&schema, &batches).map_err(DataFusionError::from)?;
        // A row that matches several others changes once, as the first of them says.
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, id) in found.column(0).as_primitive::<UInt64Type>().values().iter().enumerate() {
            first.entry(*id).or_insert(at as u64);
        }
        let (ids, at): (Vec<u64>, Vec<u64>) = first.into_iter().unzip();
        let all = table.all()?;
        let before = taken(&all, &ids)?;
        let Some(columns) = &self.columns else {
            let mut kept = vec![true; all.num_rows()];
            ids.iter().for_each(|id| kept[*id as usize] = false);
            let kept = filter_record_batch(&all, &kept.into()).map_err(DataFusionError::from)?;
            replace(context, &self.found, Table::new(table.definition.clone(), vec![kept])?).await?;
            return returning::result(context, &self.statement, before, &self.alias, self.returning).await;
        };
        let values = taken(&found, &at)?;
        let definition = &table.definition;
        let changed =
            with_values(context, &self.statement, definition, &before, columns, &values.columns()[1..])
                .await?;
        checks::rows(context, &self.statement, &self.alias.value, definition, &changed).await?;
        let merged = merged(&all, &ids, &changed)?;
        checks::unique(&self.alias.value, definition, &merged)?;
        replace(context, &self.found, Table::new(definition.clone(), vec![merged])?).await?;
        returning::result(context, &self.statement, changed, &self.alias, self.returning).await
    }
}

/// Removes all rows of a table.
///
/// # Errors
/// Returns an error with its place if it is not a table in memory.
pub(crate) async fn truncate(
    session: &Session,
    statement: &Statement,
    name: &ObjectName,
) -> Result<Rows, EngineError> {
    let found = existing(session, statement, name).await?;
    check_memory(statement, &found, name)?;
    let Some(table) = found.table() else { return Ok(run::nothing()) };
    let rows = table.batches.iter().map(RecordBatch::num_rows).sum();
    replace(&session.context, &found, Table::new(table.definition.clone(), Vec::new())?).await?;
    run::count(rows)
}
