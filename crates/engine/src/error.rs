//! What goes wrong, in words: what, with what, and the way out.

use std::fmt;

use datafusion::common::DataFusionError;
use pellucid_runtime::{Error, JobError};

/// Why a query did not end well. The command line exits with 2, 1 and 130.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// The query or an option is wrong: it cannot succeed as it is.
    Usage(String),
    /// It went wrong on the way.
    Failed(String),
    /// It was cancelled.
    Cancelled,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(words) | Self::Failed(words) => f.write_str(words),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        if is_cancelled(&error) {
            return Self::Cancelled;
        }
        let words = words(&error);
        match error.find_root() {
            DataFusionError::SQL(..) | DataFusionError::SchemaError(..) | DataFusionError::Plan(_) => {
                Self::Usage(words)
            }
            _ => Self::Failed(words),
        }
    }
}

impl From<JobError> for EngineError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Cancelled => Self::Cancelled,
            JobError::Failed(error) => from_runtime(error),
        }
    }
}

/// A failure that the runtime hands back: DataFusion's, or its own.
pub(crate) fn from_runtime(error: Error) -> EngineError {
    match error.downcast::<DataFusionError>() {
        Ok(error) => (*error).into(),
        Err(error) => EngineError::Failed(error.to_string()),
    }
}

fn is_cancelled(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(e) if e.is::<pellucid_runtime::Cancelled>())
}

/// The message, contexts first, without DataFusion's own headings, and the way out where
/// there is one.
fn words(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Context(context, inner) => format!("{context}: {}", words(inner)),
        DataFusionError::Diagnostic(_, inner) => words(inner),
        DataFusionError::Shared(inner) => words(inner),
        DataFusionError::ArrowError(inner, _) => inner.to_string(),
        DataFusionError::ParquetError(inner) => inner.to_string(),
        DataFusionError::ObjectStore(inner) => store(inner),
        DataFusionError::External(inner) => inner
            .downcast_ref::<DataFusionError>()
            .map_or_else(|| inner.to_string(), words),
        DataFusionError::SQL(inner, _) => {
            let text = inner.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            format!("the SQL does not parse: {text}")
        }
        DataFusionError::ResourcesExhausted(text) => format!(
            "not enough memory: {}; allow more with --memory, or lower --partitions and --cores",
            first_line(text)
        ),
        DataFusionError::SchemaError(inner, _) => inner.to_string(),
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Configuration(text) => text.clone(),
        other => other.strip_backtrace(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

fn store(error: &object_store::Error) -> String {
    match error {
        object_store::Error::NotFound { path, .. } => {
            format!("{path}: no such file or object; check the path")
        }
        object_store::Error::PermissionDenied { path, source } => format!(
            "{path}: permission denied; check the file's mode, or the store's credentials ({source})"
        ),
        object_store::Error::Unauthenticated { path, source } => format!(
            "{path}: the store does not know who asks; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY ({source})"
        ),
        other => other.to_string(),
    }
}
