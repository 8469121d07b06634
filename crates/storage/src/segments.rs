//! Uploads to Swift: segments side by side, and a manifest that joins them at the end (a static large object).
//!
//! A part is uploaded when its request has been answered. OpenDAL's own uploads say so as soon as they have taken a part
//! into memory: who writes then neither feels how fast the service is, nor can bound what is under way.
//!
//! Segments are named as OpenDAL names them, below `.segments/` of the container, and a name is never used twice: what is
//! left of an upload whose writer was killed is in nobody's way.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use http::{Request, header};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use object_store_opendal::OpendalStore;
use opendal::raw::{percent_decode_path, percent_encode_path};
use opendal::{Buffer, ErrorKind, HttpTransporter};
use serde::Serialize;

use crate::swift::SOMEWHERE;

/// A container whose uploads are segments.
#[derive(Clone)]
pub(crate) struct Container {
    pub store: OpendalStore,
    /// By which manifests are put; signed in.
    pub transporter: HttpTransporter,
    pub name: String,
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// One, as a manifest names it.
#[derive(Debug, Clone, Serialize)]
struct Segment {
    /// With its container.
    path: String,
    etag: String,
    size_bytes: u64,
}

/// An upload under way.
struct Upload {
    container: Container,
    location: Path,
    /// What the names of its segments begin with.
    folder: Path,
    /// By their numbers; `None`: not answered yet.
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

impl Container {
    /// Puts the manifest that makes an object of segments.
    async fn join(&self, location: &Path, segments: &[Segment]) -> Result<PutResult> {
        let at = percent_encode_path(&percent_decode_path(location.as_ref()));
        let manifest = serde_json::to_vec(segments).map_err(failed)?;
        let request = Request::put(format!("{SOMEWHERE}/{}/{at}?multipart-manifest=put", self.name))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Buffer::from(manifest))
            .map_err(failed)?;
        let answer = self.transporter.send(request).await.map_err(failed)?;
        if !answer.status().is_success() {
            let said = String::from_utf8_lossy(&answer.body().to_bytes()).into_owned();
            let words = format!("{location}: the manifest was answered with {}: {said}", answer.status());
            return Err(failed(opendal::Error::new(ErrorKind::Unexpected, words)));
        }
        let e_tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_string);
        Ok(PutResult { e_tag, version: None })
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let size_bytes = data.content_length() as u64;
        // A manifest may not name an empty one.
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
            let words = format!("{}: {} of {all} parts were not uploaded", self.location, all - there.len());
            return Err(failed(opendal::Error::new(ErrorKind::Unexpected, words)));
        }
        if there.is_empty() {
            return self.container.store.put(&self.location, PutPayload::default()).await;
        }
        self.container.join(&self.location, &there).await
    }

    async fn abort(&mut self) -> Result<()> {
        // Those too whose answer nobody waited for.
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
