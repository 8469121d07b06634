//! Sampling of tasks, and the buffer of samples in a worker's process.
//!
//! Tasks are too many and too short to record each. Each thread records one of every [`SAMPLE_INTERVAL`]
//! tasks of a stage, with the number of tasks that it stands for. Tasks of 20 µs or more are all recorded,
//! since their overhead is negligible. Counts are exact except for tasks after a thread's last sample (fewer
//! than one sample's weight per stage and thread) and samples that a lost worker had not sent.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use crate::clock;
use crate::dataflow::index::{BundleIx, StatementIx, Table};
use crate::dataflow::plan::Plan;
use crate::protocol::records::{Exchanged, Host, Sample, TraceBatch};
use crate::sync::lock;

/// Number of short tasks per recorded sample.
const SAMPLE_INTERVAL: u32 = 256;

/// Duration from which on every task is recorded.
const LONG_TASK_NS: u64 = 20_000;

/// A sink for samples.
pub(crate) trait Samples: Sync {
    fn sample(&self, sample: Sample);
}

/// A sampler of one thread's tasks.
pub(crate) struct Sampler<'s> {
    to: &'s dyn Samples,
    /// By statement.
    counts: Table<StatementIx, StageCount>,
    start_ticks: Option<u64>,
}

/// The state of sampling for one stage.
#[derive(Clone, Copy)]
struct StageCount {
    /// Tasks since the last sample.
    since: u32,
    every: u32,
    seen: u64,
}

impl<'s> Sampler<'s> {
    pub fn new(plan: &Plan, to: &'s dyn Samples) -> Self {
        Self {
            to,
            counts: plan.statements.iter().map(|_| StageCount { since: 0, every: 1, seen: 0 }).collect(),
            start_ticks: None,
        }
    }

    #[inline]
    pub fn before(&mut self, _: BundleIx, statement: StatementIx) {
        let count = &mut self.counts[statement];
        count.since += 1;
        if count.since >= count.every {
            self.start_ticks = Some(clock::ticks());
        }
    }

    #[inline]
    pub fn after(
        &mut self,
        bundle: BundleIx,
        statement: StatementIx,
        iteration: u64,
        bytes: impl FnOnce() -> u64,
    ) {
        if let Some(start_ticks) = self.start_ticks.take() {
            let service_ns = clock::nanoseconds(clock::ticks() - start_ticks);
            let (weight, bytes) = (0.0, bytes());
            self.sample(Sample { statement, bundle, iteration, start_ticks, service_ns, weight, bytes });
        }
    }

    #[cold]
    fn sample(&mut self, sample: Sample) {
        let count = &mut self.counts[sample.statement];
        let weight = f64::from(std::mem::take(&mut count.since));
        count.seen += 1;
        // Record the first few tasks of a stage, so that short jobs have samples.
        count.every = if sample.service_ns >= LONG_TASK_NS || count.seen < 8 { 1 } else { SAMPLE_INTERVAL };
        self.to.sample(Sample { weight, ..sample });
    }
}

/// A buffer of the samples recorded since a worker last sent them to its controller.
pub(crate) struct SampleBuffer {
    host: Host,
    threads: u32,
    origin: Instant,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    tasks: Vec<Sample>,
    /// By statement: messages and bytes.
    exchanged: BTreeMap<StatementIx, (u64, u64)>,
    drained_ns: u64,
}

impl SampleBuffer {
    pub fn new(threads: usize) -> Self {
        let (host, pending) = (Host::here(), Mutex::default());
        Self { host, threads: threads as u32, origin: Instant::now(), pending }
    }

    /// Counts a message sent for a statement.
    pub fn exchanged(&self, statement: StatementIx, bytes: usize) {
        let mut pending = lock(&self.pending);
        let (messages, all) = pending.exchanged.entry(statement).or_default();
        *messages += 1;
        *all += bytes as u64;
    }

    /// Removes all samples and counts, as a batch for the controller.
    pub fn drain(&self) -> TraceBatch {
        let mut pending = lock(&self.pending);
        let now_ns = self.origin.elapsed().as_nanos() as u64;
        let drained_ns = std::mem::replace(&mut pending.drained_ns, now_ns);
        let ticks = clock::ticks();
        let exchanged = std::mem::take(&mut pending.exchanged);
        TraceBatch {
            host: self.host.clone(),
            threads: self.threads,
            now_ns,
            interval_ns: now_ns - drained_ns,
            tasks: std::mem::take(&mut pending.tasks)
                .into_iter()
                // Ticks are only valid in this process, so send the age instead.
                .map(|task| {
                    (
                        clock::nanoseconds(ticks.saturating_sub(task.start_ticks)),
                        Sample { start_ticks: 0, ..task },
                    )
                })
                .collect(),
            exchanges: exchanged
                .into_iter()
                .map(|(statement, (messages, bytes))| Exchanged { statement, messages, bytes })
                .collect(),
        }
    }
}

impl Samples for SampleBuffer {
    fn sample(&self, sample: Sample) {
        lock(&self.pending).tasks.push(sample);
    }
}
