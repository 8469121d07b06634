//! The engine's view of a store: records planning-time requests, and rejects corrupt Parquet footers.
//!
//! The Parquet library panics on a footer length that exceeds the file size; this store returns an error instead.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use pellucid_storage::web;

use super::job_io::OperationRecorder;
use super::planning::planning_recorder;

/// A store of the engine.
#[derive(Debug)]
pub(super) struct EngineStore {
    /// For example `s3://bucket`; `None` for the local file system, whose requests are not recorded.
    pub name: Option<String>,
    pub inner: Arc<dyn ObjectStore>,
}

impl EngineStore {
    /// Returns the recorder of a request; `None` outside of planning.
    fn recorder(&self) -> Option<OperationRecorder> {
        planning_recorder(self.name.as_deref()?)
    }
}

impl fmt::Display for EngineStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
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

#[async_trait]
impl ObjectStore for EngineStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (started, head) = (Instant::now(), options.head);
        let result = self.inner.get_opts(location, options).await?;
        Ok(match self.recorder() {
            Some(recorder) => recorder.record_get(started, head, result),
            None => result,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let started = Instant::now();
        let parts = self.inner.get_ranges(location, ranges).await?;
        if let Some(recorder) = self.recorder() {
            recorder.record_read(started, &parts);
        }
        for (range, bytes) in ranges.iter().zip(&parts) {
            check_footer(range, bytes).map_err(|source| {
                let (store, location) =
                    (self.name.as_deref().unwrap_or_default(), web::path(location.as_ref()));
                let path = format!("{store}/{location}");
                Error::Generic { store: "Parquet", source: format!("{path}: {source}").into() }
            })?;
        }
        Ok(parts)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listing = self.inner.list(prefix);
        let Some(recorder) = self.recorder() else { return listing };
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
        let started = Instant::now();
        let listed = self.inner.list_with_delimiter(prefix).await?;
        if let Some(recorder) = self.recorder() {
            recorder.record_list(started, None);
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn footer_longer_than_file_is_an_error() {
        let store = EngineStore { name: Some("s3://bucket".to_string()), inner: Arc::new(InMemory::new()) };
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
