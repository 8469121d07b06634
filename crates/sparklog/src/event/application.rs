//! Events of the application as a whole: its start, settings and executors.

use crate::event::time::time;
use crate::json::{Malformed, Scanner, fields, unescaped};

/// The fields of a `SparkListenerApplicationStart`.
#[derive(Debug, Default)]
pub struct ApplicationStart {
    pub name: Option<String>,
    pub id: Option<String>,
    pub attempt: Option<String>,
    pub user: Option<String>,
    pub at_ms: Option<u64>,
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

/// Names and values of settings.
pub type Settings = Vec<(String, String)>;

/// Reads an [`ApplicationStart`].
pub fn application_start(scanner: &mut Scanner<'_>) -> Result<ApplicationStart, Malformed> {
    let mut start = ApplicationStart::default();
    fields!(scanner.object, value {
        b"App Name" => start.name = value.string()?,
        b"App ID" => start.id = value.string()?,
        b"App Attempt ID" => start.attempt = value.string()?,
        b"User" => start.user = value.string()?,
        b"Timestamp" => start.at_ms = time(value)?,
    });
    Ok(start)
}

/// Reads the time of a `SparkListenerApplicationEnd`.
pub fn application_end(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Malformed> {
    let mut at_ms = None;
    fields!(scanner.object, value {
        b"Timestamp" => at_ms = time(value)?,
    });
    Ok(at_ms)
}

/// Reads the version of Spark from the first event of a log.
pub fn version(scanner: &mut Scanner<'_>) -> Result<Option<String>, Malformed> {
    let mut version = None;
    fields!(scanner.object, value {
        b"Spark Version" => version = value.string()?,
    });
    Ok(version)
}

/// Reads a `SparkListenerEnvironmentUpdate`.
pub fn environment(scanner: &mut Scanner<'_>) -> Result<Settings, Malformed> {
    let mut found = Vec::new();
    fields!(scanner.object, value {
        b"Spark Properties" => settings(value, &mut found)?,
    });
    Ok(found)
}

/// Reads an object of settings. Ignores values other than strings.
pub fn settings(scanner: &mut Scanner<'_>, found: &mut Settings) -> Result<(), Malformed> {
    scanner.object_or_skip(|key, value| {
        if let Some(text) = value.string()? {
            found.push((unescaped(key).into_owned(), text));
        }
        Ok(())
    })
}

/// Reads a `SparkListenerResourceProfileAdded`: its id, and the number of cores for each task.
pub fn resource_profile(scanner: &mut Scanner<'_>) -> Result<(Option<u64>, Option<f64>), Malformed> {
    let (mut id, mut cpus) = (None, None);
    fields!(scanner.object, value {
        b"Resource Profile Id" => id = value.number()?,
        b"Task Resource Requests" => fields!(value.object_or_skip, value {
            b"cpus" => fields!(value.object_or_skip, value {
                b"Amount" => cpus = value.float()?,
            }),
        }),
    });
    Ok((id, cpus))
}

/// Reads an `ExecutorAdded`, `ExecutorRemoved`, `BlockManagerAdded` or `BlockManagerRemoved`.
pub fn executor(scanner: &mut Scanner<'_>) -> Result<ExecutorEvent, Malformed> {
    let mut event = ExecutorEvent::default();
    fields!(scanner.object, value {
        b"Executor ID" => event.id = value.raw_text()?.unwrap_or_default().to_vec(),
        b"Timestamp" => event.at_ms = time(value)?,
        b"Removed Reason" => event.why = value.string()?,
        b"Executor Info" => fields!(value.object_or_skip, value {
            b"Host" => event.host = value.string()?,
            b"Total Cores" => event.cores = value.number()?,
            b"Resource Profile Id" => event.profile = value.number()?,
        }),
        b"Block Manager ID" => fields!(value.object_or_skip, value {
            b"Executor ID" => event.id = value.raw_text()?.unwrap_or_default().to_vec(),
            b"Host" => event.host = value.string()?,
        }),
    });
    Ok(event)
}
