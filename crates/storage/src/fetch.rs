//! Downloads objects to local files.
//!
//! An iterative job reads its input once and then works in memory, so its objects are first
//! downloaded in concurrent ranges and then read from disk. Queries do not use this module: they need
//! parts of objects only, which the engine reads from the store.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures::{StreamExt, TryStreamExt};
use object_store::{Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use url::Url;

use crate::backend::StorageError;
use crate::open::open;
use crate::retry::same_version;

/// Bytes of one request, and number of concurrent requests.
const RANGE_BYTES: u64 = 8 << 20;
const CONCURRENCY: usize = 16;

/// An error from downloading objects.
#[derive(Debug)]
pub enum FetchError {
    /// The store could not be opened.
    Open(StorageError),
    /// No object was found.
    Nothing,
    /// The store failed.
    Store(Error),
    /// A local file could not be written.
    File(PathBuf, std::io::Error),
    /// The download was cancelled.
    Cancelled,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::Open(error) => error.fmt(f),
            FetchError::Nothing => f.write_str("no object found; check the bucket and path"),
            FetchError::Store(error) => error.fmt(f),
            FetchError::File(path, error) => {
                write!(f, "cannot write {}: {error}; set TMPDIR to another folder", path.display())
            }
            FetchError::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for FetchError {}

impl From<Error> for FetchError {
    fn from(error: Error) -> Self {
        FetchError::Store(error)
    }
}

/// Downloads the object of a URL, or the objects of a folder, into a local folder, and returns the
/// path of the file or folder. Skips subfolders and hidden objects.
///
/// # Errors
/// Returns an error if the store cannot be opened or read, a file cannot be written, or the download
/// is cancelled.
pub fn fetch(url: &Url, into: &Path, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<PathBuf, FetchError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| FetchError::File(into.to_path_buf(), e))?;
    runtime.block_on(async {
        let store = open(url).map_err(FetchError::Open)?;
        let at = object_store::path::Path::from_url_path(url.path()).map_err(Error::from)?;
        // A path with a trailing slash is a folder; `head` of one fails in store-specific ways.
        let only = match url.path().ends_with('/') {
            true => None,
            false => match store.head(&at).await {
                Err(Error::NotFound { .. }) => None,
                found => Some(found?),
            },
        };
        let is_folder = only.is_none();
        let objects = match only {
            Some(only) => vec![only],
            None => store.list_with_delimiter(Some(&at)).await?.objects,
        };
        let hidden = |o: &ObjectMeta| o.location.filename().is_none_or(|name| name.starts_with(['.', '_']));
        let objects: Vec<ObjectMeta> = objects.into_iter().filter(|o| !is_folder || !hidden(o)).collect();
        let Some(first) = objects.first() else { return Err(FetchError::Nothing) };
        let file = into.join(first.location.filename().unwrap_or("data"));
        download(&store, &objects, into, cancelled).await?;
        Ok(if is_folder { into.to_path_buf() } else { file })
    })
}

/// Downloads all ranges of all objects concurrently.
async fn download(
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectMeta],
    into: &Path,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<(), FetchError> {
    let mut ranges = Vec::new();
    for object in objects {
        let path = into.join(object.location.filename().unwrap_or("data"));
        // Reopened for each range, since a folder may hold more files than the process may keep open.
        File::create(&path).map_err(|e| FetchError::File(path.clone(), e))?;
        let file = Arc::new((path, OnceLock::new()));
        let starts = (0..object.size).step_by(RANGE_BYTES as usize);
        let pieces = starts.map(|start| start..object.size.min(start + RANGE_BYTES));
        ranges.extend(pieces.map(|range| (object.location.clone(), Arc::clone(&file), range)));
    }
    // A local file, and the version of its object as of the first range.
    type Target = Arc<(PathBuf, OnceLock<ObjectMeta>)>;
    let one = |(location, file, range): (object_store::path::Path, Target, std::ops::Range<u64>)| async move {
        if cancelled() {
            return Err(FetchError::Cancelled);
        }
        let asked = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let got = store.get_opts(&location, asked).await?;
        let is_same = same_version(file.1.get_or_init(|| got.meta.clone()), &got.meta);
        if !is_same || got.range != range {
            let source = "the object changed while it was being read; run again".into();
            return Err(Error::Precondition { path: location.to_string(), source }.into());
        }
        let bytes = got.bytes().await?;
        let written = tokio::task::spawn_blocking(move || {
            use std::os::unix::fs::FileExt;
            let opened = OpenOptions::new().write(true).open(&file.0);
            opened
                .and_then(|opened| opened.write_all_at(&bytes, range.start))
                .map_err(|e| FetchError::File(file.0.clone(), e))
        });
        written.await.map_err(|e| Error::Generic { store: "fetch", source: Box::new(e) })?
    };
    futures::stream::iter(ranges.into_iter().map(one)).buffer_unordered(CONCURRENCY).try_collect().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::content;

    #[test]
    fn fetch_downloads_whole_objects_and_skips_hidden_ones() {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let large = content(1, (RANGE_BYTES * 2 + 3) as usize);
        for (name, bytes) in [("a.csv", &large[..]), ("b.csv", b"x"), ("_SUCCESS", b""), (".hidden", b"h")] {
            std::fs::write(there.path().join(name), bytes).unwrap();
        }
        let folder = Url::from_directory_path(there.path()).unwrap();
        assert_eq!(fetch(&folder, here.path(), &|| false).unwrap(), here.path());
        let mut names: Vec<_> =
            std::fs::read_dir(here.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.csv", "b.csv"]);
        assert!(std::fs::read(here.path().join("a.csv")).unwrap() == large);
        let one = folder.join("b.csv").unwrap();
        let file = fetch(&one, here.path(), &|| false).unwrap();
        assert_eq!(std::fs::read(file).unwrap(), b"x");
        assert!(matches!(fetch(&one, here.path(), &|| true), Err(FetchError::Cancelled)));
        let none = folder.join("none/").unwrap();
        assert!(matches!(fetch(&none, here.path(), &|| false), Err(FetchError::Nothing)));
    }
}
