//! Rows of an INSERT whose key exists: ON CONFLICT, OR REPLACE and OR IGNORE.

use std::ops::ControlFlow;

use datafusion::arrow::array::{ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::compute::{interleave_record_batch, take_record_batch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, DoUpdate, Expr, Ident, Insert, OnConflictAction, OnInsert,
    Spanned, SqliteOnConflict, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::statements::run::{self, Temporary};
use crate::statements::tables::checks::{self, Index};
use crate::statements::tables::insert::{complete, last, target};
use crate::statements::tables::returning::{aliased, column, query_of};
use crate::statements::tables::table::{Definition, ROW, Table, numbered};
use crate::types::cast::cast;

/// The treatment of a row whose key exists.
#[expect(clippy::large_enum_variant, reason = "a statement has one")]
pub(crate) enum Policy {
    Error,
    /// It is left out; with a key, only if it has this key.
    Ignore(Option<usize>),
    /// It replaces the row.
    Replace,
    /// The row is changed.
    Update {
        key: usize,
        assignments: Vec<(usize, Expr)>,
        selection: Option<Expr>,
    },
}

impl Policy {
    /// Returns the policy of an INSERT.
    ///
    /// # Errors
    /// Returns an error with its place if it names no key of the table.
    pub(crate) fn of(
        statement: &Statement,
        definition: &Definition,
        insert: &Insert,
    ) -> Result<Self, EngineError> {
        let span = insert.table.span();
        match insert.or {
            None if insert.ignore => return Ok(Self::Ignore(None)),
            None => {}
            Some(SqliteOnConflict::Ignore) => return Ok(Self::Ignore(None)),
            Some(SqliteOnConflict::Replace) => {
                return match definition.keys.len() {
                    1 => Ok(Self::Replace),
                    0 => Err(statement.refuse(
                        span,
                        "cannot use OR REPLACE: the table has no PRIMARY KEY or UNIQUE; add one",
                    )),
                    _ => Err(statement.refuse(
                        span,
                        "cannot use OR REPLACE: the table has several keys; use ON CONFLICT (…) DO UPDATE",
                    )),
                };
            }
            Some(other) => {
                return Err(statement
                    .refuse(span, &format!("INSERT {other} is not supported; use OR IGNORE or OR REPLACE")));
            }
        }
        let conflict = match &insert.on {
            None => return Ok(Self::Error),
            Some(OnInsert::OnConflict(conflict)) => conflict,
            Some(_) => {
                return Err(statement
                    .refuse(span, "ON DUPLICATE KEY is not supported; use ON CONFLICT (…) DO UPDATE"));
            }
        };
        let key = match &conflict.conflict_target {
            None => None,
            Some(ConflictTarget::Columns(columns)) => Some(key_of(statement, definition, columns)?),
            Some(ConflictTarget::OnConstraint(name)) => {
                return Err(
                    statement.refuse(name.span(), "ON CONSTRAINT is not supported; list the key's columns")
                );
            }
        };
        match (&conflict.action, key) {
            (OnConflictAction::DoNothing, key) => Ok(Self::Ignore(key)),
            (OnConflictAction::DoUpdate(update), Some(key)) => {
                Self::update(statement, definition, update, key)
            }
            (OnConflictAction::DoUpdate(update), None) if definition.keys.len() == 1 => {
                Self::update(statement, definition, update, 0)
            }
            (OnConflictAction::DoUpdate(_), None) => {
                Err(statement
                    .refuse(span, "ON CONFLICT DO UPDATE needs the columns of a key: ON CONFLICT (…)"))
            }
        }
    }

    fn update(
        statement: &Statement,
        definition: &Definition,
        update: &DoUpdate,
        key: usize,
    ) -> Result<Self, EngineError> {
        let assignments = assignments(statement, definition, &update.assignments)?;
        Ok(Self::Update { key, assignments, selection: update.selection.clone() })
    }
}

/// Returns the key with these columns.
fn key_of(statement: &Statement, definition: &Definition, columns: &[Ident]) -> Result<usize, EngineError> {
    let mut wanted = Vec::new();
    for column in columns {
        wanted.push(target(statement, definition, column, column.span)?);
    }
    wanted.sort_unstable();
    let same = |key: &crate::statements::tables::table::Key| {
        let mut of_key = key.columns.clone();
        of_key.sort_unstable();
        of_key == wanted
    };
    definition.keys.iter().position(same).ok_or_else(|| {
        let span = columns.first().map_or(Span::empty(), |c| c.span);
        let names: Vec<String> = columns.iter().map(|c| c.value.clone()).collect();
        let message = format!(
            "cannot use ON CONFLICT ({}): this PRIMARY KEY or UNIQUE does not exist; name another, or add it",
            names.join(", ")
        );
        statement.refuse(span, &message)
    })
}

/// Returns the columns that assignments set, and their values.
///
/// # Errors
/// Returns an error with its place if a column is unknown or set twice.
pub(crate) fn assignments(
    statement: &Statement,
    definition: &Definition,
    assignments: &[Assignment],
) -> Result<Vec<(usize, Expr)>, EngineError> {
    let mut set: Vec<(usize, Expr)> = Vec::new();
    for assignment in assignments {
        let pairs = match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => vec![(name, value)],
            (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
                names.iter().zip(values).collect()
            }
            (AssignmentTarget::Tuple(names), _) => {
                let span = names.first().map_or(Span::empty(), Spanned::span);
                return Err(
                    statement.refuse(span, "several columns need as many values: SET (a, b) = (1, 2)")
                );
            }
        };
        for (name, value) in pairs {
            let at = target(statement, definition, &last(name), name.span())?;
            if set.iter().any(|(other, _)| *other == at) {
                return Err(statement.refuse(name.span(), &format!("column {name} is set twice; remove one")));
            }
            let value = if super::insert::is_default(value) {
                super::insert::default_of(definition, at)
            } else {
                value.clone()
            };
            set.push((at, value));
        }
    }
    Ok(set)
}

/// Rows of an INSERT beside those of the table.
pub(crate) struct Conflict<'a> {
    pub context: &'a SessionContext,
    pub statement: &'a Statement,
    pub alias: &'a Ident,
    pub table: &'a Table,
}

impl Conflict<'_> {
    /// Returns the table with the rows, and the rows that were inserted or changed.
    ///
    /// # Errors
    /// Returns an error that names the key if one occurs twice and the policy does not allow it.
    pub(crate) async fn resolve(
        &self,
        policy: &Policy,
        rows: RecordBatch,
    ) -> Result<(Table, RecordBatch), EngineError> {
        let definition = &self.table.definition;
        if definition.keys.is_empty() {
            return Ok((self.table.with_rows(rows.clone())?, rows));
        }
        let existing = self.table.all()?;
        let sorted = self.sorted(policy, &existing, &rows)?;
        let fresh = taken(&rows, &sorted.fresh)?;
        if sorted.conflicts.is_empty() {
            return Ok((self.table.with_rows(fresh.clone())?, fresh));
        }
        let (ids, changed) = self.changed(policy, &existing, &rows, &sorted.conflicts).await?;
        checks::rows(self.context, self.statement, &self.alias.value, definition, &changed).await?;
        let merged = merged(&existing, &ids, &changed)?;
        let affected = concat(&fresh, &changed)?;
        let table = Table::new(definition.clone(), vec![merged])?.with_rows(fresh)?;
        checks::unique(&self.alias.value, definition, &table.all()?)?;
        Ok((table, affected))
    }

    /// Sorts the rows into new ones and those whose key exists.
    fn sorted(
        &self,
        policy: &Policy,
        existing: &RecordBatch,
        rows: &RecordBatch,
    ) -> Result<Sorted, EngineError> {
        let definition = &self.table.definition;
        let mut indices = Vec::new();
        for key in &definition.keys {
            let mut index = Index::new(definition, key)?;
            for (at, value) in index.keys(existing)?.into_iter().enumerate() {
                if let Some(value) = value {
                    index.insert(value, at);
                }
            }
            let keys = index.keys(rows)?;
            indices.push((index, keys));
        }
        let old = existing.num_rows();
        let mut sorted = Sorted::default();
        for row in 0..rows.num_rows() {
            let hit =
                |(index, keys): &(Index, Vec<Option<_>>)| keys[row].as_ref().and_then(|key| index.get(key));
            let hits: Vec<Option<usize>> = indices.iter().map(hit).collect();
            let Some(key) = hits.iter().position(Option::is_some) else {
                for (index, keys) in &mut indices {
                    if let Some(value) = keys[row].clone() {
                        index.insert(value, old + row);
                    }
                }
                sorted.fresh.push(row as u64);
                continue;
            };
            let twice = || checks::duplicate(&self.alias.value, definition, &definition.keys[key], rows, row);
            match (policy, hits[key]) {
                (Policy::Error, _) | (_, None) => return Err(twice()),
                (Policy::Ignore(None), _) => {}
                (Policy::Ignore(Some(wanted)) | Policy::Update { key: wanted, .. }, _)
                    if hits[*wanted].is_none() =>
                {
                    return Err(twice());
                }
                (Policy::Ignore(_), _) => {}
                // Of several rows of one statement, the first stays.
                (Policy::Replace, Some(hit)) if hit >= old => {}
                (Policy::Replace, Some(hit)) if sorted.changes(hit) => {}
                (Policy::Replace, Some(hit)) => sorted.conflicts.push((hit as u64, row as u64)),
                (Policy::Update { key, .. }, _) => {
                    let hit = hits[*key].unwrap_or_default();
                    if hit >= old || sorted.changes(hit) {
                        return Err(twice());
                    }
                    sorted.conflicts.push((hit as u64, row as u64));
                }
            }
        }
        Ok(sorted)
    }

    /// Returns the numbers of the rows that change, and their new values.
    async fn changed(
        &self,
        policy: &Policy,
        existing: &RecordBatch,
        rows: &RecordBatch,
        conflicts: &[(u64, u64)],
    ) -> Result<(Vec<u64>, RecordBatch), EngineError> {
        let (ids, incoming): (Vec<u64>, Vec<u64>) = conflicts.iter().copied().unzip();
        let incoming = taken(rows, &incoming)?;
        let Policy::Update { assignments, selection, .. } = policy else { return Ok((ids, incoming)) };
        let before = taken(existing, &ids)?;
        let old = Temporary::rows(self.context, numbered(&before)?)?;
        let new = Temporary::rows(self.context, numbered(&incoming)?)?;
        let excluded = Ident::new("excluded");
        let own = |expr: &Expr| qualified(expr, self.alias);
        let mut query = query_of(&old.name, self.alias, |select| {
            select.projection = vec![aliased(column(self.alias, ROW), ROW)];
            let set = assignments
                .iter()
                .enumerate()
                .map(|(n, (_, value))| aliased(own(value), &format!("__set_{n}")));
            select.projection.extend(set);
        })?;
        let join = format!("SELECT 1 FROM {} AS excluded WHERE 1 = 1", run::name(&new.name));
        let other = run::query(&join)?;
        let on = Expr::BinaryOp {
            left: Box::new(column(self.alias, ROW)),
            op: datafusion::sql::sqlparser::ast::BinaryOperator::Eq,
            right: Box::new(column(&excluded, ROW)),
        };
        let filter = match selection {
            Some(selection) => Expr::BinaryOp {
                left: Box::new(on),
                op: datafusion::sql::sqlparser::ast::BinaryOperator::And,
                right: Box::new(Expr::Nested(Box::new(own(selection)))),
            },
            None => on,
        };
        use datafusion::sql::sqlparser::ast::SetExpr::Select;
        if let (Select(select), Select(other)) = (query.body.as_mut(), *other.body) {
            select.from.extend(other.from);
            select.selection = Some(filter);
        }
        let computed = run::compute(self.context, self.statement, query).await?;
        let at: Vec<u64> = computed.column(0).as_primitive::<UInt64Type>().values().to_vec();
        let ids = at.iter().filter_map(|at| ids.get(*at as usize).copied()).collect();
        let columns: Vec<usize> = assignments.iter().map(|(column, _)| *column).collect();
        let changed = with_values(
            self.context,
            self.statement,
            &self.table.definition,
            &taken(&before, &at)?,
            &columns,
            &computed.columns()[1..],
        )
        .await?;
        Ok((ids, changed))
    }
}

/// Rows of an INSERT.
#[derive(Default)]
struct Sorted {
    /// Those whose keys are new.
    fresh: Vec<u64>,
    /// The number of the existing row, and of the one with the same key.
    conflicts: Vec<(u64, u64)>,
}

impl Sorted {
    /// Returns true if an existing row changes already.
    fn changes(&self, row: usize) -> bool {
        self.conflicts.iter().any(|(other, _)| *other == row as u64)
    }
}

/// Returns an expression whose columns without a table are those of `table`.
pub(crate) fn qualified(expr: &Expr, table: &Ident) -> Expr {
    struct Qualify<'a>(&'a Ident);
    impl VisitorMut for Qualify<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
            if let Expr::Identifier(name) = expr {
                *expr = Expr::CompoundIdentifier(vec![self.0.clone(), name.clone()]);
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    // `Break` is `Infallible`.
    let _ = expr.visit(&mut Qualify(table));
    expr
}

/// Returns rows with other values in some columns, and with their generated columns.
///
/// # Errors
/// Returns an error that names the value if one does not fit.
pub(crate) async fn with_values(
    context: &SessionContext,
    statement: &Statement,
    definition: &Definition,
    rows: &RecordBatch,
    columns: &[usize],
    values: &[ArrayRef],
) -> Result<RecordBatch, EngineError> {
    let mut given: Vec<Option<ArrayRef>> = definition
        .columns
        .iter()
        .zip(rows.columns())
        .map(|(column, values)| column.generated.is_none().then(|| values.clone()))
        .collect();
    for (at, values) in columns.iter().zip(values) {
        let of = &definition.columns[*at];
        given[*at] = Some(cast(values, &of.data_type, &of.name)?);
    }
    complete(context, statement, definition, given, rows.num_rows()).await
}

/// Returns the rows with these numbers.
///
/// # Errors
/// Returns an error if a number is too large.
pub(crate) fn taken(rows: &RecordBatch, at: &[u64]) -> Result<RecordBatch, DataFusionError> {
    Ok(take_record_batch(rows, &UInt64Array::from(at.to_vec()))?)
}

/// Returns the rows, of which some are replaced by the changed ones.
///
/// # Errors
/// Returns an error if the schemas differ.
pub(crate) fn merged(
    rows: &RecordBatch,
    ids: &[u64],
    changed: &RecordBatch,
) -> Result<RecordBatch, DataFusionError> {
    let mut at: Vec<(usize, usize)> = (0..rows.num_rows()).map(|row| (0, row)).collect();
    for (number, id) in ids.iter().enumerate() {
        if let Some(place) = usize::try_from(*id).ok().and_then(|id| at.get_mut(id)) {
            *place = (1, number);
        }
    }
    Ok(interleave_record_batch(&[rows, changed], &at)?)
}

fn concat(one: &RecordBatch, other: &RecordBatch) -> Result<RecordBatch, DataFusionError> {
    Ok(datafusion::arrow::compute::concat_batches(&one.schema(), [one, other])?)
}
