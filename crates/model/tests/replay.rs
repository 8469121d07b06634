//! Random jobs, run by the scheduler with known service times: the trace of one run predicts a run on
//! other hardware to the microsecond.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pellucid_model::whatif::{Changes, WhatIfModel};
use pellucid_scheduler as scheduler;
use pellucid_scheduler::{
    Completion, Concurrency, Decision, MonotaskId, MonotaskSpec, MultitaskId, ResourceId, ResourceSpec,
    Scheduler,
};
use pellucid_trace as trace;
use pellucid_trace::{Outcome, Trace, kind};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A stage: whether it comes after the previous one, and each multitask's bytes and compute time.
#[derive(Debug, Clone)]
struct Stage {
    after: bool,
    tasks: Vec<(u64, u64)>,
}

/// The hardware of a run: number of cores, and nanoseconds per byte of the disk.
#[derive(Debug, Clone, Copy)]
struct Hardware {
    cores: u32,
    byte_ns: u64,
}

fn jobs() -> impl Strategy<Value = Vec<Stage>> {
    let task = (prop_oneof![Just(0_u64), 1..400_000_u64], 1..3_000_000_u64);
    let stage = (any::<bool>(), prop::collection::vec(task, 1..12));
    let stage = stage.prop_map(|(after, tasks)| Stage { after, tasks });
    prop::collection::vec(stage, 1..5)
}

/// A running job. Its disk serves one monotask at a time, so every service time is known in advance.
struct Run<'a> {
    stages: &'a [Stage],
    hardware: Hardware,
    scheduler: Scheduler,
    job: scheduler::JobId,
    trace: Trace,
    /// By slot: stage, index in it, index in the trace.
    tasks: Vec<(usize, usize, u32)>,
    left: Vec<usize>,
    events: BinaryHeap<Reverse<(u64, u64, MonotaskId)>>,
    count: u64,
    /// Queueing time of each monotask, by multitask of the trace and index.
    queued: Vec<Vec<u64>>,
    ended: VecDeque<usize>,
}

fn run(stages: &[Stage], hardware: Hardware) -> Trace {
    let mut scheduler = Scheduler::new(scheduler::Config::default());
    for n in [hardware.cores, 1] {
        scheduler.add_resource(ResourceSpec { concurrency: Concurrency::Fixed(n), multitasks_at_once: None });
    }
    let job = scheduler.add_job(0);
    let mut run = Run {
        stages,
        hardware,
        scheduler,
        job,
        trace: empty(hardware),
        tasks: Vec::new(),
        left: stages.iter().map(|s| s.tasks.len()).collect(),
        events: BinaryHeap::new(),
        count: 0,
        queued: Vec::new(),
        ended: VecDeque::new(),
    };
    // Registered in order, as the indices in `after` require.
    for (ix, stage) in stages.iter().enumerate() {
        let after = if ix > 0 && stage.after { vec![ix as u32 - 1] } else { vec![] };
        run.trace.stages.push(trace::Stage { name: "s".into(), after, ..Default::default() });
    }
    for ix in (0..stages.len()).filter(|ix| *ix == 0 || !stages[*ix].after) {
        run.submit(ix, 0);
    }
    run.decide(0);
    let mut last = 0;
    while let Some(Reverse((now, _, id))) = run.events.pop() {
        last = now;
        run.end(id, now);
    }
    run.trace.job_ends.push(trace::JobEnd {
        job: 0,
        ended_ns: last,
        outcome: Outcome::Ok,
        error: None,
        rows: None,
        memory_high_water_bytes: None,
        peak: None,
        spill: None,
    });
    run.trace
}

fn empty(hardware: Hardware) -> Trace {
    let mut trace = Trace::default();
    trace.machines.push(trace::Machine { name: "m".into(), cores: Some(hardware.cores), memory_bytes: None });
    let resource = |name: &str, kind: &str, capacity: f64, concurrency: u32| trace::Resource {
        name: name.into(),
        kind: kind.into(),
        capacity: Some(capacity),
        capacity_from: Some("set".into()),
        concurrency: Some(concurrency),
        ..Default::default()
    };
    let cores = f64::from(hardware.cores);
    trace.resources.push(resource("cores", kind::CPU, cores, hardware.cores));
    trace.resources.push(resource("sda", kind::DISK, 1e9 / hardware.byte_ns as f64, 1));
    trace.jobs.push(trace::Job { name: "random".into(), submitted_ns: 0, ..Default::default() });
    trace
}

impl Run<'_> {
    fn submit(&mut self, stage: usize, now: u64) {
        self.trace.stages[stage].submitted_ns = now;
        for place in 0..self.stages[stage].tasks.len() {
            let spec = scheduler::MultitaskSpec { job: self.job, stage: stage as u32, memory_bytes: 0 };
            let id = self.scheduler.submit(now, spec);
            self.tasks.resize(self.tasks.len().max(id.slot() + 1), (0, 0, 0));
            self.tasks[id.slot()] = (stage, place, 0);
        }
    }

    fn decide(&mut self, now: u64) {
        loop {
            while let Some(decision) = self.scheduler.next(now) {
                match decision {
                    Decision::Admit(id) => self.expand(id, now),
                    Decision::Start { monotask, resource } => self.start(monotask, resource, now),
                    Decision::Ended { multitask, .. } => {
                        let (stage, ..) = self.tasks[multitask.slot()];
                        self.left[stage] -= 1;
                        if self.left[stage] == 0 {
                            self.ended.push_back(stage);
                        }
                    }
                }
            }
            let Some(stage) = self.ended.pop_front() else { break };
            if self.stages.get(stage + 1).is_some_and(|next| next.after) {
                self.submit(stage + 1, now);
            }
        }
    }

    fn expand(&mut self, id: MultitaskId, now: u64) {
        let (stage, place, ix) = &mut self.tasks[id.slot()];
        *ix = self.trace.multitasks.len() as u32;
        let multitask =
            trace::Multitask { stage: *stage as u32, partition: 0, admitted_ns: now, memory_bytes: None };
        self.trace.multitasks.push(multitask);
        let (bytes, _) = self.stages[*stage].tasks[*place];
        let read = bytes > 0;
        let spec =
            |resource, phase, after| MonotaskSpec { resource: ResourceId(resource), phase, after, bytes: 0 };
        let mut specs = Vec::new();
        if read {
            specs.push(spec(1, scheduler::Phase::Read, vec![]));
        }
        specs.push(spec(0, scheduler::Phase::Compute, if read { vec![0] } else { vec![] }));
        self.queued.push(vec![now; specs.len()]);
        self.scheduler.expand(now, id, specs).expect("well formed");
    }

    fn start(&mut self, id: MonotaskId, resource: ResourceId, now: u64) {
        let (stage, place, ix) = self.tasks[id.multitask.slot()];
        let (bytes, compute_ns) = self.stages[stage].tasks[place];
        let (phase, service_ns, bytes) = match resource.0 {
            1 => (trace::Phase::Read, bytes * self.hardware.byte_ns, Some(bytes)),
            _ => (trace::Phase::Compute, compute_ns, None),
        };
        let queued_ns = self.queued[ix as usize][id.index as usize];
        self.trace.monotasks.push(trace::Monotask {
            multitask: ix,
            resource: resource.0,
            phase,
            queued_ns,
            queue_ns: now - queued_ns,
            service_ns,
            bytes,
            device_bytes: None,
            cached_bytes: None,
            cpu_ns: None,
            decode_ns: None,
            operator_ns: None,
            encode_ns: None,
            not_split_ns: None,
            rows: None,
            outcome: Outcome::Ok,
        });
        self.count += 1;
        self.events.push(Reverse((now + service_ns, self.count, id)));
    }

    fn end(&mut self, id: MonotaskId, now: u64) {
        let (.., ix) = self.tasks[id.multitask.slot()];
        if let Some(next) = self.queued[ix as usize].get_mut(id.index as usize + 1) {
            *next = now;
        }
        self.scheduler.complete(now, id, Completion::default()).expect("it runs");
        self.decide(now);
    }
}

/// Generates ordinary values, and those at the ends of the range.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![0..5_000_000_u64, Just(0), Just(u64::MAX), Just(u64::MAX / 2), any::<u64>()]
}

fn ended_ms(trace: &Trace) -> f64 {
    trace.job_ends[0].ended_ns as f64 / 1e6
}

fn no_rate(_: &str) -> Result<u64, String> {
    Err("only relative rates are asked for here".into())
}

proptest! {
    // The cases are the same in every run; PROPTEST_RNG_SEED and PROPTEST_CASES change them.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: std::env::var("PROPTEST_RNG_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(RngSeed::Fixed(61)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_run_predicts_another(stages in jobs(), cores in 1..4_u32, other in 1..4_u32, byte_ns in 1..20_u64) {
        let trace = run(&stages, Hardware { cores, byte_ns: 4 * byte_ns });
        let model = WhatIfModel::of(&trace, &[]).expect("a whole trace");
        let simulated = model.baseline().simulated_ms.expect("a simulation");
        prop_assert!((simulated - ended_ms(&trace)).abs() < 1e-3, "{} is replayed as {}", ended_ms(&trace), simulated);
        for (rate, factor) in [("x1", 4), ("x2", 2), ("x4", 1), ("x0.5", 8)] {
            let measured = ended_ms(&run(&stages, Hardware { cores: other, byte_ns: factor * byte_ns }));
            let settings = [format!("disk.rate={rate}"), format!("cores={other}")];
            let changes = Changes::parse(&settings, no_rate).expect("settings");
            let predicted = model.predict(&changes).expect("an answer").prediction.simulated_ms;
            let predicted = predicted.expect("a simulation");
            prop_assert!((predicted - measured).abs() < 1e-3 * measured, "{measured} is predicted as {predicted}");
        }
    }

    /// Contradictory times and sizes give an answer or an error, never a panic or a number that is not
    /// finite.
    #[test]
    fn damaged_times_give_finite_numbers(stages in jobs(), damage in prop::collection::vec((any::<prop::sample::Index>(), 0..6_u8, edgy()), 1..6)) {
        let mut trace = run(&stages, Hardware { cores: 2, byte_ns: 5 });
        for (index, field, value) in damage {
            let at = index.index(trace.monotasks.len());
            let m = &mut trace.monotasks[at];
            match field {
                0 => m.queued_ns = value,
                1 => m.queue_ns = value,
                2 => m.service_ns = value,
                3 => m.bytes = Some(value),
                4 => m.decode_ns = Some(value),
                _ => trace.multitasks[at % stages[0].tasks.len()].admitted_ns = value,
            }
        }
        if let Ok(model) = WhatIfModel::of(&trace, &[]) {
            for single in model.singles() {
                let p = &single.prediction;
                prop_assert!([p.duration_ms, p.low_ms, p.high_ms].iter().all(|ms| ms.is_finite()), "{single:?}");
            }
        }
    }
}
