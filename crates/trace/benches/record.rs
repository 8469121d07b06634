//! Measures the cost of recording for the thread that does the work: one monotask
//! (budget: 100 ns, without a clock read), and one registration.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pellucid_trace::*;

/// A recorder that writes to a real file, as in a query with `--trace`.
fn recorder(folder: &tempfile::TempDir) -> Recorder {
    let recorder = Recorder::start(RecorderOptions {
        producer: "bench".into(),
        producer_version: "0".into(),
        labels: vec![],
        path: Some(folder.path().join("job.trace")),
        keep: false,
    })
    .expect("a recorder");
    recorder.machine(Machine { name: "here".into(), cores: Some(2), memory_bytes: None });
    recorder.resource(Resource {
        name: "cores".into(),
        kind: kind::CPU.into(),
        machine: 0,
        capacity: Some(2.0),
        capacity_from: Some("counted".into()),
        concurrency: Some(2),
        link: None,
        ..Default::default()
    });
    recorder.job(Job { name: "SELECT 1".into(), submitted_ns: 0, ..Default::default() });
    recorder.stage(Stage {
        job: 0,
        name: "scan".into(),
        attempt: 0,
        call_site: None,
        after: vec![],
        submitted_ns: 0,
        not_split: vec![],
        ..Default::default()
    });
    recorder
}

fn multitask() -> Multitask {
    Multitask { stage: 0, partition: 7, admitted_ns: 1_000, memory_bytes: Some(8 << 20) }
}

fn monotask() -> Monotask {
    Monotask {
        multitask: 0,
        resource: 0,
        phase: Phase::Compute,
        queued_ns: 1_234_567_890,
        queue_ns: 12_345,
        service_ns: 9_876_543,
        bytes: Some(20 << 20),
        device_bytes: None,
        cached_bytes: Some(0),
        cpu_ns: Some(9_870_000),
        decode_ns: Some(5_000_000),
        operator_ns: Some(4_000_000),
        encode_ns: Some(800_000),
        not_split_ns: None,
        rows: Some(12_345),
        outcome: Outcome::Ok,
    }
}

/// Returns the core time of this thread, which is independent of other load on the
/// machine.
fn core_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "cannot read the thread's core time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Times `events` calls of `record` in batches, with a pause for the writer after
/// each. Without pauses, a loop that only records would outrun the writer, unlike
/// real jobs, and measure memory growth.
fn in_batches(events: u64, record: impl Fn()) -> Duration {
    const BATCH: u64 = 2_000;
    let mut total = Duration::ZERO;
    let mut left = events;
    while left > 0 {
        let batch = left.min(BATCH);
        let begin = core_time();
        for _ in 0..batch {
            record();
        }
        total += core_time() - begin;
        left -= batch;
        std::thread::sleep(Duration::from_millis(4));
    }
    total
}

fn record(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut group = criterion.benchmark_group("record");
    group.warm_up_time(Duration::from_secs(1));
    group.measurement_time(Duration::from_millis(100));
    group.sample_size(20);
    let recorder = recorder(&folder);
    recorder.multitask(multitask());
    group.bench_function("monotask", |bencher| {
        bencher.iter_custom(|events| in_batches(events, || recorder.monotask(black_box(monotask()))));
    });
    group.bench_function("multitask", |bencher| {
        bencher.iter_custom(|events| {
            in_batches(events, || {
                black_box(recorder.multitask(black_box(multitask())));
            })
        });
    });
    group.finish();
}

criterion_group!(benches, record);
criterion_main!(benches);
