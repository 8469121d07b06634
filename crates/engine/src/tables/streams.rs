//! Pipes as files: `/dev/stdin`, `-`, `/dev/fd/N` and named pipes.
//!
//! A pipe can be read only once and from its start, and a table is read more than once: first its columns, then its
//! rows. A pipe is therefore copied to a temporary file when a statement first names it, and stays the same for all
//! statements of the session. The file has no name in its folder, so it disappears with the process.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result};
use tokio::sync::Mutex;

use crate::EngineError;

/// The pipes that a session has read.
#[derive(Debug)]
pub(crate) struct Streams {
    /// True if the statements are read from standard input.
    stdin_taken: bool,
    copies: Mutex<HashMap<PathBuf, File>>,
}

const STDIN: &str = "/dev/stdin";

/// Returns the pipe that a place names.
fn stream(place: &str) -> Option<&Path> {
    if ["-", STDIN, "/dev/fd/0", "/proc/self/fd/0"].contains(&place) {
        return Some(Path::new(STDIN));
    }
    let is_pipe = || {
        let kind = std::fs::metadata(place).ok()?.file_type();
        Some(kind.is_fifo() || kind.is_socket())
    };
    let pipe = !place.contains("://") && (place.starts_with("/dev/fd/") || is_pipe() == Some(true));
    pipe.then_some(Path::new(place))
}

/// Returns true for a place that can be read only once.
pub(crate) fn is_stream(place: &str) -> bool {
    stream(place).is_some()
}

impl Streams {
    pub(crate) fn new(stdin_taken: bool) -> Self {
        Self { stdin_taken, copies: Mutex::default() }
    }

    /// Returns the copy of a pipe, which is made at its first use; `None` for another place.
    ///
    /// # Errors
    /// Returns an error if the pipe cannot be read or copied, or the statements are read from it.
    pub(crate) async fn copy(&self, place: &str) -> Result<Option<PathBuf>> {
        let Some(source) = stream(place) else { return Ok(None) };
        if self.stdin_taken && source == Path::new(STDIN) {
            return Err(DataFusionError::Plan(format!(
                "cannot read {place}: the statements are read from standard input; pass them as an argument, or with \
                 -f FILE"
            )));
        }
        let mut copies = self.copies.lock().await;
        if !copies.contains_key(source) {
            let (shown, from) = (place.to_string(), source.to_path_buf());
            let copied = tokio::task::spawn_blocking(move || copied(&shown, &from)).await;
            let file = copied.map_err(|error| DataFusionError::External(Box::new(error)))??;
            copies.insert(source.to_path_buf(), file);
        }
        Ok(copies.get(source).map(path))
    }

    /// Returns a message that names pipes instead of their copies.
    fn named(&self, mut message: String) -> String {
        // Another statement is waiting for a pipe.
        let Ok(copies) = self.copies.try_lock() else { return message };
        let mut names: Vec<(String, String)> = copies
            .iter()
            .map(|(source, file)| (path(file).display().to_string(), source.display().to_string()))
            .collect();
        // A path may be the start of a longer one.
        names.sort_by_key(|(copy, _)| std::cmp::Reverse(copy.len()));
        for (copy, source) in names {
            message = message.replace(&copy, &source);
        }
        message
    }
}

/// Returns the path of a file without a name.
fn path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns an error that names pipes instead of their copies.
pub(crate) fn named(state: &dyn Session, error: EngineError) -> EngineError {
    let Some(streams) = state.config().get_extension::<Streams>() else { return error };
    match error {
        EngineError::Syntax(message) => EngineError::Syntax(streams.named(message)),
        EngineError::Usage(message) => EngineError::Usage(streams.named(message)),
        EngineError::Failed(message) => EngineError::Failed(streams.named(message)),
        EngineError::Cancelled => EngineError::Cancelled,
    }
}

/// Copies a pipe to a file without a name.
fn copied(place: &str, source: &Path) -> Result<File> {
    let no_room = |error: io::Error| {
        let folder = std::env::temp_dir();
        let message = format!(
            "cannot read {place}: cannot copy it to {}: {error}; set TMPDIR to another folder",
            folder.display()
        );
        DataFusionError::Execution(message)
    };
    let mut file = tempfile::tempfile().map_err(no_room)?;
    let read = match source == Path::new(STDIN) {
        true => io::copy(&mut io::stdin().lock(), &mut file),
        false => File::open(source).and_then(|mut pipe| io::copy(&mut pipe, &mut file)),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::StorageFull => no_room(error),
        _ => DataFusionError::Execution(format!("cannot read {place}: {error}; check the pipe")),
    })?;
    Ok(file)
}

/// Returns the path to read a place by: that of its copy for a pipe.
///
/// # Errors
/// Returns an error if a pipe cannot be read.
pub(crate) async fn readable(state: &dyn Session, place: &str) -> Result<String> {
    let streams = state.config().get_extension::<Streams>();
    let copy = match streams {
        Some(streams) => streams.copy(place).await?,
        None => None,
    };
    Ok(copy.map_or_else(|| place.to_string(), |copy| copy.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pipe_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let place = pipe.display().to_string();
        let writer = std::thread::spawn(move || std::fs::write(pipe, "x\n1\n").unwrap());
        let streams = Streams::new(true);
        let copy = streams.copy(&place).await.unwrap().unwrap();
        writer.join().unwrap();
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "x\n1\n");
        assert_eq!(streams.copy(&place).await.unwrap(), Some(copy));
        assert_eq!(streams.copy("a.csv").await.unwrap(), None);
        let error = streams.copy("-").await.unwrap_err().to_string();
        assert!(error.contains("the statements are read from standard input"), "{error}");
    }
}
