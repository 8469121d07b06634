//! How a command ends when it does not end well, and the exit code of each.
//!
//! Every command returns `Result<(), Failure>`; only `main` prints and exits, so
//! that destructors run first and nothing is left behind.

use std::fmt::Display;
use std::io;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// The request itself is wrong: exit code 2.
    Usage(String),
    /// It was right and went wrong: exit code 1.
    Failed(String),
    /// Ctrl-C or a termination signal: exit code 130, nothing printed.
    Interrupted,
    /// Whoever read standard output has enough (`| head`): a quiet end, exit code 0.
    ReaderGone,
}

impl Failure {
    /// The exit code that the command line promises.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) => 1,
            Failure::Interrupted => 130,
            Failure::ReaderGone => 0,
        }
    }

    /// What to tell the user, if there is anything to tell.
    pub fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => Some(message),
            Failure::Interrupted | Failure::ReaderGone => None,
        }
    }

    /// What an error on standard output means.
    pub fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::ReaderGone
        } else {
            Failure::Failed(format!("cannot write to standard output: {error}"))
        }
    }

    /// A failure while doing something to a file: `cannot read data/a.sql: …`, with
    /// the way out for the causes that have one.
    pub fn file(action: &str, path: impl Display, error: &io::Error) -> Self {
        let way_out = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free some space there or choose another place"
            }
            io::ErrorKind::PermissionDenied => "; check its permissions (`ls -l`)",
            io::ErrorKind::NotFound => "; check the path",
            _ => "",
        };
        Failure::Failed(format!("cannot {action} {path}: {error}{way_out}"))
    }
}
