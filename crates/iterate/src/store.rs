//! Snapshots on a local disk or in an object store, through `crates/storage`.
//!
//! A snapshot consists of one object for each partition that changed since the previous one, and a manifest
//! that lists all of its objects. The manifest is written last, after all parts are durable, and every object
//! is written atomically. Everything that the latest manifest lists therefore exists, whenever a process
//! dies. Each job has its own folder in a store; a job resumes from a manifest of the same program and data.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use url::Url;

use crate::cell::lock;
use crate::controller::Controller;
use crate::error::JobError;
use crate::message::Manifest;
use crate::plan::Plan;
use crate::run::Snapshots;
use crate::worker::{SaveDone, Store};

/// Objects to save, and the callback for the end of the save.
type Save = (Vec<(Path, Vec<u8>)>, SaveDone);

/// Deletes run concurrently because the controller waits for them and each takes about ten milliseconds.
const MAX_CONCURRENT_DELETES: usize = 64;

/// See the [module](self).
pub(crate) struct SnapshotStore {
    place: Url,
    prefix: Path,
    objects: Arc<dyn ObjectStore>,
    runtime: Arc<Runtime>,
    /// Channel to the writing thread, so that tasks do not wait for writes.
    saves: Mutex<Sender<Save>>,
    /// Number of unfinished saves, which hold copies of partitions.
    waiting: Arc<AtomicUsize>,
}

impl SnapshotStore {
    /// Opens a snapshot store.
    ///
    /// # Errors
    /// If the URL's scheme is unknown or the store rejects its settings.
    pub fn open(snapshots: &Snapshots) -> Result<Arc<Self>, JobError> {
        let place = snapshots.place.clone();
        let wrong = |cause: String| JobError::Snapshot { place: place.to_string(), cause };
        let objects = pellucid_storage::open(&place).map_err(|error| wrong(error.to_string()))?;
        let prefix = Path::from_url_path(place.path()).map_err(|error| wrong(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.map_err(|error| wrong(error.to_string()))?);
        let (saves, received) = channel::<(Vec<(Path, Vec<u8>)>, SaveDone)>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let writer = (objects.clone(), runtime.clone(), place.to_string(), waiting.clone());
        std::thread::spawn(move || {
            let (objects, runtime, place, waiting) = writer;
            while let Ok((list, done)) = received.recv() {
                let mut result = Ok(());
                for (path, bytes) in list {
                    if let Err(error) = runtime.block_on(objects.put(&path, bytes.into())) {
                        result = Err(JobError::Snapshot { place: place.clone(), cause: root_cause(&error) });
                        break;
                    }
                }
                done(result);
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
        });
        Ok(Arc::new(Self { place, prefix, objects, runtime, saves: Mutex::new(saves), waiting }))
    }

    fn wrong(&self, error: &object_store::Error) -> JobError {
        JobError::Snapshot { place: self.place.to_string(), cause: root_cause(error) }
    }

    fn manifest_path(&self, plan: &Plan) -> Path {
        self.path(&format!("{}/manifest.json", crate::thread::folder(plan)))
    }

    /// Returns the latest snapshot of a plan's job, if any.
    ///
    /// # Errors
    /// If the manifest cannot be read.
    pub fn latest(&self, plan: &Plan) -> Result<Option<Manifest>, JobError> {
        let path = self.manifest_path(plan);
        let read = self.runtime.block_on(async { self.objects.get(&path).await?.bytes().await });
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.wrong(&error)),
        };
        let manifest = serde_json::from_slice(&bytes).map_err(|error| JobError::Snapshot {
            place: self.place.to_string(),
            cause: format!("{path}: {error}"),
        })?;
        Ok(Some(manifest))
    }

    fn write_manifest(&self, plan: &Plan, manifest: &Manifest) -> Result<(), JobError> {
        let bytes = serde_json::to_vec(manifest).map_err(|error| JobError::Snapshot {
            place: self.place.to_string(),
            cause: error.to_string(),
        })?;
        let path = self.manifest_path(plan);
        let put = self.objects.put(&path, bytes.into());
        self.runtime.block_on(put).map(|_| ()).map_err(|error| self.wrong(&error))
    }

    /// Deletes the objects that only the previous snapshot refers to.
    fn remove_old(&self, plan: &Plan, before: &Manifest, now: &Manifest) {
        let mut obsolete = Vec::new();
        for (bundle, (old, new)) in (0..).zip(before.saved.iter().zip(&now.saved)) {
            for &(dataset, epoch) in old.iter().filter(|object| !new.contains(object)) {
                let name = crate::thread::object(plan, dataset, plan.locate(bundle).1, epoch);
                obsolete.push(self.path(&name));
            }
        }
        for batch in obsolete.chunks(MAX_CONCURRENT_DELETES) {
            self.runtime.block_on(async {
                let mut requests = JoinSet::new();
                for path in batch {
                    let (objects, path) = (Arc::clone(&self.objects), path.clone());
                    requests.spawn(async move { objects.delete(&path).await });
                }
                // A failed delete leaves an unreferenced object, which only takes space.
                while requests.join_next().await.is_some() {}
            });
        }
    }

    fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

/// Returns the innermost cause of an error, such as a full disk.
fn root_cause(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

impl Store for SnapshotStore {
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone) {
        let objects = objects.into_iter().map(|(name, bytes)| (self.path(&name), bytes)).collect();
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // The writing thread lives as long as this value.
        let _ = lock(&self.saves).send((objects, done));
    }

    fn load(&self, object: &str) -> Result<bytes::Bytes, JobError> {
        let path = self.path(object);
        let read = self.runtime.block_on(async { self.objects.get(&path).await?.bytes().await });
        read.map_err(|error| self.wrong(&error))
    }

    fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

/// Writes the controller's pending manifests and deletes the objects that they replace.
pub(crate) fn commit(controller: &mut Controller, store: Option<&SnapshotStore>) {
    let Some(store) = store else { return };
    for manifest in std::mem::take(&mut controller.commits) {
        let before = controller.snapshot().cloned();
        if let Err(error) = store.write_manifest(controller.plan(), &manifest) {
            controller.fail(error);
            return;
        }
        controller.committed(manifest.clone());
        if let Some(before) = before {
            store.remove_old(controller.plan(), &before, &manifest);
        }
    }
}
