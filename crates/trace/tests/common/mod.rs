//! Seeded jobs for tests: a simulated query of several stages on two cores and a
//! disk, with consistent times.
#![allow(dead_code)] // each test uses a part of this module

use pellucid_trace::*;

/// A SplitMix64 generator: reproducible and without dependencies.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }
}

pub const CORES: u32 = 2;

pub fn monotask(multitask: u32, resource: u32, phase: Phase) -> Monotask {
    Monotask {
        multitask,
        resource,
        phase,
        queued_ns: 0,
        queue_ns: 0,
        service_ns: 0,
        bytes: None,
        device_bytes: None,
        cached_bytes: None,
        cpu_ns: None,
        decode_ns: None,
        operator_ns: None,
        encode_ns: None,
        not_split_ns: None,
        rows: None,
        outcome: Outcome::Ok,
    }
}

/// The times at which the slots of a resource become free.
struct Slots(Vec<u64>);

impl Slots {
    /// Runs a monotask for `service_ns` on the slot that is free first.
    fn run(&mut self, monotask: &mut Monotask, queued_ns: u64, service_ns: u64) -> u64 {
        let slot = self.0.iter_mut().min().expect("a slot");
        monotask.queued_ns = queued_ns;
        monotask.queue_ns = slot.saturating_sub(queued_ns);
        monotask.service_ns = service_ns;
        *slot = monotask.ended_ns();
        *slot
    }
}

/// Returns the records of one query without header and end: `stages` scans, each of
/// `multitasks` multitasks with a read, a compute and, in the last stage, a write.
pub fn job(seed: u64, stages: u32, multitasks: u32) -> Vec<Record> {
    let mut random = Random(seed);
    let mut records = entities();
    let mut cores = Slots(vec![0; CORES as usize]);
    let mut disk = Slots(vec![0]);
    let mut begin = 1_234_567;
    for stage in 0..stages {
        records.push(Record::Stage(Stage {
            job: 0,
            name: format!("RepartitionExec, FilterExec, DataSourceExec {stage}"),
            attempt: 0,
            call_site: None,
            after: (0..stage).collect(),
            submitted_ns: begin,
            not_split: vec![],
            ..Default::default()
        }));
        let mut stage_end = begin;
        for partition in 0..multitasks {
            let multitask = stage * multitasks + partition;
            let admitted_ns = begin + random.below(50_000);
            records.push(Record::Multitask(Multitask {
                stage,
                partition,
                admitted_ns,
                memory_bytes: Some(random.between(8 << 20, 32 << 20)),
            }));
            let bytes = random.between(2 << 20, 9 << 20);
            let mut read = monotask(multitask, 1, Phase::Read);
            let wait = bytes * 20 + random.below(300_000);
            let read_end = disk.run(&mut read, admitted_ns + random.below(9_000), wait);
            read.bytes = Some(bytes);
            read.device_bytes = Some(bytes.next_multiple_of(4096) + 4096 * random.below(2));
            read.cpu_ns = Some(wait / 50 + random.below(20_000));
            records.push(Record::Monotask(read));

            let compute = compute(&mut random, multitask, bytes);
            let (mut compute, service) = (compute, compute.service_ns);
            let mut end = cores.run(&mut compute, read_end + random.below(5_000), service);
            records.push(Record::Monotask(compute));
            if stage + 1 == stages {
                let mut write = monotask(multitask, 1, Phase::Write);
                write.bytes = Some(bytes / 7);
                write.cpu_ns = Some(random.between(10_000, 90_000));
                end = disk.run(&mut write, end + random.below(4_000), bytes * 3);
                records.push(Record::Monotask(write));
            }
            stage_end = stage_end.max(end);
        }
        begin = stage_end + random.below(9_000);
        records.push(Record::StageEnd(StageEnd {
            stage,
            ended_ns: begin,
            outcome: Outcome::Ok,
            ..Default::default()
        }));
    }
    records.push(Record::JobEnd(JobEnd {
        job: 0,
        ended_ns: begin,
        outcome: Outcome::Ok,
        error: None,
        rows: Some(4),
        memory_high_water_bytes: Some(random.between(1 << 28, 1 << 30)),
        peak: Some(Peak {
            bytes: 3000,
            stage: 0,
            held_by: vec![HeldMemory { stage: 0, what: "exchange".into(), bytes: 2000 }],
        }),
        spill: Some(Spill {
            write_bytes: 900,
            read_bytes: 800,
            service_ns: 70,
            cached_bytes: 50,
            core_ns: 60,
            sufficient_memory_bytes: 5000,
        }),
    }));
    records
}

fn entities() -> Vec<Record> {
    let resource = |name: &str, kind: &str, concurrency| {
        Record::Resource(Resource {
            name: name.into(),
            kind: kind.into(),
            machine: 0,
            capacity: Some(f64::from(CORES)).filter(|_| kind == kind::CPU),
            capacity_from: Some("counted".into()).filter(|_| kind == kind::CPU),
            concurrency: Some(concurrency),
            link: None,
            ..Default::default()
        })
    };
    vec![
        Record::Machine(Machine { name: "box".into(), cores: Some(CORES), memory_bytes: Some(8 << 30) }),
        resource("cores", kind::CPU, CORES),
        resource("vda", kind::DISK, 8),
        Record::Job(Job {
            name: "SELECT l_returnflag, sum(l_quantity) FROM lineitem GROUP BY 1".into(),
            submitted_ns: 1_000_000,
            ..Default::default()
        }),
    ]
}

/// Returns a compute monotask with its parts, not yet scheduled.
fn compute(random: &mut Random, multitask: u32, bytes: u64) -> Monotask {
    let mut compute = monotask(multitask, 0, Phase::Compute);
    let decode = bytes / 2 + random.below(3_000_000);
    let operators = bytes / 3 + random.below(2_000_000);
    let encode = random.between(20_000, 900_000);
    compute.service_ns = decode + operators + encode + random.between(9_000, 99_000);
    compute.cpu_ns = Some(compute.service_ns - random.below(9_000));
    compute.decode_ns = Some(decode);
    compute.operator_ns = Some(operators);
    compute.encode_ns = Some(encode);
    compute.bytes = Some(bytes * 3 + random.below(4096));
    compute.cached_bytes = Some(random.below(2) * random.below(1 << 20));
    compute.rows = Some(random.between(1_000, 90_000));
    compute
}

pub fn header() -> Record {
    Record::Header(Header {
        format: format!("pellucid.trace/{FORMAT_MAJOR}.{FORMAT_MINOR}"),
        producer: "engine".into(),
        producer_version: "0.1.0".into(),
        origin_unix_ns: 1_700_000_000_000_000_000,
        labels: vec!["disk vda paced at 50 MB/s inside the engine".into()],
    })
}

pub fn end(records: u64) -> Record {
    Record::End(End { records, recording_ns: Some(12_345), writer_ns: Some(6_789) })
}

/// Returns `records` between a header and an end.
pub fn whole(mut records: Vec<Record>) -> Vec<Record> {
    records.insert(0, header());
    let count = records.len() as u64;
    records.push(end(count));
    records
}

pub fn lines(records: &[Record]) -> String {
    let line = |record| serde_json::to_string(record).expect("a line") + "\n";
    records.iter().map(line).collect()
}

pub fn frame(lines: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).expect("a checksum");
    std::io::Write::write_all(&mut encoder, lines).expect("memory");
    encoder.finish().expect("memory")
}

/// Returns `records` as blocks of `per_block` lines, each with its number of records.
pub fn blocks(records: &[Record], per_block: usize) -> Vec<(Vec<u8>, usize)> {
    let block = |chunk: &[Record]| (frame(lines(chunk).as_bytes()), chunk.len());
    records.chunks(per_block).map(block).collect()
}

/// Builds a trace from `records`, for comparison with traces that were read.
pub fn pushed(records: &[Record]) -> Trace {
    let mut trace = Trace::default();
    for record in records {
        trace.push(record.clone()).expect("a record that fits");
    }
    trace
}

/// Returns a trace without the details of reading, for comparison.
pub fn contents(mut trace: Trace) -> Trace {
    trace.truncated = None;
    trace.warnings.clear();
    trace.bytes = 0;
    trace
}

/// Returns the records of a complete, valid trace with every type of record and every field.
pub fn every_kind() -> Vec<Record> {
    let mut records = job(99, 2, 4);
    let ends = records.len() - 1;
    let resource = |name: &str, kind: &str, capacity, link| {
        Record::Resource(Resource {
            name: name.into(),
            kind: kind.into(),
            machine: 0,
            capacity: Some(capacity),
            capacity_from: Some("set".into()),
            concurrency: None,
            link,
            ..Default::default()
        })
    };
    let mut not_split = monotask(8, 0, Phase::Compute);
    (not_split.queued_ns, not_split.service_ns) = (2_000_000_000, 5_000);
    not_split.not_split_ns = Some(4_000);
    not_split.outcome = Outcome::Failed;
    let more = vec![
        resource("eth0", kind::NETWORK, 125e6, None),
        resource("s3://bucket", kind::STORE, 1.5e9, Some(2)),
        resource("slots", kind::SLOTS, 4.0, None),
        executor(),
        Record::Query(Query { name: "whole".into(), submitted_ns: 1, id: None, root: None }),
        Record::Query(Query { name: "save at q.py:3".into(), submitted_ns: 2, id: Some(7), root: Some(0) }),
        application(),
        Record::Stage(Stage {
            job: 0,
            name: "RecursiveQueryExec".into(),
            attempt: 1,
            call_site: Some("query.py:12".into()),
            after: vec![0],
            submitted_ns: 1_500_000_000,
            not_split: vec!["RecursiveQueryExec".into()],
            id: Some(31),
            tasks: Some(200),
        }),
        Record::Multitask(Multitask {
            stage: 2,
            partition: 0,
            admitted_ns: 2_000_000_000,
            memory_bytes: None,
        }),
        Record::Monotask(not_split),
        Record::Operator(Operator {
            stage: 0,
            operator: 0,
            name: "Scan lineitem.parquet".into(),
            detail: None,
            part: Part::Decode,
            inputs: vec![],
            from: None,
            cpu_ns: 21_000_000,
            max_cpu_ns: 6_000_000,
            batches: Some(28),
            rows: Some(229_376),
            bytes: Some(7_340_032),
            planned_rows: Some(1_500_000),
            peak_bytes: None,
            columns: vec![Column {
                name: "l_orderkey".into(),
                cpu_ns: 12_000_000,
                encoded_bytes: 900_000,
                decoded_bytes: 1_835_008,
            }],
            expressions: vec![Expression { text: "l_quantity + 1".into(), cpu_ns: 2_000_000, rows: 229_376 }],
        }),
        Record::Operator(Operator {
            stage: 0,
            operator: 1,
            name: "HashJoin Inner build".into(),
            detail: Some("on l_orderkey = o_orderkey".into()),
            part: Part::Operators,
            inputs: vec![0],
            from: Some(0),
            cpu_ns: 9_000_000,
            max_cpu_ns: 2_500_000,
            batches: None,
            rows: None,
            bytes: None,
            planned_rows: None,
            peak_bytes: Some(1 << 20),
            columns: vec![],
            expressions: vec![],
        }),
        Record::QueryOperator(QueryOperator {
            query: 0,
            operator: 0,
            name: "Scan parquet".into(),
            detail: None,
            inputs: Vec::new(),
            within: None,
            fragment: 0,
            stage: Some(0),
            metrics: Vec::new(),
        }),
        Record::QueryOperator(QueryOperator {
            query: 0,
            operator: 1,
            name: "WholeStageCodegen (1)".into(),
            detail: None,
            inputs: Vec::new(),
            within: None,
            fragment: 1,
            stage: None,
            metrics: vec![Metric { name: "duration".into(), unit: Unit::Ns, value: 5_000_000 }],
        }),
        Record::QueryOperator(QueryOperator {
            query: 0,
            operator: 2,
            name: "HashAggregate".into(),
            detail: Some("keys=[a#1]".into()),
            inputs: vec![0],
            within: Some(1),
            fragment: 1,
            stage: Some(2),
            metrics: vec![
                Metric { name: "number of output rows".into(), unit: Unit::Count, value: 7 },
                Metric { name: "peak memory".into(), unit: Unit::Bytes, value: 1 << 18 },
            ],
        }),
        Record::Stack(Stack {
            stage: 0,
            operator: Some(1),
            count: 3,
            frames: "serve;pellucid_engine::execute::Compute::run;[libc.so.6]".into(),
        }),
        Record::Stack(Stack { stage: 2, operator: None, count: 1, frames: Stack::LOST.into() }),
        Record::PipelinedTask(Box::new(pipelined_task())),
        Record::SampledTask(SampledTask {
            stage: 2,
            partition: 3,
            resource: 0,
            iteration: Some(17),
            started_ns: 1_900_000_000,
            service_ns: 41_234,
            weight: 128.5,
            bytes: Some(4_096),
        }),
        Record::StorageOperation(StorageOperation {
            resource: 3,
            operation: Operation::Read,
            started_ns: 1_800_000_000,
            first_byte_ns: Some(12_000_000),
            duration_ns: 41_000_000,
            bytes: Some(8 << 20),
            concurrency: Some(16),
            error: None,
            outcome: Outcome::Ok,
        }),
        Record::Exchange(Exchange {
            stage: 1,
            resource: 2,
            started_ns: 1_800_000_000,
            interval_ns: 100_000_000,
            messages: 12,
            bytes: 48 << 10,
        }),
        Record::StorageOperation(StorageOperation {
            resource: 3,
            operation: Operation::Commit,
            started_ns: 1_850_000_000,
            first_byte_ns: None,
            duration_ns: 9_000_000,
            bytes: None,
            concurrency: None,
            error: Some("503 SlowDown".into()),
            outcome: Outcome::Failed,
        }),
        Record::UtilizationSample(UtilizationSample {
            resource: 0,
            at_ns: 1_000_000_000,
            interval_ns: 500_000_000,
            busy_ns: Some(900_000_000),
            own_busy_ns: Some(850_000_000),
            read_bytes: None,
            write_bytes: None,
        }),
        Record::UtilizationSample(UtilizationSample {
            resource: 1,
            at_ns: 1_000_000_000,
            interval_ns: 500_000_000,
            busy_ns: None,
            own_busy_ns: None,
            read_bytes: Some(25_000_000),
            write_bytes: Some(0),
        }),
        Record::ConcurrencyChange(ConcurrencyChange {
            resource: 0,
            stage: 1,
            at_ns: 1_500_000_000,
            concurrency: 4,
            reason: Some("bytes per second grew".into()),
        }),
        Record::StageEnd(StageEnd {
            stage: 2,
            ended_ns: 2_100_000_000,
            outcome: Outcome::Failed,
            error: Some("Job aborted".into()),
        }),
        Record::QueryEnd(QueryEnd { query: 0, ended_ns: 9, outcome: Outcome::Ok, error: None }),
        Record::QueryEnd(QueryEnd {
            query: 1,
            ended_ns: 8,
            outcome: Outcome::Failed,
            error: Some("no such table".into()),
        }),
        Record::Job(Job { name: "COPY".into(), submitted_ns: 3, id: Some(12), query: Some(1) }),
        Record::JobEnd(JobEnd {
            job: 1,
            ended_ns: 5,
            outcome: Outcome::Cancelled,
            error: Some("cancelled by the user".into()),
            rows: None,
            memory_high_water_bytes: None,
            peak: None,
            spill: None,
        }),
    ];
    records.splice(ends..ends, more);
    whole(records)
}

fn executor() -> Record {
    Record::Resource(Resource {
        name: "executor 3".into(),
        kind: kind::SLOTS.into(),
        capacity: Some(4.0),
        capacity_from: Some("observed".into()),
        concurrency: Some(4),
        concurrency_min: Some(2),
        added_ns: Some(40),
        removed_ns: Some(3_000_000_000),
        removed_why: Some("Container killed by YARN".into()),
        ..Default::default()
    })
}

fn application() -> Record {
    Record::Application(Box::new(Application {
        engine: "Spark".into(),
        engine_version: Some("3.5.6".into()),
        name: Some("nightly report".into()),
        id: Some("application_1516285256255_0012".into()),
        attempt: Some("1".into()),
        user: Some("etl".into()),
        started_ns: Some(0),
        ended_ns: Some(4_000_000_000),
        properties: [("spark.executor.cores".into(), "4".into())].into(),
        events: [("SparkListenerTaskEnd".into(), 1)].into(),
    }))
}

pub fn pipelined_task() -> PipelinedTask {
    PipelinedTask {
        stage: 2,
        partition: 5,
        attempt: 1,
        resource: 4,
        launched_ns: 1_600_000_000,
        duration_ns: 900_000_000,
        id: Some(77),
        run_ns: Some(800_000_000),
        cpu_ns: Some(400_000_000),
        deserialize_cpu_ns: Some(9),
        result_serialize_ns: Some(12),
        getting_result_ns: Some(13),
        scan_ns: Some(350_000_000),
        commit_ns: Some(14),
        decode_ns: Some(15),
        queue_ns: Some(16),
        input_bytes: Some(128 << 20),
        input_records: Some(1_000_000),
        output_bytes: Some(5),
        output_records: Some(6),
        shuffle_remote_bytes: Some(1 << 20),
        shuffle_local_bytes: Some(2 << 20),
        shuffle_read_records: Some(14),
        shuffle_write_bytes: Some(3 << 20),
        shuffle_write_records: Some(15),
        spill_bytes: Some(4 << 20),
        memory_spill_bytes: Some(16 << 20),
        result_bytes: Some(1417),
        peak_memory_bytes: Some(32 << 20),
        blocked_network: Some(Blocked::MeasuredNs(100_000_000)),
        blocked_input: Some(Blocked::AtMostNs(300_000_000)),
        blocked_shuffle_read: Some(Blocked::AtMostNs(300_000_001)),
        blocked_shuffle_write: Some(Blocked::MeasuredNs(7)),
        blocked_spill: Some(Blocked::AtMostNs(300_000_002)),
        blocked_output: Some(Blocked::AtMostNs(8)),
        gc: Some(Blocked::MeasuredNs(9)),
        scheduler: Some(Blocked::MeasuredNs(10)),
        deserialize: Some(Blocked::MeasuredNs(11)),
        locality: Some(Locality::NoPreference),
        speculative: true,
        outcome: Outcome::Cancelled,
        failure: Some(Failure::Killed),
        error: Some("another attempt succeeded".into()),
    }
}
