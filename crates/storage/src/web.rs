//! Files on web servers (`http://`, `https://`), which are only read, and the rules of all downloads from them.
//!
//! A part of a file is a range request. Some servers answer one with the whole file, or without saying how long the
//! file is; such a file is downloaded once, and kept in memory until the store is dropped. Redirects are followed, since
//! requests carry no credentials. Web servers do not list their files.
//!
//! A location is the path as it was written, still percent-encoded. The query of a URL may be a signature and have any
//! characters, so a location has its number in place of it: see [`location`].

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderName, LAST_MODIFIED, RANGE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use url::Url;

use crate::address::name;
use crate::backend::{Opened, StorageError};
use crate::errors::Secrets;
use crate::failed_attempt::Watch;
use crate::guard::guarded;
use crate::retry::{Limits, Permanent, Throttled};

/// Maximum bytes of all files of a server that are kept in memory.
const MAX_KEPT_BYTES: usize = 256 << 20;
/// Maximum number of redirects to follow.
const MAX_REDIRECTS: usize = 10;
/// Timeout of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of waiting for the next bytes.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const LIMITS: Limits = Limits {
    attempts: 4,
    pause_ns: 100_000_000,
    max_pause_ns: 20_000_000_000,
    // The client's timeouts are shorter; a file that is kept takes longer.
    response_timeout_ns: 600_000_000_000,
    chunk_timeout_ns: 30_000_000_000,
    retries_calls: true,
};

/// Paths and queries of the URLs that have a query, by their number.
static TARGETS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Returns the location of a path with its query, as they are written in a URL. With a query, it starts with a number
/// that stands for both: `?2/folder/file.csv`.
pub fn location(target: &str) -> String {
    let Some((path, _)) = target.split_once('?') else { return target.to_string() };
    let mut targets = TARGETS.write().unwrap_or_else(PoisonError::into_inner);
    let number = targets.iter().position(|known| known == target).unwrap_or_else(|| {
        targets.push(target.to_string());
        targets.len() - 1
    });
    let names = path.split('/').filter(|name| !name.is_empty());
    std::iter::once(format!("?{number}").as_str()).chain(names).collect::<Vec<_>>().join("/")
}

/// Divides a location into the number of its query and the path.
fn numbered(location: &str) -> Option<(usize, &str)> {
    let rest = location.strip_prefix('?')?;
    let (number, path) = rest.split_once('/').unwrap_or((rest, ""));
    Some((number.parse().ok()?, path))
}

/// Returns the path of a location without the number of its query, for messages.
pub fn path(location: &str) -> &str {
    numbered(location).map_or(location, |(_, path)| path)
}

/// Returns the policy to follow a few redirects, none of which leaves https.
pub fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let refused = attempt.previous().last().and_then(|from| insecure_redirect(from, attempt.url()));
        match refused {
            Some(message) => attempt.error(message),
            None if attempt.previous().len() > MAX_REDIRECTS => attempt.error("too many redirects"),
            None => attempt.follow(),
        }
    })
}

/// Returns why a redirect must not be followed: it leaves https.
fn insecure_redirect(from: &Url, to: &Url) -> Option<String> {
    (from.scheme() == "https" && to.scheme() != "https")
        .then(|| format!("{} redirects to {}, which is not encrypted", name(from), name(to)))
}

/// Opens a web server. A proxy comes from `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
pub(crate) fn open(url: &Url, watch: Watch) -> Opened {
    let client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .redirect(redirects())
        // The header would contain the query.
        .referer(false)
        .user_agent(concat!("pellucid/", env!("CARGO_PKG_VERSION")))
        // A decompressed body would not have the file's length.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .build()
        .map_err(|error| StorageError::Settings { url: name(url), source: permanent(error) })?;
    let store = Web { root: name(url), client, kept: Mutex::default() };
    Ok(guarded(Arc::new(store), LIMITS, Secrets::new([]), watch))
}

/// A web server as a store.
struct Web {
    /// Scheme and authority.
    root: String,
    client: Client,
    /// Files that the server sends only whole.
    kept: Mutex<HashMap<Path, Kept>>,
}

/// A file in memory.
#[derive(Clone)]
struct Kept {
    meta: ObjectMeta,
    bytes: Bytes,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("root", &self.root).finish_non_exhaustive()
    }
}

impl fmt::Display for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "web", source: source.into() }
}

fn permanent(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    generic(Permanent(source.into()))
}

fn read_only() -> Error {
    permanent("files on web servers are only read; write a local file, or to a store such as s3://BUCKET/KEY")
}

fn unlisted() -> Error {
    permanent("web servers do not list their files; write the URL of a file")
}

/// Converts an error of a request. Its innermost cause says why; the URL may have a signature.
fn unanswered(error: reqwest::Error) -> Error {
    if error.is_timeout() {
        return generic(format!(
            "the server sent nothing for {} s; check the host and the network",
            READ_TIMEOUT.as_secs()
        ));
    }
    let (refused, lost) = (error.is_redirect(), error.is_body() || error.is_decode());
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = cause.to_string();
    match cause.contains("certificate") {
        _ if refused => permanent(format!("{cause}; write the address of the file itself")),
        _ if lost => generic(format!("the connection broke: {cause}")),
        true => permanent(format!("cannot trust the server: {cause}; check the host, or its certificate")),
        false => generic(format!("cannot reach the server: {cause}; check the host and the port")),
    }
}

/// Returns a response, if it has the file or a part of it, or says how long the file is.
fn checked(location: &Path, response: Response) -> Result<Response> {
    let status = response.status();
    let (path, source) = (location.to_string(), format!("{status}").into());
    Err(match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
            return Ok(response);
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Error::NotFound { path, source },
        StatusCode::UNAUTHORIZED => Error::Unauthenticated { path, source },
        StatusCode::FORBIDDEN => Error::PermissionDenied { path, source },
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let seconds = header(&response, RETRY_AFTER).and_then(|after| after.parse::<u64>().ok());
            let retry_after_ns = seconds.map(|seconds| seconds.saturating_mul(1_000_000_000));
            generic(Throttled { retry_after_ns })
        }
        _ if status.is_server_error() => generic(format!("the server answered {status}; try again later")),
        _ => permanent(format!("the server answered {status}; check the URL")),
    })
}

fn header(response: &Response, name: HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// Returns the bytes of a part, and the length of the file: `bytes 0-9/100`, or `bytes */100`.
fn content_range(response: &Response) -> Option<(Range<u64>, u64)> {
    let (range, size) = header(response, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let range = match range.split_once('-') {
        Some((start, last)) => start.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?,
        None => 0..0,
    };
    Some((range, size.parse().ok()?))
}

/// Converts the time of a header, `Sun, 06 Nov 1994 08:49:37 GMT`, to `1994-11-06T08:49:37Z`.
fn timestamp(text: &str) -> Option<String> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    Some(format!("{year}-{month:02}-{day}T{time}Z"))
}

fn meta(location: &Path, response: &Response, size: u64) -> ObjectMeta {
    let last_modified = header(response, LAST_MODIFIED).and_then(timestamp);
    ObjectMeta {
        location: location.clone(),
        last_modified: last_modified.and_then(|time| time.parse().ok()).unwrap_or_default(),
        size,
        e_tag: header(response, ETAG).map(str::to_string),
        version: None,
    }
}

fn result(meta: ObjectMeta, range: Range<u64>, body: BoxStream<'static, Result<Bytes>>) -> GetResult {
    GetResult { payload: GetResultPayload::Stream(body), meta, range, attributes: Attributes::new() }
}

impl Kept {
    fn answer(self, options: &GetOptions) -> Result<GetResult> {
        let size = self.meta.size;
        let range = match &options.range {
            Some(range) => range.as_range(size).map_err(permanent)?,
            None => 0..size,
        };
        let part = self.bytes.slice(range.start as usize..range.end as usize);
        Ok(result(self.meta, range, stream::once(async { Ok(part) }).boxed()))
    }
}

impl Web {
    fn address(&self, location: &Path) -> String {
        let targets = TARGETS.read().unwrap_or_else(PoisonError::into_inner);
        let target = numbered(location.as_ref()).and_then(|(number, _)| targets.get(number));
        format!("{}/{}", self.root, target.map_or(location.as_ref(), String::as_str))
    }

    async fn ask(&self, location: &Path, range: Option<&GetRange>) -> Result<Response> {
        let mut request = self.client.get(self.address(location));
        if let Some(range) = range {
            request = request.header(RANGE, range.to_string());
        }
        checked(location, request.send().await.map_err(unanswered)?)
    }

    /// Downloads a file and keeps it.
    async fn keep(&self, location: &Path, mut response: Response) -> Result<Kept> {
        let room = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            MAX_KEPT_BYTES.saturating_sub(kept.values().map(|kept| kept.bytes.len()).sum())
        };
        let too_large = || {
            permanent(format!(
                "the server sends only whole files, and this one has more than {} MiB; download it, and read the \
                 file",
                room >> 20
            ))
        };
        if response.content_length().is_some_and(|length| length > room as u64) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unanswered)? {
            if bytes.len() + chunk.len() > room {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        let kept = Kept { meta: meta(location, &response, bytes.len() as u64), bytes: bytes.into() };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(location.clone(), kept.clone());
        Ok(kept)
    }
}

#[async_trait]
impl ObjectStore for Web {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(location).cloned();
        if let Some(kept) = kept {
            return kept.answer(&options);
        }
        // The first byte says how long the file is, also where HEAD is not allowed.
        let first = GetRange::Bounded(0..1);
        let wanted = if options.head { Some(&first) } else { options.range.as_ref() };
        let response = self.ask(location, wanted).await?;
        let (range, size) = match (response.status(), content_range(&response)) {
            (StatusCode::PARTIAL_CONTENT, Some((range, size))) => (range, size),
            (StatusCode::RANGE_NOT_SATISFIABLE, Some((_, 0))) if options.head => (0..0, 0),
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => {
                return Err(permanent("the file is shorter than it was; run the query again"));
            }
            (StatusCode::OK, _) if wanted.is_none() && response.content_length().is_some() => {
                let size = response.content_length().unwrap_or_default();
                (0..size, size)
            }
            (StatusCode::OK, _) => return self.keep(location, response).await?.answer(&options),
            // A part of a file of unknown length.
            _ => {
                let response = self.ask(location, None).await?;
                return self.keep(location, response).await?.answer(&options);
            }
        };
        let meta = meta(location, &response, size);
        if options.if_match.is_some() && options.if_match != meta.e_tag {
            let path = location.to_string();
            return Err(Error::Precondition { path, source: "the file changed while it was read".into() });
        }
        if options.head {
            return Ok(result(meta, 0..0, stream::empty().boxed()));
        }
        Ok(result(meta, range, response.bytes_stream().map_err(unanswered).boxed()))
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::once(async { Err(read_only()) }).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { Err(unlisted()) }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(unlisted())
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use object_store::ObjectStoreExt;

    use super::*;

    /// Answers requests in order, and returns the ranges that they ask for.
    fn server(answers: &[&str]) -> (Arc<dyn ObjectStore>, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let answers: Vec<String> = answers.iter().map(|answer| answer.to_string()).collect();
        let served = std::thread::spawn(move || {
            let served = answers.iter().map(|answer| {
                let mut stream = listener.accept().unwrap().0;
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                let range = text.lines().find_map(|line| line.strip_prefix("range: ")).unwrap_or("all");
                format!("{} {range}", text.split(' ').nth(1).unwrap_or_default())
            });
            served.collect()
        });
        (open(&url, Arc::new(|_| ())).unwrap(), served)
    }

    fn part(range: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 206 x\r\nConnection: close\r\nContent-Range: bytes {range}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    #[tokio::test]
    async fn parts_are_ranges_and_the_first_byte_says_the_size() {
        let (store, served) = server(&[&part("0-0/11", "h"), &part("6-10/11", "world")]);
        let place = Path::parse("a%20b.csv").unwrap();
        assert_eq!(store.head(&place).await.unwrap().size, 11);
        assert_eq!(store.get_range(&place, 6..11).await.unwrap(), "world");
        assert_eq!(served.join().unwrap(), ["/a%20b.csv bytes=0-0", "/a%20b.csv bytes=6-10"]);
    }

    #[tokio::test]
    async fn file_of_a_server_without_ranges_is_asked_for_once() {
        let (store, served) = server(&["HTTP/1.1 200 x\r\nConnection: close\r\n\r\nhello world"]);
        let place = Path::parse("a").unwrap();
        assert_eq!(store.head(&place).await.unwrap().size, 11);
        assert_eq!(store.get_range(&place, 6..11).await.unwrap(), "world");
        assert_eq!(store.get(&place).await.unwrap().bytes().await.unwrap(), "hello world");
        assert_eq!(served.join().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn query_is_sent_and_not_shown() {
        let (store, served) = server(&["HTTP/1.1 403 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]);
        let place = Path::parse(location("a//b/c.csv?sig=hunter2/..//")).unwrap();
        assert_eq!((place.filename(), path(place.as_ref())), (Some("c.csv"), "a/b/c.csv"));
        let error = store.head(&place).await.unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }) && !error.to_string().contains("hunter2"));
        assert_eq!(served.join().unwrap(), ["/a//b/c.csv?sig=hunter2/..// bytes=0-0"]);
    }

    #[test]
    fn redirect_leaves_http_only() {
        let url = |text: &str| Url::parse(text).unwrap();
        let error = insecure_redirect(&url("https://u:hunter2@a/x?hunter2"), &url("http://b:1/y?hunter2"));
        assert_eq!(error.as_deref(), Some("https://a redirects to http://b:1, which is not encrypted"));
        for (from, to) in [("http://a", "http://b"), ("http://a", "https://a"), ("https://a", "https://b")] {
            assert_eq!(insecure_redirect(&url(from), &url(to)), None);
        }
    }

    #[test]
    fn time_of_a_header_is_converted() {
        assert_eq!(timestamp("Sun, 06 Nov 1994 08:49:37 GMT").as_deref(), Some("1994-11-06T08:49:37Z"));
        assert_eq!(timestamp("yesterday"), None);
    }
}
