//! The stores as one job sees them.
//!
//! DataFusion's openers and sinks ask a registry for a store. A job has a registry of its
//! own, whose stores answer reads from what the job's read monotasks brought into memory,
//! and turn writes into write monotasks. What was not brought is read from the store itself
//! and counted: a record that is longer than the look-ahead. The trace has it as a storage operation,
//! and so it has what planning asks a remote store for (listings, footers, the beginning of a file) and each
//! attempt that a store refused, be it of a monotask. So nobody waits for a device behind the scheduler's back unseen.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::execution::object_store::ObjectStoreRegistry;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use pellucid_runtime::{Job, ResourceHandle, Runtime};
use pellucid_storage::{FailedAttempt, Watch};
use pellucid_trace::{Operation, Outcome, Record, StorageOperation};
use url::Url;

use crate::error_context::Named;
use crate::output::Outputs;
use crate::scan::Scan;

tokio::task_local! {
    /// The job that is planned: planning asks the engine's stores, for its own are of its operators.
    static PLANNED: Arc<JobIo>;
}

/// Plans; what it asks stores for is `io`'s.
pub(crate) async fn planned<T>(io: Arc<JobIo>, planning: impl Future<Output = T>) -> T {
    PLANNED.scope(io, planning).await
}

/// Who hears of what is asked of the store `name` just now, if it is a remote one and somebody plans.
pub(crate) fn planning(name: &str) -> Option<Asking> {
    let io = PLANNED.try_with(Arc::clone).ok().filter(|_| !name.is_empty())?;
    let resource = io.runtime.store(name, None);
    Some(Asking { io, resource })
}

/// The stores that an engine has opened, by scheme and authority; opened on first use.
#[derive(Default)]
pub(crate) struct Stores {
    open: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    /// Jobs that are not over: each hears what a store refuses that it asks for something.
    jobs: Arc<Mutex<Vec<Weak<JobIo>>>>,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stores")
    }
}

impl Stores {
    /// What the stores of a job that begins share.
    pub(crate) fn begin(&self, job: Job, runtime: Runtime) -> Arc<JobIo> {
        let io = Arc::new(JobIo { answers: Mutex::default(), asked: Mutex::default(), job, runtime });
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(&io));
        io
    }

    /// Tells the jobs that ask `store` for something.
    fn watch(&self, store: String) -> Watch {
        let jobs = Arc::clone(&self.jobs);
        Arc::new(move |failed| {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.iter().filter_map(Weak::upgrade).for_each(|job| job.failed(&store, &failed));
        })
    }

    pub(crate) fn get(&self, url: &Url) -> DfResult<Arc<dyn ObjectStore>> {
        let name = pellucid_storage::name(url);
        // Without a job there is nobody to hear it.
        let _ = PLANNED.try_with(|job| job.asks(&name));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(&name) {
            return Ok(Arc::clone(store));
        }
        let store = pellucid_storage::open_watched(url, self.watch(name.clone()));
        let store = store.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let named = if url.scheme() == "file" { String::new() } else { name.clone() };
        let store: Arc<dyn ObjectStore> = Arc::new(Named { name: named, inner: store });
        open.insert(name, Arc::clone(&store));
        Ok(store)
    }
}

impl ObjectStoreRegistry for Stores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(pellucid_storage::name(url), store)
    }

    fn get_store(&self, url: &Url) -> DfResult<Arc<dyn ObjectStore>> {
        self.get(url)
    }
}

/// What an object is known by within a job: several stores may have objects of the same path.
pub(crate) fn in_store(url: &Url, path: &Path) -> String {
    format!("{}/{path}", pellucid_storage::name(url))
}

/// A scan that answers for an object, by its name from [`in_store`].
type Answers = HashMap<String, Vec<(Arc<Scan>, usize)>>;

/// What all stores of one job share.
pub(crate) struct JobIo {
    answers: Mutex<Answers>,
    /// The stores that the job asks for something.
    asked: Mutex<HashSet<String>>,
    job: Job,
    runtime: Runtime,
}

impl JobIo {
    /// From now on the job hears what the store `name` refuses.
    pub(crate) fn asks(&self, name: &str) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !asked.contains(name) {
            asked.insert(name.to_string());
        }
    }

    /// Records an attempt of somebody at `store` that failed.
    fn failed(&self, store: &str, failed: &FailedAttempt) {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).contains(store);
        if asked {
            self.record(StorageOperation {
                error: Some(failed.error.clone()),
                outcome: Outcome::Failed,
                ..self.operation(
                    &self.runtime.store(store, None),
                    failed.operation,
                    failed.started,
                    failed.ended,
                )
            });
        }
    }

    /// One that ended well.
    fn operation(
        &self,
        resource: &ResourceHandle,
        operation: Operation,
        started: Instant,
        ended: Instant,
    ) -> StorageOperation {
        StorageOperation {
            resource: self.job.resource_ix(resource),
            operation,
            started_ns: self.job.recorder().at(started),
            first_byte_ns: None,
            duration_ns: ended.duration_since(started).as_nanos() as u64,
            bytes: None,
            concurrency: None,
            error: None,
            outcome: Outcome::Ok,
        }
    }

    fn record(&self, operation: StorageOperation) {
        self.job.recorder().record(Record::StorageOperation(operation));
    }

    /// Where a read goes that an operator makes by itself, for no monotask has brought its bytes.
    fn missed(self: &Arc<Self>, url: &Url, path: &Path) -> Option<Asking> {
        let resource = if url.scheme() == "file" {
            let path = pellucid_storage::LocalStore::default().path(path);
            // A file that can be read has a disk.
            path.map_err(|e| e.into()).and_then(|p| self.runtime.disk_of(&p)).ok()?
        } else {
            self.runtime.store(&pellucid_storage::name(url), None)
        };
        Some(Asking { io: Arc::clone(self), resource })
    }

    /// From now on `scan` answers for the object of this [name](in_store), its source number `source`.
    pub(crate) fn add(&self, name: String, scan: &Arc<Scan>, source: usize) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.entry(name).or_default().push((Arc::clone(scan), source));
    }

    fn scans(&self, url: &Url, path: &Path) -> Vec<(Arc<Scan>, usize)> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(&in_store(url, path)).cloned().unwrap_or_default()
    }

    /// The size of a file that is read by a scan of this job: its multitasks read it to its end.
    fn size(&self, url: &Url, path: &Path) -> Option<u64> {
        let scans = self.scans(url, path);
        let needs = scans.iter().flat_map(|(scan, source)| {
            scan.tasks.iter().flat_map(|t| &t.needs).filter(move |need| need.source == *source)
        });
        needs.flat_map(|need| &need.ranges).map(|range| range.end).max()
    }

    fn get(&self, url: &Url, path: &Path, range: &Range<u64>) -> Option<Bytes> {
        let scans = self.scans(url, path);
        scans
            .iter()
            .find_map(|(scan, source)| (0..scan.tasks.len()).find_map(|t| scan.get(t, *source, range)))
    }
}

/// A job, and the resource that is asked for something on its behalf, by no monotask.
pub(crate) struct Asking {
    io: Arc<JobIo>,
    resource: ResourceHandle,
}

impl Asking {
    /// What began at `started` has ended; how long its first byte took and how many there were, where that is known.
    fn ended(&self, operation: Operation, started: Instant, first_byte_ns: Option<u64>, bytes: Option<u64>) {
        let ended = self.io.operation(&self.resource, operation, started, Instant::now());
        self.io.record(StorageOperation { first_byte_ns, bytes, ..ended });
    }

    /// A listing that began at `started` has ended; its first entry came after `first_ns`.
    pub(crate) fn listed(&self, started: Instant, first_ns: Option<u64>) {
        self.ended(Operation::List, started, first_ns, None);
    }

    /// These came in one piece.
    pub(crate) fn read(&self, started: Instant, parts: &[Bytes]) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.ended(Operation::Read, started, None, Some(bytes));
    }

    /// The same answer; it is recorded when its body has come, or nobody wants more of it.
    pub(crate) fn answered(self, started: Instant, head: bool, result: GetResult) -> GetResult {
        if head {
            self.ended(Operation::Head, started, None, None);
            return result;
        }
        let wanted = result.range.end - result.range.start;
        let GetResultPayload::Stream(body) = result.payload else {
            self.ended(Operation::Read, started, None, Some(wanted));
            return result;
        };
        let first_byte_ns = started.elapsed().as_nanos() as u64;
        let mut coming = Coming { asking: Some(self), started, first_byte_ns, bytes: 0 };
        let body = body.inspect(move |piece| {
            coming.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            if coming.bytes >= wanted {
                coming.end();
            }
        });
        GetResult { payload: GetResultPayload::Stream(body.boxed()), ..result }
    }
}

/// A body on its way.
struct Coming {
    asking: Option<Asking>,
    started: Instant,
    first_byte_ns: u64,
    bytes: u64,
}

impl Coming {
    fn end(&mut self) {
        if let Some(asking) = self.asking.take() {
            asking.ended(Operation::Read, self.started, Some(self.first_byte_ns), Some(self.bytes));
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.end();
    }
}

/// The registry of one job.
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
        self.io.asks(&pellucid_storage::name(url));
        Ok(Arc::new(JobStore {
            inner: self.stores.get(url)?,
            io: Arc::clone(&self.io),
            outputs: Arc::clone(&self.outputs),
            url: url.clone(),
        }))
    }
}

/// One store as one job sees it.
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

/// What `options` ask for beyond a range cannot be answered from memory.
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
                // No reader of a scan's bytes asks when the file was written.
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
        Ok(match self.io.missed(&self.url, location) {
            Some(asking) => asking.answered(started, head, result),
            None => result,
        })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if let Some(all) = ranges.iter().map(|r| self.io.get(&self.url, location, r)).collect() {
            return Ok(all);
        }
        let started = Instant::now();
        let bytes = self.inner.get_ranges(location, ranges).await?;
        if let Some(asking) = self.io.missed(&self.url, location) {
            asking.read(started, &bytes);
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

/// An upload whose parts become write monotasks; it is published when the job has written all.
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
        // Nothing yet: the job publishes its outputs together, at its end.
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        self.outputs.abort(self.output);
        Ok(())
    }
}
