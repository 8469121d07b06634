//! INSERT INTO a table in memory.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Ident, Insert, ObjectName, Query, SelectItem, SetExpr, Spanned,
    TableObject, TimezoneInfo, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::logical::nearest::hint;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::run::{self, Rows, Temporary};
use crate::statements::tables::conflict::{self, Policy};
use crate::statements::tables::table::{Definition, Found, Table, find, numbered, replace};
use crate::statements::tables::{checks, returning};
use crate::types::cast::cast;

/// An INSERT that waits for the rows of its source.
pub(crate) struct Insertion {
    statement: Statement,
    found: Found,
    /// The name of the table in the statement.
    alias: Ident,
    span: Span,
    /// Columns of the table that the source fills, in its order.
    targets: Targets,
    policy: Policy,
    returning: Option<Vec<SelectItem>>,
    /// A table that the source reads.
    _source: Option<Temporary>,
}

/// The columns that an INSERT fills.
enum Targets {
    Columns(Vec<usize>),
    /// Those that have the names of the source's columns.
    ByName,
    /// None: `DEFAULT VALUES`.
    Defaults,
}

/// The parts of a statement that the tree of an INSERT does not have.
#[derive(Default)]
pub(crate) struct Extra {
    pub by_name: bool,
    pub source: Option<(Box<Query>, Temporary)>,
}

/// Returns the query of an INSERT's rows and the insertion that waits for them; `None` if the table is not one
/// in memory and DataFusion inserts the rows.
///
/// # Errors
/// Returns an error with its place if a name is unknown, or the rows of the table cannot change.
pub(crate) async fn begin(
    session: &Session,
    statement: &Statement,
    insert: &Insert,
    extra: Extra,
) -> Result<Option<(Box<Query>, Insertion)>, EngineError> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(statement.refuse(Span::empty(), "INSERT needs the name of a table"));
    };
    let span = name.span();
    let found = existing(session, statement, name).await?;
    let Some(table) = found.table() else {
        if extra.by_name || insert.on.is_some() || insert.or.is_some() || insert.returning.is_some() {
            let message = format!(
                "cannot insert into {name} with BY NAME, ON CONFLICT or RETURNING: it is not a table in memory; copy it \
                 with CREATE TABLE … AS FROM {name}"
            );
            return Err(statement.refuse(span, &message));
        }
        return Ok(None);
    };
    if insert.overwrite
        || insert.partitioned.is_some()
        || !insert.after_columns.is_empty()
        || !insert.assignments.is_empty()
    {
        return Err(statement
            .refuse(span, "INSERT OVERWRITE, PARTITION and SET are not supported; use DELETE and INSERT"));
    }
    let definition = &table.definition;
    let targets = match (&insert.source, extra.by_name) {
        (None, _) if extra.source.is_none() => Targets::Defaults,
        (_, true) => Targets::ByName,
        _ => Targets::Columns(targets(statement, definition, &insert.columns)?),
    };
    let policy = Policy::of(statement, definition, insert)?;
    let (mut query, source) = match (extra.source, &insert.source) {
        (Some((query, source)), _) => (query, Some(source)),
        (None, Some(query)) => (query.clone(), None),
        (None, None) => (run::query("SELECT 1")?, None),
    };
    if let Targets::Columns(columns) = &targets {
        fill_defaults(&mut query, definition, columns);
        cast_mixed(&mut query, definition, columns);
    }
    let alias = match &insert.table_alias {
        Some(alias) => alias.alias.clone(),
        None => last(name),
    };
    let insertion = Insertion {
        statement: statement.clone(),
        found,
        alias,
        span,
        targets,
        policy,
        returning: insert.returning.clone(),
        _source: source,
    };
    Ok(Some((query, insertion)))
}

/// Returns the last part of a name.
pub(crate) fn last(name: &ObjectName) -> Ident {
    name.0.last().and_then(|part| part.as_ident()).cloned().unwrap_or_else(|| Ident::new("t"))
}

/// Finds a table that a statement changes.
///
/// # Errors
/// Returns an error with its place and the nearest names if there is none.
pub(crate) async fn existing(
    session: &Session,
    statement: &Statement,
    name: &ObjectName,
) -> Result<Found, EngineError> {
    let state = session.context.state();
    if let Some(found) = find(&state, name).await? {
        return Ok(found);
    }
    let missing = DataFusionError::Plan(format!("table '{}' not found", last(name).value));
    let error = EngineError::from(crate::tables::suggest_tables(&state, missing));
    Err(statement.refuse(name.span(), &error.to_string()))
}

/// Returns the columns of a list; without a list, all that are not computed.
///
/// # Errors
/// Returns an error with its place if a column is unknown, computed, or listed twice.
pub(crate) fn targets(
    statement: &Statement,
    definition: &Definition,
    columns: &[ObjectName],
) -> Result<Vec<usize>, EngineError> {
    if columns.is_empty() {
        let stored = |at: &usize| definition.columns[*at].generated.is_none();
        return Ok((0..definition.columns.len()).filter(stored).collect());
    }
    let mut found: Vec<usize> = Vec::new();
    for column in columns {
        let at = target(statement, definition, &last(column), column.span())?;
        if found.contains(&at) {
            return Err(
                statement.refuse(column.span(), &format!("column {column} is listed twice; remove one"))
            );
        }
        found.push(at);
    }
    Ok(found)
}

/// Returns the index of a column that a statement sets.
///
/// # Errors
/// Returns an error with its place if there is none, or it is computed.
pub(crate) fn target(
    statement: &Statement,
    definition: &Definition,
    name: &Ident,
    span: Span,
) -> Result<usize, EngineError> {
    let Some(at) = definition.position(&name.value) else {
        let hint = hint(&name.value, definition.names(), "the columns are");
        return Err(statement.refuse(span, &format!("cannot find column {}; {hint}", name.value)));
    };
    if definition.columns[at].generated.is_some() {
        let message = format!("cannot set column {}: it is computed (GENERATED); remove it", name.value);
        return Err(statement.refuse(span, &message));
    }
    Ok(at)
}

/// Returns true for the word DEFAULT in place of a value.
pub(crate) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// Returns the default of a column.
pub(crate) fn default_of(definition: &Definition, column: usize) -> Expr {
    let default = definition.columns.get(column).and_then(|c| c.default.clone());
    default.unwrap_or_else(|| Expr::Value(Value::Null.with_empty_span()))
}

/// Replaces DEFAULT in VALUES.
fn fill_defaults(query: &mut Query, definition: &Definition, columns: &[usize]) {
    if let SetExpr::Values(values) = query.body.as_mut() {
        for row in &mut values.rows {
            for (expr, column) in row.iter_mut().zip(columns) {
                if is_default(expr) {
                    *expr = default_of(definition, *column);
                }
            }
        }
    }
}

/// Casts the values for dates and times in VALUES of which some are text and some are expressions: each of DataFusion's
/// VALUES has one type.
fn cast_mixed(query: &mut Query, definition: &Definition, columns: &[usize]) {
    let SetExpr::Values(values) = query.body.as_mut() else { return };
    let is_text =
        |expr: &Expr| matches!(expr, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }));
    for (at, column) in columns.iter().enumerate() {
        let Some(to) = definition.columns.get(*column).and_then(|column| time_type(&column.data_type)) else {
            continue;
        };
        let cells = || values.rows.iter().filter_map(|row| row.get(at));
        if !cells().any(is_text) || cells().all(|expr| matches!(expr, Expr::Value(_))) {
            continue;
        }
        for expr in values.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            let operand = Box::new(expr.clone());
            let (kind, data_type) = (CastKind::Cast, to.clone());
            *expr = Expr::Cast { kind, expr: operand, data_type, array: false, format: None };
        }
    }
}

/// Returns the name of a type of dates and times.
fn time_type(data_type: &DataType) -> Option<SqlType> {
    Some(match data_type {
        DataType::Date32 => SqlType::Date,
        DataType::Time64(_) => SqlType::Time(None, TimezoneInfo::None),
        DataType::Timestamp(_, None) => SqlType::Timestamp(None, TimezoneInfo::None),
        DataType::Timestamp(_, Some(_)) => SqlType::Timestamp(None, TimezoneInfo::Tz),
        _ => return None,
    })
}

impl Insertion {
    /// Adds the rows to the table.
    ///
    /// # Errors
    /// Returns an error that names the value if a row does not fit or violates a constraint; then no row is added.
    pub(crate) async fn finish(self, session: &Session, rows: Rows) -> Result<Rows, EngineError> {
        let context = &session.context;
        let Some(table) = self.found.table() else { return Ok(run::nothing()) };
        let (schema, batches) = rows;
        let source = concat_batches(&schema, &batches).map_err(DataFusionError::from)?;
        let rows = self.fitted(context, table, &source).await?;
        checks::rows(context, &self.statement, &self.alias.value, &table.definition, &rows).await?;
        let conflict = conflict::Conflict { context, statement: &self.statement, alias: &self.alias, table };
        let (changed, affected) = conflict.resolve(&self.policy, rows).await?;
        replace(context, &self.found, changed).await?;
        returning::result(context, &self.statement, affected, &self.alias, self.returning).await
    }

    /// Returns the rows with all columns of the table.
    async fn fitted(
        &self,
        context: &SessionContext,
        table: &Table,
        source: &RecordBatch,
    ) -> Result<RecordBatch, EngineError> {
        let definition = &table.definition;
        let by_name: Vec<usize>;
        let targets = match &self.targets {
            Targets::Columns(columns) => columns,
            Targets::Defaults => &Vec::new(),
            Targets::ByName => {
                let name = |field: &Arc<datafusion::arrow::datatypes::Field>| {
                    target(&self.statement, definition, &Ident::new(field.name()), self.span)
                };
                by_name = source.schema().fields().iter().map(name).collect::<Result<_, _>>()?;
                &by_name
            }
        };
        if !matches!(self.targets, Targets::Defaults) && targets.len() != source.num_columns() {
            let message = format!(
                "cannot insert into {}: it has {} columns here, but {} values are given; list the columns: INSERT INTO {} (…)",
                self.alias.value,
                targets.len(),
                source.num_columns(),
                self.alias.value
            );
            return Err(self.statement.refuse(self.span, &message));
        }
        let mut given: Vec<Option<ArrayRef>> = vec![None; definition.columns.len()];
        for (column, values) in targets.iter().zip(source.columns()) {
            let of = &definition.columns[*column];
            given[*column] = Some(cast(values, &of.data_type, &of.name)?);
        }
        complete(context, &self.statement, definition, given, source.num_rows()).await
    }
}

/// Computes the defaults of columns without values, and then the generated columns.
///
/// # Errors
/// Returns the errors of the expressions.
pub(crate) async fn complete(
    context: &SessionContext,
    statement: &Statement,
    definition: &Definition,
    mut given: Vec<Option<ArrayRef>>,
    rows: usize,
) -> Result<RecordBatch, EngineError> {
    let missing = |at: &usize| given[*at].is_none() && definition.columns[*at].generated.is_none();
    let missing: Vec<usize> = (0..given.len()).filter(missing).collect();
    let with_default: Vec<usize> =
        missing.iter().copied().filter(|at| definition.columns[*at].default.is_some()).collect();
    if !with_default.is_empty() {
        let empty = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            Vec::new(),
            &RecordBatchOptions::new().with_row_count(Some(rows)),
        );
        let counted = numbered(&empty.map_err(DataFusionError::from)?)?;
        let exprs: Vec<&Expr> =
            with_default.iter().filter_map(|at| definition.columns[*at].default.as_ref()).collect();
        let values = checks::evaluated(context, statement, &counted, &exprs).await?;
        for (at, values) in with_default.iter().zip(values) {
            let of = &definition.columns[*at];
            given[*at] = Some(cast(&values, &of.data_type, &of.name)?);
        }
    }
    for at in missing {
        given[at].get_or_insert_with(|| new_null_array(&definition.columns[at].data_type, rows));
    }
    for (at, column) in definition.columns.iter().enumerate() {
        if let Some(expr) = &column.generated {
            let known = given.iter().enumerate().filter_map(|(n, values)| Some((n, values.clone()?)));
            let (fields, columns): (Vec<_>, Vec<_>) = known
                .map(|(n, values)| (definition.schema().field(n).clone().with_nullable(true), values))
                .unzip();
            let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
                .map_err(DataFusionError::from)?;
            let values = checks::evaluated(context, statement, &batch, &[expr]).await?;
            given[at] = Some(cast(&values[0], &column.data_type, &column.name)?);
        }
    }
    let columns: Vec<ArrayRef> = given.into_iter().flatten().collect();
    checks::not_null("", definition, &columns)?;
    Ok(RecordBatch::try_new(definition.schema(), columns).map_err(DataFusionError::from)?)
}
