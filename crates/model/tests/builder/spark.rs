//! Builders for small traces of pipelined tasks, in milliseconds: an application on executors.

use std::collections::BTreeMap;

use pellucid_trace::*;

use super::{job_end, ms};

/// An application with executors; executor 0 is resource 0.
#[derive(Debug)]
pub struct Spark {
    pub trace: Trace,
}

/// A task to be modified before it is added.
#[derive(Debug, Clone, Default)]
pub struct TaskBuilder {
    pub task: PipelinedTask,
}

/// Returns a measured time.
pub fn measured(time: f64) -> Option<Blocked> {
    Some(Blocked::MeasuredNs(ms(time)))
}

/// Returns an upper bound.
pub fn at_most(time: f64) -> Option<Blocked> {
    Some(Blocked::AtMostNs(ms(time)))
}

/// Returns a task on the first executor that computes all the time.
pub fn computing(stage: u32, partition: u32, launched: f64, duration: f64) -> PipelinedTask {
    PipelinedTask {
        stage,
        partition,
        launched_ns: ms(launched),
        duration_ns: ms(duration),
        run_ns: Some(ms(duration)),
        cpu_ns: Some(ms(duration)),
        ..PipelinedTask::default()
    }
}

/// Builds a stage on two slots in which partition 7 of eight holds ten times the bytes of the others and
/// takes ten times as long.
pub fn skewed() -> Spark {
    let mut s = Spark::on(1, 2.0);
    let job = s.job(0.0, 1450.0);
    let map = s.stage(job, &[], 0.0, 100.0);
    s.computes(map, 0, 0.0, 100.0);
    let stage = s.stage(job, &[map], 100.0, 1450.0);
    let mut at = [100.0, 100.0];
    for partition in 0..8 {
        let slot = partition % 2;
        let heavy = if partition == 7 { 10.0 } else { 1.0 };
        let task = s.task(stage, 0, at[slot], 100.0 * heavy);
        s.add(task.with(|t| t.shuffle_local_bytes = Some(1_000_000 * heavy as u64)));
        at[slot] += 100.0 * heavy;
    }
    s
}

impl Spark {
    /// Starts an application with executors of `slots` slots, present from the start, each on its own
    /// machine.
    pub fn on(executors: u32, slots: f64) -> Spark {
        let mut spark = Spark { trace: Trace::default() };
        spark.trace.header = Some(Header {
            format: "pellucid.trace/1.1".into(),
            producer: "sparklog".into(),
            producer_version: "0.1.0".into(),
            origin_unix_ns: 1_700_000_000_000_000_000,
            labels: vec![],
        });
        spark.trace.application = Some(Application {
            engine: "Spark".into(),
            engine_version: Some("3.5.6".into()),
            name: Some("report".into()),
            started_ns: Some(0),
            properties: BTreeMap::new(),
            ..Application::default()
        });
        for _ in 0..executors {
            spark.executor(slots, 0.0);
        }
        spark
    }

    pub fn executor(&mut self, slots: f64, added: f64) -> u32 {
        let ix = self.trace.resources.len() as u32;
        self.trace.machines.push(Machine { name: format!("host-{ix}"), cores: None, memory_bytes: None });
        self.trace.resources.push(Resource {
            name: format!("executor {ix}"),
            kind: kind::SLOTS.into(),
            machine: ix,
            capacity: Some(slots),
            capacity_from: Some("set".into()),
            added_ns: Some(ms(added)),
            ..Resource::default()
        });
        ix
    }

    pub fn set(&mut self, key: &str, value: &str) {
        let application = self.trace.application.as_mut().expect("every one has it");
        application.properties.insert(key.into(), value.into());
    }

    pub fn job(&mut self, submitted: f64, ended: f64) -> u32 {
        let job = self.trace.jobs.len() as u32;
        let name = format!("job {job}");
        self.trace.jobs.push(Job {
            name,
            submitted_ns: ms(submitted),
            id: Some(job.into()),
            ..Job::default()
        });
        self.trace.job_ends.push(job_end(job, ended));
        job
    }

    pub fn stage(&mut self, job: u32, after: &[u32], submitted: f64, ended: f64) -> u32 {
        let stage = self.trace.stages.len() as u32;
        self.trace.stages.push(Stage {
            job,
            name: "Exchange, HashAggregate".into(),
            call_site: Some("Report.scala:42".into()),
            after: after.to_vec(),
            submitted_ns: ms(submitted),
            id: Some(stage.into()),
            ..Stage::default()
        });
        self.trace.stage_ends.push(StageEnd { stage, ended_ns: ms(ended), ..StageEnd::default() });
        stage
    }

    /// Returns a task that computes all the time, unless modified.
    pub fn task(&mut self, stage: u32, executor: u32, launched: f64, duration: f64) -> TaskBuilder {
        let partition = self.trace.pipelined_tasks.iter().filter(|t| t.stage == stage).count() as u32;
        TaskBuilder {
            task: PipelinedTask { resource: executor, ..computing(stage, partition, launched, duration) },
        }
    }

    pub fn add(&mut self, task: TaskBuilder) {
        self.trace.pipelined_tasks.push(&task.task);
    }

    /// Adds a task that computes all the time.
    pub fn computes(&mut self, stage: u32, executor: u32, launched: f64, duration: f64) {
        let task = self.task(stage, executor, launched, duration);
        self.add(task);
    }
}

impl TaskBuilder {
    /// Marks part of the run time as blocked, and reduces the core time by it.
    pub fn blocked(mut self, set: impl FnOnce(&mut PipelinedTask), time: f64) -> TaskBuilder {
        set(&mut self.task);
        self.task.cpu_ns = self.task.cpu_ns.map(|cpu| cpu.saturating_sub(ms(time)));
        self
    }

    pub fn reads(mut self, bytes: u64) -> TaskBuilder {
        self.task.input_bytes = Some(bytes);
        self
    }

    pub fn with(mut self, set: impl FnOnce(&mut PipelinedTask)) -> TaskBuilder {
        set(&mut self.task);
        self
    }
}
