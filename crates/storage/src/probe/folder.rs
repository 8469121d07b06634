//! A folder that is the probe's own, and what is left of one whose probe was killed.
//!
//! Every object of a probe stands in a folder `pellucid-probe-ID/`, whose first object says
//! who made it and is removed last. A later probe at the same place removes such a folder if
//! its maker is a process of this machine that is no more, or is a day old. Nothing else is
//! ever touched: neither what is named otherwise, nor what stands in such a folder under a
//! name that no probe gives.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::{StreamExt, TryStreamExt};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload, Result};
use serde::{Deserialize, Serialize};

/// What the names of all folders of probes begin with.
const PREFIX: &str = "pellucid-probe-";
/// The object that says whose a folder is.
const OWNER: &str = "owner.json";
/// After so long a folder is nobody's, whoever made it.
const ABANDONED_S: u64 = 24 * 3600;
/// Where Swift keeps the parts of uploads, by the name of the whole.
pub(super) const SEGMENTS: &str = ".segments";
/// What objects of a probe are called: the first part of the name.
const NAMES: [&str; 5] = ["object", "small", "renamed", "commit", "again"];

/// Who made a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    machine: String,
    process: u32,
    /// When the process began, as its machine counts: process numbers are used again.
    process_started: Option<u64>,
    unix_s: u64,
    /// How many folders down to the place were not there before.
    #[serde(default)]
    made_folders: usize,
}

/// What a folder is to a store. One that is a thing of its own stays when it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folders {
    /// A beginning of names.
    Names,
    /// A folder of the store's.
    Things,
    /// A folder of this machine.
    Local,
}

/// The folder of one probe.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The place that is probed.
    place: Path,
    name: String,
    folders: Folders,
    /// How many folders down to the place were not there before; known once it has begun.
    made: OnceLock<usize>,
}

impl Folder {
    /// A new folder at a place.
    pub fn new(place: Path, folders: Folders) -> Folder {
        Folder {
            place,
            folders,
            made: OnceLock::new(),
            name: format!("{PREFIX}{:016x}", RandomState::new().hash_one(unix_s())),
        }
    }

    /// Whether it is on another machine, or may be.
    pub fn is_remote(&self) -> bool {
        self.folders != Folders::Local
    }

    /// The folder itself.
    pub fn path(&self) -> Path {
        self.place.clone().join(self.name.as_str())
    }

    /// An object in it.
    pub fn object(&self, name: &str) -> Path {
        name.split('/').fold(self.path(), |at, part| at.join(part))
    }

    /// Makes the folder known as ours before anything else is in it.
    ///
    /// # Errors
    /// The store's.
    pub async fn begin(&self, store: &dyn ObjectStore) -> Result<()> {
        let made_folders = if self.folders == Folders::Things { self.missing(store).await? } else { 0 };
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

    /// How many folders, from the place upwards, are not there.
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

    /// Removes the folder with all that is in it.
    ///
    /// # Errors
    /// The store's; another call goes on with what is left.
    pub async fn remove(&self, store: &dyn ObjectStore, uploads: Option<&dyn MultipartStore>) -> Result<()> {
        self.remove_named(store, uploads, &self.name, self.made.get().copied().unwrap_or(0)).await
    }

    /// Removes the folders of probes at this place that were killed.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_remains(
        &self,
        store: &dyn ObjectStore,
        uploads: Option<&dyn MultipartStore>,
    ) -> Result<()> {
        let here = store.list_with_delimiter(Some(&self.place)).await?;
        for folder in here.common_prefixes {
            let Some(name) = folder.filename().filter(|name| is_ours(name)) else { continue };
            let owner = match store.get(&folder.clone().join(OWNER)).await {
                Err(Error::NotFound { .. }) => None,
                answer => serde_json::from_slice::<Owner>(&answer?.bytes().await?).ok(),
            };
            match owner {
                Some(owner) if owner.is_gone() => {
                    self.remove_named(store, uploads, name, owner.made_folders).await?;
                }
                Some(_) => {}
                // Not known to be a probe's; but one that was killed while it removed its folders
                // leaves them empty.
                None => self.remove_folders(store, &folder, 0).await,
            }
        }
        Ok(())
    }

    /// Removes what probes put into the folder `name`, the owner last, and then the folders,
    /// where the store has such things.
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
                first.is_some_and(|part| is_made(part.as_ref()))
            };
            let made: Vec<Path> = found.iter().filter(named).cloned().collect();
            let made = futures::stream::iter(made.into_iter().map(Ok)).boxed();
            store.delete_stream(made).try_for_each(|_| async { Ok(()) }).await?;
        }
        if self.folders == Folders::Local {
            remove_unseen(&folder);
        }
        gone(store.delete(&folder.clone().join(OWNER)).await)?;
        self.remove_folders(store, &folder, made).await;
        Ok(())
    }

    /// Removes the folders, where they are things of their own, and `made` of those above. One that
    /// is not empty stays.
    async fn remove_folders(&self, store: &dyn ObjectStore, folder: &Path, made: usize) {
        let mut all = vec![folder.clone().join("small"), folder.clone().join("commit"), folder.clone()];
        let above: Vec<_> = self.place.parts().collect();
        all.extend((0..made.min(above.len())).map(|up| above[..above.len() - up].iter().cloned().collect()));
        for at in all {
            match self.folders {
                Folders::Names => {}
                Folders::Local => _ = std::fs::remove_dir(format!("/{at}")),
                Folders::Things => {
                    let holds = store.list_with_delimiter(Some(&at)).await;
                    if holds.is_ok_and(|h| h.objects.is_empty() && h.common_prefixes.is_empty()) {
                        // What is not there, or was filled just now, is as it should be.
                        let _ = store.delete(&at).await;
                    }
                }
            }
        }
    }
}

/// Aborts the uploads whose names a probe has noted in its folder `commit`.
async fn abort(store: &dyn ObjectStore, uploads: &dyn MultipartStore, commit: &Path) -> Result<()> {
    let found: Vec<Path> = store.list(Some(commit)).map_ok(|o| o.location).try_collect().await?;
    for note in found {
        let Some(number) = note.filename().and_then(|name| name.strip_prefix("upload-")) else { continue };
        let id = store.get(&note).await?.bytes().await?;
        let whole = commit.clone().join(format!("whole-{number}"));
        // One that was completed is no upload any more.
        let _ = uploads.abort_multipart(&whole, &String::from_utf8_lossy(&id).into_owned()).await;
    }
    Ok(())
}

/// Whether a folder has a name that probes give.
pub(super) fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|id| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether probes give such a name, or a store on the way to it: HDFS writes `.NAME.tmp.1`, the
/// local file system `NAME#1`, until the whole is there.
fn is_made(name: &str) -> bool {
    let name = name.trim_start_matches('.');
    NAMES.contains(&name.split(['-', '.', '#']).next().unwrap_or_default())
}

/// Removes the files of a probe that was killed while it wrote them, which a listing leaves out.
fn remove_unseen(folder: &Path) {
    for at in [folder.clone(), folder.clone().join("small"), folder.clone().join("commit")] {
        for entry in std::fs::read_dir(format!("/{at}")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let mut number = name.to_str().unwrap_or_default().rsplit('#');
            let unfinished =
                number.next().is_some_and(|n| n.parse::<u32>().is_ok()) && number.next().is_some();
            if unfinished {
                // One that does not go keeps its folder there, for the next probe.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn gone(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::NotFound { .. }) => Ok(()),
        outcome => outcome,
    }
}

impl Owner {
    fn is_gone(&self) -> bool {
        let old = unix_s().saturating_sub(self.unix_s) > ABANDONED_S;
        // Where processes cannot be looked at, none is known to be gone.
        let looked = started(std::process::id()).is_some();
        let same = looked && self.machine == machine();
        old || (same && started(self.process) != self.process_started)
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Where a process number means one process: the machine as it was started, and the space of
/// numbers (a container has its own).
fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), space.display())
}

/// When a process began (field 22 of its line in `/proc`); `None` where there is none.
fn started(process: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name that may hold anything, in parentheses.
    line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Virtual;
    use object_store::memory::InMemory;

    async fn names(store: &InMemory) -> Vec<String> {
        let mut all: Vec<String> =
            store.list(None).map_ok(|o| o.location.to_string()).try_collect().await.unwrap();
        all.sort();
        all
    }

    #[test]
    fn remains_of_a_dead_process_are_removed_and_nothing_else() {
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
            let elsewhere = Owner { machine: "another".to_string(), ..dead.clone() };
            let old = Owner { unix_s: 1, ..elsewhere.clone() };
            for (i, owner) in [dead, alive, elsewhere, old].iter().enumerate() {
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
            let folder = Folder::new(Path::from("data"), Folders::Names);
            folder.remove_remains(&store, None).await.unwrap();
            folder.begin(&store).await.unwrap();
            folder.remove(&store, None).await.unwrap();
            names(&store).await
        };
        let left = Virtual::default().run(run).unwrap();
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
