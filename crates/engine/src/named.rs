//! A remote store whose errors say which store.
//!
//! A client's errors name a key without its bucket, or an address that its user has never
//! typed. Here they name `s3://BUCKET/KEY`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// A store with its name, for example `s3://bucket`.
#[derive(Debug)]
pub(crate) struct Named {
    pub name: String,
    pub inner: Arc<dyn ObjectStore>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The error of an operation on `location` of the store `name`.
fn named(name: &str, location: &str, error: Error) -> Error {
    let path = format!("{name}/{location}");
    match error {
        Error::NotFound { source, .. } => Error::NotFound { path, source },
        Error::PermissionDenied { source, .. } => Error::PermissionDenied { path, source },
        Error::Unauthenticated { source, .. } => Error::Unauthenticated { path, source },
        Error::AlreadyExists { source, .. } => Error::AlreadyExists { path, source },
        Error::Generic { store, source } => {
            Error::Generic { store, source: format!("{path}: {source}").into() }
        }
        other => other,
    }
}

impl Named {
    fn at(&self, location: &Path) -> impl FnOnce(Error) -> Error + use<> {
        let (name, location) = (self.name.clone(), location.clone());
        move |error| named(&name, location.as_ref(), error)
    }
}

#[async_trait]
impl ObjectStore for Named {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await.map_err(self.at(location))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await.map_err(self.at(location))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await.map_err(self.at(location))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await.map_err(self.at(location))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let name = self.name.clone();
        self.inner.delete_stream(locations).map(move |r| r.map_err(|e| named(&name, "", e))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (name, prefix_name) = (self.name.clone(), prefix.map(Path::to_string).unwrap_or_default());
        self.inner.list(prefix).map(move |r| r.map_err(|e| named(&name, &prefix_name, e))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let whole = Path::default();
        let at = self.at(prefix.unwrap_or(&whole));
        self.inner.list_with_delimiter(prefix).await.map_err(at)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await.map_err(self.at(from))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await.map_err(self.at(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn what_is_not_there_is_named_with_its_store() {
        let store = Named { name: "s3://bucket".to_string(), inner: Arc::new(InMemory::new()) };
        let error = store.head(&Path::from("a/b.csv")).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound { path, .. } if path == "s3://bucket/a/b.csv"), "{error}");
    }
}
