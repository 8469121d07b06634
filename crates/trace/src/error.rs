//! Errors of writing and reading traces. Every message names the cause, the place and a remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::FORMAT_MAJOR;
use crate::trace::Trace;

/// An error from writing or reading a trace.
///
/// `path` is `None` if the trace is not a file.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be created, opened or read.
    Io {
        /// The file.
        path: Option<PathBuf>,
        /// The attempted action: `create`, `read`.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Writing failed midway (disk full, file system gone). The job was not affected.
    NotWritten {
        /// The file; it holds the whole blocks written before the failure, or an older trace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// The records kept in memory: all of them if [`RecorderOptions::keep`](crate::RecorderOptions::keep) is set.
        kept: Box<Trace>,
    },
    /// A trace would replace a file that is not a trace.
    Occupied {
        /// The file.
        path: PathBuf,
    },
    /// The file does not start like a trace.
    NotATrace {
        /// The file.
        path: Option<PathBuf>,
        /// Cause.
        why: String,
    },
    /// The trace has a newer major version.
    NewerMajor {
        /// The file.
        path: Option<PathBuf>,
        /// The `format` of its header.
        format: String,
    },
    /// A whole block contains a line that is not a record, or a record that violates the format.
    Malformed {
        /// The file.
        path: Option<PathBuf>,
        /// Line of the decompressed file, from 1.
        line: u64,
        /// Cause.
        why: String,
    },
    /// The records need more memory than the [budget](crate::budget) allows.
    TooLarge {
        /// The file.
        path: Option<PathBuf>,
        /// The limit.
        why: String,
    },
    /// A record does not fit the preceding ones (it refers to an unregistered index).
    Invalid {
        /// Cause.
        why: String,
    },
    /// `finish` was called more than once.
    Finished,
}

/// Returns ` /path/to/trace`, or an empty string for a trace that is not a file.
fn at(path: &Option<PathBuf>) -> String {
    path.as_deref().map(|p: &Path| format!(" {}", p.display())).unwrap_or_default()
}

/// Returns the remedy for an I/O error by its kind.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space there, or give --trace a path on another disk"
        }
        io::ErrorKind::NotFound => "check the path; the folder of a trace must exist",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose an accessible path, or change its permissions"
        }
        io::ErrorKind::IsADirectory => "give the path of a file instead of a folder",
        _ => "check its disk, or choose another path",
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io { path, action, source } => {
                write!(f, "cannot {action} trace{}: {source}; {}", at(path), remedy(source))
            }
            TraceError::NotWritten { path, source, .. } => write!(
                f,
                "trace {} is incomplete: {source}; the job was not affected; {}",
                path.display(),
                remedy(source)
            ),
            TraceError::Occupied { path } => write!(
                f,
                "cannot write the trace to {}: it exists and is not a trace; choose another path, or remove the \
                 file first",
                path.display()
            ),
            TraceError::NotATrace { path, why } => {
                let name = path.as_deref().map(|p: &Path| format!("{} is ", p.display())).unwrap_or_default();
                write!(f, "{name}not a Pellucid trace: {why}; pass a file that `--trace` wrote")
            }
            TraceError::NewerMajor { path, format } => write!(
                f,
                "cannot read trace{}: this build supports format major version {FORMAT_MAJOR}, not `{format}`; \
                 upgrade pellucid",
                at(path)
            ),
            TraceError::Malformed { path, line, why } => write!(
                f,
                "malformed trace{}, line {line}: {why}; inspect it with `zstdcat TRACE | sed -n {line}p` \
                 and report it to the producer of the trace",
                at(path)
            ),
            TraceError::TooLarge { path, why } => write!(
                f,
                "cannot read trace{}: {why}; the trace is damaged or crafted, record it again",
                at(path)
            ),
            TraceError::Invalid { why } => {
                write!(f, "invalid record: {why}; register an entity before records that refer to it")
            }
            TraceError::Finished => {
                write!(f, "the recorder has already finished; start another one for another trace")
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
