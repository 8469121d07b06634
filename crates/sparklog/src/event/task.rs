//! Task-end events, which make up nine tenths of most logs and are therefore parsed with particular care
//! for speed.
//!
//! [`TaskEnd`] holds the fields of the line; [`TaskEnd::measured`] derives a [`PipelinedTask`] from it.
//! Spark has no metric for the time that a task waits for the disk it reads from. It is bounded by the rest
//! of the run time after core time, garbage collection, fetch wait and shuffle write.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use pellucid_trace::{Blocked, Failure, Locality, Outcome, PipelinedTask};

use crate::event::failure::{self, TaskResult};
use crate::event::operators::OperatorMetrics;
use crate::event::plugin::PluginMetrics;
use crate::json::{Malformed, Raw, Scanner};

/// Latest valid time, in the year 2554: the last that 64 bits of nanoseconds can represent.
const LAST_MS: u64 = u64::MAX / 1_000_000;
/// Tolerance for contradictions between a task's times, which Spark truncates to milliseconds separately.
const ROUNDING_NS: u64 = 3_000_000;

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
    locality: Option<Locality>,
    speculative: bool,
    ended: TaskResult,
    error: Option<String>,
    metrics: Option<Metrics>,
    accumulated: Accumulated,
}

/// The `Task Metrics`, in milliseconds unless a name has another unit.
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

/// Metrics from accumulables.
#[derive(Debug, Default)]
struct Accumulated {
    operators: OperatorMetrics,
    plugin: PluginMetrics,
}

/// Contradictions between a task's times.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Contradictions {
    /// Garbage collection exceeds the run time.
    pub gc_over_run: bool,
    /// Another part exceeds the whole.
    pub part_over_whole: bool,
    /// The task ended before its launch.
    pub backwards: bool,
}

/// Reads the event's object.
///
/// # Errors
/// Fails if the line is not a JSON object.
pub fn task_end<'a>(scanner: &mut Scanner<'a>) -> Result<TaskEnd<'a>, Malformed> {
    let mut task = TaskEnd::default();
    scanner.object(|key, value| {
        match key {
            b"Stage ID" => task.stage = value.number()?,
            b"Stage Attempt ID" => task.stage_attempt = value.number()?,
            b"Task End Reason" => (task.ended, task.error) = failure::reason(value)?,
            b"Task Info" => info(value, &mut task)?,
            b"Task Metrics" => task.metrics = metrics(value)?,
            _ => value.skip()?,
        }
        Ok(())
    })?;
    Ok(task)
}

fn info<'a>(scanner: &mut Scanner<'a>, task: &mut TaskEnd<'a>) -> Result<(), Malformed> {
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

/// Reads a time; 0 means that it was not recorded.
pub fn time(scanner: &mut Scanner<'_>) -> Result<Option<u64>, Malformed> {
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
        item.object_or_skip(|key, value| {
            match key {
                b"Name" => name = value.raw_text()?.unwrap_or_default(),
                b"Update" => update = value.number()?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        let Some(total) = found.operators.slot(name).or(found.plugin.slot(name)) else { return Ok(()) };
        *total = update.map_or(*total, |more| Some(total.unwrap_or(0).saturating_add(more)));
        Ok(())
    })?;
    Ok(found)
}

impl TaskEnd<'_> {
    /// Returns the task, without the indices of its stage and executor, and its contradictions. Times are
    /// Unix times.
    pub fn measured(&mut self) -> (PipelinedTask, Contradictions) {
        let mut contradictions = Contradictions::default();
        let launched = self.launched_ms.or(self.finished_ms).unwrap_or(0);
        let finished = self.finished_ms.unwrap_or(launched);
        contradictions.backwards = finished < launched;
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
            TaskResult::Succeeded => {}
            TaskResult::OutputLost => {
                // The task's times were recorded when it succeeded; recording them again would count them
                // twice.
                task.launched_ns = ns(finished);
                task.duration_ns = 0;
                task.outcome = Outcome::Failed;
                task.failure = Some(Failure::OutputLost);
                return (task, contradictions);
            }
            TaskResult::Failed(failure) => {
                let stopped = matches!(failure, Failure::Killed | Failure::CommitDenied);
                task.outcome = if stopped { Outcome::Cancelled } else { Outcome::Failed };
                task.failure = Some(failure);
            }
        }
        if let Some(metrics) = &self.metrics {
            let getting_result = self.getting_result_ms.map_or(0, |began| finished.saturating_sub(began));
            metrics.add_times(ns(getting_result), &mut task, &mut contradictions);
            metrics.add_sizes(&mut task);
            self.accumulated.plugin.add(&mut task);
            self.accumulated.operators.add(&mut task);
            add_bounds(&mut task, &self.accumulated);
        }
        (task, contradictions)
    }

    /// Returns the metrics of Pellucid's plugin.
    pub fn plugin(&self) -> &PluginMetrics {
        &self.accumulated.plugin
    }
}

impl Metrics {
    /// Adds the parts of the duration, each limited to the time that the parts before it leave.
    fn add_times(
        &self,
        getting_result_ns: u64,
        task: &mut PipelinedTask,
        contradictions: &mut Contradictions,
    ) {
        let mut left = task.duration_ns;
        let mut part = |recorded: Option<u64>, contradictions: &mut Contradictions| {
            let within = recorded?.min(left);
            contradictions.part_over_whole |= recorded > Some(within + ROUNDING_NS);
            left -= within;
            Some(within)
        };
        task.run_ns = part(self.run.map(ns), contradictions);
        let deserialize = part(self.deserialize.map(ns), contradictions);
        task.result_serialize_ns = part(self.result_serialize.map(ns), contradictions);
        task.getting_result_ns = part(Some(getting_result_ns), contradictions);
        task.deserialize = deserialize.map(Blocked::MeasuredNs);
        // Scheduler delay is the rest of the duration, which is meaningful only if the run time is known.
        task.scheduler = task.run_ns.map(|_| Blocked::MeasuredNs(left));

        let run_ns = task.run_ns.unwrap_or(task.duration_ns);
        let within_run = |recorded: Option<u64>, over: &mut bool| {
            let within = recorded?.min(run_ns);
            *over |= recorded > Some(within + ROUNDING_NS);
            Some(Blocked::MeasuredNs(within))
        };
        task.gc = within_run(self.gc.map(ns), &mut contradictions.gc_over_run);
        task.blocked_network = within_run(self.fetch_wait.map(ns), &mut contradictions.part_over_whole);
        task.blocked_shuffle_write = within_run(self.shuffle_write_ns, &mut contradictions.part_over_whole);
        // A JVM that cannot measure core time reports 0, which is impossible for a task that ran.
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

/// Adds upper bounds for waits that may be part of the unexplained run time.
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
        known(task.blocked_input),
        known(task.blocked_output),
        task.queue_ns.unwrap_or(0),
    ];
    let rest = explained.iter().fold(run_ns, |rest, part| rest.saturating_sub(*part));
    let rest = accumulated.plugin.waited_ns().map_or(rest, |waited| rest.min(waited));
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

/// Converts milliseconds to nanoseconds, saturating.
pub fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_trace::Blocked::{AtMostNs, MeasuredNs};

    const MS: u64 = 1_000_000;

    /// Parses a task that runs from 5,000 ms to 6,000 ms.
    fn task(metrics: &str, accumulables: &str, reason: &str) -> (PipelinedTask, Contradictions) {
        let line = format!(
            r#"{{"Task Metrics":{{{metrics}}},"Task Info":{{"Task ID":7,"Index":3,"Attempt":1,"Launch Time":5000,
               "Executor ID":"1","Host":"h","Locality":"NODE_LOCAL","Speculative":true,"Getting Result Time":5980,
               "Finish Time":6000,"Accumulables":[{accumulables}]}},"Task End Reason":{reason},"Stage ID":2,
               "Event":"SparkListenerTaskEnd","Unknown":[{{"Task Metrics":{{"JVM GC Time":9}}}}]}}"#
        );
        task_end(&mut Scanner::new(line.as_bytes())).expect("valid").measured()
    }

    const GOOD: &str = r#"{"Reason":"Success"}"#;
    const FULL: &str = r#""Executor Deserialize Time":30,"Executor Run Time":900,"Executor CPU Time":400000000,
        "JVM GC Time":100,"Result Serialization Time":10,"Disk Bytes Spilled":0,
        "Shuffle Read Metrics":{"Remote Bytes Read":5,"Local Bytes Read":6,"Fetch Wait Time":50},
        "Shuffle Write Metrics":{"Shuffle Bytes Written":7,"Shuffle Write Time":60000000},
        "Input Metrics":{"Bytes Read":8,"Records Read":9},"Output Metrics":{"Bytes Written":0,"Records Written":0}"#;

    #[test]
    fn parts_of_a_task_sum_to_its_duration() {
        let (task, contradictions) = task(FULL, "", GOOD);
        assert_eq!(contradictions, Contradictions::default());
        assert_eq!((task.duration_ns, task.run_ns), (1000 * MS, Some(900 * MS)));
        // 1000 - 900 - 30 - 10 - 20 of getting the result
        assert_eq!(task.scheduler, Some(MeasuredNs(40 * MS)));
        assert_eq!((task.deserialize, task.getting_result_ns), (Some(MeasuredNs(30 * MS)), Some(20 * MS)));
        assert_eq!((task.partition, task.attempt, task.id), (3, 1, Some(7)));
        assert_eq!((task.locality, task.speculative), (Some(Locality::Node), true));
    }

    #[test]
    fn unexplained_time_bounds_waits() {
        let rest = Some(AtMostNs((900 - 400 - 100 - 50 - 60) * MS));
        let (plain, _) = task(FULL, "", GOOD);
        assert_eq!((plain.blocked_input, plain.blocked_shuffle_read), (rest, rest));
        // The task neither spilled nor wrote output.
        assert_eq!((plain.blocked_spill, plain.blocked_output), (None, None));
        assert_eq!(
            (plain.blocked_network, plain.gc),
            (Some(MeasuredNs(50 * MS)), Some(MeasuredNs(100 * MS)))
        );
        let scan = r#"{"ID":1,"Name":"scan time","Update":"120","Value":"9"},{"ID":2,"Name":"scan time","Update":30}"#;
        let (scanned, _) = task(FULL, scan, GOOD);
        assert_eq!((scanned.scan_ns, scanned.blocked_input), (Some(150 * MS), Some(AtMostNs(150 * MS))));
        let commit = r#"{"ID":3,"Name":"task commit time","Update":"70","Value":"90"}"#;
        assert_eq!(task(FULL, commit, GOOD).0.commit_ns, Some(70 * MS));
    }

    #[test]
    fn plugin_waits_replace_bounds() {
        let waits = r#"{"Name":"pellucid.read_wait_ns","Update":200000000},{"Name":"pellucid.write_wait_ns","Update":"0"}"#;
        let (task, _) = task(FULL, waits, GOOD);
        assert_eq!(
            (task.blocked_input, task.blocked_output),
            (Some(MeasuredNs(200 * MS)), Some(MeasuredNs(0)))
        );
        assert_eq!(task.blocked_shuffle_read, Some(AtMostNs((900 - 400 - 100 - 50 - 60 - 200) * MS)));
    }

    #[test]
    fn unrecorded_metrics_are_absent() {
        let (old, _) = task(r#""Host Name":"h","Executor Run Time":900,"JVM GC Time":0"#, "", GOOD);
        assert_eq!((old.cpu_ns, old.input_bytes, old.blocked_network), (None, None, None));
        assert_eq!((old.shuffle_write_bytes, old.deserialize, old.blocked_input), (None, None, None));
        let (no_cpu, _) = task(r#""Executor Run Time":900,"Executor CPU Time":0"#, "", GOOD);
        assert_eq!(no_cpu.cpu_ns, None, "a JVM that cannot measure core time reports 0");
        let (lost, _) =
            task("", "", r#"{"Reason":"ExecutorLostFailure","Loss Reason":"Command exited with code 137"}"#);
        assert_eq!((lost.run_ns, lost.scheduler, lost.gc), (None, None, None));
        assert_eq!((lost.outcome, lost.failure), (Outcome::Failed, Some(Failure::ExecutorLost)));
        assert_eq!(lost.error.as_deref(), Some("Command exited with code 137"));
    }

    #[test]
    fn contradictory_times_are_capped_and_reported() {
        let (task, contradictions) =
            task(r#""Executor Run Time":1200,"JVM GC Time":5000,"Executor Deserialize Time":9"#, "", GOOD);
        assert_eq!((task.run_ns, task.gc), (Some(1000 * MS), Some(MeasuredNs(1000 * MS))));
        assert_eq!(task.scheduler, Some(MeasuredNs(0)));
        assert_eq!(
            contradictions,
            Contradictions { gc_over_run: true, part_over_whole: true, backwards: false }
        );
    }

    #[test]
    fn failures_are_classified_with_their_message() {
        let failed = |reason: &str| {
            let (task, _) = task("", "", reason);
            (task.failure, task.outcome, task.error.unwrap_or_default(), task.duration_ns)
        };
        let all = 1000 * MS;
        let memory = r#"{"Reason":"ExceptionFailure","Class Name":"java.lang.OutOfMemoryError","Description":"Java heap space\nx"}"#;
        let words = "java.lang.OutOfMemoryError: Java heap space".to_owned();
        assert_eq!(failed(memory), (Some(Failure::OutOfMemory), Outcome::Failed, words, all));
        let killed = r#"{"Reason":"TaskKilled","Kill Reason":"another attempt succeeded"}"#;
        let words = "another attempt succeeded".to_owned();
        assert_eq!(failed(killed), (Some(Failure::Killed), Outcome::Cancelled, words, all));
        let fetch =
            r#"{"Reason":"FetchFailed","Shuffle ID":0,"Message":"org.apache.FetchFailedException\n\tat x"}"#;
        assert_eq!(failed(fetch).0, Some(Failure::FetchFailed));
        let again = failed(r#"{"Reason":"Resubmitted"}"#);
        assert_eq!(
            (again.0, again.3),
            (Some(Failure::OutputLost), 0),
            "its time was counted when it succeeded"
        );
        assert_eq!(failed(r#"{"Reason":"SomethingNew"}"#).0, Some(Failure::Other));
    }
}
