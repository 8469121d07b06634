//! OpenStack Swift: `swift://CONTAINER/KEY`.
//!
//! OpenDAL creates the requests, and [`Transport`] sends them. It signs in on the first request
//! and again when the token has expired, so opening a store needs no network access and a long job
//! outlives its token. The account comes from the variables of Swift's own client: `ST_AUTH`,
//! `ST_USER` and `ST_KEY` (version 1 authentication, as in tempauth and most object stores with a
//! Swift interface), or `OS_STORAGE_URL` and `OS_AUTH_TOKEN` (from `openstack token issue`; such a
//! token cannot be renewed).
//!
//! Key and token go to these addresses only: redirects are refused, and so is a storage address without
//! encryption from a sign-in with encryption.
//!
//! Multipart uploads become static large objects (`segments.rs`), whose segments are stored below
//! `.segments/` in the container. Deleting an object deletes its segments; overwriting it leaves
//! them.

use std::env;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store_opendal::OpendalStore;
use opendal::{
    Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter, OperationContext, Operator, services,
};
use pellucid_storage::errors::{MappedErrors, Secrets};
use pellucid_storage::retry::{Limits, Permanent, Throttled};
use pellucid_storage::{StorageError, Watch, shown};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use tokio::sync::Mutex;
use url::Url;

use crate::segments::Container;

/// Placeholder for the account's address until sign-in; `.invalid` is never a host (RFC 2606).
const PLACEHOLDER_ENDPOINT: &str = "http://swift.invalid";

/// Credentials of an account.
enum Account {
    /// User and key for signing in at `auth`.
    SignIn { auth: String, user: String, key: String },
    /// An existing token.
    Token { url: String, token: String },
}

/// The result of signing in.
struct Session {
    url: String,
    token: String,
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl Account {
    fn from_env() -> Option<Account> {
        if let (Some(url), Some(token)) = (set("OS_STORAGE_URL"), set("OS_AUTH_TOKEN")) {
            return Some(Account::Token { url, token });
        }
        Some(Account::SignIn { auth: set("ST_AUTH")?, user: set("ST_USER")?, key: set("ST_KEY")? })
    }
}

/// Opens the container of `url`.
pub(crate) fn open(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let settings =
        |source: object_store::Error| StorageError::Settings { url: pellucid_storage::name(url), source };
    let missing = |what: &str| object_store::Error::Generic { store: "Swift", source: what.into() };
    let account = Account::from_env().ok_or_else(|| settings(missing("no account is set")))?;
    let container = url.host_str().ok_or_else(|| settings(missing("the URL names no container")))?;
    let opened = container_of(account, container, &watch)
        .map_err(|source| settings(object_store::Error::Generic { store: "Swift", source }))?;
    Ok(Arc::new(opened))
}

/// Opens a container with retries, whose errors contain no secrets.
fn container_of(
    account: Account,
    name: &str,
    watch: &Watch,
) -> Result<Container, Box<dyn std::error::Error + Send + Sync>> {
    let secrets = Secrets::new(match &account {
        Account::SignIn { key, .. } => vec![key.clone()],
        Account::Token { token, .. } => vec![token.clone()],
    });
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(10))
        // `reqwest` would send key and token to the host of a redirect.
        .redirect(Policy::none())
        .build()?;
    let transporter = HttpTransporter::new(Transport { client, account, session: Mutex::new(None) });
    let store = |transporter| {
        let builder = services::Swift::default().endpoint(PLACEHOLDER_ENDPOINT).container(name);
        let operator =
            Operator::new(builder)?.with_context(OperationContext::new().with_http_transport(transporter));
        let map: fn(_) -> _ = mark_permanent;
        let store = MappedErrors::new(Arc::new(OpendalStore::new(operator)), map);
        Ok::<_, Error>(pellucid_storage::guarded(
            store,
            Limits::default(),
            secrets.clone(),
            Arc::clone(watch),
        ))
    };
    let manifests = store(HttpTransporter::new(Manifests(transporter.clone())))?;
    Ok(Container { store: store(transporter)?, manifests, name: name.to_string() })
}

/// Marks errors as permanent that OpenDAL does not report as temporary.
fn mark_permanent(error: object_store::Error) -> object_store::Error {
    match error {
        object_store::Error::Generic { store, source }
            if source.downcast_ref::<Error>().is_some_and(|error| !error.is_temporary()) =>
        {
            object_store::Error::Generic { store, source: Box::new(Permanent(source)) }
        }
        other => other,
    }
}

/// An HTTP transport that signs in and authenticates requests.
struct Transport {
    client: reqwest::Client,
    account: Account,
    session: Mutex<Option<Arc<Session>>>,
}

/// Sends a request. A redirect is an error.
async fn answer(request: RequestBuilder) -> Result<Response, Error> {
    let answer = request.send().await.map_err(|e| unreachable(&e))?;
    match answer.headers().get(LOCATION) {
        Some(location) if answer.status().is_redirection() => {
            let location = String::from_utf8_lossy(location.as_bytes());
            let message = pellucid_storage::refused_redirect(answer.url().as_str(), &location);
            Err(Error::new(ErrorKind::Unexpected, message))
        }
        _ => Ok(answer),
    }
}

fn unreachable(error: &reqwest::Error) -> Error {
    // The error contains the address but no secrets: tokens are in headers only.
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    Error::new(ErrorKind::Unexpected, message).set_temporary()
}

/// Returns whether a storage address lacks the encryption that the sign-in had.
fn leaves_https(auth: &Url, storage: &str) -> bool {
    auth.scheme() == "https" && Url::parse(storage).is_ok_and(|storage| storage.scheme() != "https")
}

fn refused(cause: impl fmt::Display) -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        format!("{cause}; check ST_AUTH, ST_USER and ST_KEY, or OS_STORAGE_URL and OS_AUTH_TOKEN"),
    )
}

impl Transport {
    /// Returns the session. Signs in if there is none yet or `stale`, the current one, has expired.
    async fn session(&self, stale: Option<&Arc<Session>>) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(known) = session.as_ref()
            && !stale.is_some_and(|stale| Arc::ptr_eq(stale, known))
        {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(match &self.account {
            Account::Token { .. } if stale.is_some() => return Err(refused("the token has expired")),
            Account::Token { url, token } => Session { url: url.clone(), token: token.clone() },
            Account::SignIn { auth, user, key } => self.sign_in(auth, user, key).await?,
        });
        *session = Some(Arc::clone(&new));
        Ok(new)
    }

    async fn sign_in(&self, auth: &str, user: &str, key: &str) -> Result<Session, Error> {
        let request = self.client.get(auth).header("X-Auth-User", user).header("X-Auth-Key", key);
        let answer = answer(request).await?;
        let auth = shown(auth);
        let status = answer.status();
        let header =
            |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_string);
        match (header("X-Storage-Url"), header("X-Auth-Token")) {
            _ if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN => {
                Err(refused(format_args!("{auth} rejected user {user}: {status}")))
            }
            (Some(url), Some(_)) if status.is_success() && leaves_https(answer.url(), &url) => {
                let message = format!(
                    "{auth} is encrypted but its storage address {} is not; ask the operator for an https address",
                    shown(&url)
                );
                Err(Error::new(ErrorKind::Unexpected, message))
            }
            (Some(url), Some(token)) if status.is_success() => Ok(Session { url, token }),
            _ => {
                let error =
                    Error::new(ErrorKind::Unexpected, format!("{auth} returned {status} without a token"));
                Err(if status.is_server_error() { error.set_temporary() } else { error })
            }
        }
    }

    async fn send(&self, request: &http::Request<Buffer>, session: &Session) -> Result<Response, Error> {
        let path = request.uri().path_and_query().map_or("", |p| p.as_str());
        let mut url = format!("{}{path}", session.url.trim_end_matches('/'));
        if request.method() == Method::DELETE && self.has_segments(&url, session).await? {
            url += "?multipart-manifest=delete";
        }
        let mut headers: HeaderMap = request.headers().clone();
        headers.remove("X-Auth-Token");
        let sent = self
            .client
            .request(request.method().clone(), url)
            .headers(headers)
            .header("X-Auth-Token", &session.token)
            .body(request.body().to_bytes());
        answer(sent).await
    }

    /// Returns true if an object is a static large object, whose deletion must include its segments.
    async fn has_segments(&self, url: &str, session: &Session) -> Result<bool, Error> {
        let head = self.client.head(url).header("X-Auth-Token", &session.token);
        let answer = answer(head).await?;
        if let Some(throttled) = retry_after(&answer) {
            return Err(busy(throttled));
        }
        if answer.status().is_server_error() {
            let message = format!("cannot check an object for segments: {}", answer.status());
            return Err(Error::new(ErrorKind::Unexpected, message).set_temporary());
        }
        Ok(answer.headers().contains_key("X-Static-Large-Object"))
    }
}

/// Returns the throttling error of a busy service, with the pause that it requested.
fn retry_after(answer: &Response) -> Option<Throttled> {
    let busy = matches!(answer.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    busy.then(|| Throttled { retry_after_ns: seconds.map(|s| s.saturating_mul(1_000_000_000)) })
}

fn busy(throttled: Throttled) -> Error {
    Error::new(ErrorKind::RateLimited, format!("{throttled}")).set_temporary().set_source(throttled)
}

/// A body with a single owner. The lock is never contended; it only makes the body `Sync`, as the
/// trait requires.
struct Owned(std::sync::Mutex<BoxStream<'static, opendal::Result<Buffer>>>);

impl Stream for Owned {
    type Item = opendal::Result<Buffer>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context)
    }
}

impl HttpTransport for Transport {
    async fn fetch(&self, request: http::Request<Buffer>) -> opendal::Result<http::Response<HttpBody>> {
        let session = self.session(None).await?;
        let mut answer = self.send(&request, &session).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let session = self.session(Some(&session)).await?;
            answer = self.send(&request, &session).await?;
        }
        if let Some(throttled) = retry_after(&answer) {
            return Err(busy(throttled));
        }
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err(refused("401 Unauthorized"));
        }
        let length = answer.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        let is_head = request.method() == Method::HEAD;
        let mut response = http::Response::new(());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        let body = answer.bytes_stream().map_ok(Buffer::from).map_err(|e| unreachable(&e)).boxed();
        let body = HttpBody::new(Owned(std::sync::Mutex::new(body)), length.filter(|_| !is_head));
        Ok(response.map(|()| body))
    }
}

/// A transport that marks puts as manifests.
struct Manifests(HttpTransporter);

impl HttpTransport for Manifests {
    async fn fetch(&self, mut request: http::Request<Buffer>) -> opendal::Result<http::Response<HttpBody>> {
        if request.method() == Method::PUT {
            let address = format!("{}?multipart-manifest=put", request.uri());
            *request.uri_mut() =
                address.parse().map_err(|e| Error::new(ErrorKind::Unexpected, format!("{address}: {e}")))?;
        }
        self.0.fetch(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use object_store::path::Path;
    use object_store::{MultipartUpload, ObjectStoreExt};

    const CREATED: &str = "201 Created\r\nETag: e";

    /// The requests that a service received: method, path and token of each.
    type Requests = Arc<std::sync::Mutex<Vec<String>>>;

    /// Starts a service that answers each request with the next of `answers`; `HERE` in an answer stands
    /// for its address.
    fn service(answers: &[&str]) -> (String, Requests) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<String> = answers.iter().map(|a| a.replace("HERE", &here)).collect();
        let requests = Requests::default();
        let sink = Arc::clone(&requests);
        std::thread::spawn(move || {
            for answer in answers {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let mut head = Vec::new();
                while head.last().is_none_or(|line: &String| line != "\r\n") {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    head.push(line);
                }
                let field = |name: &str| {
                    let value = head
                        .iter()
                        .find_map(|l| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)));
                    value.map_or("", |(_, value)| value.trim())
                };
                let sent = field("content-length").parse().unwrap_or(0);
                stream.read_exact(&mut vec![0; sent]).unwrap();
                let line = head[0].trim_end().trim_end_matches(" HTTP/1.1");
                sink.lock().unwrap().push(format!("{line} {}", field("x-auth-token")).trim_end().to_string());
                write!(
                    stream.get_mut(),
                    "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                .unwrap();
            }
        });
        (here, requests)
    }

    fn signs_in(here: &str) -> Container {
        let [user, key] = ["account:user", "hunter2hunter2"].map(str::to_string);
        let account = Account::SignIn { auth: format!("{here}/auth"), user, key };
        container_of(account, "c", &(Arc::new(|_| ()) as Watch)).unwrap()
    }

    fn signed_in(token: &str) -> String {
        format!("200 OK\r\nX-Storage-Url: HERE/v1/a\r\nX-Auth-Token: {token}")
    }

    fn received(requests: &Requests) -> Vec<String> {
        requests.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn expired_token_is_renewed_and_the_request_retried() {
        let expired = "401 Unauthorized";
        let (here, requests) =
            service(&[&signed_in("one"), CREATED, expired, &signed_in("two"), CREATED, CREATED]);
        let container = signs_in(&here);
        for _ in 0..3 {
            container.put(&Path::from("x"), "bytes".into()).await.unwrap();
        }
        let put = |token: &str| format!("PUT /v1/a/c/x {token}");
        assert_eq!(
            received(&requests),
            ["GET /auth", &put("one"), &put("one"), "GET /auth", &put("two"), &put("two")]
        );
    }

    #[tokio::test]
    async fn fixed_token_that_expired_is_an_error_without_secrets() {
        let (here, requests) = service(&["401 Unauthorized"]);
        let account = Account::Token { url: format!("{here}/v1/a"), token: "hunter2hunter2".to_string() };
        let container = container_of(account, "c", &(Arc::new(|_| ()) as Watch)).unwrap();
        let error = container.put(&Path::from("x"), "bytes".into()).await.unwrap_err();
        let words = format!("{error} {error:?}");
        assert!(words.contains("the token has expired; check") && words.contains("OS_AUTH_TOKEN"), "{words}");
        assert!(!words.contains("hunter2"), "{words}");
        assert_eq!(received(&requests).len(), 1);
    }

    #[tokio::test]
    async fn retry_after_is_honoured_unless_it_is_too_long() {
        let (here, requests) = service(&[&signed_in("one"), "503 Busy\r\nRetry-After: 0", CREATED]);
        signs_in(&here).put(&Path::from("x"), "bytes".into()).await.unwrap();
        assert_eq!(received(&requests).len(), 3);
        let (here, requests) = service(&[&signed_in("one"), "503 Busy\r\nRetry-After: 86400", CREATED]);
        let error = signs_in(&here).put(&Path::from("x"), "bytes".into()).await.unwrap_err().to_string();
        assert!(error.contains("503") && error.contains("retry after 86400 s"), "{error}");
        assert_eq!(received(&requests).len(), 2);
    }

    #[tokio::test]
    async fn segments_and_manifests_are_retried_on_busy_and_server_errors() {
        let (busy, broken) = ("503 Busy\r\nRetry-After: 0", "500 Broken");
        let (here, requests) = service(&[&signed_in("one"), busy, broken, CREATED, broken, busy, CREATED]);
        let container = signs_in(&here);
        let mut upload = container.put_multipart(&Path::from("x")).await.unwrap();
        upload.put_part("bytes".into()).await.unwrap();
        upload.complete().await.unwrap();
        let requests = received(&requests);
        assert!(
            requests[1].starts_with("PUT /v1/a/c/.segments/x/") && requests[1].contains("/00000000"),
            "{requests:?}"
        );
        assert!(requests[1..4].iter().all(|put| *put == requests[1]), "{requests:?}");
        assert_eq!(requests[4..], ["PUT /v1/a/c/x?multipart-manifest=put one"; 3]);
    }

    #[tokio::test]
    async fn redirects_are_refused_and_get_no_credentials() {
        let (other, stolen) = service(&["200 OK", "200 OK"]);
        let to_other = format!("302 Found\r\nLocation: {other}/x?y");
        let message = async |here: &str| {
            let error = signs_in(here).put(&Path::from("x"), "bytes".into()).await.unwrap_err().to_string();
            let redirect = format!("{here} redirects to {other}, and credentials");
            assert!(error.contains(&redirect) && !error.contains("hunter2"), "{error}");
        };
        let (here, requests) = service(&[&to_other]);
        message(&here).await;
        assert_eq!(received(&requests), ["GET /auth"]);
        let (here, requests) = service(&[&signed_in("one"), &to_other]);
        message(&here).await;
        assert_eq!(received(&requests).len(), 2, "a redirect is not retried");
        assert!(received(&stolen).is_empty());
    }

    #[test]
    fn storage_address_must_keep_https() {
        for (auth, storage, leaves) in [
            ("https://a/auth", "http://a/v1", true),
            ("https://a/auth", "https://b/v1", false),
            ("http://a/auth", "http://b/v1", false),
        ] {
            assert_eq!(leaves_https(&Url::parse(auth).unwrap(), storage), leaves, "{auth} {storage}");
        }
    }
}
