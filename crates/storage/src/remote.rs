//! S3: `s3://BUCKET/KEY`.
//!
//! The library's client repeats refused requests by itself, with growing pauses; what it does
//! not know is `Retry-After`, which [`Patient`] waits for. What else can go wrong with a body
//! is [`crate::retry`]'s.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::AmazonS3Builder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::StorageError;
use crate::retry::Limits;
use crate::wrap::secrets::Secrets;

/// No answer that asks for more is waited for: the client's own pauses then apply.
const LONGEST_RETRY_AFTER_S: u64 = 20;

/// The variables whose values no error may hold.
const SECRETS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The bucket of `url`.
///
/// A request that the store refuses is answered at once; one that it cannot serve just now is
/// tried again with the client's growing pauses, for half a minute at most.
pub(crate) fn s3(url: &Url) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let retry =
        RetryConfig { max_retries: 6, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
    let plain = std::env::var("AWS_ALLOW_HTTP").is_ok_and(|v| v.eq_ignore_ascii_case("true"));
    let store = AmazonS3Builder::from_env()
        .with_url(url.as_str())
        .with_retry(retry)
        .with_client_options(ClientOptions::new().with_allow_http(plain))
        .with_http_connector(Patient(ReqwestConnector::default()))
        .build()
        .map_err(|source| StorageError::Settings { url: crate::name(url), source })?;
    let secrets = Secrets::new(SECRETS.iter().filter_map(|name| std::env::var(name).ok()));
    let limits = Limits { repeats_calls: false, answer_ns: 300_000_000_000, ..Limits::default() };
    Ok(crate::guarded(Arc::new(store), limits, secrets))
}

/// A client that waits as long as a busy store asks it to, before it hands the answer on.
#[derive(Debug)]
struct Patient<T>(T);

impl HttpConnector for Patient<ReqwestConnector> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Patient(self.0.connect(options)?)))
    }
}

#[async_trait]
impl HttpService for Patient<HttpClient> {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        if matches!(response.status().as_u16(), 429 | 503)
            && let Some(after) = response.headers().get("retry-after")
            && let Some(seconds) = after.to_str().ok().and_then(|s| s.parse::<u64>().ok())
            && seconds <= LONGEST_RETRY_AFTER_S
        {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        Ok(response)
    }
}
