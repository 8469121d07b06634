//! Outputs of a job, which are published completely or not at all.
//!
//! A sink encodes on a core and queues each part as a write monotask of its disk or store, while the
//! core continues to encode. Until all parts of all outputs are written, local output has a temporary
//! name and remote output is an incomplete multipart upload. Then one more write monotask per output
//! publishes it, by a rename or by completing the upload, so that nothing is copied in a store whose
//! rename is a copy. A job that fails or is cancelled discards its outputs and aborts its uploads
//! before it ends.
//!
//! Parts wait in memory for their disk. There is no spill, so a slow disk can exhaust the memory budget.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::{AbortHandle, Abortable};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use pellucid_runtime::{Done, Error, Job, Monotask, Multitask, Output, Phase, ResourceHandle, Runtime};
use pellucid_trace::StageIx;
use pellucid_trace::whole::same_file;
use url::Url;

use crate::sync::lock;

/// A continuation, called once pending writes have ended.
type Then = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// Time that the end of a job waits for stores to abort its uploads. A store that does not answer
/// removes them by its own rules.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives a message when a store has aborted an upload.
type Aborted = Receiver<()>;

/// The outputs of one job.
pub(crate) struct Outputs {
    runtime: Runtime,
    tokio: tokio::runtime::Handle,
    /// The file of the job's trace, which no output may replace.
    trace: Option<PathBuf>,
    state: Mutex<State>,
    parts: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The job and the stage that write.
    writer: Option<(Job, StageIx)>,
    targets: Vec<Target>,
    /// Number of write multitasks that have not ended.
    pending: usize,
    /// Continuation to call when `pending` reaches zero.
    then: Option<Then>,
    /// True if the job has ended early; no output may be created after that.
    discarded: bool,
    /// Uploads that are being aborted.
    aborted: Vec<Aborted>,
}

#[derive(Clone)]
enum Target {
    Local(Arc<Output>),
    Remote(Arc<Upload>),
    /// Aborted by its writer.
    Aborted,
}

impl Outputs {
    pub(crate) fn new(runtime: Runtime, tokio: tokio::runtime::Handle, trace: Option<PathBuf>) -> Self {
        Self { runtime, tokio, trace, state: Mutex::default(), parts: AtomicU32::new(1) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sets the job and stage that write.
    pub(crate) fn writer(&self, job: Job, stage: StageIx) {
        self.state().writer = Some((job, stage));
    }

    /// Creates an output at `location` in the store of `url`. On failure it fails the job with the
    /// cause, since DataFusion's text writers replace the cause by an error of their own.
    pub(crate) fn create(
        &self,
        store: &Arc<dyn ObjectStore>,
        url: &Url,
        location: &Path,
    ) -> Result<usize, Error> {
        let created = self.create_target(store, url, location);
        if let Err(error) = &created
            && !error.is::<pellucid_runtime::Cancelled>()
        {
            // Without the lock: the end of a job may drop values that call back into this type.
            let writer = self.state().writer.clone();
            if let Some((job, _)) = writer {
                job.fail(error.to_string().into());
            }
        }
        created
    }

    fn create_target(
        &self,
        store: &Arc<dyn ObjectStore>,
        url: &Url,
        location: &Path,
    ) -> Result<usize, Error> {
        let target = if url.scheme() == "file" {
            let path = pellucid_storage::LocalStore::default().path(location)?;
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|e| {
                    format!(
                        "cannot write {}: cannot create its folder: {e}; choose a writable folder",
                        path.display()
                    )
                })?;
            }
            if self.trace.as_ref().is_some_and(|trace| same_file(trace, &path)) {
                let path = path.display();
                return Err(
                    format!("cannot write {path}: the trace is written to it; choose another file").into()
                );
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

    /// Queues a part of an output. The order of the calls is the order of the parts.
    pub(crate) fn write(self: &Arc<Self>, output: usize, chunks: Vec<Bytes>) -> Result<(), Error> {
        let bytes = chunks.iter().map(|c| c.len() as u64).sum();
        // `discard` has removed the target if the job has ended early.
        let target = self.state().targets.get(output).cloned().unwrap_or(Target::Aborted);
        let monotask = match target {
            Target::Local(file) => file.write_monotask(chunks, Vec::new()),
            Target::Remote(upload) => upload.part(chunks, bytes),
            Target::Aborted => return Ok(()),
        };
        self.submit(monotask, bytes)
    }

    /// Aborts an output.
    pub(crate) fn abort(&self, output: usize) {
        let mut state = self.state();
        if let Some(target) = state.targets.get_mut(output) {
            let aborted = discard(&std::mem::replace(target, Target::Aborted));
            state.aborted.extend(aborted);
        }
    }

    /// Aborts all outputs of a job that ends early, and refuses new ones. Waits up to
    /// [`ABORT_TIMEOUT`] until the stores have aborted the uploads.
    pub(crate) fn discard(&self) {
        let aborted: Vec<Aborted> = {
            let mut state = self.state();
            state.discarded = true;
            let targets = std::mem::take(&mut state.targets);
            let earlier = std::mem::take(&mut state.aborted);
            targets.iter().filter_map(discard).chain(earlier).collect()
        };
        // Nothing can be done about a failed abort.
        let until = Instant::now() + ABORT_TIMEOUT;
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
            state.writer.clone().ok_or("cannot write output: its stage has not started")?
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

    fn multitask_ended(&self) -> Result<(), Error> {
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

/// A multitask with one write monotask.
struct Write {
    outputs: Arc<Outputs>,
    monotask: Option<Monotask>,
}

impl Multitask for Write {
    fn plan(&mut self) -> Result<Vec<Monotask>, Error> {
        Ok(self.monotask.take().into_iter().collect())
    }

    fn done(self: Box<Self>) -> Result<(), Error> {
        self.outputs.multitask_ended()
    }
}

/// A multipart upload. Parts are sent in the order in which they were queued, whichever monotask runs
/// first.
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
    /// True after an abort: no part is sent and no upload started.
    aborted: bool,
}

impl Upload {
    fn state(&self) -> std::sync::MutexGuard<'_, UploadState> {
        lock(&self.state)
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

    /// Starts to send the next queued part. Monotasks take parts in order, whichever runs first.
    fn next(&self) -> Result<Abortable<object_store::UploadPart>, Error> {
        let mut state = self.state();
        if state.aborted {
            return Err(Box::new(pellucid_runtime::Cancelled));
        }
        if state.upload.is_none() {
            state.upload = Some(self.tokio.block_on(self.store.put_multipart(&self.location))?);
        }
        let payload = state.queued.pop_front().ok_or("cannot send a part: none is queued")?;
        let upload = state.upload.as_mut().ok_or("cannot send a part: the upload was aborted")?;
        let (handle, registration) = AbortHandle::new_pair();
        let part = Abortable::new(upload.put_part(payload), registration);
        state.sending.push(handle);
        Ok(part)
    }

    fn complete(&self) -> Result<(), Error> {
        let mut state = self.state();
        if state.aborted {
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
                // The first error matters more than one of the abort.
                let _ = upload.abort().await;
            }
            completed
        })?;
        Ok(())
    }

    /// Stops sending and asks the store to abort the upload.
    fn abort(&self) -> Option<Aborted> {
        let mut state = self.state();
        state.aborted = true;
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
