//! The records of a trace: one closed enum, every field documented.
//!
//! Entities (machine, resource, job, stage, multitask) are registered once and
//! get an index, counted from 0 in order of registration within their own kind;
//! later records carry that index. All times are nanoseconds since the trace's
//! origin (`Header::origin_unix_ns`) on one monotonic clock. What was not
//! measured is `None` and is left out of the line; it is never zero.
//!
//! `docs/trace-format.md` is the specification; this file and it change together.

use serde::{Deserialize, Serialize};

pub use crate::application::{Application, Query, QueryEnd};
pub use crate::pipelined::{Blocked, Failure, Locality, PipelinedTask};
pub use crate::sampled::{Exchange, SampledTask};

/// Index of a [`Machine`].
pub type MachineIx = u32;
/// Index of a [`Resource`].
pub type ResourceIx = u32;
/// Index of a [`Query`].
pub type QueryIx = u32;
/// Index of a [`Job`].
pub type JobIx = u32;
/// Index of a [`Stage`].
pub type StageIx = u32;
/// Index of a [`Multitask`].
pub type MultitaskIx = u32;

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
    /// One task that used several resources at once (Spark event logs).
    PipelinedTask(Box<PipelinedTask>),
    /// One task that stands for many like it (iterate).
    SampledTask(SampledTask),
    /// What one worker sent to others in an interval (iterate).
    Exchange(Exchange),
    /// One operation on a store (storage probe, engine on object stores).
    StorageOperation(StorageOperation),
    /// The machine's own counters over an interval.
    UtilizationSample(UtilizationSample),
    /// How much a resource runs at once changed.
    ConcurrencyChange(ConcurrencyChange),
    /// A stage ended.
    StageEnd(StageEnd),
    /// A job ended.
    JobEnd(JobEnd),
    /// A query ended.
    QueryEnd(QueryEnd),
    /// The program that the jobs belong to.
    Application(Box<Application>),
    /// Last line of a complete trace.
    End(End),
}

impl Record {
    /// The `t` of every record that this version knows.
    pub const TYPES: [&'static str; 19] = [
        "header",
        "machine",
        "resource",
        "query",
        "job",
        "stage",
        "multitask",
        "monotask",
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

/// First line: what wrote the trace and how its times are to be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// `pellucid.trace/MAJOR.MINOR`. A reader refuses a newer major version.
    pub format: String,
    /// What wrote it: `engine`, `plugin`, `sparklog`, `iterate`, `storage`.
    pub producer: String,
    /// Version of the producer.
    pub producer_version: String,
    /// Unix time, in nanoseconds, of the instant that every `_ns` time counts from.
    pub origin_unix_ns: u64,
    /// What makes this trace's times not those of the bare machine, in words
    /// (`disk vda paced at 50 MB/s inside the engine`). Empty for a plain run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name, or the name that the producer knows it by.
    pub name: String,
    /// Cores that the job could use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory that the job could use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// A resource: the cores of a machine, one disk, one link, one store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Resource {
    /// Name as its machine knows it: `cores`, `nvme0n1`, `eth0`, `s3://bucket`.
    pub name: String,
    /// One of [`kind`](crate::kind), or a producer's own.
    pub kind: String,
    /// The machine that it belongs to.
    pub machine: MachineIx,
    /// Cores or slots for `cpu` and `slots`, bytes per second for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f64>,
    /// Where `capacity` is known from: `set`, `probed`, `counted` (cores), `quota` (core time
    /// that a control group allows), `observed` (the most that was seen at once).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_from: Option<String>,
    /// How many monotasks it runs at once at most. Where that adapts: the most
    /// that it may adapt to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Where that adapts: the least, from which each climb starts. Absent: it is
    /// fixed, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_min: Option<u32>,
    /// The link that a store's bytes cross.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<ResourceIx>,
    /// When it came, where it was not there from the beginning (an executor).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_ns: Option<u64>,
    /// When it went, where it did before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_ns: Option<u64>,
    /// Why it went, in the producer's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_why: Option<String>,
}

/// A job: one submitted query, action or driver program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Job {
    /// SQL text, call site or name of the driver program.
    pub name: String,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// Its number where it came from (Spark's job id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The query that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<QueryIx>,
}

/// A stage: the work between two exchanges.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stage {
    /// The job that it belongs to.
    pub job: JobIx,
    /// Operators of the stage, outermost first.
    pub name: String,
    /// Attempt, from 0.
    #[serde(default)]
    pub attempt: u32,
    /// Place in the user's program, where the producer knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_site: Option<String>,
    /// Stages that had to end before this one could start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<StageIx>,
    /// When it could first run.
    pub submitted_ns: u64,
    /// Operators that ran but were not split into single-resource work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_split: Vec<String>,
    /// Its number where it came from (Spark's stage id, the same for each attempt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// How many tasks it was planned with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
}

/// One stage's work on one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Multitask {
    /// The stage that it belongs to.
    pub stage: StageIx,
    /// Partition within the stage, from 0.
    pub partition: u32,
    /// When it was admitted to the machine.
    pub admitted_ns: u64,
    /// Memory that it was admitted with.
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
    /// Bytes that memory has no room for, to a disk.
    Spill,
    /// Output, to a disk or over a link.
    Write,
}

/// How a unit of work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it was for.
    #[default]
    Ok,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Outcome {
    /// True for [`Outcome::Ok`], which is left out of a line.
    pub fn is_ok(&self) -> bool {
        *self == Outcome::Ok
    }
}

/// A unit of work that used exactly one resource, in one phase of one multitask.
///
/// Plain data of a fixed size, so that recording one is a copy. It was queued at
/// `queued_ns`, waited `queue_ns`, then ran `service_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Monotask {
    /// The multitask that it belongs to.
    pub multitask: MultitaskIx,
    /// The resource that it used.
    pub resource: ResourceIx,
    /// Its phase.
    pub phase: Phase,
    /// When it was queued at its resource.
    pub queued_ns: u64,
    /// How long it waited there.
    pub queue_ns: u64,
    /// How long it then ran on the resource.
    pub service_ns: u64,
    /// Bytes that it was asked to move (I/O), or decoded from its input (compute).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes that the device moved for it, as the kernel counts them for the
    /// thread. Zero, if measured, on a core: it never waits for a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Input bytes of a compute monotask that the page cache held.
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
    /// [`Stage::not_split`]); part of `operator_ns` where that was measured too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_split_ns: Option<u64>,
    /// Rows that it put out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
}

impl Monotask {
    /// When it began to run on its resource.
    pub fn started_ns(&self) -> u64 {
        self.queued_ns.saturating_add(self.queue_ns)
    }

    /// When it ended.
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
    /// What was done.
    pub operation: Operation,
    /// When it was issued.
    pub started_ns: u64,
    /// Until the first byte of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ns: Option<u64>,
    /// Until its end.
    pub duration_ns: u64,
    /// Bytes moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How many ran at once, this one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Status or error, where it did not end well (`503 SlowDown`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
}

/// What the machine's own counters said of a resource over an interval; it checks the rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UtilizationSample {
    /// The resource.
    pub resource: ResourceIx,
    /// End of the interval.
    pub at_ns: u64,
    /// Length of the interval.
    pub interval_ns: u64,
    /// Core time used by everyone on the machine (`cpu`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<u64>,
    /// Core time used by this process (`cpu`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_busy_ns: Option<u64>,
    /// Bytes read or received, by everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes written or sent, by everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
}

/// How much a resource runs at once was changed by its controller, for a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConcurrencyChange {
    /// The resource.
    pub resource: ResourceIx,
    /// The stage that it was tuned for.
    pub stage: StageIx,
    /// From when on.
    pub at_ns: u64,
    /// How much runs at once at most.
    pub concurrency: u32,
    /// Why, in the producer's words (`bytes per second grew`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A stage ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StageEnd {
    /// The stage.
    pub stage: StageIx,
    /// When.
    pub ended_ns: u64,
    /// How.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// The cause, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// The job.
    pub job: JobIx,
    /// When.
    pub ended_ns: u64,
    /// How.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// The cause, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Rows that it put out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Most memory that the process held while it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_high_water_bytes: Option<u64>,
}

/// Last line of a complete trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Records before this one, the header included.
    pub records: u64,
    /// What recording cost the threads that recorded, in core time: number of
    /// events times the measured cost of one (measured when the recorder starts).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording_ns: Option<u64>,
    /// Core time of the thread that wrote the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_ns: Option<u64>,
}
