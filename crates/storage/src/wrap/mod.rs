//! Wrappers round a store: limits, pacing, counting, faults, secrets kept.
//!
//! Every concern is an [`Around`]: what it does before a call, to an answer's body, and after.
//! [`Wrapped`] is the one implementation of `object_store`'s trait for all of them, so that a
//! new operation of the trait is delegated in one place. They nest in any order; the
//! conformance suite ([`crate::conformance`]) runs on each. Attempts are repeated elsewhere
//! ([`crate::retry`]): that needs a loop round the call, not a hook.

pub mod count;
pub mod fault;
pub mod limit;
pub mod pace;
pub mod secrets;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use pellucid_trace::Operation;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// What will be done.
    pub operation: Operation,
    /// Bytes that it carries to the store.
    pub sent_bytes: u64,
}

/// What a wrapper does round the calls to a store.
#[async_trait]
pub trait Around: fmt::Debug + Send + Sync + 'static {
    /// What a call holds from its beginning to the end of its answer's body.
    type Pass: Send + 'static;

    /// Before a call. An error ends it without the store having seen it.
    async fn enter(&self, call: Call) -> Result<Self::Pass>;

    /// After a call without a body, or that failed; what it returns is the outcome.
    async fn leave(&self, pass: Self::Pass, outcome: Result<()>) -> Result<()> {
        drop(pass);
        outcome
    }

    /// An answer with a body; as it is, it holds the pass until the body ends.
    fn answer(self: Arc<Self>, pass: Self::Pass, result: GetResult) -> GetResult {
        map_body(result, move |body| body.inspect(move |_| _ = &pass).boxed())
    }
}

/// Maps the errors of calls, such as a client's own words to kinds of error. Bodies keep theirs.
#[derive(Debug)]
pub struct MapErrors(pub fn(object_store::Error) -> object_store::Error);

#[async_trait]
impl Around for MapErrors {
    type Pass = ();

    async fn enter(&self, _call: Call) -> Result<()> {
        Ok(())
    }

    async fn leave(&self, _pass: (), outcome: Result<()>) -> Result<()> {
        outcome.map_err(self.0)
    }
}

/// An answer's body.
pub type Body = BoxStream<'static, Result<bytes::Bytes>>;

/// The same answer with another body.
pub(crate) fn map_body(result: GetResult, map: impl FnOnce(Body) -> Body) -> GetResult {
    let GetResult { meta, range, attributes, .. } = &result;
    let (meta, range, attributes) = (meta.clone(), range.clone(), attributes.clone());
    GetResult { payload: GetResultPayload::Stream(map(result.into_stream())), meta, range, attributes }
}

/// A store with something round it.
#[derive(Debug)]
pub struct Wrapped<A> {
    inner: Arc<dyn ObjectStore>,
    around: Arc<A>,
}

impl<A: Around> Wrapped<A> {
    /// `around` round `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>, around: A) -> Arc<Self> {
        Arc::new(Wrapped { inner, around: Arc::new(around) })
    }

    /// What is round it.
    pub fn around(&self) -> &A {
        &self.around
    }

    async fn call<T>(
        &self,
        operation: Operation,
        sent_bytes: u64,
        run: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        through(&*self.around, operation, sent_bytes, run).await
    }
}

async fn through<A: Around, T>(
    around: &A,
    operation: Operation,
    sent_bytes: u64,
    run: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let pass = around.enter(Call { operation, sent_bytes }).await?;
    let (value, outcome) = match run.await {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    };
    around.leave(pass, outcome).await?;
    value.ok_or_else(|| object_store::Error::Generic {
        store: "wrapper",
        source: "a failed call cannot be made good afterwards".into(),
    })
}

impl<A: Around> fmt::Display for Wrapped<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl<A: Around> ObjectStore for Wrapped<A> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length() as u64;
        self.call(Operation::Write, bytes, self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.inner.put_multipart_opts(location, options);
        let inner = self.call(Operation::Write, 0, begun).await?;
        Ok(Box::new(WrappedUpload { inner, around: Arc::clone(&self.around) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return self.call(Operation::Head, 0, self.inner.get_opts(location, options)).await;
        }
        let pass = self.around.enter(Call { operation: Operation::Read, sent_bytes: 0 }).await?;
        match self.inner.get_opts(location, options).await {
            Ok(result) => Ok(Arc::clone(&self.around).answer(pass, result)),
            Err(error) => {
                let left = self.around.leave(pass, Err(error)).await;
                Err(left.err().unwrap_or(object_store::Error::NotImplemented {
                    operation: "making a failed read good".to_string(),
                    implementer: "wrapper".to_string(),
                }))
            }
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, around) = (Arc::clone(&self.inner), Arc::clone(&self.around));
        locations
            .and_then(move |location| {
                let (inner, around) = (Arc::clone(&inner), Arc::clone(&around));
                async move {
                    let one = futures::stream::once(async move { Ok(location) }).boxed();
                    let deleted = inner.delete_stream(one).try_collect::<Vec<Path>>();
                    let mut deleted = through(&*around, Operation::Delete, 0, deleted).await?;
                    deleted.pop().ok_or_else(|| object_store::Error::Generic {
                        store: "wrapper",
                        source: "the store did not say what it deleted".into(),
                    })
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (around, entries) = (Arc::clone(&self.around), self.inner.list(prefix));
        let listed = async move {
            // One call for as many pages as there are: the pass is held for all of them.
            let pass = around.enter(Call { operation: Operation::List, sent_bytes: 0 }).await?;
            let entries: Vec<Result<ObjectMeta>> = entries.collect().await;
            let failed = entries.iter().position(Result::is_err);
            let mut entries = entries;
            let error = failed.map(|at| entries.swap_remove(at)).and_then(Result::err);
            around.leave(pass, error.map_or(Ok(()), Err)).await?;
            Ok(futures::stream::iter(entries))
        };
        listed.try_flatten_stream().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.call(Operation::List, 0, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.call(Operation::Copy, 0, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.call(Operation::Rename, 0, self.inner.rename_opts(from, to, options)).await
    }
}

/// A multipart upload, its parts and its end as calls of their own.
struct WrappedUpload<A> {
    inner: Box<dyn MultipartUpload>,
    around: Arc<A>,
}

impl<A> fmt::Debug for WrappedUpload<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl<A: Around> MultipartUpload for WrappedUpload<A> {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        // Asked for at once: the order of the calls is the order of the parts.
        let part: BoxFuture<'static, Result<()>> = self.inner.put_part(data);
        let around = Arc::clone(&self.around);
        async move { through(&*around, Operation::Write, bytes, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        through(&*self.around, Operation::Commit, 0, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        // Giving up must not be kept from happening.
        self.inner.abort().await
    }
}
