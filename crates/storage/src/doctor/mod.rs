//! What is wrong with how data is stored and reached: `pellucid storage doctor`.
//!
//! Handed a composition ([`of_composition`]), a Spark configuration ([`of_spark`]) or a trace
//! ([`of_trace`]: this engine's, or what was read out of an event log), with what a probe measured
//! where there is one. Each finding has what shows it and what to change, and says what has to be
//! predicted for its saving ([`Saving`]); the model predicts it, who calls both puts it in. None
//! is made up. Silence where all is well: what is merely possible is no finding.
//!
//! The mismatches are CLOUD '16's (§V-A, §V-B): output committed by rename where a rename
//! copies, replication at two layers, a proxy near its link's rate, one stream a read while
//! link and cores idle; and what object stores add: many small objects, listings that planning
//! waits for, throttled requests; and input in memory, which makes storage irrelevant.

mod log;
mod spark;
mod trace;

use pellucid_trace::Trace;
use serde::Serialize;

use crate::composition::{Commit, Composition, Layer};
use crate::finding::Finding;
use crate::mismatch::{self, RENAME_COMMIT_WRITES, number};
use crate::probe::{Pattern, Report, TASK_BYTES, TASKS};

pub use spark::of_spark;

/// What has to be predicted for a change's saving.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Saving {
    /// Nothing says.
    #[default]
    Unknown,
    /// A part of the jobs' time, in nanoseconds: at least, expected, at most.
    Time([u64; 3]),
    /// Each task takes so much less, in the order of the trace's pipelined tasks; and the driver,
    /// on its own.
    Tasks {
        /// Nanoseconds of each task.
        less_ns: Vec<u64>,
        /// Nanoseconds of the driver's.
        driver_ns: u64,
        /// Nanoseconds that it may be off by, beside what any prediction of tasks may.
        doubt_ns: u64,
    },
    /// A share of what settings of a what-if save: at least, expected, at most.
    WhatIf {
        /// As `--set` takes them.
        settings: Vec<String>,
        /// From 0 to 1.
        share: [f64; 3],
    },
    /// All that the storage which was probed saves.
    ProbedStorage,
}

/// A finding, with what its change saves where that is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// What has to be predicted for the saving.
    #[serde(skip)]
    pub saving: Saving,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Predicted saving of time; `None`: not predicted.
    pub saves_ms: Option<f64>,
    /// The low end of its 90 % interval.
    pub low_ms: Option<f64>,
    /// The high end.
    pub high_ms: Option<f64>,
}

impl From<Finding> for Advice {
    fn from(finding: Finding) -> Self {
        Advice { saving: Saving::Unknown, finding, saves_ms: None, low_ms: None, high_ms: None }
    }
}

impl Advice {
    /// Of a finding whose saving is to be predicted so.
    pub(crate) fn saving(finding: Finding, saving: Saving) -> Advice {
        Advice { saving, ..finding.into() }
    }
}

/// What `pellucid storage doctor --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Name and version of the document.
    pub format: &'static str,
    /// Costliest kinds first; empty where all is well.
    pub findings: Vec<Advice>,
}

impl Diagnosis {
    /// Of what was found.
    pub fn new(findings: Vec<Advice>) -> Diagnosis {
        Diagnosis { format: "pellucid.doctor/1", findings }
    }
}

/// A proxy is near its link's rate from this share on.
const NEAR: f64 = 0.8;
/// More streams pay where the best rate is so many times that of one.
const STREAMS_PAY: f64 = 2.0;
/// Reading so many times as fast as writing, the link is not what writing waits for.
const WRITES_WAIT: f64 = 2.0;
/// Completing uploads is worth a word from this share of the time on that writing their bytes takes.
const COMPLETIONS_COST: f64 = 0.5;
/// Objects under this size are small: a request's latency then costs more than its bytes.
const SMALL_BYTES: u64 = 1 << 20;
/// Fewer requests are no pattern.
const MANY: usize = 100;
/// A part of a job's time that is worth a word.
const NOTABLE: f64 = 0.1;
/// Input from memory makes storage irrelevant from this share on.
const CACHED: f64 = 0.95;

/// What is wrong with a composition.
pub fn of_composition(c: &Composition, probe: Option<&Report>) -> Vec<Advice> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(rename_commit(c, probe));
    found.extend(mismatch::double_replication(c).map(|f| f.finding));
    for layer in [&c.data, &c.storage] {
        found.extend(probe.and_then(|probe| busy_mediator(layer, probe)));
    }
    if [&c.data, &c.storage].iter().any(|layer| layer.runs.is_remote() || !layer.mediators.is_empty()) {
        found.extend(probe.and_then(one_stream));
        found.extend(probe.and_then(slow_writes));
        found.extend(probe.and_then(slow_completions));
    }
    found.into_iter().map(Advice::from).collect()
}

/// Whether a rename copies, and where that is known from.
fn rename_copies(c: &Composition, probe: Option<&Report>) -> Option<String> {
    if let Some(rename) = probe.and_then(|p| p.rename) {
        let (ms, mib) = (number(rename.ms), rename.bytes >> 20);
        return rename.is_copy.then(|| format!("the probe measured {ms} ms for a rename of {mib} MiB"));
    }
    (c.rename_copies == Some(true)).then(|| "the file says rename = \"copy\"".to_string())
}

fn rename_commit(c: &Composition, probe: Option<&Report>) -> Option<Finding> {
    if c.commit != Some(Commit::Rename) {
        return None;
    }
    let known = rename_copies(c, probe)?;
    let both = probe.map(|p| p.commit).and_then(|c| Some((c.rename_ms?, c.multipart_ms?)));
    let measured = both.map_or(String::new(), |(rename, multipart)| {
        format!(
            "; putting 24 MiB of four tasks in place took {} ms by rename and {} ms by multipart upload",
            number(rename),
            number(multipart)
        )
    });
    Some(Finding::new(
        "output is committed by rename, and a rename copies",
        format!(
            "{} copies what it renames ({known}), and tasks and driver both rename: each byte is written {} times{measured}",
            c.data.system,
            number(RENAME_COMMIT_WRITES)
        ),
        COMMITTER,
    ))
}

/// The settings that commit on object stores without rename (Hadoop's documentation of S3A).
pub(crate) const COMMITTER: &str = "commit by multipart upload: spark.hadoop.fs.s3a.committer.name=magic, \
    spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a=org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory, \
    spark.sql.sources.commitProtocolClass=org.apache.spark.internal.io.cloud.PathOutputCommitProtocol, \
    spark.sql.parquet.output.committer.class=org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter; \
    Swift: write through its S3 interface with these";

fn busy_mediator(layer: &Layer, probe: &Report) -> Option<Finding> {
    let read = probe.best_read()?;
    layer.mediators.iter().find_map(|m| {
        let limit = m.link_bytes_per_s? * f64::from(m.instances);
        (read.bytes_per_s >= NEAR * limit).then(|| {
            Finding::new(
                format!("the {} is near its link's rate", m.name),
                format!(
                    "{} of the {} MB/s of its link, measured with {} requests at once: every byte passes it",
                    percent(read.bytes_per_s / limit),
                    number(limit / 1e6),
                    read.concurrency
                ),
                format!(
                    "run more than {} of it, give it a faster link, or read from the storage nodes directly",
                    m.instances
                ),
            )
        })
    })
}

fn one_stream(probe: &Report) -> Option<Finding> {
    let one = probe.rates(Pattern::Sequential).find(|r| r.concurrency == 1)?;
    let best = probe.best_read()?;
    (best.bytes_per_s >= STREAMS_PAY * one.bytes_per_s).then(|| {
        Finding::new(
            "one stream a read leaves the link idle",
            format!(
                "one request at a time reads {} MB/s, {} at once read {} MB/s",
                number(one.bytes_per_s / 1e6),
                best.concurrency,
                number(best.bytes_per_s / 1e6)
            ),
            format!(
                "read with {} requests at once: more tasks an executor, or a client that fetches ranges in parallel \
                 (S3A's vectored reads); Pellucid tunes this by itself",
                probe.chosen_concurrency.unwrap_or(best.concurrency)
            ),
        )
    })
}

/// Over the same link, and with four writers at once.
fn slow_writes(probe: &Report) -> Option<Finding> {
    let (write, read) = (probe.write_bytes_per_s?, probe.best_read()?);
    (write > 0.0 && read.bytes_per_s >= WRITES_WAIT * write).then(|| {
        Finding::new(
            "writes leave the link idle",
            format!(
                "four objects at once are written at {} MB/s, and read at {} MB/s: what a write waits for is not the link",
                number(write / 1e6),
                number(read.bytes_per_s / 1e6)
            ),
            FASTER_WRITES,
        )
    })
}

const FASTER_WRITES: &str = "more writers at once; or a store that acknowledges before its disks have the bytes, where \
    losing the last ones is no harm (HDFS: dfs.datanode.synconclose=false), or that keeps fewer copies";
const READ_SLOWER: &str = "input is read slower than a probe reads it";
const UPLOADS_WAIT: &str = "output waits for its uploads to be completed";
const UPLOADS_IN_PLACE: &str = "a store that puts an upload in place without moving its parts once more; fewer and larger \
                                files, where it is each upload and not its bytes that takes so long";

/// Their bytes are all there by then.
fn slow_completions(probe: &Report) -> Option<Finding> {
    let (completing_ms, write) = (probe.commit.multipart_ms?, probe.write_bytes_per_s?);
    let writing_ms = (TASKS * TASK_BYTES) as f64 / write.max(1.0) * 1e3;
    (completing_ms >= COMPLETIONS_COST * writing_ms).then(|| {
        Finding::new(
            UPLOADS_WAIT,
            format!(
                "completing {TASKS} uploads of {} MiB took {} ms when all bytes were there; writing as many bytes takes {} ms",
                TASK_BYTES >> 20,
                number(completing_ms),
                number(writing_ms)
            ),
            UPLOADS_IN_PLACE,
        )
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What a trace shows of how its jobs used stores.
pub fn of_trace(trace: &Trace, probe: Option<&Report>) -> Vec<Advice> {
    match &trace.application {
        Some(application) => log::of_log(trace, application, probe),
        None => trace::of_trace(trace, probe),
    }
}
