//! A store of one version of `object_store` as one of the other.

use std::fmt;

use async_trait::async_trait;
use cloud_store as cloud;
use cloud_store::ObjectStoreExt;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Bridge<S>(S);

impl<S: cloud::ObjectStore> Bridge<S> {
    pub(super) fn new(store: S) -> Self {
        Self(store)
    }
}

impl<S: fmt::Display> fmt::Display for Bridge<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Converts an error, which keeps its kind.
pub(super) fn from_cloud(error: cloud::Error) -> Error {
    use cloud::Error as E;
    match error {
        E::NotFound { path, source } => Error::NotFound { path, source },
        E::AlreadyExists { path, source } => Error::AlreadyExists { path, source },
        E::Precondition { path, source } => Error::Precondition { path, source },
        E::NotModified { path, source } => Error::NotModified { path, source },
        E::PermissionDenied { path, source } => Error::PermissionDenied { path, source },
        E::Unauthenticated { path, source } => Error::Unauthenticated { path, source },
        E::NotSupported { source } => Error::NotSupported { source },
        E::NotImplemented { operation, implementer } => Error::NotImplemented { operation, implementer },
        E::Generic { store, source } => Error::Generic { store, source },
        other => Error::Generic { store: "cloud", source: other.into() },
    }
}

fn to_path(path: &Path) -> Result<cloud::path::Path> {
    cloud::path::Path::parse(path.as_ref()).map_err(|e| Error::Generic { store: "cloud", source: e.into() })
}

fn from_path(path: &cloud::path::Path) -> Result<Path> {
    Ok(Path::parse(path.as_ref())?)
}

fn from_meta(meta: cloud::ObjectMeta) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: from_path(&meta.location)?,
        last_modified: meta.last_modified,
        size: meta.size,
        e_tag: meta.e_tag,
        version: meta.version,
    })
}

fn to_payload(payload: PutPayload) -> cloud::PutPayload {
    payload.into_iter().collect()
}

fn from_put(put: cloud::PutResult) -> PutResult {
    PutResult { e_tag: put.e_tag, version: put.version }
}

/// Refuses attributes, which no caller sets.
fn check_plain(attributes: &Attributes, tags: &str) -> Result<()> {
    if attributes.is_empty() && tags.is_empty() {
        return Ok(());
    }
    Err(Error::NotImplemented { operation: "attributes".to_string(), implementer: "cloud".to_string() })
}

fn to_range(range: GetRange) -> cloud::GetRange {
    match range {
        GetRange::Bounded(range) => cloud::GetRange::Bounded(range),
        GetRange::Offset(offset) => cloud::GetRange::Offset(offset),
        GetRange::Suffix(length) => cloud::GetRange::Suffix(length),
    }
}

#[async_trait]
impl<S: cloud::ObjectStore> ObjectStore for Bridge<S> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        check_plain(&options.attributes, options.tags.encoded())?;
        let mode = match options.mode {
            PutMode::Overwrite => cloud::PutMode::Overwrite,
            PutMode::Create => cloud::PutMode::Create,
            PutMode::Update(of) => {
                cloud::PutMode::Update(cloud::UpdateVersion { e_tag: of.e_tag, version: of.version })
            }
        };
        let options = cloud::PutOptions { mode, ..cloud::PutOptions::default() };
        let put = self.0.put_opts(&to_path(location)?, to_payload(payload), options).await;
        put.map(from_put).map_err(from_cloud)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        check_plain(&options.attributes, options.tags.encoded())?;
        let upload = self.0.put_multipart(&to_path(location)?).await.map_err(from_cloud)?;
        Ok(Box::new(Upload(upload)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let options = cloud::GetOptions {
            if_match: options.if_match,
            if_none_match: options.if_none_match,
            if_modified_since: options.if_modified_since,
            if_unmodified_since: options.if_unmodified_since,
            range: options.range.map(to_range),
            version: options.version,
            head: options.head,
            ..cloud::GetOptions::default()
        };
        let got = self.0.get_opts(&to_path(location)?, options).await.map_err(from_cloud)?;
        let (meta, range) = (from_meta(got.meta.clone())?, got.range.clone());
        let body = got.into_stream().map_err(from_cloud).boxed();
        let payload = GetResultPayload::Stream(body);
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let converted = locations.map(|location| {
            let wrong = |e: Error| cloud::Error::Generic { store: "cloud", source: e.into() };
            location.and_then(|location| to_path(&location)).map_err(wrong)
        });
        let deleted = self.0.delete_stream(converted.boxed());
        deleted.map(|path| path.map_err(from_cloud).and_then(|path| from_path(&path))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = match prefix.map(to_path).transpose() {
            Ok(prefix) => prefix,
            Err(error) => return futures::stream::once(async { Err(error) }).boxed(),
        };
        let listed = self.0.list(prefix.as_ref());
        listed.map(|meta| meta.map_err(from_cloud).and_then(from_meta)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(to_path).transpose()?;
        let listed = self.0.list_with_delimiter(prefix.as_ref()).await.map_err(from_cloud)?;
        Ok(ListResult {
            common_prefixes: listed.common_prefixes.iter().map(from_path).collect::<Result<_>>()?,
            objects: listed.objects.into_iter().map(from_meta).collect::<Result<_>>()?,
        })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => cloud::CopyMode::Overwrite,
            CopyMode::Create => cloud::CopyMode::Create,
        };
        let options = cloud::CopyOptions { mode, ..cloud::CopyOptions::default() };
        self.0.copy_opts(&to_path(from)?, &to_path(to)?, options).await.map_err(from_cloud)
    }
}

/// An upload of the other version.
#[derive(Debug)]
struct Upload(Box<dyn cloud::MultipartUpload>);

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.0.put_part(to_payload(data));
        async move { part.await.map_err(from_cloud) }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.0.complete().await.map(from_put).map_err(from_cloud)
    }

    async fn abort(&mut self) -> Result<()> {
        self.0.abort().await.map_err(from_cloud)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt as _;

    #[tokio::test]
    async fn calls_reach_the_other_version() {
        let store = Bridge::new(cloud::memory::InMemory::new());
        let at = |name: &str| Path::from(name);
        store.put(&at("a/b c"), "hello".into()).await.unwrap();
        assert_eq!(store.get_range(&at("a/b c"), 1..3).await.unwrap(), "el");
        let mut upload = store.put_multipart(&at("a/d")).await.unwrap();
        upload.put_part("wor".into()).await.unwrap();
        upload.put_part("ld".into()).await.unwrap();
        upload.complete().await.unwrap();
        store.copy(&at("a/d"), &at("e/f")).await.unwrap();
        store.delete(&at("a/d")).await.unwrap();
        let names: Vec<ObjectMeta> = store.list(None).try_collect().await.unwrap();
        assert_eq!(names.iter().map(|m| m.location.as_ref()).collect::<Vec<_>>(), ["a/b c", "e/f"]);
        let listed = store.list_with_delimiter(Some(&at("a"))).await.unwrap();
        assert_eq!((listed.objects.len(), listed.common_prefixes.len()), (1, 0));
        assert!(matches!(store.head(&at("x")).await, Err(Error::NotFound { .. })));
        let create = PutOptions::from(PutMode::Create);
        let again = store.put_opts(&at("e/f"), "x".into(), create).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    }
}
