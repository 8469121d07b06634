//! File scans and the read monotasks of their multitasks.
//!
//! A scan is divided into multitasks by bytes, each with the exact byte ranges that it needs. The
//! read monotasks load those bytes into the scan's *slots*, one per multitask, and the compute monotask
//! decodes only from its slot. [`crate::scan::parquet`] and [`crate::scan::text`] find the ranges for each format.

mod chunks;
pub(crate) mod column_work;
pub(crate) mod columns;
pub(crate) mod decoder;
pub(crate) mod dynamic_filter;
pub(crate) mod footer;
pub(crate) mod ipc;
pub(crate) mod parquet;
pub(crate) mod prune;
mod row_group;
pub(crate) mod text;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use datafusion::common::DataFusionError;
use object_store::ObjectStore;
use object_store::path::Path as StorePath;
use pellucid_runtime::{Context, Done, Error, File, Monotask, Pacer, Phase, ResourceHandle, Segment, slice};
use pellucid_storage::web;

use crate::sync::lock;

/// Target decoded size of a multitask. Between 8 and 32 MiB it does not affect a warm query. A cold
/// query ends with the computing of its last multitask, so larger multitasks would slow it down.
pub(crate) const MULTITASK_BYTES: u64 = 32 << 20;

/// A file or object that a scan reads.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A file on a local disk.
    Local(Arc<File>),
    /// An object in a remote store.
    Remote {
        store: Arc<dyn ObjectStore>,
        path: StorePath,
        /// The store's resource.
        resource: ResourceHandle,
        /// Pacer of the link, if a rate was set.
        pacer: Option<Arc<Pacer>>,
        /// Executor of the client's futures, on which the I/O thread blocks.
        tokio: tokio::runtime::Handle,
    },
}

impl Source {
    /// Returns the path or URL, for messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Local(file) => file.path().display().to_string(),
            Self::Remote { resource, path, .. } => {
                format!("{}/{}", resource.name(), web::path(path.as_ref()))
            }
        }
    }
}

/// Byte ranges of one source, ascending and disjoint.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    /// Index into [`Scan::sources`].
    pub source: usize,
    pub ranges: Vec<Range<u64>>,
}

impl Need {
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }
}

/// The reads of one multitask of a scan.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanTask {
    pub needs: Vec<Need>,
    /// Estimated decoded size.
    pub decoded_bytes: u64,
}

/// The bytes of one multitask, by source and ascending by offset.
#[derive(Debug, Default)]
struct Slot {
    segments: Vec<(usize, Vec<Segment>)>,
}

/// A scan of one stage, divided into multitasks.
pub(crate) struct Scan {
    pub sources: Vec<Source>,
    pub tasks: Vec<ScanTask>,
    slots: Vec<Mutex<Slot>>,
    /// True if the sources are Arrow IPC files, whose lengths are checked before they are decoded.
    pub is_arrow_ipc: bool,
    /// Plans the reads of a multitask again, if filters may tighten while the stage runs.
    pub replan: Option<Box<dyn Fn(usize) -> Vec<Need> + Send + Sync>>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({} sources, {} multitasks)", self.sources.len(), self.tasks.len())
    }
}

impl Scan {
    pub(crate) fn new(sources: Vec<Source>, tasks: Vec<ScanTask>) -> Self {
        let slots = tasks.iter().map(|_| Mutex::default()).collect();
        Self { sources, tasks, slots, is_arrow_ipc: false, replan: None }
    }

    fn slot(&self, task: usize) -> std::sync::MutexGuard<'_, Slot> {
        lock(&self.slots[task])
    }

    fn put(&self, task: usize, source: usize, mut segments: Vec<Segment>) {
        let mut slot = self.slot(task);
        match slot.segments.iter_mut().find(|(s, _)| *s == source) {
            Some((_, all)) => {
                all.append(&mut segments);
                all.sort_by_key(|s| s.offset);
            }
            None => slot.segments.push((source, segments)),
        }
    }

    /// Frees the bytes of a multitask.
    pub(crate) fn clear(&self, task: usize) {
        *self.slot(task) = Slot::default();
    }

    /// Checks the Arrow IPC files of a multitask, whose bytes have been read, as far as their decoder does not.
    ///
    /// # Errors
    /// Returns an error that names the first damaged file.
    pub(crate) fn check(&self, task: usize) -> Result<(), DataFusionError> {
        self.tasks[task].needs.iter().try_for_each(|need| {
            let size = need.ranges.last().map_or(0, |range| range.end);
            ipc::check(size, &|range| self.get(task, need.source, &range))
                .map_err(|why| damaged(&self.sources[need.source].name(), &why))
        })
    }

    /// Returns the bytes of a range of `source`; `None` if the multitask's monotasks did not read them.
    pub(crate) fn get(&self, task: usize, source: usize, range: &Range<u64>) -> Option<Bytes> {
        let slot = self.slot(task);
        let (_, segments) = slot.segments.iter().find(|(s, _)| *s == source)?;
        slice(segments, range)
    }

    /// Returns all bytes of `source` that the multitask's monotasks read, ascending.
    pub(crate) fn segments(&self, task: usize, source: usize) -> Vec<Segment> {
        let slot = self.slot(task);
        let found = slot.segments.iter().find(|(s, _)| *s == source);
        found.map_or_else(Vec::new, |(_, segments)| segments.clone())
    }

    /// Returns the read and fetch monotasks of multitask `task`, and the cached ranges that its compute
    /// monotask copies itself.
    pub(crate) fn reads(self: &Arc<Self>, task: usize) -> (Vec<Monotask>, Vec<Need>) {
        let needs = match &self.replan {
            Some(replan) => replan(task),
            None => self.tasks[task].needs.clone(),
        };
        let mut monotasks = Vec::new();
        let mut cached = Vec::new();
        for need in needs {
            if need.ranges.is_empty() {
                continue;
            }
            let source = need.source;
            match &self.sources[source] {
                Source::Local(file) => {
                    let residency = file.residency(&need.ranges);
                    if !residency.missing.is_empty() {
                        monotasks.push(file.read_monotask(residency.missing, self.sink(task, source)));
                    }
                    if !residency.cached.is_empty() {
                        cached.push(Need { source, ranges: residency.cached });
                    }
                }
                Source::Remote { store, path, resource, pacer, tokio } => {
                    for range in fetches(need.ranges) {
                        let bytes = range.end - range.start;
                        let fetch = Fetch {
                            store: Arc::clone(store),
                            path: path.clone(),
                            pacer: pacer.clone(),
                            tokio: tokio.clone(),
                            range,
                        };
                        let sink = self.sink(task, source);
                        let run = move |context: &Context| fetch.run(context, sink);
                        monotasks.push(Monotask::new(resource, Phase::Fetch, Vec::new(), bytes, run));
                    }
                }
            }
        }
        (monotasks, cached)
    }

    /// Copies the ranges of `needs` that the page cache still holds; runs on a core. Returns the number
    /// of bytes, and read monotasks for ranges that were evicted after planning.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or has shrunk.
    pub(crate) fn read_cached(
        self: &Arc<Self>,
        task: usize,
        needs: &[Need],
    ) -> Result<(u64, Vec<Monotask>), Error> {
        let mut bytes = 0;
        let mut evicted = Vec::new();
        for need in needs {
            let Source::Local(file) = &self.sources[need.source] else { continue };
            let (segments, missing) = file.read_if_cached(&need.ranges)?;
            bytes += segments.iter().map(|s| s.bytes.len() as u64).sum::<u64>();
            self.put(task, need.source, segments);
            if !missing.is_empty() {
                evicted.push(file.read_monotask(missing, self.sink(task, need.source)));
            }
        }
        Ok((bytes, evicted))
    }

    /// Returns the sink of a read monotask, which puts its bytes into the multitask's slot.
    fn sink(
        self: &Arc<Self>,
        task: usize,
        source: usize,
    ) -> impl FnOnce(Vec<Segment>) -> Result<(), Error> + Send + 'static {
        let scan = Arc::clone(self);
        move |segments| {
            scan.put(task, source, segments);
            Ok(())
        }
    }
}

/// Returns the error for damaged files.
pub(crate) fn damaged(files: &str, why: &str) -> DataFusionError {
    DataFusionError::Execution(format!(
        "cannot read {files}: the file is damaged ({why}); write it again, or restore it from a copy"
    ))
}

/// Returns the error for bytes of a Parquet file that its metadata did not announce.
pub(crate) fn not_read(path: &str, range: &Range<u64>) -> String {
    format!(
        "{path}: bytes {} to {} were not read in advance, because the file's metadata contradict each other; \
         write it again, or report this with the file's metadata if other programs can read it",
        range.start, range.end
    )
}

/// Maximum size of a fetch, so that the fetches of a multitask can use several connections.
const FETCH_BYTES: u64 = 4 << 20;
/// Maximum gap that is read rather than skipped by another request: reading it takes about as long as a
/// round trip of 1 ms on a link of 1 Gbit/s.
const GAP_BYTES: u64 = 128 << 10;

/// Divides ascending, disjoint ranges into requests. Small gaps are included, large ranges are split.
fn fetches(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut requests: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + FETCH_BYTES);
            match requests.last_mut().filter(|r| at - r.end <= GAP_BYTES && end - r.start <= FETCH_BYTES) {
                Some(request) => request.end = end,
                None => requests.push(at..end),
            }
            at = end;
        }
    }
    requests
}

/// A fetch of one range from a store, in one request.
struct Fetch {
    store: Arc<dyn ObjectStore>,
    path: StorePath,
    pacer: Option<Arc<Pacer>>,
    tokio: tokio::runtime::Handle,
    range: Range<u64>,
}

impl Fetch {
    fn run(
        self,
        context: &Context,
        sink: impl FnOnce(Vec<Segment>) -> Result<(), Error>,
    ) -> Result<Done, Error> {
        let name = || web::path(self.path.as_ref()).to_string();
        // `get_range` would not add the store's name to errors of the response body.
        let got = self
            .tokio
            .block_on(self.store.get_ranges(&self.path, std::slice::from_ref(&self.range)))
            .map_err(|e| DataFusionError::from(e).context(name()))?;
        let bytes: u64 = got.iter().map(|b| b.len() as u64).sum();
        if bytes != self.range.end - self.range.start {
            let shrunk =
                format!("cannot read {}: it shrank while the query ran; run the query again", name());
            return Err(DataFusionError::Execution(shrunk).into());
        }
        if let Some(pacer) = &self.pacer {
            pacer.pace(bytes, context)?;
        }
        let offset = self.range.start;
        sink(got.into_iter().map(|bytes| Segment { offset, bytes }).collect())?;
        Ok(Done { bytes: Some(bytes), ..Done::default() })
    }
}

/// Sorts ranges, drops empty ones and merges those that touch or overlap.
pub(crate) fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|r| r.start < r.end);
    ranges.sort_by_key(|r| r.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_joins_touching_ranges_and_drops_empty_ones() {
        assert_eq!(merge(vec![8..9, 0..4, 4..6, 2..3, 7..7]), [0..6, 8..9]);
    }

    #[test]
    fn fetches_cover_ranges_in_bounded_requests() {
        let far = FETCH_BYTES * 3;
        let ranges =
            vec![0..10, 100..FETCH_BYTES * 2, far..far + 5, far + GAP_BYTES + 5..far + GAP_BYTES + 9];
        let requests = fetches(ranges);
        let first = FETCH_BYTES + 100;
        // The gap of 90 bytes is skipped: with it, the request would be too large.
        assert_eq!(requests, [0..10, 100..first, first..FETCH_BYTES * 2, far..far + GAP_BYTES + 9]);
        assert_eq!(fetches(vec![0..1, GAP_BYTES + 2..GAP_BYTES + 3]), [0..1, GAP_BYTES + 2..GAP_BYTES + 3]);
    }

    #[test]
    fn range_across_segments_is_joined_and_range_with_gap_is_none() {
        let scan = Scan::new(Vec::new(), vec![ScanTask::default()]);
        let segment = |offset: u64, n: u8| Segment {
            offset,
            bytes: Bytes::from((0..n).map(|i| offset as u8 + i).collect::<Vec<_>>()),
        };
        scan.put(0, 3, vec![segment(20, 4)]);
        scan.put(0, 3, vec![segment(10, 5), segment(15, 5)]);
        assert_eq!(scan.get(0, 3, &(12..22)).unwrap(), (12..22).collect::<Vec<u8>>());
        assert_eq!(scan.get(0, 3, &(16..18)).unwrap(), [16, 17][..]);
        assert!(scan.get(0, 3, &(22..26)).is_none());
        assert!(scan.get(0, 3, &(5..12)).is_none());
        assert!(scan.get(0, 2, &(12..13)).is_none());
        scan.clear(0);
        assert!(scan.get(0, 3, &(12..13)).is_none());
    }
}
