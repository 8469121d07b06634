//! Parsers for all events but task ends: their names, and the fields that a trace needs. Times are Unix
//! times in milliseconds.

pub mod failure;
pub mod operators;
pub mod plugin;
pub mod task;

use std::borrow::Cow;

use crate::event::task::time;
use crate::json::{Malformed, Raw, Scanner};

/// Returns the name of a line's event, such as `SparkListenerTaskEnd` or
/// `org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart`, or `None` if the object is not an
/// event. Spark writes the name first; other writers may not.
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
    Scanner::new(line).object(|key, value| {
        match key {
            b"Event" => found = value.text()?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
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

/// The fields of a `SparkListenerApplicationStart`.
#[derive(Debug, Default)]
pub struct ApplicationStart {
    pub name: Option<String>,
    pub id: Option<String>,
    pub attempt: Option<String>,
    pub user: Option<String>,
    pub at_ms: Option<u64>,
}

/// The fields of a `SparkListenerJobStart`.
#[derive(Debug, Default)]
pub struct JobStart {
    pub id: Option<u64>,
    pub submitted_ms: Option<u64>,
    pub stages: Vec<u64>,
    /// For each stage, its id and the RDD that it computes, as returned by [`rdd`].
    pub rdds: Vec<(u64, u64)>,
    /// Name of the last stage, which Spark uses as the job's name.
    pub name: Option<String>,
    pub description: Option<String>,
    pub execution: Option<u64>,
    /// SQL settings that were changed for this job.
    pub sql_settings: Vec<(String, String)>,
}

/// The `Stage Info` of a stage's submission or completion.
#[derive(Debug, Default)]
pub struct StageInfo {
    pub id: Option<u64>,
    pub attempt: Option<u64>,
    pub name: String,
    pub details: String,
    pub tasks: Option<u64>,
    pub parents: Vec<u64>,
    pub rdd: Option<u64>,
    pub submitted_ms: Option<u64>,
    pub completed_ms: Option<u64>,
    pub failure: Option<String>,
    pub accumulators: Vec<u64>,
}

/// The addition or removal of an executor or its block manager.
#[derive(Debug, Default)]
pub struct ExecutorEvent {
    pub id: Vec<u8>,
    pub host: Option<String>,
    pub cores: Option<u64>,
    pub profile: Option<u64>,
    pub at_ms: Option<u64>,
    pub why: Option<String>,
}

/// The start of an SQL execution, or a change of its plan.
#[derive(Debug, Default)]
pub struct Execution<'a> {
    pub id: Option<u64>,
    pub root: Option<u64>,
    pub description: Option<String>,
    pub at_ms: Option<u64>,
    pub plan: Option<Raw<'a>>,
    pub sql_settings: Vec<(String, String)>,
}

/// The end of a job, stage or SQL execution.
#[derive(Debug, Default)]
pub struct EndEvent {
    pub id: Option<u64>,
    pub at_ms: Option<u64>,
    pub failed: bool,
    pub error: Option<String>,
}

fn owned(scanner: &mut Scanner<'_>) -> Result<Option<String>, Malformed> {
    Ok(scanner.text()?.map(Cow::into_owned))
}

/// Reads an object of string settings.
pub fn settings(scanner: &mut Scanner<'_>, mut found: impl FnMut(String, String)) -> Result<(), Malformed> {
    scanner.object_or_skip(|key, value| {
        if let Some(text) = value.text()? {
            found(crate::json::unescaped(key).into_owned(), text.into_owned());
        }
        Ok(())
    })
}

/// Reads a `SparkListenerEnvironmentUpdate`.
pub fn environment(
    scanner: &mut Scanner<'_>,
    mut found: impl FnMut(String, String),
) -> Result<(), Malformed> {
    scanner.object(|key, value| match key {
        b"Spark Properties" => settings(value, &mut found),
        _ => value.skip(),
    })
}

/// Reads one string field of an event.
pub fn field(scanner: &mut Scanner<'_>, name: &[u8]) -> Result<Option<String>, Malformed> {
    let mut found = None;
    scanner.object(|key, value| {
        if key == name {
            found = owned(value)?
        } else {
            value.skip()?
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads the `Timestamp` of an event.
pub fn timestamp(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Malformed> {
    let mut found = None;
    scanner.object(|key, value| {
        if key == b"Timestamp" {
            found = time(value)?
        } else {
            value.skip()?
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads an [`ApplicationStart`].
pub fn application_start(scanner: &mut Scanner<'_>) -> Result<ApplicationStart, Malformed> {
    let mut start = ApplicationStart::default();
    scanner.object(|key, value| {
        match key {
            b"App Name" => start.name = owned(value)?,
            b"App ID" => start.id = owned(value)?,
            b"App Attempt ID" => start.attempt = owned(value)?,
            b"User" => start.user = owned(value)?,
            b"Timestamp" => start.at_ms = time(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(start)
}

/// Reads a [`JobStart`].
pub fn job_start(scanner: &mut Scanner<'_>) -> Result<JobStart, Malformed> {
    let mut job = JobStart::default();
    let mut last = None;
    scanner.object(|key, value| {
        match key {
            b"Job ID" => job.id = value.number()?,
            b"Submission Time" => job.submitted_ms = time(value)?,
            b"Stage IDs" => value.array_or_skip(|id| {
                job.stages.extend(id.number()?);
                Ok(())
            })?,
            b"Stage Infos" => value.array_or_skip(|info| {
                let (mut id, mut name, mut computes) = (None, None, None);
                info.object_or_skip(|key, value| {
                    match key {
                        b"Stage ID" => id = value.number()?,
                        b"Stage Name" => name = value.text()?,
                        b"RDD Info" => computes = rdd(value)?,
                        _ => value.skip()?,
                    }
                    Ok(())
                })?;
                job.rdds.extend(id.zip(computes));
                if id >= last {
                    last = id;
                    job.name = name.map(Cow::into_owned);
                }
                Ok(())
            })?,
            b"Properties" => job_properties(value, &mut job)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    job.stages.sort_unstable();
    Ok(job)
}

/// Returns the RDD that a stage computes, which is the first in its list; the others are that RDD's
/// ancestors. A stage that is planned again for the same data has a new id but the same RDD.
fn rdd(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Malformed> {
    let mut own = None;
    let mut is_first = true;
    scanner.array_or_skip(|info| {
        if !std::mem::take(&mut is_first) {
            return info.skip();
        }
        info.object_or_skip(|key, value| {
            match key {
                b"RDD ID" => own = value.number()?,
                _ => value.skip()?,
            }
            Ok(())
        })
    })?;
    Ok(own)
}

fn job_properties(scanner: &mut Scanner<'_>, job: &mut JobStart) -> Result<(), Malformed> {
    scanner.object_or_skip(|key, value| {
        match key {
            b"spark.sql.execution.id" => job.execution = value.number()?,
            b"spark.sql.execution.root.id" => value.skip()?,
            b"spark.job.description" => job.description = owned(value)?,
            _ if key.starts_with(b"spark.sql.") => {
                if let Some(text) = value.text()? {
                    let key = crate::json::unescaped(key).into_owned();
                    job.sql_settings.push((key, text.into_owned()));
                }
            }
            _ => value.skip()?,
        }
        Ok(())
    })
}

/// Reads a stage's submission or completion.
pub fn stage(scanner: &mut Scanner<'_>) -> Result<StageInfo, Malformed> {
    let mut stage = StageInfo::default();
    scanner.object(|key, value| match key {
        b"Stage Info" => stage_info(value, &mut stage),
        _ => value.skip(),
    })?;
    Ok(stage)
}

fn stage_info(scanner: &mut Scanner<'_>, stage: &mut StageInfo) -> Result<(), Malformed> {
    scanner.object_or_skip(|key, value| {
        match key {
            b"Stage ID" => stage.id = value.number()?,
            b"Stage Attempt ID" => stage.attempt = value.number()?,
            b"Stage Name" => stage.name = owned(value)?.unwrap_or_default(),
            b"Details" => stage.details = owned(value)?.unwrap_or_default(),
            b"Number of Tasks" => stage.tasks = value.number()?,
            b"RDD Info" => stage.rdd = rdd(value)?,
            b"Parent IDs" => value.array_or_skip(|id| {
                stage.parents.extend(id.number()?);
                Ok(())
            })?,
            b"Submission Time" => stage.submitted_ms = time(value)?,
            b"Completion Time" => stage.completed_ms = time(value)?,
            b"Failure Reason" => stage.failure = owned(value)?,
            b"Accumulables" => value.array_or_skip(|item| {
                item.object_or_skip(|key, value| {
                    match key {
                        b"ID" => stage.accumulators.extend(value.number()?),
                        _ => value.skip()?,
                    }
                    Ok(())
                })
            })?,
            _ => value.skip()?,
        }
        Ok(())
    })
}

/// Reads a `SparkListenerJobEnd`.
pub fn job_end(scanner: &mut Scanner<'_>) -> Result<EndEvent, Malformed> {
    let mut end = EndEvent::default();
    scanner.object(|key, value| {
        match key {
            b"Job ID" => end.id = value.number()?,
            b"Completion Time" => end.at_ms = time(value)?,
            b"Job Result" => value.object_or_skip(|key, value| {
                match key {
                    b"Result" => end.failed = value.raw_text()?.is_some_and(|r| r != b"JobSucceeded"),
                    b"Exception" => value.object_or_skip(|key, value| {
                        match key {
                            b"Message" => end.error = owned(value)?,
                            _ => value.skip()?,
                        }
                        Ok(())
                    })?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(end)
}

/// Reads an `ExecutorAdded`, `ExecutorRemoved`, `BlockManagerAdded` or `BlockManagerRemoved`.
pub fn executor(scanner: &mut Scanner<'_>) -> Result<ExecutorEvent, Malformed> {
    let mut event = ExecutorEvent::default();
    let e = &mut event;
    scanner.object(|key, value| {
        match key {
            b"Executor ID" => e.id = value.raw_text()?.unwrap_or_default().to_vec(),
            b"Timestamp" => e.at_ms = time(value)?,
            b"Removed Reason" => e.why = owned(value)?,
            b"Executor Info" => value.object_or_skip(|key, value| {
                match key {
                    b"Host" => e.host = owned(value)?,
                    b"Total Cores" => e.cores = value.number()?,
                    b"Resource Profile Id" => e.profile = value.number()?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            b"Block Manager ID" => value.object_or_skip(|key, value| {
                match key {
                    b"Executor ID" => e.id = value.raw_text()?.unwrap_or_default().to_vec(),
                    b"Host" => e.host = owned(value)?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(event)
}

/// Reads a `SparkListenerResourceProfileAdded`: its id, and the number of cores for each task.
pub fn resource_profile(scanner: &mut Scanner<'_>) -> Result<(Option<u64>, Option<f64>), Malformed> {
    let (mut id, mut cpus) = (None, None);
    scanner.object(|key, value| {
        match key {
            b"Resource Profile Id" => id = value.number()?,
            b"Task Resource Requests" => value.object_or_skip(|key, value| {
                if key != b"cpus" {
                    return value.skip();
                }
                value.object_or_skip(|key, value| {
                    match key {
                        b"Amount" => cpus = value.float()?,
                        _ => value.skip()?,
                    }
                    Ok(())
                })
            })?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok((id, cpus))
}

/// Reads the start of an SQL execution, or an adaptive change of its plan.
pub fn execution<'a>(scanner: &mut Scanner<'a>) -> Result<Execution<'a>, Malformed> {
    let mut execution = Execution::default();
    scanner.object(|key, value| {
        match key {
            b"executionId" => execution.id = value.number()?,
            b"rootExecutionId" => execution.root = value.number()?,
            b"description" => execution.description = owned(value)?,
            b"time" => execution.at_ms = time(value)?,
            b"sparkPlanInfo" => execution.plan = Some(value.raw()?),
            b"modifiedConfigs" => settings(value, |key, value| execution.sql_settings.push((key, value)))?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(execution)
}

/// Reads the end of an SQL execution.
pub fn execution_end(scanner: &mut Scanner<'_>) -> Result<EndEvent, Malformed> {
    let mut end = EndEvent::default();
    scanner.object(|key, value| {
        match key {
            b"executionId" => end.id = value.number()?,
            b"time" => end.at_ms = time(value)?,
            b"errorMessage" => end.error = owned(value)?.filter(|message| !message.is_empty()),
            _ => value.skip()?,
        }
        Ok(())
    })?;
    end.failed = end.error.is_some();
    Ok(end)
}
