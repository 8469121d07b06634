//! The right bytes or a clear error, in bounded time: attempts, pauses, deadlines, lengths.
//!
//! Round a store whose link may fail. What may be repeated is repeated, a few times, after
//! pauses that double and are spread at random, so that clients which failed together do not
//! come back together; a store that says when to come again is believed. Every answer and
//! every piece of a body has a deadline. A body that breaks off goes on where it stopped, from
//! the same version of the object, and one of another length than was asked for is an error.
//!
//! Not repeated: what may have been done although its answer was lost and cannot be done
//! twice (create if absent, rename, the parts and the end of a multipart upload; Swift's are objects
//! of their own and stand on this: `crates/backends/src/segments.rs`), and what will be refused again (not found, not allowed, expired). Where a client repeats requests by
//! itself (S3's), [`Limits::repeats_calls`] is false and only bodies are gone on with here.

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

use crate::clock::{Clock, within};
use crate::remote::Answered;
use crate::wrap::{Body, map_body};
use crate::{FailedAttempt, Watch};

/// The store asked to be left alone for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// How long, where it said so.
    pub retry_after_ns: Option<u64>,
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after_ns {
            Some(ns) => write!(f, "503 Service Unavailable, come again after {} s", ns / 1_000_000_000),
            None => f.write_str("503 Service Unavailable"),
        }
    }
}

impl std::error::Error for Throttled {}

/// An error that a repetition does not cure, although its store has no kind for it.
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

/// How often and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Attempts at one call or one body, the first included.
    pub attempts: u32,
    /// Pause after the first; it doubles from attempt to attempt.
    pub pause_ns: u64,
    /// No pause is longer; a store that asks for more is given up.
    pub longest_pause_ns: u64,
    /// Until an answer begins, beside the time for the bytes sent.
    pub answer_ns: u64,
    /// Between two pieces of a body.
    pub piece_ns: u64,
    /// False where the client repeats requests by itself.
    pub repeats_calls: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            attempts: 5,
            pause_ns: 100_000_000,
            longest_pause_ns: 20_000_000_000,
            answer_ns: 60_000_000_000,
            piece_ns: 30_000_000_000,
            repeats_calls: true,
        }
    }
}

/// Time that a deadline leaves for each byte sent: the slowest link that is waited for
/// carries 100 kB/s.
const NS_A_SENT_BYTE: u64 = 10_000;

/// Deletions at once.
const DELETIONS: usize = 8;

/// A store whose answers are right or errors; see the module's head.
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
    /// Round `inner`; `seed` decides how the pauses are spread.
    pub fn new(inner: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>, limits: Limits, seed: u64) -> Arc<Self> {
        Self::watched(inner, clock, limits, seed, Arc::new(|_| ()))
    }

    /// The same; `watch` is told of attempts that fail, but for those of a client that repeats calls by itself.
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

/// Whether it may go well the next time. An error without a kind of its own may mean anything.
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Generic { source, .. } if !source.is::<Permanent>())
}

/// How long the store asked to be left alone.
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
    /// The pause after attempt number `attempt` (from 1): half of it fixed, half at random.
    fn pause_ns(&self, attempt: u32) -> u64 {
        let whole =
            self.limits.pause_ns.saturating_mul(1 << (attempt - 1).min(20)).min(self.limits.longest_pause_ns);
        let mut state = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        // Knuth's MMIX generator: nothing depends on its quality.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        whole / 2 + (*state >> 33) * (whole - whole / 2) / (1 << 31)
    }

    /// Waits before the attempt after number `attempt`, which began at `started`, or gives the error back
    /// where there is to be none.
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
        if asked > self.limits.longest_pause_ns {
            return Err(error);
        }
        self.clock.sleep(self.pause_ns(attempt).max(asked)).await;
        Ok(())
    }

    async fn in_time<T>(&self, sent_bytes: u64, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let ns = self.limits.answer_ns.saturating_add(sent_bytes.saturating_mul(NS_A_SENT_BYTE));
        within(&*self.clock, ns, call)
            .await
            .unwrap_or_else(|| Err(failed(format!("no answer within {} s", ns / 1_000_000_000))))
    }

    /// Calls, each time with a deadline, until it goes well, may not be repeated, or has been tried often
    /// enough.
    async fn attempts<T, F: Future<Output = Result<T>> + Send>(
        &self,
        operation: Operation,
        sent_bytes: u64,
        repeats: bool,
        mut call: impl FnMut(u32) -> F,
    ) -> Result<T> {
        self.repeated(operation, repeats, |attempt| self.in_time(sent_bytes, call(attempt))).await
    }

    async fn repeated<T, F: Future<Output = Result<T>>>(
        &self,
        operation: Operation,
        repeats: bool,
        mut call: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            let started = Instant::now();
            match call(attempt).await {
                Err(error) if repeats && self.limits.repeats_calls => {
                    self.wait(operation, started, attempt, error).await?
                }
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    /// All entries of a listing. A long one takes as long as it takes: the deadline is of each entry.
    async fn entries(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let mut listing = self.inner.list(prefix);
        let mut entries = Vec::new();
        while let Some(entry) = self.in_time(0, async { listing.next().await.transpose() }).await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Opens a body; an answer about other bytes than those asked for is an error.
    async fn open(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        options.extensions.insert(Answered::default());
        let asked = options.range.clone();
        let result = self.inner.get_opts(location, options).await?;
        let expected = match asked {
            Some(range) => range.as_range(result.meta.size).map_err(failed)?,
            None => 0..result.meta.size,
        };
        if result.range != expected {
            return Err(failed(format!("asked for bytes {expected:?} and was answered {:?}", result.range)));
        }
        Ok(result)
    }
}

/// Whether two answers are about the same version of an object; where the store has no name for one (HDFS),
/// by when it was written.
pub(crate) fn same_version(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let named = a.e_tag.is_some() || b.e_tag.is_some();
    a.e_tag == b.e_tag && a.size == b.size && (named || a.last_modified == b.last_modified)
}

/// A body on its way.
struct Reading {
    core: Arc<Core>,
    location: Path,
    options: GetOptions,
    /// Of the version that the body began with.
    meta: ObjectMeta,
    /// The next byte, and the one after the last.
    at: u64,
    end: u64,
    body: Option<Body>,
    attempt: u32,
}

impl Reading {
    /// The next piece; `None` at the end of the whole.
    async fn next(&mut self) -> Result<Option<bytes::Bytes>> {
        loop {
            let started = Instant::now();
            let error = match self.piece().await {
                Ok(Some(piece)) if self.at + piece.len() as u64 > self.end => {
                    return Err(failed("the answer has more bytes than were asked for"));
                }
                Ok(Some(piece)) => {
                    self.at += piece.len() as u64;
                    return Ok(Some(piece));
                }
                Ok(None) if self.at == self.end => return Ok(None),
                Ok(None) => failed(format!("the answer ended {} bytes early", self.end - self.at)),
                Err(error) => error,
            };
            self.body = None;
            self.core.wait(Operation::Read, started, self.attempt, error).await?;
            self.attempt += 1;
        }
    }

    async fn piece(&mut self) -> Result<Option<bytes::Bytes>> {
        if self.body.is_none() {
            let options = GetOptions {
                range: Some(GetRange::Bounded(self.at..self.end)),
                // From the same version, where the store has a name for it.
                if_match: self.meta.e_tag.clone().or(self.options.if_match.clone()),
                ..self.options.clone()
            };
            let result = self.core.in_time(0, self.core.open(&self.location, options)).await?;
            if !same_version(&result.meta, &self.meta) {
                let path = self.location.to_string();
                return Err(Error::Precondition {
                    path,
                    source: "it was written anew while it was read".into(),
                });
            }
            self.body = Some(result.into_stream());
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        let ns = self.core.limits.piece_ns;
        match within(&*self.core.clock, ns, body.next()).await {
            Some(piece) => piece.transpose(),
            None => Err(failed(format!("no byte within {} s", ns / 1_000_000_000))),
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
        let repeats = matches!(options.mode, PutMode::Overwrite);
        let call = |_| self.0.inner.put_opts(location, payload.clone(), options.clone());
        self.0.attempts(Operation::Write, payload.content_length() as u64, repeats, call).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let call = |_| self.0.inner.put_multipart_opts(location, options.clone());
        let inner = self.0.attempts(Operation::Write, 0, true, call).await?;
        Ok(Box::new(InTime { inner, core: Arc::clone(&self.0), sent_bytes: 0 }))
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
                |mut reading: Reading| async move { Ok(reading.next().await?.map(|piece| (piece, reading))) };
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
                        // The attempt before did it, and its answer was lost.
                        Err(Error::NotFound { .. }) if attempt > 1 => Ok(()),
                        outcome => outcome.map(|_| ()),
                    })
                };
                core.attempts(Operation::Delete, 0, true, call).await?;
                Ok(location)
            }
        };
        locations.map(delete).buffered(DELETIONS).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (core, prefix) = (Arc::clone(&self.0), prefix.cloned());
        let listed = async move {
            let entries = core.repeated(Operation::List, true, |_| core.entries(prefix.as_ref())).await?;
            Ok(futures::stream::iter(entries.into_iter().map(Ok)))
        };
        listed.try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.attempts(Operation::List, 0, true, |_| self.0.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let repeats = matches!(options.mode, CopyMode::Overwrite);
        let call = |_| self.0.inner.copy_opts(from, to, options.clone());
        self.0.attempts(Operation::Copy, 0, repeats, call).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let call = |_| self.0.inner.rename_opts(from, to, options.clone());
        self.0.attempts(Operation::Rename, 0, false, call).await
    }
}

/// A multipart upload with deadlines: which part a repeated one would be, nobody knows.
struct InTime {
    inner: Box<dyn MultipartUpload>,
    core: Arc<Core>,
    /// A store may write the parts once more when it makes them one.
    sent_bytes: u64,
}

impl fmt::Debug for InTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl MultipartUpload for InTime {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        self.sent_bytes += bytes;
        let (part, core) = (self.inner.put_part(data), Arc::clone(&self.core));
        async move { core.in_time(bytes, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.core.in_time(self.sent_bytes, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.core.in_time(0, self.inner.abort()).await
    }
}
