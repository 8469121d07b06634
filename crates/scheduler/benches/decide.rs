//! Measures the cost of a decision with 10,000 queued monotasks, which must be at most 1 µs.
//!
//! A step is a driver's work for one monotask: it reports a completion, then takes decisions until there
//! are none. Multitasks have 400 monotasks; each one that ends is replaced, so that the queues stay full. A
//! step comprises at least two decisions (a start, and the final `None`) and a share of planning, so its
//! time is an upper bound for a decision.

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pellucid_scheduler::*;

const QUEUED: usize = 10_000;
const MULTITASKS: u64 = 60;
const MONOTASKS: u64 = 400;

/// A scheduler with many queued monotasks, and its running monotasks.
struct Machine {
    scheduler: Scheduler,
    jobs: Vec<JobId>,
    running: VecDeque<MonotaskId>,
    now: Nanos,
    submitted: u64,
    admitted: u64,
}

impl Machine {
    fn new(jobs: u64, multitasks_at_once: Option<u32>, memory_bytes: Option<u64>) -> Self {
        let mut scheduler = Scheduler::new(Config { memory_bytes });
        let (min, max, gain) = (2, 8, controller::GAIN);
        let flash = Concurrency::Adaptive { min, max, gain };
        for concurrency in [Concurrency::Fixed(48), flash, Concurrency::Fixed(16)] {
            scheduler.add_resource(ResourceSpec { concurrency, multitasks_at_once });
        }
        let jobs = (0..jobs).map(|_| scheduler.add_job(0)).collect();
        let running = VecDeque::new();
        let mut machine = Machine { scheduler, jobs, running, now: 0, submitted: 0, admitted: 0 };
        for _ in 0..MULTITASKS {
            machine.submit();
        }
        machine.take();
        let queued: usize = (0..3).map(|r| machine.scheduler.queued(ResourceId(r))).sum();
        assert!(queued >= QUEUED, "{queued} queued");
        machine
    }

    fn submit(&mut self) {
        let job = self.jobs[self.submitted as usize % self.jobs.len()];
        self.submitted += 1;
        self.scheduler.submit(self.now, MultitaskSpec { job, stage: 0, memory_bytes: 1 });
    }

    /// Plans a multitask. The first multitasks have different sizes, so that they do not end together.
    fn plan(&mut self) -> Vec<MonotaskSpec> {
        let (cores, flash, link) = (ResourceId(0), ResourceId(1), ResourceId(2));
        let kinds = [
            (cores, Phase::Compute),
            (flash, Phase::Read),
            (link, Phase::Fetch),
            (cores, Phase::Compute),
            (flash, Phase::Write),
        ];
        self.admitted += 1;
        let size = MONOTASKS * self.admitted.min(MULTITASKS) / MULTITASKS;
        let monotask = |n: u64| {
            let (resource, phase) = kinds[n as usize % kinds.len()];
            MonotaskSpec { resource, phase, after: Vec::new(), bytes: 1 }
        };
        (0..size).map(monotask).collect()
    }

    /// Takes decisions until there are none.
    fn take(&mut self) {
        while let Some(decision) = self.scheduler.next(self.now) {
            match black_box(decision) {
                Decision::Admit(id) => {
                    let monotasks = self.plan();
                    self.scheduler.expand(self.now, id, monotasks).expect("a sound plan");
                }
                Decision::Start { monotask, .. } => self.running.push_back(monotask),
                Decision::Ended { .. } => self.submit(),
            }
        }
    }

    fn step(&mut self) {
        let Some(monotask) = self.running.pop_front() else {
            return;
        };
        self.now += 10_000;
        let completion = Completion { bytes: 1, ..Completion::default() };
        self.scheduler.complete(self.now, monotask, completion).expect("it ran");
        self.take();
    }
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("complete_and_start_with_10000_queued");
    group.throughput(Throughput::Elements(1));
    let cases = [
        ("one_job", 1, None, None),
        ("sixty_jobs", 60, None, None),
        ("four_fetch_at_once", 6, Some(4), None),
        ("memory_short", 6, None, Some(61)),
    ];
    for (name, jobs, multitasks_at_once, memory_bytes) in cases {
        let mut machine = Machine::new(jobs, multitasks_at_once, memory_bytes);
        group.bench_function(name, |bencher| bencher.iter(|| machine.step()));
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
