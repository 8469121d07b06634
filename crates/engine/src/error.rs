//! Engine errors and the messages that users see: the cause, the object it concerns, and a remedy.

use std::fmt;

use datafusion::common::DataFusionError;
use pellucid_runtime::{Error, JobError};
use pellucid_trace::TraceError;

use crate::types::names::{in_text, name};
use crate::types::rules::analyzer_rules;

/// The reason a query failed. The command line exits with 2, 2, 1 and 130 respectively.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineError {
    /// The grammar does not have the text. Another system may know it.
    Syntax(String),
    /// The query or an option is invalid and cannot succeed unchanged.
    Usage(String),
    /// The query was valid but failed while it ran.
    Failed(String),
    /// The query was cancelled.
    Cancelled,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(message) | Self::Usage(message) | Self::Failed(message) => f.write_str(message),
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
        let message = message(&error);
        match error.find_root() {
            DataFusionError::SQL(..)
            | DataFusionError::SchemaError(..)
            | DataFusionError::Plan(_)
            | DataFusionError::NotImplemented(_)
            | DataFusionError::Configuration(_) => Self::Usage(message),
            _ => Self::Failed(message),
        }
    }
}

impl From<TraceError> for EngineError {
    fn from(error: TraceError) -> Self {
        match error {
            TraceError::Occupied { .. } => Self::Usage(error.to_string()),
            other => Self::Failed(other.to_string()),
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

/// Converts an error of the runtime, which may wrap one of DataFusion.
pub(crate) fn from_runtime(error: Error) -> EngineError {
    match error.downcast::<DataFusionError>() {
        Ok(error) => (*error).into(),
        Err(error) => EngineError::Failed(source_message(error.as_ref())),
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panic without a message")
}

fn is_cancelled(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::External(e) if e.is::<pellucid_runtime::Cancelled>())
}

/// Returns the message with its contexts first, without DataFusion's own headings, and with a
/// remedy if one is known.
fn message(error: &DataFusionError) -> String {
    match error {
        // The name of a rule does not help to find the wrong expression.
        DataFusionError::Context(context, inner) if is_of_rule(context) => message(inner),
        // A sort and an aggregate add the names of DataFusion's own settings.
        DataFusionError::Context(context, inner)
            if context.starts_with("Not enough memory to")
                || context.contains("hash aggregate cannot spill because") =>
        {
            message(inner)
        }
        DataFusionError::Context(context, inner) => format!("{context}: {}", message(inner)),
        DataFusionError::Diagnostic(_, inner) => message(inner),
        DataFusionError::Shared(inner) => message(inner),
        DataFusionError::ArrowError(inner, _) => rewrite(&source_message(inner.as_ref())),
        DataFusionError::ParquetError(inner) => source_message(inner.as_ref()),
        DataFusionError::ObjectStore(inner) => store_message(inner),
        DataFusionError::External(inner) => source_message(inner.as_ref()),
        DataFusionError::SQL(inner, _) => {
            let text = inner.to_string();
            let text = text.strip_prefix("sql parser error: ").unwrap_or(&text);
            // "… at Line: 2, Column: 14"
            let text = text.replace(" at Line: ", " at line ").replace(", Column: ", ", column ");
            let text = text.replace("found: EOF", "found: end of input");
            format!("cannot parse the SQL: {text}")
        }
        DataFusionError::ResourcesExhausted(text) => {
            let why = match first_line(text) {
                text if text.contains("while Sorting") => "a multitask cannot sort its rows",
                text => text,
            };
            format!("not enough memory: {why}; raise --memory, or lower --partitions and --cores")
        }
        DataFusionError::SchemaError(inner, _) => inner.to_string(),
        DataFusionError::Plan(text)
        | DataFusionError::Execution(text)
        | DataFusionError::NotImplemented(text)
        | DataFusionError::Configuration(text) => in_text(&rewrite(text)),
        other => other.strip_backtrace(),
    }
}

/// Returns true for a context that only names a rule of the optimizer or the analyzer.
fn is_of_rule(context: &str) -> bool {
    context.starts_with("Optimizer rule ") || analyzer_rules().iter().any(|rule| rule.name() == context)
}

/// Replaces messages that only make sense to developers of DataFusion, and adds a remedy.
fn rewrite(text: &str) -> String {
    const FORMATS: &str = "STORED AS accepts PARQUET, CSV, JSON, ARROW, DELTA and ICEBERG";
    if let Some(format) = text.strip_prefix("Unable to find factory for ") {
        return format!("unknown file format {format}; {FORMATS}");
    }
    if let Some(extension) = text.strip_prefix("There is no registered file format with ext ") {
        return format!("cannot infer the format from extension `{extension}`; {FORMATS}");
    }
    if let Some((_, keys)) = text.split_once("Only UTF8 keys supported by JSON MapArray Writer: got ") {
        return format!(
            "cannot write a MAP with keys of type {keys} as JSON: JSON keys must be strings; write Parquet, \
             or print the rows with --format json"
        );
    }
    if let Some((_, rest)) = text.split_once("Can't cast value ")
        && let Some((value, data_type)) = rest.split_once(" to type ")
    {
        let to = data_type.parse().map_or_else(|_| data_type.to_string(), |data_type| name(&data_type));
        return format!("cannot cast {value} to {to}: it is out of range; TRY_CAST gives NULL instead");
    }
    if let Some((_, rest)) = text.split_once(" is too large to store in a Decimal")
        && let Some((_, precision)) = rest.split_once(" of precision ")
        && let Some(value) =
            text.split(" is too large").next().and_then(|before| before.split(' ').next_back())
    {
        let precision = precision.split('.').next().unwrap_or(precision);
        return format!(
            "cannot cast {value} to DECIMAL: it has more than {precision} digits; TRY_CAST gives NULL instead"
        );
    }
    if let Some((_, call)) = text.split_once(" overflow on abs(") {
        return format!(
            "cannot compute abs({call}: the result exceeds its type; cast the operand to HUGEINT"
        );
    }
    if text.starts_with("Physical plan does not support logical expression") {
        return "cannot run this subquery: it uses columns of the query around it in a way that cannot be turned into a \
                join; write the join, or number the rows with row_number()"
            .to_string();
    }
    // The rest is a dump of the syntax tree.
    if let Some((construct, _)) = text.strip_prefix("Unsupported ").and_then(|rest| rest.split_once('{')) {
        return format!("{} is not supported; write it in another way", construct.trim());
    }
    // DataFusion reports a wrong function call as a bug of its own, followed by the actual message.
    let bug = "\nThis issue was likely caused by a bug in DataFusion's code";
    match text.split_once(bug) {
        Some((_, rest)) => rest.split_once("issues. ").map_or(text, |(_, rest)| rest).to_string(),
        None => text.to_string(),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

/// Returns the message of a store's error. Paths in a remote store start with the store's name.
fn store_message(error: &object_store::Error) -> String {
    use object_store::Error::{Generic, NotFound, PermissionDenied, Unauthenticated};
    match error {
        NotFound { path, .. } => format!("{path}: no such file or object; check the path"),
        PermissionDenied { path, source } if path.starts_with('/') => {
            format!("{path}: permission denied; check the file's mode ({source})")
        }
        PermissionDenied { path, source } | Unauthenticated { path, source } if path.starts_with("http") => {
            format!(
                "{path}: the server refuses the file ({source}); check the URL, or download it and read the file"
            )
        }
        PermissionDenied { path, source } => format!(
            "{path}: permission denied; check {} and that these may read and write there ({source})",
            credentials(path)
        ),
        Unauthenticated { path, source } => {
            format!("{path}: authentication failed; check {} ({source})", credentials(path))
        }
        Generic { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// Returns the credential settings that the client of a store reads, by the store's URL.
fn credentials(path: &str) -> &'static str {
    match path.split_once("://") {
        Some(("swift", _)) => "ST_USER and ST_KEY, or OS_AUTH_TOKEN",
        Some(("hdfs", _)) => "HADOOP_USER_NAME or the Kerberos ticket",
        _ => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
    }
}

/// Returns the message of the first store or DataFusion error in the chain of sources, or the
/// error's own message.
fn source_message(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = Some(error);
    while let Some(e) = inner {
        // It names the store and the source of its settings.
        if let Some(e) = e.downcast_ref::<pellucid_storage::StorageError>() {
            return e.to_string();
        }
        if let Some(e) = e.downcast_ref::<object_store::Error>() {
            return store_message(e);
        }
        if let Some(e) = e.downcast_ref::<DataFusionError>() {
            return message(e);
        }
        // `io::Error::source` skips the wrapped error itself.
        inner = match e.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => e.source(),
        };
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_mention_datafusion() {
        let text = "Internal error: Function 'sum' failed: Plan.\nThis issue was likely caused by a bug in \
                    DataFusion's code. Please file it in our issue tracker: https://x/issues. No function matches";
        assert_eq!(rewrite(text), "No function matches");
        assert!(rewrite("Unable to find factory for XLSX").contains("PARQUET, CSV, JSON, ARROW"));
        let map = "Invalid argument error: Only UTF8 keys supported by JSON MapArray Writer: got Int64";
        assert!(rewrite(map).starts_with("cannot write a MAP with keys of type Int64 as JSON"));
        let error = DataFusionError::Execution("no".to_string()).context("Optimizer rule 'x' failed");
        assert_eq!(EngineError::from(error), EngineError::Failed("no".to_string()));
        let error = DataFusionError::Plan("no".to_string()).context("types_before_coercion");
        assert_eq!(EngineError::from(error), EngineError::Usage("no".to_string()));
    }

    #[test]
    fn store_error_is_found_below_other_errors() {
        let refused =
            object_store::Error::PermissionDenied { path: "s3://b/k".to_string(), source: "403".into() };
        let below = DataFusionError::External(Box::new(std::io::Error::other(refused)));
        let message = EngineError::from(below).to_string();
        assert!(message.contains("s3://b/k") && message.contains("AWS_ACCESS_KEY_ID"), "{message}");
        let denied = |path: &str| {
            let path = path.to_string();
            store_message(&object_store::Error::PermissionDenied { path, source: "403".into() })
        };
        assert!(
            denied("swift://c/k").contains("ST_KEY") && denied("hdfs://n/k").contains("HADOOP_USER_NAME")
        );
        // A path without a store's name is still remote unless it starts with a slash.
        assert!(denied("k").contains("write there") && denied("/k").contains("the file's mode"));
    }
}
