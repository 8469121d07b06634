//! Creates tables from files: a file, a folder (Hive-partitioned or not), a glob or a pipe, local or remote.
//!
//! The extension determines the format, and a second one the compression (`.csv.gz`). Common
//! mistakes (a missing file, a pattern without a match, an empty file, an unknown extension) are
//! reported with the path before DataFusion sees the files.

pub(crate) mod calls;
mod content;
mod csv;
mod files;
pub(crate) mod find;
pub(crate) mod formats;
mod found;
mod hive;
pub(crate) mod input;
pub(crate) mod json;
pub(crate) mod lake;
pub(crate) mod lazy;
mod open;
pub(crate) mod options;
pub(crate) mod paths;
pub(crate) mod streams;
mod text;

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, UrlTableFactory};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::context::SessionState;
use futures::TryStreamExt;
use object_store::ObjectStore;

pub(crate) use crate::tables::files::FilesTable;
pub(crate) use crate::tables::find::check;
pub(crate) use crate::tables::open::listing;

use crate::lakes;
use crate::logical::nearest::nearest;
use crate::tables::options::FileOptions;

/// A table factory for `FROM 'path'`.
#[derive(Default)]
pub(crate) struct PathTables {
    /// Returns the session of the query; set once the session is built.
    pub session: OnceLock<Box<dyn Fn() -> Option<SessionState> + Send + Sync>>,
}

impl PathTables {
    pub(crate) fn state(&self) -> Option<SessionState> {
        self.session.get().and_then(|session| session())
    }
}

impl fmt::Debug for PathTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathTables")
    }
}

#[async_trait]
impl UrlTableFactory for PathTables {
    async fn try_new(&self, url: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let call = lakes::call::parse(url)?;
        if call.is_none() && !looks_like_a_path(url) {
            return Ok(None);
        }
        match (self.state(), call) {
            (Some(state), Some(call)) => lake::called(&state, &call).await.map(Some),
            (Some(state), None) => {
                listing(&state, &[url.to_string()], &FileOptions::default()).await.map(Some)
            }
            (None, _) => Ok(None),
        }
    }
}

/// Returns true for a name that can only be a path.
fn looks_like_a_path(name: &str) -> bool {
    name == "-"
        || name.contains(['/', '*', '?'])
        || name.rsplit_once('.').is_some_and(|(_, extension)| {
            find::format_by_extension(extension).is_some() || find::compression(extension).is_some()
        })
}

fn failed<T>(message: String) -> Result<T> {
    Err(DataFusionError::Execution(message))
}

/// Checks that an output folder is empty: new files would add rows to the table of those it has.
///
/// # Errors
/// Returns an error if the folder has files that are not hidden, or cannot be listed.
pub(crate) async fn check_empty(state: &dyn Session, place: &str, target: &str) -> Result<()> {
    let folder = paths::folder(&ListingTableUrl::parse(target)?)?;
    let store = state.runtime_env().object_store(&folder)?;
    let mut files = store.list(Some(folder.prefix()));
    loop {
        let file = match files.try_next().await {
            Ok(Some(file)) => file,
            Ok(None) | Err(object_store::Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let in_log = lakes::is_log_file(&file.location).then_some(&file);
        let visible = paths::matching_files(&folder, std::slice::from_ref(&file), "")?;
        if let Some(file) = visible.first().copied().or(in_log) {
            return failed(format!(
                "cannot write to {place}: the folder is not empty (it has {}); choose another folder, or \
                 remove its files (to add rows: CREATE EXTERNAL TABLE, then INSERT INTO)",
                paths::name(&folder, &file.location)
            ));
        }
    }
}

/// Returns the table name of a "table not found" error, without catalog and schema.
fn missing_table(error: &DataFusionError) -> Option<&str> {
    let DataFusionError::Plan(text) = error.find_root() else { return None };
    let name = text.strip_prefix("table '")?.strip_suffix("' not found")?;
    name.splitn(3, '.').last()
}

/// A replacement for a table name that is not registered.
pub(crate) struct StandIn {
    /// The name in the query.
    pub name: String,
    /// The registered table, or the folder, to read instead.
    pub table: String,
    /// True if only a quoted name may be replaced.
    pub quoted: bool,
}

/// Finds a table whose name differs only in case, or a folder of that name.
pub(crate) fn stand_in(state: &SessionState, error: &DataFusionError) -> Option<StandIn> {
    let name = missing_table(error)?.to_string();
    let defaults = &state.config().options().catalog;
    let catalog = state.catalog_list().catalog(&defaults.default_catalog)?;
    let known = catalog.schema(&defaults.default_schema)?.table_names();
    let lower = name.to_lowercase();
    if let Some(table) = known.into_iter().find(|k| *k != name && k.to_lowercase() == lower) {
        return Some(StandIn { name, table, quoted: false });
    }
    let folder = !name.ends_with('/') && std::path::Path::new(&name).is_dir();
    folder.then(|| StandIn { table: format!("{name}/"), name, quoted: true })
}

/// Adds the tables with the most similar names to a "table not found" error.
pub(crate) fn suggest_tables(state: &SessionState, error: DataFusionError) -> DataFusionError {
    let Some(name) = missing_table(&error) else { return error };
    let catalogs = state.catalog_list();
    let mut known: Vec<String> = catalogs
        .catalog_names()
        .iter()
        .filter_map(|c| catalogs.catalog(c))
        .flat_map(|c| c.schema_names().into_iter().filter_map(move |s| c.schema(&s)))
        .flat_map(|schema| schema.table_names())
        .collect();
    known.sort();
    let similar = nearest(name, &known);
    let remedy = if similar.is_empty() {
        "register it with --table NAME=PATH, or query its files: FROM 'path/*.parquet'".to_string()
    } else {
        format!("did you mean {}?", similar.join(", "))
    };
    DataFusionError::Plan(format!("cannot find table {name}; {remedy}"))
}
