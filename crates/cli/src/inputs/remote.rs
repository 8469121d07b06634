//! Fetches event logs and traces from an object store, a web server or a History Server.
//!
//! Each log is downloaded completely into a temporary folder before it is read, so that an
//! interrupted transfer is not mistaken for a truncated log.

use super::Input;
use crate::failure::Failure;
use crate::interrupt;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use pellucid_sparklog::{archive, layout};
use pellucid_storage::pattern::fits;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Component, Path};
use std::rc::Rc;
use tempfile::TempDir;
use url::Url;

/// Fetches the logs that a URL names.
pub fn find(text: &str) -> Result<Vec<Input>, Failure> {
    let url = Url::parse(text).map_err(|error| Failure::Usage(format!("invalid URL {text}: {error}")))?;
    let folder =
        tempfile::tempdir().map_err(|error| Failure::file("create", "a temporary folder", &error))?;
    interrupt::temporary(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot fetch {text}: {error}")))?;
    let parent = match url.scheme() {
        "http" | "https" => runtime.block_on(from_history_server(&url, folder.path())).map(|()| None)?,
        _ => Some(runtime.block_on(from_store(&url, folder.path()))?),
    };
    inputs(text, parent.as_deref(), folder)
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
    let failed = |error: String| Failure::Failed(format!("cannot read {url}: {error}"));
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
async fn from_history_server(url: &Url, folder: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!(
            "cannot read {url}: {error}; pass http://HOST:18080/history/APPLICATION of a History Server \
             (the UI of a running application does not serve its log)"
        ))
    };
    let download = download_url(url);
    let response = reqwest::get(download.clone()).await.and_then(reqwest::Response::error_for_status);
    let mut response = response.map_err(|error| failed(&error))?;
    let name =
        download.path_segments().and_then(Iterator::last).filter(|name| !name.is_empty()).unwrap_or("log");
    let mut file = create(folder, name)?;
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
        file.write_all(&chunk).map_err(|error| Failure::file("write", name, &error))?;
    }
    unpack(&mut file, folder, name).map_err(|error| failed(&error))
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

/// Replaces an archive with its entries. Leaves other files unchanged.
fn unpack(file: &mut File, folder: &Path, name: &str) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut archive = File::open(folder.join(name))?;
    let Ok(entries) = archive::entries(&mut archive) else { return Ok(()) };
    std::fs::remove_file(folder.join(name))?;
    for entry in entries {
        let mut to = create(folder, &entry.name)
            .map_err(|_| io::Error::other("an entry's path leaves the archive"))?;
        io::copy(&mut archive::open(&mut archive, &entry)?, &mut to)?;
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
