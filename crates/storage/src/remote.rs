//! S3: `s3://BUCKET/KEY`.
//!
//! The library's client repeats refused requests by itself, with growing pauses; what it does
//! not know is `Retry-After`, which [`Patient`] waits for. What else can go wrong with a body
//! is [`crate::retry`]'s.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, MultipartId, ObjectStore, PutPayload, PutResult, RetryConfig,
};
use pellucid_trace::Operation;
use url::Url;

use crate::retry::Limits;
use crate::wrap::secrets::Secrets;
use crate::{FailedAttempt, StorageError, Watch};

/// No answer that asks for more is waited for: the client's own pauses then apply.
const LONGEST_RETRY_AFTER_S: u64 = 20;

/// For a whole request with its body: a part of 10 MiB may take long on a slow link, and so may a store that
/// joins the parts of an upload.
const REQUEST_LIMIT: &str = "300 s";

/// The client keeps the cause to itself.
const BROKE_OFF: &str = "the answer broke off before its end";

/// The variables whose values no error may hold.
const SECRETS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The bucket of `url`.
pub(crate) fn s3(url: &Url, watch: Watch) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let limits = Limits { repeats_calls: false, answer_ns: 300_000_000_000, ..Limits::default() };
    let client = client(url, crate::without_secrets(Arc::clone(&watch), secrets()))?;
    Ok(crate::guarded(Arc::new(client), limits, secrets(), watch))
}

/// What no error may hold.
fn secrets() -> Secrets {
    Secrets::new(SECRETS.iter().filter_map(|name| std::env::var(name).ok()))
}

/// Uploads of a bucket by their names, so that who was killed can abort them later.
pub(crate) fn uploads(url: &Url) -> Result<Arc<dyn MultipartStore>, StorageError> {
    Ok(Arc::new(Uploads { client: client(url, Arc::new(|_| ()))?, secrets: secrets() }))
}

/// A client whose errors hold no secret.
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

/// A request that the store refuses is answered at once; one that it cannot serve just now is
/// tried again with the client's growing pauses, for half a minute at most.
fn client(url: &Url, watch: Watch) -> Result<AmazonS3, StorageError> {
    let retry =
        RetryConfig { max_retries: 6, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env();
    if std::env::var_os("AWS_TIMEOUT").is_none() {
        builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST_LIMIT);
    }
    builder
        .with_url(url.as_str())
        .with_retry(retry)
        .with_http_connector(Patient { inner: ReqwestConnector::default(), watch })
        .build()
        .map_err(|source| StorageError::Settings { url: crate::name(url), source: secrets().hide_in(source) })
}

/// A client that waits as long as a busy store asks it to, before it hands the answer on, and tells of
/// requests that failed.
struct Patient<T> {
    inner: T,
    watch: Watch,
}

impl<T: fmt::Debug> fmt::Debug for Patient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Patient").field(&self.inner).finish()
    }
}

impl HttpConnector for Patient<ReqwestConnector> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Patient { inner: self.inner.connect(options)?, watch: Arc::clone(&self.watch) }))
    }
}

/// What a request of S3's interface asks for.
fn operation(request: &HttpRequest) -> Operation {
    let asks =
        |name: &str| request.uri().query().is_some_and(|q| q.split('&').any(|pair| pair.starts_with(name)));
    match request.method().as_str() {
        "GET" if asks("list-type") => Operation::List,
        "HEAD" => Operation::Head,
        "PUT" if request.headers().contains_key("x-amz-copy-source") => Operation::Copy,
        "PUT" => Operation::Write,
        "POST" if asks("uploads") => Operation::Write,
        "POST" if asks("uploadId") => Operation::Commit,
        "POST" | "DELETE" => Operation::Delete,
        _ => Operation::Read,
    }
}

/// When the answer began that the client reads a body from.
///
/// The client resumes a body that broke off and tells nobody. [`crate::retry`] puts one of these into the
/// options of each body, the client hands it on with every request for that body, and a request after an
/// answer is then known to resume it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answered(Arc<Mutex<Option<Instant>>>);

impl Answered {
    fn replace(&self, answered: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), answered)
    }
}

#[async_trait]
impl HttpService for Patient<HttpClient> {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (operation, started) = (operation(&request), Instant::now());
        let failed =
            |error: String| (self.watch)(FailedAttempt { operation, started, ended: Instant::now(), error });
        let answered = request.extensions().get::<Answered>().cloned();
        if let Some(begun) = answered.as_ref().and_then(|answered| answered.replace(None)) {
            let error = BROKE_OFF.to_string();
            (self.watch)(FailedAttempt { operation, started: begun, ended: started, error });
        }
        let response = match self.inner.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                failed(error.to_string());
                return Err(error);
            }
        };
        let status = response.status();
        if status.as_u16() != 429 && !status.is_server_error() {
            if let Some(answered) = answered.filter(|_| status.is_success()) {
                answered.replace(Some(started));
            }
            return Ok(response);
        }
        if matches!(status.as_u16(), 429 | 503)
            && let Some(after) = response.headers().get("retry-after")
            && let Some(seconds) = after.to_str().ok().and_then(|s| s.parse::<u64>().ok())
            && seconds <= LONGEST_RETRY_AFTER_S
        {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        failed(status.to_string());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    /// Answers with one status after the other.
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

    /// The errors that are told of, where requests of one body get these answers.
    fn told(marked: bool, mut statuses: Vec<u16>) -> Vec<String> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let of = Arc::clone(&told);
        let watch: Watch = Arc::new(move |failed| of.lock().unwrap().push(failed.error));
        let count = statuses.len();
        statuses.reverse();
        let patient = Patient { inner: HttpClient::new(Statuses(Mutex::new(statuses))), watch };
        let answered = Answered::default();
        for _ in 0..count {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            if marked {
                request.extensions_mut().insert(answered.clone());
            }
            futures::executor::block_on(patient.call(request)).unwrap();
        }
        told.lock().unwrap().clone()
    }

    #[test]
    fn a_body_that_the_client_resumes_broke_off() {
        assert_eq!(told(true, vec![206, 206, 206]), [BROKE_OFF, BROKE_OFF]);
        assert_eq!(told(true, vec![206, 500, 206]), [BROKE_OFF, "500 Internal Server Error"]);
        assert_eq!(told(true, vec![500, 206]), ["500 Internal Server Error"]);
        assert_eq!(told(false, vec![206, 206]), [""; 0]);
    }
}
