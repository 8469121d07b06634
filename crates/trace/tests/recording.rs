//! Tests of the recorder: recorded data round-trips through memory and through files.

mod common;

use std::time::Instant;

use common::*;
use pellucid_trace::*;

fn options(path: Option<&std::path::Path>, keep: bool) -> RecorderOptions {
    RecorderOptions {
        producer: "engine".into(),
        producer_version: "0.1.0".into(),
        labels: vec!["disk vda paced at 50 MB/s inside the engine".into()],
        path: path.map(Into::into),
        keep,
    }
}

#[test]
fn kept_records_equal_written_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.trace");
    drop(Recorder::start(options(Some(&path), false)).expect("a trace to replace"));
    let recorder = Recorder::start(options(Some(&path), true)).expect("a recorder");
    let records = job(11, 3, 2_000);
    for record in records.iter().cloned() {
        recorder.record(record);
    }
    assert_eq!(recorder.events(), records.len() as u64);
    let kept = recorder.finish().expect("written");
    assert_eq!(kept.check(), Vec::<String>::new());
    let end = kept.end.as_ref().expect("an end");
    assert_eq!(end.records, 1 + records.len() as u64);
    assert!(end.recording_ns.expect("measured") > 0);
    assert_eq!(kept.monotasks.len(), 2 * 6_000 + 2_000);
    assert_eq!(Trace::read(&path).expect("readable"), kept);
    assert!(matches!(recorder.finish(), Err(TraceError::Finished)));
}

#[test]
fn file_that_is_not_a_trace_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let [data, packed, link, empty] =
        ["data", "packed", "link", "empty"].map(|name| folder.path().join(name));
    std::fs::write(&data, "PAR1").expect("a file");
    std::fs::write(&packed, zstd::encode_all(&b"{\"a\":1}\n"[..], 1).expect("packed")).expect("a file");
    std::os::unix::fs::symlink(&data, &link).expect("a link");
    for path in [&data, &packed, &link] {
        let before = std::fs::read(path).expect("a file");
        let refused = Recorder::start(options(Some(path), false)).err().expect("refused");
        assert!(matches!(&refused, TraceError::Occupied { path: of } if of == path), "{refused}");
        assert!(
            refused.to_string().contains("it exists and is not a trace; choose another path"),
            "{refused}"
        );
        assert!(std::fs::read(path).expect("a file") == before);
    }
    // The start of a trace is enough: the rest may be cut or damaged.
    for _ in 0..2 {
        std::fs::OpenOptions::new().append(true).create(true).open(&empty).expect("a file");
        drop(Recorder::start(options(Some(&empty), false)).expect("replaced"));
        let whole = std::fs::read(&empty).expect("a trace");
        std::fs::write(&empty, [&whole[..], b"damage"].concat()).expect("damaged");
    }
}

/// Every record refers to an entity that its thread has just registered, so each
/// round could write a record before its entity.
#[test]
fn concurrent_records_are_written_after_their_entities() {
    const THREADS: u32 = 8;
    const EACH: u32 = 3_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.trace");
    let recorder = Recorder::start(options(Some(&path), false)).expect("a recorder");
    for record in job(12, 0, 0) {
        recorder.record(record); // machine, resources, job and its end
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let recorder = recorder.clone();
            scope.spawn(move || {
                let stage = recorder.stage(Stage {
                    job: 0,
                    name: thread.to_string(),
                    attempt: 0,
                    call_site: None,
                    after: vec![],
                    submitted_ns: 2_000_000,
                    not_split: vec![],
                    ..Default::default()
                });
                for partition in 0..EACH {
                    let multitask = recorder.multitask(Multitask {
                        stage,
                        partition,
                        admitted_ns: recorder.now_ns(),
                        memory_bytes: None,
                    });
                    let mut one = monotask(multitask, 0, Phase::Compute);
                    one.rows = Some(u64::from(thread));
                    recorder.monotask(one);
                }
                recorder.record(Record::StageEnd(StageEnd {
                    stage,
                    ended_ns: recorder.now_ns(),
                    outcome: Outcome::Cancelled,
                    ..Default::default()
                }));
            });
        }
    });
    recorder.finish().expect("written");
    let trace = Trace::read(&path).expect("readable");
    assert_eq!(trace.warnings, Vec::<String>::new());
    assert_eq!(trace.truncated, None);
    assert_eq!(trace.monotasks.len(), (THREADS * EACH) as usize);
    for monotask in &trace.monotasks {
        let stage = trace.multitasks[monotask.multitask as usize].stage;
        let thread = monotask.rows.expect("a thread").to_string();
        assert_eq!(trace.stages[stage as usize].name, thread);
    }
}

#[test]
fn file_is_readable_while_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.trace");
    let recorder = Recorder::start(options(Some(&path), false)).expect("a recorder");
    let trace = Trace::read(&path).expect("the header is written immediately");
    assert!(trace.truncated.expect("truncated").contains("no end"));
    let records = job(13, 2, 3_000); // enough to wake the writer early
    for record in records.iter().cloned() {
        recorder.record(record);
    }
    let written = loop {
        let trace = Trace::read(&path).expect("readable while it grows");
        if !trace.monotasks.is_empty() {
            break trace;
        }
        std::thread::yield_now();
    };
    assert!(written.truncated.is_some());
    drop(recorder); // without an end, like a job that crashes
    let trace = Trace::read(&path).expect("readable");
    assert!(trace.truncated.as_ref().expect("no end").contains("no end"));
    assert_eq!(trace.records(), 1 + records.len() as u64);
}

#[test]
fn older_trace_stays_until_the_job_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.trace");
    for finished in [true, false] {
        let older = Recorder::start(options(Some(&path), true)).and_then(|recorder| recorder.finish());
        let older = older.expect("written");
        let recorder = Recorder::start(options(Some(&path), false)).expect("a recorder");
        let records = job(16, 2, 3_000);
        records.iter().cloned().for_each(|record| recorder.record(record));
        assert_eq!(Trace::read(&path).expect("readable"), older);
        if finished {
            recorder.finish().expect("written");
        } else {
            drop(recorder); // ended by an error
        }
        let trace = Trace::read(&path).expect("readable");
        assert_eq!((trace.end.is_some(), trace.monotasks.is_empty()), (finished, false));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}

#[test]
fn recorder_without_a_file_keeps_records() {
    let recorder = Recorder::start(options(None, true)).expect("a recorder");
    let origin_ns = recorder.at(Instant::now());
    assert!(recorder.now_ns() >= origin_ns);
    job(14, 1, 5).into_iter().for_each(|r| recorder.record(r));
    let trace = recorder.finish().expect("kept");
    assert_eq!((trace.bytes, trace.multitasks.len()), (0, 5));
    let events = recorder.events();
    recorder.monotask(monotask(0, 0, Phase::Compute));
    recorder.record(job(14, 0, 0).remove(0));
    assert_eq!(recorder.events(), events, "nothing is recorded after the end");
}

#[test]
fn record_with_unregistered_index_is_skipped_with_a_warning() {
    let recorder = Recorder::start(options(None, true)).expect("a recorder");
    recorder.monotask(monotask(3, 0, Phase::Compute));
    let trace = recorder.finish().expect("kept");
    assert_eq!(trace.monotasks, vec![]);
    assert!(trace.warnings[0].contains("multitask 3 is not registered (the trace has 0)"));
    assert_eq!(trace.end.expect("an end").records, 1);
}

#[test]
fn long_texts_are_shortened() {
    let recorder = Recorder::start(options(None, true)).expect("a recorder");
    let name = "é".repeat(1 << 20);
    recorder.job(Job { name, submitted_ns: 0, ..Default::default() });
    let trace = recorder.finish().expect("kept");
    assert!(trace.jobs[0].name.len() <= 64 << 10);
    assert!(trace.jobs[0].name.ends_with("é…"));
}

#[test]
fn unwritable_path_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing").join("job.trace");
    for path in [folder.path(), &missing] {
        let Err(error) = Recorder::start(options(Some(path), false)) else {
            panic!("created {}", path.display());
        };
        let message = error.to_string();
        assert!(message.starts_with("cannot create trace"), "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_error_names_a_remedy() {
    let Err(error) = Recorder::start(options(Some("/dev/full".as_ref()), false)) else {
        panic!("wrote to a full disk");
    };
    let message = error.to_string();
    assert!(message.starts_with("cannot write trace /dev/full"), "{message}");
    assert!(message.contains("free space there"), "{message}");
}

/// A pipe without a reader emulates a disk that fails midway.
#[cfg(unix)]
#[test]
fn write_failure_does_not_affect_the_job() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: `name` is a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // Opens both ends, since opening one would wait for the other.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path);
    let recorder = Recorder::start(options(Some(&path), true)).expect("a recorder");
    drop(reader);
    let records = job(15, 2, 100);
    records.iter().cloned().for_each(|r| recorder.record(r));
    let error = recorder.finish().expect_err("the pipe has no reader");
    let message = error.to_string();
    assert!(message.contains(&path.display().to_string()), "{message}");
    assert!(message.contains("the job was not affected"), "{message}");
    let TraceError::NotWritten { kept, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(kept.records(), 1 + records.len() as u64);
    assert_eq!(kept.check(), Vec::<String>::new());
}
