//! The result of an analysis: plain data for renderers.
//!
//! It follows the JSON document of `pellucid analyze` (docs/json.md), with further fields for the text
//! output (limits, imbalance, shares of core time). Values that were not measured are `None`. Kinds are
//! open, so maps are keyed by the kind's name: a missing kind was not measured, and one with 0 was not
//! used.
//!
//! The types serialize as in that document. Fields that it arranges differently (by measure and then by kind)
//! are skipped; the renderer adds them.

use std::collections::BTreeMap;

use pellucid_trace::{Outcome, Peak};
use serde::Serialize;

use crate::monotasks::steps::Steps;
use crate::numbers::ratio;

/// The analysis of a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// By index in the trace.
    pub resources: Vec<ResourceUse>,
    /// The division of the application's time.
    pub wall_clock: WallClock,
    /// By index in the trace.
    pub jobs: Vec<JobAnalysis>,
    /// By index in the trace.
    pub stages: Vec<StageAnalysis>,
    /// The causes of the jobs' time, largest first.
    pub causes: Vec<Cause>,
    /// The cost of recording the trace.
    pub recording: Recording,
    /// Upper bounds of what fixing a problem can gain (`no_disk`, …), for pipelined tasks.
    pub bounds: BTreeMap<&'static str, Bound>,
    /// The unchanged simulation compared to the measured time.
    pub replay: Option<ReplayError>,
    /// The division of the tasks' time, over all tasks.
    pub blocked: Option<BlockedTimes>,
    /// The executors' idle time.
    pub idle: Option<IdleSlots>,
    /// The concurrency of executors where a controller adapts it, by stage and executor.
    pub tuning: Vec<Tuning>,
    /// Advice, largest saving first; at most five pieces.
    pub advice: Vec<Advice>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Caveats about the analysis.
    pub warnings: Vec<String>,
}

impl Analysis {
    /// Returns the largest cause that is not a failure.
    pub fn first_cause(&self) -> Option<Cause> {
        let waits = self.causes.iter().filter(|cause| cause.cause != "failure");
        waits.max_by(|a, b| a.ms.total_cmp(&b.ms)).cloned()
    }

    /// Returns true if some job failed.
    pub fn failed(&self) -> bool {
        self.jobs.iter().any(|job| job.outcome == Some(Outcome::Failed))
    }
}

/// A resource over the whole trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceUse {
    /// Its name on its machine.
    pub name: String,
    /// `cpu`, `disk`, …
    pub kind: String,
    /// Name of its machine.
    pub machine: Option<String>,
    /// Cores or slots for `cpu` and `slots`, bytes per second for others.
    pub capacity: Option<f64>,
    /// `set`, `probed`, `counted`, `concurrency`, `best 2 s` or `busy time`; see the crate documentation.
    pub capacity_from: Option<String>,
    /// Total demand over capacity; `None` where neither bytes nor times were measured.
    pub ideal_ms: Option<f64>,
}

/// The application's time, divided into parts that sum to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WallClock {
    /// Time with at least one job.
    #[serde(rename = "jobs")]
    pub jobs_ms: Option<f64>,
    /// Time without any job.
    #[serde(rename = "driver_only")]
    pub driver_only_ms: Option<f64>,
    /// Time with a job but no executor; `None` where executors are not recorded.
    #[serde(rename = "waiting_for_executors")]
    pub waiting_for_executors_ms: Option<f64>,
}

/// The limiting kind of resource, with its resource of the largest ideal time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// `cpu`, `disk`, …
    pub kind: String,
    /// The resource of that kind with the largest ideal time.
    pub name: Option<String>,
}

/// The bottleneck after the first one is removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Next {
    /// `cpu`, `disk`, …
    pub kind: String,
    /// Its ideal time.
    pub ideal_ms: f64,
}

/// The use of one kind of resource by a stage or a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KindUse {
    /// Total demand over total capacity of the kind's resources.
    pub ideal_ms: f64,
    /// The ideal time, or the time of the most loaded resource if that is longer and its bytes could not
    /// have moved elsewhere. The model's maximum is over limits.
    pub limit_ms: f64,
    /// Name of the resource with the largest ideal time.
    pub largest: Option<String>,
    /// Ideal time of that resource.
    pub largest_ms: f64,
    /// Number of resources that the kind's capacity was summed over.
    pub resources: usize,
    /// Largest over mean ideal time of those resources; `None` for fewer than two.
    pub imbalance: Option<f64>,
    /// True if some resource has no capacity, so that its busy time stands in for its ideal time.
    pub from_busy_time: bool,
    /// Ideal ÷ duration.
    pub utilization: Option<f64>,
    /// Time in the kind's queues, summed over monotasks; `None` if none of its monotasks was recorded.
    pub queue_ms: Option<f64>,
    /// Time on the kind's resources, summed over monotasks.
    pub service_ms: Option<f64>,
}

/// The division of a job's or stage's core time, as shares of the total.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CoreTime {
    /// Core time, summed over monotasks; of a trace without operators, service time on cores.
    pub total_ms: Option<f64>,
    /// Decoding input.
    pub decode_share: Option<f64>,
    /// Running operators.
    pub operator_share: Option<f64>,
    /// Partitioning and encoding output.
    pub encode_share: Option<f64>,
    /// Running operators that were not split into monotasks.
    pub not_split_share: Option<f64>,
    /// Of a job: its operators, most expensive first, which sum to the total; `None` if they were not recorded.
    pub operators: Option<Vec<OperatorTime>>,
}

/// The core time of an operator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperatorTime {
    /// Index of the stage in the trace.
    pub stage: usize,
    /// Its number, unique in the job; `None` for the rest of the stage's core time.
    pub operator: Option<u32>,
    /// Name.
    pub name: String,
    /// `decode`, `operators`, `encode`, `not_split` or `rest`.
    pub part: &'static str,
    /// Exclusive core time.
    pub core_ms: f64,
    /// Rows of its inputs; `None` for a scan.
    pub rows_in: Option<u64>,
    /// Rows of its output; `None` if it returns none.
    pub rows_out: Option<u64>,
    /// Rows of output that the planner expected; `None` if it could not tell.
    pub planned_rows: Option<u64>,
    /// Columns that it decodes, most expensive first; `None` if they were not measured.
    pub columns: Option<Vec<ColumnTime>>,
    /// Its most expensive expressions, most expensive first.
    pub expressions: Vec<ExpressionTime>,
    /// If it reads an exchange, how much of it each multitask read; `None` if that was not measured.
    pub exchange_read: Option<ExchangeRead>,
}

/// How evenly the tasks of a stage divide the bytes of an exchange that they read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExchangeRead {
    /// Tasks or multitasks.
    pub tasks: usize,
    /// Bytes that all of them read.
    pub bytes: u64,
    /// Bytes of the one that read most.
    pub largest_bytes: u64,
    /// The largest over the mean; 1 if all read the same.
    pub skew: f64,
}

impl ExchangeRead {
    /// Sums the bytes that each task read. `None` if they read nothing.
    pub fn of(by_task: &[u64]) -> Option<Self> {
        let bytes = by_task.iter().copied().fold(0, u64::saturating_add);
        let largest_bytes = by_task.iter().copied().max()?;
        let skew = ratio(largest_bytes as f64 * by_task.len() as f64, bytes as f64)?;
        Some(Self { tasks: by_task.len(), bytes, largest_bytes, skew })
    }
}

/// The core time of decoding a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnTime {
    /// Name.
    pub name: String,
    /// Core time, a part of its scan's.
    pub core_ms: f64,
    /// Bytes in the file, as read.
    pub bytes: u64,
}

/// The core time of an expression.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExpressionTime {
    /// The expression.
    pub text: String,
    /// Core time, a part of its operator's, estimated from some of the batches.
    pub core_ms: f64,
}

/// An executor's concurrency during a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuning {
    /// Index of the stage in the trace.
    pub stage: usize,
    /// The stage's number in its source.
    pub source_id: Option<u64>,
    /// Name of the executor.
    pub executor: String,
    /// The steps, in time order.
    pub steps: Vec<TuningStep>,
}

/// A change of the maximum concurrency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuningStep {
    /// Time since the trace's origin.
    pub at_ms: f64,
    /// At least 1.
    pub concurrency: u32,
    /// The controller's reason.
    pub reason: Option<String>,
}

/// Demands of a job relative to each other (blocked-time-nsdi15 §3.4).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Intensity {
    /// Megabytes (10⁶) to or from disks per second of core time.
    pub disk_mb_per_cpu_s: Option<f64>,
    /// Megabits over links per second of core time.
    pub network_mbit_per_cpu_s: Option<f64>,
    /// Bytes exchanged between stages over input bytes. Exchanges in memory are not measured in bytes.
    pub shuffle_over_input: Option<f64>,
    /// Bytes written over bytes read.
    pub output_over_input: Option<f64>,
}

/// Data of a job that did not fit into its memory budget and went to disk.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spilled {
    /// Bytes written.
    pub write_bytes: u64,
    /// Bytes read back from disks.
    pub read_bytes: u64,
    /// Bytes read back from the page cache.
    pub cached_bytes: u64,
    /// Service time of the disks.
    pub ms: f64,
    /// Core time that encoding, decoding, and reading from the page cache took.
    pub core_ms: f64,
    /// Budget with which nothing would have been written.
    pub sufficient_memory_bytes: u64,
}

/// A job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobAnalysis {
    /// Index in the trace.
    pub id: usize,
    /// SQL text, call site or name.
    pub name: String,
    /// Time from submission to end; `None` if the end was not recorded.
    pub duration_ms: Option<f64>,
    /// Time from submission to the last record of the job, also for truncated traces.
    pub observed_ms: Option<f64>,
    /// The outcome; `None` if the end was not recorded.
    pub outcome: Option<Outcome>,
    /// The error, if it failed.
    pub error: Option<String>,
    /// Number of result rows.
    pub rows: Option<u64>,
    /// The modelled time: the sum over spans of the largest limit.
    pub modelled_ms: Option<f64>,
    /// Indices of its stages.
    pub stages: Vec<usize>,
    /// The kind whose removal lowers the modelled time most. `None` if nothing was measured, or if no
    /// resource limits: ideal times explain less than half of the duration, or tasks spent most of their
    /// time on something other than a resource.
    pub bottleneck: Option<Bottleneck>,
    /// The bottleneck after that kind is removed.
    pub next: Option<Next>,
    /// The division of the duration into steps; `None` for jobs without monotasks and for those without
    /// an end.
    #[serde(rename = "steps_ms")]
    pub steps: Option<Steps>,
    /// By kind.
    #[serde(skip)]
    pub kinds: BTreeMap<String, KindUse>,
    /// Bytes read from devices and over links.
    pub read_bytes: Option<u64>,
    /// Input bytes served by the page cache.
    pub cached_bytes: Option<u64>,
    /// Bytes written to devices and links, including spills.
    pub written_bytes: Option<u64>,
    /// Peak memory of the process.
    pub memory_high_water_bytes: Option<u64>,
    /// The most memory that it accounted for at once, and what held it; `None` if its engine does not.
    pub peak: Option<Peak>,
    /// Data beyond its memory budget, which went to disk; `None` if all did fit.
    pub spill: Option<Spilled>,
    /// The division of its core time.
    pub core: CoreTime,
    /// Demands relative to each other.
    pub intensity: Intensity,
    /// The job's number in its source (Spark's job id).
    pub source_id: Option<u64>,
    /// The division of its pipelined tasks' time; `None` for other tasks.
    #[serde(skip)]
    pub blocked: Option<BlockedTimes>,
    /// Bounds for this job, as in [`Analysis::bounds`].
    #[serde(skip)]
    pub bounds: BTreeMap<&'static str, Bound>,
}

/// The unevenness of a stage's multitasks, as largest over median.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Skew {
    /// Bytes read, fetched or found in the page cache.
    pub input_bytes_max_over_median: Option<f64>,
    /// Bytes written or spilled.
    pub output_bytes_max_over_median: Option<f64>,
    /// Time from admission to the end of the last monotask.
    pub duration_max_over_median: Option<f64>,
    /// Partitions that hold over twice the median and take long for that reason, longest first.
    pub partitions: Vec<SkewedPartition>,
}

/// A partition that holds more data than others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SkewedPartition {
    /// Number within its stage.
    pub partition: u32,
    /// Share of the stage's input.
    pub share: f64,
    /// Amount read, relative to the stage's median.
    pub times_median: f64,
    /// Duration of its task.
    pub duration_ms: f64,
}

/// A measured or bounded time, summed over tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlockedTime {
    /// The measured part; `None` if nothing was measured.
    pub measured_ms: Option<f64>,
    /// Upper bound, including the measured part; `None` if there is no bound.
    pub at_most_ms: Option<f64>,
}

/// The division of tasks' time (blocked-time-nsdi15 §2.3.1), summed over tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlockedTimes {
    /// Shuffle writes, spills and, as a bound, waits of reads.
    pub disk: BlockedTime,
    /// Waiting for shuffle data.
    pub network: BlockedTime,
    /// Garbage collection.
    pub gc: BlockedTime,
    /// Scheduler delay.
    pub scheduler: BlockedTime,
    /// Deserializing tasks.
    pub deserialize: BlockedTime,
    /// The unexplained rest of the run time.
    pub other: BlockedTime,
    /// Core time.
    pub cpu: BlockedTime,
}

/// The denominator of progress rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Denominator {
    /// Bytes read.
    Bytes,
    /// Records read.
    Records,
    /// None: the rate is the duration.
    #[default]
    None,
}

impl Denominator {
    /// Returns `bytes`, `records` or `none`.
    pub fn word(self) -> &'static str {
        match self {
            Denominator::Bytes => "bytes",
            Denominator::Records => "records",
            Denominator::None => "none",
        }
    }
}

/// A stage's stragglers (blocked-time-nsdi15 §5.3).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stragglers {
    /// Tasks whose inverse progress rate is over 1.5 times the median.
    pub count: u64,
    /// The denominator of the rates.
    pub denominator: Denominator,
    /// Stragglers explained by each cause, by name; `None` if it cannot be determined. A straggler may
    /// have several.
    pub causes: BTreeMap<&'static str, Option<u64>>,
    /// Stragglers that a cause may explain, if its part of the time is only bounded.
    pub at_most: BTreeMap<&'static str, u64>,
    /// The longest ones, at most five.
    pub tasks: Vec<StragglerTask>,
}

/// A straggler.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StragglerTask {
    /// Partition within the stage.
    pub partition: u32,
    /// Attempt, from 0.
    pub attempt: u32,
    /// Executor that it ran on.
    pub executor: String,
    /// Its duration.
    pub duration_ms: f64,
    /// Inverse progress rate, relative to the stage's median.
    pub times_median: f64,
    /// Names of the causes that apply.
    pub causes: Vec<&'static str>,
}

/// The time without one kind of blocking (blocked-time-nsdi15 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Time in which jobs run, scaled from the simulation to the measured time.
    pub duration_ms: f64,
    /// Lower end of the interval: all time that may be blocked is removed.
    pub low_ms: f64,
    /// Upper end: only time that was certainly blocked is removed.
    pub high_ms: f64,
    /// 1 − simulated without ÷ simulated unchanged.
    pub improvement: f64,
    /// True if part of the blocked time is only bounded, so that the improvement is an upper bound.
    pub at_most: bool,
}

/// The distribution of an improvement over jobs (blocked-time-nsdi15, figures 3, 8 and 12).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Number of jobs.
    pub jobs: usize,
    /// The 5th percentile.
    pub p5: f64,
    /// The 25th percentile.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// The 75th percentile.
    pub p75: f64,
    /// The 95th percentile.
    pub p95: f64,
}

/// The error of the unchanged simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayError {
    /// Measured time in which jobs ran.
    pub measured_ms: f64,
    /// Simulated time in which jobs ran.
    pub simulated_ms: f64,
    /// |simulated − measured| ÷ measured.
    pub error: f64,
}

impl ReplayError {
    /// Returns true if the error exceeds 5 %, so that bounds and predictions are unreliable.
    pub fn weak(&self) -> bool {
        self.error > 0.05
    }
}

/// Idle time of executor slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct IdleSlots {
    /// Time that slots were present, summed over slots.
    pub slot_ms: f64,
    /// Time without a task.
    pub idle_ms: f64,
    /// The part of it without a running job.
    pub idle_without_job_ms: f64,
}

/// A piece of advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// A short title.
    pub title: String,
    /// The figures behind it.
    pub evidence: String,
    /// The change; pasteable if it is a setting.
    pub change: String,
    /// Predicted saving.
    pub saves_ms: f64,
    /// Lower end of its interval.
    pub low_ms: f64,
    /// Upper end of its interval.
    pub high_ms: f64,
}

/// A stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StageAnalysis {
    /// Index in the trace.
    pub id: usize,
    /// Index of its job.
    pub job: usize,
    /// Attempt, from 0.
    pub attempt: u32,
    /// Operators, outermost first.
    pub name: String,
    /// Place in the user's program.
    pub call_site: Option<String>,
    /// Number of multitasks and pipelined tasks.
    pub tasks: u64,
    /// Number of failed ones.
    pub failed_tasks: u64,
    /// Time from submission to end; `None` if the end was not recorded.
    pub duration_ms: Option<f64>,
    /// Duration of its tasks, summed.
    pub task_time_ms: Option<f64>,
    /// By kind.
    #[serde(skip)]
    pub kinds: BTreeMap<String, KindUse>,
    /// The kind with the largest limit.
    pub bottleneck: Option<Bottleneck>,
    /// The division of its core time.
    pub core: CoreTime,
    /// Operators that were not split into monotasks.
    pub not_split: Vec<String>,
    /// The unevenness of its multitasks.
    pub skew: Skew,
    /// The stage's number in its source (Spark's stage id).
    pub source_id: Option<u64>,
    /// The division of its pipelined tasks' time; `None` for other tasks.
    #[serde(skip)]
    pub blocked: Option<BlockedTimes>,
    /// Its stragglers; `None` if it has fewer than two tasks.
    #[serde(skip)]
    pub stragglers: Option<Stragglers>,
}

/// A cause of a job's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cause {
    /// Index of the job; for a cause of several jobs, of the one with most of it.
    pub job: usize,
    /// `cpu`, `disk input`, `disk`, `network`, another kind, `failure` or `unexplained`; of pipelined
    /// tasks also `gc`, `scheduling`, `skew` and `straggler`.
    pub cause: String,
    /// The stage with more than half of it, if there is one.
    pub stage: Option<usize>,
    /// Time that it accounts for.
    pub ms: f64,
    /// True if `ms` is only an upper bound.
    pub at_most: bool,
    /// The figures behind it, in words.
    pub evidence: String,
}

/// The cost of recording a trace; its fields are `None` for a truncated trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Recording {
    /// Core time of the threads that recorded.
    pub recording_ms: Option<f64>,
    /// Core time of the thread that wrote.
    pub writer_ms: Option<f64>,
    /// `recording_ms` over the core time of all monotasks.
    pub share: Option<f64>,
}
