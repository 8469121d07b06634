//! Finds problems in how data is stored and accessed: `pellucid storage doctor`.
//!
//! The input is a composition ([`of_composition`]), a Spark configuration ([`of_spark`]) or a trace
//! ([`of_trace`]: the engine's own, or one read from an event log), with an optional probe report.
//! Each finding carries its evidence and remedy, and describes how to predict the saving
//! ([`Saving`]). The caller obtains the prediction from the model. The doctor reports only what the
//! evidence shows, so a healthy input yields no findings.
//!
//! CLOUD '16 (§V-A, §V-B) describes these mismatches: output committed by a rename that copies,
//! replication at two layers, a proxy near its link's rate, and one stream per read while link and
//! cores idle. Object stores add many small objects, listings that delay planning, and throttled
//! requests. Input in memory makes storage irrelevant.

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

/// The inputs for predicting the saving of a change.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Saving {
    /// The saving cannot be predicted.
    #[default]
    Unknown,
    /// A part of the jobs' time, in nanoseconds: low, expected and high.
    Time([u64; 3]),
    /// Time saved in each task, in the order of the trace's pipelined tasks, and in the driver.
    Tasks {
        /// Nanoseconds saved in each task.
        saved_ns: Vec<u64>,
        /// Nanoseconds saved in the driver.
        driver_ns: u64,
        /// Uncertainty in nanoseconds, in addition to that of every prediction from tasks.
        uncertainty_ns: u64,
    },
    /// A share of the saving of a what-if: low, expected and high.
    WhatIf {
        /// Settings in the syntax of `--set`.
        settings: Vec<String>,
        /// Shares from 0 to 1.
        share: [f64; 3],
    },
    /// The saving of a what-if with the probed storage.
    ProbedStorage,
}

/// A finding with its predicted saving.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Inputs for the prediction.
    #[serde(skip)]
    pub saving: Saving,
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Predicted saving of time; `None` if not predicted.
    pub saves_ms: Option<f64>,
    /// Low end of the 90 % interval.
    pub low_ms: Option<f64>,
    /// High end of the 90 % interval.
    pub high_ms: Option<f64>,
}

impl From<Finding> for Advice {
    fn from(finding: Finding) -> Self {
        Advice { saving: Saving::Unknown, finding, saves_ms: None, low_ms: None, high_ms: None }
    }
}

impl Advice {
    /// Creates advice whose saving is predicted from `saving`.
    pub(crate) fn saving(finding: Finding, saving: Saving) -> Advice {
        Advice { saving, ..finding.into() }
    }
}

/// The document that `pellucid storage doctor --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Name and version of the document.
    pub format: &'static str,
    /// Findings, costliest kinds first; empty if nothing was found.
    pub findings: Vec<Advice>,
}

impl Diagnosis {
    /// Creates the document for `findings`.
    pub fn new(findings: Vec<Advice>) -> Diagnosis {
        Diagnosis { format: "pellucid.doctor/1", findings }
    }
}

/// Minimum share of its link's rate at which a proxy counts as near it.
const MIN_LINK_SHARE: f64 = 0.8;
/// Minimum ratio of the best rate to that of one stream at which more streams pay off.
const MIN_STREAM_SPEEDUP: f64 = 2.0;
/// Minimum ratio of the read rate to the write rate at which the link does not limit writes.
const MIN_READ_WRITE_RATIO: f64 = 2.0;
/// Minimum time of completing uploads to report, as a share of the time of writing their bytes.
const MIN_COMPLETION_SHARE: f64 = 0.5;
/// Objects under this size are small: a request's latency costs more than moving its bytes.
const SMALL_BYTES: u64 = 1 << 20;
/// Minimum number of requests that show a pattern.
const MIN_REQUESTS: usize = 100;
/// Minimum share of a job's time to report.
const MIN_TIME_SHARE: f64 = 0.1;
/// Minimum share of input from memory at which storage is irrelevant.
const MIN_CACHED_SHARE: f64 = 0.95;

/// Finds problems in a composition.
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

/// Returns the evidence that a rename copies; `None` if it does not, or if that is not known.
fn rename_copies(c: &Composition, probe: Option<&Report>) -> Option<String> {
    if let Some(rename) = probe.and_then(|p| p.rename) {
        let (ms, mib) = (number(rename.ms), rename.bytes >> 20);
        return rename.is_copy.then(|| format!("the probe measured {ms} ms for a rename of {mib} MiB"));
    }
    (c.rename_copies == Some(true)).then(|| "the file sets rename = \"copy\"".to_string())
}

fn rename_commit(c: &Composition, probe: Option<&Report>) -> Option<Finding> {
    if c.commit != Some(Commit::Rename) {
        return None;
    }
    let known = rename_copies(c, probe)?;
    let both = probe.map(|p| p.commit).and_then(|c| Some((c.rename_ms?, c.multipart_ms?)));
    let measured = both.map_or(String::new(), |(rename, multipart)| {
        format!(
            "; committing 24 MiB of four tasks took {} ms by rename and {} ms by multipart upload",
            number(rename),
            number(multipart)
        )
    });
    Some(Finding::new(
        "output is committed by rename, and a rename copies",
        format!(
            "{} renames by copying ({known}), and tasks and driver both rename: each byte is written {} times{measured}",
            c.data.system,
            number(RENAME_COMMIT_WRITES)
        ),
        COMMITTER,
    ))
}

/// Settings that commit on object stores without rename (Hadoop's documentation of S3A).
pub(crate) const COMMITTER: &str = "commit by multipart upload: spark.hadoop.fs.s3a.committer.name=magic, \
    spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a=org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory, \
    spark.sql.sources.commitProtocolClass=org.apache.spark.internal.io.cloud.PathOutputCommitProtocol, \
    spark.sql.parquet.output.committer.class=org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter; \
    for Swift, write through its S3 interface with these settings";

fn busy_mediator(layer: &Layer, probe: &Report) -> Option<Finding> {
    let read = probe.best_read()?;
    layer.mediators.iter().find_map(|m| {
        let limit = m.link_bytes_per_s? * f64::from(m.instances);
        (read.bytes_per_s >= MIN_LINK_SHARE * limit).then(|| {
            Finding::new(
                format!("the {} is near its link's rate", m.name),
                format!(
                    "{} of the {} MB/s of its link, measured at concurrency {}; every byte passes it",
                    percent(read.bytes_per_s / limit),
                    number(limit / 1e6),
                    read.concurrency
                ),
                format!(
                    "run more than {} of it, use a faster link, or read from the storage nodes directly",
                    m.instances
                ),
            )
        })
    })
}

fn one_stream(probe: &Report) -> Option<Finding> {
    let one = probe.rates(Pattern::Sequential).find(|r| r.concurrency == 1)?;
    let best = probe.best_read()?;
    (best.bytes_per_s >= MIN_STREAM_SPEEDUP * one.bytes_per_s).then(|| {
        Finding::new(
            "one stream per read leaves the link idle",
            format!(
                "one request at a time reads {} MB/s, and {} concurrent requests read {} MB/s",
                number(one.bytes_per_s / 1e6),
                best.concurrency,
                number(best.bytes_per_s / 1e6)
            ),
            format!(
                "read with {} concurrent requests: more tasks per executor, or a client that fetches ranges in \
                 parallel (S3A's vectored reads); Pellucid tunes this automatically",
                probe.chosen_concurrency.unwrap_or(best.concurrency)
            ),
        )
    })
}

/// Finds writes that are much slower than reads over the same link. The probe writes four objects
/// concurrently.
fn slow_writes(probe: &Report) -> Option<Finding> {
    let (write, read) = (probe.write_bytes_per_s?, probe.best_read()?);
    (write > 0.0 && read.bytes_per_s >= MIN_READ_WRITE_RATIO * write).then(|| {
        Finding::new(
            "writes leave the link idle",
            format!(
                "four concurrent objects are written at {} MB/s, and read at {} MB/s: the link does not limit the writes",
                number(write / 1e6),
                number(read.bytes_per_s / 1e6)
            ),
            FASTER_WRITES,
        )
    })
}

const FASTER_WRITES: &str = "use more concurrent writers, a store that keeps fewer copies or, if losing the last bytes is \
    acceptable, one that acknowledges before they are on disk (HDFS: dfs.datanode.synconclose=false)";
const READ_SLOWER: &str = "input is read slower than a probe reads it";
const UPLOADS_WAIT: &str = "output waits for its uploads to be completed";
const UPLOADS_IN_PLACE: &str = "use a store that completes an upload without rewriting its parts; or, if the time does not \
                                depend on the size, write fewer and larger files";

/// Finds uploads that take long to complete after all their bytes were sent.
fn slow_completions(probe: &Report) -> Option<Finding> {
    let (completing_ms, write) = (probe.commit.multipart_ms?, probe.write_bytes_per_s?);
    let writing_ms = (TASKS * TASK_BYTES) as f64 / write.max(1.0) * 1e3;
    (completing_ms >= MIN_COMPLETION_SHARE * writing_ms).then(|| {
        Finding::new(
            UPLOADS_WAIT,
            format!(
                "completing {TASKS} uploads of {} MiB took {} ms after all bytes were sent; writing as many bytes takes {} ms",
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

/// Finds problems in how the jobs of a trace used stores.
pub fn of_trace(trace: &Trace, probe: Option<&Report>) -> Vec<Advice> {
    match &trace.application {
        Some(application) => log::of_log(trace, application, probe),
        None => trace::of_trace(trace, probe),
    }
}
