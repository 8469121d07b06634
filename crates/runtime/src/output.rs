//! A file that appears whole or not at all.
//!
//! Write monotasks of its disk write it under a temporary name beside its target;
//! `publish` flushes it, gives it its name in one step, and flushes the folder
//! that has the name. What is not published is removed when it is dropped; after
//! a `kill -9` a hidden file is left, whose name starts with a dot and ends in
//! `.partial`, so that no reader takes it for a table.
//!
//! Each monotask has its place in the file from the moment that it is planned,
//! so that several may run at once and the bytes still be in order.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pellucid_scheduler::Phase;

use crate::chunks::Chunks;
use crate::{Done, Error, Monotask, ResourceHandle, Runtime, platform};

/// A file being written; see the module's head.
pub struct Output {
    target: PathBuf,
    temporary: PathBuf,
    file: fs::File,
    disk: ResourceHandle,
    /// Bytes that were planned: where the next monotask writes.
    planned_bytes: AtomicU64,
    written_bytes: AtomicU64,
    stand: Mutex<Stand>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Open,
    Published,
    Discarded,
}

impl Output {
    /// Creates the temporary file.
    ///
    /// # Errors
    /// Where the folder is not there or not to be written, with the path.
    pub fn create(runtime: &Runtime, target: &Path) -> Result<Arc<Output>, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = target.file_name() else {
            return Err(format!("cannot write {}: that is no file name", target.display()).into());
        };
        if target.is_dir() {
            return Err(format!("cannot write {}: it is a folder", target.display()).into());
        }
        let disk = runtime.disk_of(target)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let process = std::process::id();
            let hidden = format!(".{}.{process}-{number}.partial", name.to_string_lossy());
            let temporary = target.with_file_name(hidden);
            match fs::OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    return Ok(Arc::new(Output {
                        target: target.to_path_buf(),
                        temporary,
                        file,
                        disk,
                        planned_bytes: AtomicU64::new(0),
                        written_bytes: AtomicU64::new(0),
                        stand: Mutex::new(Stand::Open),
                    }));
                }
                // Left by a process that was killed and had the same number.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed("create", target, &e)),
            }
        }
    }

    /// Where it will appear.
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// The monotask that appends `chunks` and flushes them. The order of the calls
    /// is the order of the bytes, in whichever order the monotasks run.
    pub fn write_monotask(self: &Arc<Self>, chunks: Vec<Bytes>, after: Vec<u32>) -> Monotask {
        let bytes: u64 = chunks.iter().map(|c| c.len() as u64).sum();
        let from = self.planned_bytes.fetch_add(bytes, Ordering::Relaxed);
        let output = Arc::clone(self);
        Monotask::new(&self.disk, Phase::Write, after, bytes, move |context| {
            let paced = Chunks::new(&output.disk, context);
            let mut at = from;
            for chunk in &chunks {
                output.write(chunk, at, &paced)?;
                at += chunk.len() as u64;
            }
            output.file.sync_data().map_err(|e| failed("write", &output.target, &e))?;
            output.written_bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(Done { bytes: Some(bytes), ..Done::default() })
        })
    }

    /// The monotask that publishes, for a stage that has a place for it: flushing
    /// is work of the disk.
    pub fn publish_monotask(self: &Arc<Self>, after: Vec<u32>) -> Monotask {
        let output = Arc::clone(self);
        Monotask::new(&self.disk, Phase::Write, after, 0, move |_| {
            output.publish()?;
            Ok(Done::default())
        })
    }

    /// Writes and pushes to the device chunk by chunk: one flush of everything
    /// would be deaf to a cancellation for as long as it takes.
    fn write(&self, bytes: &[u8], from: u64, chunks: &Chunks<'_>) -> Result<(), Error> {
        chunks.each(from..from + bytes.len() as u64, |chunk| {
            let part = usize::try_from(chunk.start - from)?..usize::try_from(chunk.end - from)?;
            self.file
                .write_all_at(&bytes[part], chunk.start)
                .and_then(|()| platform::flush_range(&self.file, &chunk))
                .map_err(|e| failed("write", &self.target, &e))
        })
    }

    /// Makes it appear, with all its bytes on the device. A second call changes
    /// nothing.
    ///
    /// # Errors
    /// Where a planned monotask has not written, or the system refuses; the target
    /// is then as it was before.
    pub fn publish(&self) -> Result<(), Error> {
        let mut stand = self.stand.lock().unwrap_or_else(PoisonError::into_inner);
        match *stand {
            Stand::Open => {}
            Stand::Published => return Ok(()),
            Stand::Discarded => {
                return Err(format!("{} was discarded", self.target.display()).into());
            }
        }
        let planned = self.planned_bytes.load(Ordering::Relaxed);
        let written = self.written_bytes.load(Ordering::Relaxed);
        if planned != written {
            return Err(format!(
                "{} is not whole: {written} of {planned} bytes were written",
                self.target.display()
            )
            .into());
        }
        self.file.sync_all().map_err(|e| failed("write", &self.target, &e))?;
        fs::rename(&self.temporary, &self.target).map_err(|e| failed("name", &self.target, &e))?;
        *stand = Stand::Published;
        let folder = match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Some file systems cannot flush a folder; the name is then as safe as they make it.
        match fs::File::open(folder).and_then(|f| f.sync_all()) {
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => {
                Err(failed("flush the folder of", &self.target, &e))
            }
            _ => Ok(()),
        }
    }

    /// Removes what was written, unless it was published.
    pub fn discard(&self) {
        let mut stand = self.stand.lock().unwrap_or_else(PoisonError::into_inner);
        if *stand == Stand::Open {
            *stand = Stand::Discarded;
            // Nobody is left to tell; what stays has a name that no reader takes.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.discard();
    }
}

/// An error of the system, with the path and, where there is one, a way out.
fn failed(what: &str, target: &Path, error: &io::Error) -> Error {
    let way_out = match error.kind() {
        io::ErrorKind::StorageFull => "; free some space or write elsewhere: nothing was left behind",
        io::ErrorKind::QuotaExceeded => "; the quota is used up: write elsewhere",
        io::ErrorKind::NotFound => "; create its folder first",
        io::ErrorKind::PermissionDenied => "; check the permissions of its folder",
        io::ErrorKind::ReadOnlyFilesystem => "; write elsewhere",
        _ => "",
    };
    format!("cannot {what} {}: {error}{way_out}", target.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_path_and_a_way_out() {
        let check = |code: i32, expect: &str| {
            let error = io::Error::from_raw_os_error(code);
            let said = failed("write", Path::new("/data/x.parquet"), &error).to_string();
            assert!(said.starts_with("cannot write /data/x.parquet: ") && said.contains(expect), "{said}");
        };
        check(libc::ENOSPC, "free some space or write elsewhere");
        check(libc::EDQUOT, "quota");
        check(libc::EROFS, "write elsewhere");
        check(libc::EACCES, "permissions of its folder");
        check(libc::ENOENT, "create its folder first");
    }
}
