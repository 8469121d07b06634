//! What an analysis says: plain data for renderers, `None` where nothing was measured.
//!
//! The shape follows the analysis document of the command line's contract; what
//! is here beyond it (limits, imbalance, shares of core time) is what a reader
//! of the text needs. Kinds are open, so maps are by kind's name; a kind that is
//! missing from a map was not measured, and one that is there with 0 was not used.

use std::collections::BTreeMap;

use pellucid_trace::Outcome;

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
    /// What to know before believing the rest, in words.
    pub warnings: Vec<String>,
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
    /// The kind whose removal lowers the modelled time most.
    pub bottleneck: Option<Bottleneck>,
    /// The bottleneck once that kind is gone.
    pub next: Option<Next>,
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
}

/// Part of the reason why a job took its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Index of the job.
    pub job: usize,
    /// `cpu`, `disk input`, `disk`, `network`, another kind, `failure` or `unexplained`.
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
