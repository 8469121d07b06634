//! A store wrapper that adds the full URL to errors and rejects corrupt Parquet footers.
//!
//! A client's errors name a key without its bucket, or an endpoint that the user never typed.
//! The wrapper's errors name `s3://BUCKET/KEY`. The Parquet library panics on a footer length
//! that exceeds the file size; the wrapper returns an error instead.

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

use crate::stores::planning_recorder;

/// A store that adds its name to the paths in errors.
#[derive(Debug)]
pub(crate) struct NamedStore {
    /// For example `s3://bucket`; empty for the local file system.
    pub name: String,
    pub inner: Arc<dyn ObjectStore>,
}

impl fmt::Display for NamedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Adds the full path to the error of an operation on `location` in the store `name`.
fn with_path(name: &str, location: &str, error: Error) -> Error {
    let path = format!("{name}/{location}");
    match error {
        // Local errors already name the path.
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

/// The last bytes of every Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// Checks bytes that may be the end of a Parquet file: footer, footer length, magic bytes. It
/// rejects only bytes that end in the magic and claim a footer longer than everything before
/// them, which no valid range of a file does.
fn check_footer(range: &Range<u64>, bytes: &[u8]) -> std::result::Result<(), String> {
    let Some((_, tail)) = bytes.split_last_chunk::<8>() else { return Ok(()) };
    let (length, magic) = tail.split_at(4);
    let length = u64::from(u32::from_le_bytes(length.try_into().unwrap_or_default()));
    if magic == MAGIC && length + 8 > range.end {
        return Err(format!(
            "the footer length ({length} bytes) exceeds the file size; the file is truncated or not Parquet, \
             write it again"
        ));
    }
    Ok(())
}

impl NamedStore {
    fn at(&self, location: &Path) -> impl FnOnce(Error) -> Error + use<> {
        let (name, location) = (self.name.clone(), location.clone());
        move |error| with_path(&name, location.as_ref(), error)
    }
}

#[async_trait]
impl ObjectStore for NamedStore {
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
        Ok(match planning_recorder(&self.name) {
            Some(recorder) => recorder.record_get(started, head, result),
            None => result,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let started = Instant::now();
        let parts = self.inner.get_ranges(location, ranges).await.map_err(self.at(location))?;
        if let Some(recorder) = planning_recorder(&self.name) {
            recorder.record_read(started, &parts);
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
        self.inner.delete_stream(locations).map(move |r| r.map_err(|e| with_path(&name, "", e))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (name, prefix_name) = (self.name.clone(), prefix.map(Path::to_string).unwrap_or_default());
        let listing = self.inner.list(prefix).map(move |r| r.map_err(|e| with_path(&name, &prefix_name, e)));
        let Some(recorder) = planning_recorder(&self.name) else { return listing.boxed() };
        let (started, mut first_ns) = (Instant::now(), None);
        // A trailing `None` marks the end of the listing.
        let with_end = listing.map(Some).chain(futures::stream::once(std::future::ready(None)));
        let recorded = with_end.inspect(move |entry| match entry {
            Some(_) => first_ns = first_ns.or(Some(started.elapsed().as_nanos() as u64)),
            None => recorder.record_list(started, first_ns),
        });
        recorded.filter_map(std::future::ready).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (whole, started) = (Path::default(), Instant::now());
        let at = self.at(prefix.unwrap_or(&whole));
        let listed = self.inner.list_with_delimiter(prefix).await.map_err(at)?;
        if let Some(recorder) = planning_recorder(&self.name) {
            recorder.record_list(started, None);
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

/// An upload that adds its full path to errors; a client's errors may have no path at all.
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
        part.map_err(move |error| with_path(&name, location.as_ref(), error)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.inner.complete().await;
        result.map_err(|error| with_path(&self.name, self.location.as_ref(), error))
    }

    async fn abort(&mut self) -> Result<()> {
        let result = self.inner.abort().await;
        result.map_err(|error| with_path(&self.name, self.location.as_ref(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    /// An upload whose parts are refused.
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
    async fn refused_upload_error_names_store() {
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
    async fn not_found_error_names_store() {
        let store = NamedStore { name: "s3://bucket".to_string(), inner: Arc::new(InMemory::new()) };
        let error = store.head(&Path::from("a/b.csv")).await.unwrap_err();
        assert!(matches!(&error, Error::NotFound { path, .. } if path == "s3://bucket/a/b.csv"), "{error}");
    }

    #[tokio::test]
    async fn footer_longer_than_file_is_an_error() {
        let store = NamedStore { name: "s3://bucket".to_string(), inner: Arc::new(InMemory::new()) };
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
