//! Which tasks are recorded, and what a worker in a process of its own keeps of them until it tells its controller.
//!
//! Tasks are too many and too short to record each: of every stage each thread records one in so many, with the
//! number that it stands for. Where tasks are long (over 20 µs) every one is recorded, since that costs nothing then.
//! Counts are exact but for what was not recorded when a thread stopped: fewer than one sample's weight a stage and
//! thread; and for what a worker that was lost had not told.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use crate::cell::lock;
use crate::clock;
use crate::message::Traced;
use crate::plan::{BundleIx, Plan};
use crate::recording::Host;

/// Of short tasks, one in so many is recorded.
const SAMPLE: u32 = 256;

/// Tasks from this length on are all recorded.
const LONG_NS: u64 = 20_000;

/// A task that stands for others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub statement: u32,
    pub bundle: BundleIx,
    pub iteration: u64,
    /// Ticks of the clock of its process.
    pub begun: u64,
    pub service_ns: u64,
    pub weight: f64,
    pub bytes: u64,
}

/// What was sent for a statement, all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub statement: u32,
    pub messages: u64,
    pub bytes: u64,
}

/// Where samples go.
pub(crate) trait Samples: Sync {
    fn sample(&self, sample: Sample);
}

/// Samples a thread's tasks.
pub(crate) struct Sampler<'s> {
    to: &'s dyn Samples,
    /// By statement.
    counts: Vec<Count>,
    begun: Option<u64>,
}

/// How a thread samples a stage.
#[derive(Clone, Copy)]
struct Count {
    /// Tasks since the last sample.
    since: u32,
    every: u32,
    seen: u64,
}

impl<'s> Sampler<'s> {
    pub fn new(plan: &Plan, to: &'s dyn Samples) -> Self {
        Self { to, counts: vec![Count { since: 0, every: 1, seen: 0 }; plan.statements.len()], begun: None }
    }

    #[inline]
    pub fn before(&mut self, _: BundleIx, statement: u32) {
        let count = &mut self.counts[statement as usize];
        count.since += 1;
        if count.since >= count.every {
            self.begun = Some(clock::ticks());
        }
    }

    #[inline]
    pub fn after(&mut self, bundle: BundleIx, statement: u32, iteration: u64, bytes: impl FnOnce() -> u64) {
        if let Some(begun) = self.begun.take() {
            let service_ns = clock::nanoseconds(clock::ticks() - begun);
            let (weight, bytes) = (0.0, bytes());
            self.sample(Sample { statement, bundle, iteration, begun, service_ns, weight, bytes });
        }
    }

    #[cold]
    fn sample(&mut self, sample: Sample) {
        let count = &mut self.counts[sample.statement as usize];
        let weight = f64::from(std::mem::take(&mut count.since));
        count.seen += 1;
        // The first few all, so that a short job has some.
        count.every = if sample.service_ns >= LONG_NS || count.seen < 8 { 1 } else { SAMPLE };
        self.to.sample(Sample { weight, ..sample });
    }
}

/// What a worker has recorded since it last told its controller.
pub(crate) struct Kept {
    host: Host,
    threads: u32,
    begun: Instant,
    kept: Mutex<Keeping>,
}

#[derive(Default)]
struct Keeping {
    tasks: Vec<Sample>,
    /// By statement: messages and bytes.
    exchanged: BTreeMap<u32, (u64, u64)>,
    told_ns: u64,
}

impl Kept {
    pub fn new(threads: usize) -> Self {
        let (host, kept) = (Host::here(), Mutex::default());
        Self { host, threads: threads as u32, begun: Instant::now(), kept }
    }

    /// A message for a statement was sent.
    pub fn exchanged(&self, statement: u32, bytes: usize) {
        let mut kept = lock(&self.kept);
        let (messages, all) = kept.exchanged.entry(statement).or_default();
        *messages += 1;
        *all += bytes as u64;
    }

    /// All of it, which is told once.
    pub fn tell(&self) -> Traced {
        let mut kept = lock(&self.kept);
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        let told_ns = std::mem::replace(&mut kept.told_ns, now_ns);
        let ticks = clock::ticks();
        let exchanged = std::mem::take(&mut kept.exchanged);
        Traced {
            host: self.host.clone(),
            threads: self.threads,
            now_ns,
            interval_ns: now_ns - told_ns,
            tasks: std::mem::take(&mut kept.tasks)
                .into_iter()
                // Ticks mean nothing elsewhere: how long ago.
                .map(|task| {
                    (clock::nanoseconds(ticks.saturating_sub(task.begun)), Sample { begun: 0, ..task })
                })
                .collect(),
            exchanges: exchanged
                .into_iter()
                .map(|(statement, (messages, bytes))| Exchanged { statement, messages, bytes })
                .collect(),
        }
    }
}

impl Samples for Kept {
    fn sample(&self, sample: Sample) {
        lock(&self.kept).tasks.push(sample);
    }
}
