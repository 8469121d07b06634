//! Files on a known disk, which are read by ranges.
//!
//! A read monotask reads exactly the ranges with which it was planned (see [`File::residency`]), in chunks
//! ([`Chunks`]). Read-ahead is off (`POSIX_FADV_RANDOM`), so the device moves no other bytes. In direct
//! mode, reads bypass the page cache and cover whole blocks.
//!
//! Consecutive small ranges share a buffer, large ranges have their own. A slice keeps its whole buffer
//! alive.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pellucid_scheduler::Phase;

use crate::io::buffer::Pool;
use crate::io::chunks::{BLOCK_BYTES, Chunks};
use crate::io::ranges;
use crate::io::residency::{InFlight, Residency, probe};
use crate::{Done, Error, Monotask, ResourceHandle, platform};

/// Maximum size of a shared buffer: a multiple of huge pages, and a limit of the memory that a small slice
/// keeps alive.
const SHARED_BUFFER_BYTES: u64 = 4 << 20;

/// The read mode for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Reads go through the page cache.
    #[default]
    Cached,
    /// Reads bypass the page cache; every read comes from the device.
    Direct,
}

/// Bytes of a file from `offset` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
}

impl Segment {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// Returns the bytes of `range` from `segments`, which must be sorted by offset and disjoint. Copies only
/// if the range spans several segments. Returns `None` if bytes are missing.
pub fn slice(segments: &[Segment], range: &Range<u64>) -> Option<Bytes> {
    if range.start >= range.end {
        return Some(Bytes::new());
    }
    let first = segments.partition_point(|s| s.end() <= range.start);
    let within = |s: &Segment| {
        let from = usize::try_from(range.start.max(s.offset) - s.offset).ok()?;
        let to = usize::try_from(range.end.min(s.end()) - s.offset).ok()?;
        Some(s.bytes.slice(from..to))
    };
    let head = segments.get(first).filter(|s| s.offset <= range.start)?;
    if head.end() >= range.end {
        return within(head);
    }
    let mut whole = Vec::with_capacity(usize::try_from(range.end - range.start).ok()?);
    let mut at = range.start;
    for segment in &segments[first..] {
        if at >= range.end || segment.offset > at {
            break;
        }
        whole.extend_from_slice(&within(segment)?);
        at = segment.end().min(range.end);
    }
    (at == range.end).then(|| Bytes::from(whole))
}

/// The version of a file, which differs if the file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Version {
    /// Returns the version of the file at `path`.
    ///
    /// # Errors
    /// Returns an error with the path if it does not exist, cannot be read, or is a folder.
    pub fn of(path: &Path) -> Result<Version, Error> {
        let metadata = fs::metadata(path).map_err(|e| io_error("read metadata of", path, &e))?;
        if metadata.is_dir() {
            return Err(format!("cannot open {}: it is a folder; name a file", path.display()).into());
        }
        Ok(Version::from(&metadata))
    }
}

impl From<&fs::Metadata> for Version {
    fn from(m: &fs::Metadata) -> Version {
        let changed = (m.mtime(), m.mtime_nsec());
        Version { device: m.dev(), inode: m.ino(), len: m.len(), changed }
    }
}

/// Adds the path and, if there is one, a remedy to an I/O error.
fn io_error(action: &str, path: &Path, error: &std::io::Error) -> Error {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "; check the path",
        std::io::ErrorKind::PermissionDenied => "; check its permissions and those of its folders",
        _ => "",
    };
    format!("cannot {action} {}: {error}{remedy}", path.display()).into()
}

/// A file on a known disk; see [`crate::Runtime::open`].
pub struct File {
    path: PathBuf,
    file: fs::File,
    version: Version,
    disk: ResourceHandle,
    io: IoMode,
    pool: Arc<Pool>,
    in_flight: InFlight,
}

impl File {
    pub(crate) fn open(
        path: &Path,
        disk: ResourceHandle,
        io: IoMode,
        pool: Arc<Pool>,
    ) -> Result<Arc<File>, Error> {
        let file = match io {
            IoMode::Cached => fs::File::open(path).map_err(|e| io_error("open", path, &e))?,
            IoMode::Direct => platform::open_direct(path).map_err(|e| match e.raw_os_error() {
                Some(libc::EINVAL) => format!(
                    "cannot open {} for direct I/O: its file system does not support it; use --io cached",
                    path.display()
                )
                .into(),
                _ => io_error("open", path, &e),
            })?,
        };
        let metadata = file.metadata().map_err(|e| io_error("read metadata of", path, &e))?;
        if io == IoMode::Cached {
            platform::advise_random(&file);
        }
        Ok(Arc::new(File {
            path: path.to_path_buf(),
            file,
            version: Version::from(&metadata),
            disk,
            io,
            pool,
            in_flight: InFlight::default(),
        }))
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Returns the path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length in bytes when the file was opened.
    pub fn len(&self) -> u64 {
        self.version.len
    }

    /// Returns true if the file was empty when it was opened.
    pub fn is_empty(&self) -> bool {
        self.version.len == 0
    }

    /// Returns the disk of the file.
    pub fn disk(&self) -> &ResourceHandle {
        &self.disk
    }

    /// Splits ranges into those in the page cache (and not part of a read in flight) and those that must
    /// be read. Both are sorted, with touching ranges merged. All must be read in direct mode, and if the
    /// kernel does not tell what it caches, as for files of other users.
    pub fn residency(self: &Arc<Self>, wanted: &[Range<u64>]) -> Residency {
        let unknown = || Residency { cached: Vec::new(), missing: ranges::merge(wanted) };
        match self.io {
            IoMode::Direct => unknown(),
            IoMode::Cached => probe(&self.file, wanted, &self.in_flight).unwrap_or_else(|_| unknown()),
        }
    }

    /// Reads ranges that [`File::residency`] returned as cached; runs on a core and does not use the
    /// device. Returns sorted segments, one for each range after touching ranges are merged.
    ///
    /// # Errors
    /// Returns an error with path and offset if a read fails or the file has shrunk.
    pub fn read_cached(&self, wanted: &[Range<u64>]) -> Result<Vec<Segment>, Error> {
        self.read_all(wanted, |buffer, range| self.fill(buffer, range))
    }

    /// Reads the ranges that are still cached, since pages may be evicted between plan and compute. Also
    /// returns the ranges that are not cached. They were not read: a compute monotask passes them to a
    /// [`File::read_monotask`] in its [`Done::then`].
    ///
    /// # Errors
    /// Returns the errors of [`File::read_cached`].
    pub fn read_if_cached(
        self: &Arc<Self>,
        wanted: &[Range<u64>],
    ) -> Result<(Vec<Segment>, Vec<Range<u64>>), Error> {
        let Residency { cached, missing } = self.residency(wanted);
        Ok((self.read_cached(&cached)?, missing))
    }

    /// Returns the read monotask of the `missing` ranges. It reads exactly these (whole blocks in direct
    /// mode) without gaps between them, paced and cancellable. `sink` receives sorted segments, one for
    /// each range after touching ranges are merged.
    pub fn read_monotask(
        self: &Arc<Self>,
        missing: Vec<Range<u64>>,
        sink: impl FnOnce(Vec<Segment>) -> Result<(), Error> + Send + 'static,
    ) -> Monotask {
        let missing = ranges::merge(&missing);
        let bytes = ranges::total(&missing);
        let file = Arc::clone(self);
        Monotask::new(&self.disk, Phase::Read, Vec::new(), bytes, move |context| {
            let chunks = Chunks::new(&file.disk, context);
            sink(file.read_all(&missing, |buffer, range| file.read_in_chunks(buffer, range, &chunks))?)?;
            Ok(Done { bytes: Some(bytes), ..Done::default() })
        })
    }

    /// Reads ranges into pooled buffers, which `fill` fills.
    fn read_all(
        &self,
        wanted: &[Range<u64>],
        mut fill: impl FnMut(&mut [u8], Range<u64>) -> Result<(), Error>,
    ) -> Result<Vec<Segment>, Error> {
        let wanted = ranges::merge(wanted);
        if let Some(beyond) = wanted.last().filter(|r| r.end > self.len()) {
            return Err(self.truncated(beyond, self.len()));
        }
        let extents = match self.io {
            IoMode::Cached => wanted.clone(),
            IoMode::Direct => {
                let blocks: Vec<_> = wanted.iter().map(|r| ranges::align(r, BLOCK_BYTES)).collect();
                ranges::merge(&blocks)
            }
        };
        let mut segments = Vec::with_capacity(wanted.len());
        let mut wanted = wanted.iter().peekable();
        for group in groups(&extents) {
            let len = usize::try_from(ranges::total(group))?;
            let mut buffer = self
                .pool
                .take(len)
                .map_err(|e| format!("cannot allocate {len} bytes to read {}: {e}", self.path.display()))?;
            let mut at = 0;
            for extent in group {
                let end = at + usize::try_from(extent.end - extent.start)?;
                fill(&mut buffer.as_mut_slice()[at..end], extent.clone())?;
                at = end;
            }
            let bytes = buffer.freeze();
            let mut at = 0;
            for extent in group {
                while let Some(range) = wanted.next_if(|r| r.start < extent.end) {
                    let from = at + usize::try_from(range.start - extent.start)?;
                    let to = from + usize::try_from(range.end - range.start)?;
                    segments.push(Segment { offset: range.start, bytes: bytes.slice(from..to) });
                }
                at += usize::try_from(extent.end - extent.start)?;
            }
        }
        Ok(segments)
    }

    fn read_in_chunks(&self, buffer: &mut [u8], range: Range<u64>, chunks: &Chunks<'_>) -> Result<(), Error> {
        let start = range.start;
        chunks.each(range, |chunk| {
            let part = usize::try_from(chunk.start - start)?..usize::try_from(chunk.end - start)?;
            let _flight = self.in_flight.begin(&chunk);
            self.fill(&mut buffer[part], chunk)
        })
    }

    /// Fills `buffer` with `range`. Bytes beyond the end of the file, in the last block of a direct read,
    /// are left unchanged.
    fn fill(&self, buffer: &mut [u8], range: Range<u64>) -> Result<(), Error> {
        let (mut filled, mut at) = (0, range.start);
        let until = range.end.min(self.len());
        while at < until {
            match self.file.read_at(&mut buffer[filled..], at) {
                Ok(0) => return Err(self.truncated(&range, at)),
                Ok(n) => {
                    filled += n;
                    at += n as u64;
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    return Err(format!("cannot read {} at {at}: {e}", self.path.display()).into());
                }
            }
        }
        Ok(())
    }

    fn truncated(&self, range: &Range<u64>, end: u64) -> Error {
        format!(
            "cannot read bytes {} to {} of {path}: {path} ends at byte {end}, so it was truncated or \
             rewritten; run the query again when no other program writes the file",
            range.start,
            range.end,
            path = self.path.display()
        )
        .into()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {:?}", self.path.display(), self.disk)
    }
}

/// Groups consecutive extents that share a buffer.
fn groups(extents: &[Range<u64>]) -> impl Iterator<Item = &[Range<u64>]> {
    let mut rest = extents;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let many = rest
            .iter()
            .take_while(|r| {
                bytes += r.end - r.start;
                bytes <= SHARED_BUFFER_BYTES
            })
            .count();
        let (group, others) = rest.split_at_checked(many.max(1))?;
        rest = others;
        Some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, bytes: &'static [u8]) -> Segment {
        Segment { offset, bytes: Bytes::from_static(bytes) }
    }

    #[test]
    fn slice_works_within_and_across_segments() {
        let segments = [segment(10, b"abcd"), segment(14, b"efg"), segment(20, b"xyz")];
        let check = |range: Range<u64>, expect: Option<&'static [u8]>| {
            assert_eq!(slice(&segments, &range).as_deref(), expect, "{range:?}");
        };
        check(11..13, Some(b"bc"));
        check(10..14, Some(b"abcd"));
        check(12..17, Some(b"cdefg"));
        check(20..23, Some(b"xyz"));
        check(5..5, Some(b""));
        check(9..12, None);
        check(16..21, None);
        check(22..24, None);
        let within = slice(&segments, &(11..13)).unwrap();
        assert_eq!(within.as_ptr(), segments[0].bytes[1..].as_ptr(), "no copy");
    }

    #[test]
    fn small_ranges_share_a_buffer() {
        let m = 1 << 20;
        let extents = [0..10, 20..4 * m, 5 * m..15 * m, 16 * m..16 * m + 1, 17 * m..17 * m + 1];
        let lens: Vec<usize> = groups(&extents).map(<[_]>::len).collect();
        assert_eq!(lens, [2, 1, 2]);
        assert_eq!(groups(&[]).count(), 0);
    }
}
