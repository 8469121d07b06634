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
            DataFusionError::SQL(..)
            | DataFusionError::SchemaError(..)
            | DataFusionError::Plan(_)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Configuration(_) => Self::Usage(words),
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
        Err(error) => EngineError::Failed(deep(error.as_ref())),
    }
}

fn is_cancelled(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(e) if e.is::<pellucid_runtime::Cancelled>())
}

/// The message, contexts first, without DataFusion's own headings, and the way out where
/// there is one.
fn words(error: &DataFusionError) -> String {
    match error {
        // Which rule of the optimizer met a wrong expression says nothing about it.
        DataFusionError::Context(context, inner) if context.starts_with("Optimizer rule ") => words(inner),
        DataFusionError::Context(context, inner) => format!("{context}: {}", words(inner)),
        DataFusionError::Diagnostic(_, inner) => words(inner),
        DataFusionError::Shared(inner) => words(inner),
        DataFusionError::ArrowError(inner, _) => plain(&deep(inner.as_ref())),
        DataFusionError::ParquetError(inner) => deep(inner.as_ref()),
        DataFusionError::ObjectStore(inner) => store(inner),
        DataFusionError::External(inner) => deep(inner.as_ref()),
        DataFusionError::SQL(inner, _) => {
            let text = inner.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            // "… at Line: 2, Column: 14"
            let text = text.replace(" at Line: ", " at line ").replace(", Column: ", ", column ");
            let text = text.replace("found: EOF", "found the end of the text");
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
        | DataFusionError::Configuration(text) => plain(text),
        other => other.strip_backtrace(),
    }
}

/// DataFusion's words without those that speak of DataFusion, and with a way out where they
/// have none.
fn plain(text: &str) -> String {
    const FORMATS: &str = "STORED AS takes PARQUET, CSV, JSON and ARROW";
    if let Some(format) = text.strip_prefix("Unable to find factory for ") {
        return format!("{format} is no format that is known; {FORMATS}");
    }
    if let Some(ending) = text.strip_prefix("There is no registered file format with ext ") {
        return format!("{ending} is no ending that says the format; {FORMATS}");
    }
    if let Some((_, keys)) = text.split_once("Only UTF8 keys supported by JSON MapArray Writer: got ") {
        return format!(
            "cannot write a MAP with keys of type {keys} as JSON, whose keys are text; write Parquet, or print \
             the rows with --format json"
        );
    }
    // A wrong call of a function comes with its own heading in the middle of the text.
    let bug = "\nThis issue was likely caused by a bug in DataFusion's code";
    match text.split_once(bug) {
        Some((_, rest)) => rest.split_once("issues. ").map_or(text, |(_, rest)| rest).to_string(),
        None => text.to_string(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

/// What a store answered. `path` has the store's name in front, where it is a remote one.
fn store(error: &object_store::Error) -> String {
    use object_store::Error::{Generic, NotFound, PermissionDenied, Unauthenticated};
    match error {
        NotFound { path, .. } => format!("{path}: no such file or object; check the path"),
        PermissionDenied { path, source } if path.starts_with('/') => {
            format!("{path}: permission denied; check the file's mode ({source})")
        }
        PermissionDenied { path, source } => format!(
            "{path}: permission denied; check {}, and that the store lets them read and write there ({source})",
            credentials(path)
        ),
        Unauthenticated { path, source } => {
            format!("{path}: the store does not know who asks; check {} ({source})", credentials(path))
        }
        Generic { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// Where a store's client has its credentials from, by the store's URL.
fn credentials(path: &str) -> &'static str {
    match path.split_once("://") {
        Some(("swift", _)) => "ST_USER and ST_KEY, or OS_AUTH_TOKEN",
        Some(("hdfs", _)) => "HADOOP_USER_NAME or the Kerberos ticket",
        _ => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    }
}

/// The message of an error that may have a store's answer inside.
fn deep(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = Some(error);
    while let Some(e) = inner {
        if let Some(e) = e.downcast_ref::<object_store::Error>() {
            return store(e);
        }
        if let Some(e) = e.downcast_ref::<DataFusionError>() {
            return words(e);
        }
        // An I/O error names what it was made of as itself, and not as its source.
        inner = match e.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(made_of) => Some(made_of),
            None => e.source(),
        };
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_speak_of_the_query_and_not_of_datafusion() {
        let text = "Internal error: Function 'sum' failed: Plan.\nThis issue was likely caused by a bug in \
                    DataFusion's code. Please file it in our issue tracker: https://x/issues. No function matches";
        assert_eq!(plain(text), "No function matches");
        assert!(plain("Unable to find factory for XLSX").contains("PARQUET, CSV, JSON and ARROW"));
        let map = "Invalid argument error: Only UTF8 keys supported by JSON MapArray Writer: got Int64";
        assert!(plain(map).starts_with("cannot write a MAP with keys of type Int64 as JSON"));
        let error = DataFusionError::Execution("no".to_string()).context("Optimizer rule 'x' failed");
        assert_eq!(EngineError::from(error), EngineError::Failed("no".to_string()));
    }

    #[test]
    fn a_stores_answer_is_found_below_other_errors() {
        let refused =
            object_store::Error::PermissionDenied { path: "s3://b/k".to_string(), source: "403".into() };
        let below = DataFusionError::External(Box::new(std::io::Error::other(refused)));
        let words = EngineError::from(below).to_string();
        assert!(words.contains("s3://b/k") && words.contains("AWS_ACCESS_KEY_ID"), "{words}");
        let denied = |path: &str| {
            let path = path.to_string();
            store(&object_store::Error::PermissionDenied { path, source: "403".into() })
        };
        assert!(
            denied("swift://c/k").contains("ST_KEY") && denied("hdfs://n/k").contains("HADOOP_USER_NAME")
        );
        // One that lost its store's name is no file of this machine all the same.
        assert!(denied("k").contains("write there") && denied("/k").contains("the file's mode"));
    }
}
