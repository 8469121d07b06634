//! From what a person wrote to a probe of it, on a runtime of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use object_store::path::Path;
use object_store::{Error, ObjectStore};
use url::Url;

use super::{Budget, Folder, Folders, Probe, ProbeError, Progress, Report};
use crate::{LocalStore, StorageError, clock};

/// Why a place could not be probed.
#[derive(Debug)]
pub enum PlaceError {
    /// Neither a folder nor a URL of a store; what it is, and what to write instead.
    NotAPlace(String),
    /// The store could not be opened.
    Open(StorageError),
    /// The probe was told to stop, and has cleaned up.
    Cancelled,
    /// The store failed.
    Store {
        /// The place as it was given, without credentials.
        place: String,
        /// The store's reason.
        source: Error,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::NotAPlace(words) => f.write_str(words),
            PlaceError::Open(error) => error.fmt(f),
            PlaceError::Cancelled => f.write_str("the probe was stopped"),
            PlaceError::Store { place, source } => write!(
                f,
                "{place}: {source}; check that it exists and may be written to; what the probe left, if anything, \
                 another one removes"
            ),
        }
    }
}

impl std::error::Error for PlaceError {}

/// Probes a folder or a URL and waits for it; of the same store, objects below `existing` are read
/// instead of the probe's own.
///
/// # Errors
/// What is no place, what cannot be opened, what the store says.
pub fn probe(
    place: &str,
    existing: Option<&str>,
    budget: Budget,
    cancelled: Arc<AtomicBool>,
    progress: Progress<'_>,
) -> Result<Report, PlaceError> {
    let url = url_of(place)?;
    let name = format!("{}{}", crate::name(&url), if url.scheme() == "file" { url.path() } else { "" });
    let failed = |source| PlaceError::Store { place: name.clone(), source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| failed(Error::Generic { store: "probe", source: Box::new(e) }))?;
    let inside = runtime.enter();
    let local = (url.scheme() == "file").then(|| Arc::new(LocalStore::default()));
    let store: Arc<dyn ObjectStore> = match &local {
        Some(local) => Arc::clone(local) as Arc<dyn ObjectStore>,
        None => crate::open(&url).map_err(PlaceError::Open)?,
    };
    let at = Path::from_url_path(url.path()).map_err(|e| failed(e.into()))?;
    let existing = existing.map(|read| existing_in(&url, read)).transpose()?;
    let uploads = match url.scheme() {
        "s3" => Some(crate::remote::uploads(&url).map_err(PlaceError::Open)?),
        _ => None,
    };
    let folders = match url.scheme() {
        "file" => Folders::Local,
        "hdfs" => Folders::Things,
        _ => Folders::Names,
    };
    let probe = Probe {
        store,
        uploads,
        folder: Folder::new(at, folders),
        existing,
        url: name.clone(),
        budget,
        clock: Arc::new(clock::Live::default()),
        cancelled,
        progress,
        forget: &|at| {
            if let Some(local) = &local {
                local.forget(at);
            }
        },
    };
    let ended = runtime.block_on(probe.run());
    drop(inside);
    // Not longer for a client's own tasks, which may wait for a store that is silent.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map_err(|error| match error {
        ProbeError::Cancelled => PlaceError::Cancelled,
        ProbeError::Store(source) => failed(source),
    })
}

/// Where to read, which must be in the store that is probed.
fn existing_in(store: &Url, read: &str) -> Result<Path, PlaceError> {
    let url = url_of(read)?;
    let (ours, theirs) = (crate::name(store), crate::name(&url));
    if ours != theirs {
        let words =
            format!("{theirs} is not the store that is probed, {ours}; name a folder of the same store");
        return Err(PlaceError::NotAPlace(words));
    }
    Path::from_url_path(url.path())
        .map_err(|e| PlaceError::NotAPlace(format!("{}: {e}; name a folder", without_user(read))))
}

/// A place without the user and password that may stand before an `@`.
fn without_user(place: &str) -> String {
    match place.split_once("://") {
        Some((scheme, rest)) => {
            format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
        }
        None => place.to_string(),
    }
}

/// The URL of a place; a path must be of a folder that is there.
fn url_of(place: &str) -> Result<Url, PlaceError> {
    let wrong = |why: String| PlaceError::NotAPlace(format!("{}: {why}", without_user(place)));
    if place.contains("://") && !place.starts_with("file://") {
        return Url::parse(place).map_err(|e| wrong(format!("{e}; write it like s3://BUCKET/FOLDER")));
    }
    let path = match Url::parse(place) {
        Ok(url) if url.scheme() == "file" => {
            url.to_file_path().map_err(|()| wrong("not a path of this machine".to_string()))?
        }
        _ => place.into(),
    };
    let whole = std::fs::canonicalize(&path).map_err(|e| wrong(format!("{e}; name a folder or a URL")))?;
    if !whole.is_dir() {
        return Err(wrong("not a folder; name the folder that the probe may write into".to_string()));
    }
    Url::from_directory_path(&whole).map_err(|()| wrong("not a path that a URL can hold".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_in_the_store_that_is_probed() {
        let store = Url::parse("s3://bucket/scratch").unwrap();
        assert_eq!(existing_in(&store, "s3://bucket/data/big/").unwrap(), Path::from("data/big"));
        let elsewhere = existing_in(&store, "s3://key:hunter2@other/data").unwrap_err().to_string();
        assert!(elsewhere.contains("s3://other") && elsewhere.contains("s3://bucket"), "{elsewhere}");
        assert!(!elsewhere.contains("hunter2"), "{elsewhere}");
    }

    #[test]
    fn what_is_no_url_is_said_without_the_password_in_it() {
        let error = url_of("s3://key:hunter/2@bucket/folder").unwrap_err().to_string();
        assert!(error.contains("s3://bucket/folder") && !error.contains("hunter"), "{error}");
    }
}
