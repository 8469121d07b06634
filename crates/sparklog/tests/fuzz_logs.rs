//! Fuzz tests with damaged and malicious logs: the reader must not panic, and its memory must stay bounded.
//!
//! Seeded logs are damaged both as text and as compressed bytes. `PELLUCID_FUZZ_SECONDS` extends the run;
//! `PELLUCID_FUZZ_SEED` repeats a single case.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use pellucid_sparklog::{Part, looks_like_event_log, read};
use pellucid_trace::Trace;

/// An allocator that tracks the memory held by each thread.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(change: i64) {
    // Thread-local storage is unavailable while a thread ends, when nothing is measured.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `action`. Returns the peak of its additional memory, and its result.
fn peak_memory<T>(action: impl FnOnce() -> T) -> (i64, T) {
    let before = HELD.get();
    PEAK.set(before);
    let result = action();
    (PEAK.get() - before, result)
}

/// Memory limit: a line of up to 64 MiB in a buffer that grows by doubling.
const MAX_BYTES: i64 = 200 << 20;

fn trace_of(reader: impl Read) -> Result<Trace, String> {
    read([Part::new("log", reader)]).map_err(|error| error.to_string())
}

/// SplitMix64, a reproducible generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
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

/// Damages bytes at random.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    const TOKENS: [&[u8]; 14] = [
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\n",
        b"null",
        b"-1",
        b"1e999",
        b"18446744073709551616",
        b"\\ud800",
        b"\xff\xfe",
        b"\"Event\":",
    ];
    for _ in 0..1 + random.below(6) {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        let at = random.below(length);
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => {
                let part = bytes[at..length.min(at + random.below(300))].to_vec();
                let to = random.below(length);
                bytes.splice(to..to, part);
            }
            3 => drop(bytes.drain(at..length.min(at + random.below(300)))),
            4 => {
                let token = TOKENS[random.below(TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
            _ => {
                let token = TOKENS[random.below(TOKENS.len())];
                let end = length.min(at + 1 + random.below(20));
                bytes.splice(at..end, token.iter().copied());
            }
        }
    }
}

fn compressed(random: &mut Random, text: &[u8]) -> Vec<u8> {
    match random.below(4) {
        0 => zstd::encode_all(text, 1).expect("memory"),
        1 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut encoder, text).expect("memory");
            encoder.finish().expect("memory")
        }
        2 => {
            let block = lz4_flex::block::compress(text);
            let lengths = [block.len() as u32, text.len() as u32, 0].map(u32::to_le_bytes).concat();
            [&b"LZ4Block\x25"[..], &lengths, &block].concat()
        }
        _ => {
            let chunk = snap::raw::Encoder::new().compress_vec(text).expect("memory");
            let length = (chunk.len() as u32).to_be_bytes();
            [&b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"[..], &length, &chunk].concat()
        }
    }
}

fn one_case(seed: u64) {
    let mut random = Random(seed);
    let jobs = 1 + random.below(6) as u64;
    let mut bytes = log(&mut random, jobs).into_bytes();
    if random.below(4) > 0 {
        damage(&mut random, &mut bytes);
    }
    if random.below(3) == 0 {
        bytes = compressed(&mut random, &bytes);
        if random.below(2) == 0 {
            damage(&mut random, &mut bytes);
        }
    }
    let (peak, result) = peak_memory(|| {
        looks_like_event_log(&bytes);
        trace_of(&bytes[..])
    });
    assert!(peak < MAX_BYTES, "seed {seed}: held {peak} bytes");
    match result {
        Ok(trace) => {
            let broken = trace.check();
            assert!(broken.is_empty(), "seed {seed}: {broken:?}");
        }
        Err(message) => assert!(message.contains("log"), "seed {seed}: {message}"),
    }
}

#[test]
fn damaged_logs_cause_neither_panics_nor_unbounded_memory() {
    if let Some(seed) = std::env::var("PELLUCID_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return one_case(seed);
    }
    let seconds = std::env::var("PELLUCID_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut seed = 0;
    while seed < 2000 || Instant::now() < until {
        one_case(seed);
        seed += 1;
    }
    eprintln!("{seed} cases");
}

#[test]
fn undamaged_log_is_read_completely() {
    for seed in 0..50 {
        let log = log(&mut Random(seed), 5);
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
