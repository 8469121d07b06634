//! The records of a trace: one closed enum, every field documented.
//!
//! Entities (machine, resource, job, stage, multitask) are registered once and
//! get an index, counted from 0 in order of registration within their kind;
//! later records carry that index. All times are nanoseconds since the trace's
//! origin (`Header::origin_unix_ns`) on one monotonic clock. A value that was not
//! measured is `None` and absent from the line; it is never zero.
//!
//! `docs/trace-format.md` is the specification and must be kept in sync.

mod application;
mod index;
pub mod kind;
mod operator;
mod outcome;
mod pipelined;
mod query_operator;
pub mod reason;
mod sampled;
mod stack;

use serde::{Deserialize, Serialize};

pub use application::{Application, Query, QueryEnd};
pub use index::{JobIx, MachineIx, MultitaskIx, QueryIx, ResourceIx, StageIx};
pub use operator::{Column, Expression, Operator, Part};
pub use outcome::Outcome;
pub use pipelined::{Blocked, Failure, Locality, PipelinedTask};
pub use query_operator::{Metric, QueryOperator, Unit};
pub use sampled::{Exchange, SampledTask};
pub use stack::Stack;

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
pub enum Record {
    /// First line of every trace.
    Header(Header),
    /// Registers a machine.
    Machine(Machine),
    /// Registers a resource of a machine.
    Resource(Resource),
    /// Registers a query.
    Query(Query),
    /// Registers a job.
    Job(Job),
    /// Registers a stage of a job.
    Stage(Stage),
    /// Registers a multitask of a stage.
    Multitask(Multitask),
    /// One unit of work on exactly one resource (engine, plugin).
    Monotask(Monotask),
    /// The work of an operator over all compute monotasks of a stage (engine).
    Operator(Operator),
    /// An operator of a query's plan with its engine's own metrics (Spark event logs).
    QueryOperator(QueryOperator),
    /// A call stack that was sampled in compute monotasks of a stage (engine).
    Stack(Stack),
    /// One task that used several resources concurrently (Spark event logs).
    PipelinedTask(Box<PipelinedTask>),
    /// One task that represents several similar tasks (iterate).
    SampledTask(SampledTask),
    /// The data that one worker sent to others in an interval (iterate).
    Exchange(Exchange),
    /// One operation on a store (storage probe, engine on object stores).
    StorageOperation(StorageOperation),
    /// Counters of the machine over an interval.
    UtilizationSample(UtilizationSample),
    /// A change of a resource's concurrency.
    ConcurrencyChange(ConcurrencyChange),
    /// The end of a stage.
    StageEnd(StageEnd),
    /// The end of a job.
    JobEnd(JobEnd),
    /// The end of a query.
    QueryEnd(QueryEnd),
    /// The program that submitted the jobs.
    Application(Box<Application>),
    /// Last line of a complete trace.
    End(End),
}

impl Record {
    /// The `t` of every record type in this version.
    pub const TYPES: [&'static str; 22] = [
        "header",
        "machine",
        "resource",
        "query",
        "job",
        "stage",
        "multitask",
        "monotask",
        "operator",
        "query_operator",
        "stack",
        "pipelined_task",
        "sampled_task",
        "exchange",
        "storage_operation",
        "utilization_sample",
        "concurrency_change",
        "stage_end",
        "job_end",
        "query_end",
        "application",
        "end",
    ];
}

/// The first line of a trace: its producer and the origin of its times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// `pellucid.trace/MAJOR.MINOR`. Readers reject a newer major version.
    pub format: String,
    /// Producer: `engine`, `plugin`, `sparklog`, `iterate`, `storage`.
    pub producer: String,
    /// Version of the producer.
    pub producer_version: String,
    /// Unix time, in nanoseconds, of the instant that every `_ns` time counts from.
    pub origin_unix_ns: u64,
    /// Conditions under which this trace's times differ from those of the bare
    /// machine (`disk vda paced at 50 MB/s inside the engine`). Empty for a plain run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name, or the producer's name for the machine.
    pub name: String,
    /// Cores available to the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory available to the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A resource: the cores of a machine, one disk, one link, one store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Resource {
    /// Name on its machine: `cores`, `nvme0n1`, `eth0`, `s3://bucket`.
    pub name: String,
    /// One of [`kind`](crate::kind), or a kind defined by the producer.
    pub kind: String,
    /// Machine of the resource.
    pub machine: MachineIx,
    /// Cores or slots for `cpu` and `slots`, bytes per second for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// Source of `capacity`: `set`, `probed`, `counted` (cores), `quota` (core time
    /// that a control group allows), `observed` (the maximum observed concurrency).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_from: Option<String>,
    /// Maximum number of concurrent monotasks; for adaptive concurrency, the
    /// upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Lower bound of adaptive concurrency, from which tuning starts. Absent if
    /// the concurrency is fixed or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_min: Option<u32>,
    /// The link that a store's bytes cross.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<ResourceIx>,
    /// Time of addition, if added after the start (an executor).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_ns: Option<u64>,
    /// Removal time, if removed early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_ns: Option<u64>,
    /// Reason for the removal, as given by the producer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_why: Option<String>,
}

/// A job: one submitted query, action or driver program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Job {
    /// SQL text, call site or name of the driver program.
    pub name: String,
    /// Time of submission.
    pub submitted_ns: u64,
    /// ID in the source system (Spark's job ID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Query of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<QueryIx>,
}

/// A stage: the work between two exchanges.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stage {
    /// Job of the stage.
    pub job: JobIx,
    /// Operators of the stage, outermost first.
    pub name: String,
    /// Attempt, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// Place in the user's program, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_site: Option<String>,
    /// Stages that had to end before this one could start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StageIx>,
    /// Earliest time at which it could run.
    pub submitted_ns: u64,
    /// Operators that ran without being split into single-resource work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_split: Vec<String>,
    /// ID in the source system (Spark's stage ID, the same for each attempt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Planned number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
}

/// One stage's work on one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Multitask {
    /// Stage of the multitask.
    pub stage: StageIx,
    /// Partition within the stage, from 0.
    pub partition: u32,
    /// Time of admission to the machine.
    pub admitted_ns: u64,
    /// Memory reserved at admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A monotask's step within its multitask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Bytes from a disk into memory.
    Read,
    /// Bytes over a link into memory.
    Fetch,
    /// Decode, operators, encode; on a core.
    Compute,
    /// Bytes that do not fit into memory, to a disk.
    Spill,
    /// Output, to a disk or over a link.
    Write,
}

/// A unit of work that used exactly one resource, in one phase of one multitask.
///
/// Plain data of a fixed size, so recording is a copy. The monotask was queued at
/// `queued_ns`, waited for `queue_ns`, and then ran for `service_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Monotask {
    /// Multitask of the monotask.
    pub multitask: MultitaskIx,
    /// The resource that it used.
    pub resource: ResourceIx,
    /// Phase.
    pub phase: Phase,
    /// Time at which it was queued at its resource.
    pub queued_ns: u64,
    /// Queue time.
    pub queue_ns: u64,
    /// Service time.
    pub service_ns: u64,
    /// Requested bytes (I/O), or bytes decoded from the input (compute).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that the device moved, as counted by the kernel for the thread. If
    /// measured, zero for compute, which never waits for a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Input bytes of a compute monotask that came from the page cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_bytes: Option<u64>,
    /// Core time of the thread that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Part of a compute monotask's service time spent decoding its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_ns: Option<u64>,
    /// Part spent in the stage's operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_ns: Option<u64>,
    /// Part spent partitioning or encoding its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encode_ns: Option<u64>,
    /// Service time spent in operators that were not split (see
    /// [`Stage::not_split`]); part of `operator_ns` if that was measured, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_split_ns: Option<u64>,
    /// Output rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Outcome.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
}

impl Monotask {
    /// Returns the time at which it started to run on its resource.
    pub fn started_ns(&self) -> u64 {
        self.queued_ns.saturating_add(self.queue_ns)
    }

    /// Returns the time at which it ended.
    pub fn ended_ns(&self) -> u64 {
        self.started_ns().saturating_add(self.service_ns)
    }
}

/// Kinds of [`StorageOperation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read of an object or a range of it.
    Read,
    /// Write of an object or a part of it.
    Write,
    /// Listing.
    List,
    /// Metadata of one object.
    Head,
    /// Rename.
    Rename,
    /// Copy within the store.
    Copy,
    /// Deletion.
    Delete,
    /// Completion of a multipart upload or another commit.
    Commit,
}

/// One operation on a store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageOperation {
    /// The store or disk.
    pub resource: ResourceIx,
    /// Kind of operation.
    pub operation: Operation,
    /// Start time.
    pub started_ns: u64,
    /// Time to the first byte of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ns: Option<u64>,
    /// Duration.
    pub duration_ns: u64,
    /// Bytes moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Number of concurrent operations, including this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Status or error of a failure (`503 SlowDown`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Outcome.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
}

/// The machine's counters for a resource over an interval; an independent check of the other records.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UtilizationSample {
    /// The resource.
    pub resource: ResourceIx,
    /// End of the interval.
    pub at_ns: u64,
    /// Length of the interval.
    pub interval_ns: u64,
    /// Core time used by all processes on the machine (`cpu`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<u64>,
    /// Core time used by this process (`cpu`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_busy_ns: Option<u64>,
    /// Bytes read or received by all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes written or sent by all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
}

/// A change of a resource's concurrency by its controller, for a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConcurrencyChange {
    /// The resource.
    pub resource: ResourceIx,
    /// Stage for which it was tuned.
    pub stage: StageIx,
    /// Time of the change.
    pub at_ns: u64,
    /// New maximum concurrency.
    pub concurrency: u32,
    /// One of [`reason`], or a reason of the producer (`bytes per second grew`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The end of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StageEnd {
    /// The stage.
    pub stage: StageIx,
    /// End time.
    pub ended_ns: u64,
    /// Outcome.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// Cause of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// The job.
    pub job: JobIx,
    /// End time.
    pub ended_ns: u64,
    /// Outcome.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// Cause of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Output rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Peak memory of the process during the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_high_water_bytes: Option<u64>,
    /// The most memory that the job itself accounted for at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<Peak>,
    /// Data beyond the memory budget, which went to disk; `None` if all did fit, or there was no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill: Option<Spill>,
}

/// The most memory that a job held at once, by what held it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes.
    pub bytes: u64,
    /// The stage whose work made it this much.
    pub stage: StageIx,
    /// Its parts, largest first; those of less than a hundredth of it may be left out.
    pub held_by: Vec<HeldMemory>,
}

/// Data of a job that went to disk because it did not fit into the memory budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spill {
    /// Bytes written, by monotasks of phase `spill`.
    pub write_bytes: u64,
    /// Bytes read back, by monotasks of phase `read`.
    pub read_bytes: u64,
    /// Service time of these monotasks.
    pub service_ns: u64,
    /// Bytes read back from the page cache, within compute monotasks.
    #[serde(default)]
    pub cached_bytes: u64,
    /// Core time that this, encoding and decoding took, within compute monotasks.
    pub core_ns: u64,
    /// Budget with which nothing would have been written.
    pub sufficient_memory_bytes: u64,
}

/// Memory of one kind in one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldMemory {
    /// The stage that filled it.
    pub stage: StageIx,
    /// `build side`, `groups`, `sort`, `window`, `exchange`, `buffers` or `other`.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

impl HeldMemory {
    /// `what` for batches between two stages.
    pub const EXCHANGE: &str = "exchange";
    /// Fifths of its memory budget that a job's exchanges may take.
    pub const EXCHANGE_FIFTHS: u64 = 2;
    /// Quarters of what exchanges hold for which a sufficient budget has room, since outputs are reserved before they are compact.
    pub const EXCHANGE_QUARTERS: u64 = 5;

    /// Returns the bytes of a budget that a job's exchanges may take beside multitasks that need `bytes` each, of which up to
    /// `at_once` keep cores and disks at work.
    pub fn exchange_limit(budget: u64, at_once: u64, bytes: u64) -> u64 {
        let least = budget / 16;
        let at_once = ((budget - least) / bytes.max(1)).clamp(1, at_once.max(1));
        let rest = budget.saturating_sub(at_once.saturating_mul(bytes));
        rest.clamp(least, budget / 5 * Self::EXCHANGE_FIFTHS)
    }
}

/// The last line of a complete trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Number of preceding records, including the header.
    pub records: u64,
    /// Core time that recording cost the recording threads: the number of events
    /// times the cost of one, as measured at the start of the recorder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording_ns: Option<u64>,
    /// Core time of the thread that wrote the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_ns: Option<u64>,
}
