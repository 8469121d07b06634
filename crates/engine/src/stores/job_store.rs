//! A job's view of the engine's stores: reads come from its scans, writes become monotasks.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::Result as DfResult;
use datafusion::execution::object_store::ObjectStoreRegistry;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use url::Url;

use super::job_io::JobIo;
use super::registry::Stores;
use crate::execute::output::Outputs;

/// The store registry of one job.
pub(crate) struct JobStores {
    pub stores: Arc<Stores>,
    pub io: Arc<JobIo>,
    pub outputs: Arc<Outputs>,
}

impl fmt::Debug for JobStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobStores")
    }
}

impl ObjectStoreRegistry for JobStores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.stores.register_store(url, store)
    }

    fn get_store(&self, url: &Url) -> DfResult<Arc<dyn ObjectStore>> {
        self.io.use_store(&pellucid_storage::name(url));
        Ok(Arc::new(JobStore {
            inner: self.stores.get(url)?,
            io: Arc::clone(&self.io),
            outputs: Arc::clone(&self.outputs),
            url: url.clone(),
        }))
    }
}

/// A job's view of one store.
#[derive(Clone)]
struct JobStore {
    inner: Arc<dyn ObjectStore>,
    io: Arc<JobIo>,
    outputs: Arc<Outputs>,
    url: Url,
}

impl fmt::Debug for JobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobStore({})", self.inner)
    }
}

impl fmt::Display for JobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Returns true if `options` ask for a range only, which memory can serve.
fn is_plain(options: &GetOptions) -> bool {
    options.if_match.is_none()
        && options.if_none_match.is_none()
        && options.if_modified_since.is_none()
        && options.if_unmodified_since.is_none()
        && options.version.is_none()
        && !options.head
}

#[async_trait]
impl ObjectStore for JobStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, _opts: PutOptions) -> Result<PutResult> {
        let mut upload = self.put_multipart_opts(location, PutMultipartOptions::default()).await?;
        upload.put_part(payload).await?;
        upload.complete().await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let output = self.outputs.create(&self.inner, &self.url, location).map_err(generic)?;
        Ok(Box::new(JobUpload { outputs: Arc::clone(&self.outputs), output }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if is_plain(&options)
            && let Some(size) = self.io.size(&self.url, location)
        {
            let range = match &options.range {
                Some(r) => r.as_range(size).map_err(generic)?,
                None => 0..size,
            };
            if let Some(bytes) = self.io.get(&self.url, location, &range) {
                // Readers of a scan do not use the modification time.
                let last_modified = Default::default();
                let meta = ObjectMeta {
                    location: location.clone(),
                    last_modified,
                    size,
                    e_tag: None,
                    version: None,
                };
                let stream = futures::stream::once(async move { Ok(bytes) }).boxed();
                return Ok(GetResult {
                    payload: GetResultPayload::Stream(stream),
                    meta,
                    range,
                    attributes: Attributes::new(),
                });
            }
        }
        let (started, head) = (Instant::now(), options.head);
        let result = self.inner.get_opts(location, options).await?;
        Ok(match self.io.miss_recorder(&self.url, location) {
            Some(recorder) => recorder.record_get(started, head, result),
            None => result,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if let Some(all) = ranges.iter().map(|r| self.io.get(&self.url, location, r)).collect() {
            return Ok(all);
        }
        let started = Instant::now();
        let bytes = self.inner.get_ranges(location, ranges).await?;
        if let Some(recorder) = self.io.miss_recorder(&self.url, location) {
            recorder.record_read(started, &bytes);
        }
        Ok(bytes)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "job", source: source.into() }
}

/// An upload whose parts become write monotasks. The job publishes it after all parts are written.
struct JobUpload {
    outputs: Arc<Outputs>,
    output: usize,
}

impl fmt::Debug for JobUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobUpload({})", self.output)
    }
}

#[async_trait]
impl MultipartUpload for JobUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let chunks: Vec<Bytes> = data.into_iter().collect();
        let written = self.outputs.write(self.output, chunks).map_err(generic);
        async move { written }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        // The job publishes all outputs together at its end.
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        self.outputs.abort(self.output);
        Ok(())
    }
}
