//! Snapshots on a local disk or in an object store, through `crates/storage`.
//!
//! A snapshot consists of one object for each partition that changed since the previous one, and a line of the
//! job's manifest, which lists all of its objects with their lengths and checksums. The manifest is written
//! last, after all parts are durable, and every object is written atomically. A worker syncs the content of its
//! parts, and the controller the folder of all parts, once for each snapshot. Everything that the manifest lists
//! therefore exists, whenever a process dies or the power fails. Only then are the objects removed that no kept
//! snapshot lists. An object whose length or checksum differs is damaged; the job then resumes from the snapshot
//! before, or starts again.
//!
//! Each job has its own folder in a store; a job resumes from a manifest of the same program and data. In a local
//! folder, the controller holds a lock that ends with its process. Object stores have no such lock.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pellucid_storage::LocalStore;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use url::Url;

use crate::dataflow::plan::Plan;
use crate::error::{JobError, warn};
use crate::protocol::ports::{SaveDone, Store};
use crate::protocol::records::{Manifest, Part};
use crate::snapshot::layout::{folder, object, parts_folder};
use crate::snapshot::manifest::{self, Content};
use crate::sync::lock;

/// Location and interval of a job's snapshots.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// Directory (`file://`) or object store prefix (`s3://`).
    pub place: Url,
    /// Iterations of outermost loops between snapshots.
    pub every_iterations: u32,
}

/// Objects to save, and the callback for the end of the save.
type Save = (Vec<(Path, Vec<u8>)>, SaveDone);

/// Deletes run concurrently because the controller waits for them and each takes about ten milliseconds.
const MAX_CONCURRENT_DELETES: usize = 64;
/// Saves at the same time. Syncs of several files share the commits of a file system's journal.
const MAX_CONCURRENT_SAVES: usize = 16;

/// See the [module](self).
pub(crate) struct SnapshotStore {
    /// The location, without credentials.
    place: String,
    prefix: Path,
    objects: Arc<dyn ObjectStore>,
    /// The same store, if the objects are local files.
    local: Option<Arc<LocalStore>>,
    /// Locked by a controller while the job runs.
    lock_file: OnceLock<File>,
    runtime: Arc<Runtime>,
    /// Channel to the writing thread, so that tasks do not wait for writes. `None` when the store is dropped.
    saves: Mutex<Option<Sender<Save>>>,
    writer: Option<JoinHandle<()>>,
    /// Number of unfinished saves, which hold copies of partitions.
    waiting: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

impl SnapshotStore {
    /// Opens a snapshot store.
    ///
    /// # Errors
    /// If the URL's scheme is unknown or the store rejects its settings.
    pub fn open(snapshots: &Snapshots) -> Result<Arc<Self>, JobError> {
        let url = &snapshots.place;
        let place = format!("{}{}", pellucid_storage::name(url), url.path());
        let wrong = |cause: String| JobError::Snapshot { place: place.clone(), cause };
        let local = (url.scheme() == "file").then(|| Arc::new(LocalStore::durable()));
        let objects: Arc<dyn ObjectStore> = match &local {
            Some(local) => local.clone(),
            None => pellucid_storage::open(url).map_err(|error| wrong(error.to_string()))?,
        };
        let prefix = Path::from_url_path(url.path()).map_err(|error| wrong(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.map_err(|error| wrong(error.to_string()))?);
        let (saves, received) = channel::<Save>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let closed = Arc::new(AtomicBool::new(false));
        let shared = (objects.clone(), runtime.clone(), place.clone(), waiting.clone(), closed.clone());
        let writer = Builder::new().spawn(move || {
            let (objects, runtime, place, waiting, closed) = shared;
            while let Ok(first) = received.recv() {
                let batch: Vec<Save> = std::iter::once(first)
                    .chain(received.try_iter().take(MAX_CONCURRENT_SAVES - 1))
                    .collect();
                runtime.block_on(async {
                    let mut saves = JoinSet::new();
                    for (list, done) in batch {
                        let (objects, place) = (objects.clone(), place.clone());
                        let (waiting, closed) = (waiting.clone(), closed.clone());
                        saves.spawn(async move {
                            let mut result = Ok(());
                            for (path, bytes) in list {
                                if closed.load(Ordering::Acquire) {
                                    return;
                                }
                                if let Err(error) = objects.put(&path, bytes.into()).await {
                                    result = Err(JobError::Snapshot { place, cause: root_cause(&error) });
                                    break;
                                }
                            }
                            done(result);
                            waiting.fetch_sub(1, Ordering::AcqRel);
                        });
                    }
                    while saves.join_next().await.is_some() {}
                });
            }
        });
        let writer = Some(writer.map_err(|error| JobError::no_thread(0, 1, &error))?);
        let (saves, lock_file) = (Mutex::new(Some(saves)), OnceLock::new());
        Ok(Arc::new(Self {
            place,
            prefix,
            objects,
            local,
            lock_file,
            runtime,
            saves,
            writer,
            waiting,
            closed,
        }))
    }

    fn wrong(&self, error: &object_store::Error) -> JobError {
        JobError::Snapshot { place: self.place.clone(), cause: root_cause(error) }
    }

    /// Returns the folder of a plan's job, for messages.
    pub fn shown(&self, plan: &Plan) -> String {
        format!("{}/{}", self.place.trim_end_matches('/'), folder(plan))
    }

    fn manifest_path(&self, plan: &Plan) -> Path {
        self.path(&format!("{}/manifest.json", folder(plan)))
    }

    /// Prepares the folder of a plan's job for a controller, and returns the snapshots to resume from, the newest
    /// first. A damaged manifest costs its damaged snapshots, with a warning on standard error.
    ///
    /// # Errors
    /// If another process is running the job there, the folder cannot be read or written, or another version
    /// wrote the snapshots.
    pub fn resume(&self, plan: &Plan) -> Result<Vec<Manifest>, JobError> {
        if let Some(local) = &self.local {
            self.lock(local, plan)?;
        }
        let snapshots = self.read_manifest(plan)?;
        let probe = self.path(&format!("{}/probe", parts_folder(plan)));
        let write = self.runtime.block_on(self.objects.put(&probe, Vec::new().into()));
        write.map_err(|error| self.wrong(&error))?;
        self.remove([probe]);
        if let Some(local) = &self.local {
            self.remove_leftovers(local, plan, &snapshots);
        }
        Ok(snapshots)
    }

    /// Returns the file of an object.
    fn file(&self, local: &LocalStore, object: &str) -> Result<std::path::PathBuf, JobError> {
        local.path(&self.path(object)).map_err(|error| self.wrong(&error))
    }

    /// Locks the folder of a plan's job until this store is dropped or the process ends.
    fn lock(&self, local: &LocalStore, plan: &Plan) -> Result<(), JobError> {
        let path = self.file(local, &format!("{}/lock", folder(plan)))?;
        let open = || {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            File::options().create(true).truncate(false).write(true).open(&path)
        };
        let failed = |error: &std::io::Error| JobError::Snapshot {
            place: self.place.clone(),
            cause: format!("{}: {error}", path.display()),
        };
        let file = open().map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let cause = "another process is running this job with snapshots there; wait for it to end or \
                             choose another location";
                return Err(JobError::SnapshotPlace { place: self.shown(plan), cause: cause.into() });
            }
            // Some network file systems have no locks.
            Err(TryLockError::Error(error))
                if matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)) => {}
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        let _ = self.lock_file.set(file);
        Ok(())
    }

    fn read_manifest(&self, plan: &Plan) -> Result<Vec<Manifest>, JobError> {
        let path = self.manifest_path(plan);
        let read = self.runtime.block_on(async { self.objects.get(&path).await?.bytes().await });
        let file = match read {
            Ok(file) => file,
            Err(object_store::Error::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(self.wrong(&error)),
        };
        match manifest::decode(plan, &file) {
            Content::Snapshots(snapshots, damages) => {
                let instead = snapshots.first().map_or("starting from the beginning".into(), |snapshot| {
                    format!("resuming from the snapshot of iteration {}", snapshot.iteration)
                });
                for damage in damages {
                    warn(&format!("snapshots in {}: {damage}; {instead}", self.shown(plan)));
                }
                Ok(snapshots)
            }
            Content::OtherFormat(version) => Err(JobError::SnapshotPlace {
                place: self.shown(plan),
                cause: format!(
                    "it has snapshots of format {version}, but this version reads format {}; use the version \
                     that wrote them, delete them, or choose another location",
                    manifest::FORMAT
                ),
            }),
        }
    }

    /// Writes the manifest of some snapshots, the newest first.
    ///
    /// # Errors
    /// The store's error.
    pub fn write_manifest<'a>(
        &self,
        plan: &Plan,
        snapshots: impl Iterator<Item = &'a Manifest>,
    ) -> Result<(), JobError> {
        let place = || self.place.clone();
        let bytes =
            manifest::encode(snapshots).map_err(|cause| JobError::Snapshot { place: place(), cause })?;
        self.sync_folder(&parts_folder(plan))?;
        let path = self.manifest_path(plan);
        let put = self.objects.put(&path, bytes.into());
        self.runtime.block_on(put).map_err(|error| self.wrong(&error))?;
        self.sync_folder(&folder(plan))
    }

    /// Makes the objects directly in a folder durable. Those of other stores are durable once they are written.
    fn sync_folder(&self, folder: &str) -> Result<(), JobError> {
        let synced = self.local.as_ref().map_or(Ok(()), |local| local.sync_folder(&self.path(folder)));
        synced.map_err(|error| self.wrong(&error))
    }

    /// Deletes objects.
    fn remove(&self, objects: impl IntoIterator<Item = Path>) {
        let objects: Vec<Path> = objects.into_iter().collect();
        for batch in objects.chunks(MAX_CONCURRENT_DELETES) {
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

    /// Deletes the objects that only snapshots in `before` list.
    pub fn remove_replaced(&self, plan: &Plan, before: &[Manifest], now: &[Manifest]) {
        let (before, now) = (objects(plan, before), objects(plan, now));
        self.remove(before.difference(&now).map(|name| self.path(name)));
    }

    /// Deletes the files of unfinished snapshots, left by a process that was killed.
    fn remove_leftovers(&self, local: &LocalStore, plan: &Plan, snapshots: &[Manifest]) {
        let folder = parts_folder(plan);
        let kept = objects(plan, snapshots);
        // The folder was written just now. A file that cannot be removed only takes space.
        let Ok(files) = self.file(local, &folder).map(std::fs::read_dir) else { return };
        for file in files.into_iter().flatten().flatten() {
            if !kept.contains(&format!("{folder}/{}", file.file_name().to_string_lossy())) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    fn path(&self, object: &str) -> Path {
        object.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

impl Drop for SnapshotStore {
    /// Ends the writing thread before the lock is released.
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        *lock(&self.saves) = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Returns the names of the objects that some snapshots list.
fn objects(plan: &Plan, snapshots: &[Manifest]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for snapshot in snapshots {
        for (bundle, parts) in snapshot.saved.entries() {
            let partition = plan.locate(bundle).1;
            let name = |part: &Part| object(plan, part.dataset, partition, part.epoch);
            names.extend(parts.iter().map(name));
        }
    }
    names
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
        let _ = lock(&self.saves).as_ref().map(|saves| saves.send((objects, done)));
    }

    fn load(&self, object: &str) -> Result<Option<bytes::Bytes>, JobError> {
        let path = self.path(object);
        let read = self.runtime.block_on(async { self.objects.get(&path).await?.bytes().await });
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.wrong(&error)),
        }
    }

    fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}
