//! Why a task did not end well, from what Spark says of it.

use pellucid_trace::Failure;

use crate::scan::{Bad, Scanner};
use crate::text;

/// Longest text of a failure that is kept.
const MAX_ERROR_CHARS: usize = 200;

/// How a task ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It did what it was for.
    #[default]
    Well,
    /// It had; now its output was lost.
    OutputLost,
    /// It did not.
    Failed(Failure),
}

/// Reads a `Task End Reason`: how the task ended, and in what words if not well.
///
/// # Errors
/// When there is no value here.
pub fn reason(scanner: &mut Scanner<'_>) -> Result<(Ended, Option<String>), Bad> {
    let mut reason = &b""[..];
    let (mut class, mut words) = (None, None);
    scanner.object_or_skip(|key, value| {
        match key {
            b"Reason" => reason = value.raw_text()?.unwrap_or_default(),
            b"Class Name" => class = value.text()?,
            b"Description" | b"Message" | b"Loss Reason" | b"Kill Reason" => words = value.text()?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    let out_of_memory = |text: &str| {
        ["OutOfMemory", "exceeding memory limits", "exceeding physical memory limits", "OOMKilled"]
            .iter()
            .any(|sign| text.contains(sign))
    };
    let told = class.as_deref().into_iter().chain(words.as_deref());
    let memory = told.into_iter().any(out_of_memory);
    let failure = match reason {
        b"Success" | b"" => return Ok((Ended::Well, None)),
        b"Resubmitted" => return Ok((Ended::OutputLost, None)),
        b"FetchFailed" => Failure::FetchFailed,
        b"TaskKilled" => Failure::Killed,
        b"TaskCommitDenied" => Failure::CommitDenied,
        b"ExceptionFailure" | b"ExecutorLostFailure" if memory => Failure::OutOfMemory,
        b"ExceptionFailure" => Failure::Exception,
        b"ExecutorLostFailure" => Failure::ExecutorLost,
        _ => Failure::Other,
    };
    let words = words.as_deref().map(text::first_line).filter(|line| !line.is_empty());
    let said = match (class.as_deref(), words) {
        (Some(class), Some(words)) if !words.starts_with(class) => format!("{class}: {words}"),
        (_, Some(words)) => words.to_owned(),
        (Some(class), None) => class.to_owned(),
        (None, None) => String::from_utf8_lossy(reason).into_owned(),
    };
    Ok((Ended::Failed(failure), Some(text::clipped(&said, MAX_ERROR_CHARS))))
}
