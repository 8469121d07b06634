//! Rewrites the errors of stores: kinds instead of a client's messages, full paths, no secrets.
//!
//! An [`ErrorMap`] says how. [`MappedErrors`] is the only implementation of `object_store`'s trait for all of them,
//! so an operation that is added to the trait is delegated in one place, and no error passes beside a map.

mod secrets;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

pub use secrets::Secrets;

/// A rule that rewrites errors.
pub trait ErrorMap: fmt::Debug + Send + Sync + 'static {
    /// Rewrites the error of a call on `location`; it is empty for a deletion and for a listing of the whole store.
    fn call(&self, location: &str, error: Error) -> Error;

    /// Rewrites the errors of a response's body. The default leaves them unchanged.
    fn body(self: Arc<Self>, result: GetResult) -> GetResult {
        result
    }
}

/// Maps the errors of calls without their location, such as a client's messages to error kinds.
impl ErrorMap for fn(Error) -> Error {
    fn call(&self, _location: &str, error: Error) -> Error {
        self(error)
    }
}

/// A store whose errors are rewritten.
#[derive(Debug)]
pub struct MappedErrors<M> {
    inner: Arc<dyn ObjectStore>,
    map: Arc<M>,
}

impl<M: ErrorMap> MappedErrors<M> {
    /// Wraps `inner` to rewrite its errors by `map`.
    pub fn new(inner: Arc<dyn ObjectStore>, map: M) -> Arc<Self> {
        Arc::new(MappedErrors { inner, map: Arc::new(map) })
    }

    fn at<'a>(&'a self, location: &'a Path) -> impl FnOnce(Error) -> Error + 'a {
        move |error| self.map.call(location.as_ref(), error)
    }
}

impl<M> fmt::Display for MappedErrors<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl<M: ErrorMap> ObjectStore for MappedErrors<M> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await.map_err(self.at(location))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(location, options).await.map_err(self.at(location))?;
        Ok(Box::new(MappedUpload { inner, map: Arc::clone(&self.map), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let result = self.inner.get_opts(location, options).await.map_err(self.at(location))?;
        Ok(Arc::clone(&self.map).body(result))
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await.map_err(self.at(location))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let map = Arc::clone(&self.map);
        self.inner.delete_stream(locations).map_err(move |error| map.call("", error)).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (map, location) = (Arc::clone(&self.map), prefix.cloned().unwrap_or_default());
        self.inner.list(prefix).map_err(move |error| map.call(location.as_ref(), error)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let location = prefix.cloned().unwrap_or_default();
        self.inner.list_with_delimiter(prefix).await.map_err(self.at(&location))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await.map_err(self.at(from))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await.map_err(self.at(from))
    }
}

/// An upload whose errors are rewritten.
#[derive(Debug)]
struct MappedUpload<M> {
    inner: Box<dyn MultipartUpload>,
    map: Arc<M>,
    location: Path,
}

#[async_trait]
impl<M: ErrorMap> MultipartUpload for MappedUpload<M> {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, map, location) = (self.inner.put_part(data), Arc::clone(&self.map), self.location.clone());
        part.map_err(move |error| map.call(location.as_ref(), error)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.inner.complete().await;
        result.map_err(|error| self.map.call(self.location.as_ref(), error))
    }

    async fn abort(&mut self) -> Result<()> {
        let result = self.inner.abort().await;
        result.map_err(|error| self.map.call(self.location.as_ref(), error))
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    /// Names the location in every error.
    #[derive(Debug)]
    struct Names;

    impl ErrorMap for Names {
        fn call(&self, location: &str, error: Error) -> Error {
            Error::Generic { store: "x", source: format!("<{location}> {error}").into() }
        }
    }

    /// An upload whose calls are refused.
    #[derive(Debug)]
    struct Refused;

    #[async_trait]
    impl MultipartUpload for Refused {
        fn put_part(&mut self, _data: PutPayload) -> UploadPart {
            async { Err(Error::PermissionDenied { path: "key".into(), source: "403".into() }) }.boxed()
        }

        async fn complete(&mut self) -> Result<PutResult> {
            Err(Error::NotImplemented { operation: "complete".into(), implementer: "x".into() })
        }

        async fn abort(&mut self) -> Result<()> {
            Err(Error::NotImplemented { operation: "abort".into(), implementer: "x".into() })
        }
    }

    #[tokio::test]
    async fn errors_of_calls_and_uploads_are_rewritten() {
        let store = MappedErrors::new(Arc::new(InMemory::new()), Names);
        let at = Path::from("a/b");
        let range = 0..1;
        for error in [
            store.get(&at).await.err(),
            store.head(&at).await.err(),
            store.get_ranges(&at, std::slice::from_ref(&range)).await.err(),
            store.copy(&at, &Path::from("c")).await.err(),
        ] {
            assert!(error.as_ref().is_some_and(|e| e.to_string().contains("<a/b> ")), "{error:?}");
        }
        let mut upload = MappedUpload { inner: Box::new(Refused), map: Arc::new(Names), location: at };
        for error in [
            upload.put_part("x".into()).await.err(),
            upload.complete().await.err(),
            upload.abort().await.err(),
        ] {
            assert!(error.as_ref().is_some_and(|e| e.to_string().contains("<a/b> ")), "{error:?}");
        }
    }
}
