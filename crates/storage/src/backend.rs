//! Backends by URL scheme, and the errors of opening a store.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use object_store::ObjectStore;
use url::Url;

use crate::failed_attempt::Watch;

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

/// Schemes that only a complete build registers.
const OPTIONAL_SCHEMES: [&str; 5] = ["az://", "abfss://", "gs://", "swift://", "hdfs://"];

static BACKENDS: RwLock<Vec<Backend>> = RwLock::new(Vec::new());

/// Registers a backend with [`open`](crate::open). A scheme that is already registered keeps its backend.
pub fn register(backend: Backend) {
    let mut backends = BACKENDS.write().unwrap_or_else(PoisonError::into_inner);
    if !backends.iter().any(|known| known.scheme == backend.scheme) {
        backends.push(backend);
    }
}

/// Registers a backend that every build has, so that messages name it first.
pub(crate) fn register_built_in(backend: Backend) {
    let mut backends = BACKENDS.write().unwrap_or_else(PoisonError::into_inner);
    if !backends.iter().any(|known| known.scheme == backend.scheme) {
        backends.insert(0, backend);
    }
}

fn registered() -> Vec<Backend> {
    BACKENDS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the backend of a scheme.
pub(crate) fn backend(scheme: &str) -> Option<Backend> {
    registered().into_iter().find(|backend| backend.scheme == scheme)
}
