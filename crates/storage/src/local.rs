//! The local file system as a store, without read-ahead.
//!
//! `object_store`'s local store lets the kernel read ahead, which more than doubles the bytes that
//! scattered reads (footers, page indexes) move. This store disables read-ahead and reads files in
//! pieces of at most 1 MiB. All other operations delegate to `object_store`, except the writes of a
//! [`LocalStore::durable`] store: `object_store` does not sync, so an object that it reported as written
//! may be empty after a power failure.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use pellucid_trace::whole::{WholeFile, sync_folder};

/// Maximum bytes of one read.
const PIECE_BYTES: u64 = 1 << 20;

/// A store for the local file system; locations are absolute paths.
#[derive(Debug, Default)]
pub struct LocalStore {
    inner: LocalFileSystem,
    durable: bool,
}

impl LocalStore {
    /// Returns a store whose puts survive a power failure, each from the next [`LocalStore::sync_folder`] of its
    /// folder on: the content is synced before the object appears. Multipart uploads, copies and renames are not
    /// synced.
    pub fn durable() -> Self {
        Self { durable: true, ..Self::default() }
    }

    /// Syncs the names of the objects directly in a folder, which may be many.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be opened or synced.
    pub fn sync_folder(&self, folder: &Path) -> Result<()> {
        let path = self.path(folder)?;
        sync_folder(&path).map_err(|e| failed(&path, e))
    }

    /// Returns the file path of a location.
    ///
    /// # Errors
    /// Returns an error if the location is not a valid path of this system.
    pub fn path(&self, location: &Path) -> Result<PathBuf> {
        self.inner.path_to_filesystem(location)
    }

    /// Syncs a file to its device and evicts it from the page cache, if the system supports that.
    /// Best effort, for measurements of the device.
    pub fn evict(&self, location: &Path) {
        #[cfg(target_os = "linux")]
        if let Some(file) = self.path(location).ok().and_then(|p| File::open(p).ok()) {
            use std::os::fd::AsRawFd;
            // The kernel evicts clean pages only.
            let _ = file.sync_all();
            // SAFETY: the descriptor is open for as long as `file` lives.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = location;
    }
}

impl fmt::Display for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("local file system")
    }
}

fn failed(path: &std::path::Path, source: io::Error) -> Error {
    Error::Generic { store: "local file system", source: format!("{}: {source}", path.display()).into() }
}

#[cfg(target_os = "linux")]
fn without_read_ahead(file: &File) {
    use std::os::fd::AsRawFd;
    // Advisory: reads are correct even if the file system ignores it.
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

#[cfg(not(target_os = "linux"))]
fn without_read_ahead(_file: &File) {}

fn read_exactly(file: &File, path: &std::path::Path, range: Range<u64>) -> Result<Bytes> {
    use std::os::unix::fs::FileExt;
    let read = || {
        // A range from damaged metadata may be longer than the file, and than there is memory.
        if range.start > range.end || range.end > file.metadata()?.len() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "failed to fill whole buffer"));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start)?;
        Ok(Bytes::from(bytes))
    };
    read().map_err(|e| failed(path, e))
}

/// Writes a file that appears complete or not at all, and syncs it, but not the folder that holds it.
fn write_durably(path: &std::path::Path, payload: &PutPayload) -> io::Result<()> {
    create_folders(path.parent().ok_or(io::ErrorKind::InvalidFilename)?)?;
    let mut file = WholeFile::create(path)?;
    payload.iter().try_for_each(|part| file.write_all(part))?;
    file.publish_before_folder()
}

/// Creates a folder and its missing parents, and syncs each parent that got a new entry.
fn create_folders(folder: &std::path::Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let Some(parent) = folder.parent() else { return Ok(()) };
    create_folders(parent)?;
    match fs::create_dir(folder) {
        // Another process was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        Err(e) => Err(e),
        Ok(()) => sync_folder(parent),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::Generic { store: "local file system", source: Box::new(e) })?
}

/// Streams `range` of a file in pieces.
fn pieces(file: File, path: PathBuf, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let start = (file, range);
    futures::stream::try_unfold(start, move |(file, range)| {
        let path = path.clone();
        async move {
            if range.start >= range.end {
                return Ok(None);
            }
            blocking(move || {
                let end = range.end.min(range.start + PIECE_BYTES);
                let bytes = read_exactly(&file, &path, range.start..end)?;
                Ok(Some((bytes, (file, end..range.end))))
            })
            .await
        }
    })
    .boxed()
}

#[async_trait]
impl ObjectStore for LocalStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        if self.durable && opts.mode == PutMode::Overwrite {
            let path = self.path(location)?;
            return blocking(move || {
                write_durably(&path, &payload).map_err(|e| failed(&path, e))?;
                Ok(PutResult { e_tag: None, version: None })
            })
            .await;
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.inner.get_opts(location, options).await?;
        result.payload = match result.payload {
            GetResultPayload::File(file, path) => {
                without_read_ahead(&file);
                GetResultPayload::Stream(pieces(file, path, result.range.clone()))
            }
            stream => stream,
        };
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.path(location)?;
        let ranges = ranges.to_vec();
        blocking(move || {
            let file = File::open(&path).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => {
                    Error::NotFound { path: path.display().to_string(), source: Box::new(e) }
                }
                _ => failed(&path, e),
            })?;
            without_read_ahead(&file);
            ranges.into_iter().map(|r| read_exactly(&file, &path, r)).collect()
        })
        .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;

    fn location(path: &std::path::Path) -> Path {
        Path::from_absolute_path(path).unwrap()
    }

    #[tokio::test]
    async fn whole_reads_and_range_reads_return_exact_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        let content: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&file, &content).unwrap();
        let store = LocalStore::default();
        let at = location(&file);
        let whole = store.get(&at).await.unwrap().bytes().await.unwrap();
        assert!(whole == content);
        let got = store.get_ranges(&at, &[5..9, 2_999_990..3_000_001]).await.unwrap();
        assert_eq!(got[0], content[5..9]);
        assert_eq!(got[1], content[2_999_990..]);
    }

    #[tokio::test]
    async fn range_beyond_the_file_is_an_error_of_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, [7; 100]).unwrap();
        for range in [90..101, 0..84_095_459_653_494, 100..u64::MAX] {
            let error = LocalStore::default().get_ranges(&location(&file), &[range]).await.unwrap_err();
            assert!(error.to_string().contains("data: failed to fill whole buffer"), "{error}");
        }
    }

    /// The sync itself shows only after a power failure; this checks everything else about a durable put.
    #[tokio::test]
    async fn durable_put_replaces_the_object_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::durable();
        let file = dir.path().join("new/folders/part");
        // A temporary file of a killed process whose id this process has now.
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for number in 0..3 {
            let left = format!(".part.{}-{number}.partial", std::process::id());
            fs::write(file.with_file_name(left), "left").unwrap();
        }
        for content in ["first", "second"] {
            store.put(&location(&file), content.into()).await.unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
        }
        store.sync_folder(&location(file.parent().unwrap())).unwrap();
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1 + 3);
        let error = store.put(&location(&file.join("below")), "x".into()).await.unwrap_err().to_string();
        assert!(error.contains("folders/part/below"), "{error}");
    }

    #[tokio::test]
    async fn missing_file_is_not_found_and_short_file_error_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::default();
        let none = store
            .get_ranges(&location(&dir.path().join("none")), std::slice::from_ref(&(0..1)))
            .await
            .unwrap_err();
        assert!(matches!(none, Error::NotFound { .. }), "{none}");
        let file = dir.path().join("short");
        std::fs::write(&file, b"ab").unwrap();
        let short = store.get_ranges(&location(&file), std::slice::from_ref(&(0..4))).await.unwrap_err();
        assert!(short.to_string().contains("short"), "{short}");
    }
}
