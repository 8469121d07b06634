//! HTTP clients of S3, which do not follow redirects.
//!
//! `object_store`'s own client follows redirects and has no option against it. The session token is in a header
//! that `reqwest` does not remove for another host. This connector therefore builds the client itself, from the
//! same options.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey as Key, ClientOptions, Error, Result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, NoProxy, Proxy};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(client(options)?))
    }
}

fn invalid(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "S3", source: cause.into() }
}

/// Returns the parsed value of an option, if it is set.
fn option<T>(options: &ClientOptions, key: Key, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(text) = options.get_config_value(&key) else { return Ok(None) };
    parse(&text).map(Some).ok_or_else(|| invalid(format!("invalid value `{text}` of the option {key:?}")))
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "y" => Some(true),
        "0" | "false" | "off" | "no" | "n" => Some(false),
        _ => None,
    }
}

/// Builds a client with all options that a URL or the environment can set.
fn client(options: &ClientOptions) -> Result<Client> {
    let is_set = |key| Ok::<_, Error>(option(options, key, boolean)?.unwrap_or(false));
    let agent = options.get_config_value(&Key::UserAgent);
    let mut builder = Client::builder()
        .redirect(Policy::none())
        .user_agent(agent.unwrap_or_else(|| concat!("pellucid/", env!("CARGO_PKG_VERSION")).to_string()))
        .https_only(!is_set(Key::AllowHttp)?)
        .danger_accept_invalid_certs(is_set(Key::AllowInvalidCertificates)?)
        .http2_keep_alive_while_idle(is_set(Key::Http2KeepAliveWhileIdle)?)
        .http2_max_frame_size(option(options, Key::Http2MaxFrameSize, number::<u32>)?)
        // A decompressed body would not have the object's length.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    if let Some(timeout) = option(options, Key::Timeout, duration)? {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = option(options, Key::ConnectTimeout, duration)? {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = option(options, Key::PoolIdleTimeout, duration)? {
        builder = builder.pool_idle_timeout(timeout);
    }
    if let Some(count) = option(options, Key::PoolMaxIdlePerHost, number)? {
        builder = builder.pool_max_idle_per_host(count);
    }
    if let Some(interval) = option(options, Key::Http2KeepAliveInterval, duration)? {
        builder = builder.http2_keep_alive_interval(interval);
    }
    if let Some(timeout) = option(options, Key::Http2KeepAliveTimeout, duration)? {
        builder = builder.http2_keep_alive_timeout(timeout);
    }
    if is_set(Key::Http1Only)? {
        builder = builder.http1_only();
    }
    if is_set(Key::Http2Only)? {
        builder = builder.http2_prior_knowledge();
    }
    if let Some(url) = options.get_config_value(&Key::ProxyUrl) {
        let excluded = options.get_config_value(&Key::ProxyExcludes);
        let proxy = Proxy::all(&url).map_err(|error| invalid(error.without_url()))?;
        builder = builder.proxy(proxy.no_proxy(excluded.as_deref().and_then(NoProxy::from_string)));
    }
    if let Some(certificate) = options.get_config_value(&Key::ProxyCaCertificate) {
        let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).map_err(invalid)?;
        builder = builder.add_root_certificate(certificate);
    }
    if is_set(Key::RandomizeAddresses)? {
        builder = builder.dns_resolver(Arc::new(Shuffled));
    }
    builder.build().map_err(invalid)
}

/// A resolver that returns a host's addresses in random order, which spreads requests over a store's servers.
struct Shuffled;

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut addresses: Vec<SocketAddr> = found.collect();
            let random = RandomState::new();
            addresses.sort_by_cached_key(|address| random.hash_one(address));
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_object_store_reads_them() {
        let options =
            ClientOptions::new().with_config(Key::Timeout, "5 minutes").with_config(Key::AllowHttp, "yes");
        assert_eq!(option(&options, Key::Timeout, duration).unwrap(), Some(Duration::from_secs(300)));
        assert_eq!(option(&options, Key::ConnectTimeout, duration).unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(option(&options, Key::AllowHttp, boolean).unwrap(), Some(true));
        assert_eq!(option(&options, Key::PoolIdleTimeout, duration).unwrap(), None);
        assert!(client(&options).is_ok());
    }

    #[test]
    fn invalid_option_is_named() {
        let error = client(&ClientOptions::new().with_config(Key::Timeout, "soon")).unwrap_err().to_string();
        assert!(error.contains("`soon` of the option Timeout"), "{error}");
    }
}
