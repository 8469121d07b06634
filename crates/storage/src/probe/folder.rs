//! The temporary folder of a probe, and the cleanup of folders of killed probes.
//!
//! A probe keeps all its objects in a folder `pellucid-probe-ID/`. The folder's first object
//! identifies its owner and is removed last. A later probe at the same place removes such a folder
//! if its owner was a process of this machine that has exited, or if the folder is over a day old.
//! The cleanup touches nothing else: no object outside such folders, and no object in them whose
//! name a probe does not use.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::{StreamExt, TryStreamExt};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload, Result};
use serde::{Deserialize, Serialize};

/// Prefix of the names of probe folders.
const PREFIX: &str = "pellucid-probe-";
/// Name of the object that identifies a folder's owner.
const OWNER: &str = "owner.json";
/// Age after which a folder counts as abandoned, whoever owns it.
const ABANDONED_S: u64 = 24 * 3600;
/// Folder in which Swift keeps the parts of uploads, by the name of the whole object.
pub(super) const SEGMENTS: &str = ".segments";
/// First components of the names of a probe's objects.
const OBJECT_NAMES: [&str; 5] = ["object", "small", "renamed", "commit", "again"];

/// The owner of a probe folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    machine: String,
    process: u32,
    /// Start time of the process in ticks of its machine; process IDs are reused.
    process_started: Option<u64>,
    unix_s: u64,
    /// Number of parent folders that the probe had to create.
    #[serde(default)]
    made_folders: usize,
}

/// A store's notion of a folder. Directories exist on their own, so they remain when empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderKind {
    /// A prefix of object names.
    Prefix,
    /// A directory of the store.
    Directory,
    /// A directory of this machine.
    Local,
}

/// The folder of one probe.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The folder to probe.
    place: Path,
    name: String,
    kind: FolderKind,
    /// Number of created parent folders; set by [`Folder::begin`].
    made: OnceLock<usize>,
}

impl Folder {
    /// Creates a folder name below `place`.
    pub fn new(place: Path, kind: FolderKind) -> Folder {
        Folder {
            place,
            kind,
            made: OnceLock::new(),
            name: format!("{PREFIX}{:016x}", RandomState::new().hash_one(unix_s())),
        }
    }

    /// Returns true if the folder is, or may be, on another machine.
    pub fn is_remote(&self) -> bool {
        self.kind != FolderKind::Local
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> Path {
        self.place.clone().join(self.name.as_str())
    }

    /// Returns the path of an object in the folder.
    pub fn object(&self, name: &str) -> Path {
        name.split('/').fold(self.path(), |at, part| at.join(part))
    }

    /// Writes the owner object, before any other object.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn begin(&self, store: &dyn ObjectStore) -> Result<()> {
        let made_folders = if self.kind == FolderKind::Directory { self.missing(store).await? } else { 0 };
        let _ = self.made.set(made_folders);
        let owner = Owner {
            made_folders,
            machine: machine(),
            process: std::process::id(),
            process_started: started(std::process::id()),
            unix_s: unix_s(),
        };
        let text = serde_json::to_vec(&owner).unwrap_or_default();
        store.put(&self.object(OWNER), PutPayload::from(text)).await.map(|_| ())
    }

    /// Returns the number of missing folders, from the place upwards.
    async fn missing(&self, store: &dyn ObjectStore) -> Result<usize> {
        let mut parts: Vec<_> = self.place.parts().collect();
        let mut missing = 0;
        while !parts.is_empty() {
            let at: Path = parts.iter().cloned().collect();
            parts.pop();
            let above: Path = parts.iter().cloned().collect();
            if store.list_with_delimiter(Some(&above)).await?.common_prefixes.contains(&at) {
                break;
            }
            missing += 1;
        }
        Ok(missing)
    }

    /// Removes the folder and its contents.
    ///
    /// # Errors
    /// Returns the store's error; another call continues with the remaining objects.
    pub async fn remove(&self, store: &dyn ObjectStore, uploads: Option<&dyn MultipartStore>) -> Result<()> {
        self.remove_named(store, uploads, &self.name, self.made.get().copied().unwrap_or(0)).await
    }

    /// Removes the folders of killed probes at this place.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn remove_leftovers(
        &self,
        store: &dyn ObjectStore,
        uploads: Option<&dyn MultipartStore>,
    ) -> Result<()> {
        let here = store.list_with_delimiter(Some(&self.place)).await?;
        for folder in here.common_prefixes {
            let Some(name) = folder.filename().filter(|name| is_probe_folder(name)) else { continue };
            let text = match store.get(&folder.clone().join(OWNER)).await {
                Err(Error::NotFound { .. }) if self.kind == FolderKind::Local => unpublished_owner(&folder),
                Err(Error::NotFound { .. }) => None,
                answer => Some(answer?.bytes().await?.to_vec()),
            };
            let owner = text.and_then(|text| serde_json::from_slice::<Owner>(&text).ok());
            match owner {
                Some(owner) if owner.is_abandoned() => {
                    self.remove_named(store, uploads, name, owner.made_folders).await?;
                }
                Some(_) => {}
                // This may not be a probe's folder, so only empty directories are removed: a probe
                // killed during its cleanup leaves those.
                None => self.remove_folders(store, &folder, 0).await,
            }
        }
        Ok(())
    }

    /// Removes the objects of a probe in the folder `name`, the owner last, and then the directories,
    /// if the store has them.
    async fn remove_named(
        &self,
        store: &dyn ObjectStore,
        uploads: Option<&dyn MultipartStore>,
        name: &str,
        made: usize,
    ) -> Result<()> {
        let folder = self.place.clone().join(name);
        if let Some(uploads) = uploads {
            abort(store, uploads, &folder.clone().join("commit")).await?;
        }
        let segments: Path = [SEGMENTS.into()].into_iter().chain(folder.parts()).collect();
        for at in [&segments, &folder] {
            let found: Vec<Path> = store.list(Some(at)).map_ok(|o| o.location).try_collect().await?;
            let named = |path: &&Path| {
                let first = path.prefix_match(at).and_then(|mut parts| parts.next());
                first.is_some_and(|part| is_probe_object(part.as_ref()))
            };
            let made: Vec<Path> = found.iter().filter(named).cloned().collect();
            let made = futures::stream::iter(made.into_iter().map(Ok)).boxed();
            store.delete_stream(made).try_for_each(|_| async { Ok(()) }).await?;
        }
        if self.kind == FolderKind::Local {
            remove_partial_files(&folder);
        }
        ignore_not_found(store.delete(&folder.clone().join(OWNER)).await)?;
        self.remove_folders(store, &folder, made).await;
        Ok(())
    }

    /// Removes the empty directories of a probe and `made` of their parents; does nothing for a store
    /// of prefixes.
    async fn remove_folders(&self, store: &dyn ObjectStore, folder: &Path, made: usize) {
        let mut all = vec![folder.clone().join("small"), folder.clone().join("commit"), folder.clone()];
        let above: Vec<_> = self.place.parts().collect();
        all.extend((0..made.min(above.len())).map(|up| above[..above.len() - up].iter().cloned().collect()));
        for at in all {
            match self.kind {
                FolderKind::Prefix => {}
                FolderKind::Local => _ = std::fs::remove_dir(format!("/{at}")),
                FolderKind::Directory => {
                    let contents = store.list_with_delimiter(Some(&at)).await;
                    if contents.is_ok_and(|c| c.objects.is_empty() && c.common_prefixes.is_empty()) {
                        // Fails for a directory that is missing or was filled meanwhile; both are fine.
                        let _ = store.delete(&at).await;
                    }
                }
            }
        }
    }
}

/// Aborts the uploads whose IDs a probe has recorded in its folder `commit`.
async fn abort(store: &dyn ObjectStore, uploads: &dyn MultipartStore, commit: &Path) -> Result<()> {
    let found: Vec<Path> = store.list(Some(commit)).map_ok(|o| o.location).try_collect().await?;
    for note in found {
        let Some(number) = note.filename().and_then(|name| name.strip_prefix("upload-")) else { continue };
        let id = store.get(&note).await?.bytes().await?;
        let whole = commit.clone().join(format!("whole-{number}"));
        // Fails if the upload was completed.
        let _ = uploads.abort_multipart(&whole, &String::from_utf8_lossy(&id).into_owned()).await;
    }
    Ok(())
}

/// Returns true if `name` is the name of a probe folder.
pub(super) fn is_probe_folder(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|id| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns true if `name` is the name of a probe's object or of a partial write of one: HDFS writes
/// `.NAME.tmp.1` and the local file system `NAME#1` until the object is complete.
fn is_probe_object(name: &str) -> bool {
    let name = name.trim_start_matches('.');
    OBJECT_NAMES.contains(&name.split(['-', '.', '#']).next().unwrap_or_default())
}

/// Returns the owner object of a probe that was killed between writing and renaming it.
fn unpublished_owner(folder: &Path) -> Option<Vec<u8>> {
    std::fs::read(format!("/{folder}/{OWNER}#1")).ok()
}

/// Removes the partially written files of a killed probe, which listings omit.
fn remove_partial_files(folder: &Path) {
    for at in [folder.clone(), folder.clone().join("small"), folder.clone().join("commit")] {
        for entry in std::fs::read_dir(format!("/{at}")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let mut number = name.to_str().unwrap_or_default().rsplit('#');
            let unfinished =
                number.next().is_some_and(|n| n.parse::<u32>().is_ok()) && number.next().is_some();
            if unfinished {
                // A file that cannot be removed keeps its folder for the next probe.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn ignore_not_found(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::NotFound { .. }) => Ok(()),
        outcome => outcome,
    }
}

impl Owner {
    fn is_abandoned(&self) -> bool {
        let old = unix_s().saturating_sub(self.unix_s) > ABANDONED_S;
        // Without access to process start times, no process is known to have exited.
        let can_check = started(std::process::id()).is_some();
        let same = can_check && self.machine == machine();
        old || (same && started(self.process) != self.process_started)
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Returns the scope within which a process ID is unique: the boot of the machine and the PID
/// namespace (a container has its own).
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), space.display())
}

/// Returns the start time of a process (field 22 of `/proc/PID/stat`); `None` without such a process.
fn started(process: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain any character.
    line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    async fn names(store: &InMemory) -> Vec<String> {
        let mut all: Vec<String> =
            store.list(None).map_ok(|o| o.location.to_string()).try_collect().await.unwrap();
        all.sort();
        all
    }

    #[test]
    fn leftovers_of_dead_processes_are_removed_and_nothing_else() {
        let run = async {
            let store = InMemory::new();
            let dead = Owner {
                machine: machine(),
                process: 0,
                process_started: Some(1),
                unix_s: unix_s(),
                made_folders: 0,
            };
            let alive = Owner {
                process: std::process::id(),
                process_started: started(std::process::id()),
                ..dead.clone()
            };
            let remote = Owner { machine: "another".to_string(), ..dead.clone() };
            let old = Owner { unix_s: 1, ..remote.clone() };
            for (i, owner) in [dead, alive, remote, old].iter().enumerate() {
                let folder = format!("data/pellucid-probe-{i:016x}");
                let text = serde_json::to_vec(owner).unwrap();
                store.put(&Path::from(format!("{folder}/{OWNER}")), text.into()).await.unwrap();
                for name in ["small/3", "object-1", "notes.txt"] {
                    store.put(&Path::from(format!("{folder}/{name}")), "x".into()).await.unwrap();
                }
            }
            for name in
                ["data/a", "data/pellucid-probe-mine/object-1", "pellucid-probe-0000000000000000/object-1"]
            {
                store.put(&Path::from(name), "x".into()).await.unwrap();
            }
            let folder = Folder::new(Path::from("data"), FolderKind::Prefix);
            folder.remove_leftovers(&store, None).await.unwrap();
            folder.begin(&store).await.unwrap();
            folder.remove(&store, None).await.unwrap();
            names(&store).await
        };
        let left = futures::executor::block_on(run);
        let of = |i: u32, names: &[&str]| {
            names.iter().map(|n| format!("data/pellucid-probe-{i:016x}/{n}")).collect()
        };
        let mut expected: Vec<String> =
            ["data/a", "data/pellucid-probe-mine/object-1"].map(String::from).to_vec();
        expected.push("pellucid-probe-0000000000000000/object-1".to_string());
        let whole = ["notes.txt", "object-1", "owner.json", "small/3"];
        for part in [of(0, &["notes.txt"]), of(1, &whole), of(2, &whole), of(3, &["notes.txt"])] {
            let part: Vec<String> = part;
            expected.extend(part);
        }
        expected.sort();
        assert_eq!(left, expected);
    }
}
