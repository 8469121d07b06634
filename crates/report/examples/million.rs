//! Generates a trace with a million monotasks, to test the page's size and speed:
//! `million FILE.trace [MONOTASKS]`.
//!
//! Four disks feed sixteen cores through two consecutive stages, with queues, skew and machine counters. The
//! trace is synthetic and deterministic.

use std::collections::BinaryHeap;
use std::{cmp::Reverse, path::PathBuf};

use pellucid_trace::{
    Job, JobEnd, Machine, Monotask, Multitask, Outcome, Phase, Record, Recorder, RecorderOptions, Resource,
    Stage, StageEnd, UtilizationSample, kind,
};

const CORES: u32 = 16;
const DISKS: u32 = 4;

/// A linear congruential generator with Knuth's MMIX constants.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// The time at which each slot of a resource becomes free.
struct Slots(BinaryHeap<Reverse<u64>>);

impl Slots {
    fn new(count: u32) -> Self {
        Slots((0..count).map(|_| Reverse(0)).collect())
    }

    /// Runs an activity that is ready at `ready_ns` and returns its start.
    fn run(&mut self, ready_ns: u64, service_ns: u64) -> u64 {
        let free = self.0.pop().map_or(0, |Reverse(at)| at);
        let start = ready_ns.max(free);
        self.0.push(Reverse(start + service_ns));
        start
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("usage: million FILE.trace [MONOTASKS]")?);
    let monotasks: u64 = arguments.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let recorder = Recorder::start(RecorderOptions {
        producer: "engine".into(),
        producer_version: "0.1.0".into(),
        labels: vec![],
        path: Some(path),
        keep: false,
    })?;
    recorder.machine(Machine { name: "box".into(), cores: Some(CORES), memory_bytes: None });
    let resource = |name: String, kind: &str, capacity: f64, concurrency: u32| Resource {
        name,
        kind: kind.into(),
        capacity: Some(capacity),
        capacity_from: Some("set".into()),
        concurrency: Some(concurrency),
        ..Resource::default()
    };
    recorder.resource(resource("cores".into(), kind::CPU, CORES.into(), CORES));
    for disk in 0..DISKS {
        recorder.resource(resource(format!("nvme{disk}n1"), kind::DISK, 800e6, 2));
    }
    let name = "SELECT l_returnflag, l_linestatus, sum(l_quantity), avg(l_extendedprice), count(*)\nFROM lineitem\nWHERE l_shipdate <= DATE '1998-09-02'\nGROUP BY l_returnflag, l_linestatus\nORDER BY l_returnflag, l_linestatus";
    recorder.job(Job { name: name.into(), submitted_ns: 1_000_000, ..Job::default() });
    let mut random = Random(42);
    let mut at = 2_000_000;
    for (ix, name) in
        ["Repartition, Aggregate Partial, Filter, Scan lineitem …", "Sort, Aggregate FinalPartitioned"]
            .into_iter()
            .enumerate()
    {
        let stage = Stage { name: name.into(), submitted_ns: at, ..Stage::default() };
        recorder.stage(Stage { after: (0..ix as u32).collect(), ..stage });
        at = stage_of(&recorder, &mut random, ix as u32, monotasks * [9, 1][ix] / 20, at);
        let end = StageEnd { stage: ix as u32, ended_ns: at, ..StageEnd::default() };
        recorder.record(Record::StageEnd(end));
    }
    for second in 0..at / 100_000_000 {
        let (interval_ns, busy) = (100_000_000, (9 + random.below(5)) * 100_000_000);
        recorder.record(Record::UtilizationSample(UtilizationSample {
            resource: 0,
            at_ns: (second + 1) * interval_ns,
            interval_ns,
            busy_ns: Some(busy),
            own_busy_ns: Some(busy * 9 / 10),
            read_bytes: None,
            write_bytes: None,
        }));
    }
    recorder.record(Record::JobEnd(JobEnd {
        job: 0,
        ended_ns: at + 500_000,
        outcome: Outcome::Ok,
        error: None,
        rows: Some(4),
        memory_high_water_bytes: Some(3_200_000_000),
        peak: None,
        spill: None,
    }));
    recorder.finish()?;
    Ok(())
}

/// Records a stage whose multitasks are a read and a compute. Returns the end of the last one.
fn stage_of(recorder: &Recorder, random: &mut Random, stage: u32, multitasks: u64, from_ns: u64) -> u64 {
    let mut cores = Slots::new(CORES);
    let mut disks: Vec<Slots> = (0..DISKS).map(|_| Slots::new(2)).collect();
    let mut admitted: BinaryHeap<Reverse<u64>> = (0..64).map(|_| Reverse(from_ns)).collect();
    let mut last = from_ns;
    for partition in 0..multitasks {
        let admitted_ns = admitted.pop().map_or(from_ns, |Reverse(at)| at);
        let multitask =
            Multitask { stage, partition: partition as u32, admitted_ns, memory_bytes: Some(1 << 20) };
        let multitask = recorder.multitask(multitask);
        let disk = random.below(u64::from(DISKS));
        let bytes = 60_000 + random.below(80_000);
        let read_ns = bytes * 5 / 2 + random.below(30_000);
        let started = disks[disk as usize].run(admitted_ns, read_ns);
        let read = Monotask {
            multitask,
            resource: 1 + disk as u32,
            phase: Phase::Read,
            queued_ns: admitted_ns,
            queue_ns: started - admitted_ns,
            service_ns: read_ns,
            bytes: Some(bytes),
            device_bytes: Some(bytes),
            cached_bytes: None,
            cpu_ns: None,
            decode_ns: None,
            operator_ns: None,
            encode_ns: None,
            not_split_ns: None,
            rows: None,
            outcome: Outcome::Ok,
        };
        recorder.monotask(read);
        let ready = started + read_ns;
        // One in 2,000 takes ten times as long.
        let compute_ns = (bytes * 4 + random.below(100_000)) * if random.below(2000) == 0 { 10 } else { 1 };
        let started = cores.run(ready, compute_ns);
        recorder.monotask(Monotask {
            resource: 0,
            phase: Phase::Compute,
            queued_ns: ready,
            queue_ns: started - ready,
            service_ns: compute_ns,
            device_bytes: None,
            cached_bytes: Some(0),
            decode_ns: Some(compute_ns / 2),
            operator_ns: Some(compute_ns / 3),
            encode_ns: Some(compute_ns / 8),
            not_split_ns: Some(0),
            rows: Some(bytes / 100),
            ..read
        });
        last = last.max(started + compute_ns);
        admitted.push(Reverse(started + compute_ns));
    }
    last
}
