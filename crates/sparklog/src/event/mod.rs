//! The events of a log: [`parse`] reads a line's event, with the fields that a trace needs.

pub mod application;
pub mod execution;
pub mod failure;
pub mod job;
pub mod operators;
pub mod plan;
pub mod plugin;
pub mod task;
pub mod time;

use std::borrow::Cow;

use crate::json::{Malformed, Scanner, fields};
use application::{ApplicationStart, ExecutorEvent, Settings};
use execution::{DriverMetrics, Execution};
use job::{EndEvent, JobStart, StageInfo};
use task::TaskEnd;

/// An event.
#[derive(Debug)]
pub struct Event<'a> {
    /// Name, such as `SparkListenerTaskEnd` or
    /// `org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart`.
    pub name: Cow<'a, [u8]>,
    /// The fields.
    pub content: Content<'a>,
}

/// The fields of an event, by its kind.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an allocation for each task end would take longer than its copies"
)]
pub enum Content<'a> {
    LogStart {
        version: Option<String>,
        databricks: bool,
    },
    ApplicationStart(ApplicationStart),
    ApplicationEnd {
        at_ms: Option<u64>,
    },
    Environment(Settings),
    ResourceProfile {
        id: Option<u64>,
        cpus: Option<f64>,
    },
    ExecutorAdded(ExecutorEvent),
    BlockManagerAdded(ExecutorEvent),
    ExecutorRemoved(ExecutorEvent),
    JobStart(JobStart),
    JobEnd(EndEvent),
    StageSubmitted(StageInfo),
    StageCompleted(StageInfo),
    ExecutionStart(Execution<'a>),
    PlanChange(Execution<'a>),
    DriverMetrics(DriverMetrics),
    ExecutionEnd(EndEvent),
    TaskStart,
    TaskEnd(TaskEnd<'a>),
    /// An event without fields of interest.
    Other,
}

/// Reads a line. Returns `None` if its object is not an event.
///
/// # Errors
/// Fails if the line is not a JSON object, or not of the event's shape.
pub fn parse(line: &[u8]) -> Result<Option<Event<'_>>, Malformed> {
    let Some(name) = name(line)? else { return Ok(None) };
    let mut scanner = Scanner::new(line);
    let content = content(short(&name), &mut scanner)?;
    let offset = scanner.offset();
    if !ignores_rest(&content) && !scanner.at_end() {
        return Err(Malformed { offset });
    }
    Ok(Some(Event { name, content }))
}

fn content<'a>(name: &[u8], scanner: &mut Scanner<'a>) -> Result<Content<'a>, Malformed> {
    Ok(match name {
        b"SparkListenerTaskEnd" => Content::TaskEnd(task::task_end(scanner)?),
        b"SparkListenerTaskStart" => {
            scanner.skip()?;
            Content::TaskStart
        }
        b"SparkListenerLogStart" => {
            Content::LogStart { version: application::version(scanner)?, databricks: false }
        }
        b"DBCEventLoggingListenerMetadata" => {
            Content::LogStart { version: application::version(scanner)?, databricks: true }
        }
        b"SparkListenerApplicationStart" => {
            Content::ApplicationStart(application::application_start(scanner)?)
        }
        b"SparkListenerApplicationEnd" => {
            Content::ApplicationEnd { at_ms: application::application_end(scanner)? }
        }
        b"SparkListenerEnvironmentUpdate" => Content::Environment(application::environment(scanner)?),
        b"SparkListenerResourceProfileAdded" => {
            let (id, cpus) = application::resource_profile(scanner)?;
            Content::ResourceProfile { id, cpus }
        }
        b"SparkListenerExecutorAdded" => Content::ExecutorAdded(application::executor(scanner)?),
        b"SparkListenerBlockManagerAdded" => Content::BlockManagerAdded(application::executor(scanner)?),
        b"SparkListenerExecutorRemoved" | b"SparkListenerBlockManagerRemoved" => {
            Content::ExecutorRemoved(application::executor(scanner)?)
        }
        b"SparkListenerJobStart" => Content::JobStart(job::job_start(scanner)?),
        b"SparkListenerJobEnd" => Content::JobEnd(job::job_end(scanner)?),
        b"SparkListenerStageSubmitted" => Content::StageSubmitted(job::stage(scanner)?),
        b"SparkListenerStageCompleted" => Content::StageCompleted(job::stage(scanner)?),
        b"SparkListenerSQLExecutionStart" => Content::ExecutionStart(execution::execution(scanner)?),
        b"SparkListenerSQLAdaptiveExecutionUpdate" => Content::PlanChange(execution::execution(scanner)?),
        b"SparkListenerDriverAccumUpdates" => Content::DriverMetrics(execution::driver_metrics(scanner)?),
        b"SparkListenerSQLExecutionEnd" => Content::ExecutionEnd(execution::execution_end(scanner)?),
        _ => {
            scanner.skip()?;
            Content::Other
        }
    })
}

/// Returns whether anything may follow the event's object on its line.
fn ignores_rest(content: &Content<'_>) -> bool {
    matches!(
        content,
        Content::LogStart { .. }
            | Content::ApplicationEnd { .. }
            | Content::Environment(_)
            | Content::ResourceProfile { .. }
    )
}

/// Returns the name of a line's event, or `None` if the object is not an event. Spark writes the name first;
/// other writers may not.
///
/// # Errors
/// Fails if the line is not a JSON object.
pub fn name(line: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Malformed> {
    const FIRST: &[u8] = b"{\"Event\":\"";
    if let Some(rest) = line.strip_prefix(FIRST) {
        let end = memchr::memchr2(b'"', b'\\', rest).ok_or(Malformed { offset: line.len() })?;
        if rest[end] == b'"' {
            return Ok(Some(Cow::Borrowed(&rest[..end])));
        }
    }
    let mut found = None;
    let mut scanner = Scanner::new(line);
    fields!(scanner.object, value {
        b"Event" => found = value.text()?,
    });
    Ok(found.map(|name| Cow::Owned(name.into_owned().into_bytes())))
}

/// Strips the package from an event's name.
pub fn short(name: &[u8]) -> &[u8] {
    memchr::memrchr(b'.', name).map_or(name, |dot| &name[dot + 1..])
}

/// Returns whether a short name is that of an event of Spark or one of its vendors.
pub fn is_spark(short: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"SparkListener", b"StreamingQueryListener", b"DBCEventLogging"];
    prefixes.iter().any(|prefix| short.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_no_events() {
        let parsed = |line: &'static str| parse(line.as_bytes());
        assert!(matches!(parsed("{}"), Ok(None)));
        let job = parsed(r#"{"Job ID":3,"Event":"a.b.SparkListenerJobEnd"} "#)
            .expect("an event")
            .expect("an event");
        assert!(matches!(&job.content, Content::JobEnd(EndEvent { id: Some(3), .. })));
        assert_eq!(short(&job.name), b"SparkListenerJobEnd");
        assert!(parsed(r#"{"Event":"SparkListenerJobEnd"}{"#).is_err());
        assert!(parsed(r#"{"Event":"SparkListenerApplicationEnd"}{"#).is_ok());
        let plan = r#"{"Event":"SparkListenerSQLExecutionStart","sparkPlanInfo":{"children":[1 2]},"executionId":1}"#;
        assert!(parsed(plan).is_err());
    }
}
