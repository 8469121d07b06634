//! Reads real logs of many versions and vendors. Each must give a valid trace with the counts in the index,
//! or a clear error.
//!
//! The logs are not part of the repository. The test looks for them in `$PELLUCID_EVENTLOGS` and in
//! `../shared/eventlogs` next to the checkout.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use pellucid_sparklog::{Error, Part, layout, read};
use pellucid_trace::Trace;

fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from("../../../shared/eventlogs");
    let set = std::env::var_os("PELLUCID_EVENTLOGS").map(PathBuf::from);
    let found = set.into_iter().chain([beside]).find(|folder| folder.join("index.tsv").exists());
    if found.is_none() {
        eprintln!("skipped: no logs in $PELLUCID_EVENTLOGS or ../shared/eventlogs");
    }
    found
}

fn trace_of(log: &layout::LogFiles) -> Result<Trace, Error> {
    read(log.parts.iter().map(|part| Part::new(part, File::open(part).expect("a file"))))
}

/// Returns each log's number of tasks, stages, jobs and SQL executions from the index, and its version. The
/// counts of a log's parts are added up.
fn indexed(folder: &Path) -> BTreeMap<String, ([u64; 4], String)> {
    let index = std::fs::read_to_string(folder.join("index.tsv")).expect("an index");
    let mut logs: BTreeMap<String, ([u64; 4], String)> = BTreeMap::new();
    for row in index.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        if columns[4] == "marker file" {
            continue;
        }
        let file = folder.join(columns[0]);
        let parent = file.parent().expect("a folder");
        let name = parent.file_name().expect("a name").to_string_lossy().into_owned();
        let whole =
            name.starts_with("eventlog_v2_") || name == "db_sim_eventlog" || name == "local-1422981759269";
        let log = if whole { parent } else { &file };
        let (counts, version) = logs.entry(log.to_string_lossy().into_owned()).or_default();
        for (count, column) in counts.iter_mut().zip(&columns[6..10]) {
            *count += column.parse::<u64>().expect("a count");
        }
        if columns[3] != "-" && version.is_empty() {
            *version = columns[3].to_owned();
        }
    }
    logs
}

fn counted(trace: &Trace) -> [u64; 4] {
    let application = trace.application.as_ref().expect("an application");
    let names = [
        "SparkListenerTaskEnd",
        "SparkListenerStageCompleted",
        "SparkListenerJobStart",
        "SparkListenerSQLExecutionStart",
    ];
    names.map(|name| application.events_named(name))
}

#[test]
fn counts_agree_with_the_index() {
    let Some(folder) = folder() else { return };
    let logs = indexed(&folder);
    assert!(logs.len() > 50, "the index lists only {} logs", logs.len());
    for (name, (expected, version)) in logs {
        let found = layout::local(Path::new(&name)).expect("readable");
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        let trace = match trace_of(&found[0]) {
            Ok(trace) => trace,
            Err(error) => {
                // Only a log without events may fail.
                assert_eq!(expected, [0; 4], "{error}");
                assert!(error.to_string().contains(&name), "{error}");
                continue;
            }
        };
        assert_eq!(counted(&trace), expected, "{name}");
        assert_eq!(trace.check(), Vec::<String>::new(), "{name}");
        assert_eq!(trace.pipelined_tasks.len() as u64, expected[0], "{name}");
        let of = trace.application.as_ref().expect("an application");
        let known = of.engine_version.as_deref().unwrap_or("");
        let known_as = version.split([' ', '(']).next().unwrap_or("");
        assert!(
            known.contains(known_as) || version.contains("layout") || version.contains("DBC"),
            "{name}: {known} {version}"
        );
        assert!(trace.end.is_some() != trace.truncated.is_some(), "{name}");
    }
}

/// Prints a summary of each log: `cargo test -- --ignored --nocapture`.
#[test]
#[ignore = "prints"]
fn print_each() {
    let Some(folder) = folder() else { return };
    for log in layout::local(&folder).expect("readable") {
        match trace_of(&log) {
            Err(error) => println!("{}: {error}", log.name),
            Ok(trace) => {
                println!("{}\n  {:?} {:?}", log.name, counted(&trace), trace.truncated);
                trace.warnings.iter().for_each(|warning| println!("  ! {warning}"));
                for resource in trace.resources.iter().take(3) {
                    println!("  {} {:?} {:?}", resource.name, resource.capacity, resource.capacity_from);
                }
                for stage in trace.stages.iter().take(4) {
                    println!(
                        "  stage {:?}: {} at {:?} after {:?}",
                        stage.id, stage.name, stage.call_site, stage.after
                    );
                }
            }
        }
    }
}

/// Adaptive execution runs each shuffle as a separate job. The next job plans its stage again with another
/// id, and skips it.
#[test]
fn parent_stage_is_found_in_an_earlier_job() {
    let info = |id: u64, parents: &str, rdd: u64, times: &str| {
        format!(
            r#"{{"Stage ID":{id},"Stage Attempt ID":0,"Stage Name":"collect at a.py:1","Number of Tasks":1,"RDD Info":[{{"RDD ID":{rdd},"Parent IDs":[7]}},{{"RDD ID":1}}],"Parent IDs":[{parents}]{times}}}"#
        )
    };
    let job = |id: u64, at: u64, ids: &str, infos: &str| {
        format!(
            r#"{{"Event":"SparkListenerJobStart","Job ID":{id},"Submission Time":{at},"Stage Infos":[{infos}],"Stage IDs":[{ids}]}}"#
        )
    };
    let stage =
        |event: &str, info: String| format!(r#"{{"Event":"SparkListener{event}","Stage Info":{info}}}"#);
    let end = |id: u64, at: u64| {
        format!(
            r#"{{"Event":"SparkListenerJobEnd","Job ID":{id},"Completion Time":{at},"Job Result":{{"Result":"JobSucceeded"}}}}"#
        )
    };
    let (first, again) = (info(0, "", 3, ""), info(1, "", 3, ""));
    let lines = [
        r#"{"Event":"SparkListenerApplicationStart","App Name":"a","App ID":"a-1","Timestamp":1000}"#
            .to_owned(),
        job(0, 2000, "0", &first),
        stage("StageSubmitted", info(0, "", 3, r#","Submission Time":2000"#)),
        stage("StageCompleted", info(0, "", 3, r#","Submission Time":2000,"Completion Time":3000"#)),
        end(0, 3000),
        job(1, 4000, "1,2", &format!("{again},{}", info(2, "1", 9, ""))),
        stage("StageSubmitted", info(2, "1", 9, r#","Submission Time":4000"#)),
        stage("StageCompleted", info(2, "1", 9, r#","Submission Time":4000,"Completion Time":5000"#)),
        end(1, 5000),
        r#"{"Event":"SparkListenerApplicationEnd","Timestamp":6000}"#.to_owned(),
    ];
    let text = lines.join("\n") + "\n";
    let trace = read([Part::new("a-1", text.as_bytes())]).expect("a log");
    assert_eq!(trace.check(), Vec::<String>::new());
    let ids: Vec<_> = trace.stages.iter().map(|stage| (stage.id, stage.job, stage.after.clone())).collect();
    assert_eq!(ids, [(Some(0), 0, vec![]), (Some(2), 1, vec![0])]);
}

/// A log that breaks off before the application's end is truncated; one that breaks off after it has a
/// warning.
#[test]
fn truncation_is_reported_once() {
    let start = r#"{"Event":"SparkListenerLogStart","Spark Version":"3.5.6"}"#;
    let application =
        r#"{"Event":"SparkListenerApplicationStart","App Name":"a","App ID":"a","Timestamp":1,"User":"u"}"#;
    let end = r#"{"Event":"SparkListenerApplicationEnd","Timestamp":9}"#;
    let read = |lines: &[&str]| read([Part::new("log", lines.join("\n").as_bytes())]).expect("events");
    let running = read(&[start, application, r#"{"Event":"Spark"#]);
    assert_eq!(
        (running.truncated.as_deref(), running.warnings.len()),
        (Some("log is truncated within line 3"), 0)
    );
    let ended = read(&[start, application, end, r#"{"Event":"Spark"#]);
    assert_eq!((ended.truncated, ended.warnings), (None, vec!["log is truncated within line 4".to_owned()]));
}
