//! Findings from a Spark configuration, with an optional probe of the store.

use pellucid_trace::probe::Report;

use super::configuration::SparkConfiguration;
use super::problem::Problem;
use super::remedies::COMMITTER;
use crate::finding::{Finding, number};

/// Finds problems in a Spark configuration.
pub fn of_spark(conf: &SparkConfiguration, probe: Option<&Report>) -> Vec<Problem> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(rename_commit(conf, probe));
    found.extend(listing(conf, probe));
    found.extend(streams(conf, probe));
    found.into_iter().map(Problem::from).collect()
}

/// Schemes whose renames copy, because S3 and Swift have no rename operation.
const RENAME_IS_COPY: [&str; 4] = ["s3", "s3a", "s3n", "swift"];

/// Returns true if a probe measured the kind of store that a Hadoop scheme names; `s3a://` is S3. A probe of another
/// store (a local folder) does not apply.
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
    // Both of Spark's commit protocols use Hadoop's committer; the behaviour of others (Databricks's) is not known.
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
    let (writes, renamed_by) =
        if version == "2" { ("2", "tasks rename") } else { ("3", "tasks and driver rename") };
    let because = match (factory, named, bound) {
        (Some(class), ..) => {
            format!(
                "mapreduce.outputcommitter.factory.scheme.{scheme}={class} overrides fs.s3a.committer.name"
            )
        }
        (None, Some(name), false) => format!(
            "fs.s3a.committer.name={name} is not used because spark.sql.sources.commitProtocolClass is not set"
        ),
        _ => "no committer for object stores is set".to_string(),
    };
    Some(Finding::new(
        format!("output to {scheme}:// is committed by rename, and a rename copies"),
        format!(
            "{because}; with Hadoop's own committer (algorithm version {version}), {renamed_by} the output, and each byte \
             is written {writes} times"
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
    // At this rate, listing a table of 100,000 files takes more than 100 s.
    (list_per_s < 1000.0 && threads <= 1).then(|| {
        Finding::new(
            "planning waits for listings",
            format!("the store lists {} entries per second, and one thread lists", number(list_per_s)),
            "for tables, lower spark.sql.sources.parallelPartitionDiscovery.threshold, the number of folders (32) above \
             which tasks list; for RDDs of files, set \
             spark.hadoop.mapreduce.input.fileinputformat.list-status.num-threads=20; or use fewer and larger files, or \
             a table format that keeps its own list of files",
        )
    })
}

fn streams(conf: &SparkConfiguration, probe: Option<&Report>) -> Option<Finding> {
    let limit: u32 = conf.hadoop("fs.s3a.connection.maximum")?.parse().ok()?;
    let chosen = probe.filter(|probe| is_of(probe, "s3a"))?.chosen_concurrency?;
    (limit < chosen).then(|| {
        Finding::new(
            "fewer connections than the store can use",
            format!("fs.s3a.connection.maximum={limit}, and the probe was fastest with {chosen} concurrent requests"),
            format!("set spark.hadoop.fs.s3a.connection.maximum={}", chosen.max(64)),
        )
    })
}
