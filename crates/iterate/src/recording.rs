//! Traces of iterative jobs.
//!
//! A job's stages are its statements, each with what it follows. Tasks are too many and too short to
//! record each: of every stage each thread records one in so many, with the number that it stands for.
//! Where tasks are long (over 20 µs) every one is recorded, since that costs nothing then. Counts are
//! exact but for what was not recorded when a thread stopped: fewer than one sample's weight a stage
//! and thread. A task's bytes are the memory of the partitions that its stage names: what it may have touched.
//!
//! The memory's bandwidth is a resource for each number of threads that it was measured with: what as many
//! threads as the job's can read is a limit of the job, and the others say what more or fewer could.

use pellucid_trace::kind;
use pellucid_trace::record::{Job, JobEnd, Machine, Outcome, Record, Resource, SampledTask, Stage, StageEnd};
use pellucid_trace::{Recorder, record};

use crate::clock;
use crate::error::JobError;
use crate::kernels::bandwidth::Bandwidth;
use crate::plan::{BundleIx, Kind, Plan};

/// Of short tasks, one in so many is recorded.
const SAMPLE: u32 = 256;

/// Tasks from this length on are all recorded.
const LONG_NS: u64 = 20_000;

/// A job's trace while it is recorded.
pub(crate) struct Recording<'p> {
    plan: &'p Plan,
    recorder: Recorder,
    job: record::JobIx,
    cores: record::ResourceIx,
    /// By statement.
    stages: Vec<record::StageIx>,
    /// Trace time that ticks count from.
    origin_ns: u64,
    origin_ticks: u64,
}

impl<'p> Recording<'p> {
    /// Registers a job with its stages.
    pub fn begin(plan: &'p Plan, recorder: Recorder, threads: usize, memory: &[Bandwidth]) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let machine = Machine { name: host(), cores: Some(cores), memory_bytes: None };
        let machine = recorder.machine(machine);
        let capacity = threads.min(cores as usize) as f64;
        let cores = recorder.resource(Resource {
            name: "cores".into(),
            kind: kind::CPU.into(),
            machine,
            capacity: Some(capacity),
            capacity_from: Some("counted".into()),
            concurrency: Some(threads as u32),
            ..Resource::default()
        });
        for Bandwidth { threads, bytes_per_s } in memory {
            recorder.resource(Resource {
                name: format!("memory, {threads} at once"),
                kind: kind::MEMORY_BANDWIDTH.into(),
                machine,
                capacity: Some(*bytes_per_s),
                capacity_from: Some("probed".into()),
                concurrency: Some(*threads as u32),
                ..Resource::default()
            });
        }
        let now = recorder.now_ns();
        let job = recorder.job(Job { name: plan.name.clone(), submitted_ns: now, ..Job::default() });
        let mut stages = Vec::new();
        for (at, statement) in plan.statements.iter().enumerate() {
            let name = statement.name.clone();
            let mut stage = Stage { job, name, submitted_ns: now, ..Stage::default() };
            stage.tasks = match statement.kind {
                Kind::Signal { .. } | Kind::End | Kind::Jump | Kind::Observe(_) => None,
                _ => Some(plan.groups[statement.group as usize].partitions),
            };
            let before = (0..at).rev().find(|&before| plan.statements[before].next as usize == at);
            stage.after = before.map(|before| stages[before]).into_iter().collect();
            stages.push(recorder.stage(stage));
        }
        Self { plan, job, cores, stages, origin_ns: now, origin_ticks: clock::ticks(), recorder }
    }

    /// What a thread records with.
    pub fn thread(&self) -> TaskRecorder<'_> {
        TaskRecorder {
            recording: self,
            counts: vec![Count { since: 0, every: 1, seen: 0 }; self.plan.statements.len()],
            begun: None,
        }
    }

    /// Ends the job's records.
    pub fn end(self, error: Option<&JobError>) {
        let ended_ns = self.recorder.now_ns();
        let outcome = match error {
            None => Outcome::Ok,
            Some(JobError::Cancelled) => Outcome::Cancelled,
            Some(_) => Outcome::Failed,
        };
        for stage in self.stages {
            self.recorder.record(Record::StageEnd(StageEnd { stage, ended_ns, outcome, error: None }));
        }
        self.recorder.record(Record::JobEnd(JobEnd {
            job: self.job,
            ended_ns,
            outcome,
            error: error.map(ToString::to_string),
            rows: None,
            memory_high_water_bytes: None,
        }));
    }
}

/// How a thread samples a stage.
#[derive(Clone, Copy)]
struct Count {
    /// Tasks since the last sample.
    since: u32,
    every: u32,
    seen: u64,
}

/// Records a thread's tasks.
pub(crate) struct TaskRecorder<'r> {
    recording: &'r Recording<'r>,
    /// By statement.
    counts: Vec<Count>,
    begun: Option<u64>,
}

impl TaskRecorder<'_> {
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
            self.sample(bundle, statement, iteration, begun, service_ns, bytes());
        }
    }

    #[cold]
    fn sample(
        &mut self,
        bundle: BundleIx,
        statement: u32,
        iteration: u64,
        begun: u64,
        service_ns: u64,
        bytes: u64,
    ) {
        let count = &mut self.counts[statement as usize];
        let weight = f64::from(std::mem::take(&mut count.since));
        count.seen += 1;
        // The first few all, so that a short job has some.
        count.every = if service_ns >= LONG_NS || count.seen < 8 { 1 } else { SAMPLE };
        let recording = self.recording;
        let started = clock::nanoseconds(begun.saturating_sub(recording.origin_ticks));
        recording.recorder.record(Record::SampledTask(SampledTask {
            stage: recording.stages[statement as usize],
            partition: recording.plan.locate(bundle).1,
            resource: recording.cores,
            iteration: Some(iteration),
            started_ns: recording.origin_ns + started,
            service_ns,
            weight,
            bytes: Some(bytes),
        }));
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "this machine".into() } else { name.into() }
}
