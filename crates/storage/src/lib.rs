//! Storage backends, and measurements of them.
//!
//! Every store implements `object_store`'s trait. [`open`] turns a URL into a store: the local
//! file system ([`LocalStore`], which reads only the requested bytes), S3, or a scheme that another
//! crate [`register`]s (`crates/backends`: HDFS and Swift). Remote stores are [`guarded`]: an answer
//! is correct or an error ([`retry`]), and errors contain no secrets ([`wrap::secrets`]).
//! This crate does not schedule reads: the engine wraps these stores, and the runtime reads local
//! data files itself.
//!
//! A [`probe`] measures a store. `pellucid-model` reads its report: the doctor and what-ifs of storage.

mod address;
pub mod body;
pub mod clock;
mod connector;
mod document;
pub mod errors;
pub mod fetch;
mod local;
pub mod pattern;
pub mod probe;
mod remote;
pub mod retry;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use object_store::ObjectStore;
use pellucid_trace::Operation;
use url::Url;

pub use address::{name, refused_redirect, shown};
pub use local::LocalStore;

/// An error from opening a store.
#[derive(Debug)]
pub enum StorageError {
    /// The URL's scheme has no backend.
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
            Self::UnknownScheme { url } => {
                write!(f, "{url}: unsupported URL scheme")?;
                if OPTIONAL_SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
                    write!(f, " in this build; rebuild with `--features pellucid-cli/all`, or")?;
                } else {
                    f.write_str(";")?;
                }
                let examples: Vec<&str> = registered().iter().map(|backend| backend.example).collect();
                write!(f, " use a path, file:// or {}", examples.join(", "))
            }
            Self::Settings { url, source } => {
                let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
                let from = backend(scheme).map_or("", |backend| backend.settings);
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

/// A request attempt that failed transiently. Most attempts are retried, so the caller sees only
/// a longer request.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// Requested operation.
    pub operation: Operation,
    /// Time of the request.
    pub started: Instant,
    /// Earliest time of the next attempt; includes the pauses made by this crate.
    pub ended: Instant,
    /// Error of the store or the connection, without credentials.
    pub error: String,
}

/// A callback for failed attempts. It runs on the request path, so it must not block.
pub type Watch = Arc<dyn Fn(FailedAttempt) + Send + Sync>;

/// The result of opening a store.
pub type Opened = Result<Arc<dyn ObjectStore>, StorageError>;

/// The backend for URLs of one scheme.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// The scheme, such as `s3`.
    pub scheme: &'static str,
    /// Example URL, for error messages.
    pub example: &'static str,
    /// Source of credentials and addresses, for error messages.
    pub settings: &'static str,
    /// Opens the store of a URL; reports failed attempts to the callback.
    pub open: fn(&Url, Watch) -> Opened,
}

/// S3 is always built in, since DataFusion's crates compile its client anyway.
const S3: Backend = Backend {
    scheme: "s3",
    example: "s3://BUCKET/KEY",
    settings: "credentials, region and endpoint come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
               AWS_REGION and AWS_ENDPOINT_URL",
    open: remote::s3,
};

/// Schemes that only a complete build registers.
const OPTIONAL_SCHEMES: [&str; 2] = ["swift://", "hdfs://"];

static BACKENDS: RwLock<Vec<Backend>> = RwLock::new(Vec::new());

/// Registers a backend with [`open`]. A scheme that is already registered keeps its backend.
pub fn register(backend: Backend) {
    let mut backends = BACKENDS.write().unwrap_or_else(PoisonError::into_inner);
    if !backends.iter().any(|known| known.scheme == backend.scheme) {
        backends.push(backend);
    }
}

fn registered() -> Vec<Backend> {
    let others = BACKENDS.read().unwrap_or_else(PoisonError::into_inner);
    std::iter::once(S3).chain(others.iter().copied()).collect()
}

fn backend(scheme: &str) -> Option<Backend> {
    registered().into_iter().find(|backend| backend.scheme == scheme)
}

/// Opens the store that holds `url`: `file://`, `s3://`, or a [`register`]ed scheme.
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
    if url.scheme() == "file" {
        return Ok(Arc::new(LocalStore::default()));
    }
    match backend(url.scheme()) {
        Some(backend) => (backend.open)(url, watch),
        None => Err(StorageError::UnknownScheme { url: shown(url.as_str()) }),
    }
}

/// Wraps a remote store so that every answer is correct or an error, and errors contain no secrets.
pub fn guarded(
    store: Arc<dyn ObjectStore>,
    limits: retry::Limits,
    secrets: errors::Secrets,
    watch: Watch,
) -> Arc<dyn ObjectStore> {
    let seed = RandomState::new().hash_one(0);
    let watch = without_secrets(watch, secrets.clone());
    let retrying = retry::Retrying::watched(store, Arc::new(clock::Live::default()), limits, seed, watch);
    errors::MappedErrors::new(retrying, secrets)
}

/// Wraps `watch` to receive errors without credentials.
fn without_secrets(watch: Watch, secrets: errors::Secrets) -> Watch {
    Arc::new(move |failed| watch(FailedAttempt { error: secrets.hide(&failed.error), ..failed }))
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
