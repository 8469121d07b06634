//! What the tests of the runtime share: a recorder in memory, multitasks made of
//! closures, and a sound trace at the end.

#![allow(dead_code)] // each test binary uses a part of it

use std::sync::Arc;

use pellucid_runtime::{Error, Job, Monotask, Multitask, Options, Runtime};
use pellucid_trace::{Recorder, RecorderOptions, Trace};

/// Two cores, whatever the machine has.
pub fn runtime() -> Runtime {
    Runtime::new(Options { cores: 2, ..Options::default() }).expect("a runtime")
}

pub fn recorder() -> Recorder {
    Recorder::start(RecorderOptions {
        producer: "engine".to_string(),
        producer_version: "0".to_string(),
        labels: Vec::new(),
        path: None,
        keep: true,
    })
    .expect("a recorder in memory")
}

/// Ends the trace of a job that is over, and holds it to the format's invariants
/// and to those of the runtime.
pub fn sound(job: &Job) -> Trace {
    let trace = job.recorder().finish().expect("a trace");
    assert_eq!(trace.check(), Vec::<String>::new());
    assert_eq!(trace.job_ends.len(), trace.jobs.len(), "every job has its end");
    assert_eq!(trace.stage_ends.len(), trace.stages.len(), "every stage has its end");
    for (i, resource) in trace.resources.iter().enumerate() {
        let most = resource.concurrency.expect("known") as usize;
        assert!(at_once(&trace, i as u32) <= most, "{} ran more than {most} at once", resource.name);
    }
    for m in &trace.monotasks {
        let end = m.queued_ns + m.queue_ns + m.service_ns;
        assert!(end <= trace.job_ends[0].ended_ns, "a monotask ran on after its job's end");
        assert!(m.queued_ns >= trace.multitasks[m.multitask as usize].admitted_ns);
    }
    trace
}

/// Most monotasks that ran at once on a resource.
fn at_once(trace: &Trace, resource: u32) -> usize {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for m in trace.monotasks.iter().filter(|m| m.resource == resource && m.service_ns > 0) {
        let start = m.queued_ns + m.queue_ns;
        edges.extend([(start, 1), (start + m.service_ns, -1)]);
    }
    edges.sort_unstable(); // at one instant an end comes before a start
    let mut now = 0;
    edges
        .iter()
        .map(|(_, step)| {
            now += step;
            now
        })
        .max()
        .unwrap_or(0) as usize
}

type Plan = Box<dyn FnOnce() -> Result<Vec<Monotask>, Error> + Send>;
type End = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// A multitask of two closures.
pub struct Task {
    plan: Option<Plan>,
    done: End,
    /// Held until the runtime lets go of the multitask.
    _kept: Option<Arc<()>>,
}

impl Task {
    pub fn new(
        plan: impl FnOnce() -> Result<Vec<Monotask>, Error> + Send + 'static,
        done: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Box<Task> {
        Box::new(Task { plan: Some(Box::new(plan)), done: Box::new(done), _kept: None })
    }

    pub fn keeping(mut self: Box<Self>, kept: &Arc<()>) -> Box<Task> {
        self._kept = Some(Arc::clone(kept));
        self
    }
}

impl Multitask for Task {
    fn plan(&mut self) -> Result<Vec<Monotask>, Error> {
        self.plan.take().expect("planned once")()
    }

    fn done(self: Box<Self>) -> Result<(), Error> {
        (self.done)()
    }
}
