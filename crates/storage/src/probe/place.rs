//! Probes a folder or URL from the command line, on a separate runtime.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use object_store::path::Path;
use object_store::{Error, ObjectStore};
use pellucid_trace::probe::Report;
use url::Url;

use super::folder::{Folder, FolderKind};
use super::measure::{Budget, Probe, ProbeError, Progress};
use crate::address::{name, shown};
use crate::backend::StorageError;
use crate::clock::Live;
use crate::local::LocalStore;
use crate::open::open;
use crate::s3;

/// An error from probing a place.
#[derive(Debug)]
pub enum PlaceError {
    /// The place is neither a folder nor a URL of a store; the message includes the remedy.
    NotAPlace(String),
    /// The store could not be opened.
    Open(StorageError),
    /// The probe was cancelled and has cleaned up.
    Cancelled,
    /// The store failed.
    Store {
        /// The place, without credentials.
        place: String,
        /// The store's error.
        source: Error,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::NotAPlace(message) => f.write_str(message),
            PlaceError::Open(error) => error.fmt(f),
            PlaceError::Cancelled => f.write_str("the probe was cancelled"),
            PlaceError::Store { place, source } => write!(
                f,
                "cannot probe {place}: {source}; check that it exists and is writable; the next probe removes any \
                 leftover objects"
            ),
        }
    }
}

impl std::error::Error for PlaceError {}

/// Probes a folder or a URL and blocks until the probe ends. With `existing`, reads the objects below
/// that folder of the same store instead of the probe's own.
///
/// # Errors
/// Returns an error if the place is invalid, the store cannot be opened or fails, or the probe is
/// cancelled.
pub fn probe(
    place: &str,
    existing: Option<&str>,
    budget: Budget,
    cancelled: Arc<AtomicBool>,
    progress: Progress<'_>,
) -> Result<Report, PlaceError> {
    let url = url_of(place)?;
    let full_name = format!("{}{}", name(&url), if url.scheme() == "file" { url.path() } else { "" });
    let failed = |source| PlaceError::Store { place: full_name.clone(), source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| failed(Error::Generic { store: "probe", source: Box::new(e) }))?;
    let inside = runtime.enter();
    let local = (url.scheme() == "file").then(|| Arc::new(LocalStore::default()));
    let store: Arc<dyn ObjectStore> = match &local {
        Some(local) => Arc::clone(local) as Arc<dyn ObjectStore>,
        None => open(&url).map_err(PlaceError::Open)?,
    };
    let at = Path::from_url_path(url.path()).map_err(|e| failed(e.into()))?;
    let existing = existing.map(|read| existing_in(&url, read)).transpose()?;
    let uploads = match url.scheme() {
        "s3" => Some(s3::uploads(&url).map_err(PlaceError::Open)?),
        _ => None,
    };
    let folders = match url.scheme() {
        "file" => FolderKind::Local,
        "hdfs" => FolderKind::Directory,
        _ => FolderKind::Prefix,
    };
    let probe = Probe {
        store,
        uploads,
        folder: Folder::new(at, folders),
        existing,
        url: full_name.clone(),
        budget,
        clock: Arc::new(Live::default()),
        cancelled,
        progress,
        evict: &|at| {
            if let Some(local) = &local {
                local.evict(at);
            }
        },
    };
    let ended = runtime.block_on(probe.run());
    drop(inside);
    // A short timeout, since the client's background tasks may wait for a store that does not answer.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map_err(|error| match error {
        ProbeError::Cancelled => PlaceError::Cancelled,
        ProbeError::Store(source) => failed(source),
    })
}

/// Returns the path to read, which must be in the probed store.
fn existing_in(store: &Url, read: &str) -> Result<Path, PlaceError> {
    let url = url_of(read)?;
    let (ours, theirs) = (name(store), name(&url));
    if ours != theirs {
        let message =
            format!("cannot read from {theirs} in a probe of {ours}; name a folder of the same store");
        return Err(PlaceError::NotAPlace(message));
    }
    Path::from_url_path(url.path())
        .map_err(|e| PlaceError::NotAPlace(format!("{}: {e}; name a folder", shown(read))))
}

/// Returns the URL of a place; a path must name an existing folder.
fn url_of(place: &str) -> Result<Url, PlaceError> {
    let wrong = |why: String| PlaceError::NotAPlace(format!("{}: {why}", shown(place)));
    if place.contains("://") && !place.starts_with("file://") {
        return Url::parse(place).map_err(|e| wrong(format!("{e}; write it like s3://BUCKET/FOLDER")));
    }
    let path = match Url::parse(place) {
        Ok(url) if url.scheme() == "file" => url
            .to_file_path()
            .map_err(|()| wrong("not a local path; write it like file:///FOLDER".to_string()))?,
        _ => place.into(),
    };
    let whole = std::fs::canonicalize(&path).map_err(|e| wrong(format!("{e}; name a folder or a URL")))?;
    if !whole.is_dir() {
        return Err(wrong("not a folder; name a folder for the probe's objects".to_string()));
    }
    Url::from_directory_path(&whole)
        .map_err(|()| wrong("a URL cannot represent this path; choose another folder".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_folder_must_be_in_the_probed_store() {
        let store = Url::parse("s3://bucket/scratch").unwrap();
        assert_eq!(existing_in(&store, "s3://bucket/data/big/").unwrap(), Path::from("data/big"));
        let error = existing_in(&store, "s3://key:hunter2@other/data").unwrap_err().to_string();
        assert!(error.contains("s3://other") && error.contains("s3://bucket"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn invalid_url_error_contains_no_password() {
        let error = url_of("s3://key:hunter/2@bucket/folder").unwrap_err().to_string();
        assert!(error.contains("s3://bucket/folder") && !error.contains("hunter"), "{error}");
    }
}
