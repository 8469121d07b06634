//! Opens the store of a URL.

use std::sync::Arc;

use url::Url;

use crate::address::shown;
use crate::backend::{Opened, StorageError, backend, register_built_in};
use crate::failed_attempt::Watch;
use crate::local::LocalStore;
use crate::{s3, web};

/// Opens the store that holds `url`: `file://`, `s3://`, `http://`, `https://`, or a [registered](crate::register) scheme.
///
/// Credentials and endpoints come from the environment: the usual `AWS_*` variables, those of
/// Swift's client, and Hadoop's files. A remote store needs a Tokio runtime with timers.
///
/// # Errors
/// Returns an error if the scheme has no backend or the backend rejects its settings.
pub fn open(url: &Url) -> Opened {
    open_watched(url, Arc::new(|_| ()))
}

/// Opens the store that holds `url` and reports failed attempts to `watch`.
///
/// # Errors
/// Returns the same errors as [`open`].
pub fn open_watched(url: &Url, watch: Watch) -> Opened {
    match url.scheme() {
        "file" => return Ok(Arc::new(LocalStore::default())),
        "http" | "https" => return web::open(url, watch),
        _ => {}
    }
    register_built_in(s3::BACKEND);
    match backend(url.scheme()) {
        Some(backend) => (backend.open)(url, watch),
        None => Err(StorageError::UnknownScheme { url: shown(url.as_str()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_scheme_error_lists_known_schemes() {
        let error = open(&Url::parse("gopher://x/y").unwrap()).unwrap_err().to_string();
        assert!(error.contains("gopher://x/y") && error.contains("s3://"), "{error}");
        let error = open(&Url::parse("s3a://key:hunter2@bucket/y").unwrap()).unwrap_err().to_string();
        assert!(error.contains("s3a://bucket/y") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn optional_scheme_error_names_the_build_feature() {
        let error = open(&Url::parse("hdfs://host:9000/y").unwrap()).unwrap_err().to_string();
        assert!(error.contains("unsupported URL scheme in this build"), "{error}");
        assert!(
            error.contains("--features pellucid-cli/all") && error.ends_with("s3://BUCKET/KEY"),
            "{error}"
        );
    }
}
