//! Retries, timeouts and length checks for a store over an unreliable link: an operation returns the
//! correct bytes or a clear error, in bounded time.
//!
//! Idempotent calls are retried a few times, with exponential backoff and jitter so that clients that
//! failed together do not retry together; a store's `Retry-After` is honoured. Every response and
//! every chunk of a body has a timeout. An interrupted body resumes where it stopped, from the same
//! version of the object. A body of the wrong length is an error.
//!
//! Two kinds of calls are not retried. The first are calls that are not idempotent and may have
//! succeeded although the response was lost: create if absent, rename, and the parts and completion
//! of a multipart upload. (Swift's parts are separate objects and can be retried, see
//! `crates/backends/src/segments.rs`.) The second are calls that would fail again: not found, not
//! allowed, expired. If the client retries requests itself (S3's does), [`Limits::retries_calls`] is
//! false and this module only resumes bodies.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use pellucid_trace::Operation;

use crate::body::{Body, map_body};
use crate::clock::{Clock, timeout};
use crate::remote::ResponseStart;
use crate::{FailedAttempt, Watch};

/// An error of a store that throttles requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// Requested pause, if the store named one.
    pub retry_after_ns: Option<u64>,
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after_ns {
            Some(ns) => write!(f, "503 Service Unavailable, retry after {} s", ns / 1_000_000_000),
            None => f.write_str("503 Service Unavailable"),
        }
    }
}

impl std::error::Error for Throttled {}

/// A permanent error for which `object_store` has no error kind.
#[derive(Debug)]
pub struct Permanent(pub Box<dyn std::error::Error + Send + Sync>);

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Permanent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Limits of attempts, pauses and timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum attempts at one call or one body, including the first.
    pub attempts: u32,
    /// Pause after the first attempt; doubles with each attempt.
    pub pause_ns: u64,
    /// Maximum pause; a store that requests a longer one is not retried.
    pub max_pause_ns: u64,
    /// Timeout for the start of a response, excluding the time for the bytes sent.
    pub response_timeout_ns: u64,
    /// Timeout between two chunks of a body.
    pub chunk_timeout_ns: u64,
    /// False if the client retries requests itself.
    pub retries_calls: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            attempts: 5,
            pause_ns: 100_000_000,
            max_pause_ns: 20_000_000_000,
            response_timeout_ns: 60_000_000_000,
            chunk_timeout_ns: 30_000_000_000,
            retries_calls: true,
        }
    }
}

/// Additional timeout per byte sent: the slowest supported link carries 100 kB/s.
const NS_PER_SENT_BYTE: u64 = 10_000;

/// Concurrent deletions.
const DELETE_CONCURRENCY: usize = 8;

/// A store that retries; see the module documentation.
#[derive(Debug)]
pub struct Retrying(Arc<Core>);

struct Core {
    inner: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// State of the generator that spreads the pauses.
    jitter: Mutex<u64>,
    watch: Watch,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("inner", &self.inner)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

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
        Arc::new(Retrying(Arc::new(Core { inner, clock, limits, jitter: Mutex::new(seed), watch })))
    }
}

fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "store", source: source.into() }
}

/// Returns true if a retry may succeed. Generic errors count as transient unless marked [`Permanent`].
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Generic { source, .. } if !source.is::<Permanent>())
}

/// Returns the pause that the store requested.
fn retry_after_ns(error: &Error) -> Option<u64> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(throttled) = inner.downcast_ref::<Throttled>() {
            return throttled.retry_after_ns;
        }
        cause = inner.source();
    }
    None
}

impl Core {
    /// Returns the pause after attempt number `attempt` (from 1): half fixed, half random.
    fn pause_ns(&self, attempt: u32) -> u64 {
        let whole =
            self.limits.pause_ns.saturating_mul(1 << (attempt - 1).min(20)).min(self.limits.max_pause_ns);
        let mut state = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        // Knuth's MMIX generator is good enough for jitter.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        whole / 2 + (*state >> 33) * (whole - whole / 2) / (1 << 31)
    }

    /// Pauses after the failed attempt number `attempt`, which started at `started`. Returns the error if
    /// no retry follows.
    async fn wait(&self, operation: Operation, started: Instant, attempt: u32, error: Error) -> Result<()> {
        if !is_transient(&error) {
            return Err(error);
        }
        let text = error.to_string();
        let waited = self.pause(attempt, error).await;
        (self.watch)(FailedAttempt { operation, started, ended: Instant::now(), error: text });
        waited
    }

    async fn pause(&self, attempt: u32, error: Error) -> Result<()> {
        if attempt >= self.limits.attempts {
            return Err(failed(format!("{error} (after {attempt} attempts)")));
        }
        let asked = retry_after_ns(&error).unwrap_or(0);
        if asked > self.limits.max_pause_ns {
            return Err(error);
        }
        self.clock.sleep(self.pause_ns(attempt).max(asked)).await;
        Ok(())
    }

    async fn with_timeout<T>(
        &self,
        sent_bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let ns = self.limits.response_timeout_ns.saturating_add(sent_bytes.saturating_mul(NS_PER_SENT_BYTE));
        timeout(&*self.clock, ns, call)
            .await
            .unwrap_or_else(|| Err(failed(format!("no response within {} s", ns / 1_000_000_000))))
    }

    /// Repeats a call, each time with a timeout, until it succeeds, must not be retried, or has used up
    /// its attempts.
    async fn attempts<T, F: Future<Output = Result<T>> + Send>(
        &self,
        operation: Operation,
        sent_bytes: u64,
        retries: bool,
        mut call: impl FnMut(u32) -> F,
    ) -> Result<T> {
        self.retried(operation, retries, |attempt| self.with_timeout(sent_bytes, call(attempt))).await
    }

    async fn retried<T, F: Future<Output = Result<T>>>(
        &self,
        operation: Operation,
        retries: bool,
        mut call: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            let started = Instant::now();
            match call(attempt).await {
                Err(error) if retries && self.limits.retries_calls => {
                    self.wait(operation, started, attempt, error).await?
                }
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    /// Collects the entries of a listing. The timeout applies to each entry, so a long listing may take
    /// any time.
    async fn entries(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let mut listing = self.inner.list(prefix);
        let mut entries = Vec::new();
        while let Some(entry) = self.with_timeout(0, async { listing.next().await.transpose() }).await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Opens a body; a response with another range than the requested one is an error.
    async fn open(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        options.extensions.insert(ResponseStart::default());
        let asked = options.range.clone();
        let result = self.inner.get_opts(location, options).await?;
        let expected = match asked {
            Some(range) => range.as_range(result.meta.size).map_err(failed)?,
            None => 0..result.meta.size,
        };
        if result.range != expected {
            return Err(failed(format!("requested bytes {expected:?} but received {:?}", result.range)));
        }
        Ok(result)
    }
}

/// Returns true if two responses describe the same version of an object. Compares modification times if
/// the store has no version identifiers (HDFS).
pub(crate) fn same_version(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let named = a.e_tag.is_some() || b.e_tag.is_some();
    a.e_tag == b.e_tag && a.size == b.size && (named || a.last_modified == b.last_modified)
}

/// A body that is being read.
struct Reading {
    core: Arc<Core>,
    location: Path,
    options: GetOptions,
    /// Metadata of the version at the start of the body.
    meta: ObjectMeta,
    /// Offset of the next byte.
    at: u64,
    /// End of the requested range.
    end: u64,
    body: Option<Body>,
    attempt: u32,
}

impl Reading {
    /// Returns the next chunk; `None` at the end of the range.
    async fn next(&mut self) -> Result<Option<bytes::Bytes>> {
        loop {
            let started = Instant::now();
            let error = match self.chunk().await {
                Ok(Some(chunk)) if self.at + chunk.len() as u64 > self.end => {
                    return Err(failed("the response is longer than the requested range"));
                }
                Ok(Some(chunk)) => {
                    self.at += chunk.len() as u64;
                    return Ok(Some(chunk));
                }
                Ok(None) if self.at == self.end => return Ok(None),
                Ok(None) => failed(format!("the response ended {} bytes early", self.end - self.at)),
                Err(error) => error,
            };
            self.body = None;
            self.core.wait(Operation::Read, started, self.attempt, error).await?;
            self.attempt += 1;
        }
    }

    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>> {
        if self.body.is_none() {
            let options = GetOptions {
                range: Some(GetRange::Bounded(self.at..self.end)),
                // Requests the same version, if the store has version identifiers.
                if_match: self.meta.e_tag.clone().or(self.options.if_match.clone()),
                ..self.options.clone()
            };
            let result = self.core.with_timeout(0, self.core.open(&self.location, options)).await?;
            if !same_version(&result.meta, &self.meta) {
                let path = self.location.to_string();
                return Err(Error::Precondition {
                    path,
                    source: "the object changed while it was being read".into(),
                });
            }
            self.body = Some(result.into_stream());
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        let ns = self.core.limits.chunk_timeout_ns;
        match timeout(&*self.core.clock, ns, body.next()).await {
            Some(chunk) => chunk.transpose(),
            None => Err(failed(format!("no data received within {} s", ns / 1_000_000_000))),
        }
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
        self.0.attempts(Operation::Write, payload.content_length() as u64, retries, call).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let call = |_| self.0.inner.put_multipart_opts(location, options.clone());
        let inner = self.0.attempts(Operation::Write, 0, true, call).await?;
        Ok(Box::new(TimedUpload { inner, core: Arc::clone(&self.0), sent_bytes: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            let call = |_| self.0.inner.get_opts(location, options.clone());
            return self.0.attempts(Operation::Head, 0, true, call).await;
        }
        let call = |_| self.0.open(location, options.clone());
        let result = self.0.attempts(Operation::Read, 0, true, call).await?;
        let reading = Reading {
            core: Arc::clone(&self.0),
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
        let core = Arc::clone(&self.0);
        let delete = move |location: Result<Path>| {
            let core = Arc::clone(&core);
            async move {
                let location = location?;
                let call = |attempt| {
                    let one = futures::stream::once(std::future::ready(Ok(location.clone()))).boxed();
                    let deleted = core.inner.delete_stream(one).try_collect::<Vec<Path>>();
                    deleted.map(move |outcome| match outcome {
                        // A previous attempt deleted the object, but its response was lost.
                        Err(Error::NotFound { .. }) if attempt > 1 => Ok(()),
                        outcome => outcome.map(|_| ()),
                    })
                };
                core.attempts(Operation::Delete, 0, true, call).await?;
                Ok(location)
            }
        };
        locations.map(delete).buffered(DELETE_CONCURRENCY).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (core, prefix) = (Arc::clone(&self.0), prefix.cloned());
        let listed = async move {
            let entries = core.retried(Operation::List, true, |_| core.entries(prefix.as_ref())).await?;
            Ok(futures::stream::iter(entries.into_iter().map(Ok)))
        };
        listed.try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.attempts(Operation::List, 0, true, |_| self.0.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let retries = matches!(options.mode, CopyMode::Overwrite);
        let call = |_| self.0.inner.copy_opts(from, to, options.clone());
        self.0.attempts(Operation::Copy, 0, retries, call).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let call = |_| self.0.inner.rename_opts(from, to, options.clone());
        self.0.attempts(Operation::Rename, 0, false, call).await
    }
}

/// A multipart upload with timeouts. Parts are not retried, since a retried part would get a new number.
struct TimedUpload {
    inner: Box<dyn MultipartUpload>,
    core: Arc<Core>,
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
        let (part, core) = (self.inner.put_part(data), Arc::clone(&self.core));
        async move { core.with_timeout(bytes, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.core.with_timeout(self.sent_bytes, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.core.with_timeout(0, self.inner.abort()).await
    }
}
