//! The error type.

use std::fmt;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

/// The reason why a table could not be read or written in another layout.
#[derive(Debug)]
pub enum LayoutError {
    /// The caller cancelled.
    Cancelled,
    /// A file could not be read or written.
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// A column does not have the type of the layout.
    Type(String),
    /// A sample could not be decoded or encoded.
    Sample(String),
}

impl LayoutError {
    /// Returns a closure that names the file of an error.
    pub(crate) fn at<E: fmt::Display>(action: &'static str, path: &Path) -> impl Fn(E) -> LayoutError {
        move |error| LayoutError::File { action, path: path.to_path_buf(), cause: error.to_string() }
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Cancelled => f.write_str("interrupted"),
            LayoutError::File { action, path, cause } => {
                let way_out = match *action {
                    "read" => "check the file",
                    _ => "free some space, or choose another folder",
                };
                write!(f, "cannot {action} {}: {cause}; {way_out}", path.display())
            }
            LayoutError::Type(cause) => write!(f, "cannot rewrite the table: {cause}; leave out this change"),
            LayoutError::Sample(cause) => {
                write!(f, "cannot measure a sample of the table: {cause}; check its files")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

impl From<ParquetError> for LayoutError {
    fn from(error: ParquetError) -> Self {
        LayoutError::Sample(error.to_string())
    }
}

impl From<ArrowError> for LayoutError {
    fn from(error: ArrowError) -> Self {
        LayoutError::Sample(error.to_string())
    }
}
