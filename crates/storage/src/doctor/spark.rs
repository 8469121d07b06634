//! What a Spark configuration says by itself, and with a probe of the store.

use super::{Advice, COMMITTER};
use crate::finding::Finding;
use crate::mismatch::number;
use crate::probe::Report;
use crate::spark::SparkConfiguration;

/// What is wrong with a Spark configuration.
pub fn of_spark(conf: &SparkConfiguration, probe: Option<&Report>) -> Vec<Advice> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(rename_commit(conf, probe));
    found.extend(listing(conf, probe));
    found.extend(streams(conf, probe));
    found.into_iter().map(Advice::from).collect()
}

/// Stores whose rename is a copy by their interface: S3 and Swift have none.
const RENAME_IS_COPY: [&str; 4] = ["s3", "s3a", "s3n", "swift"];

/// Whether a probe is of the store that a scheme of Hadoop's names: `s3a://` is S3, too. One of another store (a local
/// folder) says nothing of it.
fn is_of(probe: &Report, scheme: &str) -> bool {
    let probed = probe.url.split("://").next().unwrap_or_default();
    probed == scheme || (probed == "s3" && matches!(scheme, "s3a" | "s3n"))
}

pub(super) fn rename_commit(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let scheme = conf.schemes().into_iter().find(|s| RENAME_IS_COPY.contains(s))?;
    let probe = probe.filter(|probe| is_of(probe, scheme));
    if probe.and_then(|p| p.rename).is_some_and(|r| !r.is_copy) {
        return None;
    }
    let named = conf.hadoop("fs.s3a.committer.name").filter(|name| *name != "file");
    let protocol = conf.get("spark.sql.sources.commitProtocolClass");
    let bound = protocol.is_some_and(|c| c.contains("PathOutputCommitProtocol"));
    // Hadoop's own committer is behind Spark's two; what another (Databricks's) does is not known.
    if !bound && protocol.is_some_and(|c| !c.ends_with("HadoopMapReduceCommitProtocol")) {
        return None;
    }
    // Hadoop's default for S3A is its factory of committers for object stores.
    let factory = conf.hadoop(&format!("mapreduce.outputcommitter.factory.scheme.{scheme}"));
    let factory = factory.filter(|class| class.ends_with(".FileOutputCommitterFactory"));
    if scheme.starts_with("s3") && named.is_some() && bound && factory.is_none() {
        return None;
    }
    let version = conf.hadoop("mapreduce.fileoutputcommitter.algorithm.version").unwrap_or("1");
    let (writes, who) = if version == "2" { ("2", "tasks rename") } else { ("3", "tasks and driver rename") };
    let because = match (factory, named, bound) {
        (Some(class), ..) => {
            format!(
                "mapreduce.outputcommitter.factory.scheme.{scheme}={class} is set, whatever committer is named"
            )
        }
        (None, Some(name), false) => format!(
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

fn listing(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let schemes = conf.schemes();
    let of_its = |probe: &&Report| schemes.is_empty() || schemes.iter().any(|scheme| is_of(probe, scheme));
    let list_per_s = probe.filter(of_its)?.list_per_s?;
    let threads: u32 = conf
        .hadoop("mapreduce.input.fileinputformat.list-status.num-threads")
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    // A table of a hundred thousand files would take more than a minute and a half to list.
    (list_per_s < 1000.0 && threads <= 1).then(|| {
        Finding::new(
            "planning waits for listings",
            format!("the store lists {} entries a second, and one thread lists", number(list_per_s)),
            "for tables spark.sql.sources.parallelPartitionDiscovery.threshold below its 32 folders, from which on tasks \
             list; for RDDs of files spark.hadoop.mapreduce.input.fileinputformat.list-status.num-threads=20; fewer and \
             larger files, or a table format that keeps its own list of files",
        )
    })
}

fn streams(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let most: u32 = conf.hadoop("fs.s3a.connection.maximum")?.parse().ok()?;
    let chosen = probe.filter(|probe| is_of(probe, "s3a"))?.chosen_concurrency?;
    (most < chosen).then(|| {
        Finding::new(
            "fewer connections than the store has use for",
            format!("fs.s3a.connection.maximum={most}; the probe found that {chosen} requests at once pay"),
            format!("spark.hadoop.fs.s3a.connection.maximum={}", chosen.max(64)),
        )
    })
}
