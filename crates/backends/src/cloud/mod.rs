//! Azure (`az://CONTAINER/KEY`, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`) and Google Cloud Storage
//! (`gs://BUCKET/KEY`).
//!
//! Their clients are those of a second version of `object_store`. Features of the first, which DataFusion uses, would
//! compile DataFusion again in a build with this crate. The clients find credentials themselves: for Azure those of
//! the `AZURE_*` variables, a workload identity or a managed identity; for Google a service account, the application's
//! default credentials or the machine's. [`bridge`] adapts the versions, and [`http`] sends the requests.

mod bridge;
mod http;

use std::sync::Arc;
use std::time::Duration;

use cloud_store::azure::MicrosoftAzureBuilder;
use cloud_store::gcp::GoogleCloudStorageBuilder;
use cloud_store::{BackoffConfig, RetryConfig};
use object_store::{Error, ObjectStore};
use pellucid_storage::errors::Secrets;
use pellucid_storage::retry::Limits;
use pellucid_storage::{StorageError, Watch, name, shown};
use url::Url;

use self::bridge::{Bridge, from_cloud};
use self::http::Connector;

/// Environment variables whose values must not appear in errors.
const SECRETS: [&str; 9] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
];

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the pauses and the number of attempts of a client. Without credentials, it asks the machine's metadata
/// service, which does not exist elsewhere.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() },
        max_retries: 3,
        retry_timeout: Duration::from_secs(10),
    }
}

/// Wraps a client like those of the other stores.
fn opened(
    url: &Url,
    built: cloud_store::Result<impl cloud_store::ObjectStore>,
    watch: Watch,
) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let secrets = Secrets::new(SECRETS.iter().filter_map(|name| set(name)));
    let client = built.map_err(|error| StorageError::Settings {
        url: name(url),
        source: secrets.hide_in(from_cloud(error)),
    })?;
    let limits = Limits { retries_calls: false, ..Limits::default() };
    Ok(pellucid_storage::guarded(Arc::new(Bridge::new(client)), limits, secrets, watch))
}

/// Opens a container of Azure.
pub(crate) fn open_azure(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let missing = |why: &str| StorageError::Settings {
        url: name(url),
        source: Error::Generic { store: "Azure", source: why.into() },
    };
    let host = url.host_str().ok_or_else(|| missing("the URL names no container"))?;
    let mut builder = MicrosoftAzureBuilder::from_env().with_retry(retries()).with_http_connector(Connector);
    // The first is the name in Azure's own tools.
    if let Some(account) =
        set("AZURE_STORAGE_ACCOUNT").filter(|_| set("AZURE_STORAGE_ACCOUNT_NAME").is_none())
    {
        builder = builder.with_account(account);
    }
    if let Some(key) = set("AZURE_STORAGE_KEY").filter(|_| set("AZURE_STORAGE_ACCOUNT_KEY").is_none()) {
        builder = builder.with_access_key(key);
    }
    builder = match url.username() {
        "" => builder.with_container_name(host),
        // The account is a part of the host's name.
        container => {
            let account = host.split('.').next().unwrap_or(host);
            builder.with_container_name(container).with_account(account)
        }
    };
    opened(url, builder.build(), watch)
}

/// Opens a bucket of Google Cloud Storage.
pub(crate) fn open_google(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_retry(retries())
        .with_http_connector(Connector)
        .with_url(shown(url.as_str()));
    if let Some(file) = set("GOOGLE_APPLICATION_CREDENTIALS") {
        builder = builder.with_application_credentials(file);
    }
    opened(url, builder.build(), watch)
}
