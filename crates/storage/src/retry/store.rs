//! The store that retries.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use pellucid_trace::Operation;

use super::attempts::Attempts;
use super::limits::Limits;
use super::reading::{Reading, open};
use crate::body::map_body;
use crate::clock::Clock;
use crate::failed_attempt::Watch;

/// Concurrent deletions.
const DELETE_CONCURRENCY: usize = 8;

/// A store that retries; see the [module](super).
#[derive(Debug)]
pub struct Retrying(Arc<Attempts>);

impl Retrying {
    /// Wraps `inner`; `seed` determines the jitter of the pauses.
    pub fn new(inner: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>, limits: Limits, seed: u64) -> Arc<Self> {
        Self::watched(inner, clock, limits, seed, Arc::new(|_| ()))
    }

    /// Wraps `inner` and reports failed attempts to `watch`, except for those of a client that retries calls itself.
    pub fn watched(
        inner: Arc<dyn ObjectStore>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        seed: u64,
        watch: Watch,
    ) -> Arc<Self> {
        Arc::new(Retrying(Arc::new(Attempts { inner, clock, limits, jitter: Mutex::new(seed), watch })))
    }
}

impl fmt::Display for Retrying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Retrying {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let retries = matches!(options.mode, PutMode::Overwrite);
        let call = |_| self.0.inner.put_opts(location, payload.clone(), options.clone());
        self.0.repeated(Operation::Write, payload.content_length() as u64, retries, call).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let call = |_| self.0.inner.put_multipart_opts(location, options.clone());
        let inner = self.0.repeated(Operation::Write, 0, true, call).await?;
        Ok(Box::new(TimedUpload { inner, attempts: Arc::clone(&self.0), sent_bytes: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            let call = |_| self.0.inner.get_opts(location, options.clone());
            return self.0.repeated(Operation::Head, 0, true, call).await;
        }
        let call = |_| open(&*self.0.inner, location, options.clone());
        let result = self.0.repeated(Operation::Read, 0, true, call).await?;
        let reading = Reading {
            attempts: Arc::clone(&self.0),
            location: location.clone(),
            options,
            meta: result.meta.clone(),
            at: result.range.start,
            end: result.range.end,
            body: None,
            attempt: 1,
        };
        Ok(map_body(result, |body| {
            let begun = Reading { body: Some(body), ..reading };
            let next =
                |mut reading: Reading| async move { Ok(reading.next().await?.map(|chunk| (chunk, reading))) };
            futures::stream::try_unfold(begun, next).boxed()
        }))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let attempts = Arc::clone(&self.0);
        let delete = move |location: Result<Path>| {
            let attempts = Arc::clone(&attempts);
            async move {
                let location = location?;
                let call = |attempt| {
                    let one = futures::stream::once(std::future::ready(Ok(location.clone()))).boxed();
                    let deleted = attempts.inner.delete_stream(one).try_collect::<Vec<Path>>();
                    deleted.map(move |outcome| match outcome {
                        // A previous attempt deleted the object, but its response was lost.
                        Err(Error::NotFound { .. }) if attempt > 1 => Ok(()),
                        outcome => outcome.map(|_| ()),
                    })
                };
                attempts.repeated(Operation::Delete, 0, true, call).await?;
                Ok(location)
            }
        };
        locations.map(delete).buffered(DELETE_CONCURRENCY).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (attempts, prefix) = (Arc::clone(&self.0), prefix.cloned());
        let listed = async move {
            let entries =
                attempts.retried(Operation::List, true, |_| attempts.entries(prefix.as_ref())).await?;
            Ok(futures::stream::iter(entries.into_iter().map(Ok)))
        };
        listed.try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.repeated(Operation::List, 0, true, |_| self.0.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let retries = matches!(options.mode, CopyMode::Overwrite);
        let call = |_| self.0.inner.copy_opts(from, to, options.clone());
        self.0.repeated(Operation::Copy, 0, retries, call).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let call = |_| self.0.inner.rename_opts(from, to, options.clone());
        self.0.repeated(Operation::Rename, 0, false, call).await
    }
}

/// A multipart upload with timeouts. Parts are not retried, since a retried part would get a new number.
struct TimedUpload {
    inner: Box<dyn MultipartUpload>,
    attempts: Arc<Attempts>,
    /// Bytes of all parts, for the timeout of the completion: a store may rewrite the parts to join them.
    sent_bytes: u64,
}

impl fmt::Debug for TimedUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl MultipartUpload for TimedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        self.sent_bytes += bytes;
        let (part, attempts) = (self.inner.put_part(data), Arc::clone(&self.attempts));
        async move { attempts.with_timeout(bytes, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.attempts.with_timeout(self.sent_bytes, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.attempts.with_timeout(0, self.inner.abort()).await
    }
}
