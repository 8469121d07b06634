//! Measures output to a store: an upload as the engine makes it, and commits of a job's tasks.
//!
//! A job writes one object in concurrent parts and completes it at the end. An object that is put
//! whole pays for its own completion instead (HDFS syncs each file on close). The cost of completion
//! depends on the store: some join the parts byte for byte, others record their names. The probe
//! therefore completes a large and a tiny upload; the difference is proportional to the bytes.
//!
//! A committer that records pending uploads in the store also sends small requests. Each task sends
//! its own sequentially while other tasks upload, which delays them. The probe therefore sends them
//! during uploads, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Error, MultipartId, MultipartUpload, ObjectStoreExt, Result};
use pellucid_scheduler::controller::GAIN;
use pellucid_scheduler::{Concurrency, Controller, Sample};
use pellucid_trace::probe::{Commit, Report, Upload};

use super::content::content;
use super::measure::{MAX_CONCURRENT, Outcome, Probe, RENAME_SHARE, SMALL_BYTES};

/// Tasks of the job whose commit is timed, and output bytes of each.
const TASKS: usize = Commit::TASKS;
const TASK_BYTES: usize = Commit::TASK_BYTES;
/// Bytes of a part, as in the engine (DataFusion's `objectstore_writer_buffer_size`).
const PART_BYTES: u64 = 10 << 20;
/// Maximum number of parts of an upload. Many parts keep the burst that an idle disk or cache absorbs
/// small in comparison, as it is for a job's output.
const MAX_PARTS: u64 = 32;
/// Concurrent tasks that upload and send commit requests, and their number of rounds.
const COMMITTING_TASKS: u64 = 2;
const COMMIT_ROUNDS: u64 = 4;

/// An upload that is not complete, so its object is not visible.
enum PendingUpload {
    /// An upload with an ID, which can abort it even after its probe was killed.
    Named { uploads: Arc<dyn MultipartStore>, at: Path, id: MultipartId, parts: Vec<(usize, PartId)> },
    /// An upload to a store without upload IDs.
    Plain(Box<dyn MultipartUpload>),
}

impl PendingUpload {
    /// Sends part `number`; pass the result to [`PendingUpload::sent`].
    fn send(&mut self, number: usize, body: Bytes) -> BoxFuture<'static, Result<Option<(usize, PartId)>>> {
        match self {
            PendingUpload::Named { uploads, at, id, .. } => {
                let (uploads, at, id) = (Arc::clone(uploads), at.clone(), id.clone());
                Box::pin(async move {
                    let part = uploads.put_part(&at, &id, number, body.into()).await?;
                    Ok(Some((number, part)))
                })
            }
            PendingUpload::Plain(upload) => {
                let part = upload.put_part(body.into());
                Box::pin(async move { part.await.map(|()| None) })
            }
        }
    }

    fn sent(&mut self, part: Option<(usize, PartId)>) {
        if let PendingUpload::Named { parts, .. } = self {
            parts.extend(part);
        }
    }

    async fn complete(&mut self) -> Result<()> {
        match self {
            PendingUpload::Named { uploads, at, id, parts } => {
                parts.sort_by_key(|(number, _)| *number);
                let parts = std::mem::take(parts).into_iter().map(|(_, part)| part).collect();
                uploads.complete_multipart(at, id, parts).await?;
            }
            PendingUpload::Plain(upload) => _ = upload.complete().await?,
        }
        Ok(())
    }

    /// Aborts an upload without an ID; removing the folder aborts the others.
    async fn abort(&mut self) {
        if let PendingUpload::Plain(upload) = self {
            // The caller reports the error that led here, so a failed abort is not reported.
            let _ = upload.abort().await;
        }
    }
}

impl Probe<'_> {
    /// Starts an upload and records its ID before sending any bytes; `None` if the store has no uploads.
    ///
    /// The store assigns the ID, and the client cannot list uploads, so an upload stays if its probe is killed before the
    /// ID is recorded. Such an upload has no parts, takes no space and appears in no listing of objects. It can be removed
    /// by listing the bucket's uploads, or by a lifecycle rule for incomplete uploads.
    async fn begin_upload(&self, number: usize) -> Outcome<Option<PendingUpload>> {
        let at = self.folder.object(&format!("commit/whole-{number}"));
        if let Some(uploads) = &self.uploads {
            let id = uploads.create_multipart(&at).await?;
            let note = self.folder.object(&format!("commit/upload-{number}"));
            if let Err(error) = self.store.put(&note, id.clone().into()).await {
                // Without a record no later probe can abort it.
                let _ = uploads.abort_multipart(&at, &id).await;
                return Err(error.into());
            }
            return Ok(Some(PendingUpload::Named {
                uploads: Arc::clone(uploads),
                at,
                id,
                parts: Vec::new(),
            }));
        }
        match self.store.put_multipart(&at).await {
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => Ok(None),
            upload => Ok(Some(PendingUpload::Plain(upload?))),
        }
    }

    /// Times the commit of a job of [`TASKS`] tasks: by renames of tasks and driver (Hadoop's output
    /// committer, version 1), and by uploads completed at the end. The bytes are written before either
    /// measurement starts.
    pub(super) async fn commit(&self, left: &mut u64) -> Outcome<Commit> {
        if *left < (2 * TASKS * TASK_BYTES) as u64 {
            return Ok(Commit::default());
        }
        *left -= (2 * TASKS * TASK_BYTES) as u64;
        let body = content(4, TASK_BYTES);
        let at = |stage: &str, i: usize| self.folder.object(&format!("commit/{stage}-{i}"));
        for i in 0..TASKS {
            self.store.put(&at("attempt", i), body.clone().into()).await?;
        }
        let started_ns = self.clock.now_ns();
        let by_task = (0..TASKS).map(|i| (at("attempt", i), at("task", i)));
        futures::future::try_join_all(
            by_task.map(|(from, to)| async move { self.store.rename(&from, &to).await }),
        )
        .await?;
        for i in 0..TASKS {
            self.store.rename(&at("task", i), &at("part", i)).await?;
        }
        let rename_ms = Some((self.clock.now_ns() - started_ns) as f64 / 1e6);
        self.step("committing", 0.25)?;
        Ok(Commit { rename_ms, multipart_ms: self.multipart(&body).await?, request_ms: None })
    }

    /// Returns the time of a small request of tasks that each write data and then commit it; `None` without a remaining
    /// budget.
    pub(super) async fn request_ms(&self, left: &mut u64, until_ns: u64) -> Outcome<Option<f64>> {
        let times = (*left / 4 / (COMMITTING_TASKS * PART_BYTES)).min(COMMIT_ROUNDS);
        *left -= times * COMMITTING_TASKS * PART_BYTES;
        let body = &content(7, PART_BYTES as usize);
        let task = |task: u64| async move {
            let data = self.folder.object(&format!("commit/data-{task}"));
            let (mut requests, mut took_ns) = (0, 0);
            for _ in 0..times {
                self.store.put(&data, body.clone().into()).await?;
                let started_ns = self.clock.now_ns();
                requests += self.send_commit_requests(task).await?;
                took_ns += self.clock.now_ns() - started_ns;
                if self.clock.now_ns() >= until_ns || self.cancelled.load(Ordering::Relaxed) {
                    break;
                }
            }
            Outcome::Ok((requests, took_ns))
        };
        let tasks = futures::future::try_join_all((0..COMMITTING_TASKS).map(task)).await?;
        let (requests, took_ns) = tasks.iter().fold((0, 0), |sum, task| (sum.0 + task.0, sum.1 + task.1));
        Ok((requests > 0).then(|| took_ns as f64 / 1e6 / requests as f64))
    }

    /// Sends the requests of S3A's magic committer for a task's commit, as its audit log shows them: it puts, looks up,
    /// lists, reads and removes records and markers. Returns the number of requests.
    async fn send_commit_requests(&self, task: u64) -> Result<u32> {
        let at = |name: &str| self.folder.object(&format!("commit/{name}-{task}"));
        let (note, nothing) = (at("note"), at("nothing"));
        let body = content(8, SMALL_BYTES);
        for put in [&at("marker"), &note, &at("noted")] {
            self.store.put(put, body.clone().into()).await?;
        }
        self.store.head(&note).await?;
        self.store.get(&note).await?.bytes().await?;
        match self.store.head(&nothing).await {
            Err(Error::NotFound { .. }) => {}
            found => _ = found?,
        }
        for _ in 0..2 {
            self.store.list_with_delimiter(Some(&nothing)).await?;
        }
        self.store.delete(&note).await?;
        Ok(9)
    }

    async fn multipart(&self, body: &Bytes) -> Outcome<Option<f64>> {
        let mut uploads = Vec::new();
        for i in 0..TASKS {
            let Some(mut upload) = self.begin_upload(i).await? else { return Ok(None) };
            match upload.send(0, body.clone()).await {
                Ok(part) => upload.sent(part),
                Err(error) => {
                    upload.abort().await;
                    return Err(error.into());
                }
            }
            uploads.push(upload);
        }
        let started_ns = self.clock.now_ns();
        futures::future::try_join_all(uploads.iter_mut().map(PendingUpload::complete)).await?;
        Ok(Some((self.clock.now_ns() - started_ns) as f64 / 1e6))
    }

    /// Times an upload as the engine makes it, and a tiny one; `None` if the store has no uploads or no
    /// budget is left.
    pub(super) async fn upload(&self, report: &Report, left: &mut u64) -> Outcome<Option<Upload>> {
        // As large as can be written quickly.
        let quick_bytes =
            report.write_bytes_per_s.unwrap_or(0.0) * self.budget.time_ns as f64 / 1e9 * RENAME_SHARE;
        let parts = (quick_bytes as u64 / PART_BYTES).clamp(1, MAX_PARTS).min(*left / 4 / PART_BYTES);
        if parts == 0 {
            return Ok(None);
        }
        let bytes = parts * PART_BYTES;
        *left -= bytes;
        let Some(large) = self.begin_upload(TASKS).await? else { return Ok(None) };
        let [sent_ms, complete_ms] = self.timed(large, content(5, PART_BYTES as usize), parts).await?;
        self.step("uploading", 0.28)?;
        let Some(small) = self.begin_upload(TASKS + 1).await? else { return Ok(None) };
        let [_, complete_small_ms] = self.timed(small, content(6, SMALL_BYTES), 1).await?;
        Ok(Some(Upload { bytes, sent_ms, complete_ms, complete_small_ms }))
    }

    /// Sends `parts` parts with the concurrency of the engine's controller, and completes the upload.
    /// Returns the time of each of the two steps in milliseconds.
    async fn timed(&self, mut upload: PendingUpload, body: Bytes, parts: u64) -> Outcome<[f64; 2]> {
        let started_ns = self.clock.now_ns();
        let sent = self.send(&mut upload, body, parts).await;
        let all_sent = self.clock.now_ns();
        let completed = match sent {
            Ok(()) => upload.complete().await,
            Err(error) => Err(error),
        };
        if let Err(error) = completed {
            upload.abort().await;
            return Err(error.into());
        }
        let ended = self.clock.now_ns();
        Ok([all_sent - started_ns, ended - all_sent].map(|ns| ns as f64 / 1e6))
    }

    async fn send(&self, upload: &mut PendingUpload, body: Bytes, parts: u64) -> Result<()> {
        let adaptive = Concurrency::Adaptive { min: 2, max: MAX_CONCURRENT, gain: GAIN };
        let mut controller = Controller::new(adaptive);
        let (mut running, mut next) = (FuturesUnordered::new(), 0);
        loop {
            let more = next < parts && !self.cancelled.load(Ordering::Relaxed);
            if more && running.len() < controller.concurrency() as usize {
                let start_ns = self.clock.now_ns();
                controller.started();
                let part = upload.send(next as usize, body.clone());
                running.push(async move { part.await.map(|part| (start_ns, part)) });
                next += 1;
                continue;
            }
            let in_flight = running.len() as u32;
            let Some(ended) = running.next().await else { return Ok(()) };
            let (start_ns, part) = ended?;
            upload.sent(part);
            let sample = Sample { start_ns, bytes: body.len() as u64, running: in_flight };
            controller.completed(self.clock.now_ns(), sample);
        }
    }
}
