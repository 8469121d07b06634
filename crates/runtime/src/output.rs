//! Output files, which appear completely or not at all.
//!
//! Write monotasks write the file under a temporary name in the folder of its target. `publish` flushes
//! the file, renames it atomically, and flushes the folder. An output that is not published is removed on
//! drop. After a `kill -9` a hidden file is left, whose name starts with a dot and ends in `.partial`, so
//! that readers ignore it.
//!
//! Each monotask gets its offset in the file when it is planned, so that several may run concurrently.

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

/// A file that is being written and appears when it is published.
pub struct Output {
    target: PathBuf,
    temporary: PathBuf,
    file: fs::File,
    disk: ResourceHandle,
    /// Number of planned bytes, which is the offset of the next monotask.
    planned_bytes: AtomicU64,
    written_bytes: AtomicU64,
    state: Mutex<OutputState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputState {
    Open,
    Published,
    Discarded,
}

impl Output {
    /// Creates the temporary file.
    ///
    /// # Errors
    /// Returns an error with the path if the folder does not exist or is not writable.
    pub fn create(runtime: &Runtime, target: &Path) -> Result<Arc<Output>, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(name) = target.file_name() else {
            let message = format!("cannot write {}: the path has no file name; add one", target.display());
            return Err(message.into());
        };
        if target.is_dir() {
            return Err(format!("cannot write {}: it is a folder; name a file", target.display()).into());
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
                        state: Mutex::new(OutputState::Open),
                    }));
                }
                // Left by a killed process that had the same process id.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed("create", target, &e)),
            }
        }
    }

    /// Returns the path at which the file will appear.
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// Returns a monotask that appends `chunks` and flushes them. The order of the calls determines the
    /// order of the bytes, whichever monotask runs first.
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

    /// Returns a monotask that publishes the file, since flushing is work of the disk.
    pub fn publish_monotask(self: &Arc<Self>, after: Vec<u32>) -> Monotask {
        let output = Arc::clone(self);
        Monotask::new(&self.disk, Phase::Write, after, 0, move |_| {
            output.publish()?;
            Ok(Done::default())
        })
    }

    /// Writes and flushes chunk by chunk, since a single flush of everything could not be cancelled.
    fn write(&self, bytes: &[u8], from: u64, chunks: &Chunks<'_>) -> Result<(), Error> {
        chunks.each(from..from + bytes.len() as u64, |chunk| {
            let part = usize::try_from(chunk.start - from)?..usize::try_from(chunk.end - from)?;
            self.file
                .write_all_at(&bytes[part], chunk.start)
                .and_then(|()| platform::flush_range(&self.file, &chunk))
                .map_err(|e| failed("write", &self.target, &e))
        })
    }

    /// Flushes all bytes to the device and makes the file appear. A second call has no effect.
    ///
    /// # Errors
    /// Returns an error if a planned monotask has not run, or an I/O operation fails. The target is then
    /// unchanged, unless only the flush of its folder failed.
    pub fn publish(&self) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            OutputState::Open => {}
            OutputState::Published => return Ok(()),
            OutputState::Discarded => {
                return Err(format!("cannot publish {}: it was discarded", self.target.display()).into());
            }
        }
        let planned = self.planned_bytes.load(Ordering::Relaxed);
        let written = self.written_bytes.load(Ordering::Relaxed);
        if planned != written {
            return Err(format!(
                "cannot publish {}: only {written} of {planned} bytes were written",
                self.target.display()
            )
            .into());
        }
        self.file.sync_all().map_err(|e| failed("write", &self.target, &e))?;
        fs::rename(&self.temporary, &self.target).map_err(|e| failed("write", &self.target, &e))?;
        *state = OutputState::Published;
        let folder = match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Some file systems cannot flush a folder; the rename is then as durable as they make it.
        match fs::File::open(folder).and_then(|f| f.sync_all()) {
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => {
                Err(failed("flush the folder of", &self.target, &e))
            }
            _ => Ok(()),
        }
    }

    /// Removes the file unless it was published.
    pub fn discard(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == OutputState::Open {
            *state = OutputState::Discarded;
            // Readers ignore the name of a file that cannot be removed.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Adds the path and, if there is one, a remedy to an I/O error.
fn failed(action: &str, target: &Path, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull => "; free some space or write elsewhere (no partial output was left)",
        io::ErrorKind::QuotaExceeded => "; raise the quota or write elsewhere",
        io::ErrorKind::NotFound => "; create its folder first",
        io::ErrorKind::PermissionDenied => "; check the permissions of its folder",
        io::ErrorKind::ReadOnlyFilesystem => "; write elsewhere",
        _ => "",
    };
    format!("cannot {action} {}: {error}{remedy}", target.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_path_and_remedy() {
        let check = |code: i32, expect: &str| {
            let error = io::Error::from_raw_os_error(code);
            let message = failed("write", Path::new("/data/x.parquet"), &error).to_string();
            assert!(message.starts_with("cannot write /data/x.parquet: "), "{message}");
            assert!(message.contains(expect), "{message}");
        };
        check(libc::ENOSPC, "free some space or write elsewhere");
        check(libc::EDQUOT, "quota");
        check(libc::EROFS, "write elsewhere");
        check(libc::EACCES, "permissions of its folder");
        check(libc::ENOENT, "create its folder first");
    }
}
