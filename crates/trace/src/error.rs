//! What can go wrong with a trace. Every message says what, where, and the way out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::{FORMAT_MAJOR, Trace};

/// Why a trace could not be written or read.
///
/// `path` is `None` where the trace did not come from a file.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be created, opened or read.
    Io {
        /// The file.
        path: Option<PathBuf>,
        /// What was tried: `create`, `read`.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Writing failed on the way (disk full, file system gone). The job went on.
    NotWritten {
        /// The file; it holds what was written before the failure, in whole blocks.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What was kept in memory: everything, if the recorder was told to keep.
        kept: Box<Trace>,
    },
    /// The file does not begin as a trace does.
    NotATrace {
        /// The file.
        path: Option<PathBuf>,
        /// What it begins with instead.
        why: String,
    },
    /// A later major version of Pellucid wrote it.
    NewerMajor {
        /// The file.
        path: Option<PathBuf>,
        /// Its `format`.
        format: String,
    },
    /// A whole block holds a line that is no record, or one that breaks the format.
    Malformed {
        /// The file.
        path: Option<PathBuf>,
        /// Line of the decompressed file, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A record that cannot follow those before it (an index that was not registered).
    Invalid {
        /// What is wrong with it.
        why: String,
    },
    /// `finish` was called before.
    Finished,
}

/// ` /path/to/it`, or nothing for a trace that is not a file.
fn at(path: &Option<PathBuf>) -> String {
    path.as_deref().map(|p: &Path| format!(" {}", p.display())).unwrap_or_default()
}

/// What the user can do about an I/O error, by its kind.
fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, or give --trace a path on another disk"
        }
        io::ErrorKind::NotFound => "check the path; a trace's folder must exist before",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a path that you may use, or change its permissions"
        }
        io::ErrorKind::IsADirectory => "give the path of a file, not of a folder",
        _ => "check the disk that it is on, or choose another path",
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io { path, action, source } => {
                write!(f, "cannot {action} trace{}: {source}; {}", at(path), way_out(source))
            }
            TraceError::NotWritten { path, source, .. } => write!(
                f,
                "trace {} is not whole: {source}; the job was not affected; {}",
                path.display(),
                way_out(source)
            ),
            TraceError::NotATrace { path, why } => {
                let name = path.as_deref().map(|p: &Path| format!("{} is ", p.display())).unwrap_or_default();
                write!(f, "{name}not a Pellucid trace: {why}; pass a file that `--trace` wrote")
            }
            TraceError::NewerMajor { path, format } => write!(
                f,
                "trace{} has format `{format}`, this build reads up to major version \
                 {FORMAT_MAJOR}; upgrade pellucid to read it",
                at(path)
            ),
            TraceError::Malformed { path, line, why } => write!(
                f,
                "trace{}, line {line}: {why}; look at it with `zstdcat TRACE | sed -n {line}p` \
                 and report it to whoever wrote the trace",
                at(path)
            ),
            TraceError::Invalid { why } => {
                write!(f, "record does not fit its trace: {why}; register an entity before what refers to it")
            }
            TraceError::Finished => {
                write!(f, "this recorder was finished before; start another for another trace")
            }
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io { source, .. } | TraceError::NotWritten { source, .. } => Some(source),
            _ => None,
        }
    }
}
