//! The HTTP client of S3: waits for a busy store, refuses redirects, checks documents, and reports failed requests.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use pellucid_trace::Operation;

use super::connector::Connector;
use super::document::checked;
use crate::address::refused_redirect;
use crate::failed_attempt::{FailedAttempt, Watch};
use crate::retry::ResponseStart;

/// Maximum `Retry-After` to honour; for longer ones, the client's own pauses apply.
const MAX_RETRY_AFTER_S: u64 = 20;

/// Error for an interrupted body; the client does not expose the cause.
const INTERRUPTED: &str = "the response body was interrupted";

/// A client that waits for the `Retry-After` of a busy store before it returns the response, and reports
/// failed requests.
pub(super) struct RetryAfterClient<T> {
    pub inner: T,
    pub watch: Watch,
}

impl<T: fmt::Debug> fmt::Debug for RetryAfterClient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryAfterClient").field(&self.inner).finish()
    }
}

impl HttpConnector for RetryAfterClient<Connector> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = self.inner.connect(options)?;
        Ok(HttpClient::new(RetryAfterClient { inner, watch: Arc::clone(&self.watch) }))
    }
}

/// Returns the operation of a request to S3's interface.
fn operation(request: &HttpRequest) -> Operation {
    let has_parameter =
        |name: &str| request.uri().query().is_some_and(|q| q.split('&').any(|pair| pair.starts_with(name)));
    match request.method().as_str() {
        "GET" if has_parameter("list-type") => Operation::List,
        "HEAD" => Operation::Head,
        "PUT" if request.headers().contains_key("x-amz-copy-source") => Operation::Copy,
        "PUT" => Operation::Write,
        "POST" if has_parameter("uploads") => Operation::Write,
        "POST" if has_parameter("uploadId") => Operation::Commit,
        "POST" | "DELETE" => Operation::Delete,
        _ => Operation::Read,
    }
}

#[async_trait]
impl HttpService for RetryAfterClient<HttpClient> {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (operation, started) = (operation(&request), Instant::now());
        let uri = request.uri().clone();
        let failed =
            |error: String| (self.watch)(FailedAttempt { operation, started, ended: Instant::now(), error });
        let response_start = request.extensions().get::<ResponseStart>().cloned();
        if let Some(previous) = response_start.as_ref().and_then(|start| start.replace(None)) {
            let error = INTERRUPTED.to_string();
            (self.watch)(FailedAttempt { operation, started: previous, ended: started, error });
        }
        let response = match self.inner.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                failed(error.to_string());
                return Err(error);
            }
        };
        let status = response.status();
        // Every other successful answer is an object or empty.
        let is_document = !status.is_success() || !matches!(operation, Operation::Read | Operation::Head);
        let response = if is_document { checked(response).await? } else { response };
        if status.is_redirection()
            && let Some(location) = response.headers().get("location")
        {
            let location = String::from_utf8_lossy(location.as_bytes());
            let refused = std::io::Error::other(refused_redirect(&uri.to_string(), &location));
            return Err(HttpError::new(HttpErrorKind::Unknown, refused));
        }
        if status.as_u16() != 429 && !status.is_server_error() {
            if let Some(response_start) = response_start.filter(|_| status.is_success()) {
                response_start.replace(Some(started));
            }
            return Ok(response);
        }
        if matches!(status.as_u16(), 429 | 503)
            && let Some(after) = response.headers().get("retry-after")
            && let Some(seconds) = after.to_str().ok().and_then(|s| s.parse::<u64>().ok())
            && seconds <= MAX_RETRY_AFTER_S
        {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        failed(status.to_string());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Mutex;

    use object_store::ObjectStoreExt;
    use object_store::aws::AmazonS3Builder;
    use object_store::client::HttpRequestBody;
    use object_store::path::Path;

    use super::*;

    /// A service that responds with the given statuses, last one first.
    #[derive(Debug)]
    struct Statuses(Mutex<Vec<u16>>);

    #[async_trait]
    impl HttpService for Statuses {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let status = self.0.lock().unwrap().pop().unwrap();
            let mut response = HttpResponse::new(bytes::Bytes::from("body").into());
            *response.status_mut() = status.try_into().unwrap();
            Ok(response)
        }
    }

    /// Returns the errors reported if requests for one body get these responses.
    fn reported(marked: bool, mut statuses: Vec<u16>) -> Vec<String> {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&errors);
        let watch: Watch = Arc::new(move |failed| sink.lock().unwrap().push(failed.error));
        let count = statuses.len();
        statuses.reverse();
        let client = RetryAfterClient { inner: HttpClient::new(Statuses(Mutex::new(statuses))), watch };
        let response_start = ResponseStart::default();
        for _ in 0..count {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            if marked {
                request.extensions_mut().insert(response_start.clone());
            }
            futures::executor::block_on(client.call(request)).unwrap();
        }
        errors.lock().unwrap().clone()
    }

    #[test]
    fn resumed_body_is_reported_as_interrupted() {
        assert_eq!(reported(true, vec![206, 206, 206]), [INTERRUPTED, INTERRUPTED]);
        assert_eq!(reported(true, vec![206, 500, 206]), [INTERRUPTED, "500 Internal Server Error"]);
        assert_eq!(reported(true, vec![500, 206]), ["500 Internal Server Error"]);
        assert_eq!(reported(false, vec![206, 206]), [""; 0]);
    }

    /// Accepts one connection, answers it, and returns the request.
    fn answer(listener: TcpListener, answer: &str) -> String {
        let mut stream = listener.accept().unwrap().0;
        let mut request = [0; 4096];
        let read = stream.read(&mut request).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    }

    #[test]
    fn redirect_is_refused_and_gets_no_token() {
        let [here, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [here_url, other_url] = [&here, &other].map(|l| format!("http://{}", l.local_addr().unwrap()));
        let redirect =
            format!("HTTP/1.1 302 Found\r\nLocation: {other_url}/x?y\r\nContent-Length: 0\r\n\r\n");
        let server = std::thread::spawn(move || answer(here, &redirect));
        let store = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_endpoint(&here_url)
            .with_allow_http(true)
            .with_access_key_id("key")
            .with_secret_access_key("secret")
            .with_token("hunter2")
            .with_http_connector(RetryAfterClient { inner: Connector, watch: Arc::new(|_| ()) })
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(store.get(&Path::from("x"))).unwrap_err().to_string();
        assert!(error.contains(&format!("{here_url} redirects to {other_url}, and credentials")), "{error}");
        assert!(server.join().unwrap().contains("x-amz-security-token: hunter2"));
        other.set_nonblocking(true).unwrap();
        assert!(other.accept().is_err(), "the redirect was followed");
    }
}
