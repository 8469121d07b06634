//! The constraints of a table, checked for the rows that a statement would add or change.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::DataFusionError;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, Expr, Ident};

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::statements::run::{self, Temporary};
use crate::statements::tables::table::{Column, Definition, Key};

/// Checks NOT NULL and CHECK for some rows.
///
/// # Errors
/// Returns an error that names the value and the constraint.
pub(crate) async fn rows(
    context: &SessionContext,
    statement: &Statement,
    table: &str,
    definition: &Definition,
    rows: &RecordBatch,
) -> Result<(), EngineError> {
    not_null(table, definition, rows.columns())?;
    let rules: Vec<Expr> = definition.columns.iter().filter_map(rule).collect();
    let exprs: Vec<&Expr> = definition.checks.iter().map(|check| &check.expr).chain(&rules).collect();
    if exprs.is_empty() || rows.num_rows() == 0 {
        return Ok(());
    }
    let results = evaluated(context, statement, rows, &exprs).await?;
    for (check, result) in definition.checks.iter().zip(results) {
        let result =
            datafusion::arrow::compute::cast(&result, &datafusion::arrow::datatypes::DataType::Boolean)
                .map_err(DataFusionError::from)?;
        let result = result.as_boolean();
        // NULL does not violate a CHECK.
        if let Some(at) = (0..result.len()).find(|at| result.is_valid(*at) && !result.value(*at)) {
            let name = check.name.as_ref().map_or(String::new(), |name| format!("{name} "));
            return Err(violated(
                table,
                &format!("row ({})", shown(rows, at)?),
                &format!("{name}CHECK ({})", check.expr),
            ));
        }
    }
    Ok(())
}

/// Returns an expression that fails for a value that the type of its column does not have.
fn rule(column: &Column) -> Option<Expr> {
    let value = Expr::Identifier(Ident::with_quote('"', &column.name));
    let cast = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value.clone()),
        data_type: column.rules.clone()?,
        array: false,
        format: None,
    };
    Some(Expr::BinaryOp { left: Box::new(cast), op: BinaryOperator::Eq, right: Box::new(value) })
}

/// Checks NOT NULL.
///
/// # Errors
/// Returns an error that names the column.
pub(crate) fn not_null(
    table: &str,
    definition: &Definition,
    columns: &[ArrayRef],
) -> Result<(), EngineError> {
    for (column, values) in definition.columns.iter().zip(columns) {
        if column.not_null && values.null_count() > 0 {
            return Err(violated(
                table,
                &format!("NULL in column {}", column.name),
                "its NOT NULL constraint",
            ));
        }
    }
    Ok(())
}

fn violated(table: &str, value: &str, constraint: &str) -> EngineError {
    let table = if table.is_empty() { "the table".to_string() } else { format!("table {table}") };
    EngineError::Failed(format!("cannot change {table}: {value} violates {constraint}; no row was changed"))
}

/// Returns the error for a key that occurs twice.
pub(crate) fn duplicate(
    table: &str,
    definition: &Definition,
    key: &Key,
    rows: &RecordBatch,
    at: usize,
) -> EngineError {
    let names: Vec<&str> = key.columns.iter().map(|c| definition.columns[*c].name.as_str()).collect();
    let kind = if key.primary { "PRIMARY KEY" } else { "UNIQUE" };
    let values = rows.project(&key.columns).map_err(DataFusionError::from);
    match values.map_err(EngineError::from).and_then(|values| shown(&values, at)) {
        Ok(values) => {
            violated(table, &format!("duplicate key {values}"), &format!("{kind} ({})", names.join(", ")))
        }
        Err(error) => error,
    }
}

/// Returns the values of a row as text.
pub(crate) fn shown(rows: &RecordBatch, at: usize) -> Result<String, EngineError> {
    let options = FormatOptions::default().with_null("NULL");
    let mut values = Vec::new();
    for column in rows.columns() {
        let formatter = ArrayFormatter::try_new(column, &options).map_err(DataFusionError::from)?;
        values.push(formatter.value(at).to_string());
    }
    Ok(values.join(", "))
}

/// Computes expressions over rows.
///
/// # Errors
/// Returns the errors of the expressions, with their places.
pub(crate) async fn evaluated(
    context: &SessionContext,
    statement: &Statement,
    rows: &RecordBatch,
    exprs: &[&Expr],
) -> Result<Vec<ArrayRef>, EngineError> {
    let source = Temporary::rows(context, rows.clone())?;
    let text: Vec<String> =
        exprs.iter().enumerate().map(|(n, expr)| format!("({expr}) AS \"__{n}\"")).collect();
    let query = run::query(&format!("SELECT {} FROM {}", text.join(", "), run::name(&source.name)))?;
    let computed = run::compute(context, statement, query).await?;
    Ok(computed.columns().to_vec())
}

/// The rows of a table by the values of a key. NULL is not equal to NULL.
pub(crate) struct Index {
    rows: HashMap<OwnedRow, usize>,
    converter: RowConverter,
    columns: Vec<usize>,
}

impl Index {
    /// Creates an index without rows.
    ///
    /// # Errors
    /// Returns an error if a column's type has no order.
    pub(crate) fn new(definition: &Definition, key: &Key) -> Result<Self, DataFusionError> {
        let field = |c: &usize| SortField::new(definition.columns[*c].data_type.clone());
        let converter = RowConverter::new(key.columns.iter().map(field).collect())?;
        Ok(Self { rows: HashMap::new(), converter, columns: key.columns.clone() })
    }

    /// Returns the key of each row; `None` if a value is NULL.
    ///
    /// # Errors
    /// Returns an error if the rows have other types.
    pub(crate) fn keys(&self, rows: &RecordBatch) -> Result<Vec<Option<OwnedRow>>, DataFusionError> {
        let columns: Vec<ArrayRef> = self.columns.iter().map(|c| rows.column(*c).clone()).collect();
        let converted = self.converter.convert_columns(&columns)?;
        let key = |at: usize| columns.iter().all(|c| c.is_valid(at)).then(|| converted.row(at).owned());
        Ok((0..rows.num_rows()).map(key).collect())
    }

    /// Returns the row with a key.
    pub(crate) fn get(&self, key: &OwnedRow) -> Option<usize> {
        self.rows.get(key).copied()
    }

    /// Adds a row. Returns false if its key exists.
    pub(crate) fn insert(&mut self, key: OwnedRow, row: usize) -> bool {
        match self.rows.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(row);
                true
            }
        }
    }
}

/// Checks that no key of a table occurs twice.
///
/// # Errors
/// Returns an error that names the key.
pub(crate) fn unique(table: &str, definition: &Definition, rows: &RecordBatch) -> Result<(), EngineError> {
    for key in &definition.keys {
        let mut index = Index::new(definition, key)?;
        for (at, value) in index.keys(rows)?.into_iter().enumerate() {
            if let Some(value) = value
                && !index.insert(value, at)
            {
                return Err(duplicate(table, definition, key, rows, at));
            }
        }
    }
    Ok(())
}
