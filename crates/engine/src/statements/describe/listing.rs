//! Queries that list databases, schemas, tables and columns.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::TableType;
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::Query;

use crate::EngineError;
use crate::statements::describe::columns::{self, Described};
use crate::statements::run::{self, TEMPORARY};
use crate::statements::syntax::words::quoted;
use crate::statements::tables::table::Table;

/// The functions of DuckDB that list parts of the catalog.
pub(crate) const FUNCTIONS: [&str; 8] = [
    "duckdb_tables",
    "duckdb_views",
    "duckdb_columns",
    "duckdb_schemas",
    "__show_tables",
    "__show_all_tables",
    "__show_databases",
    "__show_schemas",
];

const INFORMATION: &str = "information_schema";

/// A table of the catalog and its names.
struct Listed {
    catalog: String,
    schema: String,
    name: String,
    provider: Arc<dyn TableProvider>,
}

impl Listed {
    fn is_view(&self) -> bool {
        self.provider.table_type() == TableType::View
    }

    fn temporary(&self) -> bool {
        self.provider.downcast_ref::<Table>().is_some_and(|table| table.definition.temporary)
    }

    /// Returns catalog, schema and name as texts.
    fn names(&self) -> Vec<String> {
        vec![quoted(&self.catalog), quoted(&self.schema), quoted(&self.name)]
    }

    fn columns(&self) -> Vec<Described> {
        columns::of_table(self.provider.as_ref())
    }
}

/// Returns the query of a view or function; `None` if it is unknown.
///
/// # Errors
/// Returns the errors of the catalog.
pub(crate) async fn query(state: &SessionState, name: &str) -> Result<Option<Box<Query>>, EngineError> {
    let mut tables = listed(state).await?;
    Ok(Some(match name {
        "__show_tables" => {
            tables.sort_by(|a, b| a.name.cmp(&b.name));
            rows(&[("name", "VARCHAR")], tables.iter().map(|t| vec![quoted(&t.name)]).collect())?
        }
        "__show_all_tables" => show_all(&tables)?,
        "__show_databases" => {
            let names = databases(state);
            rows(&[("database_name", "VARCHAR")], names.iter().map(|n| vec![quoted(n)]).collect())?
        }
        "__show_schemas" | "information_schema.schemata" | "duckdb_schemas" => schemas(state, name)?,
        "information_schema.tables" => information_tables(&tables)?,
        "information_schema.columns" | "duckdb_columns" => information_columns(&tables)?,
        "duckdb_tables" => duckdb_tables(&tables)?,
        "duckdb_views" => {
            let names = [("database_name", "VARCHAR"), ("schema_name", "VARCHAR"), ("view_name", "VARCHAR")];
            rows(&names, tables.iter().filter(|t| t.is_view()).map(Listed::names).collect())?
        }
        _ => return Ok(None),
    }))
}

/// Returns the tables and views of the user, in the order of their names.
async fn listed(state: &SessionState) -> Result<Vec<Listed>, EngineError> {
    let mut found = Vec::new();
    let catalogs = state.catalog_list();
    for catalog_name in databases(state) {
        let Some(catalog) = catalogs.catalog(&catalog_name) else { continue };
        for schema_name in catalog.schema_names() {
            let Some(schema) = catalog.schema(&schema_name) else { continue };
            if schema_name == INFORMATION {
                continue;
            }
            for name in schema.table_names() {
                if name.starts_with(TEMPORARY) {
                    continue;
                }
                if let Some(provider) = schema.table(&name).await? {
                    let (catalog, schema) = (catalog_name.clone(), schema_name.clone());
                    found.push(Listed { catalog, schema, name, provider });
                }
            }
        }
    }
    found.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    Ok(found)
}

fn databases(state: &SessionState) -> Vec<String> {
    let mut names = state.catalog_list().catalog_names();
    names.sort();
    names
}

fn show_all(tables: &[Listed]) -> Result<Box<Query>, EngineError> {
    let columns = [
        ("database", "VARCHAR"),
        ("schema", "VARCHAR"),
        ("name", "VARCHAR"),
        ("column_names", ""),
        ("column_types", ""),
        ("temporary", "BOOLEAN"),
    ];
    let list = |values: Vec<String>| format!("make_array({})", values.join(", "));
    let row = |table: &Listed| {
        let of_table = table.columns();
        let names = of_table.iter().map(|c| quoted(&c.name)).collect();
        let kinds = of_table.iter().map(|c| quoted(&c.type_name)).collect();
        [table.names(), vec![list(names), list(kinds), table.temporary().to_string()]].concat()
    };
    rows(&columns, tables.iter().map(row).collect())
}

fn schemas(state: &SessionState, name: &str) -> Result<Box<Query>, EngineError> {
    let defaults = &state.config_options().catalog;
    let mut found = Vec::new();
    for catalog_name in databases(state) {
        let Some(catalog) = state.catalog_list().catalog(&catalog_name) else { continue };
        let mut names = catalog.schema_names();
        names.sort();
        for schema in names.into_iter().filter(|schema| schema != INFORMATION) {
            let current = catalog_name == defaults.default_catalog && schema == defaults.default_schema;
            found.push(vec![quoted(&catalog_name), quoted(&schema), current.to_string()]);
        }
    }
    let first = if name == "information_schema.schemata" { "catalog_name" } else { "database_name" };
    rows(&[(first, "VARCHAR"), ("schema_name", "VARCHAR"), ("current", "BOOLEAN")], found)
}

fn information_tables(tables: &[Listed]) -> Result<Box<Query>, EngineError> {
    let columns = [
        ("table_catalog", "VARCHAR"),
        ("table_schema", "VARCHAR"),
        ("table_name", "VARCHAR"),
        ("table_type", "VARCHAR"),
        ("is_insertable_into", "VARCHAR"),
    ];
    let row = |table: &Listed| {
        let kind = match (table.is_view(), table.temporary()) {
            (true, _) => "VIEW",
            (_, true) => "LOCAL TEMPORARY",
            _ => "BASE TABLE",
        };
        let insertable = if table.is_view() { "NO" } else { "YES" };
        [table.names(), vec![quoted(kind), quoted(insertable)]].concat()
    };
    rows(&columns, tables.iter().map(row).collect())
}

fn information_columns(tables: &[Listed]) -> Result<Box<Query>, EngineError> {
    let columns = [
        ("table_catalog", "VARCHAR"),
        ("table_schema", "VARCHAR"),
        ("table_name", "VARCHAR"),
        ("column_name", "VARCHAR"),
        ("ordinal_position", "INTEGER"),
        ("column_default", "VARCHAR"),
        ("is_nullable", "VARCHAR"),
        ("data_type", "VARCHAR"),
    ];
    let mut found = Vec::new();
    for table in tables {
        for (at, column) in table.columns().iter().enumerate() {
            let default = column.default.as_ref().map_or("NULL".to_string(), |default| quoted(default));
            let nullable = if column.not_null { "NO" } else { "YES" };
            let own = vec![
                quoted(&column.name),
                (at + 1).to_string(),
                default,
                quoted(nullable),
                quoted(&column.type_name),
            ];
            found.push([table.names(), own].concat());
        }
    }
    rows(&columns, found)
}

fn duckdb_tables(tables: &[Listed]) -> Result<Box<Query>, EngineError> {
    let columns = [
        ("database_name", "VARCHAR"),
        ("schema_name", "VARCHAR"),
        ("table_name", "VARCHAR"),
        ("temporary", "BOOLEAN"),
        ("has_primary_key", "BOOLEAN"),
        ("estimated_size", "BIGINT"),
        ("column_count", "BIGINT"),
        ("check_constraint_count", "BIGINT"),
    ];
    let row = |table: &Listed| {
        let own = table.provider.downcast_ref::<Table>();
        let rows = own.map_or("NULL".to_string(), |t| {
            t.batches.iter().map(|b| b.num_rows()).sum::<usize>().to_string()
        });
        let own_values = vec![
            table.temporary().to_string(),
            own.is_some_and(|t| t.definition.keys.iter().any(|key| key.primary)).to_string(),
            rows,
            table.provider.schema().fields().len().to_string(),
            own.map_or(0, |t| t.definition.checks.len()).to_string(),
        ];
        [table.names(), own_values].concat()
    };
    rows(&columns, tables.iter().filter(|t| !t.is_view()).map(row).collect())
}

/// Returns the query of DESCRIBE.
///
/// # Errors
/// Returns an error if the query cannot be made.
pub(crate) fn describe(columns: &[Described]) -> Result<Box<Query>, EngineError> {
    let names =
        ["column_name", "column_type", "null", "key", "default", "extra"].map(|name| (name, "VARCHAR"));
    let row = |column: &Described| {
        let or_null = |value: Option<&str>| value.map_or("NULL".to_string(), quoted);
        vec![
            quoted(&column.name),
            quoted(&column.type_name),
            quoted(if column.not_null { "NO" } else { "YES" }),
            or_null(column.key),
            or_null(column.default.as_deref()),
            "NULL".to_string(),
        ]
    };
    rows(&names, columns.iter().map(row).collect())
}

/// Returns the query of `PRAGMA table_info`.
///
/// # Errors
/// Returns an error if the query cannot be made.
pub(crate) fn table_info(columns: &[Described]) -> Result<Box<Query>, EngineError> {
    let names = [
        ("cid", "INTEGER"),
        ("name", "VARCHAR"),
        ("type", "VARCHAR"),
        ("notnull", "BOOLEAN"),
        ("dflt_value", "VARCHAR"),
        ("pk", "BOOLEAN"),
    ];
    let row = |(at, column): (usize, &Described)| {
        vec![
            at.to_string(),
            quoted(&column.name),
            quoted(&column.type_name),
            column.not_null.to_string(),
            column.default.as_deref().map_or("NULL".to_string(), quoted),
            (column.key == Some("PRI")).to_string(),
        ]
    };
    rows(&names, columns.iter().enumerate().map(row).collect())
}

/// Returns a query of these rows, whose values are expressions. A column without a type has that of its values.
fn rows(columns: &[(&str, &str)], rows: Vec<Vec<String>>) -> Result<Box<Query>, EngineError> {
    let value = |(at, (name, kind)): (usize, &(&str, &str))| {
        let from = if rows.is_empty() { "NULL".to_string() } else { format!("c{at}") };
        let kind = if rows.is_empty() && kind.is_empty() { "VARCHAR" } else { kind };
        match kind.is_empty() {
            true => format!("{from} AS \"{name}\""),
            false => format!("CAST({from} AS {kind}) AS \"{name}\""),
        }
    };
    let select = columns.iter().enumerate().map(value).collect::<Vec<_>>().join(", ");
    if rows.is_empty() {
        return Ok(run::query(&format!("SELECT {select} WHERE false"))?);
    }
    let names = (0..columns.len()).map(|at| format!("c{at}")).collect::<Vec<_>>().join(", ");
    let values = rows.iter().map(|row| format!("({})", row.join(", "))).collect::<Vec<_>>().join(", ");
    Ok(run::query(&format!("SELECT {select} FROM (VALUES {values}) AS r ({names})"))?)
}
