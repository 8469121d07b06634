//! The folder of a table, and the places that its log names.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::object_store::ObjectStoreUrl;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::failed;
use crate::tables::paths;

/// The folder of a table.
#[derive(Clone)]
pub(crate) struct Root {
    /// The table as the user wrote it, for messages.
    pub place: String,
    /// The folder within its store.
    pub folder: Path,
    pub store: Arc<dyn ObjectStore>,
    url: ListingTableUrl,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Root({})", self.place)
    }
}

impl Root {
    pub(super) fn new(place: &str, url: &ListingTableUrl, folder: Path, store: Arc<dyn ObjectStore>) -> Self {
        Self { place: pellucid_storage::shown(place), folder, store, url: url.clone() }
    }

    pub(super) fn store_url(&self) -> ObjectStoreUrl {
        self.url.object_store()
    }

    /// Returns the name of a file as a user would write it.
    pub(super) fn name(&self, location: &Path) -> String {
        paths::name(&self.url, location)
    }

    /// Returns an error `cannot read TABLE: cause`.
    pub(super) fn error(&self, cause: impl fmt::Display) -> DataFusionError {
        failed(format!("cannot read {}: {cause}", self.place))
    }

    /// Returns the error for a feature of the table that is not supported.
    pub(super) fn unsupported(&self, feature: impl fmt::Display, way_out: &str) -> DataFusionError {
        self.error(format!("the table uses {feature}, which Pellucid does not read; {way_out}"))
    }

    /// Returns a place below the table's folder, given as it is.
    ///
    /// # Errors
    /// Returns an error for a path with `.` or `..`.
    pub(super) fn below(&self, relative: &str) -> Result<Path> {
        let path = match self.folder.as_ref() {
            "" => Path::parse(relative),
            folder => Path::parse(format!("{folder}/{relative}")),
        };
        path.map_err(|e| self.error(format!("its log names an invalid path, {relative}: {e}")))
    }

    /// Returns the place of a URI or an absolute path, given as it is.
    ///
    /// # Errors
    /// Returns an error if it is in another store.
    pub(super) fn absolute(&self, uri: &str) -> Result<Path> {
        let (store, path) = match uri.split_once("://") {
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                (store_name(scheme, authority), path)
            }
            // Hadoop writes `file:/a/b`.
            None => ("file://".to_string(), uri.strip_prefix("file:").unwrap_or(uri)),
        };
        let url = self.url.object_store();
        let (scheme, authority) = url.as_str().split_once("://").unwrap_or(("file", ""));
        if store != store_name(scheme, authority.trim_end_matches('/')) {
            return Err(self.error(format!(
                "its log names a file in another store, {}; copy the table into one store",
                pellucid_storage::shown(uri)
            )));
        }
        Path::parse(path.trim_start_matches('/'))
            .map_err(|e| self.error(format!("its log names an invalid path, {uri}: {e}")))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// Returns the store's error, with the table's name.
    pub(super) async fn read(&self, location: &Path) -> Result<Bytes> {
        let read = async { self.store.get(location).await?.bytes().await };
        read.await.map_err(|e| self.store_error(location, e))
    }

    /// Reads a part of a file.
    ///
    /// # Errors
    /// Returns the store's error, with the table's name.
    pub(super) async fn read_range(&self, location: &Path, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.store.get_range(location, range).await.map_err(|e| self.store_error(location, e))
    }

    fn store_error(&self, location: &Path, error: object_store::Error) -> DataFusionError {
        let missing = matches!(error, object_store::Error::NotFound { .. });
        let why = if missing { " is missing; restore it from a copy" } else { "" };
        let context = format!("cannot read {}: {}{why}", self.place, self.name(location));
        DataFusionError::from(error).context(context)
    }

    /// Lists a folder of the table.
    ///
    /// # Errors
    /// Returns the store's error.
    pub(super) async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        Ok(self.store.list(Some(&self.below(folder.as_ref())?)).try_collect().await?)
    }
}

/// Returns a name by which two URLs of one store are equal.
fn store_name(scheme: &str, authority: &str) -> String {
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "s3a" | "s3n" => "s3".to_string(),
        "gcs" => "gs".to_string(),
        "wasbs" | "abfs" => "abfss".to_string(),
        other => other.to_string(),
    };
    format!("{scheme}://{authority}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use object_store::memory::InMemory;

    /// A root in memory, as if it were `s3://bucket/w/t`.
    pub(in crate::lakes) fn root() -> Root {
        let url = paths::parse("s3://bucket/w/t/").unwrap();
        Root::new("s3://bucket/w/t", &url, url.prefix().clone(), Arc::new(InMemory::new()))
    }

    #[test]
    fn absolute_places_must_be_in_the_table_s_store() {
        let root = root();
        for uri in ["s3://bucket/w/t/a b%20.parquet", "s3a://bucket/w/t/a b%20.parquet"] {
            assert_eq!(root.absolute(uri).unwrap().as_ref(), "w/t/a b%20.parquet");
        }
        for uri in ["s3://other/x", "/w/t/x", "file:/w/t/x", "gs://bucket/x"] {
            let error = root.absolute(uri).unwrap_err().to_string();
            assert!(error.contains("another store") && error.contains("s3://bucket/w/t"), "{error}");
        }
        assert!(root.below("../x").is_err());
    }
}
