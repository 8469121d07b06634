//! Traces of iterative jobs.
//!
//! A job's stages are its statements, each with its predecessor. Tasks are sampled ([`crate::tracing::sampling`]); a
//! task's bytes are the size of the partitions that its stage names, an upper bound of the bytes accessed.
//! Each machine has a resource for the cores that its threads share, and one for its link if data went over it.
//!
//! Memory bandwidth is a resource for each number of threads that it was measured with. The rate for the
//! job's number of threads is a limit of the job; the others predict the effect of more or fewer threads.

use std::sync::Arc;

use pellucid_trace::kind;
use pellucid_trace::record::{
    Exchange, Job, JobEnd, Machine, MachineIx, Outcome, Record, Resource, ResourceIx, SampledTask, Stage,
    StageEnd, StageIx,
};
use pellucid_trace::{Recorder, record};

use crate::clock;
use crate::dataflow::index::{StatementIx, Table};
use crate::dataflow::plan::{Kind, Plan};
use crate::error::JobError;
use crate::protocol::records::{Exchanged, Host, Sample};
use crate::tracing::bandwidth::Bandwidth;
use crate::tracing::sampling::Samples;

impl Host {
    /// Returns this machine.
    pub fn here() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = if name.trim().is_empty() { "this machine" } else { name.trim() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Self { name: name.into(), cores }
    }
}

/// A trace of a job that is being recorded.
pub(crate) struct Recording {
    plan: Arc<Plan>,
    pub recorder: Recorder,
    job: record::JobIx,
    /// By statement.
    stages: Table<StatementIx, StageIx>,
    start_ns: u64,
}

impl Recording {
    /// Registers a job and its stages.
    pub fn begin(plan: &Arc<Plan>, recorder: Recorder) -> Self {
        let now = recorder.now_ns();
        let job = recorder.job(Job { name: plan.name.clone(), submitted_ns: now, ..Job::default() });
        let mut stages: Table<StatementIx, StageIx> = Table::new();
        for (at, statement) in plan.statements.entries() {
            let name = statement.name.clone();
            let mut stage = Stage { job, name, submitted_ns: now, ..Stage::default() };
            stage.tasks = match statement.kind {
                Kind::Signal { .. } | Kind::End | Kind::Jump | Kind::Observe(_) => None,
                _ => Some(plan.groups[statement.group].partitions),
            };
            let before = stages.indexes().rev().find(|&before| plan.statements[before].next == at);
            stage.after = before.map(|before| stages[before]).into_iter().collect();
            stages.push(recorder.stage(stage));
        }
        Self { plan: plan.clone(), recorder, job, stages, start_ns: now }
    }

    /// Registers a machine and the cores that `threads` threads of the job share.
    pub fn machine(&self, host: &Host, threads: u32) -> (MachineIx, ResourceIx) {
        let machine = Machine { name: host.name.clone(), cores: Some(host.cores), memory_bytes: None };
        let machine = self.recorder.machine(machine);
        let cores = self.recorder.resource(Resource {
            name: "cores".into(),
            kind: kind::CPU.into(),
            machine,
            capacity: Some(f64::from(threads.min(host.cores))),
            capacity_from: Some("counted".into()),
            concurrency: Some(threads),
            ..Resource::default()
        });
        (machine, cores)
    }

    /// Registers the network link of a machine, whose rate is not measured.
    pub fn link(&self, machine: MachineIx) -> ResourceIx {
        self.recorder.resource(Resource {
            name: "link".into(),
            kind: kind::NETWORK.into(),
            machine,
            ..Resource::default()
        })
    }

    /// Registers a machine's memory bandwidth.
    pub fn memory(&self, machine: MachineIx, memory: &[Bandwidth]) {
        for Bandwidth { threads, bytes_per_s } in memory {
            self.recorder.resource(Resource {
                name: format!("memory, {threads} at once"),
                kind: kind::MEMORY_BANDWIDTH.into(),
                machine,
                capacity: Some(*bytes_per_s),
                capacity_from: Some("probed".into()),
                concurrency: Some(*threads as u32),
                ..Resource::default()
            });
        }
    }

    /// Records a task that started at `started_ns` in trace time.
    pub fn task(&self, cores: ResourceIx, started_ns: u64, sample: &Sample) {
        self.recorder.record(Record::SampledTask(SampledTask {
            stage: self.stages[sample.statement],
            partition: self.plan.locate(sample.bundle).1,
            resource: cores,
            iteration: Some(sample.iteration),
            started_ns: started_ns.max(self.start_ns),
            service_ns: sample.service_ns,
            weight: sample.weight,
            bytes: Some(sample.bytes),
        }));
    }

    /// Records the messages sent for a statement in an interval that ended at `ended_ns` in trace time.
    pub fn exchange(&self, link: ResourceIx, ended_ns: u64, interval_ns: u64, sent: &Exchanged) {
        let started_ns = ended_ns.saturating_sub(interval_ns).max(self.start_ns);
        self.recorder.record(Record::Exchange(Exchange {
            stage: self.stages[sent.statement],
            resource: link,
            started_ns,
            interval_ns: ended_ns.saturating_sub(started_ns),
            messages: sent.messages,
            bytes: sent.bytes,
        }));
    }

    /// Records the end of the job.
    pub fn end(self, error: Option<&JobError>) {
        let ended_ns = self.recorder.now_ns();
        let outcome = match error {
            None => Outcome::Ok,
            Some(JobError::Cancelled) => Outcome::Cancelled,
            Some(_) => Outcome::Failed,
        };
        for &stage in self.stages.iter() {
            self.recorder.record(Record::StageEnd(StageEnd { stage, ended_ns, outcome, error: None }));
        }
        self.recorder.record(Record::JobEnd(JobEnd {
            job: self.job,
            ended_ns,
            outcome,
            error: error.map(ToString::to_string),
            rows: None,
            memory_high_water_bytes: None,
            peak: None,
            spill: None,
        }));
    }
}

/// The trace of a job in this process, to which threads add their samples directly.
pub(crate) struct LocalTrace {
    pub recording: Recording,
    cores: ResourceIx,
    /// Trace time at `origin_ticks`.
    origin_ns: u64,
    origin_ticks: u64,
}

impl LocalTrace {
    /// Registers the job, this machine, and its measured memory bandwidth.
    pub fn begin(plan: &Arc<Plan>, recorder: Recorder, threads: usize, memory: &[Bandwidth]) -> Self {
        let recording = Recording::begin(plan, recorder);
        let (machine, cores) = recording.machine(&Host::here(), threads as u32);
        recording.memory(machine, memory);
        Self { cores, origin_ns: recording.start_ns, origin_ticks: clock::ticks(), recording }
    }
}

impl Samples for LocalTrace {
    fn sample(&self, sample: Sample) {
        let after = clock::nanoseconds(sample.start_ticks.saturating_sub(self.origin_ticks));
        self.recording.task(self.cores, self.origin_ns + after, &sample);
    }
}
