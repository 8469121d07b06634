//! Delta Lake and Iceberg tables: folders with a log that says which files and rows count.
//!
//! The metadata of both formats is read here, not by delta-rs or iceberg-rust. The `iceberg` crate needs another Arrow
//! than DataFusion 55, so that every Arrow crate would be compiled twice. `deltalake-core` fits, but brings
//! `delta_kernel`, an engine of its own, to read lines of JSON and a Parquet file. The formats of the metadata are
//! small and specified ([Delta](https://github.com/delta-io/delta/blob/master/PROTOCOL.md),
//! [Iceberg](https://iceberg.apache.org/spec/)), and a feature that is not known here is refused by its name.
//!
//! Opening a table reads its log or its metadata, and gives a [`LakeTable`](table::LakeTable). Its scan prunes files by
//! their partitions and statistics, and becomes DataFusion's Parquet scan of the other files, which the engine divides
//! as any other. Deleted rows are left out with a `ParquetAccessPlan`.
//!
//! ```text
//! delta   ─ log of JSON lines and Parquet checkpoints ─┐            ┌─ prune      files by bounds
//!                                                      ├─ table ────┼─ layout     columns by name or field id
//! iceberg ─ metadata.json, Avro manifests ─────────────┘            └─ positions  deleted rows
//! ```
//!
//! A folder of such a table is never read as raw files, since rows that were removed would come back: it is read as the
//! table, and patterns over its files are errors ([`find`]).

mod bitmap;
pub(crate) mod call;
mod column;
mod delta;
mod files;
mod iceberg;
mod layout;
mod positions;
mod prune;
mod rename;
mod root;
pub(crate) mod table;

use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTableUrl;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

pub(crate) use root::Root;

/// The folder of a Delta table's log.
const DELTA_LOG: &str = "_delta_log";
/// The folder of an Iceberg table's metadata.
const ICEBERG_METADATA: &str = "metadata";

/// A format of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lake {
    Delta,
    Iceberg,
}

impl Lake {
    /// The name with its article.
    pub(crate) fn a(self) -> &'static str {
        match self {
            Self::Delta => "a Delta table",
            Self::Iceberg => "an Iceberg table",
        }
    }
}

/// Maximum number of concurrent reads while a table is opened or planned.
const CONCURRENCY: usize = 16;

/// Waits for reads, some at a time, and returns their results in order.
async fn all<T>(reads: Vec<BoxFuture<'_, Result<T>>>) -> Result<Vec<T>> {
    futures::stream::iter(reads).buffered(CONCURRENCY).try_collect().await
}

fn failed(message: String) -> DataFusionError {
    DataFusionError::Execution(message)
}

/// A version of a table other than the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Newest,
    /// A Delta version, or the id of an Iceberg snapshot.
    Number(i64),
}

/// Returns the folder of the table that a file of a log or of metadata belongs to.
fn root_of(location: &Path) -> Option<(Lake, Path)> {
    let text = location.as_ref();
    let folder = |name: &str| {
        let at = text.rfind(&format!("/{name}/")).map(|at| (at, at + name.len() + 2));
        at.or_else(|| text.starts_with(&format!("{name}/")).then_some((0, name.len() + 1)))
    };
    let root = |end: usize| Path::parse(&text[..end]).ok();
    if let Some((end, file)) = folder(DELTA_LOG) {
        let name = &text[file..];
        return (name.ends_with(".json") || name.ends_with(".parquet"))
            .then(|| root(end).map(|root| (Lake::Delta, root)))?;
    }
    let (end, file) = folder(ICEBERG_METADATA)?;
    let name = &text[file..];
    (is_iceberg_metadata(name) && !name.contains('/')).then(|| root(end).map(|root| (Lake::Iceberg, root)))?
}

/// Returns true for the name of a file with an Iceberg table's metadata.
fn is_iceberg_metadata(name: &str) -> bool {
    name.ends_with(".metadata.json") || name.ends_with(".metadata.json.gz")
}

/// Returns true for a file below `root` that belongs to the table's log rather than to its data.
fn is_log(root: &Path, location: &Path) -> bool {
    let below =
        location.prefix_match(root).and_then(|mut parts| parts.next().map(|p| p.as_ref().to_string()));
    below.is_some_and(|first| first == DELTA_LOG || first == ICEBERG_METADATA)
}

/// Finds the table of a folder, or of an Iceberg metadata file. `files` lists everything in the folder of `url`, and
/// `chosen` those that would be read without this module.
///
/// # Errors
/// Returns an error if `chosen` has raw files of a table.
pub(crate) async fn find(
    place: &str,
    url: &ListingTableUrl,
    store: &Arc<dyn ObjectStore>,
    files: &[ObjectMeta],
    chosen: &[&ObjectMeta],
) -> Result<Option<Lake>> {
    if !url.is_collection() {
        let name = url.prefix().filename().unwrap_or_default();
        return Ok(is_iceberg_metadata(name).then_some(Lake::Iceberg));
    }
    let mut roots: Vec<(Lake, Path)> = Vec::new();
    for (lake, root) in files.iter().filter_map(|file| root_of(&file.location)) {
        match roots.iter_mut().find(|(_, known)| *known == root) {
            // A Delta table may have Iceberg metadata as well.
            Some((known, _)) if lake == Lake::Delta => *known = lake,
            Some(_) => {}
            None => roots.push((lake, root)),
        }
    }
    if url.get_glob().is_none()
        && let Some((lake, _)) = roots.iter().find(|(_, root)| root == url.prefix())
    {
        return Ok(Some(*lake));
    }
    let raw =
        |root: &Path| chosen.iter().any(|f| f.location.prefix_matches(root) && !is_log(root, &f.location));
    if let Some((lake, root)) = roots.iter().find(|(_, root)| raw(root)) {
        return Err(refusal(place, url, *lake, root));
    }
    for folder in above(url.prefix()) {
        if let Some(lake) = lake_in(store, &folder).await?
            && raw(&folder)
        {
            return Err(refusal(place, url, lake, &folder));
        }
    }
    Ok(None)
}

/// Returns the error for raw files of the table in `root`.
fn refusal(place: &str, url: &ListingTableUrl, lake: Lake, root: &Path) -> DataFusionError {
    let folder = crate::tables::paths::name(url, root);
    failed(format!(
        "cannot read {place}: {folder} is {}, whose log says which of its files and rows count; read FROM '{folder}/'",
        lake.a()
    ))
}

/// Returns the folders above a folder of partitions or of data that may be a table.
fn above(folder: &Path) -> Vec<Path> {
    let parent = |path: &Path| {
        let parts: Vec<_> = path.parts().collect();
        Path::from_iter(parts[..parts.len().saturating_sub(1)].to_vec())
    };
    let mut at = folder.clone();
    while at.filename().is_some_and(|name| name.contains('=')) {
        at = parent(&at);
    }
    let mut found = Vec::new();
    if at.filename() == Some("data") {
        found.push(parent(&at));
    }
    if at != *folder {
        found.push(at);
    }
    found.retain(|path| !path.as_ref().is_empty());
    found
}

/// Looks for the log of a table in `folder`.
async fn lake_in(store: &Arc<dyn ObjectStore>, folder: &Path) -> Result<Option<Lake>> {
    for name in [DELTA_LOG, ICEBERG_METADATA] {
        let listed = match store.list_with_delimiter(Some(&folder.clone().join(name))).await {
            Ok(listed) => listed,
            Err(object_store::Error::NotFound { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let found = listed.objects.iter().filter_map(|file| root_of(&file.location));
        if let Some((lake, _)) = found.into_iter().find(|(_, root)| root == folder) {
            return Ok(Some(lake));
        }
    }
    Ok(None)
}

/// Returns true if `location` is part of a table's log; then the folder is not empty for an output.
pub(crate) fn is_log_file(location: &Path) -> bool {
    root_of(location).is_some()
}

/// Opens the table at `url`, whose folder has `files`.
///
/// # Errors
/// Returns an error if the table's log is incomplete or damaged, or needs a feature that is not supported.
pub(crate) async fn open(
    state: &dyn Session,
    lake: Lake,
    place: &str,
    url: &ListingTableUrl,
    files: &[ObjectMeta],
    version: Version,
) -> Result<Arc<dyn TableProvider>> {
    let store = state.runtime_env().object_store(url)?;
    let table = match lake {
        Lake::Delta => {
            let root = Root::new(place, url, url.prefix().clone(), store);
            let table = delta::open(&root, files, version).await;
            match table {
                // Another program may have cleaned its log up since the folder was listed.
                Err(error) if is_missing(&error) => {
                    let files = root.list(&Path::parse(DELTA_LOG)?).await?;
                    delta::open(&root, &files, version).await?
                }
                table => table?,
            }
        }
        Lake::Iceberg => {
            let (folder, file) = iceberg::places(url);
            let root = Root::new(place, url, folder, store);
            iceberg::open(&root, file.as_ref(), files, version).await?
        }
    };
    Ok(Arc::new(table))
}

fn is_missing(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ObjectStore(e)
        if matches!(e.as_ref(), object_store::Error::NotFound { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(location: &str) -> Option<(Lake, String)> {
        root_of(&Path::parse(location).unwrap()).map(|(lake, root)| (lake, root.to_string()))
    }

    #[test]
    fn tables_are_found_by_the_files_of_their_logs() {
        assert_eq!(root("a/t/_delta_log/00000000000000000000.json"), Some((Lake::Delta, "a/t".to_string())));
        assert_eq!(root("_delta_log/00000000000000000000.json"), Some((Lake::Delta, String::new())));
        assert_eq!(root("t/metadata/v3.metadata.json"), Some((Lake::Iceberg, "t".to_string())));
        assert_eq!(root("t/metadata/00001-x.metadata.json.gz"), Some((Lake::Iceberg, "t".to_string())));
        for other in
            ["t/metadata/notes.json", "t/metadata/x/v1.metadata.json", "t/_delta_log/x.crc", "t/a.parquet"]
        {
            assert_eq!(root(other), None, "{other}");
        }
    }

    #[test]
    fn folders_above_partitions_and_data_may_be_tables() {
        let above = |p: &str| above(&Path::parse(p).unwrap()).iter().map(Path::to_string).collect::<Vec<_>>();
        assert_eq!(above("w/t/p=1/q=2"), ["w/t"]);
        assert_eq!(above("w/t/data/p=1"), ["w/t", "w/t/data"]);
        assert_eq!(above("w/t/data"), ["w/t"]);
        assert!(above("w/t").is_empty() && above("data").is_empty());
    }
}
