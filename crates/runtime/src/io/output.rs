//! Output files, which appear completely or not at all.
//!
//! Write monotasks write the file under a temporary name in the folder of its target
//! ([`pellucid_trace::whole`]). `publish` flushes the file, renames it atomically, and flushes the folder. An
//! output that is not published is removed on drop.
//!
//! Each monotask gets its offset in the file when it is planned, so that several may run concurrently.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pellucid_scheduler::Phase;
use pellucid_trace::whole::{self, WholeFile};

use crate::io::chunks::Chunks;
use crate::{Done, Error, Monotask, ResourceHandle, Runtime, platform};

/// A file that is being written and appears when it is published.
pub struct Output {
    target: PathBuf,
    file: WholeFile,
    disk: ResourceHandle,
    /// Number of planned bytes, which is the offset of the next monotask.
    planned_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Output {
    /// Creates the temporary file.
    ///
    /// # Errors
    /// Returns an error with the path if the folder does not exist or is not writable, or if the path names a
    /// folder, or a device or a pipe, which has no offsets.
    pub fn create(runtime: &Runtime, target: &Path) -> Result<Arc<Output>, Error> {
        let refused = |why: &str| Err(format!("cannot write {}: {why}", target.display()).into());
        if target.file_name().is_none() {
            return refused("the path has no file name; add one");
        }
        if target.is_dir() {
            return refused("it is a folder; name a file");
        }
        const SPECIAL: &str = "it is a device or a pipe; name a file";
        if whole::is_special(target) {
            return refused(SPECIAL);
        }
        let file = WholeFile::create(target).map_err(|e| failed("create", target, &e))?;
        let Some(replaced) = file.target() else { return refused(SPECIAL) };
        let disk = runtime.disk_of(replaced)?;
        let (planned_bytes, written_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Output { target: target.to_path_buf(), file, disk, planned_bytes, written_bytes }))
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
            output.file.file().sync_data().map_err(|e| failed("write", &output.target, &e))?;
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
            let file = self.file.file();
            file.write_all_at(&bytes[part], chunk.start)
                .and_then(|()| platform::flush_range(file, &chunk))
                .map_err(|e| failed("write", &self.target, &e))
        })
    }

    /// Flushes all bytes to the device and makes the file appear. A second call has no effect.
    ///
    /// # Errors
    /// Returns an error if a planned monotask has not run, or an I/O operation fails. The target is then
    /// unchanged, unless only the flush of its folder failed.
    pub fn publish(&self) -> Result<(), Error> {
        let planned = self.planned_bytes.load(Ordering::Relaxed);
        let written = self.written_bytes.load(Ordering::Relaxed);
        if planned != written {
            return Err(format!(
                "cannot publish {}: only {written} of {planned} bytes were written",
                self.target.display()
            )
            .into());
        }
        self.file.publish().map_err(|e| failed("write", &self.target, &e))
    }

    /// Removes the file unless it was published.
    pub fn discard(&self) {
        self.file.discard();
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
