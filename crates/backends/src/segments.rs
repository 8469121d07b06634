//! Multipart uploads to Swift as static large objects: concurrent segments, joined at the end by a manifest.
//!
//! A part counts as uploaded when the service has answered its request. OpenDAL's own uploads report a part as uploaded
//! once it is buffered, so a writer would neither notice the speed of the service nor be able to limit the bytes in flight.
//!
//! Segments and manifests are ordinary objects, written through a retrying store ([`pellucid_storage::retry`]). Retries are
//! safe because each segment and each manifest is always written with the same content under the same name.
//!
//! Segments have the names that OpenDAL uses, below `.segments/` in the container. Names are never reused, so leftovers of
//! a killed writer do no harm.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use opendal::ErrorKind;
use opendal::raw::percent_decode_path;
use serde::Serialize;

/// A container whose multipart uploads consist of segments.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub store: Arc<dyn ObjectStore>,
    /// The same container; puts through this store create manifests.
    pub manifests: Arc<dyn ObjectStore>,
    pub name: String,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// A segment, as a manifest describes it.
#[derive(Debug, Clone, Serialize)]
struct Segment {
    /// Path, including the container.
    path: String,
    etag: String,
    size_bytes: u64,
}

/// A running upload.
struct Upload {
    container: Container,
    location: Path,
    /// Prefix of the names of its segments.
    folder: Path,
    /// Segments by part number; `None` until the service has answered.
    segments: Arc<Mutex<Vec<Option<Segment>>>>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("location", &self.location).finish_non_exhaustive()
    }
}

fn failed(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "Swift", source: Box::new(source) }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let size_bytes = data.content_length() as u64;
        // A manifest must not contain empty segments.
        if size_bytes == 0 {
            return std::future::ready(Ok(())).boxed();
        }
        let (container, segments) = (self.container.clone(), Arc::clone(&self.segments));
        let number = {
            let mut segments = segments.lock().unwrap_or_else(PoisonError::into_inner);
            segments.push(None);
            segments.len() - 1
        };
        let at = self.folder.clone().join(format!("{number:08}"));
        async move {
            let put = container.store.put(&at, data).await?;
            let etag = put.e_tag.unwrap_or_default().trim_matches('"').to_string();
            let path = format!("/{}/{}", container.name, percent_decode_path(at.as_ref()));
            segments.lock().unwrap_or_else(PoisonError::into_inner)[number] =
                Some(Segment { path, etag, size_bytes });
            Ok(())
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (all, there): (usize, Vec<Segment>) = (segments.len(), segments.into_iter().flatten().collect());
        if there.len() < all {
            let missing = all - there.len();
            let message =
                format!("cannot complete {}: {missing} of {all} parts were not uploaded", self.location);
            return Err(failed(opendal::Error::new(ErrorKind::Unexpected, message)));
        }
        if there.is_empty() {
            return self.container.store.put(&self.location, PutPayload::default()).await;
        }
        let manifest = serde_json::to_vec(&there).map_err(failed)?;
        self.container.manifests.put(&self.location, manifest.into()).await
    }

    async fn abort(&mut self) -> Result<()> {
        // Lists the segments, to include those whose response was not awaited.
        let there = self.container.store.list(Some(&self.folder)).map_ok(|segment| segment.location).boxed();
        self.container.store.delete_stream(there).try_collect::<Vec<Path>>().await.map(|_| ())
    }
}

#[async_trait]
impl ObjectStore for Container {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let id = RandomState::new().hash_one(location.as_ref());
        Ok(Box::new(Upload {
            container: self.clone(),
            location: location.clone(),
            folder: Path::parse(format!(".segments/{location}/{id:016x}"))?,
            segments: Arc::default(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use pellucid_storage::retry::{Limits, Retrying};
    use pellucid_storage_testing::Virtual;
    use pellucid_storage_testing::conformance::content;
    use pellucid_storage_testing::fault::{Faults, transient};
    use pellucid_storage_testing::wrap::Wrapped;

    #[test]
    fn segments_and_manifests_are_retried() {
        for every in 2..9 {
            let clock = Arc::new(Virtual::default());
            let failing = |inner: &Arc<dyn ObjectStore>| -> Arc<dyn ObjectStore> {
                let faults = Faults::new(clock.clone(), every, &transient());
                Retrying::new(Wrapped::new(Arc::clone(inner), faults), clock.clone(), Limits::default(), 1)
            };
            let (objects, manifests): (Arc<dyn ObjectStore>, Arc<dyn ObjectStore>) =
                (Arc::new(InMemory::new()), Arc::new(InMemory::new()));
            let container =
                Container { store: failing(&objects), manifests: failing(&manifests), name: "c".to_string() };
            let at = Path::from("a/b");
            let whole = content(every, 40_000);
            let read = clock.run(async {
                for _ in 0..8 {
                    let mut upload = container.put_multipart(&at).await?;
                    let parts =
                        (0..4).map(|i| upload.put_part(whole.slice(10_000 * i..10_000 * (i + 1)).into()));
                    futures::future::try_join_all(parts.collect::<Vec<_>>()).await?;
                    upload.complete().await?;
                }
                let manifest = manifests.get(&at).await?.bytes().await?;
                let segments: Vec<serde_json::Value> = serde_json::from_slice(&manifest).map_err(failed)?;
                let mut read = Vec::new();
                for segment in segments {
                    let path = segment["path"].as_str().and_then(|p| p.strip_prefix("/c/")).unwrap();
                    read.extend(objects.get(&Path::from(path)).await?.bytes().await?);
                }
                Ok::<_, Error>(read)
            });
            assert!(read.unwrap().unwrap() == whole, "every {every}");
        }
    }
}
