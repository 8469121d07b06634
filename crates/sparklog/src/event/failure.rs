//! Classification of task failures by Spark's end reasons.

use pellucid_trace::Failure;

use crate::json::{Malformed, Scanner, fields};
use crate::text;

/// Maximum length of an error message.
const MAX_ERROR_CHARS: usize = 200;

/// The result of a task.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum TaskResult {
    /// The task succeeded.
    #[default]
    Succeeded,
    /// The task had succeeded, but its output was lost later.
    OutputLost,
    /// The task failed or was stopped.
    Failed(Failure),
}

/// Reads a `Task End Reason`: the task's result, and the error message if it failed.
///
/// # Errors
/// Fails if the scanner is not at a value.
pub fn reason(scanner: &mut Scanner<'_>) -> Result<(TaskResult, Option<String>), Malformed> {
    let mut reason = &b""[..];
    let (mut class, mut message) = (None, None);
    fields!(scanner.object_or_skip, value {
        b"Reason" => reason = value.raw_text()?.unwrap_or_default(),
        b"Class Name" => class = value.text()?,
        b"Description" | b"Message" | b"Loss Reason" | b"Kill Reason" => message = value.text()?,
    });
    let out_of_memory = |text: &str| {
        ["OutOfMemory", "exceeding memory limits", "exceeding physical memory limits", "OOMKilled"]
            .iter()
            .any(|marker| text.contains(marker))
    };
    let texts = class.as_deref().into_iter().chain(message.as_deref());
    let memory = texts.into_iter().any(out_of_memory);
    let failure = match reason {
        b"Success" | b"" => return Ok((TaskResult::Succeeded, None)),
        b"Resubmitted" => return Ok((TaskResult::OutputLost, None)),
        b"FetchFailed" => Failure::FetchFailed,
        b"TaskKilled" => Failure::Killed,
        b"TaskCommitDenied" => Failure::CommitDenied,
        b"ExceptionFailure" | b"ExecutorLostFailure" if memory => Failure::OutOfMemory,
        b"ExceptionFailure" => Failure::Exception,
        b"ExecutorLostFailure" => Failure::ExecutorLost,
        _ => Failure::Other,
    };
    let message = message.as_deref().map(text::first_line).filter(|line| !line.is_empty());
    let error = match (class.as_deref(), message) {
        (Some(class), Some(message)) if !message.starts_with(class) => format!("{class}: {message}"),
        (_, Some(message)) => message.to_owned(),
        (Some(class), None) => class.to_owned(),
        (None, None) => String::from_utf8_lossy(reason).into_owned(),
    };
    Ok((TaskResult::Failed(failure), Some(text::clipped(&error, MAX_ERROR_CHARS))))
}
