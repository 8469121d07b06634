//! Where an iterative job's data are: here, or in a store, from which they are brought here first.

use crate::failure::Failure;
use crate::interrupt;
use pellucid_storage::fetch::{FetchError, fetch};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use url::Url;

/// A file or folder that can be read by its path for as long as this lives.
pub struct Data {
    /// Where it is.
    pub path: PathBuf,
    /// The folder that holds what was fetched, and the URL that this was asked for by.
    fetched: Option<(TempDir, String)>,
}

impl Data {
    /// Local data as they are; what a URL names is fetched.
    pub fn of(path: &Path) -> Result<Data, Failure> {
        let Some(text) = path.to_str().filter(|text| text.contains("://")) else {
            return Ok(Data { path: path.to_path_buf(), fetched: None });
        };
        if text.contains('*') {
            return Err(Failure::Usage(format!(
                "cannot read {text}: a pattern is for local files only; name an object, or a folder of objects"
            )));
        }
        let url = Url::parse(text)
            .map_err(|e| Failure::Usage(format!("{text}: {e}; write it like s3://BUCKET/FOLDER")))?;
        let folder = tempfile::tempdir().map_err(|e| Failure::file("make", "a temporary folder", &e))?;
        interrupt::temporary(folder.path());
        let cancelled = Arc::new(AtomicBool::new(false));
        let cancel = Arc::clone(&cancelled);
        let guard = interrupt::on_interrupt(move || cancel.store(true, Ordering::Relaxed));
        let brought = fetch(&url, folder.path(), &|| cancelled.load(Ordering::Relaxed));
        drop(guard);
        match brought {
            Ok(path) => Ok(Data { path, fetched: Some((folder, text.trim_end_matches('/').to_string())) }),
            Err(FetchError::Cancelled) => Err(Failure::Interrupted),
            Err(FetchError::Open(error)) => Err(Failure::Failed(error.to_string())),
            Err(error) => Err(Failure::Failed(format!("{text}: {error}"))),
        }
    }

    /// A failure in which fetched data are called as they were asked for.
    pub fn named(&self, failure: Failure) -> Failure {
        let Some((folder, url)) = &self.fetched else { return failure };
        // A single object is the URL itself, one of a folder is below it.
        let file = (self.path != folder.path()).then(|| self.path.display().to_string());
        let shown = |message: String| {
            let message = file.iter().fold(message, |message, file| message.replace(file.as_str(), url));
            message.replace(&folder.path().display().to_string(), url)
        };
        match failure {
            Failure::Usage(message) => Failure::Usage(shown(message)),
            Failure::Failed(message) => Failure::Failed(shown(message)),
            other => other,
        }
    }
}
