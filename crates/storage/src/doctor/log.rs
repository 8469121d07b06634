//! What a Spark event log shows.
//!
//! Its settings say how output is committed; its tasks say how long that took them (Spark's
//! metric "task commit time"), and the driver's part is what a query goes on for after its last
//! job (CLOUD '16, §V-A.3, splits the cost of Swift's renames so). A commit by uploads takes time, too:
//! with a probe of the store its small requests count as long as the probe's, and what S3A takes for one. Where
//! Spark did not record the tasks' part, what the probe's copying would take is all that is known.

use pellucid_trace::{Application, Blocked, PipelinedTask, Trace, kind};

use super::trace::{ASK_LESS, LARGE_REQUEST_BYTES, asks_for_less};
use super::{Advice, MANY, NOTABLE, READ_SLOWER, SMALL_BYTES, STREAMS_PAY, Saving, percent, spark};
use crate::finding::Finding;
use crate::mismatch::number;
use crate::probe::{ReadFrom, ReadRate, Report};
use crate::spark::SparkConfiguration;

/// A commit that takes less of the jobs' time than this is no mismatch.
const COMMIT_COSTS: f64 = 0.05;
/// Requests that S3A's magic committer makes one after another, as its audit log counts them (S3A 3.5.0,
/// `org.apache.hadoop.fs.s3a.audit.impl.LoggingAuditor` at DEBUG). Of a task: a folder's marker, an upload begun, the file's
/// marker and the note of its upload, each of which a task that renames does not make; and nine when it commits, which lists
/// and reads the notes, writes one for the driver, and removes them.
const TASK_REQUESTS: f64 = 13.0;
/// Of the driver: it lists and reads the notes, and when it has completed the uploads, one request for each file, as many at once
/// as the store takes, it notes success, looks for other uploads, and removes notes, markers and folders for staging.
const DRIVER_REQUESTS: f64 = 14.0;
/// What S3A itself takes for such a request, beside the store: by how much its commits' nine requests took longer than the
/// probe's, where client, tasks and store share two cores (`bench/STORAGE.md`, output committed by rename).
const S3A_NS: f64 = 7e6;
/// By how much of their time the requests of a commit by uploads may be off: a probe sees one minute of a store, and other cores
/// are faster or slower.
const REQUESTS_DOUBT: f64 = 0.5;
/// Below this share of core time in their run time tasks wait.
const WAITS: f64 = 0.5;

/// As the module's head says.
pub(super) fn of_log(trace: &Trace, application: &Application, probe: Option<&Report>) -> Vec<Advice> {
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

/// Time of the jobs, one after another.
fn jobs_ns(trace: &Trace) -> u64 {
    let ends = trace.job_ends.iter();
    let took = ends.filter_map(|end| {
        let job = trace.jobs.get(end.job as usize)?;
        end.ended_ns.checked_sub(job.submitted_ns)
    });
    took.sum()
}

/// What the commits of all queries took.
struct Commit {
    /// What is saved of each task without renames, in the order of the trace.
    saved_ns: Vec<u64>,
    /// What tasks took for it in all, and the driver.
    took_ns: [u64; 2],
    /// What committing by uploads takes them, where that is known.
    uploading_ns: Option<[u64; 2]>,
    output_bytes: u64,
    /// Tasks that put something out.
    files: u64,
}

/// Whether a task put something out. Where threads of the store's client write, Spark may count no byte of
/// it; but what was committed was written.
fn wrote(task: &PipelinedTask) -> bool {
    [task.output_bytes, task.output_records, task.commit_ns].into_iter().flatten().any(|amount| amount > 0)
}

impl Commit {
    fn of(trace: &Trace, probe: Option<&Report>) -> Commit {
        let recorded = trace.pipelined_tasks.iter().any(|t| t.commit_ns.is_some());
        let request_ns = probe.and_then(request_ns);
        let of_task_ns = request_ns.map_or(0, |ns| (TASK_REQUESTS * ns) as u64);
        // What a task took, and what is saved of it.
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
        let writing = (0..writes.len()).filter(|query| writes[*query]);
        let driver_ns = writing.clone().filter_map(|query| after_jobs_ns(trace, query)).sum();
        let of_driver = DRIVER_REQUESTS * writing.count() as f64;
        // Nobody waits for one of them alone.
        let small_per_s = probe.and_then(|probe| probe.small_objects_per_s).filter(|per_s| *per_s > 0.0);
        let completed_ns = small_per_s.map_or(0.0, |per_s| files as f64 * 1e9 / per_s);
        let uploading_ns = request_ns.map(|ns| [files * of_task_ns, (of_driver * ns + completed_ns) as u64]);
        Commit { saved_ns, took_ns: [tasks_ns, driver_ns], uploading_ns, output_bytes, files }
    }
}

/// What a small request to the store takes S3A while other tasks write.
fn request_ns(probe: &Report) -> Option<f64> {
    Some(probe.commit.request_ms? * 1e6 + S3A_NS)
}

/// Tasks that run at once, at least one.
fn slots(trace: &Trace) -> f64 {
    let slots = trace.resources.iter().filter(|r| r.kind == kind::SLOTS);
    slots.filter_map(|r| r.capacity).sum::<f64>().max(1.0)
}

/// For how long a query went on after its last job.
fn after_jobs_ns(trace: &Trace, query: usize) -> Option<u64> {
    let ended_ns = trace.query_ends.iter().find(|e| e.query as usize == query)?.ended_ns;
    let of_query = |job: u32| trace.jobs.get(job as usize).is_some_and(|j| j.query == Some(query as u32));
    let jobs = trace.job_ends.iter().filter(|e| of_query(e.job));
    ended_ns.checked_sub(jobs.map(|e| e.ended_ns).max()?)
}

fn rename_commit(trace: &Trace, conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Advice> {
    let mut finding = spark::rename_commit(conf, probe)?;
    let commit = Commit::of(trace, probe);
    let tasks_ns: u64 = commit.saved_ns.iter().sum();
    let uploading_ns = commit.uploading_ns.unwrap_or_default();
    let driver_ns = commit.took_ns[1].saturating_sub(uploading_ns[1]);
    let elapsed = |tasks_ns: u64, driver_ns: u64| tasks_ns as f64 / slots(trace) + driver_ns as f64;
    if commit.files == 0 || elapsed(tasks_ns, driver_ns) < COMMIT_COSTS * jobs_ns(trace) as f64 {
        return None;
    }
    let output = match commit.output_bytes {
        0 => format!("output whose size was not recorded, of {} tasks,", commit.files),
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
    let doubt_ns = (REQUESTS_DOUBT * elapsed(uploading_ns[0], uploading_ns[1])) as u64;
    Some(Advice::saving(finding, Saving::Tasks { less_ns: commit.saved_ns, driver_ns, doubt_ns }))
}

fn throttled(trace: &Trace) -> Option<Advice> {
    let (mut refused, mut first, mut less_ns) = (0, None, Vec::new());
    for task in &trace.pipelined_tasks {
        let error = task.error.filter(|error| asks_for_less(error));
        less_ns.push(error.as_ref().map_or(0, |_| task.duration_ns));
        refused += usize::from(error.is_some());
        first = first.or(error);
    }
    let evidence = format!("{refused} attempts of tasks failed so, the first with: {}", first?);
    let finding = Finding::new("the store throttles requests", evidence, ASK_LESS);
    Some(Advice::saving(finding, Saving::Tasks { less_ns, driver_ns: 0, doubt_ns: 0 }))
}

/// Spark lists many folders in a job of its own, which says so.
fn listing(trace: &Trace) -> Option<Advice> {
    let lists = |job: u32| {
        let job = trace.jobs.get(job as usize)?;
        job.name.starts_with("Listing leaf files").then_some(job.submitted_ns)
    };
    let took = trace.job_ends.iter().filter_map(|e| e.ended_ns.checked_sub(lists(e.job)?));
    let took: Vec<u64> = took.collect();
    let (listed, whole) = (took.iter().sum::<u64>(), jobs_ns(trace));
    (listed as f64 > NOTABLE * whole as f64).then(|| {
        let finding = Finding::new(
            "planning waits for listings",
            format!(
                "{} jobs that list files took {} ms, {} of the jobs' time",
                took.len(),
                number(listed as f64 / 1e6),
                percent(listed as f64 / whole as f64)
            ),
            "fewer folders and larger files, or a table format that keeps its own list of files",
        );
        Advice::saving(finding, Saving::Time([listed / 2, listed, listed]))
    })
}

fn small_objects(trace: &Trace) -> Option<Advice> {
    let mut by_stage = vec![Vec::new(); trace.stages.len()];
    for task in &trace.pipelined_tasks {
        if let (Some(of_stage), Some(bytes @ 1..)) = (by_stage.get_mut(task.stage as usize), task.input_bytes)
        {
            of_stage.push(bytes);
        }
    }
    let (stage, bytes) = by_stage.iter_mut().enumerate().max_by_key(|(_, bytes)| bytes.len())?;
    if bytes.len() < MANY {
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
            "larger files (128 MiB and more), or fewer partitions: a task and a request cost more than so few bytes",
        );
        finding.into()
    })
}

/// What the tasks of a stage read, and what they did meanwhile.
#[derive(Clone)]
struct Reading {
    bytes: f64,
    run_ns: f64,
    cpu_ns: f64,
    /// From the first task's launch to the last one's end.
    span: (u64, u64),
    /// Whether a task may have waited for input for a third of its time.
    waits: bool,
}

impl Reading {
    /// Of each stage.
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

    /// Whether so much was read that its rate says what tasks waited for. Of ranges that a store's client fetches in threads of
    /// its own Spark counts no byte.
    fn has_a_rate(&self) -> bool {
        self.bytes >= LARGE_REQUEST_BYTES as f64
    }

    fn bytes_per_s(&self) -> f64 {
        self.bytes * 1e9 / self.span_ns()
    }

    /// Of their time.
    fn computing(&self) -> f64 {
        self.cpu_ns / self.run_ns.max(1.0)
    }

    /// What reading at another rate would spare: at most the time in which tasks did not compute.
    fn spared_ns(&self, bytes_per_s: f64) -> f64 {
        self.span_ns() * (1.0 - self.bytes_per_s() / bytes_per_s).min(1.0 - self.computing())
    }

    /// In words, beside what a probe read.
    fn evidence(&self, trace: &Trace, stage: usize, best: &ReadRate) -> String {
        format!(
            "stage {} read {} MB/s while its tasks computed {} of their time; the probe read {} MB/s with {} at once",
            trace.stages[stage].id.unwrap_or(stage as u64),
            number(self.bytes_per_s() / 1e6),
            percent(self.computing()),
            number(best.bytes_per_s / 1e6),
            best.concurrency
        )
    }

    /// Of the wait for input a store read at its best would leave so much.
    fn saving(&self, best: &ReadRate) -> Saving {
        let gone = 1.0 - self.bytes_per_s() / best.bytes_per_s;
        Saving::WhatIf { settings: vec!["input=memory".to_string()], share: [0.0, gone, 1.0] }
    }
}

/// Stages that read slower than a probe.
fn reads(trace: &Trace, probe: &Report) -> Option<Advice> {
    let (best, stages) = (probe.best_read()?, Reading::of(trace));
    // What was just written may come out of a memory that the job's input was not in.
    let is_of_memory = probe.read_from == ReadFrom::Written;
    one_stream(trace, &stages, best).or_else(|| slow_reads(trace, &stages, best).filter(|_| !is_of_memory))
}

/// A stage that reads while its tasks hardly compute, slower than the store can.
fn one_stream(trace: &Trace, stages: &[Reading], best: &ReadRate) -> Option<Advice> {
    let slow = stages
        .iter()
        .enumerate()
        .filter(|(_, stage)| stage.has_a_rate() && stage.waits && stage.computing() < WAITS);
    let (ix, stage) = slow.max_by(|(_, a), (_, b)| a.bytes.total_cmp(&b.bytes))?;
    (best.bytes_per_s >= STREAMS_PAY * stage.bytes_per_s()).then(|| {
        let finding = Finding::new(
            "reads leave the link idle",
            stage.evidence(trace, ix, best),
            "more tasks at once (spark.executor.cores), or a client that fetches ranges in parallel \
             (spark.hadoop.parquet.hadoop.vectored.io.enabled=true, fs.s3a.experimental.input.fadvise=random)",
        );
        Advice::saving(finding, stage.saving(best))
    })
}

/// A stage whose tasks wait although a probe, which does nothing else, read the same bytes faster.
fn slow_reads(trace: &Trace, stages: &[Reading], best: &ReadRate) -> Option<Advice> {
    let read = stages.iter().enumerate().filter(|(_, stage)| stage.has_a_rate());
    let spared = read.map(|(ix, stage)| (stage.spared_ns(best.bytes_per_s), ix, stage));
    let (spared_ns, ix, stage) = spared.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (spared_ns > NOTABLE * jobs_ns(trace) as f64).then(|| {
        let finding = Finding::new(
            READ_SLOWER,
            stage.evidence(trace, ix, best),
            "more tasks at once than cores (spark.executor.cores), so that some read while others compute, or a client \
             that reads ahead; where the store's own processes share the tasks' cores, cores of their own",
        );
        Advice::saving(finding, stage.saving(best))
    })
}

/// Most of the tasks' time is in stages whose input Spark itself keeps in memory.
fn cached(trace: &Trace) -> Option<Advice> {
    let from_memory = |stage: u32| {
        let stage = trace.stages.get(stage as usize);
        stage.is_some_and(|s| s.name.contains("InMemoryTableScan"))
    };
    let (mut all, mut cached) = (0, 0);
    for task in &trace.pipelined_tasks {
        all += task.duration_ns;
        cached += if from_memory(task.stage) { task.duration_ns } else { 0 };
    }
    (cached as f64 > WAITS * all as f64).then(|| {
        let finding = Finding::new(
            "input was cached: where it is stored hardly matters",
            format!(
                "{} of the tasks' time is in stages that scan what Spark keeps in memory",
                percent(cached as f64 / all as f64)
            ),
            "nothing, while it fits; only reading it the first time depends on the store",
        );
        let settings = vec!["input=memory".to_string()];
        Advice::saving(finding, Saving::WhatIf { settings, share: [0.0, 0.5, 1.0] })
    })
}
