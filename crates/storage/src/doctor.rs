//! What is wrong with how data is stored and reached: `pellucid storage doctor`.
//!
//! Handed a composition or a Spark configuration, with what a probe measured where there is
//! one, or a trace. Each finding has what shows it and what to change; a saving only where it
//! was measured or predicted, else none is made up. Silence where all is well: what is merely
//! possible is no finding.
//!
//! The mismatches are CLOUD '16's (§V-A, §V-B): output committed by rename where a rename
//! copies, replication at two layers, a proxy near its link's rate, one stream a read while
//! link and cores idle; and what object stores add: many small objects, listings that planning
//! waits for, throttled requests; and input in memory, which makes storage irrelevant.

use pellucid_trace::{Operation, Trace, kind};
use serde::Serialize;

use crate::composition::{Commit, Composition, Layer};
use crate::finding::Finding;
use crate::mismatch::{self, RENAME_COMMIT_WRITES, number};
use crate::probe::{Pattern, Report};
use crate::spark::SparkConfiguration;

/// A finding, with what its change saves where that is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
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
        Advice { finding, saves_ms: None, low_ms: None, high_ms: None }
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
    if c.data.runs.is_remote() || !c.data.mediators.is_empty() {
        found.extend(probe.and_then(one_stream));
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
const COMMITTER: &str = "commit by multipart upload: spark.hadoop.fs.s3a.committer.name=magic, \
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

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What is wrong with a Spark configuration.
pub fn of_spark(conf: &SparkConfiguration, probe: Option<&Report>) -> Vec<Advice> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(spark_rename_commit(conf, probe));
    found.extend(spark_listing(conf, probe));
    found.extend(spark_streams(conf, probe));
    found.into_iter().map(Advice::from).collect()
}

/// Stores whose rename is a copy by their interface: S3 and Swift have none.
const RENAME_IS_COPY: [&str; 4] = ["s3", "s3a", "s3n", "swift"];

fn spark_rename_commit(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let scheme = conf.schemes().into_iter().find(|s| RENAME_IS_COPY.contains(s))?;
    if probe.and_then(|p| p.rename).is_some_and(|r| !r.is_copy) {
        return None;
    }
    let named = conf.hadoop("fs.s3a.committer.name").filter(|name| *name != "file");
    let bound = conf
        .get("spark.sql.sources.commitProtocolClass")
        .is_some_and(|c| c.contains("PathOutputCommitProtocol"));
    if scheme.starts_with("s3") && named.is_some() && bound {
        return None;
    }
    let version = conf.hadoop("mapreduce.fileoutputcommitter.algorithm.version").unwrap_or("1");
    let (writes, who) = if version == "2" { ("2", "tasks rename") } else { ("3", "tasks and driver rename") };
    let because = match (named, bound) {
        (Some(name), false) => format!(
            "fs.s3a.committer.name={name} is set, but spark.sql.sources.commitProtocolClass is not, so that it is not used"
        ),
        _ => "no committer for object stores is set".to_string(),
    };
    Some(Finding::new(
        format!("output to {scheme}:// is committed by rename, and a rename copies"),
        format!(
            "{because}; with Hadoop's own committer (algorithm version {version}) {who} the output, and each byte is \
             written {writes} times"
        ),
        COMMITTER,
    ))
}

fn spark_listing(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let list_per_s = probe?.list_per_s?;
    let threads: u32 = conf
        .hadoop("mapreduce.input.fileinputformat.list-status.num-threads")
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    // A table of a hundred thousand files would take more than a minute and a half to list.
    (list_per_s < 1000.0 && threads <= 1).then(|| {
        Finding::new(
            "planning waits for listings",
            format!("the store lists {} entries a second, and one thread lists", number(list_per_s)),
            "spark.hadoop.mapreduce.input.fileinputformat.list-status.num-threads=20, fewer and larger files, or a \
             table format that keeps its own list of files",
        )
    })
}

fn spark_streams(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let most: u32 = conf.hadoop("fs.s3a.connection.maximum")?.parse().ok()?;
    let chosen = probe?.chosen_concurrency?;
    (most < chosen).then(|| {
        Finding::new(
            "fewer connections than the store has use for",
            format!("fs.s3a.connection.maximum={most}; the probe found that {chosen} requests at once pay"),
            format!("spark.hadoop.fs.s3a.connection.maximum={}", chosen.max(64)),
        )
    })
}

/// What a trace shows of how its jobs used stores.
pub fn of_trace(trace: &Trace) -> Vec<Advice> {
    let found = [throttled(trace), listing(trace), small_objects(trace), idle_streams(trace), cached(trace)];
    found.into_iter().flatten().map(Advice::from).collect()
}

fn throttled(trace: &Trace) -> Option<Finding> {
    let asked = |error: &str| ["503", "429", "SlowDown", "Throttl"].iter().any(|word| error.contains(word));
    let all = trace.storage_operations.len();
    let refused: Vec<&str> =
        trace.storage_operations.iter().filter_map(|o| o.error.as_deref()).filter(|e| asked(e)).collect();
    let first = refused.first()?;
    Some(Finding::new(
        "the store throttles requests",
        format!("{} of {all} requests were refused so, the first with: {first}", refused.len()),
        "fewer and larger requests (larger files, larger row groups), fewer at once, or keys spread over more prefixes",
    ))
}

/// From the first submission to the last end of a job.
fn duration_ns(trace: &Trace) -> Option<u64> {
    let begun = trace.jobs.iter().map(|j| j.submitted_ns).min()?;
    let ended = trace.job_ends.iter().map(|e| e.ended_ns).max()?;
    ended.checked_sub(begun).filter(|ns| *ns > 0)
}

fn listing(trace: &Trace) -> Option<Finding> {
    let lists: Vec<u64> = trace
        .storage_operations
        .iter()
        .filter(|o| o.operation == Operation::List)
        .map(|o| o.duration_ns)
        .collect();
    let (listed, whole) = (lists.iter().sum::<u64>(), duration_ns(trace)?);
    (listed as f64 > NOTABLE * whole as f64).then(|| {
        Finding::new(
            "planning waits for listings",
            format!(
                "{} listings took {} ms, {} of the jobs' time",
                lists.len(),
                number(listed as f64 / 1e6),
                percent(listed as f64 / whole as f64)
            ),
            "fewer and larger files, or a table format that keeps its own list of files",
        )
    })
}

/// Indices of the resources that are stores.
fn stores(trace: &Trace) -> Vec<u32> {
    let resources = trace.resources.iter().enumerate();
    resources.filter(|(_, r)| r.kind == kind::STORE).map(|(i, _)| i as u32).collect()
}

fn small_objects(trace: &Trace) -> Option<Finding> {
    let stores = stores(trace);
    let mut bytes: Vec<u64> = trace
        .monotasks
        .iter()
        .filter(|m| stores.contains(&m.resource))
        .filter_map(|m| m.bytes)
        .filter(|bytes| *bytes > 0)
        .collect();
    if bytes.len() < MANY {
        return None;
    }
    bytes.sort_unstable();
    let median = bytes[bytes.len() / 2];
    (median < SMALL_BYTES).then(|| {
        Finding::new(
            "many small requests",
            format!("half of {} requests moved {} kB or less", bytes.len(), number(median as f64 / 1e3)),
            "larger files and row groups (128 MiB and more a file): each request costs a round trip",
        )
    })
}

fn idle_streams(trace: &Trace) -> Option<Finding> {
    let whole = duration_ns(trace)?;
    stores(trace).into_iter().find_map(|store| {
        let resource = trace.resources.get(store as usize)?;
        let of_store: Vec<_> = trace.monotasks.iter().filter(|m| m.resource == store).collect();
        let busy: u64 = of_store.iter().map(|m| m.service_ns).sum();
        let waited: u64 = of_store.iter().map(|m| m.queue_ns).sum();
        // One at a time, all the time, while others wait.
        let always = busy as f64 > (1.0 - NOTABLE) * whole as f64 && waited > busy;
        (resource.concurrency == Some(1) && always).then(|| {
            Finding::new(
                format!("{} is read with one request at a time", resource.name),
                format!(
                    "its queue was waited for {} ms in all, and it was busy {} of the jobs' time",
                    number(waited as f64 / 1e6),
                    percent(busy as f64 / whole as f64)
                ),
                "let concurrency adapt: leave `--concurrency store=1` out",
            )
        })
    })
}

fn cached(trace: &Trace) -> Option<Finding> {
    let of = |kind: &str| {
        let resources = trace.resources.iter().map(|r| r.kind == kind).collect::<Vec<_>>();
        let on = move |m: &&pellucid_trace::Monotask| resources.get(m.resource as usize) == Some(&true);
        trace.monotasks.iter().filter(on)
    };
    let from_memory: u64 = of(kind::CPU).filter_map(|m| m.cached_bytes).sum();
    let read: u64 = of(kind::DISK).chain(of(kind::STORE)).filter_map(|m| m.bytes).sum();
    let share = from_memory as f64 / (from_memory + read).max(1) as f64;
    (from_memory > 0 && share >= CACHED).then(|| {
        Finding::new(
            "input was in memory: where it is stored makes no difference",
            format!("{} of the input came from the page cache", percent(share)),
            "nothing, while it fits; measure with a cold cache to learn what storage would cost",
        )
    })
}
