//! Where data lives: the stores behind URLs, and what the way to them costs.
//!
//! One trait for all of them, `object_store`'s. [`open`] turns a URL into a store: the local
//! file system ([`LocalStore`], whose reads move no byte that was not asked for), S3, and, as
//! features with clients of their own, HDFS and Swift. Every remote store is guarded: its
//! answers are right or errors ([`retry`]), and its errors hold no secret ([`wrap::secrets`]).
//! Which monotask reads when is not decided here: the engine wraps these stores, and the
//! runtime reads local data files itself.
//!
//! Beside them stands what is known of a composition of layers without running it ([`path`],
//! [`rank`], [`mismatch`]), what can be measured of a store ([`probe`]), and what is wrong with
//! how it is used ([`doctor`]).

pub mod clock;
pub mod composition;
pub mod conformance;
pub mod doctor;
pub mod fetch;
pub mod finding;
#[cfg(feature = "hdfs")]
mod hdfs;
mod local;
pub mod mismatch;
pub mod path;
pub mod probe;
pub mod rank;
mod remote;
pub mod retry;
#[cfg(feature = "swift")]
mod segments;
pub mod spark;
#[cfg(feature = "swift")]
mod swift;
pub mod wrap;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use object_store::ObjectStore;
use pellucid_trace::Operation;
use url::Url;

pub use local::LocalStore;

/// Why a store could not be opened.
#[derive(Debug)]
pub enum StorageError {
    /// No backend for the URL's scheme.
    UnknownScheme {
        /// The URL as given, without credentials.
        url: String,
    },
    /// The backend refused its settings.
    Settings {
        /// The store's name.
        url: String,
        /// The backend's reason.
        source: object_store::Error,
    },
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownScheme { url } => write!(
                f,
                "{url}: no store for this kind of URL; use a path, file:// or {}",
                if cfg!(all(feature = "hdfs", feature = "swift")) {
                    "s3://BUCKET/KEY, swift://CONTAINER/KEY, hdfs://HOST:PORT/PATH"
                } else {
                    "s3://BUCKET/KEY"
                }
            ),
            Self::Settings { url, source } => {
                let from = match url.split_once("://") {
                    Some(("swift", _)) => {
                        "the account comes from ST_AUTH, ST_USER and ST_KEY, or from OS_STORAGE_URL and OS_AUTH_TOKEN"
                    }
                    Some(("hdfs", _)) => {
                        "write it like hdfs://HOST:PORT; name services come from the files in HADOOP_CONF_DIR"
                    }
                    _ => {
                        "credentials, region and endpoint come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
                         AWS_REGION and AWS_ENDPOINT_URL"
                    }
                };
                write!(f, "{url}: {source}; {from}")
            }
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

/// An attempt at a request of a store that failed in a way that may pass. Most are repeated, and whoever
/// asked hears only that it took longer.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// What was asked for.
    pub operation: Operation,
    /// When it was.
    pub started: Instant,
    /// When it could be asked for again: pauses are part of it, where they are made here.
    pub ended: Instant,
    /// What the store or the way to it said, without credentials.
    pub error: String,
}

/// Is told of attempts that fail. It is called where requests are made, so it must not wait.
pub type Watch = Arc<dyn Fn(FailedAttempt) + Send + Sync>;

/// Opens the store that holds `url`: `file://`, `s3://`, and with their features `swift://` and
/// `hdfs://`.
///
/// Credentials and endpoints come from the environment: the usual `AWS_*` variables, those of
/// Swift's client, Hadoop's files. A remote store needs a Tokio runtime with timers.
///
/// # Errors
/// A scheme without a backend, or settings that the backend refuses.
pub fn open(url: &Url) -> Result<Arc<dyn ObjectStore>, StorageError> {
    open_watched(url, Arc::new(|_| ()))
}

/// The same, and `watch` is told of attempts that fail.
///
/// # Errors
/// As [`open`]'s.
pub fn open_watched(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    match url.scheme() {
        "file" => Ok(Arc::new(LocalStore::default())),
        "s3" => remote::s3(url, watch),
        #[cfg(feature = "swift")]
        "swift" => swift::open(url, watch),
        #[cfg(feature = "hdfs")]
        "hdfs" => hdfs::open(url, watch),
        _ => Err(StorageError::UnknownScheme { url: format!("{}{}", name(url), url.path()) }),
    }
}

/// A remote store as it is handed out: answers right or errors, errors without secrets.
fn guarded(
    store: Arc<dyn ObjectStore>,
    limits: retry::Limits,
    secrets: wrap::secrets::Secrets,
    watch: Watch,
) -> Arc<dyn ObjectStore> {
    let seed = RandomState::new().hash_one(0);
    let watch = without_secrets(watch, secrets.clone());
    let retrying = retry::Retrying::watched(store, Arc::new(clock::Live::default()), limits, seed, watch);
    wrap::Wrapped::new(retrying, secrets)
}

/// Tells `watch` no credentials.
fn without_secrets(watch: Watch, secrets: wrap::secrets::Secrets) -> Watch {
    Arc::new(move |failed| watch(FailedAttempt { error: secrets.hide(&failed.error), ..failed }))
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
        let error = open(&Url::parse("s3a://key:hunter2@bucket/y").unwrap()).unwrap_err().to_string();
        assert!(error.contains("s3a://bucket/y") && !error.contains("hunter2"), "{error}");
    }
}
