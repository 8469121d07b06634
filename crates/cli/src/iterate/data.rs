//! Resolves the data of an iterative job, downloading it first if it is in a store.

use crate::failure::Failure;
use crate::{interrupt, temporary};
use pellucid_storage::fetch::{FetchError, fetch};
use pellucid_storage::shown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use url::Url;

/// A local file or folder. Downloaded data is deleted when this is dropped.
pub struct Data {
    /// Local path.
    pub path: PathBuf,
    /// Folder of the downloaded data, and the URL it came from.
    fetched: Option<(TempDir, String)>,
}

impl Data {
    /// Returns local data as it is, and downloads the data at a URL.
    pub fn of(path: &Path) -> Result<Data, Failure> {
        let Some(text) = path.to_str().filter(|text| text.contains("://")) else {
            return Ok(Data { path: path.to_path_buf(), fetched: None });
        };
        if text.contains('*') {
            return Err(Failure::Usage(format!(
                "cannot read {}: patterns match local files only; name an object or a folder of objects",
                shown(text)
            )));
        }
        let name = shown(text);
        let url = Url::parse(text)
            .map_err(|e| Failure::Usage(format!("{name}: {e}; write it like s3://BUCKET/FOLDER")))?;
        let folder = temporary::folder("pellucid-")?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let cancel = Arc::clone(&cancelled);
        let guard = interrupt::on_interrupt(move || cancel.store(true, Ordering::Relaxed));
        let fetched = fetch(&url, folder.path(), &|| cancelled.load(Ordering::Relaxed));
        drop(guard);
        match fetched {
            Ok(path) => Ok(Data { path, fetched: Some((folder, name.trim_end_matches('/').to_string())) }),
            Err(FetchError::Cancelled) => Err(Failure::Interrupted),
            Err(FetchError::Open(error)) => Err(Failure::Failed(error.to_string())),
            Err(error) => Err(Failure::Failed(format!("{name}: {error}"))),
        }
    }

    /// Replaces the temporary path of downloaded data by its URL in the message of a failure.
    pub fn named(&self, failure: Failure) -> Failure {
        let Some((folder, url)) = &self.fetched else { return failure };
        // A single object is at the URL itself; the objects of a folder are below it.
        let file = (self.path != folder.path()).then(|| self.path.display().to_string());
        let renamed = |message: String| {
            let message = file.iter().fold(message, |message, file| message.replace(file.as_str(), url));
            message.replace(&folder.path().display().to_string(), url)
        };
        match failure {
            Failure::Usage(message) => Failure::Usage(renamed(message)),
            Failure::Failed(message) => Failure::Failed(renamed(message)),
            other => other,
        }
    }
}
