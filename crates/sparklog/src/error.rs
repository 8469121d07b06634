//! Errors for logs that cannot be read at all. Partial damage becomes a warning in the trace instead.

use std::{fmt, io};

/// An error that prevents reading a log.
#[derive(Debug)]
pub enum Error {
    /// The first bytes of a part could not be read.
    Io {
        /// Name of the part.
        name: String,
        /// The underlying error.
        source: io::Error,
    },
    /// The contents need more memory than the [budget](pellucid_trace::budget) allows.
    TooLarge {
        /// Name of the part that exceeds it.
        name: String,
        /// The limit.
        why: String,
    },
    /// The log is truncated or damaged before its first event.
    Truncated {
        /// The part and the position of the damage.
        why: String,
    },
    /// The input contains no Spark events.
    NotAnEventLog {
        /// Name of the first part.
        name: String,
        /// Content of the input.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { name, source } => {
                write!(f, "cannot read {name}: {source}; check the path and its permissions")
            }
            Error::TooLarge { name, why } => write!(
                f,
                "cannot read {name}: {why}; the log is damaged or crafted: copy it again from spark.eventLog.dir, \
                 or decompress it first if it is genuine"
            ),
            Error::Truncated { why } => write!(
                f,
                "cannot read any Spark event: {why}; copy the log again, or wait until Spark has written more"
            ),
            Error::NotAnEventLog { name, why } => write!(
                f,
                "{name} is not a Spark event log: {why}; pass a log from spark.eventLog.dir, or a trace from \
                 `pellucid sql --trace`"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::TooLarge { .. } | Error::Truncated { .. } | Error::NotAnEventLog { .. } => None,
        }
    }
}
