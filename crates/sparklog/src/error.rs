//! Why a log could not be read at all. What is wrong with parts of one is said
//! in its trace's warnings instead.

use std::{fmt, io};

/// Why there is no trace. Every message says what, where, and the way out.
#[derive(Debug)]
pub enum Error {
    /// The first bytes of a part could not be read.
    Io {
        /// The part.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is cut or damaged before its first event.
    Cut {
        /// Which part, and where.
        why: String,
    },
    /// Nothing in it is an event of Spark.
    NotAnEventLog {
        /// The part that the log begins with.
        name: String,
        /// What it holds instead.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { name, source } => {
                write!(f, "cannot read {name}: {source}; check the path and its permissions")
            }
            Error::Cut { why } => write!(
                f,
                "cannot read an event of Spark: {why}; copy the log again, or wait until Spark has written more"
            ),
            Error::NotAnEventLog { name, why } => write!(
                f,
                "{name} is not a Spark event log: {why}; pass what Spark wrote to spark.eventLog.dir, \
                 or a trace that `pellucid sql --trace` wrote"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Cut { .. } | Error::NotAnEventLog { .. } => None,
        }
    }
}
