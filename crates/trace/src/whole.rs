//! Files and folders that appear whole or not at all.
//!
//! An output is written under a temporary name beside its target, and renamed when it is complete. The name
//! `.NAME.RANDOM.partial` is random and is created with `O_EXCL`, so that no link that another user planted
//! is followed, and two processes never share a temporary file. Readers of a folder ignore it, which matters
//! after a `kill -9`. Contents are synced before the rename and the folder after it.
//!
//! A file that replaces another keeps its mode, and its owner where that is permitted; access control lists,
//! extended attributes and further hard links of the old file are not kept. If the target is a symbolic link,
//! the link stays and the file that it names is replaced. Devices and pipes are written directly.
//!
//! A new trace is not written this way, since it is read while it grows ([`WholeFile::growing`]). One that
//! replaces another is: a job that dies must not cost the older trace.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the target's name that its temporary name repeats. File systems limit a name to 255 bytes.
const MAX_NAME_BYTES: usize = 200;
/// Limit on symbolic links that lead to a target, as in Linux.
const MAX_LINKS: usize = 40;

/// Temporary files and folders of this process.
static TEMPORARIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Locks a mutex. Ignores poisoning, since holders do not panic midway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary files and folders of this process, for a process that exits at once.
pub fn discard_all() {
    lock(&TEMPORARIES).drain(..).for_each(|path| remove(&path));
}

fn remove(path: &Path) {
    // Readers ignore the name of a file that cannot be removed.
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// Returns true if two paths name the same regular file, through links or not, or would create the same file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => matches!((target(a), target(b)), (Ok(Some(a)), Ok(Some(b))) if a == b),
        _ => false,
    }
}

/// Returns true for an existing device, pipe or socket.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Syncs the entries of a folder, as far as its file system can and the folder may be read.
///
/// # Errors
/// Returns an error if the folder cannot be opened or synced for another reason.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Returns the absolute path to write for `path`, after the symbolic links at its end, whether or not it
/// exists. Returns `None` for a path to write directly: a device, a pipe, or an open file (`/dev/stdout`).
fn target(path: &Path) -> io::Result<Option<PathBuf>> {
    if is_special(path) {
        return Ok(None);
    }
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let name = path.file_name();
        let name =
            name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it does not name a file"))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
        let here = folder.join(name);
        match fs::read_link(&here) {
            Ok(_) if folder.starts_with("/proc") => return Ok(None),
            Ok(to) => path = folder.join(to),
            // Neither an absent file nor one that is not a link can be read as a link.
            Err(_) => return Ok(Some(here)),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Gives a new file or folder the mode of the one that it will replace, and its owner and group if permitted.
fn inherit(new: &File, from: &Metadata) -> io::Result<()> {
    let made = new.metadata()?;
    let mut mode = from.mode() & 0o777;
    if (made.uid(), made.gid()) != (from.uid(), from.gid())
        && fchown(new, Some(from.uid()), Some(from.gid())).is_err()
        && made.gid() != from.gid()
        && fchown(new, None, Some(from.gid())).is_err()
    {
        // Another group must not get the access of the old one.
        mode = (mode & 0o707) | ((mode & 0o007) << 3);
    }
    if made.mode() & 0o777 == mode {
        return Ok(());
    }
    let bits = (made.mode() & 0o7000) | mode;
    match new.set_permissions(Permissions::from_mode(bits)) {
        // The file system has no modes.
        Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => Ok(()),
        set => set,
    }
}

/// A temporary name and its target.
#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    target: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Published,
    Discarded,
}

impl Pending {
    /// Makes a file or folder beside `target` with a name that does not exist.
    fn create<T>(target: PathBuf, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, Pending)> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let name = name[..name.floor_char_boundary(MAX_NAME_BYTES)].to_string();
        loop {
            // The keys of the hash come from the system's random numbers.
            let random = RandomState::new().hash_one(&name);
            let temporary = target.with_file_name(format!(".{name}.{random:016x}.partial"));
            // Held while it is made, so that an interrupt removes it.
            let mut temporaries = lock(&TEMPORARIES);
            match make(&temporary) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(made) => {
                    temporaries.push(temporary.clone());
                    return Ok((made, Pending { temporary, target, state: Mutex::new(State::Open) }));
                }
            }
        }
    }

    /// Syncs with `sync` and renames. A second call has no effect.
    fn rename(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = lock(&self.state);
        match *state {
            State::Open => {}
            State::Published => return Ok(()),
            State::Discarded => return Err(io::Error::other("it was discarded")),
        }
        sync()?;
        fs::rename(&self.temporary, &self.target)?;
        *state = State::Published;
        self.forget();
        Ok(())
    }

    /// Returns the folder of the target.
    fn folder(&self) -> &Path {
        self.target.parent().unwrap_or(Path::new("/"))
    }

    fn discard(&self) {
        let mut state = lock(&self.state);
        if *state == State::Open {
            *state = State::Discarded;
            remove(&self.temporary);
            self.forget();
        }
    }

    fn forget(&self) {
        lock(&TEMPORARIES).retain(|path| *path != self.temporary);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Where the content of a [`WholeFile`] goes.
#[derive(Debug)]
enum Destination {
    /// A temporary file, until it is published.
    Pending(Pending),
    /// The file itself, whose entry is in this folder.
    InPlace { folder: PathBuf },
    /// A device, a pipe or an open file.
    Direct,
}

/// A file that appears when it is published, and is removed if it is dropped before that.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    destination: Destination,
}

impl WholeFile {
    /// Creates the temporary file of a target.
    ///
    /// # Errors
    /// Returns an error if the target is a folder, or its folder does not exist or is not writable.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        let Some(target) = target(path)? else {
            let regular = fs::metadata(path).is_ok_and(|found| found.is_file());
            let file = File::options().write(true).append(regular).open(path)?;
            return Ok(WholeFile { file, destination: Destination::Direct });
        };
        let replaced = fs::metadata(&target).ok();
        if replaced.as_ref().is_some_and(Metadata::is_dir) {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let mode = replaced.as_ref().map_or(0o666, |replaced| replaced.mode() & 0o777);
        let (file, pending) = Pending::create(target, |temporary| {
            File::options().write(true).create_new(true).mode(mode).open(temporary)
        })?;
        replaced.map_or(Ok(()), |replaced| inherit(&file, &replaced))?;
        Ok(WholeFile { file, destination: Destination::Pending(pending) })
    }

    /// Creates a file that others can read while it is written. One that replaces a file with content, however,
    /// appears when it is published.
    ///
    /// # Errors
    /// Returns an error as [`WholeFile::create`] does.
    pub fn growing(path: &Path) -> io::Result<WholeFile> {
        match target(path)? {
            Some(target) if fs::metadata(&target).is_ok_and(|old| old.len() > 0) => {
                WholeFile::create(&target)
            }
            target => {
                let folder = target.as_deref().and_then(Path::parent).map(Path::to_path_buf);
                let destination =
                    folder.map_or(Destination::Direct, |folder| Destination::InPlace { folder });
                Ok(WholeFile { file: File::create(path)?, destination })
            }
        }
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the absolute path of the file to replace; `None` if the file is written directly.
    pub fn target(&self) -> Option<&Path> {
        match &self.destination {
            Destination::Pending(pending) => Some(&pending.target),
            _ => None,
        }
    }

    /// Syncs the file and makes it appear. A second call has no effect.
    ///
    /// # Errors
    /// Returns an error if an operation fails or the file was discarded. The target is then unchanged, unless
    /// only the sync of its folder failed.
    pub fn publish(&self) -> io::Result<()> {
        self.publish_before_folder()?;
        match &self.destination {
            Destination::Pending(pending) => sync_folder(pending.folder()),
            Destination::InPlace { folder } => sync_folder(folder),
            Destination::Direct => Ok(()),
        }
    }

    /// Publishes as [`WholeFile::publish`] does, but leaves it to the caller to sync the folder, perhaps once for many
    /// files. Until then, a power failure may take the file back.
    ///
    /// # Errors
    /// Returns an error as [`WholeFile::publish`] does.
    pub fn publish_before_folder(&self) -> io::Result<()> {
        match &self.destination {
            Destination::Pending(pending) => pending.rename(|| self.file.sync_all()),
            Destination::InPlace { .. } => self.file.sync_all(),
            Destination::Direct => Ok(()),
        }
    }

    /// Removes the temporary file unless it was published.
    pub fn discard(&self) {
        if let Destination::Pending(pending) = &self.destination {
            pending.discard();
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A folder of files that appears when it is published, and is removed if it is dropped before that.
#[derive(Debug)]
pub struct WholeFolder {
    pending: Pending,
}

impl WholeFolder {
    /// Creates the temporary folder of a target, which must not exist or be an empty folder when it is published.
    ///
    /// # Errors
    /// Returns an error if the target is a device or a pipe, or its folder does not exist or is not writable.
    pub fn create(path: &Path) -> io::Result<WholeFolder> {
        let target = target(path)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTDIR))?;
        let replaced = fs::metadata(&target).ok().filter(Metadata::is_dir);
        let mode = replaced.as_ref().map_or(0o777, |replaced| replaced.mode() & 0o777);
        let make = |temporary: &Path| DirBuilder::new().mode(mode).create(temporary);
        let ((), pending) = Pending::create(target, make)?;
        let folder = WholeFolder { pending };
        replaced.map_or(Ok(()), |replaced| inherit(&File::open(folder.path())?, &replaced))?;
        Ok(folder)
    }

    /// Returns the temporary folder, for the caller to write files into.
    pub fn path(&self) -> &Path {
        &self.pending.temporary
    }

    /// Syncs the files directly in the folder and the folder itself, and makes it appear.
    ///
    /// # Errors
    /// Returns an error if an operation fails. The target is then unchanged, unless only the sync of the folder
    /// that holds it failed.
    pub fn publish(&self) -> io::Result<()> {
        self.pending.rename(|| {
            for entry in fs::read_dir(self.path())? {
                File::open(entry?.path())?.sync_all()?;
            }
            File::open(self.path())?.sync_all()
        })?;
        sync_folder(self.pending.folder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_temporary_name_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        fs::write(&victim, "mine").expect("written");
        let planted = std::cell::Cell::new(0);
        // Plants a link under the first two names just before the file is made.
        let made = Pending::create(folder.path().join("r.html"), |temporary| {
            if planted.get() < 2 {
                planted.set(planted.get() + 1);
                std::os::unix::fs::symlink(&victim, temporary)?;
            }
            File::options().write(true).create_new(true).open(temporary)
        });
        made.expect("the third name").0.write_all(b"page").expect("written");
        assert_eq!(fs::read(&victim).expect("it exists"), b"mine");
    }
}
