//! Fuzz tests with damaged and malicious logs: the reader must not panic, and its memory must stay bounded.
//!
//! Logs are damaged both as text and as compressed bytes. `tests/run fuzz` runs the targets for longer. The other
//! tests are single logs that take long or much memory in a naive reader.

use std::fmt::Write as _;
use std::io::{self, Cursor, Read};

use pellucid_fuzz::{Inputs, Random, fuzz, peak_memory};
use pellucid_sparklog::{Part, archive, looks_like_event_log, read};
use pellucid_trace::Trace;

/// Memory limit: a line of up to 64 MiB in a buffer that grows by doubling.
const MAX_BYTES: i64 = 200 << 20;

fn trace_of(reader: impl Read) -> Result<Trace, String> {
    read([Part::new("log", reader)]).map_err(|error| error.to_string())
}

const HEAD: &str = r#"{"Event":"SparkListenerLogStart","Spark Version":"3.5.6"}
{"Event":"SparkListenerResourceProfileAdded","Resource Profile Id":0,"Task Resource Requests":{"cpus":{"Resource Name":"cpus","Amount":1.0}}}
{"Event":"SparkListenerExecutorAdded","Timestamp":1700000000100,"Executor ID":"1","Executor Info":{"Host":"h1","Total Cores":4,"Resource Profile Id":0}}
{"Event":"SparkListenerEnvironmentUpdate","Spark Properties":{"spark.executor.cores":"4","spark.my.password":"x"}}
{"Event":"SparkListenerApplicationStart","App Name":"fuzz","App ID":"app-1","Timestamp":1700000000000,"User":"me"}
{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart","executionId":0,"rootExecutionId":0,"description":"save at Report.scala:42","time":1700000000500,"sparkPlanInfo":{"nodeName":"HashAggregate","simpleString":"","children":[{"nodeName":"Exchange","children":[{"nodeName":"Scan parquet ","simpleString":"[file:/x]","metrics":[{"name":"scan time","accumulatorId":7,"metricType":"timing"}]}],"metrics":[{"name":"data size","accumulatorId":8}]}],"metrics":[{"name":"time","accumulatorId":9}]}}
"#;

/// Generates a log with `jobs` jobs of two stages with a few tasks each.
fn log(random: &mut Random, jobs: u64) -> String {
    let mut log = HEAD.to_owned();
    let mut at = 1_700_000_001_000_u64;
    let mut task = 0;
    for job in 0..jobs {
        let (first, second) = (2 * job, 2 * job + 1);
        let _ = writeln!(
            log,
            r#"{{"Event":"SparkListenerJobStart","Job ID":{job},"Submission Time":{at},"Stage Infos":[{{"Stage ID":{first},"Stage Name":"map at a.py:1"}},{{"Stage ID":{second},"Stage Name":"count at a.py:2"}}],"Stage IDs":[{first},{second}],"Properties":{{"spark.sql.execution.id":"0","spark.sql.shuffle.partitions":"16"}}}}"#
        );
        for stage in [first, second] {
            let submitted = at;
            let info = |more: &str| {
                format!(
                    r#""Stage Info":{{"Stage ID":{stage},"Stage Attempt ID":0,"Stage Name":"map at a.py:1","Number of Tasks":3,"Parent IDs":[{}],"Details":"x\n\ty","Submission Time":{submitted}{more}}}"#,
                    if stage == second { first.to_string() } else { String::new() }
                )
            };
            let _ = writeln!(log, r#"{{"Event":"SparkListenerStageSubmitted",{}}}"#, info(""));
            let mut last = at;
            for index in 0..1 + random.below(4) {
                let (launched, run) = (at + random.below(50) as u64, random.below(4000) as u64);
                let finished = launched + run + random.below(30) as u64;
                last = last.max(finished);
                let reason = match random.below(9) {
                    0 => {
                        r#"{"Reason":"ExceptionFailure","Class Name":"java.lang.OutOfMemoryError","Description":"Java heap\n space"}"#
                    }
                    1 => r#"{"Reason":"TaskKilled","Kill Reason":"another attempt succeeded"}"#,
                    2 => r#"{"Reason":"Resubmitted"}"#,
                    _ => r#"{"Reason":"Success"}"#,
                };
                let _ = writeln!(
                    log,
                    r#"{{"Event":"SparkListenerTaskEnd","Stage ID":{stage},"Stage Attempt ID":0,"Task End Reason":{reason},"Task Info":{{"Task ID":{task},"Index":{index},"Attempt":0,"Launch Time":{launched},"Executor ID":"1","Host":"h1","Locality":"ANY","Speculative":false,"Getting Result Time":0,"Finish Time":{finished},"Accumulables":[{{"ID":7,"Name":"scan time","Update":"{run}","Value":"9"}}]}},"Task Metrics":{{"Executor Run Time":{run},"Executor CPU Time":{}000,"JVM GC Time":{},"Shuffle Read Metrics":{{"Fetch Wait Time":3,"Local Bytes Read":5}},"Shuffle Write Metrics":{{"Shuffle Write Time":77}},"Input Metrics":{{"Bytes Read":{task},"Records Read":1}}}}}}"#,
                    run * 300,
                    random.below(5000)
                );
                task += 1;
            }
            at = last + 1;
            let done = format!(r#","Completion Time":{at},"Accumulables":[{{"ID":7}},{{"ID":8}}]"#);
            let _ = writeln!(log, r#"{{"Event":"SparkListenerStageCompleted",{}}}"#, info(&done));
        }
        let _ = writeln!(
            log,
            r#"{{"Event":"SparkListenerJobEnd","Job ID":{job},"Completion Time":{at},"Job Result":{{"Result":"JobSucceeded"}}}}"#
        );
        at += 10;
    }
    let _ = writeln!(log, r#"{{"Event":"SparkListenerApplicationEnd","Timestamp":{at}}}"#);
    log
}

/// Returns logs of one to five jobs.
fn logs() -> Vec<Vec<u8>> {
    (0..12).map(|seed| log(&mut Random::new(seed), 1 + seed % 5).into_bytes()).collect()
}

fn inputs() -> Inputs {
    let words: [&[u8]; 6] =
        [b"\"Event\":", b"\"Stage ID\":", b"\"Task ID\":", b"\"Accumulables\":[", b"\n{", b"\\u0000"];
    Inputs::text(logs(), &words)
}

/// Reads a log within the memory limit, and checks the trace or the message.
fn read_safely(bytes: &[u8]) -> Option<Trace> {
    let (peak, result) = peak_memory(|| {
        looks_like_event_log(bytes);
        trace_of(bytes)
    });
    assert!(peak < MAX_BYTES, "held {peak} bytes");
    match &result {
        Ok(trace) => assert_eq!(trace.check(), Vec::<String>::new()),
        Err(message) => assert!(message.contains("log"), "{message}"),
    }
    result.ok()
}

#[test]
fn damaged_log_plain() {
    let inputs = inputs();
    // Malformed lines are skipped with a warning, so nearly every log can be read.
    let whole = |trace: Trace| trace.warnings.is_empty();
    fuzz("damaged_log_plain", |random| read_safely(&inputs.damaged(random)).is_some_and(whole));
}

/// Damages text before it is compressed, and compressed bytes.
fn fuzz_compressed(test: &'static str, magic: &[u8], compress: fn(&[u8]) -> Vec<u8>) {
    let texts = inputs();
    let compressed = Inputs::binary(logs().iter().map(|log| compress(log)).collect(), &[magic]);
    fuzz(test, |random| {
        read_safely(&match random.below(3) {
            0 => compress(&texts.damaged(random)),
            1 => compressed.damaged(random),
            _ => {
                let mut bytes = compress(&texts.damaged(random));
                compressed.damage(random, &mut bytes);
                bytes
            }
        })
        .is_some()
    });
}

#[test]
fn damaged_log_zstd() {
    let compress = |text: &[u8]| zstd::encode_all(text, 1).expect("memory");
    fuzz_compressed("damaged_log_zstd", b"\x28\xb5\x2f\xfd", compress);
}

#[test]
fn damaged_log_gzip() {
    fuzz_compressed("damaged_log_gzip", b"\x1f\x8b\x08\0", |text| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut encoder, text).expect("memory");
        encoder.finish().expect("memory")
    });
}

#[test]
fn damaged_log_lz4() {
    fuzz_compressed("damaged_log_lz4", b"LZ4Block\x25", |text| {
        let block = |text: &[u8]| {
            let block = lz4_flex::block::compress(text);
            let lengths = [block.len() as u32, text.len() as u32, 0].map(u32::to_le_bytes).concat();
            [&b"LZ4Block\x25"[..], &lengths, &block].concat()
        };
        text.chunks(2000).flat_map(block).collect()
    });
}

#[test]
fn damaged_log_lzf() {
    fuzz_compressed("damaged_log_lzf", b"ZV\x01", |text| {
        let chunk = |text: &[u8]| match lzf::compress(text) {
            Ok(chunk) => {
                let lengths = [chunk.len() as u16, text.len() as u16].map(u16::to_be_bytes).concat();
                [&b"ZV\x01"[..], &lengths, &chunk].concat()
            }
            // Too short to be compressed.
            Err(_) => [&b"ZV\0"[..], &(text.len() as u16).to_be_bytes(), text].concat(),
        };
        text.chunks(2000).flat_map(chunk).collect()
    });
}

#[test]
fn damaged_log_snappy() {
    const HEADER: &[u8] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
    fuzz_compressed("damaged_log_snappy", HEADER, |text| {
        let chunk = |text: &[u8]| {
            let chunk = snap::raw::Encoder::new().compress_vec(text).expect("memory");
            [&(chunk.len() as u32).to_be_bytes()[..], &chunk].concat()
        };
        [HEADER.to_vec(), text.chunks(2000).flat_map(chunk).collect()].concat()
    });
}

/// Builds an archive as a History Server sends it, with the lengths in the directory only.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let at = (bytes.len() as u32).to_le_bytes();
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut encoder, content).expect("memory");
        let packed = encoder.finish().expect("memory");
        let name_length = (name.len() as u16).to_le_bytes();
        bytes.extend([&b"PK\x03\x04\x14\0\x08\0\x08\0"[..], &[0; 16], &name_length, &[0, 0]].concat());
        bytes.extend([name.as_bytes(), &packed].concat());
        let lengths = [packed.len() as u32, content.len() as u32].map(u32::to_le_bytes).concat();
        directory.extend([&b"PK\x01\x02"[..], &[0; 6], &[8, 0], &[0; 8], &lengths, &name_length].concat());
        directory.extend([&[0; 12], &at[..], name.as_bytes()].concat());
    }
    let numbers = [directory.len() as u32, bytes.len() as u32].map(u32::to_le_bytes).concat();
    [&bytes[..], &directory, b"PK\x05\x06", &[0; 8], &numbers, &[0, 0]].concat()
}

#[test]
fn damaged_history_server_answer() {
    let logs = logs();
    let names = ["eventlog_v2_app-1/events_1_app-1", "eventlog_v2_app-1/appstatus_app-1", "app-1"];
    let archives = logs.chunks_exact(3).map(|logs| {
        let files: Vec<_> = names.into_iter().zip(logs.iter().map(Vec::as_slice)).collect();
        zip(&files)
    });
    let magic: [&[u8]; 4] = [b"PK\x05\x06", b"PK\x01\x02", b"PK\x06\x06", b"\x01\0\x10\0\xff\xff\xff\xff"];
    let inputs = Inputs::binary(archives.collect(), &magic);
    fuzz("damaged_history_server_answer", |random| {
        let mut file = Cursor::new(inputs.damaged(random));
        let (peak, accepted) = peak_memory(|| {
            let Ok(entries) = archive::entries(&mut file) else { return false };
            let read = entries.iter().take(10).map(|entry| {
                // The limit of a download, smaller.
                let content = archive::open(&mut file, entry).map(|content| content.take(64 << 20));
                content.is_ok_and(|content| trace_of(content).is_ok())
            });
            read.fold(!entries.is_empty(), |all, read| all & read)
        });
        assert!(peak < MAX_BYTES, "held {peak} bytes");
        accepted
    });
}

#[test]
fn undamaged_log_is_read_completely() {
    for seed in 0..50 {
        let log = log(&mut Random::new(seed), 5);
        let trace = trace_of(log.as_bytes()).expect("a log");
        assert_eq!(trace.check(), Vec::<String>::new(), "seed {seed}");
        assert_eq!((trace.jobs.len(), trace.stages.len(), trace.stage_ends.len()), (5, 10, 10));
        assert_eq!(trace.pipelined_tasks.len(), log.matches("TaskEnd").count());
        assert!(trace.truncated.is_none() && trace.end.is_some());
        let stage = &trace.stages[1];
        assert_eq!(
            (stage.name.as_str(), stage.call_site.as_deref()),
            ("Exchange, Scan parquet", Some("a.py:1"))
        );
        assert_eq!((&stage.after[..], stage.id, stage.tasks), (&[0][..], Some(1), Some(3)));
    }
}

#[test]
fn line_of_a_gigabyte_is_skipped_and_reported() {
    let long = (&b"{\"Event\":\"SparkListenerTaskEnd\",\"x\":\""[..]).chain(io::repeat(b'x').take(1 << 30));
    let text = HEAD
        .as_bytes()
        .chain(long)
        .chain(&b"\"}\n{\"Event\":\"SparkListenerApplicationEnd\",\"Timestamp\":1700000009000}\n"[..]);
    let (peak, trace) = peak_memory(|| trace_of(text));
    let trace = trace.expect("the rest is a log");
    assert!(peak < MAX_BYTES, "held {peak} bytes");
    assert!(
        trace.end.is_some() && trace.warnings.iter().any(|w| w.contains("longer than 64 MiB")),
        "{:?}",
        trace.warnings
    );
}

#[test]
fn zstd_bomb_is_read_in_bounded_memory() {
    let frame = zstd::encode_all(io::repeat(b' ').take(256 << 20), 1).expect("memory");
    let head = zstd::encode_all(HEAD.as_bytes(), 1).expect("memory");
    let bomb = [head, frame.repeat(4)].concat();
    let (peak, trace) = peak_memory(|| trace_of(&bomb[..]));
    assert!(peak < MAX_BYTES, "held {peak} bytes");
    let trace = trace.expect("its first frame is a log");
    assert!(trace.warnings.iter().any(|w| w.contains("skipped line")), "{:?}", trace.warnings);
}

#[test]
fn nesting_of_any_depth_is_skipped() {
    let depth = 10 << 20;
    let deep = "[".repeat(depth) + &"]".repeat(depth);
    let plan = r#"{"nodeName":"Union","children":["#.repeat(50_000) + &"]}".repeat(50_000);
    let text = format!(
        "{HEAD}{{\"x\":{deep},\"Event\":\"Unknown\"}}\n\
         {{\"Event\":\"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart\",\"executionId\":5,\"sparkPlanInfo\":{plan}}}\n"
    );
    let trace = trace_of(text.as_bytes()).expect("a log");
    assert_eq!(trace.queries.len(), 2);
    let warnings = &trace.warnings;
    assert!(warnings.iter().any(|w| w.contains("deeper than")), "{warnings:?}");
}

/// Tasks must take less than 200 bytes each even if their ids run backwards and repeat.
#[test]
fn memory_of_a_task_does_not_depend_on_ids() {
    const TASKS: u64 = 300_000;
    struct Backwards {
        left: u64,
        line: Vec<u8>,
        at: usize,
    }
    impl Read for Backwards {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.at == self.line.len() {
                if self.left == 0 {
                    return Ok(0);
                }
                self.left -= 1;
                let (task, stage) = (u64::MAX - self.left % 1000, self.left / 3000);
                self.line = format!(
                    "{{\"Event\":\"SparkListenerTaskEnd\",\"Stage ID\":{stage},\"Stage Attempt ID\":{stage},\"Task End Reason\":{{\"Reason\":\"Success\"}},\"Task Info\":{{\"Task ID\":{task},\"Index\":{task},\"Launch Time\":{},\"Executor ID\":\"1\",\"Finish Time\":1700000100000}},\"Task Metrics\":{{\"Executor Run Time\":12345,\"Executor CPU Time\":9876543210,\"JVM GC Time\":123,\"Result Size\":4000,\"Shuffle Read Metrics\":{{\"Remote Bytes Read\":12345678,\"Local Bytes Read\":87654321,\"Fetch Wait Time\":42,\"Total Records Read\":1000000}},\"Shuffle Write Metrics\":{{\"Shuffle Bytes Written\":99999999,\"Shuffle Write Time\":123456789,\"Shuffle Records Written\":1000000}},\"Input Metrics\":{{\"Bytes Read\":134217728,\"Records Read\":1000000}},\"Output Metrics\":{{\"Bytes Written\":134217728,\"Records Written\":1000000}}}}}}\n",
                    1_700_000_000_000 + self.left % 7000,
                )
                .into_bytes();
                self.at = 0;
            }
            let read = (&self.line[self.at..]).read(into)?;
            self.at += read;
            Ok(read)
        }
    }
    let (peak, trace) = peak_memory(|| trace_of(Backwards { left: TASKS, line: Vec::new(), at: 0 }));
    let trace = trace.expect("a log");
    assert_eq!(trace.pipelined_tasks.len() as u64, TASKS);
    let each = peak / TASKS as i64;
    assert!(each < 200, "{each} bytes a task");
    assert_eq!(trace.check(), Vec::<String>::new());
}

fn job_start(job: u64, description: &str) -> String {
    format!(
        "{{\"Event\":\"SparkListenerJobStart\",\"Job ID\":{job},\"Submission Time\":1700000001000,\"Stage IDs\":[{job}],\"Properties\":{{\"spark.job.description\":\"{description}\"}}}}\n"
    )
}

#[test]
fn jobs_that_repeat_a_long_description_share_a_memory_limit() {
    let description = "SELECT ".repeat(285);
    let text: String = (0..125_000).map(|job| job_start(job, &description)).collect();
    let (peak, trace) = peak_memory(|| trace_of(text.as_bytes()));
    let trace = trace.expect("a log");
    assert!(peak < MAX_BYTES, "held {peak} bytes");
    assert_eq!((trace.jobs.len(), trace.jobs[0].name.len()), (125_000, description.len()));
    assert!(trace.jobs[124_999].name.len() < 110);
    assert!(trace.warnings.iter().any(|w| w.contains("shortened to 100 characters")), "{:?}", trace.warnings);
}

#[test]
fn small_log_that_unpacks_to_millions_of_jobs_is_refused() {
    let frame = zstd::encode_all(job_start(1, "x").repeat(100_000).as_bytes(), 1).expect("memory");
    let bomb = frame.repeat(20);
    assert!(bomb.len() < 1 << 20);
    let (peak, trace) = peak_memory(|| trace_of(&bomb[..]));
    let error = trace.expect_err("over budget");
    assert!(peak < 2 * MAX_BYTES, "held {peak} bytes");
    assert!(error.contains("cannot read log: its records need more than"), "{error}");
    assert!(error.contains("decompress it first"), "{error}");
    let plain = job_start(1, "x").repeat(100_000);
    assert_eq!(trace_of(plain.as_bytes()).expect("within the budget").jobs.len(), 100_000);
}
