//! What a store can do, measured: `pellucid storage probe URL`.
//!
//! A [`Probe`] writes objects of its own into a folder of its own ([`folder`]), reads them in
//! large and small requests with more and more at once, lists, renames and commits them, and
//! removes them. Nothing is assumed: whether a rename copies is seen from its time on a small
//! and a large object. All of it happens within a budget of time and bytes, of which each part
//! has a share; what no budget was left for is `None`.
//!
//! What is measured is the store as one client meets it, over whatever link is between, and
//! with whatever caches it has: objects that were just written are read back, unless the probe is
//! told of objects that are there and are to be read instead ([`pieces`]). On the local file
//! system a write has ended when its bytes are on the device, as the engine's has, and the probe
//! takes its files out of the page cache before it reads them.

mod folder;
mod load;
mod output;
mod pieces;
mod place;
mod report;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{Either, select};
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, Result};
use pellucid_scheduler::{Concurrency, Policy};

pub use folder::{Folder, Folders};
use load::Load;
use pieces::Pieces;
pub use place::{PlaceError, probe};
pub use report::{Commit, FirstByte, Pattern, ReadFrom, ReadRate, Rename, Report, Service, Upload};

use crate::clock::{Clock, within};
use crate::conformance::content;

/// Bytes of one object that is read, and of one sequential request.
const OBJECT_BYTES: u64 = 8 << 20;
/// Bytes of a random request.
const RANDOM_BYTES: u64 = 64 << 10;
/// Bytes of a request while the controller tunes.
const TUNED_BYTES: u64 = 1 << 20;
/// Bytes of a small object.
const SMALL_BYTES: usize = 4 << 10;
/// Small objects that are written at most.
const SMALL_OBJECTS: usize = 512;
/// Small objects at once.
const SMALL_AT_ONCE: usize = 8;
/// Most requests at once: the most that an object store is tuned to (DESIGN, Concurrency).
const MAX_CONCURRENT: u32 = 64;
/// Bytes of the large object that is renamed, and the share of the time that writing it may take.
const RENAMED_BYTES: u64 = 64 << 20;
const RENAME_SHARE: f64 = 0.2;
/// Tasks of the job whose commit is timed, and bytes that each puts out.
pub(crate) const TASKS: usize = 4;
pub(crate) const TASK_BYTES: usize = 6 << 20;
/// A rename copies where the fastest of the large object takes so much longer than the fastest of
/// the small one: a copy is never fast, and what else happens on a machine only ever makes slower.
const COPY_TIMES: f64 = 3.0;
const COPY_NS: u64 = 4_000_000;
/// How often each is renamed.
const RENAMES: usize = 4;
/// Time beyond the budget for what has begun: a store that answers at all has answered by then.
const GRACE_NS: u64 = 30_000_000_000;
/// Time for cleaning up.
const CLEANING_NS: u64 = 120_000_000_000;
/// How often a probe looks whether it is to stop.
const LOOKS_NS: u64 = 50_000_000;
/// Longest wait for what is under way when the probe is told to stop.
const ENDING_NS: u64 = 5_000_000_000;

/// What a probe may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Time in all, cleaning up not included.
    pub time_ns: u64,
    /// Bytes read and written in all.
    pub bytes: u64,
}

impl Budget {
    /// The smallest budget of bytes that a probe keeps to: it writes one object and reads it once, and the rest is
    /// for what is small.
    pub const MIN_BYTES: u64 = 2 * OBJECT_BYTES + (1 << 20);
}

/// How far a probe is: what it does now, and the share of the whole that is done.
pub type Progress<'a> = &'a (dyn Fn(&str, f64) + Send + Sync);

/// A store to be probed.
pub struct Probe<'a> {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// Uploads of the store by their names, where it has such: one that was begun by a probe
    /// that was killed is invisible, and only its name aborts it.
    pub uploads: Option<Arc<dyn MultipartStore>>,
    /// Where the probe's own objects will be.
    pub folder: Folder,
    /// Where objects are that are read instead of those that the probe writes; they stay as they are.
    pub existing: Option<Path>,
    /// What to call the store in the report: no credentials.
    pub url: String,
    /// What it may use.
    pub budget: Budget,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Set to stop: the probe cleans up and ends.
    pub cancelled: Arc<AtomicBool>,
    /// Told how far it is.
    pub progress: Progress<'a>,
    /// Takes an object out of the caches that this machine has of it.
    pub forget: &'a (dyn Fn(&Path) + Send + Sync),
}

/// Why a probe did not end well.
#[derive(Debug)]
pub enum ProbeError {
    /// It was told to stop, and has cleaned up.
    Cancelled,
    /// The store failed.
    Store(Error),
}

impl From<Error> for ProbeError {
    fn from(error: Error) -> Self {
        ProbeError::Store(error)
    }
}

/// The store did not answer for so long.
fn silent(ns: u64) -> Error {
    let words = format!("the store did not answer within {} s", ns / 1_000_000_000);
    Error::Generic { store: "probe", source: words.into() }
}

type Outcome<T> = std::result::Result<T, ProbeError>;

impl Probe<'_> {
    /// Measures, and cleans up however that ended. It ends in bounded time, also where the
    /// store stops answering, and soon after it is told to.
    ///
    /// # Errors
    /// The store's, and where the probe was told to stop; what could not be removed is in
    /// the error, and the next probe removes it.
    pub async fn run(&self) -> Outcome<Report> {
        (self.progress)("looking for remains of a probe that was killed", 0.0);
        let remains = self.folder.remove_remains(&*self.store, self.uploads.as_deref());
        self.unless_stopped(CLEANING_NS, async { Ok(remains.await?) }).await?;
        let measured = self
            .unless_stopped(self.budget.time_ns.saturating_add(GRACE_NS), async {
                self.folder.begin(&*self.store).await?;
                self.measure().await
            })
            .await;
        (self.progress)("cleaning up", 1.0);
        let removal = self.folder.remove(&*self.store, self.uploads.as_deref());
        let cleaned = within(&*self.clock, CLEANING_NS, removal).await;
        let report = measured?;
        cleaned.unwrap_or_else(|| Err(silent(CLEANING_NS)))?;
        Ok(report)
    }

    /// What `work` ends with; or that the probe was told to stop, or that the store is silent.
    async fn unless_stopped<T>(&self, ns: u64, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let until = self.clock.now_ns().saturating_add(ns);
        let stopped = async {
            while !self.cancelled.load(Ordering::Relaxed) {
                if self.clock.now_ns() >= until {
                    return ProbeError::Store(silent(ns));
                }
                self.clock.sleep(LOOKS_NS).await;
            }
            // Each step ends by itself then. A write that was dropped in the middle could become an
            // object after all had been removed; but nobody waits for a silent store.
            self.clock.sleep(ENDING_NS).await;
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
        let begun = self.clock.now_ns();
        // Until so far of the time has passed: each part has what is left by the parts before.
        let until = |share: f64| begun + (self.budget.time_ns as f64 * share) as u64;
        self.step("writing", 0.0)?;
        let objects = self.write(&mut report, &mut left, until(0.1)).await?;
        self.step("renaming", 0.1)?;
        report.rename = self.rename(&report, &objects, &mut left).await?;
        self.step("committing", 0.2)?;
        // Before the reads, which take what there is of time on a slow store, of bytes on a fast one.
        if self.clock.now_ns() < until(0.5) {
            report.commit = self.commit(&mut left).await?;
            report.commit.request_ms = self.request_ms(&mut left, until(0.27)).await?;
            // A local file is no upload.
            if self.folder.is_remote() {
                self.step("uploading", 0.27)?;
                report.upload = self.upload(&report, &mut left).await?;
            }
        }
        self.step("reading, sequential", 0.3)?;
        let mut pieces = existing.unwrap_or_else(|| Pieces::written(&objects));
        report.read_from = if pieces.once() { ReadFrom::Existing } else { ReadFrom::Written };
        self.read(&mut report, &mut pieces, Pattern::Sequential, &mut left, until(0.55)).await?;
        self.step("reading, random", 0.55)?;
        self.read(&mut report, &mut pieces, Pattern::Random, &mut left, until(0.7)).await?;
        self.step("tuning how many requests run at once", 0.7)?;
        report.chosen_concurrency = self.tune(&mut pieces, &mut left, until(0.85)).await?;
        self.step("small objects", 0.85)?;
        self.small(&mut report, &mut left, until(0.95)).await?;
        self.step("reading after writing", 0.98)?;
        report.read_after_write = Some(self.read_after_write().await?);
        Ok(report)
    }

    /// What there is to be read below a folder that is not the probe's.
    async fn existing(&self, folder: &Path) -> Outcome<Pieces> {
        let pieces = Pieces::existing(&*self.store, folder).await?;
        if pieces.is_empty() {
            let words = format!("{folder} holds no object of {} MiB or more to read", OBJECT_BYTES >> 20);
            return Err(Error::Generic { store: "probe", source: words.into() }.into());
        }
        Ok(pieces)
    }

    fn step(&self, what: &str, share: f64) -> Outcome<()> {
        (self.progress)(what, share);
        if self.cancelled.load(Ordering::Relaxed) { Err(ProbeError::Cancelled) } else { Ok(()) }
    }

    fn load(&self, until_ns: u64) -> Load {
        let cancelled = Arc::clone(&self.cancelled);
        Load { store: Arc::clone(&self.store), clock: Arc::clone(&self.clock), cancelled, until_ns }
    }

    /// Objects to read, an eighth of the bytes at most; and the rate of writing them.
    async fn write(&self, report: &mut Report, left: &mut u64, until_ns: u64) -> Outcome<Vec<Path>> {
        let count = (self.budget.bytes / 8 / OBJECT_BYTES).clamp(1, 32);
        let body = content(1, OBJECT_BYTES as usize);
        let mut written = Vec::new();
        let begun = self.clock.now_ns();
        // Four at once, as a machine with a few cores writes its output.
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
            these.iter().for_each(|at| (self.forget)(at));
            written.extend(these);
            *left = left.saturating_sub(group.len() as u64 * OBJECT_BYTES);
        }
        let seconds = (self.clock.now_ns() - begun).max(1) as f64 / 1e9;
        report.write_bytes_per_s = Some(written.len() as f64 * OBJECT_BYTES as f64 / seconds);
        Ok(written)
    }

    /// Rates with 1, 2, 4 … requests at once, until time or bytes of this part are used up.
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
        // Half of what is left, so that later parts have theirs.
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
            pieces.own().for_each(|at| (self.forget)(at));
            // The first is measured whatever there is.
            let requests = requests.min((bytes / request_bytes).max(1));
            let levels = f64::from(MAX_CONCURRENT).log2() as u64 + 1;
            let slice_ns = until_ns.saturating_sub(now) / levels;
            let load = self.load(now + slice_ns);
            let most = (bytes / levels / request_bytes).max(requests);
            let most = if pieces.once() { most.min(places.len() as u64) } else { most };
            let measured = load.read(&places, request_bytes, concurrency, (requests, until_ns), most).await?;
            self.step(pattern.words(), if pattern == Pattern::Sequential { 0.4 } else { 0.6 })?;
            bytes = bytes.saturating_sub(measured.bytes);
            *left = left.saturating_sub(measured.bytes);
            report.read.push(measured.rate(concurrency, pattern, request_bytes));
            concurrency *= 2;
        }
        Ok(())
    }

    /// How many requests at once the adaptive controller settles on.
    async fn tune(&self, pieces: &mut Pieces, left: &mut u64, until_ns: u64) -> Outcome<Option<u32>> {
        pieces.own().for_each(|at| (self.forget)(at));
        let places = pieces.take(usize::MAX, TUNED_BYTES);
        let there = if pieces.once() { places.len() as u64 * TUNED_BYTES } else { u64::MAX };
        let adaptive = Concurrency::Adaptive { min: 2, max: MAX_CONCURRENT, policy: Policy::default() };
        let most = there.min(*left / 2);
        let tuned = self.load(until_ns).tune(&places, TUNED_BYTES, adaptive, most).await?;
        *left = left.saturating_sub(tuned.bytes);
        self.step("tuning how many requests run at once", 0.8)?;
        Ok(tuned.chosen)
    }

    /// Small objects a second, written; and entries a second, listed.
    async fn small(&self, report: &mut Report, left: &mut u64, until_ns: u64) -> Outcome<()> {
        let body = content(2, SMALL_BYTES);
        let begun = self.clock.now_ns();
        let mut written = 0;
        while written < SMALL_OBJECTS && (written == 0 || self.clock.now_ns() < until_ns) && *left > 1 << 20 {
            self.step("small objects", 0.85 + 0.1 * written as f64 / SMALL_OBJECTS as f64)?;
            let puts = (written..written + 4 * SMALL_AT_ONCE).map(|i| {
                let (at, body) = (self.folder.object(&format!("small/{i}")), body.clone());
                async move { self.store.put(&at, body.into()).await.map(|_| (self.forget)(&at)) }
            });
            futures::stream::iter(puts).buffer_unordered(SMALL_AT_ONCE).try_collect::<()>().await?;
            written += 4 * SMALL_AT_ONCE;
            *left = left.saturating_sub((4 * SMALL_AT_ONCE * SMALL_BYTES) as u64);
        }
        let per_s =
            |count: usize, since: u64| count as f64 * 1e9 / (self.clock.now_ns() - since).max(1) as f64;
        report.small_objects_per_s = (written > 0).then(|| per_s(written, begun));
        let begun = self.clock.now_ns();
        let mut listed = 0;
        for _ in 0..3 {
            let entries: Vec<_> = self.store.list(Some(&self.folder.object("small"))).try_collect().await?;
            listed += entries.len();
        }
        report.list_per_s = (listed > 0).then(|| per_s(listed, begun));
        Ok(())
    }

    /// Renames a small and a large object to and fro; no byte of them comes to the client.
    async fn rename(&self, report: &Report, objects: &[Path], left: &mut u64) -> Outcome<Option<Rename>> {
        let Some(first) = objects.first() else { return Ok(None) };
        // Large enough that a copy within the store shows, but no larger than is soon written.
        let soon = report.write_bytes_per_s.unwrap_or(0.0) * self.budget.time_ns as f64 / 1e9 * RENAME_SHARE;
        let parts = (soon as u64).min(RENAMED_BYTES).min(*left / 2) / OBJECT_BYTES;
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
                let begun = self.clock.now_ns();
                self.store.rename(at, &away).await?;
                times.push(self.clock.now_ns() - begun);
                self.store.rename(&away, at).await?;
            }
        }
        let fastest = |times: &[u64]| times.iter().copied().min().unwrap_or(0);
        let (small, large) = (fastest(&small_ns), fastest(&large_ns));
        let is_copy = large as f64 > COPY_TIMES * small as f64 && large > small + COPY_NS;
        Ok(Some(Rename { ms: median(large_ns) as f64 / 1e6, is_copy, bytes: parts.max(1) * OBJECT_BYTES }))
    }

    /// Whether what was written, and written over, is read and listed at once.
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

/// The middle one; 0 of none.
fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
