//! The runtime's state of a job: its stages, counts, outcome and trace.
//!
//! A job ends once: by success, by its first failure, or by cancellation.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use pellucid_scheduler::JobId;
use pellucid_trace as trace;
use pellucid_trace::{JobIx, MachineIx, Recorder, ResourceIx, StageIx};

use crate::context::Context;
use crate::samples::Sampling;
use crate::stacks::{StackSampling, Stacks};
use crate::{Error, ResourceHandle, platform};

/// The outcome that a job will have once its code has stopped.
pub(crate) enum Ending {
    Succeeded,
    Failed(Error),
    Cancelled,
}

/// The reason a job did not succeed.
#[derive(Debug)]
pub enum JobError {
    /// The job failed; holds its first failure.
    Failed(Error),
    /// The job was cancelled, or its runtime was dropped.
    Cancelled,
}

/// The progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Number of multitasks submitted so far; more may follow.
    pub multitasks_submitted: u64,
    /// Number of completed multitasks.
    pub multitasks_done: u64,
    /// Bytes loaded by read and fetch monotasks.
    pub read_bytes: u64,
    /// Input bytes that the page cache held.
    pub cached_bytes: u64,
    /// Output rows of compute monotasks, over all stages.
    pub rows: u64,
}

/// The runtime's state of a job.
pub(crate) struct JobInner {
    pub id: JobId,
    pub ix: JobIx,
    pub recorder: Recorder,
    machine: MachineIx,
    /// Shared with the contexts of its running monotasks.
    stopped: Arc<AtomicBool>,
    /// Stages that have not ended.
    stages: Mutex<Vec<StageIx>>,
    /// The trace's index of each resource, by the scheduler's resource id.
    resources: Mutex<Vec<Option<ResourceIx>>>,
    result: Mutex<Option<Result<(), JobError>>>,
    over: Condvar,
    pub sampling: Sampling,
    pub stacks: Stacks,
    high_water_before_bytes: Option<u64>,
    held_bytes: AtomicU64,
    submitted: AtomicU64,
    completed: AtomicU64,
    read_bytes: AtomicU64,
    cached_bytes: AtomicU64,
    rows: AtomicU64,
    /// Number of rows of the result, set by the engine.
    result_rows: AtomicU64,
    /// Returns the memory of the job at its peak, and what did not fit; set by the engine.
    memory: OnceLock<MemoryFn>,
}

type MemoryFn = Box<dyn Fn() -> (Option<trace::Peak>, Option<trace::Spill>) + Send + Sync>;

/// Value of `result_rows` while no count is set.
const NO_ROWS: u64 = u64::MAX;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl JobInner {
    /// Registers the job, its machine and `resources` in its trace.
    pub fn new(
        id: JobId,
        name: &str,
        recorder: Recorder,
        memory_bytes: Option<u64>,
        resources: &[ResourceHandle],
    ) -> Arc<JobInner> {
        let cores = resources.iter().find(|r| r.kind() == trace::kind::CPU);
        let machine = recorder.machine(trace::Machine {
            name: platform::machine_name(),
            cores: cores.map(ResourceHandle::concurrency),
            memory_bytes,
        });
        let submitted_ns = recorder.now_ns();
        let ix = recorder.job(trace::Job { name: name.to_string(), submitted_ns, ..Default::default() });
        let job = JobInner {
            id,
            ix,
            recorder,
            machine,
            stopped: Arc::default(),
            stages: Mutex::default(),
            resources: Mutex::default(),
            result: Mutex::default(),
            over: Condvar::new(),
            sampling: Sampling::default(),
            stacks: Stacks::default(),
            high_water_before_bytes: platform::memory_high_water_bytes(),
            held_bytes: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            cached_bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            result_rows: AtomicU64::new(NO_ROWS),
            memory: OnceLock::new(),
        };
        for resource in resources {
            job.resource_ix(resource);
        }
        Arc::new(job)
    }

    /// Returns the trace's index of a resource, and registers it on first use.
    pub fn resource_ix(&self, resource: &ResourceHandle) -> ResourceIx {
        // A link is registered before the stores behind it.
        let link = resource.0.link.as_ref().map(|link| self.resource_ix(link));
        let mut known = lock(&self.resources);
        if known.len() <= resource.index() {
            known.resize(resource.index() + 1, None);
        }
        if let Some(ix) = known[resource.index()] {
            return ix;
        }
        let info = &resource.0;
        let ix = self.recorder.resource(trace::Resource {
            name: info.name.clone(),
            kind: info.kind.to_string(),
            machine: self.machine,
            capacity: info.capacity,
            capacity_from: info.capacity_from.map(str::to_string),
            concurrency: Some(info.concurrency),
            concurrency_min: info.concurrency_min,
            link,
            ..Default::default()
        });
        known[resource.index()] = Some(ix);
        ix
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub fn submitted(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
    }

    pub fn completed(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the bytes and rows of a monotask to the progress.
    pub fn moved(&self, record: &trace::Monotask) {
        match record.phase {
            trace::Phase::Read | trace::Phase::Fetch => {
                self.read_bytes.fetch_add(record.bytes.unwrap_or(0), Ordering::Relaxed);
            }
            trace::Phase::Compute => {
                self.rows.fetch_add(record.rows.unwrap_or(0), Ordering::Relaxed);
            }
            trace::Phase::Spill | trace::Phase::Write => {}
        }
        self.cached_bytes.fetch_add(record.cached_bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the memory that the job holds between stages, and resets it to zero.
    pub fn take_held_bytes(&self) -> u64 {
        self.held_bytes.swap(0, Ordering::Relaxed)
    }

    /// Records the end of the job and wakes its waiters.
    pub fn end(&self, ending: Ending, resources: &[ResourceHandle], stacks: &StackSampling) {
        self.sampling.end(self, resources);
        let (outcome, error, result) = match ending {
            Ending::Succeeded => (trace::Outcome::Ok, None, Ok(())),
            Ending::Cancelled => (trace::Outcome::Cancelled, None, Err(JobError::Cancelled)),
            Ending::Failed(error) => {
                (trace::Outcome::Failed, Some(error.to_string()), Err(JobError::Failed(error)))
            }
        };
        let ended_ns = self.recorder.now_ns();
        for stage in std::mem::take(&mut *lock(&self.stages)) {
            self.recorder.record(trace::Record::StageEnd(trace::StageEnd {
                stage,
                ended_ns,
                outcome,
                ..Default::default()
            }));
        }
        let memory_high_water_bytes = self.memory_high_water_bytes();
        // Reading symbols takes time and memory, which are not those of the job.
        stacks.record(&self.stacks, &self.recorder);
        let rows = self.result_rows.load(Ordering::Relaxed);
        let (peak, spill) = self.memory.get().map_or((None, None), |memory| memory());
        self.recorder.record(trace::Record::JobEnd(trace::JobEnd {
            job: self.ix,
            ended_ns,
            outcome,
            error,
            rows: (rows != NO_ROWS).then_some(rows),
            memory_high_water_bytes,
            peak,
            spill,
        }));
        *lock(&self.result) = Some(result);
        self.over.notify_all();
    }

    /// Returns the context of a monotask.
    pub fn context(&self) -> Context {
        Context::new(Arc::clone(&self.stopped))
    }

    /// See [`crate::Job::stage`].
    pub fn stage(&self, name: &str, after: &[StageIx], not_split: Vec<String>) -> StageIx {
        let stage = self.recorder.stage(trace::Stage {
            job: self.ix,
            name: name.to_string(),
            attempt: 0,
            call_site: None,
            after: after.to_vec(),
            submitted_ns: self.recorder.now_ns(),
            not_split,
            ..Default::default()
        });
        lock(&self.stages).push(stage);
        stage
    }

    /// See [`crate::Job::end_stage`].
    pub fn end_stage(&self, stage: StageIx) {
        let mut open = lock(&self.stages);
        let Some(at) = open.iter().position(|s| *s == stage) else { return };
        open.swap_remove(at);
        drop(open);
        self.recorder.record(trace::Record::StageEnd(trace::StageEnd {
            stage,
            ended_ns: self.recorder.now_ns(),
            outcome: trace::Outcome::Ok,
            ..Default::default()
        }));
    }

    /// Adds to the held memory.
    pub fn hold(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts from the held memory. Returns by how much, at most the memory held.
    pub fn release(&self, bytes: u64) -> u64 {
        let held = self
            .held_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(bytes)));
        bytes.min(held.unwrap_or(0))
    }

    /// Sets the number of rows of the result.
    pub fn set_rows(&self, rows: u64) {
        self.result_rows.store(rows.min(NO_ROWS - 1), Ordering::Relaxed);
    }

    /// Sets the source of the memory. Only the first one counts.
    pub fn set_memory(&self, memory: MemoryFn) {
        let _ = self.memory.set(memory);
    }

    /// See [`crate::Job::wait`].
    pub fn wait(&self) -> Result<(), JobError> {
        let mut result = lock(&self.result);
        loop {
            match result.as_mut() {
                Some(Ok(())) => return Ok(()),
                Some(Err(JobError::Cancelled)) => return Err(JobError::Cancelled),
                Some(Err(JobError::Failed(error))) => {
                    let message: Error = error.to_string().into();
                    return Err(JobError::Failed(std::mem::replace(error, message)));
                }
                None => {
                    result = self.over.wait(result).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Returns the job's progress.
    pub fn progress(&self) -> Progress {
        Progress {
            multitasks_submitted: self.submitted.load(Ordering::Relaxed),
            multitasks_done: self.completed.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            cached_bytes: self.cached_bytes.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }

    /// Returns the peak memory of the process if it rose during the job; otherwise the maximum of the
    /// samples, which may miss a short peak below the earlier one.
    fn memory_high_water_bytes(&self) -> Option<u64> {
        let now = platform::memory_high_water_bytes();
        if now > self.high_water_before_bytes {
            return now;
        }
        self.sampling.memory_high_water_bytes()
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Failed(error) => error.fmt(f),
            JobError::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for JobError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // `Display` prints the error itself, so its source is the next in the chain.
            JobError::Failed(error) => error.source(),
            JobError::Cancelled => None,
        }
    }
}
