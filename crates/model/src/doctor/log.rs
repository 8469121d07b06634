//! Findings from a Spark event log.
//!
//! The log's settings tell how output is committed. Its tasks record their part of the commit time
//! (Spark's metric "task commit time"); the driver's part is the time from a query's last job to
//! the query's end. CLOUD '16, §V-A.3, splits the cost of Swift's renames in the same way. A commit
//! by uploads takes time, too: with a probe of the store, each of its small requests costs as much as
//! the probe's, plus S3A's own time. If Spark did not record the tasks' part, it is estimated from
//! the time of the probe's copies.

use pellucid_trace::probe::{ReadFrom, ReadRate, Report};
use pellucid_trace::{Application, Blocked, PipelinedTask, Trace, kind};

use super::configuration::SparkConfiguration;
use super::listing::long_listings;
use super::problem::{Problem, Saving};
use super::remedies::{
    FEWER_REQUESTS, LARGE_REQUEST_BYTES, MIN_REQUESTS, MIN_STREAM_SPEEDUP, MIN_TIME_SHARE, READ_SLOWER,
    SMALL_BYTES, is_throttling,
};
use super::spark;
use crate::finding::{Finding, number, percent};

/// Minimum commit time to report, as a share of the jobs' time.
const MIN_COMMIT_SHARE: f64 = 0.05;
/// Sequential requests of one task with S3A's magic committer, as its audit log counts them (S3A 3.5.0,
/// `org.apache.hadoop.fs.s3a.audit.impl.LoggingAuditor` at DEBUG). Four of them have no counterpart in a task that renames:
/// a folder's marker, the start of an upload, the file's marker and the record of the pending upload. The task's commit
/// takes the other nine: it lists and reads the records, writes one for the driver, and removes them.
const TASK_REQUESTS: f64 = 13.0;
/// Sequential requests of the driver. It lists and reads the records of the pending uploads and completes the uploads, with
/// one concurrent request per file, which this number leaves out. Then it writes the success marker, looks for other
/// uploads, and removes records, markers and staging folders.
const DRIVER_REQUESTS: f64 = 14.0;
/// S3A's own time per request, excluding the store: the difference between the nine requests of its commits and the probe's,
/// with client, tasks and store on two cores (`bench/STORAGE.md`, output committed by rename).
const S3A_NS: f64 = 7e6;
/// Relative uncertainty of the request times of a commit by uploads: a probe covers one minute of a store, and other cores
/// are faster or slower.
const REQUEST_UNCERTAINTY: f64 = 0.5;
/// Share of core time in their run time below which tasks count as waiting.
const MAX_COMPUTING_SHARE: f64 = 0.5;
/// Minimum share of the tasks' time in stages that read Spark's cache to report.
const MIN_CACHED_TIME_SHARE: f64 = 0.5;

/// Finds problems in the trace of an event log; see the module documentation.
pub(super) fn of_log(trace: &Trace, application: &Application, probe: Option<&Report>) -> Vec<Problem> {
    let properties = application.properties.iter().map(|(k, v)| (k.clone(), v.clone()));
    let conf = SparkConfiguration::new(properties);
    let found = [
        rename_commit(trace, &conf, probe),
        throttled(trace),
        listing(trace),
        small_objects(trace),
        probe.and_then(|probe| reads(trace, probe)),
        cached(trace),
    ];
    found.into_iter().flatten().collect()
}

/// Returns the sum of the jobs' durations.
fn jobs_ns(trace: &Trace) -> u64 {
    let ends = trace.job_ends.iter();
    let took = ends.filter_map(|end| {
        let job = trace.jobs.get(end.job as usize)?;
        end.ended_ns.checked_sub(job.submitted_ns)
    });
    took.sum()
}

/// The commit times of all queries.
struct Commit {
    /// Time saved in each task without renames, in the order of the trace.
    saved_ns: Vec<u64>,
    /// Commit time of all tasks, and of the driver.
    took_ns: [u64; 2],
    /// Time of a commit by uploads for tasks and driver, if known.
    uploading_ns: Option<[u64; 2]>,
    output_bytes: u64,
    /// Number of tasks that wrote output.
    files: u64,
}

/// Returns true if a task wrote output. Spark may count no bytes if threads of the store's client
/// write, but a commit time implies output.
fn wrote(task: &PipelinedTask) -> bool {
    [task.output_bytes, task.output_records, task.commit_ns].into_iter().flatten().any(|amount| amount > 0)
}

impl Commit {
    fn of(trace: &Trace, probe: Option<&Report>) -> Commit {
        let recorded = trace.pipelined_tasks.iter().any(|t| t.commit_ns.is_some());
        let request_ns = probe.and_then(request_ns);
        let of_task_ns = request_ns.map_or(0, |ns| (TASK_REQUESTS * ns) as u64);
        // The commit time of a task, and the part of it that is saved.
        let committed_ns = |task: &PipelinedTask| {
            if recorded {
                let took_ns = task.commit_ns.unwrap_or(0);
                return (took_ns, took_ns.saturating_sub(of_task_ns));
            }
            let copied_ns = task.output_bytes.and_then(|bytes| probe?.copy_ns(bytes)).unwrap_or(0);
            let copied_ns = copied_ns.min(task.run_ns.unwrap_or(task.duration_ns));
            (copied_ns, copied_ns)
        };
        let (mut saved_ns, mut tasks_ns, mut output_bytes, mut files) = (Vec::new(), 0, 0, 0);
        let mut writes = vec![false; trace.queries.len()];
        for task in &trace.pipelined_tasks {
            let wrote = wrote(&task);
            let (took_ns, saved_of_it_ns) = if wrote { committed_ns(&task) } else { (0, 0) };
            saved_ns.push(saved_of_it_ns);
            tasks_ns += took_ns;
            output_bytes += task.output_bytes.unwrap_or(0);
            files += u64::from(wrote);
            let job = trace.stages.get(task.stage as usize).and_then(|s| trace.jobs.get(s.job as usize));
            if let Some(query) = job.and_then(|j| j.query).filter(|_| wrote)
                && let Some(writes) = writes.get_mut(query as usize)
            {
                *writes = true;
            }
        }
        let writing = (0..).zip(&writes).filter(|(_, writes)| **writes).map(|(query, _)| query);
        let driver_ns = writing.clone().filter_map(|query| after_jobs_ns(trace, query)).sum();
        let of_driver = DRIVER_REQUESTS * writing.count() as f64;
        // The driver completes uploads concurrently, so the probe's rate of small objects applies.
        let small_per_s = probe.and_then(|probe| probe.small_objects_per_s).filter(|per_s| *per_s > 0.0);
        let completed_ns = small_per_s.map_or(0.0, |per_s| files as f64 * 1e9 / per_s);
        let uploading_ns = request_ns.map(|ns| [files * of_task_ns, (of_driver * ns + completed_ns) as u64]);
        Commit { saved_ns, took_ns: [tasks_ns, driver_ns], uploading_ns, output_bytes, files }
    }
}

/// Returns the time of a small request of S3A while other tasks write.
fn request_ns(probe: &Report) -> Option<f64> {
    Some(probe.commit.request_ms? * 1e6 + S3A_NS)
}

/// Returns the number of tasks that can run concurrently, at least 1.
fn slots(trace: &Trace) -> f64 {
    let slots = trace.resources.iter().filter(|r| r.kind == kind::SLOTS);
    slots.filter_map(|r| r.capacity).sum::<f64>().max(1.0)
}

/// Returns the time from the end of a query's last job to the end of the query.
fn after_jobs_ns(trace: &Trace, query: u32) -> Option<u64> {
    let ended_ns = trace.query_ends.iter().find(|e| e.query == query)?.ended_ns;
    let of_query = |job: u32| trace.jobs.get(job as usize).is_some_and(|j| j.query == Some(query));
    let jobs = trace.job_ends.iter().filter(|e| of_query(e.job));
    ended_ns.checked_sub(jobs.map(|e| e.ended_ns).max()?)
}

fn rename_commit(trace: &Trace, conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Problem> {
    // The session may name other stores than the one that its jobs wrote to. The probe tells which one that is.
    if probe.and_then(|probe| probe.rename).is_some_and(|rename| !rename.is_copy) {
        return None;
    }
    let mut finding = spark::rename_commit(conf, probe)?;
    let commit = Commit::of(trace, probe);
    let tasks_ns: u64 = commit.saved_ns.iter().sum();
    let uploading_ns = commit.uploading_ns.unwrap_or_default();
    let driver_ns = commit.took_ns[1].saturating_sub(uploading_ns[1]);
    let elapsed = |tasks_ns: u64, driver_ns: u64| tasks_ns as f64 / slots(trace) + driver_ns as f64;
    if commit.files == 0 || elapsed(tasks_ns, driver_ns) < MIN_COMMIT_SHARE * jobs_ns(trace) as f64 {
        return None;
    }
    let output = match commit.output_bytes {
        0 => format!("output of unrecorded size, of {} tasks,", commit.files),
        bytes => format!("{} MB of output", number(bytes as f64 / 1e6)),
    };
    let ms = |ns: u64| ns / 1_000_000;
    let [tasks, driver] = commit.took_ns.map(ms);
    finding.evidence +=
        &format!("; for {output} the tasks spent {tasks} ms, and the driver {driver} ms after its last task");
    if let Some([tasks, driver]) = commit.uploading_ns {
        finding.evidence +=
            &format!(", where uploads would take them {} ms and {} ms", ms(tasks), ms(driver));
    }
    let uncertainty_ns = (REQUEST_UNCERTAINTY * elapsed(uploading_ns[0], uploading_ns[1])) as u64;
    Some(Problem::saving(finding, Saving::Tasks { saved_ns: commit.saved_ns, driver_ns, uncertainty_ns }))
}

fn throttled(trace: &Trace) -> Option<Problem> {
    let (mut refused, mut first, mut saved_ns) = (0, None, Vec::new());
    for task in &trace.pipelined_tasks {
        let error = task.error.filter(|error| is_throttling(error));
        saved_ns.push(error.as_ref().map_or(0, |_| task.duration_ns));
        refused += usize::from(error.is_some());
        first = first.or(error);
    }
    let evidence = format!("{refused} task attempts failed with such an error, the first with: {}", first?);
    let finding = Finding::new("the store throttles requests", evidence, FEWER_REQUESTS);
    Some(Problem::saving(finding, Saving::Tasks { saved_ns, driver_ns: 0, uncertainty_ns: 0 }))
}

/// Finds long listings. Spark lists many folders in a separate job, recognised by its name.
fn listing(trace: &Trace) -> Option<Problem> {
    let lists = |job: u32| {
        let job = trace.jobs.get(job as usize)?;
        job.name.starts_with("Listing leaf files").then_some(job.submitted_ns)
    };
    let took = trace.job_ends.iter().filter_map(|e| e.ended_ns.checked_sub(lists(e.job)?));
    let took: Vec<u64> = took.collect();
    let change = "use fewer folders and larger files, or a table format that keeps its own list of files";
    long_listings("jobs that list files", &took, jobs_ns(trace), change, |listed| {
        [listed / 2, listed, listed]
    })
}

fn small_objects(trace: &Trace) -> Option<Problem> {
    let mut by_stage = vec![Vec::new(); trace.stages.len()];
    for task in &trace.pipelined_tasks {
        if let (Some(of_stage), Some(bytes @ 1..)) = (by_stage.get_mut(task.stage as usize), task.input_bytes)
        {
            of_stage.push(bytes);
        }
    }
    let (stage, bytes) = by_stage.iter_mut().enumerate().max_by_key(|(_, bytes)| bytes.len())?;
    if bytes.len() < MIN_REQUESTS {
        return None;
    }
    bytes.sort_unstable();
    let median = bytes[bytes.len() / 2];
    (median < SMALL_BYTES).then(|| {
        let finding = Finding::new(
            "many small reads",
            format!(
                "half of the {} tasks of stage {} read {} kB or less",
                bytes.len(),
                trace.stages[stage].id.unwrap_or(stage as u64),
                number(median as f64 / 1e3)
            ),
            "use larger files (128 MiB or more) or fewer partitions: a task and its request cost more than so few bytes",
        );
        finding.into()
    })
}

/// The input and the activity of the tasks of one stage.
#[derive(Clone)]
struct Reading {
    bytes: f64,
    run_ns: f64,
    cpu_ns: f64,
    /// Launch of the first task and end of the last one.
    span: (u64, u64),
    /// True if a task may have waited for input for a third of its time.
    waits: bool,
}

impl Reading {
    /// Collects the reading of each stage.
    fn of(trace: &Trace) -> Vec<Reading> {
        let nothing = Reading { bytes: 0.0, run_ns: 0.0, cpu_ns: 0.0, span: (u64::MAX, 0), waits: false };
        let mut stages = vec![nothing; trace.stages.len()];
        for task in &trace.pipelined_tasks {
            let (Some(stage), Some(bytes @ 1..), Some(run)) =
                (stages.get_mut(task.stage as usize), task.input_bytes, task.run_ns)
            else {
                continue;
            };
            stage.bytes += bytes as f64;
            stage.run_ns += run as f64;
            stage.cpu_ns += task.cpu_ns.unwrap_or(run) as f64;
            stage.span = (stage.span.0.min(task.launched_ns), stage.span.1.max(task.ended_ns()));
            stage.waits |= matches!(task.blocked_input, Some(Blocked::AtMostNs(ns) | Blocked::MeasuredNs(ns)) if ns > run / 3);
        }
        stages
    }

    fn span_ns(&self) -> f64 {
        self.span.1.saturating_sub(self.span.0).max(1) as f64
    }

    /// Returns true if the stage read enough for its rate to be meaningful. Spark does not count ranges that a store's client
    /// fetches in its own threads.
    fn has_a_rate(&self) -> bool {
        self.bytes >= LARGE_REQUEST_BYTES as f64
    }

    fn bytes_per_s(&self) -> f64 {
        self.bytes * 1e9 / self.span_ns()
    }

    /// Returns the share of the tasks' run time spent computing.
    fn computing(&self) -> f64 {
        self.cpu_ns / self.run_ns.max(1.0)
    }

    /// Returns the time saved by reading at another rate: at most the time in which tasks did not compute.
    fn saved_ns(&self, bytes_per_s: f64) -> f64 {
        self.span_ns() * (1.0 - self.bytes_per_s() / bytes_per_s).min(1.0 - self.computing())
    }

    /// Describes the stage's read rate next to the probe's.
    fn evidence(&self, trace: &Trace, stage: usize, best: &ReadRate) -> String {
        format!(
            "stage {} read {} MB/s while its tasks computed {} of their time; the probe read {} MB/s at \
             concurrency {}",
            trace.stages[stage].id.unwrap_or(stage as u64),
            number(self.bytes_per_s() / 1e6),
            percent(self.computing()),
            number(best.bytes_per_s / 1e6),
            best.concurrency
        )
    }

    /// Returns the share of the wait for input that reading at the store's best rate would save.
    fn saving(&self, best: &ReadRate) -> Saving {
        let gone = 1.0 - self.bytes_per_s() / best.bytes_per_s;
        Saving::WhatIf { settings: vec!["input=memory".to_string()], share: [0.0, gone, 1.0] }
    }
}

/// Finds stages that read slower than a probe.
fn reads(trace: &Trace, probe: &Report) -> Option<Problem> {
    let (best, stages) = (probe.best_read()?, Reading::of(trace));
    // The store may serve objects that were just written from memory, unlike the job's input.
    let may_be_cached = probe.read_from == ReadFrom::Written;
    one_stream(trace, &stages, best).or_else(|| slow_reads(trace, &stages, best).filter(|_| !may_be_cached))
}

/// Finds a stage that reads slower than the store can while its tasks hardly compute.
fn one_stream(trace: &Trace, stages: &[Reading], best: &ReadRate) -> Option<Problem> {
    let slow = stages
        .iter()
        .enumerate()
        .filter(|(_, stage)| stage.has_a_rate() && stage.waits && stage.computing() < MAX_COMPUTING_SHARE);
    let (ix, stage) = slow.max_by(|(_, a), (_, b)| a.bytes.total_cmp(&b.bytes))?;
    (best.bytes_per_s >= MIN_STREAM_SPEEDUP * stage.bytes_per_s()).then(|| {
        let finding = Finding::new(
            "reads leave the link idle",
            stage.evidence(trace, ix, best),
            "run more concurrent tasks (spark.executor.cores), or use a client that fetches ranges in parallel \
             (spark.hadoop.parquet.hadoop.vectored.io.enabled=true, fs.s3a.experimental.input.fadvise=random)",
        );
        Problem::saving(finding, stage.saving(best))
    })
}

/// Finds a stage whose tasks wait although the probe, which only reads, read faster.
fn slow_reads(trace: &Trace, stages: &[Reading], best: &ReadRate) -> Option<Problem> {
    let read = stages.iter().enumerate().filter(|(_, stage)| stage.has_a_rate());
    let saved = read.map(|(ix, stage)| (stage.saved_ns(best.bytes_per_s), ix, stage));
    let (saved_ns, ix, stage) = saved.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (saved_ns > MIN_TIME_SHARE * jobs_ns(trace) as f64).then(|| {
        let finding = Finding::new(
            READ_SLOWER,
            stage.evidence(trace, ix, best),
            "run more tasks than cores (spark.executor.cores), so that some read while others compute, or use a client \
             that reads ahead; if the store's processes share the tasks' cores, give them separate cores",
        );
        Problem::saving(finding, stage.saving(best))
    })
}

/// Finds applications whose tasks spend most of their time in stages that read Spark's cache.
fn cached(trace: &Trace) -> Option<Problem> {
    let from_memory = |stage: u32| {
        let stage = trace.stages.get(stage as usize);
        stage.is_some_and(|s| s.name.contains("InMemoryTableScan"))
    };
    let (mut all, mut cached) = (0, 0);
    for task in &trace.pipelined_tasks {
        all += task.duration_ns;
        cached += if from_memory(task.stage) { task.duration_ns } else { 0 };
    }
    (cached as f64 > MIN_CACHED_TIME_SHARE * all as f64).then(|| {
        let finding = Finding::new(
            "input was cached: where it is stored hardly matters",
            format!(
                "{} of the tasks' time is in stages that scan Spark's in-memory cache",
                percent(cached as f64 / all as f64)
            ),
            "none while it fits in memory; only the first read depends on the store",
        );
        let settings = vec!["input=memory".to_string()];
        Problem::saving(finding, Saving::WhatIf { settings, share: [0.0, 0.5, 1.0] })
    })
}
