//! Task-end events, which make up nine tenths of most logs and are therefore parsed with particular care
//! for speed.
//!
//! [`TaskEnd`] holds the fields of the line, as they are; `log/measured.rs` derives a task
//! from them.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use pellucid_trace::Locality;

use crate::event::failure::{self, TaskResult};
use crate::event::operators::OperatorMetrics;
use crate::event::plugin::PluginMetrics;
use crate::event::time::time;
use crate::json::{Malformed, Raw, Scanner, fields};

/// The fields of a `SparkListenerTaskEnd`. Times are Unix times in milliseconds.
#[derive(Debug, Default)]
pub struct TaskEnd<'a> {
    pub stage: Option<u64>,
    pub stage_attempt: Option<u64>,
    pub id: Option<u64>,
    pub index: Option<u64>,
    pub partition: Option<u64>,
    pub attempt: Option<u64>,
    pub launched_ms: Option<u64>,
    pub finished_ms: Option<u64>,
    pub getting_result_ms: Option<u64>,
    /// Executor id, with escapes.
    pub executor: &'a [u8],
    pub host: &'a [u8],
    pub locality: Option<Locality>,
    pub speculative: bool,
    pub ended: TaskResult,
    pub error: Option<String>,
    pub metrics: Option<Metrics>,
    pub accumulated: Accumulated,
}

/// The `Task Metrics`, in milliseconds unless a name has another unit.
#[derive(Debug, Default)]
pub struct Metrics {
    pub deserialize: Option<u64>,
    pub deserialize_cpu_ns: Option<u64>,
    pub run: Option<u64>,
    pub cpu_ns: Option<u64>,
    pub result_bytes: Option<u64>,
    pub gc: Option<u64>,
    pub result_serialize: Option<u64>,
    pub memory_spill_bytes: Option<u64>,
    pub spill_bytes: Option<u64>,
    pub peak_memory_bytes: Option<u64>,
    pub remote_bytes: Option<u64>,
    pub local_bytes: Option<u64>,
    pub fetch_wait: Option<u64>,
    pub shuffle_read_records: Option<u64>,
    pub shuffle_write_bytes: Option<u64>,
    pub shuffle_write_ns: Option<u64>,
    pub shuffle_write_records: Option<u64>,
    pub input_bytes: Option<u64>,
    pub input_records: Option<u64>,
    pub output_bytes: Option<u64>,
    pub output_records: Option<u64>,
}

/// Metrics from accumulables.
#[derive(Debug, Default)]
pub struct Accumulated {
    pub operators: OperatorMetrics,
    pub plugin: PluginMetrics,
}

/// Reads the event's object.
///
/// # Errors
/// Fails if the line is not a JSON object.
pub fn task_end<'a>(scanner: &mut Scanner<'a>) -> Result<TaskEnd<'a>, Malformed> {
    let mut task = TaskEnd::default();
    fields!(scanner.object, value {
        b"Stage ID" => task.stage = value.number()?,
        b"Stage Attempt ID" => task.stage_attempt = value.number()?,
        b"Task End Reason" => (task.ended, task.error) = failure::reason(value)?,
        b"Task Info" => info(value, &mut task)?,
        b"Task Metrics" => task.metrics = metrics(value)?,
    });
    Ok(task)
}

fn info<'a>(scanner: &mut Scanner<'a>, task: &mut TaskEnd<'a>) -> Result<(), Malformed> {
    fields!(scanner.object_or_skip, value {
        b"Task ID" => task.id = value.number()?,
        b"Index" => task.index = value.number()?,
        b"Attempt" => task.attempt = value.number()?,
        b"Partition ID" => task.partition = value.number()?,
        b"Launch Time" => task.launched_ms = time(value)?,
        b"Executor ID" => task.executor = value.raw_text()?.unwrap_or_default(),
        b"Host" => task.host = value.raw_text()?.unwrap_or_default(),
        b"Locality" => task.locality = value.raw_text()?.and_then(locality),
        b"Speculative" => task.speculative = value.boolean()? == Some(true),
        b"Getting Result Time" => task.getting_result_ms = time(value)?,
        b"Finish Time" => task.finished_ms = time(value)?,
        b"Accumulables" => task.accumulated = accumulables(value.raw()?)?,
    });
    Ok(())
}

fn locality(name: &[u8]) -> Option<Locality> {
    match name {
        b"PROCESS_LOCAL" => Some(Locality::Process),
        b"NODE_LOCAL" => Some(Locality::Node),
        b"NO_PREF" => Some(Locality::NoPreference),
        b"RACK_LOCAL" => Some(Locality::Rack),
        b"ANY" => Some(Locality::Any),
        _ => None,
    }
}

/// Reads the metrics. Returns `None` if there are none, as for a task whose executor was lost.
fn metrics(scanner: &mut Scanner<'_>) -> Result<Option<Metrics>, Malformed> {
    let mut found = Metrics::default();
    let m = &mut found;
    let mut any = false;
    scanner.object_or_skip(|key, value| {
        any = true;
        match key {
            b"Executor Deserialize Time" => m.deserialize = value.number()?,
            b"Executor Deserialize CPU Time" => m.deserialize_cpu_ns = value.number()?,
            b"Executor Run Time" => m.run = value.number()?,
            b"Executor CPU Time" => m.cpu_ns = value.number()?,
            b"Result Size" => m.result_bytes = value.number()?,
            b"JVM GC Time" => m.gc = value.number()?,
            b"Result Serialization Time" => m.result_serialize = value.number()?,
            b"Memory Bytes Spilled" => m.memory_spill_bytes = value.number()?,
            b"Disk Bytes Spilled" => m.spill_bytes = value.number()?,
            b"Peak Execution Memory" => m.peak_memory_bytes = value.number()?,
            b"Shuffle Read Metrics" => fields!(value.object_or_skip, value {
                b"Remote Bytes Read" => m.remote_bytes = value.number()?,
                b"Local Bytes Read" => m.local_bytes = value.number()?,
                b"Fetch Wait Time" => m.fetch_wait = value.number()?,
                b"Total Records Read" => m.shuffle_read_records = value.number()?,
            }),
            b"Shuffle Write Metrics" => fields!(value.object_or_skip, value {
                b"Shuffle Bytes Written" => m.shuffle_write_bytes = value.number()?,
                b"Shuffle Write Time" => m.shuffle_write_ns = value.number()?,
                b"Shuffle Records Written" => m.shuffle_write_records = value.number()?,
            }),
            b"Input Metrics" => fields!(value.object_or_skip, value {
                b"Bytes Read" => m.input_bytes = value.number()?,
                b"Records Read" => m.input_records = value.number()?,
            }),
            b"Output Metrics" => fields!(value.object_or_skip, value {
                b"Bytes Written" => m.output_bytes = value.number()?,
                b"Records Written" => m.output_records = value.number()?,
            }),
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(Some(found).filter(|_| any))
}

/// Reads accumulables. The list makes up most of a line and mostly repeats the metrics, so it is parsed
/// only if a text search finds a name of interest.
fn accumulables(Raw(list): Raw<'_>) -> Result<Accumulated, Malformed> {
    static PLUGIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"pellucid."));
    let mut found = Accumulated::default();
    if !OperatorMetrics::are_in(list) && PLUGIN.find(list).is_none() {
        return Ok(found);
    }
    Scanner::new(list).array_or_skip(|item| {
        let (mut name, mut update) = (&b""[..], None);
        fields!(item.object_or_skip, value {
            b"Name" => name = value.raw_text()?.unwrap_or_default(),
            b"Update" => update = value.number()?,
        });
        let Some(total) = found.operators.slot(name).or(found.plugin.slot(name)) else { return Ok(()) };
        *total = update.map_or(*total, |more| Some(total.unwrap_or(0).saturating_add(more)));
        Ok(())
    })?;
    Ok(found)
}
