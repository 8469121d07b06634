//! What a job writes: whole or not at all.
//!
//! A sink encodes on a core and hands its parts over; each part becomes a write monotask of
//! the disk or store that it goes to, while the core encodes on. Local output stands under a
//! temporary name, remote output is an upload that nobody sees, until every part of every
//! output is written; then one more write monotask each publishes it: a rename, or the end of
//! the upload, so that nothing is copied in a store whose rename is a copy. A job that fails or
//! is cancelled discards them, and uploads are aborted before it has ended.
//!
//! Parts wait in memory for their disk: without spill, a slow disk makes the budget the limit.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::{AbortHandle, Abortable};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use pellucid_runtime::{Done, Error, Job, Monotask, Multitask, Output, Phase, ResourceHandle, Runtime};
use pellucid_trace::StageIx;
use url::Url;

/// Called when everything is written and published.
type Then = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// How long the end of a job waits for a store to forget what was uploaded; a store that does
/// not answer forgets it some day by itself.
const ABORT: Duration = Duration::from_secs(10);

/// Told when a store has forgotten an upload.
type Aborted = Receiver<()>;

/// The outputs of one job.
pub(crate) struct Outputs {
    runtime: Runtime,
    tokio: tokio::runtime::Handle,
    state: Mutex<State>,
    parts: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The job and the stage that write.
    writer: Option<(Job, StageIx)>,
    targets: Vec<Target>,
    /// Multitasks of ours that have not ended.
    pending: usize,
    /// What comes when they have.
    then: Option<Then>,
    /// The job has ended early: nothing more is begun.
    discarded: bool,
    /// Uploads that are being aborted.
    aborted: Vec<Aborted>,
}

#[derive(Clone)]
enum Target {
    Local(Arc<Output>),
    Remote(Arc<Upload>),
    /// Given up by its writer.
    Aborted,
}

impl Outputs {
    pub(crate) fn new(runtime: Runtime, tokio: tokio::runtime::Handle) -> Self {
        Self { runtime, tokio, state: Mutex::default(), parts: AtomicU32::new(1) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `stage` of `job` writes.
    pub(crate) fn writer(&self, job: Job, stage: StageIx) {
        self.state().writer = Some((job, stage));
    }

    /// Begins an output at `location` of the store behind `url`. Where that fails, so does the job, for
    /// this cause: DataFusion's writers of text hide it behind one of their own.
    pub(crate) fn create(
        &self,
        store: &Arc<dyn ObjectStore>,
        url: &Url,
        location: &Path,
    ) -> Result<usize, Error> {
        let begun = self.begin(store, url, location);
        if let Err(error) = &begun
            && !error.is::<pellucid_runtime::Cancelled>()
        {
            // Not under the lock: what a job drops at its end may come back here.
            let writer = self.state().writer.clone();
            if let Some((job, _)) = writer {
                job.fail(error.to_string().into());
            }
        }
        begun
    }

    fn begin(&self, store: &Arc<dyn ObjectStore>, url: &Url, location: &Path) -> Result<usize, Error> {
        let target = if url.scheme() == "file" {
            let path = pellucid_storage::LocalStore::default().path(location)?;
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|e| {
                    format!(
                        "cannot write {}: its folder cannot be made: {e}; choose a folder that can be written",
                        path.display()
                    )
                })?;
            }
            Target::Local(Output::create(&self.runtime, &path)?)
        } else {
            Target::Remote(Arc::new(Upload {
                store: Arc::clone(store),
                location: location.clone(),
                resource: self.runtime.store(&pellucid_storage::name(url), None),
                tokio: self.tokio.clone(),
                state: Mutex::default(),
            }))
        };
        let mut state = self.state();
        if state.discarded {
            discard(&target);
            return Err(Box::new(pellucid_runtime::Cancelled));
        }
        state.targets.push(target);
        Ok(state.targets.len() - 1)
    }

    /// Queues a part of an output; parts end up in the order of the calls.
    pub(crate) fn write(self: &Arc<Self>, output: usize, chunks: Vec<Bytes>) -> Result<(), Error> {
        let bytes = chunks.iter().map(|c| c.len() as u64).sum();
        // Gone where the job has ended early.
        let target = self.state().targets.get(output).cloned().unwrap_or(Target::Aborted);
        let monotask = match target {
            Target::Local(file) => file.write_monotask(chunks, Vec::new()),
            Target::Remote(upload) => upload.part(chunks, bytes),
            Target::Aborted => return Ok(()),
        };
        self.submit(monotask, bytes)
    }

    /// Gives an output up.
    pub(crate) fn abort(&self, output: usize) {
        let mut state = self.state();
        if let Some(target) = state.targets.get_mut(output) {
            let aborted = discard(&std::mem::replace(target, Target::Aborted));
            state.aborted.extend(aborted);
        }
    }

    /// Gives all outputs up, and those that should still begin; for a job that ends early.
    /// Waits, within bounds, until the stores have forgotten them.
    pub(crate) fn discard(&self) {
        let aborted: Vec<Aborted> = {
            let mut state = self.state();
            state.discarded = true;
            let targets = std::mem::take(&mut state.targets);
            let earlier = std::mem::take(&mut state.aborted);
            targets.iter().filter_map(discard).chain(earlier).collect()
        };
        // A store that fails to forget has said so to nobody; there is nothing to do about it.
        let until = Instant::now() + ABORT;
        for done in &aborted {
            let _ = done.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Publishes all outputs once every part is written, then calls `then`.
    pub(crate) fn publish(self: &Arc<Self>, then: Then) -> Result<(), Error> {
        let outputs = Arc::clone(self);
        self.when_idle(Box::new(move || outputs.publish_now(then)))
    }

    fn publish_now(self: &Arc<Self>, then: Then) -> Result<(), Error> {
        let targets = self.state().targets.clone();
        for target in targets {
            let monotask = match target {
                Target::Local(file) => file.publish_monotask(Vec::new()),
                Target::Remote(upload) => {
                    let resource = upload.resource.clone();
                    Monotask::new(&resource, Phase::Write, Vec::new(), 0, move |_| {
                        upload.complete().map(|()| Done::default())
                    })
                }
                Target::Aborted => continue,
            };
            self.submit(monotask, 0)?;
        }
        self.when_idle(then)
    }

    fn submit(self: &Arc<Self>, monotask: Monotask, bytes: u64) -> Result<(), Error> {
        let (job, stage) = {
            let mut state = self.state();
            state.pending += 1;
            state.writer.clone().ok_or("output before its stage began")?
        };
        let part = self.parts.fetch_add(1, Relaxed);
        job.submit(
            stage,
            part,
            bytes,
            Box::new(Write { outputs: Arc::clone(self), monotask: Some(monotask) }),
        );
        Ok(())
    }

    fn when_idle(&self, then: Then) -> Result<(), Error> {
        let mut state = self.state();
        if state.pending > 0 {
            state.then = Some(then);
            return Ok(());
        }
        drop(state);
        then()
    }

    fn ended(&self) -> Result<(), Error> {
        let mut state = self.state();
        state.pending -= 1;
        let then = if state.pending == 0 { state.then.take() } else { None };
        drop(state);
        then.map_or(Ok(()), |then| then())
    }
}

fn discard(target: &Target) -> Option<Aborted> {
    match target {
        Target::Local(file) => file.discard(),
        Target::Remote(upload) => return upload.abort(),
        Target::Aborted => {}
    }
    None
}

/// A multitask of one write monotask.
struct Write {
    outputs: Arc<Outputs>,
    monotask: Option<Monotask>,
}

impl Multitask for Write {
    fn plan(&mut self) -> Result<Vec<Monotask>, Error> {
        Ok(self.monotask.take().into_iter().collect())
    }

    fn done(self: Box<Self>) -> Result<(), Error> {
        self.outputs.ended()
    }
}

/// A multipart upload; parts are numbered as they are queued, whoever runs first.
struct Upload {
    store: Arc<dyn ObjectStore>,
    location: Path,
    resource: ResourceHandle,
    tokio: tokio::runtime::Handle,
    state: Mutex<UploadState>,
}

#[derive(Default)]
struct UploadState {
    queued: std::collections::VecDeque<PutPayload>,
    upload: Option<Box<dyn MultipartUpload>>,
    /// Parts that are being sent.
    sending: Vec<AbortHandle>,
    /// Nothing more is sent, and no upload begun.
    given_up: bool,
}

impl Upload {
    fn state(&self) -> std::sync::MutexGuard<'_, UploadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(self: &Arc<Self>, chunks: Vec<Bytes>, bytes: u64) -> Monotask {
        self.state().queued.push_back(PutPayload::from_iter(chunks));
        let upload = Arc::clone(self);
        let run = move || {
            let sent = upload.next()?;
            upload.tokio.block_on(sent).map_err(|_| pellucid_runtime::Cancelled)??;
            Ok(Done { bytes: Some(bytes), ..Done::default() })
        };
        Monotask {
            resource: self.resource.clone(),
            phase: Phase::Write,
            after: Vec::new(),
            bytes,
            run: Box::new(move |_| run()),
        }
    }

    /// Begins to send the next part. Which part a monotask sends is decided here, in order.
    fn next(&self) -> Result<Abortable<object_store::UploadPart>, Error> {
        let mut state = self.state();
        if state.given_up {
            return Err(Box::new(pellucid_runtime::Cancelled));
        }
        if state.upload.is_none() {
            state.upload = Some(self.tokio.block_on(self.store.put_multipart(&self.location))?);
        }
        let payload = state.queued.pop_front().ok_or("a part was sent twice")?;
        let upload = state.upload.as_mut().ok_or("the upload was aborted")?;
        let (handle, registration) = AbortHandle::new_pair();
        let part = Abortable::new(upload.put_part(payload), registration);
        state.sending.push(handle);
        Ok(part)
    }

    fn complete(&self) -> Result<(), Error> {
        let mut state = self.state();
        if state.given_up {
            return Err(Box::new(pellucid_runtime::Cancelled));
        }
        let upload = state.upload.take();
        drop(state);
        let Some(mut upload) = upload else {
            self.tokio.block_on(self.store.put(&self.location, PutPayload::new()))?;
            return Ok(());
        };
        self.tokio.block_on(async {
            let completed = upload.complete().await;
            if completed.is_err() {
                // What the first error says is more.
                let _ = upload.abort().await;
            }
            completed
        })?;
        Ok(())
    }

    /// Stops what is being sent and has the store forget what was.
    fn abort(&self) -> Option<Aborted> {
        let mut state = self.state();
        state.given_up = true;
        state.queued.clear();
        state.sending.drain(..).for_each(|part| part.abort());
        let mut upload = state.upload.take()?;
        let (done, aborted) = channel();
        self.tokio.spawn(async move {
            let _ = upload.abort().await;
            let _ = done.send(());
        });
        Some(aborted)
    }
}
