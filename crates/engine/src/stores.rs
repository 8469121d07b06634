//! Object stores of the engine, and the view of them that a job has.
//!
//! DataFusion's openers and sinks get their stores from a registry. Each job has its own registry.
//! Its stores serve reads from the bytes that the job's read monotasks loaded into memory, and turn
//! writes into write monotasks.
//!
//! I/O outside monotasks is recorded in the trace as storage operations, so that no wait for a device
//! goes unseen: reads of records that are longer than the look-ahead, planning-time requests to remote
//! stores (listings, footers, the start of a file), and all failed attempts, including those of monotasks.

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

use crate::error_context::NamedStore;
use crate::output::Outputs;
use crate::scan::Scan;

tokio::task_local! {
    /// The job that is being planned. Planning uses the engine's stores, not the job's.
    static PLANNING_JOB: Arc<JobIo>;
}

/// Runs `planning` and attributes its requests to stores to `io`.
pub(crate) async fn with_planning_job<T>(io: Arc<JobIo>, planning: impl Future<Output = T>) -> T {
    PLANNING_JOB.scope(io, planning).await
}

/// Returns the recorder of planning-time requests to the remote store `name`; `None` for the local
/// file system, and outside of planning.
pub(crate) fn planning_recorder(name: &str) -> Option<OperationRecorder> {
    let io = PLANNING_JOB.try_with(Arc::clone).ok().filter(|_| !name.is_empty())?;
    let resource = io.runtime.store(name, None);
    Some(OperationRecorder { io, resource })
}

/// The stores of an engine, by scheme and authority; each is opened on first use.
#[derive(Default)]
pub(crate) struct Stores {
    open: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    /// Running jobs, which record failed attempts at the stores that they use.
    jobs: Arc<Mutex<Vec<Weak<JobIo>>>>,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stores")
    }
}

impl Stores {
    /// Creates the shared state of a new job's stores.
    pub(crate) fn begin(&self, job: Job, runtime: Runtime) -> Arc<JobIo> {
        let io = Arc::new(JobIo { scans: Mutex::default(), used: Mutex::default(), job, runtime });
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(&io));
        io
    }

    /// Returns a callback that reports failed attempts at `store` to the running jobs.
    fn watch(&self, store: String) -> Watch {
        let jobs = Arc::clone(&self.jobs);
        Arc::new(move |failed| {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.iter().filter_map(Weak::upgrade).for_each(|job| job.record_failure(&store, &failed));
        })
    }

    /// Returns the store of `url`, opening it on first use.
    pub(crate) fn get(&self, url: &Url) -> DfResult<Arc<dyn ObjectStore>> {
        let name = pellucid_storage::name(url);
        // Outside of planning there is no job to note it.
        let _ = PLANNING_JOB.try_with(|job| job.use_store(&name));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(&name) {
            return Ok(Arc::clone(store));
        }
        let store = pellucid_storage::open_watched(url, self.watch(name.clone()));
        let store = store.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let named = if url.scheme() == "file" { String::new() } else { name.clone() };
        let store: Arc<dyn ObjectStore> = Arc::new(NamedStore { name: named, inner: store });
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

/// Returns the name of an object within a job. It includes the store, since several stores may have
/// objects of the same path.
pub(crate) fn in_store(url: &Url, path: &Path) -> String {
    format!("{}/{path}", pellucid_storage::name(url))
}

/// Scans that serve reads of an object, with their source index, by the object's name from [`in_store`].
type ScansByObject = HashMap<String, Vec<(Arc<Scan>, usize)>>;

/// The shared state of the stores of one job.
pub(crate) struct JobIo {
    scans: Mutex<ScansByObject>,
    /// Names of the stores that the job uses.
    used: Mutex<HashSet<String>>,
    job: Job,
    runtime: Runtime,
}

impl JobIo {
    /// Notes that the job uses the store `name`, so that it records failed attempts there.
    pub(crate) fn use_store(&self, name: &str) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.contains(name) {
            used.insert(name.to_string());
        }
    }

    /// Records a failed attempt at `store`, whichever job made it, if this job uses the store.
    fn record_failure(&self, store: &str, failed: &FailedAttempt) {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).contains(store);
        if used {
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

    /// Returns the record of a successful operation.
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

    /// Returns the recorder of a read that no monotask has made in advance.
    fn miss_recorder(self: &Arc<Self>, url: &Url, path: &Path) -> Option<OperationRecorder> {
        let resource = if url.scheme() == "file" {
            let path = pellucid_storage::LocalStore::default().path(path);
            // The disk of a readable file is always found.
            path.map_err(|e| e.into()).and_then(|p| self.runtime.disk_of(&p)).ok()?
        } else {
            self.runtime.store(&pellucid_storage::name(url), None)
        };
        Some(OperationRecorder { io: Arc::clone(self), resource })
    }

    /// Registers `scan` to serve reads of the object with this [name](in_store), its source `source`.
    pub(crate) fn add(&self, name: String, scan: &Arc<Scan>, source: usize) {
        let mut scans = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        scans.entry(name).or_default().push((Arc::clone(scan), source));
    }

    fn scans(&self, url: &Url, path: &Path) -> Vec<(Arc<Scan>, usize)> {
        let scans = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        scans.get(&in_store(url, path)).cloned().unwrap_or_default()
    }

    /// Returns the size of a file that a scan of this job reads. The multitasks of a scan read a file
    /// up to its end.
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

/// Records requests to a store (or reads of a disk) that a job makes outside monotasks.
pub(crate) struct OperationRecorder {
    io: Arc<JobIo>,
    resource: ResourceHandle,
}

impl OperationRecorder {
    /// Records an operation that started at `started` and ends now. Time to first byte and number of
    /// bytes are `None` if unknown.
    fn record(&self, operation: Operation, started: Instant, first_byte_ns: Option<u64>, bytes: Option<u64>) {
        let operation = self.io.operation(&self.resource, operation, started, Instant::now());
        self.io.record(StorageOperation { first_byte_ns, bytes, ..operation });
    }

    /// Records a listing that started at `started` and whose first entry arrived after `first_ns`.
    pub(crate) fn record_list(&self, started: Instant, first_ns: Option<u64>) {
        self.record(Operation::List, started, first_ns, None);
    }

    /// Records a read that returned `parts`.
    pub(crate) fn record_read(&self, started: Instant, parts: &[Bytes]) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.record(Operation::Read, started, None, Some(bytes));
    }

    /// Returns `result`, and records it once its body has been read or dropped.
    pub(crate) fn record_get(self, started: Instant, head: bool, result: GetResult) -> GetResult {
        if head {
            self.record(Operation::Head, started, None, None);
            return result;
        }
        let wanted = result.range.end - result.range.start;
        let GetResultPayload::Stream(body) = result.payload else {
            self.record(Operation::Read, started, None, Some(wanted));
            return result;
        };
        let first_byte_ns = started.elapsed().as_nanos() as u64;
        let mut recorder = BodyRecorder { recorder: Some(self), started, first_byte_ns, bytes: 0 };
        let body = body.inspect(move |piece| {
            recorder.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            if recorder.bytes >= wanted {
                recorder.finish();
            }
        });
        GetResult { payload: GetResultPayload::Stream(body.boxed()), ..result }
    }
}

/// Records a read when its body ends or is dropped.
struct BodyRecorder {
    recorder: Option<OperationRecorder>,
    started: Instant,
    first_byte_ns: u64,
    bytes: u64,
}

impl BodyRecorder {
    fn finish(&mut self) {
        if let Some(recorder) = self.recorder.take() {
            recorder.record(Operation::Read, self.started, Some(self.first_byte_ns), Some(self.bytes));
        }
    }
}

impl Drop for BodyRecorder {
    fn drop(&mut self) {
        self.finish();
    }
}

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
