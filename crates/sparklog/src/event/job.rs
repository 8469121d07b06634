//! Events of jobs and their stages.

use crate::event::application::Settings;
use crate::event::time::time;
use crate::json::{Malformed, Scanner, fields, unescaped};

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
    pub sql_settings: Settings,
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
    /// Accumulators that its tasks updated, with their values after it.
    pub accumulators: Vec<(u64, Option<u64>)>,
}

/// The end of a job, stage or SQL execution.
#[derive(Debug, Default)]
pub struct EndEvent {
    pub id: Option<u64>,
    pub at_ms: Option<u64>,
    pub failed: bool,
    pub error: Option<String>,
}

/// Reads a [`JobStart`].
pub fn job_start(scanner: &mut Scanner<'_>) -> Result<JobStart, Malformed> {
    let mut job = JobStart::default();
    let mut last = None;
    fields!(scanner.object, value {
        b"Job ID" => job.id = value.number()?,
        b"Submission Time" => job.submitted_ms = time(value)?,
        b"Stage IDs" => numbers(value, &mut job.stages)?,
        b"Stage Infos" => value.array_or_skip(|info| {
            let (mut id, mut name, mut computes) = (None, None, None);
            fields!(info.object_or_skip, value {
                b"Stage ID" => id = value.number()?,
                b"Stage Name" => name = value.text()?,
                b"RDD Info" => computes = rdd(value)?,
            });
            job.rdds.extend(id.zip(computes));
            if id >= last {
                last = id;
                job.name = name.map(|name| name.into_owned());
            }
            Ok(())
        })?,
        b"Properties" => job_properties(value, &mut job)?,
    });
    job.stages.sort_unstable();
    Ok(job)
}

fn numbers(scanner: &mut Scanner<'_>, found: &mut Vec<u64>) -> Result<(), Malformed> {
    scanner.array_or_skip(|number| {
        found.extend(number.number()?);
        Ok(())
    })
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
        fields!(info.object_or_skip, value {
            b"RDD ID" => own = value.number()?,
        });
        Ok(())
    })?;
    Ok(own)
}

fn job_properties(scanner: &mut Scanner<'_>, job: &mut JobStart) -> Result<(), Malformed> {
    scanner.object_or_skip(|key, value| {
        match key {
            b"spark.sql.execution.id" => job.execution = value.number()?,
            b"spark.sql.execution.root.id" => value.skip()?,
            b"spark.job.description" => job.description = value.string()?,
            _ if key.starts_with(b"spark.sql.") => {
                if let Some(text) = value.string()? {
                    job.sql_settings.push((unescaped(key).into_owned(), text));
                }
            }
            _ => value.skip()?,
        }
        Ok(())
    })
}

/// Reads a `SparkListenerJobEnd`.
pub fn job_end(scanner: &mut Scanner<'_>) -> Result<EndEvent, Malformed> {
    let mut end = EndEvent::default();
    fields!(scanner.object, value {
        b"Job ID" => end.id = value.number()?,
        b"Completion Time" => end.at_ms = time(value)?,
        b"Job Result" => fields!(value.object_or_skip, value {
            b"Result" => end.failed = value.raw_text()?.is_some_and(|r| r != b"JobSucceeded"),
            b"Exception" => fields!(value.object_or_skip, value {
                b"Message" => end.error = value.string()?,
            }),
        }),
    });
    Ok(end)
}

/// Reads a stage's submission or completion.
pub fn stage(scanner: &mut Scanner<'_>) -> Result<StageInfo, Malformed> {
    let mut stage = StageInfo::default();
    fields!(scanner.object, value {
        b"Stage Info" => fields!(value.object_or_skip, value {
            b"Stage ID" => stage.id = value.number()?,
            b"Stage Attempt ID" => stage.attempt = value.number()?,
            b"Stage Name" => stage.name = value.string()?.unwrap_or_default(),
            b"Details" => stage.details = value.string()?.unwrap_or_default(),
            b"Number of Tasks" => stage.tasks = value.number()?,
            b"RDD Info" => stage.rdd = rdd(value)?,
            b"Parent IDs" => numbers(value, &mut stage.parents)?,
            b"Submission Time" => stage.submitted_ms = time(value)?,
            b"Completion Time" => stage.completed_ms = time(value)?,
            b"Failure Reason" => stage.failure = value.string()?,
            b"Accumulables" => value.array_or_skip(|item| {
                let (mut accumulator, mut total) = (None, None);
                fields!(item.object_or_skip, value {
                    b"ID" => accumulator = value.number()?,
                    b"Value" => total = value.number()?,
                });
                stage.accumulators.extend(accumulator.map(|accumulator| (accumulator, total)));
                Ok(())
            })?,
        }),
    });
    Ok(stage)
}
