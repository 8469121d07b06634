//! Wrappers for stores: faults, pacing and counting.
//!
//! Each wrapper is an [`Interceptor`] with hooks before a call, after it, and for the response body.
//! [`Wrapped`] is the only implementation of `object_store`'s trait for them. Wrappers nest in any order.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use pellucid_storage::body::map_body;
use pellucid_trace::Operation;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Requested operation.
    pub operation: Operation,
    /// Bytes sent to the store.
    pub sent_bytes: u64,
}

/// Hooks around the calls to a store.
#[async_trait]
pub trait Interceptor: fmt::Debug + Send + Sync + 'static {
    /// State of a call, held from its start to the end of its response body.
    type State: Send + 'static;

    /// Runs before a call. An error ends the call before it reaches the store.
    async fn enter(&self, call: Call) -> Result<Self::State>;

    /// Runs after a call that has no body or that failed. The returned result replaces the outcome.
    async fn leave(&self, state: Self::State, outcome: Result<()>) -> Result<()> {
        drop(state);
        outcome
    }

    /// Wraps a response with a body. The default holds the state until the body ends.
    fn answer(self: Arc<Self>, state: Self::State, result: GetResult) -> GetResult {
        map_body(result, move |body| body.inspect(move |_| _ = &state).boxed())
    }
}

/// A store with an interceptor.
#[derive(Debug)]
pub struct Wrapped<I> {
    inner: Arc<dyn ObjectStore>,
    interceptor: Arc<I>,
}

impl<I: Interceptor> Wrapped<I> {
    /// Wraps `inner` with `interceptor`.
    pub fn new(inner: Arc<dyn ObjectStore>, interceptor: I) -> Arc<Self> {
        Arc::new(Wrapped { inner, interceptor: Arc::new(interceptor) })
    }

    /// Returns the interceptor.
    pub fn interceptor(&self) -> &I {
        &self.interceptor
    }

    async fn call<T>(
        &self,
        operation: Operation,
        sent_bytes: u64,
        run: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        intercept(&*self.interceptor, operation, sent_bytes, run).await
    }
}

async fn intercept<I: Interceptor, T>(
    interceptor: &I,
    operation: Operation,
    sent_bytes: u64,
    run: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let state = interceptor.enter(Call { operation, sent_bytes }).await?;
    let (value, outcome) = match run.await {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(error)),
    };
    interceptor.leave(state, outcome).await?;
    value.ok_or_else(|| object_store::Error::Generic {
        store: "wrapper",
        source: "an interceptor cannot turn a failed call into a success".into(),
    })
}

impl<I: Interceptor> fmt::Display for Wrapped<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl<I: Interceptor> ObjectStore for Wrapped<I> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length() as u64;
        self.call(Operation::Write, bytes, self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.inner.put_multipart_opts(location, options);
        let inner = self.call(Operation::Write, 0, upload).await?;
        Ok(Box::new(WrappedUpload { inner, interceptor: Arc::clone(&self.interceptor) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return self.call(Operation::Head, 0, self.inner.get_opts(location, options)).await;
        }
        let state = self.interceptor.enter(Call { operation: Operation::Read, sent_bytes: 0 }).await?;
        match self.inner.get_opts(location, options).await {
            Ok(result) => Ok(Arc::clone(&self.interceptor).answer(state, result)),
            Err(error) => {
                let left = self.interceptor.leave(state, Err(error)).await;
                Err(left.err().unwrap_or(object_store::Error::NotImplemented {
                    operation: "turning a failed read into a success".to_string(),
                    implementer: "wrapper".to_string(),
                }))
            }
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, interceptor) = (Arc::clone(&self.inner), Arc::clone(&self.interceptor));
        locations
            .and_then(move |location| {
                let (inner, interceptor) = (Arc::clone(&inner), Arc::clone(&interceptor));
                async move {
                    let one = futures::stream::once(async move { Ok(location) }).boxed();
                    let deleted = inner.delete_stream(one).try_collect::<Vec<Path>>();
                    let mut deleted = intercept(&*interceptor, Operation::Delete, 0, deleted).await?;
                    deleted.pop().ok_or_else(|| object_store::Error::Generic {
                        store: "wrapper",
                        source: "the store returned no location for a deletion".into(),
                    })
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (interceptor, entries) = (Arc::clone(&self.interceptor), self.inner.list(prefix));
        let listed = async move {
            // A listing of several pages counts as one call, which holds its state throughout.
            let state = interceptor.enter(Call { operation: Operation::List, sent_bytes: 0 }).await?;
            let entries: Vec<Result<ObjectMeta>> = entries.collect().await;
            let failed = entries.iter().position(Result::is_err);
            let mut entries = entries;
            let error = failed.map(|at| entries.swap_remove(at)).and_then(Result::err);
            interceptor.leave(state, error.map_or(Ok(()), Err)).await?;
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

/// A multipart upload whose parts and completion are intercepted as separate calls.
struct WrappedUpload<I> {
    inner: Box<dyn MultipartUpload>,
    interceptor: Arc<I>,
}

impl<I> fmt::Debug for WrappedUpload<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl<I: Interceptor> MultipartUpload for WrappedUpload<I> {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        // Called eagerly, since the order of the calls determines the order of the parts.
        let part: BoxFuture<'static, Result<()>> = self.inner.put_part(data);
        let interceptor = Arc::clone(&self.interceptor);
        async move { intercept(&*interceptor, Operation::Write, bytes, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        intercept(&*self.interceptor, Operation::Commit, 0, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        // Not intercepted: an abort must always reach the store.
        self.inner.abort().await
    }
}
