//! Derivation of a task from the metrics of its end.
//!
//! Spark has no metric for the time that a task waits for the disk it reads from. It is bounded by the rest
//! of the run time after core time, garbage collection, fetch wait and shuffle write.

use pellucid_trace::{Blocked, Failure, Outcome, PipelinedTask};

use crate::event::failure::TaskResult;
use crate::event::task::{Accumulated, Metrics, TaskEnd};
use crate::event::time::ns;

/// Tolerance for contradictions between a task's times, which Spark truncates to milliseconds separately.
const ROUNDING_NS: u64 = 3_000_000;

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

/// Returns the task, without the indices of its stage and executor, and its contradictions. Times are
/// Unix times.
pub fn measured(ended: &mut TaskEnd<'_>) -> (PipelinedTask, Contradictions) {
    let mut contradictions = Contradictions::default();
    let launched = ended.launched_ms.or(ended.finished_ms).unwrap_or(0);
    let finished = ended.finished_ms.unwrap_or(launched);
    contradictions.backwards = finished < launched;
    let mut task = PipelinedTask {
        partition: ended.partition.or(ended.index).map_or(0, |n| n.min(u64::from(u32::MAX)) as u32),
        attempt: ended.attempt.map_or(0, |n| n.min(u64::from(u32::MAX)) as u32),
        launched_ns: ns(launched),
        duration_ns: ns(finished.saturating_sub(launched)),
        id: ended.id,
        locality: ended.locality,
        speculative: ended.speculative,
        error: ended.error.take(),
        ..PipelinedTask::default()
    };
    match ended.ended {
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
    if let Some(metrics) = &ended.metrics {
        let getting_result = ended.getting_result_ms.map_or(0, |began| finished.saturating_sub(began));
        add_times(metrics, ns(getting_result), &mut task, &mut contradictions);
        add_sizes(metrics, &mut task);
        ended.accumulated.plugin.add(&mut task);
        ended.accumulated.operators.add(&mut task);
        add_bounds(&mut task, &ended.accumulated);
    }
    (task, contradictions)
}

/// Adds the parts of the duration, each limited to the time that the parts before it leave.
fn add_times(
    metrics: &Metrics,
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
    task.run_ns = part(metrics.run.map(ns), contradictions);
    let deserialize = part(metrics.deserialize.map(ns), contradictions);
    task.result_serialize_ns = part(metrics.result_serialize.map(ns), contradictions);
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
    task.gc = within_run(metrics.gc.map(ns), &mut contradictions.gc_over_run);
    task.blocked_network = within_run(metrics.fetch_wait.map(ns), &mut contradictions.part_over_whole);
    task.blocked_shuffle_write = within_run(metrics.shuffle_write_ns, &mut contradictions.part_over_whole);
    // A JVM that cannot measure core time reports 0, which is impossible for a task that ran.
    let measured = |cpu: Option<u64>, ran: bool| cpu.filter(|ns| *ns > 0 || !ran);
    task.cpu_ns = measured(metrics.cpu_ns, run_ns > 0);
    task.deserialize_cpu_ns = measured(metrics.deserialize_cpu_ns, deserialize > Some(0));
}

fn add_sizes(metrics: &Metrics, task: &mut PipelinedTask) {
    task.input_bytes = metrics.input_bytes;
    task.input_records = metrics.input_records;
    task.output_bytes = metrics.output_bytes;
    task.output_records = metrics.output_records;
    task.shuffle_remote_bytes = metrics.remote_bytes;
    task.shuffle_local_bytes = metrics.local_bytes;
    task.shuffle_read_records = metrics.shuffle_read_records;
    task.shuffle_write_bytes = metrics.shuffle_write_bytes;
    task.shuffle_write_records = metrics.shuffle_write_records;
    task.spill_bytes = metrics.spill_bytes;
    task.memory_spill_bytes = metrics.memory_spill_bytes;
    task.result_bytes = metrics.result_bytes;
    task.peak_memory_bytes = metrics.peak_memory_bytes;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::task::task_end;
    use crate::json::Scanner;
    use pellucid_trace::Blocked::{AtMostNs, MeasuredNs};
    use pellucid_trace::Locality;

    const MS: u64 = 1_000_000;

    /// Parses a task that runs from 5,000 ms to 6,000 ms.
    fn task(metrics: &str, accumulables: &str, reason: &str) -> (PipelinedTask, Contradictions) {
        let line = format!(
            r#"{{"Task Metrics":{{{metrics}}},"Task Info":{{"Task ID":7,"Index":3,"Attempt":1,"Launch Time":5000,
               "Executor ID":"1","Host":"h","Locality":"NODE_LOCAL","Speculative":true,"Getting Result Time":5980,
               "Finish Time":6000,"Accumulables":[{accumulables}]}},"Task End Reason":{reason},"Stage ID":2,
               "Event":"SparkListenerTaskEnd","Unknown":[{{"Task Metrics":{{"JVM GC Time":9}}}}]}}"#
        );
        measured(&mut task_end(&mut Scanner::new(line.as_bytes())).expect("valid"))
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
