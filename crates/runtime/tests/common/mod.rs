//! Helpers of the runtime's tests: an in-memory recorder, multitasks from closures, and trace checks.

#![allow(dead_code)] // each test binary uses only some of them

use std::sync::Arc;

use pellucid_runtime::{Error, Job, Monotask, Multitask, Options, Runtime};
use pellucid_trace::{Recorder, RecorderOptions, Trace};

/// Creates a runtime with two cores, whatever the machine has.
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

/// Ends the trace of a job that has ended, and checks the invariants of the format and of the runtime.
pub fn checked_trace(job: &Job) -> Trace {
    let trace = job.recorder().finish().expect("a trace");
    assert_eq!(trace.check(), Vec::<String>::new());
    assert_eq!(trace.job_ends.len(), trace.jobs.len(), "every job has its end");
    assert_eq!(trace.stage_ends.len(), trace.stages.len(), "every stage has its end");
    for (i, resource) in trace.resources.iter().enumerate() {
        let max = resource.concurrency.expect("known") as usize;
        assert!(
            max_concurrent(&trace, i as u32) <= max,
            "{} exceeded its concurrency of {max}",
            resource.name
        );
    }
    for m in &trace.monotasks {
        let end = m.queued_ns + m.queue_ns + m.service_ns;
        assert!(end <= trace.job_ends[0].ended_ns, "a monotask ended after its job");
        assert!(m.queued_ns >= trace.multitasks[m.multitask as usize].admitted_ns);
    }
    trace
}

/// Returns the maximum number of monotasks that ran concurrently on a resource.
fn max_concurrent(trace: &Trace, resource: u32) -> usize {
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for m in trace.monotasks.iter().filter(|m| m.resource == resource && m.service_ns > 0) {
        let start = m.queued_ns + m.queue_ns;
        edges.extend([(start, 1), (start + m.service_ns, -1)]);
    }
    edges.sort_unstable(); // at the same instant, ends sort before starts
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

/// A multitask made of two closures.
pub struct Task {
    plan: Option<Plan>,
    done: End,
    /// A reference that lives until the runtime drops the multitask.
    _token: Option<Arc<()>>,
}

impl Task {
    pub fn new(
        plan: impl FnOnce() -> Result<Vec<Monotask>, Error> + Send + 'static,
        done: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Box<Task> {
        Box::new(Task { plan: Some(Box::new(plan)), done: Box::new(done), _token: None })
    }

    pub fn holding(mut self: Box<Self>, token: &Arc<()>) -> Box<Task> {
        self._token = Some(Arc::clone(token));
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
