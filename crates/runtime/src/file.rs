//! A file on a known disk, read by ranges.
//!
//! What is read is decided before (see [`File::residency`]): a read monotask
//! brings exactly the ranges that it was planned with, in chunks ([`Chunks`]).
//! Read-ahead is off (`POSIX_FADV_RANDOM`): the device moves what was
//! asked for. In direct mode whole blocks come past the page cache.
//!
//! Small ranges that follow one another share a buffer, large ones have their
//! own; a slice of one keeps the whole buffer alive.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pellucid_scheduler::Phase;

use crate::buffer::Pool;
use crate::chunks::{BLOCK_BYTES, Chunks};
use crate::residency::{InFlight, Residency, probe};
use crate::{Done, Error, IoMode, Monotask, ResourceHandle, platform, ranges};

/// Ranges share a buffer up to this size: it fits huge pages, and is all that a
/// small slice keeps alive.
const SHARED_BUFFER_BYTES: u64 = 4 << 20;
/// Bytes of a file, from `offset` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where in the file they are.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
}

impl Segment {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The bytes of `range` from `segments`, sorted by offset and without overlap:
/// without a copy where one segment has them all; `None` where some are missing.
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

/// What tells a file that was changed from one that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Version {
    /// # Errors
    /// With the path: it is not there, not to be read, or no file.
    pub fn of(path: &Path) -> Result<Version, Error> {
        let metadata = fs::metadata(path).map_err(|e| refused("look at", path, &e))?;
        if metadata.is_dir() {
            return Err(format!("{} is a folder, not a file", path.display()).into());
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

/// An error of the system, with the path and, where there is one, a way out.
fn refused(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let way_out = match error.kind() {
        std::io::ErrorKind::NotFound => "; check the path",
        std::io::ErrorKind::PermissionDenied => "; check its permissions and those of its folders",
        _ => "",
    };
    format!("cannot {what} {}: {error}{way_out}", path.display()).into()
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
            IoMode::Cached => fs::File::open(path).map_err(|e| refused("open", path, &e))?,
            IoMode::Direct => platform::open_direct(path).map_err(|e| match e.raw_os_error() {
                Some(libc::EINVAL) => format!(
                    "cannot open {} for direct I/O: its file system has none; use --io cached",
                    path.display()
                )
                .into(),
                _ => refused("open", path, &e),
            })?,
        };
        let metadata = file.metadata().map_err(|e| refused("look at", path, &e))?;
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

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.version.len
    }

    /// True for a file without a byte.
    pub fn is_empty(&self) -> bool {
        self.version.len == 0
    }

    /// The disk that it is on.
    pub fn disk(&self) -> &ResourceHandle {
        &self.disk
    }

    /// Splits ranges into what the page cache holds (and no read in flight will
    /// still bring) and what must be read; each part sorted, ranges that touch
    /// merged. In direct mode all must be read; so must all of a file of which the
    /// kernel does not say what it holds (nor of someone else's file).
    pub fn residency(self: &Arc<Self>, wanted: &[Range<u64>]) -> Residency {
        let unknown = || Residency { cached: Vec::new(), missing: ranges::merge(wanted) };
        match self.io {
            IoMode::Direct => unknown(),
            IoMode::Cached => probe(&self.file, wanted, &self.in_flight).unwrap_or_else(|_| unknown()),
        }
    }

    /// Reads ranges that [`File::residency`] called cached: for cores, no device is
    /// touched. Segments come sorted, one for each range once those that touch are
    /// merged.
    ///
    /// # Errors
    /// What the system says, or a file that has become shorter, with path and place.
    pub fn read_cached(&self, wanted: &[Range<u64>]) -> Result<Vec<Segment>, Error> {
        self.read_all(wanted, |buffer, range| self.fill(buffer, range))
    }

    /// As [`File::read_cached`], after another look at what is cached still: pages may
    /// have gone between plan and compute. Also says which ranges a device would have
    /// to bring; they were not touched, and a compute monotask hands them to a
    /// [`File::read_monotask`] in its [`Done::then`].
    ///
    /// # Errors
    /// As [`File::read_cached`].
    pub fn read_if_cached(
        self: &Arc<Self>,
        wanted: &[Range<u64>],
    ) -> Result<(Vec<Segment>, Vec<Range<u64>>), Error> {
        let Residency { cached, missing } = self.residency(wanted);
        Ok((self.read_cached(&cached)?, missing))
    }

    /// The read monotask that brings `missing` ranges: exactly these (whole blocks
    /// in direct mode), gaps not read, paced and cancellable. `sink` gets a segment
    /// for each range, sorted; those that touch are merged.
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

    /// Reads ranges into pooled buffers, each buffer by `fill`.
    fn read_all(
        &self,
        wanted: &[Range<u64>],
        mut fill: impl FnMut(&mut [u8], Range<u64>) -> Result<(), Error>,
    ) -> Result<Vec<Segment>, Error> {
        let wanted = ranges::merge(wanted);
        if let Some(beyond) = wanted.last().filter(|r| r.end > self.len()) {
            return Err(self.short(beyond, self.len()));
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
                .map_err(|e| format!("no memory for {len} bytes of {}: {e}", self.path.display()))?;
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

    /// Fills `buffer` with `range`; what lies beyond the end of the file, in the
    /// last block of a direct read, stays as it is.
    fn fill(&self, buffer: &mut [u8], range: Range<u64>) -> Result<(), Error> {
        let (mut filled, mut at) = (0, range.start);
        let until = range.end.min(self.len());
        while at < until {
            match self.file.read_at(&mut buffer[filled..], at) {
                Ok(0) => return Err(self.short(&range, at)),
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

    fn short(&self, range: &Range<u64>, end: u64) -> Error {
        format!(
            "{} ends at byte {end}, but bytes {} to {} were to be read: it was cut or rewritten; \
             run the query again once nobody writes it",
            self.path.display(),
            range.start,
            range.end
        )
        .into()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {:?}", self.path.display(), self.disk)
    }
}

/// Runs of extents that share a buffer.
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
    fn slices_within_and_across_segments() {
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
