//! The error type of commands, with an exit code for each variant.
//!
//! Every command returns `Result<(), Failure>`. Only `main` prints and exits, so that
//! destructors run first and temporary files are removed.

use pellucid_layout::LayoutError;
use pellucid_trace::TraceError;
use std::fmt::Display;
use std::io;

/// An error that ends a command.
#[derive(Debug)]
pub enum Failure {
    /// The request is invalid: exit code 2.
    Usage(String),
    /// A valid request failed: exit code 1.
    Failed(String),
    /// Ctrl-C or a termination signal: exit code 130, nothing printed.
    Interrupted,
    /// The reader of standard output closed the pipe (`| head`): exit code 0, nothing printed.
    BrokenPipe,
}

impl Failure {
    /// Returns the exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) => 1,
            Failure::Interrupted => 130,
            Failure::BrokenPipe => 0,
        }
    }

    /// Returns the message to print, if any.
    pub fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => Some(message),
            Failure::Interrupted | Failure::BrokenPipe => None,
        }
    }

    /// Converts an error from writing to standard output.
    pub fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::Failed(format!("cannot write to standard output: {error}"))
        }
    }

    /// Returns the failure of an operation on a file: `cannot read data/a.sql: …`, with a
    /// remedy for common causes.
    pub fn file(action: &str, path: impl Display, error: &io::Error) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free some space or choose another location"
            }
            io::ErrorKind::PermissionDenied => "; check its permissions (`ls -l`)",
            io::ErrorKind::NotFound => "; check the path",
            _ => "",
        };
        Failure::Failed(format!("cannot {action} {path}: {error}{remedy}"))
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        match error {
            TraceError::Occupied { .. } => Failure::Usage(error.to_string()),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::Cancelled => Failure::Interrupted,
            error => Failure::Failed(error.to_string()),
        }
    }
}
