//! What an analysis says: plain data for renderers, `None` where nothing was measured.
//!
//! The shape follows the analysis document of the command line's contract; what
//! is here beyond it (limits, imbalance, shares of core time) is what a reader
//! of the text needs. Kinds are open, so maps are by kind's name; a kind that is
//! missing from a map was not measured, and one that is there with 0 was not used.

use std::collections::BTreeMap;

use pellucid_trace::Outcome;

use crate::steps::Steps;

/// What a trace means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// By index in the trace.
    pub resources: Vec<ResourceUse>,
    /// Where the application's time went.
    pub wall_clock: WallClock,
    /// By index in the trace.
    pub jobs: Vec<JobAnalysis>,
    /// By index in the trace.
    pub stages: Vec<StageAnalysis>,
    /// Why the jobs took the time that they took, largest first.
    pub causes: Vec<Cause>,
    /// What recording the trace cost.
    pub recording: Recording,
    /// The time without something, from tasks that used several resources at once (`no_disk`, …).
    pub bounds: BTreeMap<&'static str, Bound>,
    /// The simulation with nothing changed, beside what was measured.
    pub replay: Option<ReplayError>,
    /// Where the tasks' time went, over all of them.
    pub blocked: Option<BlockedTimes>,
    /// Executors that had nothing to do.
    pub idle: Option<IdleSlots>,
    /// How many tasks executors let run at once, where a controller chose it; by stage, then executor.
    pub tuning: Vec<Tuning>,
    /// What to do about it, most worth first; at most five.
    pub advice: Vec<Advice>,
    /// What else a reader should see, in words.
    pub notes: Vec<String>,
    /// What to know before believing the rest, in words.
    pub warnings: Vec<String>,
}

impl Analysis {
    /// The largest cause that is no failure: what the time went to.
    pub fn first_cause(&self) -> Option<Cause> {
        let waits = self.causes.iter().filter(|cause| cause.cause != "failure");
        waits.max_by(|a, b| a.ms.total_cmp(&b.ms)).cloned()
    }

    /// Some job gave no answer.
    pub fn failed(&self) -> bool {
        self.jobs.iter().any(|job| job.outcome == Some(Outcome::Failed))
    }
}

/// A resource over the whole trace.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceUse {
    /// Name as its machine knows it.
    pub name: String,
    /// `cpu`, `disk`, …
    pub kind: String,
    /// Name of its machine.
    pub machine: Option<String>,
    /// Cores or slots for `cpu` and `slots`, bytes per second for others.
    pub capacity: Option<f64>,
    /// `set`, `probed`, `counted`, `concurrency`, `best 2 s` or `busy time`; see the crate's head.
    pub capacity_from: Option<String>,
    /// Total demand over capacity; `None` where neither bytes nor times say anything of it.
    pub ideal_ms: Option<f64>,
}

/// The application's time, cut in parts that sum to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WallClock {
    /// While at least one job was there.
    pub jobs_ms: Option<f64>,
    /// While none was.
    pub driver_only_ms: Option<f64>,
    /// While one was, but no executor; `None` where executors are not recorded.
    pub waiting_for_executors_ms: Option<f64>,
}

/// What limits: a kind of resource, and the one of it with the largest ideal time.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// `cpu`, `disk`, …
    pub kind: String,
    /// The resource of that kind with the largest ideal time.
    pub name: Option<String>,
}

/// What would limit without the bottleneck.
#[derive(Debug, Clone, PartialEq)]
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
    /// The same, or the time of its most loaded resource where that is longer
    /// and its bytes could not have gone elsewhere. The maximum in the model is over this.
    pub limit_ms: f64,
    /// Name of the resource with the largest ideal time.
    pub largest: Option<String>,
    /// Ideal time of that resource.
    pub largest_ms: f64,
    /// How many resources the kind's capacity was summed over.
    pub resources: usize,
    /// Largest over mean ideal time of them; `None` for fewer than two.
    pub imbalance: Option<f64>,
    /// True where some resource has no capacity and its busy time stands for its ideal time.
    pub from_busy_time: bool,
    /// Ideal ÷ duration.
    pub utilization: Option<f64>,
    /// Waiting in the kind's queues, summed over monotasks; `None` where no monotask of its own was recorded.
    pub queue_ms: Option<f64>,
    /// Running on the kind's resources, summed over monotasks.
    pub service_ms: Option<f64>,
}

/// How a job's or a stage's core time divides. Shares of the service time of compute monotasks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoreTime {
    /// Service time on cores, summed over monotasks.
    pub total_ms: Option<f64>,
    /// Decoding input.
    pub decode_share: Option<f64>,
    /// In operators.
    pub operator_share: Option<f64>,
    /// Partitioning and encoding output.
    pub encode_share: Option<f64>,
    /// In operators that were not split into work of one resource each.
    pub not_split_share: Option<f64>,
}

/// How many tasks an executor let run at once during a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Index of the stage in the trace.
    pub stage: usize,
    /// Its number where it came from.
    pub source_id: Option<u64>,
    /// Name of the executor.
    pub executor: String,
    /// In the order of time.
    pub steps: Vec<TuningStep>,
}

/// From when on so many tasks ran at once at most.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningStep {
    /// Since the trace's origin.
    pub at_ms: f64,
    /// At least 1.
    pub concurrency: u32,
    /// Why, in the controller's words.
    pub reason: Option<String>,
}

/// Demands of a job relative to each other (blocked-time-nsdi15 §3.4).
#[derive(Debug, Clone, Default, PartialEq)]
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

/// A job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobAnalysis {
    /// Index in the trace.
    pub id: usize,
    /// SQL text, call site or name.
    pub name: String,
    /// From submission to its end; `None` when the end was not recorded.
    pub duration_ms: Option<f64>,
    /// From submission to the last that was seen of it; what there is of a truncated trace.
    pub observed_ms: Option<f64>,
    /// How it ended; `None` when the end was not recorded.
    pub outcome: Option<Outcome>,
    /// The cause, where it failed.
    pub error: Option<String>,
    /// Rows that it put out.
    pub rows: Option<u64>,
    /// What the model says that it takes: the sum over spans of the largest limit.
    pub modelled_ms: Option<f64>,
    /// Indices of its stages.
    pub stages: Vec<usize>,
    /// What limits: the kind whose removal lowers the modelled time most. `None` where nothing was measured,
    /// and where no resource limits: ideal times explain less than half of the duration, or tasks
    /// spent most of their time on something that is no resource.
    pub bottleneck: Option<Bottleneck>,
    /// The bottleneck once that kind is gone.
    pub next: Option<Next>,
    /// How the duration divides into the steps of the job; `None` for jobs that are not of monotasks, and
    /// for those that did not end.
    pub steps: Option<Steps>,
    /// By kind.
    pub kinds: BTreeMap<String, KindUse>,
    /// Bytes that came from devices and over links.
    pub read_bytes: Option<u64>,
    /// Input bytes that the page cache held.
    pub cached_bytes: Option<u64>,
    /// Bytes written to devices and links, spilled ones included.
    pub written_bytes: Option<u64>,
    /// Most memory that the process held.
    pub memory_high_water_bytes: Option<u64>,
    /// How the core time divides.
    pub core: CoreTime,
    /// Demands relative to each other.
    pub intensity: Intensity,
    /// Its number where it came from (Spark's job id).
    pub source_id: Option<u64>,
    /// Where its pipelined tasks' time went; `None` for jobs of other tasks.
    pub blocked: Option<BlockedTimes>,
    /// The job's time without something, as [`Analysis::bounds`].
    pub bounds: BTreeMap<&'static str, Bound>,
}

/// How uneven a stage's multitasks were; largest over median.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Skew {
    /// Bytes read, fetched or found in the page cache.
    pub input_bytes_max_over_median: Option<f64>,
    /// Bytes written or spilled.
    pub output_bytes_max_over_median: Option<f64>,
    /// From admission to the end of the last monotask.
    pub duration_max_over_median: Option<f64>,
    /// Partitions that hold over twice the median and take long for that reason; the longest first.
    pub partitions: Vec<SkewedPartition>,
}

/// A partition that holds more than others.
#[derive(Debug, Clone, PartialEq)]
pub struct SkewedPartition {
    /// Number within its stage.
    pub partition: u32,
    /// Its share of what the stage read.
    pub share: f64,
    /// What it read over the stage's median.
    pub times_median: f64,
    /// How long its task took.
    pub duration_ms: f64,
}

/// A time that was measured or bounded, summed over tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlockedTime {
    /// What was measured; `None` where nothing was.
    pub measured_ms: Option<f64>,
    /// What it is at most, the measured included; `None` where nothing bounds it.
    pub at_most_ms: Option<f64>,
}

/// Where tasks' time went (blocked-time-nsdi15 §2.3.1), summed over tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BlockedTimes {
    /// Shuffle writes, spills and, as a bound, what reads may have waited.
    pub disk: BlockedTime,
    /// Waiting for shuffle data.
    pub network: BlockedTime,
    /// Garbage collection.
    pub gc: BlockedTime,
    /// Scheduler delay.
    pub scheduler: BlockedTime,
    /// Deserialising tasks.
    pub deserialize: BlockedTime,
    /// The rest of the run time, that nothing explains.
    pub other: BlockedTime,
    /// Core time.
    pub cpu: BlockedTime,
}

/// What progress rates are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Denominator {
    /// Bytes read.
    Bytes,
    /// Records read.
    Records,
    /// Nothing: the time alone.
    #[default]
    None,
}

impl Denominator {
    /// `bytes`, `records` or `none`.
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
    /// What the rates are over.
    pub denominator: Denominator,
    /// How many each cause explains, by its name; `None` where it cannot be told. Several may hold of one.
    pub causes: BTreeMap<&'static str, Option<u64>>,
    /// How many a cause may explain whose part of the time is only bounded.
    pub at_most: BTreeMap<&'static str, u64>,
    /// Those that took longest, at most five.
    pub tasks: Vec<StragglerTask>,
}

/// A straggler.
#[derive(Debug, Clone, PartialEq)]
pub struct StragglerTask {
    /// Partition within the stage.
    pub partition: u32,
    /// Attempt, from 0.
    pub attempt: u32,
    /// Where it ran.
    pub executor: String,
    /// How long it took.
    pub duration_ms: f64,
    /// Its inverse progress rate over the stage's median.
    pub times_median: f64,
    /// Names of the causes that hold.
    pub causes: Vec<&'static str>,
}

/// The time without something (blocked-time-nsdi15 §2.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Time in which jobs run, scaled from the simulation to what was measured.
    pub duration_ms: f64,
    /// Lower end of the interval: all that may be blocked on it is gone.
    pub low_ms: f64,
    /// Upper end: only what surely was.
    pub high_ms: f64,
    /// 1 − simulated without ÷ simulated unchanged.
    pub improvement: f64,
    /// It improves by at most that much: part of it is only bounded.
    pub at_most: bool,
}

/// How an improvement is spread over jobs (blocked-time-nsdi15, figures 3, 8 and 12).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Jobs that it is over.
    pub jobs: usize,
    /// Percentiles.
    pub p5: f64,
    /// The 25th.
    pub p25: f64,
    /// The median.
    pub p50: f64,
    /// The 75th.
    pub p75: f64,
    /// The 95th.
    pub p95: f64,
}

/// The simulation with nothing changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayError {
    /// Time in which jobs ran.
    pub measured_ms: f64,
    /// The same, simulated.
    pub simulated_ms: f64,
    /// |simulated − measured| ÷ measured.
    pub error: f64,
}

impl ReplayError {
    /// Over 5 % off: bounds and predictions say little.
    pub fn weak(&self) -> bool {
        self.error > 0.05
    }
}

/// Executors that had nothing to do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IdleSlots {
    /// Time that slots were there, summed over them.
    pub slot_ms: f64,
    /// Time in which they ran no task.
    pub idle_ms: f64,
    /// The part of it while no job ran.
    pub idle_without_job_ms: f64,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// In a few words.
    pub title: String,
    /// The figures behind it.
    pub evidence: String,
    /// What to change, to be pasted where it is a setting.
    pub change: String,
    /// Predicted saving.
    pub saves_ms: f64,
    /// Lower end of its interval.
    pub low_ms: f64,
    /// Upper end of its interval.
    pub high_ms: f64,
}

/// A stage.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// Multitasks and pipelined tasks.
    pub tasks: u64,
    /// Those of them that failed.
    pub failed_tasks: u64,
    /// From submission to end; `None` when the end was not recorded.
    pub duration_ms: Option<f64>,
    /// Duration of its tasks, summed.
    pub task_time_ms: Option<f64>,
    /// By kind.
    pub kinds: BTreeMap<String, KindUse>,
    /// The kind with the largest limit.
    pub bottleneck: Option<Bottleneck>,
    /// How the core time divides.
    pub core: CoreTime,
    /// Operators that were not split.
    pub not_split: Vec<String>,
    /// How uneven its multitasks were.
    pub skew: Skew,
    /// Its number where it came from (Spark's stage id).
    pub source_id: Option<u64>,
    /// Where its pipelined tasks' time went; `None` for stages of other tasks.
    pub blocked: Option<BlockedTimes>,
    /// Its stragglers; `None` where it has fewer than two tasks.
    pub stragglers: Option<Stragglers>,
}

/// Part of the reason why a job took its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Index of the job; of a cause that holds for several, of the one with most of it.
    pub job: usize,
    /// `cpu`, `disk input`, `disk`, `network`, another kind, `failure` or `unexplained`; of pipelined
    /// tasks also `gc`, `scheduling`, `skew` and `straggler`.
    pub cause: String,
    /// The stage with most of it, where one has more than half.
    pub stage: Option<usize>,
    /// How long it limited the job.
    pub ms: f64,
    /// True where `ms` is only a bound.
    pub at_most: bool,
    /// The figures behind it, in words.
    pub evidence: String,
}

/// What recording a trace cost; `None` for a truncated trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// Core time of the threads that recorded.
    pub recording_ms: Option<f64>,
    /// Core time of the thread that wrote.
    pub writer_ms: Option<f64>,
    /// `recording_ms` over the core time of all monotasks.
    pub share: Option<f64>,
}
