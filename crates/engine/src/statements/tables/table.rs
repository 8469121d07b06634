//! A table in memory, with the constraints of its rows.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session as CatalogSession, TableProvider};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::{MemTable, TableType};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::Expr as PlanExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Expr, ObjectName};

use crate::types::names::{TEXT_KIND, text_kind};

/// Rows up to which two batches are joined to one.
const BATCH_ROWS: usize = 8192;

/// Name of the column with the number of each row, in [`Table::numbered`].
pub(crate) const ROW: &str = "__row";

/// A column as declared.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub name: String,
    pub data_type: DataType,
    pub not_null: bool,
    pub default: Option<Expr>,
    /// `GENERATED ALWAYS AS (…)`; computed when a row is inserted or changed.
    pub generated: Option<Expr>,
    /// A type that is stored as text, whose values are checked: JSON, UUID, BIT or ENUM.
    pub rules: Option<SqlType>,
}

/// `CHECK (…)`.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    pub name: Option<String>,
    pub expr: Expr,
}

/// `PRIMARY KEY (…)` or `UNIQUE (…)`.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Indices of columns.
    pub columns: Vec<usize>,
    pub primary: bool,
}

/// The columns and constraints of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Definition {
    pub columns: Vec<Column>,
    pub checks: Vec<Check>,
    pub keys: Vec<Key>,
    pub temporary: bool,
}

impl Definition {
    pub(crate) fn schema(&self) -> SchemaRef {
        let field = |c: &Column| {
            let field = Field::new(&c.name, c.data_type.clone(), !c.not_null);
            match c.rules.as_ref().and_then(text_kind) {
                Some(kind) => field.with_metadata([(TEXT_KIND.to_string(), kind)].into()),
                None => field,
            }
        };
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Returns the index of a column, in any case unless two differ in case alone.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let exact = self.columns.iter().position(|c| c.name == name);
        exact.or_else(|| self.columns.iter().position(|c| c.name.to_lowercase() == name.to_lowercase()))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|c| c.name.clone()).collect()
    }
}

/// A table in memory.
#[derive(Debug)]
pub(crate) struct Table {
    pub definition: Definition,
    pub batches: Vec<RecordBatch>,
    rows: MemTable,
}

impl Table {
    /// Creates a table of rows that have the definition's schema.
    ///
    /// # Errors
    /// Returns an error if the rows have another schema.
    pub(crate) fn new(definition: Definition, batches: Vec<RecordBatch>) -> Result<Self> {
        let rows = MemTable::try_new(definition.schema(), vec![batches.clone()])?;
        Ok(Self { definition, batches, rows })
    }

    /// Returns the rows as one batch.
    ///
    /// # Errors
    /// Returns an error if they do not fit into one batch.
    pub(crate) fn all(&self) -> Result<RecordBatch> {
        Ok(concat_batches(&self.definition.schema(), &self.batches)?)
    }

    /// Returns the table with more rows.
    ///
    /// # Errors
    /// Returns an error if the rows have another schema.
    pub(crate) fn with_rows(&self, more: RecordBatch) -> Result<Self> {
        let mut batches = self.batches.clone();
        match batches.pop() {
            Some(last) if last.num_rows() + more.num_rows() <= BATCH_ROWS => {
                batches.push(concat_batches(&self.definition.schema(), [&last, &more])?);
            }
            last => {
                batches.extend(last);
                batches.push(more);
            }
        }
        Self::new(self.definition.clone(), batches)
    }

    /// Returns the rows with a column that numbers them.
    ///
    /// # Errors
    /// Returns an error if they do not fit into one batch.
    pub(crate) fn numbered(&self) -> Result<RecordBatch> {
        numbered(&self.all()?)
    }
}

/// Adds a column that numbers the rows.
///
/// # Errors
/// Returns an error if the batch is inconsistent.
pub(crate) fn numbered(rows: &RecordBatch) -> Result<RecordBatch> {
    let mut fields: Vec<Arc<Field>> = rows.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ROW, DataType::UInt64, false)));
    let numbers = UInt64Array::from_iter_values(0..rows.num_rows() as u64);
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns.push(Arc::new(numbers));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.definition.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn CatalogSession,
        projection: Option<&Vec<usize>>,
        filters: &[PlanExpr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.rows.scan(state, projection, filters, limit).await
    }
}

/// A table of the catalog.
pub(crate) struct Found {
    pub reference: TableReference,
    pub provider: Arc<dyn TableProvider>,
}

impl Found {
    /// Returns the table if it is one in memory, whose rows can be changed.
    pub(crate) fn table(&self) -> Option<&Table> {
        self.provider.downcast_ref::<Table>()
    }
}

/// Returns the reference that a name of the statement means: names that are not quoted keep their case only if
/// a table with it exists.
pub(crate) fn reference(name: &ObjectName) -> Result<TableReference> {
    datafusion::sql::planner::object_name_to_table_reference(name.clone(), true)
}

/// Finds a table or a view, in any case.
///
/// # Errors
/// Returns the errors of the catalog.
pub(crate) async fn find(state: &SessionState, name: &ObjectName) -> Result<Option<Found>> {
    let reference = reference(name)?;
    let Ok(schema) = state.schema_for_ref(reference.clone()) else { return Ok(None) };
    let wanted = reference.table().to_string();
    let names = schema.table_names();
    let known = match names.contains(&wanted) {
        true => Some(wanted),
        false => names.into_iter().find(|other| other.to_lowercase() == wanted.to_lowercase()),
    };
    let Some(known) = known else { return Ok(None) };
    let Some(provider) = schema.table(&known).await? else { return Ok(None) };
    Ok(Some(Found { reference: renamed(&reference, &known), provider }))
}

/// Returns the reference with another name of the table.
pub(crate) fn renamed(reference: &TableReference, table: &str) -> TableReference {
    match (reference.catalog(), reference.schema()) {
        (Some(catalog), Some(schema)) => TableReference::full(catalog, schema, table),
        (None, Some(schema)) => TableReference::partial(schema, table),
        _ => TableReference::bare(table),
    }
}

/// Puts a table into the catalog in place of another one.
///
/// # Errors
/// Returns an error if the schema does not exist.
pub(crate) fn put(
    context: &SessionContext,
    reference: &TableReference,
    table: Arc<dyn TableProvider>,
) -> Result<()> {
    context.deregister_table(reference.clone())?;
    context.register_table(reference.clone(), table)?;
    Ok(())
}

/// Replaces the rows of a table that no other statement has changed since `before` was read.
///
/// # Errors
/// Returns an error if the table was changed meanwhile.
pub(crate) async fn replace(context: &SessionContext, before: &Found, table: Table) -> Result<()> {
    let now = context.table_provider(before.reference.clone()).await?;
    if !Arc::ptr_eq(&now, &before.provider) {
        let message = format!(
            "cannot change {}: another statement has changed it meanwhile; run it again",
            before.reference
        );
        return Err(DataFusionError::Execution(message));
    }
    put(context, &before.reference, Arc::new(table))
}
