//! Tests for the doctor's findings, and for inputs without findings.

use pellucid_model::composition::Composition;
use pellucid_model::doctor::{Problem, Saving, SparkConfiguration, of_composition, of_spark, of_trace};
use pellucid_trace::probe::{Commit, FirstByte, Pattern, ReadFrom, ReadRate, Rename, Report};
use pellucid_trace::{
    Application, Blocked, Job, JobEnd, Machine, Monotask, Operation, Outcome, Phase, PipelinedTask, Query,
    QueryEnd, Resource, Stage, StorageOperation, Trace, UtilizationSample, kind,
};

fn scenario(file: &str) -> String {
    std::fs::read_to_string(format!("../storage/scenarios/{file}.toml")).unwrap()
}

fn composition(text: &str) -> Composition {
    Composition::parse("x.toml", text).unwrap()
}

fn titles(found: &[Problem]) -> Vec<&str> {
    found.iter().map(|a| a.finding.title.as_str()).collect()
}

/// Returns a probe report with these read rates for 1, 2, 4 … concurrent requests.
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
        commit: Commit { rename_ms: Some(400.0), multipart_ms: Some(20.0), request_ms: None },
        ..Report::new("swift://container")
    }
}

#[test]
fn healthy_compositions_have_no_findings() {
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
fn double_replication_is_found() {
    let found = of_composition(&composition(&scenario("gc-vb")), None);
    assert_eq!(titles(&found), ["GC-Vb: both layers replicate"]);
    assert_eq!(found[0].saves_ms, None);
}

#[test]
fn rename_commit_is_found_only_if_renames_copy() {
    let commits = |rename: &str| {
        composition(
            &scenario("swi")
                .replace("system = \"Swift\"", &format!("system = \"Swift\"\ncommit = \"rename\"{rename}")),
        )
    };
    let found = of_composition(&commits(""), Some(&probe(&[1e8], true)));
    assert_eq!(titles(&found), ["output is committed by rename, and a rename copies"]);
    let Problem { finding, .. } = &found[0];
    assert!(
        finding.evidence.contains("written 3 times") && finding.evidence.contains("400 ms"),
        "{finding:?}"
    );
    assert!(finding.change.contains("fs.s3a.committer.name=magic"), "{finding:?}");
    assert!(of_composition(&commits(""), Some(&probe(&[1e8], false))).is_empty());
    assert!(of_composition(&commits(""), None).is_empty(), "unknown if it copies");
    assert_eq!(of_composition(&commits("\nrename = \"copy\""), None).len(), 1);
}

#[test]
fn busy_proxy_and_single_streams_are_found() {
    let text = scenario("swi").replace("name = \"proxy\"", "name = \"proxy\"\nlink = \"1Gbit/s\"");
    let found = of_composition(&composition(&text), Some(&probe(&[4e7, 8e7, 1.1e8], false)));
    assert_eq!(
        titles(&found),
        ["the proxy is near its link's rate", "one stream per read leaves the link idle"]
    );
    assert!(found[0].finding.evidence.contains("88 % of the 125 MB/s"), "{:?}", found[0]);
    assert!(found[1].finding.change.contains("with 8 concurrent requests"), "{:?}", found[1]);
}

#[test]
fn slow_writes_are_found_if_the_store_is_remote() {
    let writes = |bytes_per_s| Report { write_bytes_per_s: Some(bytes_per_s), ..probe(&[9e7, 1e8], false) };
    let (near, far) = (composition(&scenario("gc")), composition(&scenario("nc")));
    let found = of_composition(&far, Some(&writes(4e7)));
    assert_eq!(titles(&found), ["writes leave the link idle"]);
    assert!(found[0].finding.evidence.contains("written at 40 MB/s, and read at 100 MB/s"), "{found:?}");
    assert!(of_composition(&far, Some(&writes(6e7))).is_empty());
    assert!(of_composition(&near, Some(&writes(4e7))).is_empty());
    // The data layer is local, its storage is not.
    let volume = composition(&scenario("gc-vs"));
    assert_eq!(titles(&of_composition(&volume, Some(&writes(4e7)))), ["writes leave the link idle"]);
}

#[test]
fn slow_upload_completions_are_found_by_a_probe() {
    // 24 MiB at 50 MB/s: 503 ms.
    let completes = |multipart_ms| Report {
        write_bytes_per_s: Some(5e7),
        commit: Commit { multipart_ms, ..Commit::default() },
        ..probe(&[9e7], false)
    };
    let far = composition(&scenario("nc"));
    let found = of_composition(&far, Some(&completes(Some(300.0))));
    assert_eq!(titles(&found), ["output waits for its uploads to be completed"]);
    assert!(
        found[0].finding.evidence.contains("took 300 ms") && found[0].finding.evidence.contains("503.32 ms")
    );
    assert!(of_composition(&far, Some(&completes(Some(200.0)))).is_empty());
    assert!(of_composition(&far, Some(&completes(None))).is_empty());
}

fn spark(text: &str, probe: Option<&Report>) -> Vec<Problem> {
    of_spark(&SparkConfiguration::parse(text).unwrap(), probe)
}

#[test]
fn rename_commit_on_s3_names_the_committers() {
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
    let factory = "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a \
                   org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory\n";
    let overruled = spark(&format!("{half}{protocol}{factory}"), None);
    assert!(overruled[0].finding.evidence.contains("overrides fs.s3a.committer.name"), "{overruled:?}");
    let databricks =
        "spark.sql.sources.commitProtocolClass com.databricks.sql.DirectoryAtomicCommitProtocol\n";
    assert!(spark(&format!("{plain}{databricks}"), None).is_empty(), "unknown protocol");
    let sparks = "spark.sql.sources.commitProtocolClass \
                  org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol\n";
    assert_eq!(spark(&format!("{plain}{sparks}"), None).len(), 1);
    let of_s3 = |is_copy| Report { url: "s3://bucket".to_string(), ..probe(&[1e8], is_copy) };
    assert!(spark(plain, Some(&of_s3(false))).iter().all(|a| !a.finding.title.contains("rename")));
    assert!(spark(plain, Some(&of_s3(true)))[0].finding.title.contains("rename"));
    assert!(spark("spark.hadoop.fs.defaultFS hdfs://n:9000\nspark.executor.cores 4\n", None).is_empty());
}

#[test]
fn probe_of_another_store_is_ignored() {
    let plain = "spark.hadoop.fs.defaultFS s3a://bucket\nspark.hadoop.fs.s3a.connection.maximum 4\n";
    for url in ["file:///data", "swift://container"] {
        let other = Report { url: url.to_string(), ..probe(&[1e8], false) };
        assert_eq!(spark(plain, Some(&other)), spark(plain, None), "{url}");
    }
}

#[test]
fn slow_listings_and_few_connections_are_found_by_a_probe() {
    let measured = Report { url: "s3://bucket".to_string(), ..probe(&[1e8], false) };
    let found = spark("spark.hadoop.fs.s3a.connection.maximum 4\n", Some(&measured));
    assert_eq!(titles(&found), ["planning waits for listings", "fewer connections than the store can use"]);
    let threads = "spark.hadoop.mapreduce.input.fileinputformat.list-status.num-threads 20\n";
    assert!(spark(threads, Some(&measured)).is_empty());
}

/// Returns a trace of one job of one second on a store.
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
        peak: None,
        spill: None,
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
fn throttling_and_listings_are_found_in_a_trace() {
    let busy = trace(vec![
        operation(Operation::Read, 5, Some("503 SlowDown")),
        operation(Operation::Read, 5, Some("10.0.0.1:50300: connection refused (Client.java:429)")),
        operation(Operation::List, 300, None),
        operation(Operation::Read, 5, None),
    ]);
    let found = of_trace(&busy, None);
    assert_eq!(titles(&found), ["the store throttles requests", "planning waits for listings"]);
    assert!(
        found[0].finding.evidence.contains("1 requests were throttled")
            && found[1].finding.evidence.contains("30 %"),
        "{found:?}"
    );
    assert_eq!(found[0].saving, Saving::Time([0, 5_000_000, 5_000_000]));
    assert!(of_trace(&trace(vec![operation(Operation::List, 20, None)]), None).is_empty());
    // The successful listing's duration includes the failed attempt.
    let once = trace(vec![
        operation(Operation::List, 280, Some("503 SlowDown")),
        operation(Operation::List, 300, None),
    ]);
    let found = of_trace(&once, None);
    let listing = found.iter().find(|a| a.finding.title == "planning waits for listings").unwrap();
    assert!(listing.finding.evidence.starts_with("1 listings took 300 ms"), "{listing:?}");
}

/// Returns a trace of a job that read 100 MB from a store while `received_mb` came over the link.
fn read_over_a_link(received_mb: u64) -> Trace {
    let mut reads = trace(Vec::new());
    reads.resources[0].link = Some(1);
    reads.resources.push(Resource { kind: kind::NETWORK.to_string(), ..Resource::default() });
    let fetch = Monotask {
        multitask: 0,
        resource: 0,
        phase: Phase::Fetch,
        queued_ns: 0,
        queue_ns: 0,
        service_ns: 100 * MS,
        bytes: Some(10_000_000),
        device_bytes: None,
        cached_bytes: None,
        cpu_ns: None,
        decode_ns: None,
        operator_ns: None,
        encode_ns: None,
        not_split_ns: None,
        rows: None,
        outcome: Outcome::Ok,
    };
    reads.monotasks = vec![fetch; 10];
    let sample = |n: u64| UtilizationSample {
        resource: 1,
        at_ns: (n + 1) * 200 * MS,
        interval_ns: 200 * MS,
        busy_ns: None,
        own_busy_ns: None,
        read_bytes: Some(received_mb * 1_000_000 / 5),
        write_bytes: Some(0),
    };
    reads.utilization_samples = (0..5).map(sample).collect();
    reads
}

#[test]
fn read_amplification_over_a_link_is_found() {
    let found = of_trace(&read_over_a_link(141), None);
    assert_eq!(titles(&found), ["more is read than the job asks for"]);
    assert!(
        found[0]
            .finding
            .evidence
            .starts_with("141 MB came over this machine's link while the job read 100 MB")
    );
    assert!(
        matches!(&found[0].saving, Saving::WhatIf { settings, .. } if settings == &["store.rate=x1.410"]),
        "{found:?}"
    );
    // Packet headers only, or data served from this machine.
    for received_mb in [104, 109, 0] {
        assert!(of_trace(&read_over_a_link(received_mb), None).is_empty(), "{received_mb}");
    }
    let mut writes = read_over_a_link(141);
    writes.monotasks.iter_mut().for_each(|m| m.phase = Phase::Write);
    assert!(of_trace(&writes, None).is_empty());
}

/// Returns a trace of a job that moved 100 MB in 900 of its 1000 ms.
fn moved_in_turn(phase: Phase) -> Trace {
    let mut moved = read_over_a_link(0);
    for (turn, monotask) in (0..).zip(&mut moved.monotasks) {
        *monotask = Monotask { phase, queued_ns: turn * 90 * MS, service_ns: 90 * MS, ..*monotask };
    }
    moved
}

#[test]
fn input_read_slower_than_by_the_probe_is_found() {
    let existing = |rate: f64| Report { read_from: ReadFrom::Existing, ..probe(&[rate], false) };
    let found = of_trace(&moved_in_turn(Phase::Fetch), Some(&existing(2e8)));
    assert_eq!(titles(&found), ["input is read slower than a probe reads it"]);
    assert!(found[0].finding.evidence.starts_with("100 MB came at 111.11 MB/s"), "{found:?}");
    assert!(
        matches!(&found[0].saving, Saving::WhatIf { settings, .. } if settings == &["store.rate=x1.800"]),
        "{found:?}"
    );
    // Hardly faster, possibly read from memory, or another kind of store.
    let silent =
        [existing(1.2e8), probe(&[2e8], false), Report { url: "file:///data".into(), ..existing(2e8) }];
    for probe in silent {
        assert!(of_trace(&moved_in_turn(Phase::Fetch), Some(&probe)).is_empty(), "{probe:?}");
    }
}

#[test]
fn output_written_slower_than_the_store_is_read_is_found() {
    let found = of_trace(&moved_in_turn(Phase::Write), Some(&probe(&[2e8], false)));
    assert_eq!(titles(&found), ["output is written slower than the store is read"]);
    assert_eq!(found[0].saving, Saving::Time([0, 400 * MS, 400 * MS]));
    assert!(of_trace(&moved_in_turn(Phase::Write), Some(&probe(&[1.2e8], false))).is_empty());
}

#[test]
fn slow_upload_completion_is_found_in_a_trace() {
    let completed_in = |ms: u64| {
        let mut writes = read_over_a_link(0);
        writes.monotasks.iter_mut().for_each(|m| m.phase = Phase::Write);
        let end = Monotask { bytes: None, service_ns: ms * MS, ..writes.monotasks[0] };
        writes.monotasks.push(end);
        writes
    };
    let found = of_trace(&completed_in(300), None);
    assert_eq!(titles(&found), ["output waits for its uploads to be completed"]);
    assert!(
        found[0].finding.evidence.starts_with("completing the upload took 300 ms, 30 % of the job's time")
    );
    assert_eq!(found[0].saving, Saving::Time([150 * MS, 300 * MS, 300 * MS]));
    assert!(of_trace(&completed_in(80), None).is_empty());
    // A local file is only renamed, so it has no upload.
    let mut local = completed_in(300);
    local.resources[0].kind = kind::DISK.to_string();
    assert!(of_trace(&local, None).is_empty());
}

const MS: u64 = 1_000_000;

/// Returns an event log of one query with one job of one second on two slots. The query ends 400 ms
/// after its job. Each of eight tasks wrote 8 MB and spent 50 ms on its commit.
fn log(settings: &[(&str, &str)]) -> Trace {
    let mut log = trace(Vec::new());
    log.application = Some(Application {
        engine: "Spark".to_string(),
        properties: settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        ..Application::default()
    });
    let slots = Resource { kind: kind::SLOTS.to_string(), capacity: Some(2.0), ..Resource::default() };
    log.resources = vec![slots];
    log.queries = vec![Query::default()];
    log.query_ends = vec![QueryEnd { query: 0, ended_ns: 1_400 * MS, outcome: Outcome::Ok, error: None }];
    log.jobs[0].query = Some(0);
    log.stages = vec![Stage::default()];
    for n in 0..8 {
        log.pipelined_tasks.push(&PipelinedTask {
            launched_ns: n / 2 * 250 * MS,
            duration_ns: 250 * MS,
            run_ns: Some(240 * MS),
            cpu_ns: Some(200 * MS),
            output_bytes: Some(8_000_000),
            commit_ns: Some(50 * MS),
            ..PipelinedTask::default()
        });
    }
    log
}

const S3: (&str, &str) = ("spark.hadoop.fs.s3a.endpoint", "http://s3");

#[test]
fn renames_in_a_log_are_split_into_tasks_and_driver() {
    let found = of_trace(&log(&[S3]), None);
    assert_eq!(titles(&found), ["output to s3a:// is committed by rename, and a rename copies"]);
    assert!(found[0].finding.evidence.contains("64 MB of output the tasks spent 400 ms"), "{found:?}");
    assert_eq!(
        found[0].saving,
        Saving::Tasks { saved_ns: vec![50 * MS; 8], driver_ns: 400 * MS, uncertainty_ns: 0 }
    );
    // A probe without small requests does not estimate the time of uploads.
    let found = of_trace(&log(&[S3]), Some(&probe(&[1e8], true)));
    assert_eq!(
        found[0].saving,
        Saving::Tasks { saved_ns: vec![50 * MS; 8], driver_ns: 400 * MS, uncertainty_ns: 0 }
    );
}

#[test]
fn saving_excludes_the_time_of_commits_by_upload() {
    let log = changed_log(|task| task.commit_ns = Some(200 * MS), 1_400);
    // A request takes 1 ms in the store and 7 ms in S3A: 13 requests per task, 14 in the driver, and eight completed uploads.
    let found = of_trace(&log, Some(&with_requests(1.0)));
    // The uncertainty is half of the request time: of 416 ms for two concurrent tasks, and of 113 ms for the driver.
    let uncertainty_ns = 264_500_000;
    assert_eq!(
        found[0].saving,
        Saving::Tasks { saved_ns: vec![96 * MS; 8], driver_ns: 287 * MS, uncertainty_ns }
    );
    let evidence = &found[0].finding.evidence;
    assert!(evidence.contains("the tasks spent 1600 ms"), "{evidence}");
    assert!(evidence.contains("where uploads would take them 832 ms and 113 ms"), "{evidence}");
    // With slow small requests the saving is too small to report.
    assert!(of_trace(&log, Some(&with_requests(50.0))).is_empty());
}

/// Returns a probe report of a store whose renames copy and whose small requests take `ms` each.
fn with_requests(ms: f64) -> Report {
    let probe = probe(&[1e8], true);
    let commit = Commit { request_ms: Some(ms), ..probe.commit };
    Report { small_objects_per_s: Some(8_000.0), commit, ..probe }
}

#[test]
fn log_without_costly_renames_has_no_findings() {
    assert!(of_trace(&log(&[("spark.hadoop.fs.defaultFS", "hdfs://n:9000")]), None).is_empty());
    // Nothing was written, or the commit was fast.
    let nothing = |task: &mut PipelinedTask| (task.output_bytes, task.commit_ns) = (Some(0), None);
    assert!(of_trace(&changed_log(nothing, 1_400), None).is_empty());
    assert!(of_trace(&changed_log(|task| task.commit_ns = Some(MS), 1_010), None).is_empty());
    // The settings name S3, but the jobs wrote to the probed store, which renames without a copy.
    let local = Report { url: "file:///data".to_string(), ..probe(&[1e8], false) };
    assert!(of_trace(&log(&[S3]), Some(&local)).is_empty());
}

/// Returns the log of `log` with changed tasks and another end of its query.
fn changed_log(change: fn(&mut PipelinedTask), ended_ms: u64) -> Trace {
    let mut log = log(&[S3]);
    let tasks: Vec<_> = log.pipelined_tasks.iter().collect();
    log.pipelined_tasks = Default::default();
    for mut task in tasks {
        change(&mut task);
        log.pipelined_tasks.push(&task);
    }
    log.query_ends[0].ended_ns = ended_ms * MS;
    log
}

#[test]
fn committed_output_counts_even_without_output_bytes() {
    let found = of_trace(&changed_log(|task| task.output_bytes = Some(0), 1_400), None);
    assert!(found[0].finding.evidence.contains("of 8 tasks, the tasks spent 400 ms"), "{found:?}");
    assert_eq!(
        found[0].saving,
        Saving::Tasks { saved_ns: vec![50 * MS; 8], driver_ns: 400 * MS, uncertainty_ns: 0 }
    );
}

#[test]
fn missing_commit_times_are_estimated_from_the_probes_copies() {
    let mut log = log(&[S3]);
    let tasks: Vec<_> = log.pipelined_tasks.iter().collect();
    log.pipelined_tasks = Default::default();
    tasks.into_iter().for_each(|task| log.pipelined_tasks.push(&PipelinedTask { commit_ns: None, ..task }));
    // 80 ms for 8 MiB.
    let found = of_trace(&log, Some(&probe(&[1e8], true)));
    let Saving::Tasks { saved_ns, .. } = &found[0].saving else { panic!("{found:?}") };
    assert!(saved_ns.iter().all(|ns| (76 * MS..77 * MS).contains(ns)), "{saved_ns:?}");
}

#[test]
fn idle_links_small_reads_throttling_and_cached_input_are_found_in_a_log() {
    let mut reads = log(&[]);
    reads.pipelined_tasks = Default::default();
    for n in 0..4 {
        reads.pipelined_tasks.push(&PipelinedTask {
            launched_ns: n / 2 * 500 * MS,
            duration_ns: 500 * MS,
            run_ns: Some(490 * MS),
            cpu_ns: Some(90 * MS),
            input_bytes: Some(10_000_000),
            blocked_input: Some(Blocked::AtMostNs(400 * MS)),
            ..PipelinedTask::default()
        });
    }
    assert!(
        of_trace(&reads, None).is_empty() && of_trace(&reads, Some(&probe(&[4e7, 6e7], true))).is_empty()
    );
    let found = of_trace(&reads, Some(&probe(&[4e7, 1e8], true)));
    assert_eq!(titles(&found), ["reads leave the link idle"]);
    assert!(
        matches!(&found[0].saving, Saving::WhatIf { share, .. } if (share[1] - 0.6).abs() < 0.01),
        "{found:?}"
    );
    let existing = Report { read_from: ReadFrom::Existing, ..probe(&[4e7, 6e7], true) };
    let found = of_trace(&reads, Some(&existing));
    assert_eq!(titles(&found), ["input is read slower than a probe reads it"]);
    assert!(
        matches!(&found[0].saving, Saving::WhatIf { share, .. } if (share[1] - 0.33).abs() < 0.01),
        "{found:?}"
    );
    // Two tasks that read less than one large request have no meaningful rate.
    let mut few = reads.clone();
    few.pipelined_tasks = Default::default();
    for mut task in reads.pipelined_tasks.iter().take(2) {
        task.input_bytes = Some(4_000_000);
        few.pipelined_tasks.push(&task);
    }
    for probe in [probe(&[4e7, 1e8], true), existing] {
        assert!(of_trace(&few, Some(&probe)).is_empty(), "{:?}", of_trace(&few, Some(&probe)));
    }

    let mut small = log(&[]);
    let task = PipelinedTask { duration_ns: MS, input_bytes: Some(50_000), ..PipelinedTask::default() };
    (0..200).for_each(|_| small.pipelined_tasks.push(&task));
    assert_eq!(titles(&of_trace(&small, None)), ["many small reads"]);

    let mut refused = log(&[]);
    let error = Some("AWSS3IOException: 503 SlowDown".to_string());
    refused.pipelined_tasks.push(&PipelinedTask { duration_ns: 9 * MS, error, ..PipelinedTask::default() });
    let found = of_trace(&refused, None);
    assert_eq!(titles(&found), ["the store throttles requests"]);
    assert!(
        matches!(&found[0].saving, Saving::Tasks { saved_ns, .. } if saved_ns[8] == 9 * MS && saved_ns[0] == 0)
    );

    let mut cached = log(&[]);
    cached.stages[0].name = "HashAggregate, InMemoryTableScan".to_string();
    assert_eq!(titles(&of_trace(&cached, None)), ["input was cached: where it is stored hardly matters"]);

    let mut listing = log(&[]);
    listing.jobs[0].name = "Listing leaf files and directories for 80 paths".to_string();
    assert_eq!(titles(&of_trace(&listing, None)), ["planning waits for listings"]);
}
