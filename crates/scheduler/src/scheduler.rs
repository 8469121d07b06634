//! The state machine behind [`Scheduler`].
//!
//! Each call changes the state at once; [`Scheduler::next`] then returns decisions one by one: first ends,
//! which free memory, then admissions, whose planning overlaps with running monotasks, then starts,
//! resource by resource.
//!
//! A job that failed or was cancelled is *stopped*: its queued monotasks are dropped at once, running ones
//! may end, and no more are started.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::admission::Admission;
use crate::controller::{Controller, Sample};
use crate::multitask::{MultitaskState, Multitasks, Ready, Stopped};
use crate::queue::Queue;
use crate::{
    Completion, Config, Decision, Invalid, JobId, MonotaskId, MonotaskSpec, MultitaskId, MultitaskSpec,
    Nanos, Outcome, ResourceId, ResourceSpec,
};

/// A scheduler of the monotasks of one machine. The [crate documentation](crate) has an example.
#[derive(Debug)]
pub struct Scheduler {
    resources: Vec<Resource>,
    jobs: BTreeMap<JobId, Job>,
    jobs_added: u32,
    multitasks: Multitasks,
    admission: Admission,
    ages: u64,
    /// Ended multitasks that `next` has not returned yet.
    ended: VecDeque<(MultitaskId, Outcome)>,
    /// Stages with a multitask that has not ended.
    stages: BTreeMap<(JobId, u32), Stage>,
    /// Monotasks made ready by the current call; kept to reuse the allocation.
    ready: Vec<Ready>,
}

#[derive(Debug)]
struct Resource {
    controller: Controller,
    running: u32,
    queue: Queue,
    /// Stages that use it and have a multitask that has not ended.
    stages: BTreeSet<(JobId, u32)>,
    /// Stages that the controller is tuned for.
    tuned_for: BTreeSet<(JobId, u32)>,
}

#[derive(Debug, Default)]
struct Job {
    stopped: bool,
    /// True once `end_job` was called.
    closed: bool,
    /// Number of submitted multitasks whose end was not yet returned.
    live: u32,
    admitted: BTreeSet<MultitaskId>,
}

#[derive(Debug, Default)]
struct Stage {
    live: u32,
    /// Resources with adaptive concurrency that the stage has used.
    tuned: BTreeSet<ResourceId>,
}

impl Resource {
    /// Restarts tuning when the running stages change. An empty set does not count as a change, since a
    /// stage may have no multitask for a moment.
    fn stages_changed(&mut self) {
        if !self.stages.is_empty() && self.stages != self.tuned_for {
            self.tuned_for = self.stages.clone();
            self.controller.restart();
        }
    }
}

impl Scheduler {
    /// Creates a scheduler without resources or jobs.
    pub fn new(config: Config) -> Self {
        Scheduler {
            resources: Vec::new(),
            jobs: BTreeMap::new(),
            jobs_added: 0,
            multitasks: Multitasks::default(),
            admission: Admission::new(config.memory_bytes),
            ages: 0,
            ended: VecDeque::new(),
            stages: BTreeMap::new(),
            ready: Vec::new(),
        }
    }

    /// Adds a resource. Resources may be added at any time, even while jobs are running.
    pub fn add_resource(&mut self, spec: ResourceSpec) -> ResourceId {
        self.resources.push(Resource {
            controller: Controller::new(spec.concurrency),
            running: 0,
            queue: Queue::new(spec.multitasks_at_once),
            stages: BTreeSet::new(),
            tuned_for: BTreeSet::new(),
        });
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Adds a job. It is kept until [`Scheduler::end_job`] was called, the ends of all its multitasks were
    /// returned, and all memory that it held was released.
    pub fn add_job(&mut self, _now: Nanos) -> JobId {
        let job = JobId(self.jobs_added);
        self.jobs_added += 1;
        self.jobs.insert(job, Job::default());
        self.admission.add_job(job);
        job
    }

    /// Submits a multitask, which then waits for admission. If its job was stopped or is unknown, the
    /// multitask is cancelled at once.
    pub fn submit(&mut self, _now: Nanos, spec: MultitaskSpec) -> MultitaskId {
        let id = self.multitasks.insert(spec);
        let stage = self.stages.entry((spec.job, spec.stage)).or_default();
        stage.live += 1;
        let job = self.jobs.get_mut(&spec.job).map(|job| {
            job.live += 1;
            job.stopped
        });
        match job {
            Some(false) => self.admission.submit(spec.job, id, spec.memory_bytes),
            Some(true) | None => self.end(id),
        }
        id
    }

    /// Sets the monotasks of an admitted multitask. Without monotasks, it is done at once. If its job was
    /// stopped in the meantime, it is cancelled.
    ///
    /// # Errors
    /// Returns [`Invalid`] if the multitask is not waiting for its monotasks, or if these are invalid. An
    /// admitted multitask then still waits for `expand` or [`Scheduler::fail_expand`].
    pub fn expand(
        &mut self,
        _now: Nanos,
        id: MultitaskId,
        monotasks: Vec<MonotaskSpec>,
    ) -> Result<(), Invalid> {
        let resources = self.resources.len();
        let multitask = self
            .multitasks
            .get_mut(id)
            .filter(|multitask| multitask.state == MultitaskState::Expanding)
            .ok_or(Invalid::NotAdmitted(id))?;
        multitask.check(&monotasks, resources)?;
        multitask.state = MultitaskState::Expanded;
        if self.jobs.get(&multitask.job).is_some_and(|job| !job.stopped) {
            multitask.add(monotasks, &mut self.ready);
            self.queue_ready(id);
        }
        self.end_if_finished(id);
        Ok(())
    }

    /// Records that a monotask succeeded. Unless its job was stopped, its successors and its additional
    /// monotasks are queued once they are ready.
    ///
    /// # Errors
    /// Returns [`Invalid`] if the monotask is not running, or if its additional monotasks are invalid. A
    /// running monotask then still counts as running, and may be ended with [`Scheduler::fail`].
    pub fn complete(&mut self, now: Nanos, id: MonotaskId, completion: Completion) -> Result<(), Invalid> {
        let resources = self.resources.len();
        let multitask = self.multitasks.running(id).ok_or(Invalid::NotRunning(id))?;
        let job_runs = self.jobs.get(&multitask.job).is_some_and(|job| !job.stopped);
        if job_runs {
            multitask.check(&completion.then, resources)?;
        }
        let Some(stopped) = multitask.stop(id.index) else {
            return Err(Invalid::NotRunning(id));
        };
        let (job, age) = (multitask.job, multitask.age);
        if job_runs {
            multitask.release(id.index, &mut self.ready);
            multitask.add(completion.then, &mut self.ready);
            self.queue_ready(id.multitask);
        }
        let resource = &mut self.resources[stopped.resource.0 as usize];
        let sample =
            Sample { start_ns: stopped.start_ns, bytes: completion.bytes, running: resource.running };
        resource.controller.completed(now, sample);
        resource.free(now, job, age, stopped);
        self.end_if_finished(id.multitask);
        Ok(())
    }

    /// Records that a monotask failed, which fails its job: queued monotasks of the job are dropped,
    /// running ones may end. If the job is stopped already, only the monotask ends. A monotask that is not
    /// running is ignored.
    pub fn fail(&mut self, now: Nanos, id: MonotaskId) {
        let Some(multitask) = self.multitasks.running(id) else {
            return;
        };
        let (job, age) = (multitask.job, multitask.age);
        if let Some(stopped) = multitask.stop(id.index) {
            self.resources[stopped.resource.0 as usize].free(now, job, age, stopped);
        }
        self.stop_job(job, Some(id.multitask));
        self.end_if_finished(id.multitask);
    }

    /// Records that planning the monotasks of an admitted multitask failed, which fails its job. A
    /// multitask that is not waiting for its monotasks is ignored.
    pub fn fail_expand(&mut self, _now: Nanos, id: MultitaskId) {
        let Some(multitask) = self.multitasks.get_mut(id) else {
            return;
        };
        if multitask.state == MultitaskState::Expanding {
            multitask.state = MultitaskState::Expanded;
            let job = multitask.job;
            self.stop_job(job, Some(id));
            self.end_if_finished(id);
        }
    }

    /// Cancels a job: queued monotasks are dropped, running ones may end, and its multitasks end as cancelled.
    pub fn cancel(&mut self, _now: Nanos, job: JobId) {
        self.stop_job(job, None);
    }

    /// Declares that no more multitasks will be submitted for the job, which is removed once it has
    /// finished. To be called once for every job, whatever its outcome.
    pub fn end_job(&mut self, _now: Nanos, job: JobId) {
        if let Some(closed) = self.jobs.get_mut(&job) {
            closed.closed = true;
            self.remove_if_finished(job);
        }
    }

    /// Counts memory that a job holds between stages, as in exchanges, towards the budget until it is
    /// released. The memory is already in use, so the call always succeeds.
    pub fn hold(&mut self, job: JobId, bytes: u64) {
        self.admission.hold(job, bytes);
    }

    /// Releases memory that a job holds between stages, up to the amount that it holds.
    pub fn release(&mut self, job: JobId, bytes: u64) {
        self.admission.release(job, bytes);
        self.remove_if_finished(job);
    }

    /// Returns the next decision, which counts as carried out. To be called after every other call until it
    /// returns `None`.
    pub fn next(&mut self, now: Nanos) -> Option<Decision> {
        if let Some((multitask, outcome)) = self.ended.pop_front() {
            if let Some(removed) = self.multitasks.remove(multitask)
                && let Some(job) = self.jobs.get_mut(&removed.job)
            {
                job.live -= 1;
                self.remove_if_finished(removed.job);
            }
            return Some(Decision::Ended { multitask, outcome });
        }
        if let Some(id) = self.admission.admit(self.places()) {
            if let Some(multitask) = self.multitasks.get_mut(id) {
                multitask.state = MultitaskState::Expanding;
                multitask.age = self.ages;
                self.ages += 1;
                if let Some(job) = self.jobs.get_mut(&multitask.job) {
                    job.admitted.insert(id);
                }
            }
            return Some(Decision::Admit(id));
        }
        let memory_is_short = self.admission.memory_is_short();
        for (index, resource) in self.resources.iter_mut().enumerate() {
            if resource.running >= resource.controller.concurrency() {
                continue;
            }
            let Some(picked) = resource.queue.pick(memory_is_short) else {
                continue;
            };
            resource.running += 1;
            resource.controller.started();
            let monotask = picked.monotask;
            if let Some(multitask) = self.multitasks.get_mut(monotask.multitask) {
                multitask.start(monotask.index, now, picked.charged_ns);
            }
            let resource = ResourceId(index as u32);
            return Some(Decision::Start { monotask, resource });
        }
        None
    }

    /// Returns the number of monotasks running on a resource, or 0 if the resource is unknown.
    pub fn running(&self, resource: ResourceId) -> u32 {
        self.resources.get(resource.0 as usize).map_or(0, |r| r.running)
    }

    /// Returns the number of monotasks queued for a resource, or 0 if the resource is unknown.
    pub fn queued(&self, resource: ResourceId) -> usize {
        self.resources.get(resource.0 as usize).map_or(0, |r| r.queue.len())
    }

    /// Returns the current concurrency of a resource, or 0 if the resource is unknown.
    pub fn concurrency(&self, resource: ResourceId) -> u32 {
        let resource = self.resources.get(resource.0 as usize);
        resource.map_or(0, |r| r.controller.concurrency())
    }

    /// Returns the number of multitasks that may be admitted at once: the sum of the resources' concurrency
    /// plus one (§3.4).
    pub fn places(&self) -> u32 {
        let sum = |sum: u32, r: &Resource| sum.saturating_add(r.controller.concurrency());
        self.resources.iter().fold(1, sum)
    }

    /// Returns the number of admitted multitasks that have not ended.
    pub fn admitted(&self) -> u32 {
        self.admission.admitted()
    }

    /// Returns the number of multitasks waiting for admission.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// Returns the number of multitasks whose end was not yet returned.
    pub fn live(&self) -> usize {
        self.multitasks.len()
    }

    /// Returns the number of jobs that were not removed yet.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the memory of admitted multitasks and that held by jobs between stages, in bytes.
    pub fn memory_held(&self) -> u64 {
        self.admission.held_bytes()
    }

    /// Returns whether over 80 % of the budget is held or a multitask waits for memory, in which case
    /// writes take precedence.
    pub fn memory_is_short(&self) -> bool {
        self.admission.memory_is_short()
    }

    /// Moves ready monotasks to their queues.
    fn queue_ready(&mut self, id: MultitaskId) {
        let Some(multitask) = self.multitasks.get(id) else {
            return;
        };
        let stage = (multitask.job, multitask.stage);
        for ready in self.ready.drain(..) {
            let resource = &mut self.resources[ready.resource.0 as usize];
            let monotask = MonotaskId { multitask: id, index: ready.index };
            resource.queue.push(multitask.job, multitask.age, monotask, ready.phase);
            if resource.controller.is_adaptive() && resource.stages.insert(stage) {
                self.stages.entry(stage).or_default().tuned.insert(ready.resource);
                resource.stages_changed();
            }
        }
    }

    fn stop_job(&mut self, id: JobId, culprit: Option<MultitaskId>) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.stopped) else {
            return;
        };
        job.stopped = true;
        let admitted: Vec<MultitaskId> = job.admitted.iter().copied().collect();
        if let Some(multitask) = culprit.and_then(|culprit| self.multitasks.get_mut(culprit)) {
            multitask.failed = true;
        }
        for resource in &mut self.resources {
            resource.queue.drop_queued(id);
        }
        for multitask in admitted {
            self.end_if_finished(multitask);
        }
        for (multitask, _) in self.admission.drop_waiting(id) {
            self.end(multitask);
        }
    }

    /// Ends an expanded multitask if none of its monotasks runs or will run.
    fn end_if_finished(&mut self, id: MultitaskId) {
        let Some(multitask) = self.multitasks.get(id) else {
            return;
        };
        let stopped = self.jobs.get(&multitask.job).is_none_or(|job| job.stopped);
        let finished = multitask.running == 0 && (stopped || multitask.is_done());
        if multitask.state == MultitaskState::Expanded && finished {
            self.end(id);
        }
    }

    fn end(&mut self, id: MultitaskId) {
        let Some(multitask) = self.multitasks.get_mut(id) else {
            return;
        };
        let (job, key) = (multitask.job, (multitask.job, multitask.stage));
        let job_runs = self.jobs.get(&job).is_some_and(|job| !job.stopped);
        self.ended.push_back((id, multitask.outcome(job_runs)));
        let state = std::mem::replace(&mut multitask.state, MultitaskState::Ended);
        if state != MultitaskState::Waiting {
            self.admission.ended(job, multitask.memory_bytes);
            if let Some(job) = self.jobs.get_mut(&job) {
                job.admitted.remove(&id);
            }
        }
        let Some(stage) = self.stages.get_mut(&key) else {
            return;
        };
        stage.live -= 1;
        if stage.live == 0 {
            for tuned in std::mem::take(&mut stage.tuned) {
                let resource = &mut self.resources[tuned.0 as usize];
                resource.stages.remove(&key);
                resource.stages_changed();
            }
            self.stages.remove(&key);
        }
    }

    fn remove_if_finished(&mut self, id: JobId) {
        let finished = |job: &Job| job.closed && job.live == 0 && self.admission.holds_nothing(id);
        if self.jobs.get(&id).is_some_and(finished) {
            self.jobs.remove(&id);
            self.admission.remove_job(id);
            for resource in &mut self.resources {
                resource.queue.remove_job(id);
            }
        }
    }
}

impl Resource {
    fn free(&mut self, now: Nanos, job: JobId, age: u64, stopped: Stopped) {
        self.running -= 1;
        let took_ns = now.saturating_sub(stopped.start_ns);
        self.queue.stopped(job, age, stopped.phase, stopped.charged_ns, took_ns);
    }
}
