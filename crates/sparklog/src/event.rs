//! Every event but a task's end: what it is called, and the fields of those that
//! are needed. Times are in milliseconds of Unix time.

use std::borrow::Cow;

use crate::scan::{Bad, Raw, Scanner};
use crate::task::time;

/// Name of the event of a line, as `SparkListenerTaskEnd` or
/// `org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart`; `None`
/// for an object that is no event. Spark writes it first, others may not.
///
/// # Errors
/// When the line is no JSON object.
pub fn name(line: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Bad> {
    const FIRST: &[u8] = b"{\"Event\":\"";
    if let Some(rest) = line.strip_prefix(FIRST) {
        let end = memchr::memchr2(b'"', b'\\', rest).ok_or(Bad { at: line.len() })?;
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

/// `SparkListenerTaskEnd` of a name with its package.
pub fn short(name: &[u8]) -> &[u8] {
    memchr::memrchr(b'.', name).map_or(name, |dot| &name[dot + 1..])
}

/// Whether an event, by its short name, is one that Spark or a vendor of it logs.
pub fn is_spark(short: &[u8]) -> bool {
    let beginnings: [&[u8]; 3] = [b"SparkListener", b"StreamingQueryListener", b"DBCEventLogging"];
    beginnings.iter().any(|beginning| short.starts_with(beginning))
}

/// `SparkListenerApplicationStart`.
#[derive(Debug, Default)]
pub struct ApplicationStart {
    pub name: Option<String>,
    pub id: Option<String>,
    pub attempt: Option<String>,
    pub user: Option<String>,
    pub at_ms: Option<u64>,
}

/// `SparkListenerJobStart`.
#[derive(Debug, Default)]
pub struct JobStart {
    pub id: Option<u64>,
    pub submitted_ms: Option<u64>,
    pub stages: Vec<u64>,
    /// What each of its stages computes: the stage, and the RDD that [`rdd`] gives.
    pub rdds: Vec<(u64, u64)>,
    /// Name of its last stage, which is what Spark calls the job.
    pub name: Option<String>,
    pub description: Option<String>,
    pub execution: Option<u64>,
    /// Settings of SQL that were changed for it.
    pub sql_settings: Vec<(String, String)>,
}

/// `Stage Info` of a stage's submission or completion.
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

/// An executor or its block manager came or went.
#[derive(Debug, Default)]
pub struct ExecutorEvent {
    pub id: Vec<u8>,
    pub host: Option<String>,
    pub cores: Option<u64>,
    pub profile: Option<u64>,
    pub at_ms: Option<u64>,
    pub why: Option<String>,
}

/// An SQL execution started, or its plan changed.
#[derive(Debug, Default)]
pub struct Execution<'a> {
    pub id: Option<u64>,
    pub root: Option<u64>,
    pub description: Option<String>,
    pub at_ms: Option<u64>,
    pub plan: Option<Raw<'a>>,
    pub sql_settings: Vec<(String, String)>,
}

/// Something that ended, and how.
#[derive(Debug, Default)]
pub struct Ended {
    pub id: Option<u64>,
    pub at_ms: Option<u64>,
    pub failed: bool,
    pub error: Option<String>,
}

fn owned(scanner: &mut Scanner<'_>) -> Result<Option<String>, Bad> {
    Ok(scanner.text()?.map(Cow::into_owned))
}

/// Settings: an object of texts.
pub fn settings(scanner: &mut Scanner<'_>, mut found: impl FnMut(String, String)) -> Result<(), Bad> {
    scanner.object_or_skip(|key, value| {
        if let Some(text) = value.text()? {
            found(crate::escape::unescaped(key).into_owned(), text.into_owned());
        }
        Ok(())
    })
}

/// Reads a `SparkListenerEnvironmentUpdate`.
pub fn environment(scanner: &mut Scanner<'_>, mut found: impl FnMut(String, String)) -> Result<(), Bad> {
    scanner.object(|key, value| match key {
        b"Spark Properties" => settings(value, &mut found),
        _ => value.skip(),
    })
}

/// Reads the text of one field of an event.
pub fn field(scanner: &mut Scanner<'_>, wanted: &[u8]) -> Result<Option<String>, Bad> {
    let mut found = None;
    scanner.object(|key, value| {
        if key == wanted {
            found = owned(value)?
        } else {
            value.skip()?
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads the time of an event of the application or of a block manager.
pub fn timestamp(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Bad> {
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

/// Reads a [`ApplicationStart`].
pub fn application_start(scanner: &mut Scanner<'_>) -> Result<ApplicationStart, Bad> {
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
pub fn job_start(scanner: &mut Scanner<'_>) -> Result<JobStart, Bad> {
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

/// What a stage computes: the first of its RDDs is its own, the others are what that is made of. A
/// stage that was planned again for the same data has another number and the same RDD.
fn rdd(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Bad> {
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

fn job_properties(scanner: &mut Scanner<'_>, job: &mut JobStart) -> Result<(), Bad> {
    scanner.object_or_skip(|key, value| {
        match key {
            b"spark.sql.execution.id" => job.execution = value.number()?,
            b"spark.sql.execution.root.id" => value.skip()?,
            b"spark.job.description" => job.description = owned(value)?,
            _ if key.starts_with(b"spark.sql.") => {
                if let Some(text) = value.text()? {
                    let key = crate::escape::unescaped(key).into_owned();
                    job.sql_settings.push((key, text.into_owned()));
                }
            }
            _ => value.skip()?,
        }
        Ok(())
    })
}

/// Reads a stage's submission or completion.
pub fn stage(scanner: &mut Scanner<'_>) -> Result<StageInfo, Bad> {
    let mut stage = StageInfo::default();
    scanner.object(|key, value| match key {
        b"Stage Info" => stage_info(value, &mut stage),
        _ => value.skip(),
    })?;
    Ok(stage)
}

fn stage_info(scanner: &mut Scanner<'_>, stage: &mut StageInfo) -> Result<(), Bad> {
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
pub fn job_end(scanner: &mut Scanner<'_>) -> Result<Ended, Bad> {
    let mut end = Ended::default();
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
pub fn executor(scanner: &mut Scanner<'_>) -> Result<ExecutorEvent, Bad> {
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

/// Reads a `SparkListenerResourceProfileAdded`: its id, and the cores that a task takes.
pub fn resource_profile(scanner: &mut Scanner<'_>) -> Result<(Option<u64>, Option<f64>), Bad> {
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

/// Reads an SQL execution's start, or an adaptive change of its plan.
pub fn execution<'a>(scanner: &mut Scanner<'a>) -> Result<Execution<'a>, Bad> {
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

/// Reads an SQL execution's end.
pub fn execution_end(scanner: &mut Scanner<'_>) -> Result<Ended, Bad> {
    let mut end = Ended::default();
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
