//! A store whose answers can be trusted, and whose errors say where.
//!
//! A client's errors name a key without its bucket, or an address that its user has never
//! typed. Here they name `s3://BUCKET/KEY`. And a Parquet file whose last bytes say that its
//! footer is longer than the file makes the library panic; here it is an error.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use crate::stores::planning;

/// A store with its name.
#[derive(Debug)]
pub(crate) struct Named {
    /// For example `s3://bucket`; empty for the local file system, whose paths need none.
    pub name: String,
    pub inner: Arc<dyn ObjectStore>,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The error of an operation on `location` of the store `name`.
fn named(name: &str, location: &str, error: Error) -> Error {
    let path = format!("{name}/{location}");
    match error {
        // Local errors have the path as the system says it.
        local if name.is_empty() => local,
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

/// What Parquet files end with.
const MAGIC: &[u8] = b"PAR1";

/// Looks at bytes that may be the end of a Parquet file: its footer, the footer's length, and
/// the magic word. Other bytes that look so by chance would have to hold a length that no
/// file up to there has room for.
fn check_footer(range: &Range<u64>, bytes: &[u8]) -> std::result::Result<(), String> {
    let Some((_, tail)) = bytes.split_last_chunk::<8>() else { return Ok(()) };
    let (length, magic) = tail.split_at(4);
    let length = u64::from(u32::from_le_bytes(length.try_into().unwrap_or_default()));
    if magic == MAGIC && length + 8 > range.end {
        return Err(format!(
            "its last bytes say that its footer has {length} bytes, more than the file; the file is not whole or \
             not Parquet, write it again"
        ));
    }
    Ok(())
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
        let inner = self.inner.put_multipart_opts(location, options).await.map_err(self.at(location))?;
        Ok(Box::new(NamedUpload { inner, name: self.name.clone(), location: location.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (started, head) = (Instant::now(), options.head);
        let result = self.inner.get_opts(location, options).await.map_err(self.at(location))?;
        Ok(match planning(&self.name) {
            Some(asking) => asking.answered(started, head, result),
            None => result,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let started = Instant::now();
        let parts = self.inner.get_ranges(location, ranges).await.map_err(self.at(location))?;
        if let Some(asking) = planning(&self.name) {
            asking.read(started, &parts);
        }
        for (range, bytes) in ranges.iter().zip(&parts) {
            check_footer(range, bytes).map_err(|source| {
                let path = format!("{}/{location}", self.name);
                Error::Generic { store: "Parquet", source: format!("{path}: {source}").into() }
            })?;
        }
        Ok(parts)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let name = self.name.clone();
        self.inner.delete_stream(locations).map(move |r| r.map_err(|e| named(&name, "", e))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (name, prefix_name) = (self.name.clone(), prefix.map(Path::to_string).unwrap_or_default());
        let listing = self.inner.list(prefix).map(move |r| r.map_err(|e| named(&name, &prefix_name, e)));
        let Some(asking) = planning(&self.name) else { return listing.boxed() };
        let (started, mut first_ns) = (Instant::now(), None);
        // After the last entry comes the end.
        let whole = listing.map(Some).chain(futures::stream::once(std::future::ready(None)));
        let seen = whole.inspect(move |entry| match entry {
            Some(_) => first_ns = first_ns.or(Some(started.elapsed().as_nanos() as u64)),
            None => asking.listed(started, first_ns),
        });
        seen.filter_map(std::future::ready).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (whole, started) = (Path::default(), Instant::now());
        let at = self.at(prefix.unwrap_or(&whole));
        let listed = self.inner.list_with_delimiter(prefix).await.map_err(at)?;
        if let Some(asking) = planning(&self.name) {
            asking.listed(started, None);
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await.map_err(self.at(from))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await.map_err(self.at(from))
    }
}

/// An upload whose errors say where it goes: a client's may hold no path at all.
#[derive(Debug)]
struct NamedUpload {
    inner: Box<dyn MultipartUpload>,
    name: String,
    location: Path,
}

#[async_trait]
impl MultipartUpload for NamedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, name, location) = (self.inner.put_part(data), self.name.clone(), self.location.clone());
        part.map_err(move |error| named(&name, location.as_ref(), error)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let ended = self.inner.complete().await;
        ended.map_err(|error| named(&self.name, self.location.as_ref(), error))
    }

    async fn abort(&mut self) -> Result<()> {
        let ended = self.inner.abort().await;
        ended.map_err(|error| named(&self.name, self.location.as_ref(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    /// Takes no part.
    #[derive(Debug)]
    struct Refusing;

    #[async_trait]
    impl MultipartUpload for Refusing {
        fn put_part(&mut self, _data: PutPayload) -> UploadPart {
            async { Err(Error::PermissionDenied { path: "key".into(), source: "403".into() }) }.boxed()
        }

        async fn complete(&mut self) -> Result<PutResult> {
            Err(Error::Generic { store: "S3", source: "no".into() })
        }

        async fn abort(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_upload_that_is_refused_is_named_with_its_store() {
        let (name, location) = ("s3://bucket".to_string(), Path::from("a/b.csv"));
        let mut upload = NamedUpload { inner: Box::new(Refusing), name, location };
        let part = upload.put_part("x".into()).await.unwrap_err();
        assert!(
            matches!(&part, Error::PermissionDenied { path, .. } if path == "s3://bucket/a/b.csv"),
            "{part}"
        );
        let whole = upload.complete().await.unwrap_err().to_string();
        assert!(whole.contains("s3://bucket/a/b.csv: no"), "{whole}");
    }

    #[tokio::test]
    async fn what_is_not_there_is_named_with_its_store() {
        let store = Named { name: "s3://bucket".to_string(), inner: Arc::new(InMemory::new()) };
        let error = store.head(&Path::from("a/b.csv")).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound { path, .. } if path == "s3://bucket/a/b.csv"), "{error}");
    }

    #[tokio::test]
    async fn a_footer_longer_than_its_file_is_an_error() {
        let store = Named { name: "s3://bucket".to_string(), inner: Arc::new(InMemory::new()) };
        let place = Path::from("a.parquet");
        let read = async |bytes: &'static [u8]| {
            store.put(&place, bytes.into()).await.unwrap();
            store.get_ranges(&place, std::slice::from_ref(&(0..bytes.len() as u64))).await
        };
        let error = read(b"PAR1 nothing else PAR1").await.unwrap_err().to_string();
        assert!(error.contains("s3://bucket/a.parquet") && error.contains("footer"), "{error}");
        assert!(read(b"0123456789\x04\0\0\0PAR1").await.is_ok());
        assert!(read(b"PAR1").await.is_ok());
    }
}
