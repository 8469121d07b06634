//! The shared state of one job's stores: the scans that serve reads, and the recorder of requests outside monotasks.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetResult, GetResultPayload};
use pellucid_runtime::{Job, ResourceHandle, Runtime};
use pellucid_storage::FailedAttempt;
use pellucid_trace::{Operation, Outcome, Record, StorageOperation};
use url::Url;

use crate::scan::Scan;
use crate::sync::lock;

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
    /// Creates the state of a job that has not used a store.
    pub(super) fn new(job: Job, runtime: Runtime) -> JobIo {
        JobIo { scans: Mutex::default(), used: Mutex::default(), job, runtime }
    }

    /// Notes that the job uses the store `name`, so that it records failed attempts there.
    pub(crate) fn use_store(&self, name: &str) {
        let mut used = lock(&self.used);
        if !used.contains(name) {
            used.insert(name.to_string());
        }
    }

    /// Records a failed attempt at `store`, whichever job made it, if this job uses the store.
    pub(super) fn record_failure(&self, store: &str, failed: &FailedAttempt) {
        let used = lock(&self.used).contains(store);
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

    /// Returns the recorder of requests to the remote store `name`.
    pub(super) fn store_recorder(self: Arc<Self>, name: &str) -> OperationRecorder {
        let resource = self.runtime.store(name, None);
        OperationRecorder { io: self, resource }
    }

    /// Returns the recorder of a read that no monotask has made in advance.
    pub(super) fn miss_recorder(self: &Arc<Self>, url: &Url, path: &Path) -> Option<OperationRecorder> {
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
        let mut scans = lock(&self.scans);
        scans.entry(name).or_default().push((Arc::clone(scan), source));
    }

    fn scans(&self, url: &Url, path: &Path) -> Vec<(Arc<Scan>, usize)> {
        let scans = lock(&self.scans);
        scans.get(&in_store(url, path)).cloned().unwrap_or_default()
    }

    /// Returns the size of a file that a scan of this job reads. The multitasks of a scan read a file
    /// up to its end.
    pub(super) fn size(&self, url: &Url, path: &Path) -> Option<u64> {
        let scans = self.scans(url, path);
        let needs = scans.iter().flat_map(|(scan, source)| {
            scan.tasks.iter().flat_map(|t| &t.needs).filter(move |need| need.source == *source)
        });
        needs.flat_map(|need| &need.ranges).map(|range| range.end).max()
    }

    /// Returns the bytes of a range, if a scan of this job has read them.
    pub(super) fn get(&self, url: &Url, path: &Path, range: &Range<u64>) -> Option<Bytes> {
        let scans = self.scans(url, path);
        scans
            .iter()
            .find_map(|(scan, source)| (0..scan.tasks.len()).find_map(|t| scan.get(t, *source, range)))
    }
}

/// Records requests to a store (or reads of a disk) that a job makes outside monotasks.
pub(super) struct OperationRecorder {
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
    pub(super) fn record_list(&self, started: Instant, first_ns: Option<u64>) {
        self.record(Operation::List, started, first_ns, None);
    }

    /// Records a read that returned `parts`.
    pub(super) fn record_read(&self, started: Instant, parts: &[Bytes]) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.record(Operation::Read, started, None, Some(bytes));
    }

    /// Returns `result`, and records it once its body has been read or dropped.
    pub(super) fn record_get(self, started: Instant, head: bool, result: GetResult) -> GetResult {
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
