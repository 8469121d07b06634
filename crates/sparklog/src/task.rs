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

use crate::failure::{self, Ended};
use crate::operators::Operators;
use crate::plugin::Measured;
use crate::scan::{Bad, Raw, Scanner};

/// Latest time that is believed: in 2554, the last that nanoseconds in 64 bits can say.
const LAST_MS: u64 = u64::MAX / 1_000_000;
/// Times of a task are cut to milliseconds, each by itself; more than that apart is a contradiction.
const ROUNDING_NS: u64 = 3_000_000;

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
    operators: Operators,
    plugin: Measured,
}

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
            b"Task End Reason" => (task.ended, task.error) = failure::reason(value)?,
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
    static PLUGIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"pellucid."));
    let mut found = Accumulated::default();
    if !Operators::are_in(list) && PLUGIN.find(list).is_none() {
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
        let Some(total) = found.operators.place(name).or(found.plugin.place(name)) else { return Ok(()) };
        *total = update.map_or(*total, |more| Some(total.unwrap_or(0).saturating_add(more)));
        Ok(())
    })?;
    Ok(found)
}

impl TaskEnd<'_> {
    /// The task without the indices of its stage and executor, and what
    /// contradicted itself. Times count from Unix time's beginning.
    pub fn measured(&mut self) -> (PipelinedTask, Oddities) {
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
            self.accumulated.plugin.add(&mut task);
            self.accumulated.operators.add(&mut task);
            add_bounds(&mut task, &self.accumulated);
        }
        (task, odd)
    }

    /// What Pellucid's plugin says of it.
    pub fn plugin(&self) -> &Measured {
        &self.accumulated.plugin
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

/// Milliseconds, of which more than [`LAST_MS`] are as many.
pub fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_trace::Blocked::{AtMostNs, MeasuredNs};

    const MS: u64 = 1_000_000;

    /// A task of 1,000 ms from 5,000 on, with these metrics, accumulables and reason.
    fn task(metrics: &str, accumulables: &str, reason: &str) -> (PipelinedTask, Oddities) {
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
    fn the_parts_of_a_task_sum_to_its_duration() {
        let (task, odd) = task(FULL, "", GOOD);
        assert_eq!(odd, Oddities::default());
        assert_eq!((task.duration_ns, task.run_ns), (1000 * MS, Some(900 * MS)));
        // 1000 - 900 - 30 - 10 - 20 of getting the result
        assert_eq!(task.scheduler, Some(MeasuredNs(40 * MS)));
        assert_eq!((task.deserialize, task.getting_result_ns), (Some(MeasuredNs(30 * MS)), Some(20 * MS)));
        assert_eq!((task.partition, task.attempt, task.id), (3, 1, Some(7)));
        assert_eq!((task.locality, task.speculative), (Some(Locality::Node), true));
    }

    #[test]
    fn what_no_metric_explains_bounds_what_it_did() {
        let rest = Some(AtMostNs((900 - 400 - 100 - 50 - 60) * MS));
        let (plain, _) = task(FULL, "", GOOD);
        assert_eq!((plain.blocked_input, plain.blocked_shuffle_read), (rest, rest));
        // It neither spilled nor put anything out.
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
    fn the_plugin_measures_what_stock_spark_cannot() {
        let waits = r#"{"Name":"pellucid.read_wait_ns","Update":200000000},{"Name":"pellucid.write_wait_ns","Update":"0"}"#;
        let (task, _) = task(FULL, waits, GOOD);
        assert_eq!(
            (task.blocked_input, task.blocked_output),
            (Some(MeasuredNs(200 * MS)), Some(MeasuredNs(0)))
        );
        assert_eq!(task.blocked_shuffle_read, Some(AtMostNs((900 - 400 - 100 - 50 - 60 - 200) * MS)));
    }

    #[test]
    fn what_was_not_recorded_is_absent() {
        let (old, _) = task(r#""Host Name":"h","Executor Run Time":900,"JVM GC Time":0"#, "", GOOD);
        assert_eq!((old.cpu_ns, old.input_bytes, old.blocked_network), (None, None, None));
        assert_eq!((old.shuffle_write_bytes, old.deserialize, old.blocked_input), (None, None, None));
        let (no_cpu, _) = task(r#""Executor Run Time":900,"Executor CPU Time":0"#, "", GOOD);
        assert_eq!(no_cpu.cpu_ns, None, "a JVM that cannot measure core time says 0");
        let (lost, _) =
            task("", "", r#"{"Reason":"ExecutorLostFailure","Loss Reason":"Command exited with code 137"}"#);
        assert_eq!((lost.run_ns, lost.scheduler, lost.gc), (None, None, None));
        assert_eq!((lost.outcome, lost.failure), (Outcome::Failed, Some(Failure::ExecutorLost)));
        assert_eq!(lost.error.as_deref(), Some("Command exited with code 137"));
    }

    #[test]
    fn what_contradicts_itself_is_cut_and_said() {
        let (task, odd) =
            task(r#""Executor Run Time":1200,"JVM GC Time":5000,"Executor Deserialize Time":9"#, "", GOOD);
        assert_eq!((task.run_ns, task.gc), (Some(1000 * MS), Some(MeasuredNs(1000 * MS))));
        assert_eq!(task.scheduler, Some(MeasuredNs(0)));
        assert_eq!(odd, Oddities { gc_over_run: true, part_over_whole: true, backwards: false });
    }

    #[test]
    fn failures_have_kinds_and_words() {
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
            "its time was counted when it ended well"
        );
        assert_eq!(failed(r#"{"Reason":"SomethingNew"}"#).0, Some(Failure::Other));
    }
}
