//! Finds the files of a table, and their format by extension.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::ListingTableUrl;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::lakes::{self, Lake};
use crate::tables::{content, paths, streams};

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Json,
    Parquet,
    Arrow,
}

impl Format {
    /// Returns DataFusion's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }
}

fn failed<T>(message: String) -> Result<T> {
    Err(DataFusionError::Execution(message))
}

/// Returns the format of a file extension.
pub(crate) fn format_by_extension(extension: &str) -> Option<Format> {
    Some(match extension.to_ascii_lowercase().as_str() {
        "parquet" | "parq" | "pq" => Format::Parquet,
        "csv" | "tsv" | "txt" => Format::Csv,
        "json" | "jsonl" | "ndjson" => Format::Json,
        "arrow" | "arrows" | "ipc" | "feather" => Format::Arrow,
        _ => return None,
    })
}

pub(crate) fn compression(extension: &str) -> Option<&'static str> {
    Some(match extension.to_ascii_lowercase().as_str() {
        "gz" | "gzip" => "gzip",
        "bz2" => "bzip2",
        "xz" => "xz",
        "zst" | "zstd" => "zstd",
        _ => return None,
    })
}

/// Returns DataFusion's name of a compression.
pub(crate) fn compression_type(name: Option<&str>) -> FileCompressionType {
    match name {
        Some("gzip") => FileCompressionType::GZIP,
        Some("bzip2") => FileCompressionType::BZIP2,
        Some("xz") => FileCompressionType::XZ,
        Some("zstd") => FileCompressionType::ZSTD,
        _ => FileCompressionType::UNCOMPRESSED,
    }
}

/// The files at a location.
pub(crate) struct FileListing {
    pub url: ListingTableUrl,
    pub store: Arc<dyn ObjectStore>,
    /// All files of the folder (or the pattern's folder), whatever their names.
    pub files: Vec<ObjectMeta>,
    /// The format of the folder if it is a table of a lake.
    pub lake: Option<Lake>,
    /// The format by content, if names do not say it.
    pub kind: Option<Kind>,
    /// True for a pipe, of which the file is a copy.
    pub is_stream: bool,
}

impl FileListing {
    /// Returns the path of a file as the user would write it; `place` is the place that was listed.
    pub(crate) fn shown(&self, place: &str, file: &ObjectMeta) -> String {
        if self.is_stream { place.to_string() } else { paths::shown(place, &self.url, &file.location) }
    }
}

/// Lists the files at `place`.
///
/// # Errors
/// Returns an error if no file matches, or none can be read.
pub(crate) async fn find(state: &dyn Session, place: &str) -> Result<FileListing> {
    if !streams::is_stream(place) {
        check_local(place)?;
    }
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
pub(crate) async fn list(state: &dyn Session, place: &str) -> Result<FileListing> {
    let (readable, is_stream) = (streams::readable(state, place).await?, streams::is_stream(place));
    let url = paths::parse(&readable)?;
    let store = state.runtime_env().object_store(&url)?;
    if is_stream || paths::is_web(place) {
        let file = store.head(url.prefix()).await?;
        let kind = match kind_of(&file) {
            Some(_) if !is_stream => None,
            _ => Some(content::kind(&store, &file).await?),
        };
        return Ok(FileListing { url, store, files: vec![file], lake: None, kind, is_stream });
    }
    let folder = with_store_key(ListingTableUrl::try_new(AsRef::<url::Url>::as_ref(&url).clone(), None)?);
    let files: Vec<ObjectMeta> =
        folder.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
    // The user may name a folder of a store without its trailing slash. Some programs keep an empty object of its name.
    let is_file = |file: &ObjectMeta| file.location == *url.prefix() && file.size > 0;
    let is_below = |file: &ObjectMeta| file.location != *url.prefix();
    let url = match !url.is_collection() && !files.iter().any(is_file) && files.iter().any(is_below) {
        true => paths::folder(&url)?,
        false => url,
    };
    let matching = paths::matching_files(&url, &files, "")?;
    let lake = lakes::find(place, &url, &store, &files, &matching).await?;
    Ok(FileListing { url, store, files, lake, kind: None, is_stream })
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

/// The format and compression of a table's files.
pub(crate) struct Kind {
    pub format: Format,
    pub compressed: Option<&'static str>,
    /// File extension, with the dots and the compression's.
    pub extension: String,
}

impl Kind {
    /// Returns the kind if its files can be read.
    ///
    /// # Errors
    /// Returns an error for compressed Parquet and Arrow files: they compress internally, and an outer compression
    /// prevents reads of ranges.
    pub(crate) fn checked(self, place: &str) -> Result<Self> {
        match (self.compressed, self.format) {
            (Some(_), Format::Parquet | Format::Arrow) => failed(format!(
                "{place}: cannot read a compressed {} file; decompress it first",
                self.format.name()
            )),
            _ => Ok(self),
        }
    }
}

/// Infers the format of `files` from their names. Files with an unknown extension are ignored.
///
/// # Errors
/// Returns an error if no extension is known, or more than one.
pub(crate) fn infer_kind(place: &str, files: &[&ObjectMeta]) -> Result<Kind> {
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
    kinds.sort_by_key(|(kind, files)| (kind.format != Format::Parquet, std::cmp::Reverse(*files)));
    let mut kinds = kinds.into_iter().map(|(kind, _)| kind);
    let kind = kinds.next();
    if let (Some(kind), Some(other)) = (&kind, kinds.next()) {
        return failed(format!(
            "{place}: the files have different formats, {} and {}; use a pattern that ends in *{}",
            kind.extension, other.extension, kind.extension
        ));
    }
    match kind {
        Some(kind) => kind.checked(place),
        None => failed(format!(
            "{place}: cannot infer the format of {}; use the extension .parquet, .csv, .tsv, .txt, .json, \
             .jsonl, .arrow or .feather (text also with .gz, .bz2, .xz, .zst), or CREATE EXTERNAL TABLE … \
             STORED AS",
            files.first().and_then(|f| f.location.filename()).unwrap_or_default()
        )),
    }
}

/// Returns the format of a file, if its extension is known.
pub(crate) fn kind_of(file: &ObjectMeta) -> Option<Kind> {
    kind_from_name(file.location.filename()?)
}

/// Returns the compression of a file, by its extension.
pub(crate) fn compression_of(file: &ObjectMeta) -> Option<&'static str> {
    compression(file.location.extension()?)
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

/// Checks that a local path that is not a pattern can be read.
pub(crate) fn check_local(place: &str) -> Result<()> {
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
        assert_eq!(kind("a.b.CSV.gz"), Some((Format::Csv, Some("gzip"), ".CSV.gz".to_string())));
        assert_eq!(kind("a.parquet"), Some((Format::Parquet, None, ".parquet".to_string())));
        assert_eq!((kind("parquet"), kind("a.xlsx"), kind("a.gz")), (None, None, None));
    }
}
