//! The end of a task: nine tenths of most logs, so the one event that is read
//! with care for every byte.
//!
//! [`TaskEnd`] is what the line says; [`TaskEnd::measured`] is what follows from
//! it for a [`PipelinedTask`]. No metric of Spark says how long a task waited for
//! the disk that it read from. What is known is a bound: what is left of its run
//! time once core time, garbage collection, fetch wait and shuffle write are
//! taken away.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use pellucid_trace::{Blocked, Failure, Locality, Outcome, PipelinedTask};

use crate::scan::{Bad, Raw, Scanner};
use crate::text;

/// Latest time that is believed: in 2554, the last that nanoseconds in 64 bits can say.
const LAST_MS: u64 = u64::MAX / 1_000_000;
/// Times of a task are cut to milliseconds, each by itself; more than that apart is a contradiction.
const ROUNDING_NS: u64 = 3_000_000;
/// Longest text of a failure that is kept.
const MOST_ERROR_CHARS: usize = 200;

/// What a `SparkListenerTaskEnd` says. Times are in milliseconds of Unix time,
/// or as their names say.
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
    /// As it stands between its quotes.
    pub executor: &'a [u8],
    pub host: &'a [u8],
    locality: Option<Locality>,
    speculative: bool,
    ended: Ended,
    error: Option<String>,
    metrics: Option<Metrics>,
    accumulated: Accumulated,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Ended {
    #[default]
    Well,
    /// It had; now its output was lost.
    OutputLost,
    Failed(Failure),
}

/// `Task Metrics`; milliseconds, but where a name says otherwise.
#[derive(Debug, Default)]
struct Metrics {
    deserialize: Option<u64>,
    deserialize_cpu_ns: Option<u64>,
    run: Option<u64>,
    cpu_ns: Option<u64>,
    result_bytes: Option<u64>,
    gc: Option<u64>,
    result_serialize: Option<u64>,
    memory_spill_bytes: Option<u64>,
    spill_bytes: Option<u64>,
    peak_memory_bytes: Option<u64>,
    remote_bytes: Option<u64>,
    local_bytes: Option<u64>,
    fetch_wait: Option<u64>,
    shuffle_read_records: Option<u64>,
    shuffle_write_bytes: Option<u64>,
    shuffle_write_ns: Option<u64>,
    shuffle_write_records: Option<u64>,
    input_bytes: Option<u64>,
    input_records: Option<u64>,
    output_bytes: Option<u64>,
    output_records: Option<u64>,
}

/// What accumulables say beyond the metrics.
#[derive(Debug, Default)]
struct Accumulated {
    /// SQL scans' own time, waiting and decoding.
    scan_ms: Option<u64>,
    /// Measured by Pellucid's plugin.
    read_wait_ns: Option<u64>,
    write_wait_ns: Option<u64>,
}

/// Accumulables of the plugin.
const READ_WAIT: &[u8] = b"pellucid.read_wait_ns";
const WRITE_WAIT: &[u8] = b"pellucid.write_wait_ns";

/// What was found wrong with times that contradict each other.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Oddities {
    /// More garbage collection than run time.
    pub gc_over_run: bool,
    /// Another part over the whole.
    pub part_over_whole: bool,
    /// It ended before it was launched.
    pub backwards: bool,
}

/// Reads the fields of the event's object; `scanner` stands at its beginning.
///
/// # Errors
/// When the line is no JSON object.
pub fn task_end<'a>(scanner: &mut Scanner<'a>) -> Result<TaskEnd<'a>, Bad> {
    let mut task = TaskEnd::default();
    scanner.object(|key, value| {
        match key {
            b"Stage ID" => task.stage = value.number()?,
            b"Stage Attempt ID" => task.stage_attempt = value.number()?,
            b"Task End Reason" => reason(value, &mut task)?,
            b"Task Info" => info(value, &mut task)?,
            b"Task Metrics" => task.metrics = metrics(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(task)
}

fn info<'a>(scanner: &mut Scanner<'a>, task: &mut TaskEnd<'a>) -> Result<(), Bad> {
    scanner.object_or_skip(|key, value| {
        match key {
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
            _ => value.skip()?,
        }
        Ok(())
    })
}

/// A time; 0 stands for none.
pub fn time(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Bad> {
    Ok(scanner.number()?.filter(|ms| (1..=LAST_MS).contains(ms)))
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

fn metrics(scanner: &mut Scanner<'_>) -> Result<Option<Metrics>, Bad> {
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
            b"Shuffle Read Metrics" => value.object_or_skip(|key, value| {
                match key {
                    b"Remote Bytes Read" => m.remote_bytes = value.number()?,
                    b"Local Bytes Read" => m.local_bytes = value.number()?,
                    b"Fetch Wait Time" => m.fetch_wait = value.number()?,
                    b"Total Records Read" => m.shuffle_read_records = value.number()?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            b"Shuffle Write Metrics" => value.object_or_skip(|key, value| {
                match key {
                    b"Shuffle Bytes Written" => m.shuffle_write_bytes = value.number()?,
                    b"Shuffle Write Time" => m.shuffle_write_ns = value.number()?,
                    b"Shuffle Records Written" => m.shuffle_write_records = value.number()?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            b"Input Metrics" => value.object_or_skip(|key, value| {
                match key {
                    b"Bytes Read" => m.input_bytes = value.number()?,
                    b"Records Read" => m.input_records = value.number()?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            b"Output Metrics" => value.object_or_skip(|key, value| {
                match key {
                    b"Bytes Written" => m.output_bytes = value.number()?,
                    b"Records Written" => m.output_records = value.number()?,
                    _ => value.skip()?,
                }
                Ok(())
            })?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(Some(found).filter(|_| any))
}

/// The list repeats the metrics, and is most of a line; so it is passed in one
/// step and only looked through for names that are worth reading it.
fn accumulables(Raw(list): Raw<'_>) -> Result<Accumulated, Bad> {
    static SCAN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"scan time\""));
    static PLUGIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"pellucid."));
    let mut found = Accumulated::default();
    if SCAN.find(list).is_none() && PLUGIN.find(list).is_none() {
        return Ok(found);
    }
    Scanner::new(list).array_or_skip(|item| {
        let (mut name, mut update) = (&b""[..], None);
        item.object_or_skip(|key, value| {
            match key {
                b"Name" => name = value.raw_text()?.unwrap_or_default(),
                b"Update" => update = value.number()?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        let total = match name {
            b"scan time" => &mut found.scan_ms,
            _ if name == READ_WAIT => &mut found.read_wait_ns,
            _ if name == WRITE_WAIT => &mut found.write_wait_ns,
            _ => return Ok(()),
        };
        *total = update.map_or(*total, |more| Some(total.unwrap_or(0).saturating_add(more)));
        Ok(())
    })?;
    Ok(found)
}

fn reason<'a>(scanner: &mut Scanner<'a>, task: &mut TaskEnd<'a>) -> Result<(), Bad> {
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
    task.ended = Ended::Failed(match reason {
        b"Success" | b"" => return Ok(()),
        b"Resubmitted" => {
            task.ended = Ended::OutputLost;
            return Ok(());
        }
        b"FetchFailed" => Failure::FetchFailed,
        b"TaskKilled" => Failure::Killed,
        b"TaskCommitDenied" => Failure::CommitDenied,
        b"ExceptionFailure" | b"ExecutorLostFailure" if memory => Failure::OutOfMemory,
        b"ExceptionFailure" => Failure::Exception,
        b"ExecutorLostFailure" => Failure::ExecutorLost,
        _ => Failure::Other,
    });
    let words = words.as_deref().map(text::first_line).filter(|line| !line.is_empty());
    let said = match (class.as_deref(), words) {
        (Some(class), Some(words)) if !words.starts_with(class) => format!("{class}: {words}"),
        (_, Some(words)) => words.to_owned(),
        (Some(class), None) => class.to_owned(),
        (None, None) => String::from_utf8_lossy(reason).into_owned(),
    };
    task.error = Some(text::clipped(&said, MOST_ERROR_CHARS));
    Ok(())
}

impl TaskEnd<'_> {
    /// The task without the indices of its stage and executor, and what
    /// contradicted itself. Times count from Unix time's beginning.
    pub fn measured(mut self) -> (PipelinedTask, Oddities) {
        let mut odd = Oddities::default();
        let launched = self.launched_ms.or(self.finished_ms).unwrap_or(0);
        let finished = self.finished_ms.unwrap_or(launched);
        odd.backwards = finished < launched;
        let mut task = PipelinedTask {
            partition: self.partition.or(self.index).map_or(0, |n| n.min(u64::from(u32::MAX)) as u32),
            attempt: self.attempt.map_or(0, |n| n.min(u64::from(u32::MAX)) as u32),
            launched_ns: ns(launched),
            duration_ns: ns(finished.saturating_sub(launched)),
            id: self.id,
            locality: self.locality,
            speculative: self.speculative,
            error: self.error.take(),
            ..PipelinedTask::default()
        };
        match self.ended {
            Ended::Well => {}
            Ended::OutputLost => {
                // The same task ended well before, with all its times: a second
                // record of them would count them twice.
                task.launched_ns = ns(finished);
                task.duration_ns = 0;
                task.outcome = Outcome::Failed;
                task.failure = Some(Failure::OutputLost);
                return (task, odd);
            }
            Ended::Failed(failure) => {
                let stopped = matches!(failure, Failure::Killed | Failure::CommitDenied);
                task.outcome = if stopped { Outcome::Cancelled } else { Outcome::Failed };
                task.failure = Some(failure);
            }
        }
        if let Some(metrics) = &self.metrics {
            let getting_result = self.getting_result_ms.map_or(0, |began| finished.saturating_sub(began));
            metrics.add_times(ns(getting_result), &mut task, &mut odd);
            metrics.add_sizes(&mut task);
            self.accumulated.add(&mut task);
            add_bounds(&mut task, &self.accumulated);
        }
        (task, odd)
    }
}

impl Metrics {
    /// The parts of the duration, each within what is left by those before it.
    fn add_times(&self, getting_result_ns: u64, task: &mut PipelinedTask, odd: &mut Oddities) {
        let mut left = task.duration_ns;
        let mut part = |recorded: Option<u64>, odd: &mut Oddities| {
            let within = recorded?.min(left);
            odd.part_over_whole |= recorded > Some(within + ROUNDING_NS);
            left -= within;
            Some(within)
        };
        task.run_ns = part(self.run.map(ns), odd);
        let deserialize = part(self.deserialize.map(ns), odd);
        task.result_serialize_ns = part(self.result_serialize.map(ns), odd);
        task.getting_result_ns = part(Some(getting_result_ns), odd);
        task.deserialize = deserialize.map(Blocked::MeasuredNs);
        // The difference means something only where what it is the rest of is known.
        task.scheduler = task.run_ns.map(|_| Blocked::MeasuredNs(left));

        let run_ns = task.run_ns.unwrap_or(task.duration_ns);
        let within_run = |recorded: Option<u64>, over: &mut bool| {
            let within = recorded?.min(run_ns);
            *over |= recorded > Some(within + ROUNDING_NS);
            Some(Blocked::MeasuredNs(within))
        };
        task.gc = within_run(self.gc.map(ns), &mut odd.gc_over_run);
        task.blocked_network = within_run(self.fetch_wait.map(ns), &mut odd.part_over_whole);
        task.blocked_shuffle_write = within_run(self.shuffle_write_ns, &mut odd.part_over_whole);
        // A JVM that cannot measure core time says 0; a task that ran cannot.
        let measured = |cpu: Option<u64>, ran: bool| cpu.filter(|ns| *ns > 0 || !ran);
        task.cpu_ns = measured(self.cpu_ns, run_ns > 0);
        task.deserialize_cpu_ns = measured(self.deserialize_cpu_ns, deserialize > Some(0));
    }

    fn add_sizes(&self, task: &mut PipelinedTask) {
        task.input_bytes = self.input_bytes;
        task.input_records = self.input_records;
        task.output_bytes = self.output_bytes;
        task.output_records = self.output_records;
        task.shuffle_remote_bytes = self.remote_bytes;
        task.shuffle_local_bytes = self.local_bytes;
        task.shuffle_read_records = self.shuffle_read_records;
        task.shuffle_write_bytes = self.shuffle_write_bytes;
        task.shuffle_write_records = self.shuffle_write_records;
        task.spill_bytes = self.spill_bytes;
        task.memory_spill_bytes = self.memory_spill_bytes;
        task.result_bytes = self.result_bytes;
        task.peak_memory_bytes = self.peak_memory_bytes;
    }
}

impl Accumulated {
    /// What was measured where stock Spark measures nothing.
    fn add(&self, task: &mut PipelinedTask) {
        let run_ns = task.run_ns.unwrap_or(task.duration_ns);
        task.scan_ns = self.scan_ms.map(|ms| ns(ms.min(LAST_MS)).min(run_ns));
        let within = |wait: Option<u64>| wait.map(|ns| Blocked::MeasuredNs(ns.min(run_ns)));
        task.blocked_input = within(self.read_wait_ns);
        task.blocked_output = within(self.write_wait_ns);
    }
}

/// What may hide in the part of the run time that no metric explains.
fn add_bounds(task: &mut PipelinedTask, accumulated: &Accumulated) {
    let Some(run_ns) = task.run_ns else { return };
    let known = |blocked: Option<Blocked>| match blocked {
        Some(Blocked::MeasuredNs(ns)) => ns,
        _ => 0,
    };
    let explained = [
        task.cpu_ns.unwrap_or(0),
        known(task.gc),
        known(task.blocked_network),
        known(task.blocked_shuffle_write),
        accumulated.read_wait_ns.unwrap_or(0),
        accumulated.write_wait_ns.unwrap_or(0),
    ];
    let rest = explained.iter().fold(run_ns, |rest, part| rest.saturating_sub(*part));
    let bound = |did: bool, at_most: u64| Some(Blocked::AtMostNs(at_most)).filter(|_| did);
    let some = |amounts: [Option<u64>; 2]| amounts.iter().flatten().any(|amount| *amount > 0);
    if task.blocked_input.is_none() {
        let read = some([task.input_bytes, task.input_records]);
        task.blocked_input = bound(read, rest.min(task.scan_ns.unwrap_or(rest)));
    }
    if task.blocked_output.is_none() {
        task.blocked_output = bound(some([task.output_bytes, task.output_records]), rest);
    }
    task.blocked_shuffle_read = bound(some([task.shuffle_local_bytes, None]), rest);
    task.blocked_spill = bound(some([task.spill_bytes, None]), rest);
}

/// Milliseconds, of which more than [`LAST_MS`] are as many.
pub fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}
