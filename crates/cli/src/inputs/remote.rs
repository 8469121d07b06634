//! Fetches event logs and traces from an object store, a web server or a History Server.
//!
//! Each log is downloaded completely into a temporary folder before it is read, so that an
//! interrupted transfer is not mistaken for a truncated log.

use super::Input;
use crate::failure::Failure;
use crate::temporary;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use pellucid_sparklog::{archive, layout};
use pellucid_storage::pattern::fits;
use pellucid_storage::{shown, web};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path};
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;
use url::Url;

/// Limits of a download from a web server, which may be slow or hostile.
struct Limits {
    /// Timeout of opening a connection.
    connect_timeout: Duration,
    /// Timeout of waiting for the next bytes.
    read_timeout: Duration,
    /// Maximum bytes of the download, and of the files that its archive contains.
    bytes: u64,
}

/// A History Server may take a minute before it sends the first byte of a large log.
const LIMITS: Limits = Limits {
    connect_timeout: Duration::from_secs(10),
    read_timeout: Duration::from_secs(120),
    bytes: 32 << 30,
};

/// Fetches the logs that a URL names.
pub fn find(text: &str) -> Result<Vec<Input>, Failure> {
    let place = shown(text);
    let url = Url::parse(text).map_err(|error| Failure::Usage(format!("invalid URL {place}: {error}")))?;
    let folder = temporary::folder("pellucid-")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot fetch {place}: {error}")))?;
    let parent = match url.scheme() {
        "http" | "https" => {
            runtime.block_on(from_history_server(&url, folder.path(), &LIMITS)).map(|()| None)?
        }
        _ => Some(runtime.block_on(from_store(&url, folder.path()))?),
    };
    inputs(&place, parent.as_deref(), folder)
}

/// Returns the fetched logs. `parent` is the URL of the folder that contains the fetched paths;
/// `None` means that all files belong to one log, which is named by `url`.
fn inputs(url: &str, parent: Option<&str>, folder: TempDir) -> Result<Vec<Input>, Failure> {
    let logs = layout::local(folder.path()).map_err(|error| Failure::file("read", url, &error))?;
    if logs.is_empty() {
        return Err(Failure::Failed(format!(
            "found no trace or event log at {url}; check the bucket and path"
        )));
    }
    let folder = Rc::new(folder);
    let input = |files: layout::LogFiles| {
        let inside = Path::new(&files.name).strip_prefix(folder.path()).unwrap_or(Path::new(""));
        let below = |parent: &str| format!("{parent}/{}", inside.display());
        let name = parent.map_or_else(|| url.trim_end_matches('/').to_owned(), below);
        Input::new(name, files, Some(Rc::clone(&folder)))
    };
    logs.into_iter().map(input).collect()
}

/// Fetches all objects at or below a path of an object store, or that match its pattern. Returns
/// the URL of the folder that contains the fetched paths.
async fn from_store(url: &Url, folder: &Path) -> Result<String, Failure> {
    let failed = |error: String| Failure::Failed(format!("cannot read {}: {error}", shown(url.as_str())));
    let store = pellucid_storage::open(url).map_err(|error| Failure::Failed(error.to_string()))?;
    let wanted = percent_decoded(url.path().trim_matches('/'));
    let fixed = wanted.split('/').take_while(|name| !name.contains(['*', '?'])).collect::<Vec<_>>().join("/");
    let prefix = object_store::path::Path::from(fixed.clone());
    let mut found: Vec<_> = match store.head(&prefix).await {
        Ok(only) => vec![only],
        Err(_) => store.list(Some(&prefix)).try_collect().await.map_err(|error| failed(error.to_string()))?,
    };
    found.retain(|object| within(&wanted, object.location.as_ref()));
    let parent = fixed.rsplit_once('/').map_or("", |(parent, _)| parent);
    for object in found {
        let name = object.location.as_ref();
        let name = name.strip_prefix(parent).unwrap_or(name).trim_start_matches('/');
        let mut file = create(folder, name)?;
        let got = store.get(&object.location).await.map_err(|error| failed(error.to_string()))?;
        let mut chunks = got.into_stream();
        while let Some(chunk) = chunks.try_next().await.map_err(|error| failed(error.to_string()))? {
            file.write_all(&chunk).map_err(|error| Failure::file("write", name, &error))?;
        }
    }
    let bucket = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    Ok(if parent.is_empty() { bucket } else { format!("{bucket}/{parent}") })
}

/// Returns whether a path or pattern matches an object, or a folder that contains it.
fn within(wanted: &str, object: &str) -> bool {
    let mut names = object.split('/');
    wanted.split('/').filter(|name| !name.is_empty()).all(|name| names.next().is_some_and(|n| fits(name, n)))
}

fn percent_decoded(path: &str) -> String {
    let plain = object_store::path::Path::from_url_path(path);
    plain.map_or_else(|_| path.to_owned(), |plain| plain.to_string())
}

/// Fetches a log through the REST API of a History Server, or as a file from a web server.
async fn from_history_server(url: &Url, folder: &Path, limits: &Limits) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let way_out = match error.kind() {
            ErrorKind::FileTooLarge => "download it, and pass the file",
            _ => {
                "pass http://HOST:18080/history/APPLICATION of a History Server (the UI of a running \
                 application does not serve its log)"
            }
        };
        Failure::Failed(format!("cannot read {}: {error}; {way_out}", shown(url.as_str())))
    };
    let other = |error: reqwest::Error| failed(io::Error::other(cause(error, limits)));
    let download = download_url(url);
    let sent = client(limits).map_err(other)?.get(download.clone()).send().await;
    let mut response = sent.and_then(reqwest::Response::error_for_status).map_err(other)?;
    if response.content_length().is_some_and(|length| length > limits.bytes) {
        return Err(failed(too_large(limits.bytes)));
    }
    let name =
        download.path_segments().and_then(Iterator::last).filter(|name| !name.is_empty()).unwrap_or("log");
    let mut file = create(folder, name)?;
    let mut left = limits.bytes;
    while let Some(chunk) = response.chunk().await.map_err(other)? {
        left = left.checked_sub(chunk.len() as u64).ok_or_else(|| failed(too_large(limits.bytes)))?;
        file.write_all(&chunk).map_err(|error| Failure::file("write", name, &error))?;
    }
    unpack(&mut file, folder, name, limits.bytes).map_err(failed)
}

/// Returns a client that sends the URL's user and password to the URL's host only. `reqwest` removes them from
/// a request that is redirected to another host.
fn client(limits: &Limits) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .connect_timeout(limits.connect_timeout)
        .read_timeout(limits.read_timeout)
        .redirect(web::redirects())
        // The header would contain the query, which may hold a signature.
        .referer(false)
        .build()
}

/// Describes an error with its causes, without the URL.
fn cause(error: reqwest::Error, limits: &Limits) -> String {
    if error.is_timeout() {
        return format!(
            "timed out waiting for the server ({:?} to connect, {:?} for data)",
            limits.connect_timeout, limits.read_timeout
        );
    }
    let error = error.without_url();
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    message
}

fn too_large(limit: u64) -> io::Error {
    let limit = match limit >> 30 {
        0 => format!("{limit} bytes"),
        gib => format!("{gib} GiB"),
    };
    io::Error::new(ErrorKind::FileTooLarge, format!("the log exceeds the limit of {limit} for downloads"))
}

/// Converts the URL of a History Server page to `…/api/v1/applications/ID[/ATTEMPT]/logs`. Returns other
/// URLs unchanged.
fn download_url(url: &Url) -> Url {
    let segments: Vec<&str> = url.path_segments().into_iter().flatten().filter(|s| !s.is_empty()).collect();
    let place = segments.iter().rposition(|segment| matches!(*segment, "history" | "applications"));
    let Some((place, id)) = place.and_then(|at| segments.get(at + 1).map(|id| (at, *id))) else {
        return url.clone();
    };
    let before = if segments[place] == "history" { place } else { place.saturating_sub(2) };
    let attempt = segments.get(place + 2).filter(|attempt| attempt.parse::<u32>().is_ok());
    let mut path: Vec<&str> = segments[..before].to_vec();
    path.extend(["api", "v1", "applications", id]);
    path.extend(attempt);
    path.push("logs");
    let mut download = url.clone();
    download.set_path(&path.join("/"));
    download.set_query(None);
    download.set_fragment(None);
    download
}

/// Replaces an archive with its entries, of at most `limit` bytes. Leaves other files unchanged.
fn unpack(file: &mut File, folder: &Path, name: &str, limit: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut archive = File::open(folder.join(name))?;
    let Ok(entries) = archive::entries(&mut archive) else { return Ok(()) };
    std::fs::remove_file(folder.join(name))?;
    let mut left = limit;
    for entry in entries {
        let mut to = create(folder, &entry.name)
            .map_err(|_| io::Error::other("an entry's path leaves the archive"))?;
        let mut content = archive::open(&mut archive, &entry)?.take(left.saturating_add(1));
        let copied = io::copy(&mut content, &mut to)?;
        left = left.checked_sub(copied).ok_or_else(|| too_large(limit))?;
    }
    Ok(())
}

/// Creates a file below the folder. Rejects names that would escape it.
fn create(folder: &Path, name: &str) -> Result<File, Failure> {
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || name.is_empty() {
        return Err(Failure::Failed(format!("invalid file name {name:?} in the log")));
    }
    let path = folder.join(name);
    let made = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| File::options().read(true).write(true).create(true).truncate(true).open(&path));
    made.map_err(|error| Failure::file("write", path.display(), &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn history_server_pages_map_to_download_urls() {
        for (page, download) in [
            ("http://h:18080/history/app-1/jobs/", "http://h:18080/api/v1/applications/app-1/logs"),
            (
                "http://h:18080/history/application_1_2/1/stages/?x=1",
                "http://h:18080/api/v1/applications/application_1_2/1/logs",
            ),
            ("https://h/gw/shs/api/v1/applications/app-1", "https://h/gw/shs/api/v1/applications/app-1/logs"),
            ("http://h/logs/app-1.zstd", "http://h/logs/app-1.zstd"),
        ] {
            assert_eq!(download_url(&Url::parse(page).expect("a URL")).as_str(), download);
        }
    }

    /// Fetches a log from a server that answers one request. Returns the error's message.
    fn fetched(answer: &'static str, bytes: u64) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().expect("a connection").0;
            let _ = stream.read(&mut [0; 4096]);
            // The client may have closed the connection.
            let _ = stream.write_all(answer.as_bytes());
            // Without an answer, keeps the connection open until the client gives up.
            let _ = stream.read(&mut [0; 1]);
        });
        let folder = tempfile::tempdir().expect("a folder");
        let url = Url::parse(&format!("http://user:hunter2@{address}/log?key=hunter2")).expect("a URL");
        let limits = Limits { read_timeout: Duration::from_millis(100), bytes, ..LIMITS };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let result = runtime.block_on(from_history_server(&url, folder.path(), &limits));
        drop(runtime);
        server.join().expect("served");
        result.map_err(|failure| {
            let message = failure.message().unwrap_or_default().to_string();
            assert!(message.starts_with(&format!("cannot read http://{address}/log: ")), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
            message
        })
    }

    #[test]
    fn download_over_the_limit_names_the_limit() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nlong text",
        ] {
            let error = fetched(answer, 8).expect_err("too large");
            assert!(error.contains("exceeds the limit of 8 bytes"), "{error}");
        }
        assert_eq!(fetched("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nall of it", 8), Ok(()));
    }

    #[test]
    fn silent_server_times_out() {
        let error = fetched("", 8).expect_err("no answer");
        assert!(
            error.contains("timed out waiting for the server (10s to connect, 100ms for data)"),
            "{error}"
        );
    }

    #[test]
    fn archive_over_the_limit_names_the_limit() {
        // A stored entry `a` of 7 bytes, the directory, and its end.
        let local = [&b"PK\x03\x04"[..], &[0; 22], &[1, 0, 0, 0], b"a", b"content"].concat();
        let size = [7, 0, 0, 0];
        let entry = [&b"PK\x01\x02"[..], &[0; 16], &size, &size, &[1, 0], &[0; 16], b"a"].concat();
        let (length, at) = ((entry.len() as u32).to_le_bytes(), (local.len() as u32).to_le_bytes());
        let end = [&b"PK\x05\x06"[..], &[0; 8], &length, &at, &[0, 0]].concat();
        let unpacked = |limit| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut file = create(folder.path(), "log").expect("a file");
            file.write_all(&[&local[..], &entry, &end].concat()).expect("written");
            unpack(&mut file, folder.path(), "log", limit)?;
            std::fs::read_to_string(folder.path().join("a"))
        };
        assert_eq!(unpacked(7).expect("within the limit"), "content");
        let error = unpacked(6).expect_err("too large").to_string();
        assert!(error.contains("exceeds the limit of 6 bytes"), "{error}");
    }

    #[test]
    fn names_that_escape_the_folder_are_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["../x", "/etc/x", "a/../../x", ""] {
            assert!(create(folder.path(), name).is_err(), "{name}");
        }
        assert!(create(folder.path(), "a/b/c").is_ok());
    }

    #[test]
    fn within_matches_paths_and_patterns() {
        assert!(within("logs", "logs/app-1") && within("logs/app-*", "logs/app-1/events_1"));
        assert!(!within("logs/app-1", "logs/app-10") && within("", "a"));
    }
}
