//! Steps that statements share: queries from text, temporary tables, queries over rows in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::Int64Array;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParserBuilder, Statement as Tree};
use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::sql::dialect::Pellucid;
use crate::sql::statements::Statement;
use crate::statements::syntax::words::spelled;
use crate::{EngineError, logical};

/// Columns and rows of a result.
pub(crate) type Rows = (SchemaRef, Vec<RecordBatch>);

/// Returns no columns: the result of a statement without rows.
pub(crate) fn nothing() -> Rows {
    (Arc::new(Schema::empty()), Vec::new())
}

/// Returns the number of rows that a statement changed.
pub(crate) fn count(rows: usize) -> Result<Rows, EngineError> {
    let schema = Arc::new(Schema::new(vec![Field::new("Count", DataType::Int64, false)]));
    let rows = Int64Array::from(vec![i64::try_from(rows).unwrap_or(i64::MAX)]);
    let batch =
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(rows)]).map_err(DataFusionError::from)?;
    Ok((schema, vec![batch]))
}

/// Parses a query that the engine wrote.
///
/// # Errors
/// Returns an error if the text is not a query.
pub(crate) fn query(text: &str) -> Result<Box<Query>, DataFusionError> {
    if let Tree::Statement(inner) = parsed(text)?
        && let SqlStatement::Query(query) = *inner
    {
        return Ok(query);
    }
    Err(DataFusionError::Internal(format!("not a query: {text}")))
}

/// Parses a statement that the engine wrote.
///
/// # Errors
/// Returns an error if the text does not parse.
pub(crate) fn parsed(text: &str) -> Result<Tree, DataFusionError> {
    // Without places, since they would be those of another text.
    let mut parser = DFParserBuilder::new(spelled(text, Span::empty())).with_dialect(&Pellucid).build()?;
    let tree = parser.parse_statements()?.pop_front();
    tree.ok_or_else(|| DataFusionError::Internal(format!("no statement: {text}")))
}

/// Returns the statement of a query.
pub(crate) fn as_tree(query: Box<Query>) -> Tree {
    Tree::Statement(Box::new(SqlStatement::Query(query)))
}

/// Returns a name within double quotes.
pub(crate) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Prefix of the names of tables that exist while a statement runs.
pub(crate) const TEMPORARY: &str = "__rows_";

/// A table that is registered while a statement runs.
pub(crate) struct Temporary {
    context: SessionContext,
    pub name: String,
}

impl Temporary {
    /// Registers a table under a name of its own.
    ///
    /// # Errors
    /// Returns the error of the catalog.
    pub(crate) fn register(
        context: &SessionContext,
        table: Arc<dyn TableProvider>,
    ) -> Result<Self, DataFusionError> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{TEMPORARY}{}", NEXT.fetch_add(1, Ordering::Relaxed));
        context.register_table(TableReference::bare(name.clone()), table)?;
        Ok(Self { context: context.clone(), name })
    }

    /// Registers rows.
    ///
    /// # Errors
    /// Returns the error of the catalog.
    pub(crate) fn rows(context: &SessionContext, rows: RecordBatch) -> Result<Self, DataFusionError> {
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
        Self::register(context, Arc::new(table))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It is registered, so this cannot fail.
        let _ = self.context.deregister_table(TableReference::bare(self.name.clone()));
    }
}

/// Runs a query over tables in memory, beside the job: it computes defaults, constraints and RETURNING for
/// the few rows that a statement changes.
///
/// # Errors
/// Returns the errors of the query, with their places in the statement.
pub(crate) async fn compute(
    context: &SessionContext,
    statement: &Statement,
    query: Box<Query>,
) -> Result<RecordBatch, EngineError> {
    let state = context.state();
    let statement = statement.with_tree(as_tree(query));
    let (plan, labels) = logical::plan(&state, &statement, &std::sync::Arc::default()).await?;
    let frame = DataFrame::new(state, plan);
    let schema: SchemaRef = Arc::clone(frame.schema().inner());
    let batches = frame.collect().await?;
    let schema = batches.first().map_or(schema, RecordBatch::schema);
    let batch = concat_batches(&schema, &batches).map_err(DataFusionError::from)?;
    let shown = |field: &Arc<Field>| match labels.get(field.name()) {
        Some(label) => Arc::new(field.as_ref().clone().with_name(label)),
        None => Arc::clone(field),
    };
    let schema = Schema::new(schema.fields().iter().map(shown).collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec()).map_err(DataFusionError::from)?)
}
