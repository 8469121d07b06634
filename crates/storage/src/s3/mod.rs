//! S3: `s3://BUCKET/KEY`.
//!
//! `object_store`'s client retries rejected requests itself, with growing pauses: only it can repeat a part of an
//! upload. Its HTTP client ([`client`]) honours `Retry-After` and refuses redirects. [`crate::retry`] handles all other
//! failures of response bodies.

mod client;
mod connector;
mod credentials;
mod document;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ClientConfigKey, MultipartId, ObjectStore, PutPayload, PutResult, RetryConfig};
use url::Url;

use crate::address::{name, shown};
use crate::backend::{Backend, StorageError};
use crate::errors::Secrets;
use crate::failed_attempt::Watch;
use crate::guard::{guarded, without_secrets};
use crate::retry::Limits;
use client::RetryAfterClient;
use connector::Connector;

/// S3 is always built in, since DataFusion's crates compile its client anyway.
pub(crate) const BACKEND: Backend = Backend {
    scheme: "s3",
    example: "s3://BUCKET/KEY",
    settings: "credentials, region and endpoint come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, \
               AWS_REGION and AWS_ENDPOINT_URL, or from AWS_PROFILE",
    open,
};

/// Timeout of a whole request with its body: a part of 10 MiB may take long on a slow link, and a store may
/// take long to join the parts of an upload.
const REQUEST_TIMEOUT: &str = "300 s";

/// Environment variables whose values must not appear in errors.
const SECRETS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Opens the bucket of `url`.
pub(crate) fn open(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let limits = Limits { retries_calls: false, response_timeout_ns: 300_000_000_000, ..Limits::default() };
    let secrets = secrets();
    let client = client(url, without_secrets(Arc::clone(&watch), secrets.clone()), &secrets)?;
    Ok(guarded(Arc::new(client), limits, secrets, watch))
}

/// Returns the secrets to hide in errors.
fn secrets() -> Secrets {
    Secrets::new(SECRETS.iter().filter_map(|name| std::env::var(name).ok()))
}

/// Opens a bucket for uploads by ID, so that those of a killed process can be aborted later.
pub(crate) fn uploads(url: &Url) -> Result<Arc<dyn MultipartStore>, StorageError> {
    let secrets = secrets();
    Ok(Arc::new(Uploads { client: client(url, Arc::new(|_| ()), &secrets)?, secrets }))
}

/// An upload client whose errors contain no secrets.
struct Uploads {
    client: AmazonS3,
    secrets: Secrets,
}

#[async_trait]
impl MultipartStore for Uploads {
    async fn create_multipart(&self, path: &Path) -> object_store::Result<MultipartId> {
        self.client.create_multipart(path).await.map_err(|e| self.secrets.hide_in(e))
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part: usize,
        data: PutPayload,
    ) -> object_store::Result<PartId> {
        self.client.put_part(path, id, part, data).await.map_err(|e| self.secrets.hide_in(e))
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> object_store::Result<PutResult> {
        self.client.complete_multipart(path, id, parts).await.map_err(|e| self.secrets.hide_in(e))
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> object_store::Result<()> {
        self.client.abort_multipart(path, id).await.map_err(|e| self.secrets.hide_in(e))
    }
}

/// Builds a client that fails immediately if the store rejects a request, and retries transient
/// failures with growing pauses for at most 30 s.
fn client(url: &Url, watch: Watch, secrets: &Secrets) -> Result<AmazonS3, StorageError> {
    let settings = |source| StorageError::Settings { url: name(url), source: secrets.hide_in(source) };
    let retry =
        RetryConfig { max_retries: 6, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env();
    if std::env::var_os("AWS_TIMEOUT").is_none() {
        builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST_TIMEOUT);
    }
    let variables = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let found = credentials::find(&variables, secrets).map_err(settings)?;
    if let Some(provider) = found.provider {
        builder = builder.with_credentials(provider);
    }
    for (key, value) in
        [(AmazonS3ConfigKey::Region, found.region), (AmazonS3ConfigKey::Endpoint, found.endpoint)]
    {
        if let Some(value) = value.filter(|_| builder.get_config_value(&key).is_none()) {
            builder = builder.with_config(key, value);
        }
    }
    builder
        .with_url(shown(url.as_str()))
        .with_retry(retry)
        .with_http_connector(RetryAfterClient { inner: Connector, watch })
        .build()
        .map_err(settings)
}
