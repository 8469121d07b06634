//! Tables out of files: a file, a folder (Hive-partitioned or not) or a glob, local or remote.
//!
//! The format is known from the ending, a compression from a second one (`.csv.gz`). What a
//! person may have got wrong (no such file, nothing matches, an empty file, an unknown ending)
//! is said with the path before DataFusion meets it.

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

use crate::paths;
use crate::text;

/// Makes tables for `FROM 'path'`.
#[derive(Default)]
pub(crate) struct PathTables {
    /// The session that asks; set once it is built.
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
        if !looks_like_a_path(url) {
            return Ok(None);
        }
        let session = self.session.get().and_then(|session| session());
        match session {
            Some(state) => listing(&state, url).await.map(Some),
            None => Ok(None),
        }
    }
}

/// True for what can be no table's name.
fn looks_like_a_path(name: &str) -> bool {
    name.contains(['/', '*', '?'])
        || name
            .rsplit_once('.')
            .is_some_and(|(_, ending)| known(ending).is_some() || compression(ending).is_some())
}

/// DataFusion's name of a format, by ending.
fn known(ending: &str) -> Option<&'static str> {
    Some(match ending.to_ascii_lowercase().as_str() {
        "parquet" | "parq" | "pq" => "parquet",
        "csv" | "tsv" | "txt" => "csv",
        "json" | "jsonl" | "ndjson" => "json",
        "arrow" | "arrows" | "ipc" | "feather" => "arrow",
        _ => return None,
    })
}

fn compression(ending: &str) -> Option<&'static str> {
    Some(match ending.to_ascii_lowercase().as_str() {
        "gz" | "gzip" => "gzip",
        "bz2" => "bzip2",
        "xz" => "xz",
        "zst" | "zstd" => "zstd",
        _ => return None,
    })
}

fn failed<T>(words: String) -> Result<T> {
    Err(DataFusionError::Execution(words))
}

/// What stands at a place.
struct Found {
    url: ListingTableUrl,
    store: Arc<dyn ObjectStore>,
    /// All files there; of a folder, or a pattern's folder, whatever their names.
    files: Vec<ObjectMeta>,
}

/// Looks at `place`.
///
/// # Errors
/// No file there, or none that may be read.
async fn find(state: &dyn Session, place: &str) -> Result<Found> {
    check_local(place)?;
    let url = paths::parse(place)?;
    let store = state.runtime_env().object_store(&url)?;
    let folder = in_its_store(ListingTableUrl::try_new(AsRef::<url::Url>::as_ref(&url).clone(), None)?);
    let files: Vec<ObjectMeta> =
        folder.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
    // A folder of a store may be named without its slash.
    let url = match files.first() {
        Some(file) if !url.is_collection() && file.location != *url.prefix() => paths::folder(&url)?,
        _ => url,
    };
    if paths::meant(&url, &files, "")?.is_empty() {
        return failed(format!("{place}: no file matches; check the path and the pattern"));
    }
    Ok(Found { url, store, files })
}

/// DataFusion remembers listings by this name and the path: without one, by the path alone, whatever the store.
fn in_its_store(url: ListingTableUrl) -> ListingTableUrl {
    let store = pellucid_storage::name(url.as_ref());
    url.with_table_ref(TableReference::bare(store))
}

/// Looks whether a file is at `place`.
///
/// # Errors
/// None is, or none that may be read.
pub(crate) async fn check(state: &dyn Session, place: &str) -> Result<()> {
    find(state, place).await.map(drop)
}

/// Refuses a folder for output that has files: the new ones would be rows of the same table.
///
/// # Errors
/// It has files that are not hidden, or cannot be listed.
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
        if let [file] = paths::meant(&folder, std::slice::from_ref(&file), "")?[..] {
            return failed(format!(
                "cannot write to {place}: it holds files, such as {}, and COPY would add to their rows; remove \
                 them or choose another folder (to add rows: CREATE EXTERNAL TABLE, then INSERT INTO)",
                paths::name(&folder, &file.location)
            ));
        }
    }
}

/// The table of the files at `place`.
///
/// # Errors
/// Nothing there, nothing that may be read, an empty file, an ending that no format has,
/// files that do not fit together.
pub(crate) async fn listing(state: &SessionState, place: &str) -> Result<Arc<dyn TableProvider>> {
    let found = find(state, place).await?;
    let Found { url, store, files: all } = &found;
    let kind = kind_of(place, &paths::meant(url, all, "")?)?;
    let files = paths::meant(url, all, &kind.ending)?;
    let text = kind.format == "csv" || kind.format == "json";
    if let Some(empty) = files.iter().find(|f| f.size == 0 && !text) {
        return failed(format!(
            "{}: the file is empty; remove it or write it again",
            paths::name(url, &empty.location)
        ));
    }
    if files.iter().all(|f| f.size == 0) {
        return failed(format!("{place}: the file is empty; its columns cannot be known"));
    }
    let mut options = HashMap::new();
    if let Some(compressed) = kind.compressed {
        options.insert("format.compression".to_string(), compressed.to_string());
    }
    if kind.ending.to_ascii_lowercase().starts_with(".tsv") {
        options.insert("format.delimiter".to_string(), "\t".to_string());
    }
    if kind.format == "csv" && kind.compressed.is_none() && newlines_in_values(store, &files).await? {
        options.insert("format.newlines_in_values".to_string(), "true".to_string());
    }
    let factory = state
        .get_file_format_factory(kind.format)
        .ok_or_else(|| DataFusionError::Internal(format!("no format {}", kind.format)))?;
    let format = factory.create(state, &options)?;
    let urls: Vec<_> = paths::choose(place, url, all, &kind.ending)?.into_iter().map(in_its_store).collect();
    let ending = if url.is_collection() && urls.len() == 1 { kind.ending } else { String::new() };
    let options = ListingOptions::new(Arc::clone(&format)).with_file_extension(ending);
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
    let config = config.infer_partitions_from_path(state).await?;
    let config = match config.infer_schema(state).await {
        Ok(config) => config,
        Err(error) => return Err(misfit(place, &found, &files, error, state, format.as_ref()).await),
    };
    let cache = state.runtime_env().cache_manager.get_file_statistic_cache();
    Ok(Arc::new(ListingTable::try_new(config)?.with_cache(cache)))
}

/// Whether the beginning of the first file that is long enough to be divided has a newline
/// within quotes: such files are read whole.
async fn newlines_in_values(store: &Arc<dyn ObjectStore>, files: &[&ObjectMeta]) -> Result<bool> {
    const LOOK_BYTES: u64 = 256 << 10;
    let Some(file) = files.iter().find(|f| f.size > text::MIN_PIECE_BYTES) else { return Ok(false) };
    let bytes = store.get_range(&file.location, 0..LOOK_BYTES.min(file.size)).await?;
    Ok(text::newline_in_quotes(&bytes))
}

/// Where the schema cannot be had, says which file is in the way.
async fn misfit(
    place: &str,
    found: &Found,
    files: &[&ObjectMeta],
    error: DataFusionError,
    state: &SessionState,
    format: &dyn FileFormat,
) -> DataFusionError {
    let unreadable = "cannot be read as what its name says; check that the file is whole";
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
                    "{place}: its files are not of one schema: column {} has type {} in {} and {} in {}; read \
                     them as two tables, and CAST the column of one",
                    field.name(),
                    first.0,
                    name(first.1),
                    field.data_type(),
                    name(file)
                ));
            }
        }
    }
    error.context(format!("{place}: its {} files cannot be read as one table", files.len()))
}

/// What a table's files are.
struct Kind {
    /// DataFusion's name of it.
    format: &'static str,
    compressed: Option<&'static str>,
    /// Of their names, with the dots.
    ending: String,
}

/// What `files` are by their names. Files of no known ending are left out of a folder.
///
/// # Errors
/// No known ending, or more than one.
fn kind_of(place: &str, files: &[&ObjectMeta]) -> Result<Kind> {
    let mut kinds: Vec<(Kind, usize)> = Vec::new();
    for file in files {
        let name = file.location.filename().unwrap_or_default();
        let Some(kind) = kind_of_name(name) else { continue };
        match kinds.iter_mut().find(|(known, _)| known.ending == kind.ending) {
            Some((_, files)) => *files += 1,
            None => kinds.push((kind, 1)),
        }
    }
    // Parquet first, then what most files are: the others are more likely to lie beside the table.
    kinds.sort_by_key(|(kind, files)| (kind.format != "parquet", std::cmp::Reverse(*files)));
    let mut kinds = kinds.into_iter().map(|(kind, _)| kind);
    let kind = kinds.next();
    if let (Some(kind), Some(other)) = (&kind, kinds.next()) {
        return failed(format!(
            "{place}: there are files of several formats, {} and {}; choose with a pattern that ends in *{}",
            kind.ending, other.ending, kind.ending
        ));
    }
    match kind {
        // Parquet and Arrow compress inside; outside, nothing can be read in pieces.
        Some(kind) if kind.compressed.is_some() && kind.format != "csv" && kind.format != "json" => {
            failed(format!("{place}: {} inside another compression cannot be read; unpack it", kind.format))
        }
        Some(kind) => Ok(kind),
        None => failed(format!(
            "{place}: no format is known by the ending of {}; use .parquet, .csv, .tsv, .txt, .json, .jsonl, \
             .arrow or .feather (text also with .gz, .bz2, .xz, .zst), or CREATE EXTERNAL TABLE … STORED AS",
            files.first().and_then(|f| f.location.filename()).unwrap_or_default()
        )),
    }
}

fn kind_of_name(name: &str) -> Option<Kind> {
    let (rest, last) = name.rsplit_once('.')?;
    let (compressed, kind, ending) = match compression(last) {
        Some(c) => {
            let (_, kind) = rest.rsplit_once('.')?;
            (Some(c), kind, format!(".{kind}.{last}"))
        }
        None => (None, last, format!(".{last}")),
    };
    Some(Kind { format: known(kind)?, compressed, ending })
}

/// The name in an error that says that a table is not there, without catalog and schema.
fn unknown(error: &DataFusionError) -> Option<&str> {
    let DataFusionError::Plan(text) = error.find_root() else { return None };
    let name = text.strip_prefix("table '")?.strip_suffix("' not found")?;
    name.splitn(3, '.').last()
}

/// What a query reads for a table that is not there.
pub(crate) struct StandIn {
    /// As the query names it.
    pub name: String,
    /// What is there.
    pub table: String,
    /// Only a name in quotes can mean it.
    pub quoted: bool,
}

/// A table whose name differs in capitals only, or the folder of that name.
pub(crate) fn stand_in(state: &SessionState, error: &DataFusionError) -> Option<StandIn> {
    let name = unknown(error)?.to_string();
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

/// Says which table may be meant where a name is not known.
pub(crate) fn nearest(state: &SessionState, error: DataFusionError) -> DataFusionError {
    let Some(name) = unknown(&error) else { return error };
    let catalogs = state.catalog_list();
    let mut known: Vec<String> = catalogs
        .catalog_names()
        .iter()
        .filter_map(|c| catalogs.catalog(c))
        .flat_map(|c| c.schema_names().into_iter().filter_map(move |s| c.schema(&s)))
        .flat_map(|schema| schema.table_names())
        .collect();
    known.sort_by_cached_key(|other| (distance(name, other), other.clone()));
    let near: Vec<String> =
        known.into_iter().filter(|k| distance(name, k) <= name.len().max(3) / 3 + 1).take(3).collect();
    let way_out = if near.is_empty() {
        "register it with --table NAME=PATH, or name its files: FROM 'path/*.parquet'".to_string()
    } else {
        format!("did you mean {}?", near.join(", "))
    };
    DataFusionError::Plan(format!("table {name} is not known; {way_out}"))
}

/// Letters that differ between two names (Levenshtein's distance).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let other = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], other);
        }
    }
    row[b.len()]
}

/// Looks at a local path that is no pattern.
fn check_local(place: &str) -> Result<()> {
    if place.contains("://") {
        return Ok(());
    }
    let trouble = |e: std::io::Error| {
        let way_out = match e.kind() {
            // A pattern may match all the same.
            std::io::ErrorKind::NotFound if place.contains(['*', '?', '[']) => return Ok(()),
            std::io::ErrorKind::NotFound => "no such file or directory; check the path",
            std::io::ErrorKind::PermissionDenied => "permission denied; check who may read it",
            _ => return failed(format!("{place}: {e}")),
        };
        failed(format!("{place}: {way_out}"))
    };
    match std::fs::metadata(place) {
        Err(e) => trouble(e),
        Ok(meta) if meta.is_dir() => std::fs::read_dir(place).map(drop).or_else(trouble),
        Ok(_) => std::fs::File::open(place).map(drop).or_else(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_differ_are_counted() {
        let cases =
            [("", "abc", 3), ("oders", "orders", 1), ("orders", "orders", 0), ("ab", "ba", 2), ("ü", "u", 1)];
        for (a, b, expected) in cases {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn endings_say_format_and_compression() {
        let kind = |name| kind_of_name(name).map(|k| (k.format, k.compressed, k.ending));
        assert_eq!(kind("a.b.CSV.gz"), Some(("csv", Some("gzip"), ".CSV.gz".to_string())));
        assert_eq!(kind("a.parquet"), Some(("parquet", None, ".parquet".to_string())));
        assert_eq!((kind("parquet"), kind("a.xlsx"), kind("a.gz")), (None, None, None));
    }
}
