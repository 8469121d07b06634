//! Sends the requests of the cloud clients with the same HTTP client as those of the other stores. Redirects are refused.

use async_trait::async_trait;
use cloud_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use cloud_store::{ClientConfigKey, ClientOptions};
use futures::TryStreamExt;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;
use reqwest::redirect::Policy;
use std::time::Duration;

/// Timeout of a whole request with its body, as for S3.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes [`Sender`]s.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> cloud_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|v| v == "true");
        let client = reqwest::Client::builder()
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .https_only(!allows_http)
            .build()
            .map_err(|e| cloud_store::Error::Generic { store: "cloud", source: e.into() })?;
        Ok(HttpClient::new(Sender(client)))
    }
}

/// An HTTP client.
#[derive(Debug)]
struct Sender(reqwest::Client);

#[async_trait]
impl HttpService for Sender {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let address = parts.uri.to_string();
        let mut sent = self.0.request(parts.method, &address).headers(parts.headers);
        let bytes = http_body_util::BodyExt::collect(body).await?.to_bytes();
        if !bytes.is_empty() {
            sent = sent.body(bytes);
        }
        let answer = sent.send().await.map_err(failed)?;
        if answer.status().is_redirection()
            && let Some(location) = answer.headers().get("location")
        {
            let location = String::from_utf8_lossy(location.as_bytes());
            let why = pellucid_storage::refused_redirect(&address, &location);
            return Err(HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(why)));
        }
        let mut response = http::Response::new(());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        let frames = answer.bytes_stream().map_ok(Frame::data).map_err(failed);
        let body = HttpResponseBody::new(BoxBody::new(StreamBody::new(frames)));
        Ok(response.map(|()| body))
    }
}

/// Converts an error, and says whether another attempt may succeed.
fn failed(error: reqwest::Error) -> HttpError {
    let kind = match () {
        () if error.is_timeout() => HttpErrorKind::Timeout,
        () if error.is_connect() => HttpErrorKind::Connect,
        () if error.is_request() => HttpErrorKind::Request,
        () if error.is_body() => HttpErrorKind::Interrupted,
        () if error.is_decode() => HttpErrorKind::Decode,
        () => HttpErrorKind::Unknown,
    };
    // An address may have a signature.
    HttpError::new(kind, error.without_url())
}
