//! Files for data that does not fit into memory, and that only this process reads.
//!
//! A scratch file has no name in its folder, so that the system removes it when it is closed, also after a crash or
//! `kill -9`. It is readable by its owner only.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pellucid_scheduler::Phase;

use crate::io::buffer::Pool;
use crate::io::chunks::Chunks;
use crate::io::residency::{InFlight, probe};
use crate::{Done, Error, IoMode, Monotask, ResourceHandle, platform};

/// A file without a name; see [`crate::Runtime::scratch`].
pub struct Scratch {
    folder: PathBuf,
    file: fs::File,
    disk: ResourceHandle,
    pool: Arc<Pool>,
    io: IoMode,
    in_flight: InFlight,
    /// Number of planned bytes, which is the offset of the next write.
    planned_bytes: AtomicU64,
}

impl Scratch {
    pub(crate) fn create(
        folder: &Path,
        disk: ResourceHandle,
        pool: Arc<Pool>,
        io: IoMode,
    ) -> Result<Arc<Scratch>, Error> {
        let file = tempfile::tempfile_in(folder).map_err(|e| failed("write", folder, &e))?;
        platform::advise_random(&file);
        let folder = folder.to_path_buf();
        Ok(Arc::new(Scratch {
            folder,
            file,
            disk,
            pool,
            io,
            in_flight: InFlight::default(),
            planned_bytes: AtomicU64::new(0),
        }))
    }

    /// Returns the folder of the file.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the offset of `chunks` in the file, and the monotask that writes them there.
    pub fn write_monotask(self: &Arc<Self>, chunks: Vec<Bytes>) -> (u64, Monotask) {
        let bytes: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        let from = self.planned_bytes.fetch_add(bytes, Ordering::Relaxed);
        let scratch = Arc::clone(self);
        let monotask = Monotask::new(&self.disk, Phase::Spill, Vec::new(), bytes, move |context| {
            let paced = Chunks::new(&scratch.disk, context);
            let mut at = from;
            for chunk in &chunks {
                scratch.write(chunk, at, &paced)?;
                at += chunk.len() as u64;
            }
            Ok(Done { bytes: Some(bytes), ..Done::default() })
        });
        (from, monotask)
    }

    /// Writes and flushes chunk by chunk, so that the disk is busy while its monotask runs, and not later.
    fn write(&self, bytes: &[u8], from: u64, chunks: &Chunks<'_>) -> Result<(), Error> {
        chunks.each(from..from + bytes.len() as u64, |chunk| {
            let part = usize::try_from(chunk.start - from)?..usize::try_from(chunk.end - from)?;
            self.file
                .write_all_at(&bytes[part], chunk.start)
                .and_then(|()| platform::flush_range(&self.file, &chunk))
                .map_err(|e| failed("write", &self.folder, &e))
        })
    }

    /// Returns the monotask that reads `ranges` of the file and gives their bytes to `sink`.
    pub fn read_monotask(
        self: &Arc<Self>,
        ranges: Vec<Range<u64>>,
        sink: impl FnOnce(Vec<Bytes>) + Send + 'static,
    ) -> Monotask {
        let bytes = ranges.iter().map(|range| range.end - range.start).sum();
        let scratch = Arc::clone(self);
        Monotask::new(&self.disk, Phase::Read, Vec::new(), bytes, move |context| {
            let paced = Chunks::new(&scratch.disk, context);
            let each = ranges.into_iter().map(|range| scratch.read(range, &paced));
            sink(each.collect::<Result<_, Error>>()?);
            Ok(Done { bytes: Some(bytes), ..Done::default() })
        })
    }

    /// Returns true if the page cache has all of `range`, so that [`Scratch::read_cached`] does not wait for the disk. Always
    /// returns false in direct mode, and if the kernel does not tell.
    pub fn is_cached(&self, range: &Range<u64>) -> bool {
        let wanted = std::slice::from_ref(range);
        self.io == IoMode::Cached
            && probe(&self.file, wanted, &self.in_flight).is_ok_and(|found| found.missing.is_empty())
    }

    /// Reads `range` on a core.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn read_cached(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.fill(&range, |buffer| self.read_at(buffer, range.start))
    }

    fn read(&self, range: Range<u64>, chunks: &Chunks<'_>) -> Result<Bytes, Error> {
        let from = range.start;
        self.fill(&range, |buffer| {
            chunks.each(range.clone(), |chunk| {
                let part = usize::try_from(chunk.start - from)?..usize::try_from(chunk.end - from)?;
                let _flight = self.in_flight.begin(&chunk);
                self.read_at(&mut buffer[part], chunk.start)
            })
        })
    }

    fn read_at(&self, buffer: &mut [u8], from: u64) -> Result<(), Error> {
        self.file.read_exact_at(buffer, from).map_err(|e| failed("read", &self.folder, &e))
    }

    /// Returns a pooled buffer of the length of `range`, which `fill` fills.
    fn fill(
        &self,
        range: &Range<u64>,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<Bytes, Error> {
        let len = usize::try_from(range.end - range.start)?;
        let mut buffer = self
            .pool
            .take(len)
            .map_err(|e| format!("cannot allocate {len} bytes to read {}: {e}", self.folder.display()))?;
        fill(&mut buffer.as_mut_slice()[..len])?;
        Ok(buffer.freeze().slice(..len))
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "scratch file in {} on {:?}", self.folder.display(), self.disk)
    }
}

fn failed(action: &str, folder: &Path, error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{NotADirectory, NotFound, QuotaExceeded, StorageFull};
    let remedy = match error.kind() {
        StorageFull => "; free some space, name another folder with --spill-dir, or raise --memory",
        QuotaExceeded => "; raise the quota, name another folder with --spill-dir, or raise --memory",
        NotFound | NotADirectory => "; create the folder, or name another with --spill-dir",
        _ => "; name another folder with --spill-dir, or raise --memory",
    };
    format!("cannot {action} spilled data in {}: {error}{remedy}", folder.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_folder_and_way_out() {
        let check = |code: i32, expect: &str| {
            let error = std::io::Error::from_raw_os_error(code);
            let message = failed("write", Path::new("/scratch"), &error).to_string();
            assert!(message.starts_with("cannot write spilled data in /scratch: "), "{message}");
            assert!(message.contains(expect), "{message}");
        };
        check(libc::ENOSPC, "free some space");
        check(libc::EDQUOT, "raise the quota");
        check(libc::ENOENT, "create the folder");
        check(libc::EACCES, "name another folder");
    }
}
