//! Where data lives: the stores behind URLs, and what the way to them costs.
//!
//! One trait for all of them, `object_store`'s. [`open`] turns a URL into a store: the local
//! file system ([`LocalStore`], whose reads move no byte that was not asked for), S3, and what other
//! crates [`register`] (`crates/backends`: HDFS and Swift). Every remote store is guarded
//! ([`guarded`]): its answers are right or errors ([`retry`]), and its errors hold no secret
//! ([`wrap::secrets`]).
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
mod local;
pub mod mismatch;
pub mod path;
pub mod pattern;
pub mod probe;
pub mod rank;
mod remote;
pub mod retry;
pub mod spark;
pub mod wrap;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, PoisonError, RwLock};
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
            Self::UnknownScheme { url } => {
                write!(f, "{url}: no store for this kind of URL")?;
                if LEFT_OUT.iter().any(|scheme| url.starts_with(scheme)) {
                    write!(f, " in this build; build with `--features pellucid-cli/all`,")?;
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

/// An opened store.
pub type Opened = Result<Arc<dyn ObjectStore>, StorageError>;

/// How URLs of one scheme are opened.
#[derive(Debug, Clone, Copy)]
pub struct Backend {
    /// The scheme, such as `s3`.
    pub scheme: &'static str,
    /// What such a URL looks like, for error messages.
    pub example: &'static str,
    /// Where credentials and addresses come from, for error messages.
    pub settings: &'static str,
    /// Opens the store of a URL, telling of failed attempts.
    pub open: fn(&Url, Watch) -> Opened,
}

/// S3, whose client DataFusion's own crates compile in any case.
const S3: Backend = Backend {
    scheme: "s3",
    example: "s3://BUCKET/KEY",
    settings: "credentials, region and endpoint come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
               AWS_REGION and AWS_ENDPOINT_URL",
    open: remote::s3,
};

/// Schemes that a complete build registers.
const LEFT_OUT: [&str; 2] = ["swift://", "hdfs://"];

static BACKENDS: RwLock<Vec<Backend>> = RwLock::new(Vec::new());

/// Makes [`open`] understand another scheme. A scheme that is registered already stays as it is.
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

/// Opens the store that holds `url`: `file://`, `s3://`, or a scheme that was [`register`]ed.
///
/// Credentials and endpoints come from the environment: the usual `AWS_*` variables, those of
/// Swift's client, Hadoop's files. A remote store needs a Tokio runtime with timers.
///
/// # Errors
/// A scheme without a backend, or settings that the backend refuses.
pub fn open(url: &Url) -> Opened {
    open_watched(url, Arc::new(|_| ()))
}

/// The same, and `watch` is told of attempts that fail.
///
/// # Errors
/// As [`open`]'s.
pub fn open_watched(url: &Url, watch: Watch) -> Opened {
    if url.scheme() == "file" {
        return Ok(Arc::new(LocalStore::default()));
    }
    match backend(url.scheme()) {
        Some(backend) => (backend.open)(url, watch),
        None => Err(StorageError::UnknownScheme { url: format!("{}{}", name(url), url.path()) }),
    }
}

/// Wraps a remote store: its answers are right or errors, and its errors hold no secrets.
pub fn guarded(
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

    #[test]
    fn a_scheme_that_this_build_leaves_out_names_the_build_that_has_it() {
        let error = open(&Url::parse("hdfs://host:9000/y").unwrap()).unwrap_err().to_string();
        assert!(error.contains("no store for this kind of URL in this build"), "{error}");
        assert!(
            error.contains("--features pellucid-cli/all") && error.ends_with("s3://BUCKET/KEY"),
            "{error}"
        );
    }
}
