//! Tables out of files: a file, a folder (Hive-partitioned or not) or a glob, local or remote.
//!
//! The format is known from the ending, a compression from a second one (`.csv.gz`). What a
//! person may have got wrong (no such file, nothing matches, an empty file, an unknown ending)
//! is said with the path before DataFusion meets it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::catalog::{TableProvider, UrlTableFactory};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::context::SessionState;
use futures::TryStreamExt;
use object_store::ObjectMeta;

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
        || name.rsplit_once('.').is_some_and(|(_, ending)| known(ending).is_some() || compression(ending).is_some())
}

/// DataFusion's name of a format, by ending.
fn known(ending: &str) -> Option<&'static str> {
    Some(match ending.to_ascii_lowercase().as_str() {
        "parquet" | "parq" | "pq" => "parquet",
        "csv" | "tsv" | "tbl" | "txt" => "csv",
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

/// The table of the files at `place`.
///
/// # Errors
/// Nothing there, nothing that may be read, an empty file, an ending that no format has,
/// files that do not fit together.
pub(crate) async fn listing(state: &SessionState, place: &str) -> Result<Arc<dyn TableProvider>> {
    check_local(place)?;
    let url = ListingTableUrl::parse(place)?;
    let store = state.runtime_env().object_store(&url)?;
    let files: Vec<ObjectMeta> =
        url.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
    let files: Vec<&ObjectMeta> = files
        .iter()
        .filter(|f| f.location.filename().is_some_and(|n| !n.starts_with(['_', '.'])))
        .collect();
    let Some(first) = files.first() else {
        return failed(format!("{place}: no file matches; check the path and the pattern"));
    };
    let (format, compressed, ending) = format_of(place, first)?;
    if let Some(empty) = files.iter().find(|f| f.size == 0 && format != "csv" && format != "json") {
        return failed(format!("/{}: the file is empty; remove it or write it again", empty.location));
    }
    if files.iter().all(|f| f.size == 0) {
        return failed(format!("{place}: the file is empty; its columns cannot be known"));
    }
    let mut options = HashMap::new();
    if let Some(compressed) = compressed {
        options.insert("format.compression".to_string(), compressed.to_string());
    }
    if ending.starts_with(".tsv") {
        options.insert("format.delimiter".to_string(), "\t".to_string());
    }
    let factory = state
        .get_file_format_factory(format)
        .ok_or_else(|| DataFusionError::Internal(format!("no format {format}")))?;
    let options = ListingOptions::new(factory.create(state, &options)?)
        .with_file_extension(if url.is_collection() { ending } else { String::new() });
    let config = ListingTableConfig::new(url).with_listing_options(options);
    let config = config.infer_partitions_from_path(state).await?;
    let config = config.infer_schema(state).await.map_err(|e| misfit(place, &files, e))?;
    let cache = state.runtime_env().cache_manager.get_file_statistic_cache();
    Ok(Arc::new(ListingTable::try_new(config)?.with_cache(cache)))
}

/// Where the schema cannot be had, says which files are meant.
fn misfit(place: &str, files: &[&ObjectMeta], error: DataFusionError) -> DataFusionError {
    let context = if files.len() == 1 {
        format!("{place}: cannot be read as what its name says; check that the file is whole")
    } else {
        format!("{place}: its {} files cannot be read as one table", files.len())
    };
    error.context(context)
}

/// Format, compression and the whole ending of a file.
fn format_of(place: &str, file: &ObjectMeta) -> Result<(&'static str, Option<&'static str>, String)> {
    let name = file.location.filename().unwrap_or_default();
    let mut endings = name.rsplit('.');
    let last = endings.next().unwrap_or_default();
    let (compressed, kind, ending) = match compression(last) {
        Some(c) => {
            let kind = endings.next().unwrap_or_default();
            (Some(c), kind, format!(".{kind}.{last}"))
        }
        None => (None, last, format!(".{last}")),
    };
    match known(kind) {
        Some(format) => {
            // Parquet and Arrow compress inside; outside, nothing can be read in pieces.
            if compressed.is_some() && format != "csv" && format != "json" {
                return failed(format!("{place}: {format} inside another compression cannot be read; unpack it"));
            }
            Ok((format, compressed, ending))
        }
        None => failed(format!(
            "{place}: no format is known by the ending of {name}; use .parquet, .csv, .tsv, .json, .jsonl or .arrow \
             (text also with .gz, .bz2, .xz, .zst), or CREATE EXTERNAL TABLE … STORED AS"
        )),
    }
}

/// Looks at a local path that is no pattern.
fn check_local(place: &str) -> Result<()> {
    if place.contains("://") || place.contains(['*', '?', '[']) {
        return Ok(());
    }
    let trouble = |e: std::io::Error| {
        let way_out = match e.kind() {
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
