//! The measurements of a probe, one part after another.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{Either, select};
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, Result};
use pellucid_scheduler::Concurrency;
use pellucid_scheduler::controller::GAIN;
use pellucid_trace::probe::{Pattern, ReadFrom, Rename, Report};

use super::content::content;
use super::folder::Folder;
use super::load::Load;
use super::pieces::{OBJECT_BYTES, Pieces};
use crate::clock::{Clock, timeout};

/// Bytes of a random request.
const RANDOM_BYTES: u64 = 64 << 10;
/// Bytes of a request while the controller tunes.
const TUNED_BYTES: u64 = 1 << 20;
/// Bytes of a small object.
pub(super) const SMALL_BYTES: usize = 4 << 10;
/// Maximum number of small objects to write.
const SMALL_OBJECTS: usize = 512;
/// Concurrent writes of small objects.
const SMALL_CONCURRENCY: usize = 8;
/// Maximum concurrency: the largest to which the engine tunes an object store.
pub(super) const MAX_CONCURRENT: u32 = 64;
/// Bytes of the large object to rename, and the maximum share of the time for writing it.
const RENAMED_BYTES: u64 = 64 << 20;
pub(super) const RENAME_SHARE: f64 = 0.2;
/// A rename copies if the fastest rename of the large object takes this much longer than the fastest
/// of the small one. The fastest counts because a copy is never fast, and other activity on the
/// machine only slows renames down.
const MIN_COPY_RATIO: f64 = 3.0;
const MIN_COPY_EXTRA_NS: u64 = 4_000_000;
/// Number of renames of each object.
const RENAMES: usize = 4;
/// Time beyond the budget for requests that have started; any responsive store has answered by then.
const GRACE_NS: u64 = 30_000_000_000;
/// Time limit for cleaning up.
const CLEANUP_NS: u64 = 120_000_000_000;
/// Interval at which the probe checks for cancellation.
const CANCEL_POLL_NS: u64 = 50_000_000;
/// Maximum wait for running requests after cancellation.
const CANCEL_GRACE_NS: u64 = 5_000_000_000;

/// The time and bytes that a probe may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Total time, excluding cleanup.
    pub time_ns: u64,
    /// Total bytes read and written.
    pub bytes: u64,
}

impl Budget {
    /// The smallest supported budget of bytes: one object is written and read once, and the rest is for small
    /// requests.
    pub const MIN_BYTES: u64 = 2 * OBJECT_BYTES + (1 << 20);
}

/// A progress callback: receives the current activity and the completed share of the whole probe.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) + Send + Sync);

/// A probe of one store.
pub struct Probe<'a> {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// The store's upload interface by upload ID, if it has one. An upload started by a killed probe
    /// appears in no listing of objects, and only its ID aborts it.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// Folder for the probe's objects.
    pub folder: Folder,
    /// Folder of existing objects to read instead of the probe's own; they are not changed.
    pub existing: Option<Path>,
    /// Name of the store in the report, without credentials.
    pub url: String,
    /// Limits of the probe.
    pub budget: Budget,
    /// Clock for measurements and timeouts.
    pub clock: Arc<dyn Clock>,
    /// Cancellation flag; once set, the probe cleans up and ends.
    pub cancelled: Arc<AtomicBool>,
    /// Progress callback.
    pub progress: Progress<'a>,
    /// Evicts an object from the caches of this machine.
    pub evict: &'a (dyn Fn(&Path) + Send + Sync),
}

/// An error that ended a probe.
#[derive(Debug)]
pub enum ProbeError {
    /// The probe was cancelled and has cleaned up.
    Cancelled,
    /// The store failed.
    Store(Error),
}

impl From<Error> for ProbeError {
    fn from(error: Error) -> Self {
        ProbeError::Store(error)
    }
}

/// Returns the error for a store that did not answer within `ns`.
fn timed_out(ns: u64) -> Error {
    let message = format!("the store did not answer within {} s", ns / 1_000_000_000);
    Error::Generic { store: "probe", source: message.into() }
}

pub(super) type Outcome<T> = std::result::Result<T, ProbeError>;

impl Probe<'_> {
    /// Measures the store and always cleans up. Ends in bounded time, even if the store stops
    /// answering, and soon after a cancellation.
    ///
    /// # Errors
    /// Returns the store's error, or [`ProbeError::Cancelled`]. The next probe removes objects that
    /// this one could not remove.
    pub async fn run(&self) -> Outcome<Report> {
        (self.progress)("removing leftovers of killed probes", 0.0);
        let leftovers = self.folder.remove_leftovers(&*self.store, self.uploads.as_deref());
        self.unless_cancelled(CLEANUP_NS, async { Ok(leftovers.await?) }).await?;
        let measured = self
            .unless_cancelled(self.budget.time_ns.saturating_add(GRACE_NS), async {
                self.folder.begin(&*self.store).await?;
                self.measure().await
            })
            .await;
        (self.progress)("cleaning up", 1.0);
        let removal = self.folder.remove(&*self.store, self.uploads.as_deref());
        let cleaned = timeout(&*self.clock, CLEANUP_NS, removal).await;
        let report = measured?;
        cleaned.unwrap_or_else(|| Err(timed_out(CLEANUP_NS)))?;
        Ok(report)
    }

    /// Runs `work` until it ends, the probe is cancelled, or `ns` have passed.
    async fn unless_cancelled<T>(&self, ns: u64, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let until = self.clock.now_ns().saturating_add(ns);
        let stopped = async {
            while !self.cancelled.load(Ordering::Relaxed) {
                if self.clock.now_ns() >= until {
                    return ProbeError::Store(timed_out(ns));
                }
                self.clock.sleep(CANCEL_POLL_NS).await;
            }
            // Let the current step end: a write dropped midway could still create an object after the
            // cleanup. The wait is bounded because the store may not answer.
            self.clock.sleep(CANCEL_GRACE_NS).await;
            ProbeError::Cancelled
        };
        match select(pin!(work), pin!(stopped)).await {
            Either::Left((ended, _)) => ended,
            Either::Right((why, _)) => Err(why),
        }
    }

    async fn measure(&self) -> Outcome<Report> {
        let mut report = Report::new(&self.url);
        let mut left = self.budget.bytes;
        let existing = match &self.existing {
            Some(folder) => Some(self.existing(folder).await?),
            None => None,
        };
        let started_ns = self.clock.now_ns();
        // The end of a share of the time; each part can also use the time that earlier parts left.
        let until = |share: f64| started_ns + (self.budget.time_ns as f64 * share) as u64;
        self.step("writing", 0.0)?;
        let objects = self.write(&mut report, &mut left, until(0.1)).await?;
        self.step("renaming", 0.1)?;
        report.rename = self.rename(&report, &objects, &mut left).await?;
        self.step("committing", 0.2)?;
        // Before the reads, which use up the time on a slow store and the bytes on a fast one.
        if self.clock.now_ns() < until(0.5) {
            report.commit = self.commit(&mut left).await?;
            report.commit.request_ms = self.request_ms(&mut left, until(0.27)).await?;
            // The local file system has no uploads.
            if self.folder.is_remote() {
                self.step("uploading", 0.27)?;
                report.upload = self.upload(&report, &mut left).await?;
            }
        }
        self.step("sequential reads", 0.3)?;
        let mut pieces = existing.unwrap_or_else(|| Pieces::written(&objects));
        report.read_from = if pieces.read_once() { ReadFrom::Existing } else { ReadFrom::Written };
        self.read(&mut report, &mut pieces, Pattern::Sequential, &mut left, until(0.55)).await?;
        self.step("random reads", 0.55)?;
        self.read(&mut report, &mut pieces, Pattern::Random, &mut left, until(0.7)).await?;
        self.step("tuning concurrency", 0.7)?;
        report.chosen_concurrency = self.tune(&mut pieces, &mut left, until(0.85)).await?;
        self.step("small objects", 0.85)?;
        self.small(&mut report, &mut left, until(0.95)).await?;
        self.step("read after write", 0.98)?;
        report.read_after_write = Some(self.read_after_write().await?);
        Ok(report)
    }

    /// Finds existing objects to read below `folder`.
    async fn existing(&self, folder: &Path) -> Outcome<Pieces> {
        let pieces = Pieces::existing(&*self.store, folder).await?;
        if pieces.is_empty() {
            let message =
                format!("{folder} contains no object of {} MiB or more to read", OBJECT_BYTES >> 20);
            return Err(Error::Generic { store: "probe", source: message.into() }.into());
        }
        Ok(pieces)
    }

    pub(super) fn step(&self, what: &str, share: f64) -> Outcome<()> {
        (self.progress)(what, share);
        if self.cancelled.load(Ordering::Relaxed) { Err(ProbeError::Cancelled) } else { Ok(()) }
    }

    fn load(&self, until_ns: u64) -> Load {
        let cancelled = Arc::clone(&self.cancelled);
        Load { store: Arc::clone(&self.store), clock: Arc::clone(&self.clock), cancelled, until_ns }
    }

    /// Writes the objects to read, at most an eighth of the bytes, and measures the write rate.
    async fn write(&self, report: &mut Report, left: &mut u64, until_ns: u64) -> Outcome<Vec<Path>> {
        let count = (self.budget.bytes / 8 / OBJECT_BYTES).clamp(1, 32);
        let body = content(1, OBJECT_BYTES as usize);
        let mut written = Vec::new();
        let started_ns = self.clock.now_ns();
        // Four concurrent writes, as a machine with a few cores writes its output.
        for group in (0..count).collect::<Vec<_>>().chunks(4) {
            if !written.is_empty() && (self.clock.now_ns() >= until_ns || *left < 4 * OBJECT_BYTES) {
                break;
            }
            self.step("writing", 0.1 * written.len() as f64 / count as f64)?;
            let puts = group.iter().map(|i| {
                let at = self.folder.object(&format!("object-{i}"));
                let body = body.clone();
                async move { self.store.put(&at, body.into()).await.map(|_| at) }
            });
            let these = futures::future::try_join_all(puts).await?;
            these.iter().for_each(|at| (self.evict)(at));
            written.extend(these);
            *left = left.saturating_sub(group.len() as u64 * OBJECT_BYTES);
        }
        let seconds = (self.clock.now_ns() - started_ns).max(1) as f64 / 1e9;
        report.write_bytes_per_s = Some(written.len() as f64 * OBJECT_BYTES as f64 / seconds);
        Ok(written)
    }

    /// Measures read rates with 1, 2, 4 … concurrent requests until the time or bytes of this part are used up.
    async fn read(
        &self,
        report: &mut Report,
        pieces: &mut Pieces,
        pattern: Pattern,
        left: &mut u64,
        until_ns: u64,
    ) -> Outcome<()> {
        let request_bytes = match pattern {
            Pattern::Sequential => OBJECT_BYTES,
            Pattern::Random => RANDOM_BYTES,
        };
        // Half of the remaining bytes, so that some are left for later parts.
        let mut bytes = *left / 2;
        let mut concurrency = 1;
        while concurrency <= MAX_CONCURRENT {
            let requests = 2 * u64::from(concurrency).max(4);
            let now = self.clock.now_ns();
            if concurrency > 1 && (now >= until_ns || bytes < requests * request_bytes) {
                break;
            }
            let first = concurrency == 1;
            let Some(places) = pieces.level(pattern, request_bytes, requests, first) else { break };
            pieces.own().for_each(|at| (self.evict)(at));
            // The first level is measured even with a small budget.
            let requests = requests.min((bytes / request_bytes).max(1));
            let levels = f64::from(MAX_CONCURRENT).log2() as u64 + 1;
            let slice_ns = until_ns.saturating_sub(now) / levels;
            let load = self.load(now + slice_ns);
            let limit = (bytes / levels / request_bytes).max(requests);
            let limit = if pieces.read_once() { limit.min(places.len() as u64) } else { limit };
            let measured =
                load.read(&places, request_bytes, concurrency, (requests, until_ns), limit).await?;
            self.step(pattern.name(), if pattern == Pattern::Sequential { 0.4 } else { 0.6 })?;
            bytes = bytes.saturating_sub(measured.bytes);
            *left = left.saturating_sub(measured.bytes);
            report.read.push(measured.rate(concurrency, pattern, request_bytes));
            concurrency *= 2;
        }
        Ok(())
    }

    /// Returns the concurrency on which the adaptive controller settles.
    async fn tune(&self, pieces: &mut Pieces, left: &mut u64, until_ns: u64) -> Outcome<Option<u32>> {
        pieces.own().for_each(|at| (self.evict)(at));
        let places = pieces.take(usize::MAX, TUNED_BYTES);
        let available = if pieces.read_once() { places.len() as u64 * TUNED_BYTES } else { u64::MAX };
        let adaptive = Concurrency::Adaptive { min: 2, max: MAX_CONCURRENT, gain: GAIN };
        let limit = available.min(*left / 2);
        let tuned = self.load(until_ns).tune(&places, TUNED_BYTES, adaptive, limit).await?;
        *left = left.saturating_sub(tuned.bytes);
        self.step("tuning concurrency", 0.8)?;
        Ok(tuned.chosen)
    }

    /// Measures the rates of writing small objects and of listing entries.
    async fn small(&self, report: &mut Report, left: &mut u64, until_ns: u64) -> Outcome<()> {
        let body = content(2, SMALL_BYTES);
        let started_ns = self.clock.now_ns();
        let mut written = 0;
        while written < SMALL_OBJECTS && (written == 0 || self.clock.now_ns() < until_ns) && *left > 1 << 20 {
            self.step("small objects", 0.85 + 0.1 * written as f64 / SMALL_OBJECTS as f64)?;
            let puts = (written..written + 4 * SMALL_CONCURRENCY).map(|i| {
                let (at, body) = (self.folder.object(&format!("small/{i}")), body.clone());
                async move { self.store.put(&at, body.into()).await.map(|_| (self.evict)(&at)) }
            });
            futures::stream::iter(puts).buffer_unordered(SMALL_CONCURRENCY).try_collect::<()>().await?;
            written += 4 * SMALL_CONCURRENCY;
            *left = left.saturating_sub((4 * SMALL_CONCURRENCY * SMALL_BYTES) as u64);
        }
        let per_s =
            |count: usize, since: u64| count as f64 * 1e9 / (self.clock.now_ns() - since).max(1) as f64;
        report.small_objects_per_s = (written > 0).then(|| per_s(written, started_ns));
        let started_ns = self.clock.now_ns();
        let mut listed = 0;
        for _ in 0..3 {
            let entries: Vec<_> = self.store.list(Some(&self.folder.object("small"))).try_collect().await?;
            listed += entries.len();
        }
        report.list_per_s = (listed > 0).then(|| per_s(listed, started_ns));
        Ok(())
    }

    /// Renames a small and a large object back and forth. The client transfers none of their bytes.
    async fn rename(&self, report: &Report, objects: &[Path], left: &mut u64) -> Outcome<Option<Rename>> {
        let Some(first) = objects.first() else { return Ok(None) };
        // Large enough to make a copy within the store noticeable, but small enough to write quickly.
        let quick_bytes =
            report.write_bytes_per_s.unwrap_or(0.0) * self.budget.time_ns as f64 / 1e9 * RENAME_SHARE;
        let parts = (quick_bytes as u64).min(RENAMED_BYTES).min(*left / 2) / OBJECT_BYTES;
        let large = if parts > 1 {
            let part = content(1, OBJECT_BYTES as usize);
            let at = self.folder.object("renamed-large");
            self.store.put(&at, (0..parts).map(|_| part.clone()).collect()).await?;
            *left -= parts * OBJECT_BYTES;
            at
        } else {
            first.clone()
        };
        let small = self.folder.object("renamed-small");
        self.store.put(&small, content(3, SMALL_BYTES).into()).await?;
        let (mut small_ns, mut large_ns) = (Vec::new(), Vec::new());
        for _ in 0..RENAMES {
            for (at, times) in [(&small, &mut small_ns), (&large, &mut large_ns)] {
                let away = self.folder.object("renamed-away");
                let started_ns = self.clock.now_ns();
                self.store.rename(at, &away).await?;
                times.push(self.clock.now_ns() - started_ns);
                self.store.rename(&away, at).await?;
            }
        }
        let fastest = |times: &[u64]| times.iter().copied().min().unwrap_or(0);
        let (small, large) = (fastest(&small_ns), fastest(&large_ns));
        let is_copy = large as f64 > MIN_COPY_RATIO * small as f64 && large > small + MIN_COPY_EXTRA_NS;
        Ok(Some(Rename { ms: median(large_ns) as f64 / 1e6, is_copy, bytes: parts.max(1) * OBJECT_BYTES }))
    }

    /// Returns true if new and overwritten objects are immediately visible to reads and listings.
    async fn read_after_write(&self) -> Result<bool> {
        let at = self.folder.object("again");
        for seed in 0..5 {
            let body = content(seed, 1000 + seed as usize);
            self.store.put(&at, body.clone().into()).await?;
            let read = match self.store.get(&at).await {
                Err(Error::NotFound { .. }) => return Ok(false),
                read => read?.bytes().await?,
            };
            let listed: Vec<_> = self.store.list(Some(&self.folder.path())).try_collect().await?;
            if read != body || !listed.iter().any(|o| o.location == at && o.size == body.len() as u64) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the median; 0 for an empty list.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
