//! Creates tables from files: a file, a folder (Hive-partitioned or not) or a glob, local or remote.
//!
//! The extension determines the format, and a second one the compression (`.csv.gz`). Common
//! mistakes (a missing file, a pattern without a match, an empty file, an unknown extension) are
//! reported with the path before DataFusion sees the files.

pub(crate) mod formats;
pub(crate) mod input;
pub(crate) mod paths;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{Session, TableProvider, UrlTableFactory};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::context::SessionState;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::lakes::{self, Lake, Version};
use crate::logical::candidates::nearest;
use crate::scan::text;

/// A table factory for `FROM 'path'`.
#[derive(Default)]
pub(crate) struct PathTables {
    /// Returns the session of the query; set once the session is built.
    pub session: OnceLock<Box<dyn Fn() -> Option<SessionState> + Send + Sync>>,
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
        let session = self.session.get().and_then(|session| session());
        match (session, call) {
            (Some(state), Some(call)) => called(&state, &call).await.map(Some),
            (Some(state), None) => listing(&state, url).await.map(Some),
            (None, _) => Ok(None),
        }
    }
}

/// Returns true for a name that can only be a path.
fn looks_like_a_path(name: &str) -> bool {
    name.contains(['/', '*', '?'])
        || name.rsplit_once('.').is_some_and(|(_, extension)| {
            format_by_extension(extension).is_some() || compression(extension).is_some()
        })
}

/// Returns DataFusion's name of a format, by file extension.
fn format_by_extension(extension: &str) -> Option<&'static str> {
    Some(match extension.to_ascii_lowercase().as_str() {
        "parquet" | "parq" | "pq" => "parquet",
        "csv" | "tsv" | "txt" => "csv",
        "json" | "jsonl" | "ndjson" => "json",
        "arrow" | "arrows" | "ipc" | "feather" => "arrow",
        _ => return None,
    })
}

fn compression(extension: &str) -> Option<&'static str> {
    Some(match extension.to_ascii_lowercase().as_str() {
        "gz" | "gzip" => "gzip",
        "bz2" => "bzip2",
        "xz" => "xz",
        "zst" | "zstd" => "zstd",
        _ => return None,
    })
}

fn failed<T>(message: String) -> Result<T> {
    Err(DataFusionError::Execution(message))
}

/// The files at a location.
struct FileListing {
    url: ListingTableUrl,
    store: Arc<dyn ObjectStore>,
    /// All files of the folder (or the pattern's folder), whatever their names.
    files: Vec<ObjectMeta>,
    /// The format of the folder if it is a table of a lake.
    lake: Option<Lake>,
}

/// Lists the files at `place`.
///
/// # Errors
/// Returns an error if no file matches, or none can be read.
async fn find(state: &dyn Session, place: &str) -> Result<FileListing> {
    check_local(place)?;
    let found = list(state, place).await?;
    if found.lake.is_none() && paths::matching_files(&found.url, &found.files, "")?.is_empty() {
        return failed(format!("{place}: no file matches; check the path and the pattern"));
    }
    Ok(found)
}

/// Lists the files at `place`, which may have none.
///
/// # Errors
/// Returns an error if the place is invalid or cannot be listed, or has raw files of a table of a lake.
async fn list(state: &dyn Session, place: &str) -> Result<FileListing> {
    let url = paths::parse(place)?;
    let store = state.runtime_env().object_store(&url)?;
    let folder = with_store_key(ListingTableUrl::try_new(AsRef::<url::Url>::as_ref(&url).clone(), None)?);
    let files: Vec<ObjectMeta> =
        folder.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
    // The user may name a folder of a store without its trailing slash.
    let url = match files.first() {
        Some(file) if !url.is_collection() && file.location != *url.prefix() => paths::folder(&url)?,
        _ => url,
    };
    let matching = paths::matching_files(&url, &files, "")?;
    let lake = lakes::find(place, &url, &store, &files, &matching).await?;
    Ok(FileListing { url, store, files, lake })
}

/// Adds the store's name to the key of DataFusion's listing cache, which is otherwise the path alone.
fn with_store_key(url: ListingTableUrl) -> ListingTableUrl {
    let store = pellucid_storage::name(url.as_ref());
    url.with_table_ref(TableReference::bare(store))
}

/// Checks that a file exists at `place`.
///
/// # Errors
/// Returns an error if no file matches, or none can be read.
pub(crate) async fn check(state: &dyn Session, place: &str) -> Result<()> {
    find(state, place).await.map(drop)
}

/// Opens the table of a call of a lake's function.
async fn called(state: &SessionState, call: &lakes::call::Call) -> Result<Arc<dyn TableProvider>> {
    check_local(&call.place)?;
    let found = list(state, &call.place).await?;
    if found.lake != Some(call.lake) {
        return failed(format!("cannot read {}: it is not {}; check the path", call.place, call.lake.a()));
    }
    lakes::open(state, call.lake, &call.place, &found.url, &found.files, call.version).await
}

/// Opens the table of a lake at `place`; `None` if there is none.
///
/// # Errors
/// Returns an error if `place` has raw files of such a table, or the table cannot be read.
pub(crate) async fn lake(state: &dyn Session, place: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let found = list(state, place).await?;
    let Some(lake) = found.lake else { return Ok(None) };
    lakes::open(state, lake, place, &found.url, &found.files, Version::Newest).await.map(Some)
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

/// Creates the table of the files at `place`.
///
/// # Errors
/// Returns an error if no file matches or can be read, a file is empty, no format has the
/// extension, or the schemas of the files differ.
pub(crate) async fn listing(state: &SessionState, place: &str) -> Result<Arc<dyn TableProvider>> {
    let found = find(state, place).await?;
    let FileListing { url, store, files: all, lake } = &found;
    if let Some(lake) = lake {
        return lakes::open(state, *lake, place, url, all, Version::Newest).await;
    }
    let kind = infer_kind(place, &paths::matching_files(url, all, "")?)?;
    let files = paths::matching_files(url, all, &kind.extension)?;
    let text = kind.format == "csv" || kind.format == "json";
    if let Some(empty) = files.iter().find(|f| f.size == 0 && !text) {
        return failed(format!(
            "{}: the file is empty; remove it, or write it again",
            paths::name(url, &empty.location)
        ));
    }
    if files.iter().all(|f| f.size == 0) {
        return failed(format!("{place}: cannot infer columns: the file is empty; write it again"));
    }
    let mut options = HashMap::new();
    if let Some(compressed) = kind.compressed {
        options.insert("format.compression".to_string(), compressed.to_string());
    }
    if kind.extension.to_ascii_lowercase().starts_with(".tsv") {
        options.insert("format.delimiter".to_string(), "\t".to_string());
    }
    if kind.format == "csv" && kind.compressed.is_none() && newlines_in_values(store, &files).await? {
        options.insert("format.newlines_in_values".to_string(), "true".to_string());
    }
    let factory = state
        .get_file_format_factory(kind.format)
        .ok_or_else(|| DataFusionError::Internal(format!("no format {}", kind.format)))?;
    let format = factory.create(state, &options)?;
    let urls: Vec<_> =
        paths::choose(place, url, all, &kind.extension)?.into_iter().map(with_store_key).collect();
    let extension = if url.is_collection() && urls.len() == 1 { kind.extension } else { String::new() };
    let options = ListingOptions::new(Arc::clone(&format)).with_file_extension(extension);
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
    let config = config.infer_partitions_from_path(state).await?;
    let config = match config.infer_schema(state).await {
        Ok(config) => config,
        Err(error) => return Err(schema_error(place, &found, &files, error, state, format.as_ref()).await),
    };
    let cache = state.runtime_env().cache_manager.get_file_statistic_cache();
    Ok(Arc::new(ListingTable::try_new(config)?.with_cache(cache)))
}

/// Returns true if the start of the first file that is long enough to be divided has a newline
/// within quotes. Such files are read whole.
async fn newlines_in_values(store: &Arc<dyn ObjectStore>, files: &[&ObjectMeta]) -> Result<bool> {
    const SAMPLE_BYTES: u64 = 256 << 10;
    let Some(file) = files.iter().find(|f| f.size > text::MIN_PIECE_BYTES) else { return Ok(false) };
    let bytes = store.get_range(&file.location, 0..SAMPLE_BYTES.min(file.size)).await?;
    Ok(text::newline_in_quotes(&bytes))
}

/// Explains an error of schema inference by the file that caused it.
async fn schema_error(
    place: &str,
    found: &FileListing,
    files: &[&ObjectMeta],
    error: DataFusionError,
    state: &SessionState,
    format: &dyn FileFormat,
) -> DataFusionError {
    let unreadable = "cannot read the file in the format of its extension; check that it is complete";
    if files.len() == 1 {
        return error.context(format!("{place}: {unreadable}"));
    }
    let name = |file: &ObjectMeta| paths::name(&found.url, &file.location);
    let mut seen: HashMap<String, (DataType, &ObjectMeta)> = HashMap::new();
    for &file in files {
        let schema = match format.infer_schema(state, &found.store, std::slice::from_ref(file)).await {
            Ok(schema) => schema,
            Err(error) => return error.context(format!("{}: {unreadable}", name(file))),
        };
        for field in schema.fields() {
            let first = seen.entry(field.name().clone()).or_insert_with(|| (field.data_type().clone(), file));
            if first.0 != *field.data_type() {
                return DataFusionError::Execution(format!(
                    "{place}: the files have different schemas: column {} has type {} in {} and {} in {}; \
                     read them as two tables and CAST the column of one",
                    field.name(),
                    first.0,
                    name(first.1),
                    field.data_type(),
                    name(file)
                ));
            }
        }
    }
    error.context(format!("{place}: cannot read the {} files as one table", files.len()))
}

/// The format and compression of a table's files.
struct Kind {
    /// DataFusion's name of the format.
    format: &'static str,
    compressed: Option<&'static str>,
    /// File extension, with the dots and the compression's.
    extension: String,
}

/// Infers the format of `files` from their names. Files with an unknown extension are ignored.
///
/// # Errors
/// Returns an error if no extension is known, or more than one.
fn infer_kind(place: &str, files: &[&ObjectMeta]) -> Result<Kind> {
    let mut kinds: Vec<(Kind, usize)> = Vec::new();
    for file in files {
        let name = file.location.filename().unwrap_or_default();
        let Some(kind) = kind_from_name(name) else { continue };
        match kinds.iter_mut().find(|(known, _)| known.extension == kind.extension) {
            Some((_, files)) => *files += 1,
            None => kinds.push((kind, 1)),
        }
    }
    // Parquet first, then the most frequent format: other files probably do not belong to the table.
    kinds.sort_by_key(|(kind, files)| (kind.format != "parquet", std::cmp::Reverse(*files)));
    let mut kinds = kinds.into_iter().map(|(kind, _)| kind);
    let kind = kinds.next();
    if let (Some(kind), Some(other)) = (&kind, kinds.next()) {
        return failed(format!(
            "{place}: the files have different formats, {} and {}; use a pattern that ends in *{}",
            kind.extension, other.extension, kind.extension
        ));
    }
    match kind {
        // Parquet and Arrow compress internally; an outer compression prevents reads of ranges.
        Some(kind) if kind.compressed.is_some() && kind.format != "csv" && kind.format != "json" => {
            failed(format!("{place}: cannot read a compressed {} file; decompress it first", kind.format))
        }
        Some(kind) => Ok(kind),
        None => failed(format!(
            "{place}: cannot infer the format of {}; use the extension .parquet, .csv, .tsv, .txt, .json, \
             .jsonl, .arrow or .feather (text also with .gz, .bz2, .xz, .zst), or CREATE EXTERNAL TABLE … \
             STORED AS",
            files.first().and_then(|f| f.location.filename()).unwrap_or_default()
        )),
    }
}

fn kind_from_name(name: &str) -> Option<Kind> {
    let (rest, last) = name.rsplit_once('.')?;
    let (compressed, kind, extension) = match compression(last) {
        Some(c) => {
            let (_, kind) = rest.rsplit_once('.')?;
            (Some(c), kind, format!(".{kind}.{last}"))
        }
        None => (None, last, format!(".{last}")),
    };
    Some(Kind { format: format_by_extension(kind)?, compressed, extension })
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

/// Checks that a local path that is not a pattern can be read.
fn check_local(place: &str) -> Result<()> {
    if place.contains("://") {
        return Ok(());
    }
    let explain = |e: std::io::Error| {
        let message = match e.kind() {
            // The pattern is matched later.
            std::io::ErrorKind::NotFound if place.contains(['*', '?', '[']) => return Ok(()),
            std::io::ErrorKind::NotFound => "no such file or directory; check the path",
            std::io::ErrorKind::PermissionDenied => "permission denied; check the permissions of the path",
            _ => return failed(format!("{place}: {e}")),
        };
        failed(format!("{place}: {message}"))
    };
    match std::fs::metadata(place) {
        Err(e) => explain(e),
        Ok(meta) if meta.is_dir() => std::fs::read_dir(place).map(drop).or_else(explain),
        Ok(_) => std::fs::File::open(place).map(drop).or_else(explain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_determines_format_and_compression() {
        let kind = |name| kind_from_name(name).map(|k| (k.format, k.compressed, k.extension));
        assert_eq!(kind("a.b.CSV.gz"), Some(("csv", Some("gzip"), ".CSV.gz".to_string())));
        assert_eq!(kind("a.parquet"), Some(("parquet", None, ".parquet".to_string())));
        assert_eq!((kind("parquet"), kind("a.xlsx"), kind("a.gz")), (None, None, None));
    }
}
