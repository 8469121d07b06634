//! What the doctor finds, and where it has nothing to say.

use pellucid_storage::composition::Composition;
use pellucid_storage::doctor::{Advice, of_composition, of_spark, of_trace};
use pellucid_storage::probe::{Commit, FirstByte, Pattern, ReadRate, Rename, Report};
use pellucid_storage::spark::SparkConfiguration;
use pellucid_trace::{Job, JobEnd, Machine, Operation, Outcome, Resource, StorageOperation, Trace, kind};

fn scenario(file: &str) -> String {
    std::fs::read_to_string(format!("{}/scenarios/{file}.toml", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn composition(text: &str) -> Composition {
    Composition::parse("x.toml", text).unwrap()
}

fn titles(found: &[Advice]) -> Vec<&str> {
    found.iter().map(|a| a.finding.title.as_str()).collect()
}

/// A store that reads at these rates with 1, 2, 4 … requests at once.
fn probe(rates: &[f64], is_copy: bool) -> Report {
    let rate = |(i, bytes_per_s): (usize, &f64)| ReadRate {
        concurrency: 1 << i,
        pattern: Pattern::Sequential,
        request_bytes: 8 << 20,
        bytes_per_s: *bytes_per_s,
        first_byte_ms: FirstByte { median: 1.0, p99: 2.0 },
    };
    Report {
        read: rates.iter().enumerate().map(rate).collect(),
        chosen_concurrency: Some(8),
        list_per_s: Some(200.0),
        rename: Some(Rename { ms: if is_copy { 80.0 } else { 2.0 }, is_copy, bytes: 8 << 20 }),
        commit: Commit { rename_ms: Some(400.0), multipart_ms: Some(20.0) },
        ..Report::new("swift://container")
    }
}

#[test]
fn good_compositions_are_met_with_silence() {
    for file in ["gc", "gc-vs", "nc", "swi", "s3", "erasure"] {
        assert_eq!(
            titles(&of_composition(&composition(&scenario(file)), None)),
            Vec::<&str>::new(),
            "{file}"
        );
    }
    let steady = probe(&[9e7, 1e8, 1e8], false);
    assert_eq!(titles(&of_composition(&composition(&scenario("nc")), Some(&steady))), Vec::<&str>::new());
}

#[test]
fn replication_at_two_layers_is_found() {
    let found = of_composition(&composition(&scenario("gc-vb")), None);
    assert_eq!(titles(&found), ["GC-Vb: both layers replicate"]);
    assert_eq!(found[0].saves_ms, None);
}

#[test]
fn rename_commit_is_found_where_a_rename_copies_and_only_there() {
    let commits = |rename: &str| {
        composition(
            &scenario("swi")
                .replace("system = \"Swift\"", &format!("system = \"Swift\"\ncommit = \"rename\"{rename}")),
        )
    };
    let found = of_composition(&commits(""), Some(&probe(&[1e8], true)));
    assert_eq!(titles(&found), ["output is committed by rename, and a rename copies"]);
    let Advice { finding, .. } = &found[0];
    assert!(
        finding.evidence.contains("written 3 times") && finding.evidence.contains("400 ms"),
        "{finding:?}"
    );
    assert!(finding.change.contains("fs.s3a.committer.name=magic"), "{finding:?}");
    assert!(of_composition(&commits(""), Some(&probe(&[1e8], false))).is_empty());
    assert!(of_composition(&commits(""), None).is_empty(), "whether it copies is not known");
    assert_eq!(of_composition(&commits("\nrename = \"copy\""), None).len(), 1);
}

#[test]
fn a_proxy_near_its_links_rate_and_idle_streams_are_found() {
    let text = scenario("swi").replace("name = \"proxy\"", "name = \"proxy\"\nlink = \"1Gbit/s\"");
    let found = of_composition(&composition(&text), Some(&probe(&[4e7, 8e7, 1.1e8], false)));
    assert_eq!(
        titles(&found),
        ["the proxy is near its link's rate", "one stream a read leaves the link idle"]
    );
    assert!(found[0].finding.evidence.contains("88 % of the 125 MB/s"), "{:?}", found[0]);
    assert!(found[1].finding.change.contains("with 8 requests at once"), "{:?}", found[1]);
}

fn spark(text: &str, probe: Option<&Report>) -> Vec<Advice> {
    of_spark(&SparkConfiguration::parse(text).unwrap(), probe)
}

#[test]
fn spark_that_renames_on_s3_is_told_of_the_committers() {
    let plain = "spark.hadoop.fs.defaultFS s3a://bucket\n";
    let found = spark(plain, None);
    assert_eq!(titles(&found), ["output to s3a:// is committed by rename, and a rename copies"]);
    assert!(found[0].finding.evidence.contains("written 3 times"));
    let second =
        spark(&format!("{plain}spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version 2\n"), None);
    assert!(second[0].finding.evidence.contains("written 2 times"), "{second:?}");
    let half = format!("{plain}spark.hadoop.fs.s3a.committer.name magic\n");
    assert!(spark(&half, None)[0].finding.evidence.contains("is not used"));
    let protocol =
        "spark.sql.sources.commitProtocolClass org.apache.spark.internal.io.cloud.PathOutputCommitProtocol\n";
    assert!(spark(&format!("{half}{protocol}"), None).is_empty());
    assert!(spark(plain, Some(&probe(&[1e8], false))).iter().all(|a| !a.finding.title.contains("rename")));
    assert!(spark("spark.hadoop.fs.defaultFS hdfs://n:9000\nspark.executor.cores 4\n", None).is_empty());
}

#[test]
fn slow_listings_and_few_connections_are_found_with_a_probe() {
    let measured = probe(&[1e8], false);
    let found = spark("spark.hadoop.fs.s3a.connection.maximum 4\n", Some(&measured));
    assert_eq!(
        titles(&found),
        ["planning waits for listings", "fewer connections than the store has use for"]
    );
    let threads = "spark.hadoop.mapreduce.input.fileinputformat.list-status.num-threads 20\n";
    assert!(spark(threads, Some(&measured)).is_empty());
}

/// A job of one second on a store.
fn trace(operations: Vec<StorageOperation>) -> Trace {
    let machine = Machine { name: "m".to_string(), cores: Some(2), memory_bytes: None };
    let store = Resource { name: "s3://b".to_string(), kind: kind::STORE.to_string(), ..Resource::default() };
    let job = Job { name: "q".to_string(), ..Job::default() };
    let end = JobEnd {
        job: 0,
        ended_ns: 1_000_000_000,
        outcome: Outcome::Ok,
        error: None,
        rows: None,
        memory_high_water_bytes: None,
    };
    Trace {
        machines: vec![machine],
        resources: vec![store],
        jobs: vec![job],
        job_ends: vec![end],
        storage_operations: operations,
        ..Trace::default()
    }
}

fn operation(operation: Operation, duration_ms: u64, error: Option<&str>) -> StorageOperation {
    StorageOperation {
        resource: 0,
        operation,
        started_ns: 0,
        first_byte_ns: None,
        duration_ns: duration_ms * 1_000_000,
        bytes: None,
        concurrency: None,
        error: error.map(str::to_string),
        outcome: Outcome::Ok,
    }
}

#[test]
fn a_trace_shows_throttling_and_listing() {
    let busy = trace(vec![
        operation(Operation::Read, 5, Some("503 SlowDown")),
        operation(Operation::List, 300, None),
        operation(Operation::Read, 5, None),
    ]);
    let found = of_trace(&busy);
    assert_eq!(titles(&found), ["the store throttles requests", "planning waits for listings"]);
    assert!(
        found[0].finding.evidence.contains("1 of 3") && found[1].finding.evidence.contains("30 %"),
        "{found:?}"
    );
    assert!(of_trace(&trace(vec![operation(Operation::List, 20, None)])).is_empty());
}
