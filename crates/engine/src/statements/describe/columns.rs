//! The columns of queries and tables.

use std::collections::HashMap;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::Query;

use crate::EngineError;
use crate::logical;
use crate::sql::statements::Statement;
use crate::statements::describe::source::only_table;
use crate::statements::run::as_tree;
use crate::statements::tables::table::{Definition, Table, find};
use crate::types::names::name_of;

/// A column, and what its table declares about it.
pub(crate) struct Described {
    /// The name in the result.
    pub name: String,
    /// The name in the plan, which differs if several columns have one name.
    pub plan_name: String,
    pub data_type: DataType,
    /// DuckDB's name of the type.
    pub type_name: String,
    pub not_null: bool,
    /// `PRI`, `UNI` or none.
    pub key: Option<&'static str>,
    pub default: Option<String>,
}

/// Returns the columns of a query.
///
/// # Errors
/// Returns an error with its place if the query is invalid.
pub(crate) async fn of_query(
    state: &SessionState,
    statement: &Statement,
    query: Box<Query>,
) -> Result<Vec<Described>, EngineError> {
    let table = match only_table(&query) {
        Some(name) => find(state, name).await?,
        None => None,
    };
    let definition = table.as_ref().and_then(|found| found.table()).map(|table| table.definition.clone());
    let inner = statement.with_tree(as_tree(query));
    let (plan, labels) = logical::plan(state, &inner, &std::sync::Arc::default()).await?;
    let plan = match state.optimize(&plan) {
        Ok(plan) => plan,
        Err(error) => {
            return Err(logical::explain_physical(state, &inner, &std::sync::Arc::default(), error).await);
        }
    };
    let fields = plan.schema().fields();
    Ok(fields.iter().map(|field| described(field, definition.as_ref(), &labels)).collect())
}

fn described(field: &Field, definition: Option<&Definition>, labels: &HashMap<String, String>) -> Described {
    let name = field.name();
    let column = definition.and_then(|d| d.columns.iter().find(|c| c.name == *name));
    let at = definition.and_then(|d| d.columns.iter().position(|c| c.name == *name));
    let keys = definition.map(|d| &d.keys[..]).unwrap_or_default();
    let has = |primary: bool| {
        keys.iter().any(|key| key.primary == primary && at.is_some_and(|at| key.columns.contains(&at)))
    };
    Described {
        name: labels.get(name).unwrap_or(name).clone(),
        plan_name: name.clone(),
        data_type: field.data_type().clone(),
        type_name: name_of(field),
        not_null: column.is_some_and(|c| c.not_null),
        key: if has(true) { Some("PRI") } else { has(false).then_some("UNI") },
        default: column
            .and_then(|c| c.default.as_ref().or(c.generated.as_ref()))
            .map(|expr| expr.to_string()),
    }
}

/// Returns the columns of a table of the catalog.
pub(crate) fn of_table(provider: &dyn datafusion::catalog::TableProvider) -> Vec<Described> {
    let definition = provider.downcast_ref::<Table>().map(|table| &table.definition);
    let schema = provider.schema();
    let none = HashMap::new();
    schema.fields().iter().map(|field| described(field, definition, &none)).collect()
}
