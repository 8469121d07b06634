//! Stores behind a link.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use crate::StorageError;

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
        .build()
        .map_err(|source| StorageError::Settings { url: crate::name(url), source })?;
    Ok(Arc::new(store))
}
