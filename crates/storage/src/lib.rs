//! Where data lives: the stores behind URLs.
//!
//! One trait for all of them, `object_store`'s. [`open`] turns a URL into a store; what
//! differs from the library's own is [`LocalStore`], whose reads move no byte that was not
//! asked for. Which monotask reads when is not decided here: the engine wraps these stores,
//! and the runtime reads local data files itself.

pub mod composition;
pub mod finding;
mod local;
pub mod mismatch;
pub mod path;
pub mod rank;
mod remote;

use std::fmt;
use std::sync::Arc;

use object_store::ObjectStore;
use url::Url;

pub use local::LocalStore;

/// Why a store could not be opened.
#[derive(Debug)]
pub enum StorageError {
    /// No backend for the URL's scheme.
    UnknownScheme {
        /// The URL as given.
        url: String,
    },
    /// The backend refused its settings.
    Settings {
        /// The URL as given.
        url: String,
        /// The backend's reason.
        source: object_store::Error,
    },
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme { url } => {
                write!(f, "{url}: no store for this kind of URL; use a path, file:// or s3://BUCKET/KEY")
            }
            Self::Settings { url, source } => write!(
                f,
                "{url}: {source}; credentials, region and endpoint come from AWS_ACCESS_KEY_ID, \
                 AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"
            ),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::UnknownScheme { .. } => None,
            Self::Settings { source, .. } => Some(source),
        }
    }
}

/// Opens the store that holds `url`: `file://` or `s3://`.
///
/// Credentials and endpoint of S3 come from the usual `AWS_*` variables of the environment.
///
/// # Errors
/// A scheme without a backend, or settings that the backend refuses.
pub fn open(url: &Url) -> Result<Arc<dyn ObjectStore>, StorageError> {
    match url.scheme() {
        "file" => Ok(Arc::new(LocalStore::default())),
        "s3" => remote::s3(url),
        _ => Err(StorageError::UnknownScheme { url: url.to_string() }),
    }
}

/// The name of a store as a resource: scheme and authority, without credentials.
pub fn name(url: &Url) -> String {
    match url.port() {
        Some(port) => format!("{}://{}:{port}", url.scheme(), url.host_str().unwrap_or("")),
        None => format!("{}://{}", url.scheme(), url.host_str().unwrap_or("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_no_credentials() {
        let url = Url::parse("s3://key:secret@bucket/path/to?x=1").unwrap();
        assert_eq!(name(&url), "s3://bucket");
    }

    #[test]
    fn an_unknown_scheme_names_the_known_ones() {
        let error = open(&Url::parse("gopher://x/y").unwrap()).unwrap_err().to_string();
        assert!(error.contains("gopher://x/y") && error.contains("s3://"), "{error}");
    }
}
