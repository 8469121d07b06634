//! The state machine itself: what a driver tells, and what it is answered.
//!
//! Each call changes the state at once; [`Scheduler::next`] then draws decisions
//! from it one by one: ends first (they free memory), then admissions (their
//! planning runs beside what is started), then starts, resource by resource.
//!
//! A job that failed or was cancelled is *stopped*: what is queued of it is dropped
//! there and then, what runs may end, and nothing of it starts again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::admission::Admission;
use crate::controller::{Controller, Sample};
use crate::multitask::{Multitasks, Ready, Stand, Stopped};
use crate::queue::Queue;
use crate::{
    Completion, Config, Decision, Invalid, JobId, MonotaskId, MonotaskSpec, MultitaskId, MultitaskSpec,
    Nanos, Outcome, ResourceId, ResourceSpec,
};

/// Decides which monotask runs next on one machine. See the crate's head.
#[derive(Debug)]
pub struct Scheduler {
    resources: Vec<Resource>,
    jobs: BTreeMap<JobId, Job>,
    jobs_added: u32,
    multitasks: Multitasks,
    admission: Admission,
    ages: u64,
    /// Multitasks that ended, to be handed out.
    ended: VecDeque<(MultitaskId, Outcome)>,
    /// Stages with a multitask that has not ended.
    stages: BTreeMap<(JobId, u32), Stage>,
    /// Kept to be used again: what the call at hand made ready.
    ready: Vec<Ready>,
}

#[derive(Debug)]
struct Resource {
    controller: Controller,
    running: u32,
    queue: Queue,
    /// Stages that use it and have a multitask that has not ended.
    stages: BTreeSet<(JobId, u32)>,
    /// Those that the controller climbed for.
    climbed_for: BTreeSet<(JobId, u32)>,
}

#[derive(Debug, Default)]
struct Job {
    stopped: bool,
    /// Nothing more will be submitted.
    closed: bool,
    /// Submitted, and the end not yet handed out.
    live: u32,
    admitted: BTreeSet<MultitaskId>,
}

#[derive(Debug, Default)]
struct Stage {
    live: u32,
    /// Resources with a tuned concurrency that it has used.
    tuned: BTreeSet<ResourceId>,
}

impl Resource {
    /// Climbs again if the running stages are others. Between two multitasks of one
    /// stage there may be none at all; that is no change.
    fn stages_changed(&mut self) {
        if !self.stages.is_empty() && self.stages != self.climbed_for {
            self.climbed_for = self.stages.clone();
            self.controller.restart();
        }
    }
}

impl Scheduler {
    /// A scheduler without resources or jobs.
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

    /// Adds a resource; at any time, also while jobs run.
    pub fn add_resource(&mut self, spec: ResourceSpec) -> ResourceId {
        self.resources.push(Resource {
            controller: Controller::new(spec.concurrency),
            running: 0,
            queue: Queue::new(spec.multitasks_at_once),
            stages: BTreeSet::new(),
            climbed_for: BTreeSet::new(),
        });
        ResourceId(self.resources.len() as u32 - 1)
    }

    /// Adds a job. It is kept until [`Scheduler::end_job`] was called, each of its
    /// multitasks' ends was handed out, and all that it held was released.
    pub fn add_job(&mut self, _now: Nanos) -> JobId {
        let job = JobId(self.jobs_added);
        self.jobs_added += 1;
        self.jobs.insert(job, Job::default());
        self.admission.add_job(job);
        job
    }

    /// Submits a multitask, to wait for admission. Of a job that was stopped, or is
    /// not known any more, it ends at once, as cancelled.
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

    /// Says the monotasks of a multitask that was admitted. None at all is well: it
    /// is done. If its job was stopped meanwhile it ends as cancelled.
    ///
    /// # Errors
    /// [`Invalid`]; the multitask still waits to be expanded (or to be failed, by
    /// [`Scheduler::fail_expand`]).
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
            .filter(|multitask| multitask.stand == Stand::Expanding)
            .ok_or(Invalid::NotAdmitted(id))?;
        multitask.check(&monotasks, resources)?;
        multitask.stand = Stand::Expanded;
        if self.jobs.get(&multitask.job).is_some_and(|job| !job.stopped) {
            multitask.add(monotasks, &mut self.ready);
            self.queue_ready(id);
        }
        self.end_if_over(id);
        Ok(())
    }

    /// A monotask ended well. What comes after it is queued; so is what it adds,
    /// unless its job was stopped.
    ///
    /// # Errors
    /// [`Invalid`]; a monotask that ran, runs still (end it with [`Scheduler::fail`]).
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
        let sample = Sample {
            start_ns: stopped.start_ns,
            bytes: completion.bytes,
            wait_ns: completion.wait_ns,
            running: resource.running,
        };
        resource.controller.completed(now, sample);
        resource.free(now, job, age, stopped);
        self.end_if_over(id.multitask);
        Ok(())
    }

    /// A monotask failed: so does its job. What is queued of the job is dropped, what
    /// runs may end. Of a job that was stopped before, it only ends. One that does
    /// not run is ignored.
    pub fn fail(&mut self, now: Nanos, id: MonotaskId) {
        let Some(multitask) = self.multitasks.running(id) else {
            return;
        };
        let (job, age) = (multitask.job, multitask.age);
        if let Some(stopped) = multitask.stop(id.index) {
            self.resources[stopped.resource.0 as usize].free(now, job, age, stopped);
        }
        self.stop_job(job, Some(id.multitask));
        self.end_if_over(id.multitask);
    }

    /// A multitask that was admitted could not say its monotasks: its job fails. One
    /// that does not wait to be expanded is ignored.
    pub fn fail_expand(&mut self, _now: Nanos, id: MultitaskId) {
        let Some(multitask) = self.multitasks.get_mut(id) else {
            return;
        };
        if multitask.stand == Stand::Expanding {
            multitask.stand = Stand::Expanded;
            let job = multitask.job;
            self.stop_job(job, Some(id));
            self.end_if_over(id);
        }
    }

    /// Cancels a job: as if it failed, with nobody to blame.
    pub fn cancel(&mut self, _now: Nanos, job: JobId) {
        self.stop_job(job, None);
    }

    /// Nothing more will be submitted for the job: it is forgotten once nothing of
    /// it is left. Called once for every job, however it ended.
    pub fn end_job(&mut self, _now: Nanos, job: JobId) {
        if let Some(closed) = self.jobs.get_mut(&job) {
            closed.closed = true;
            self.forget_if_over(job);
        }
    }

    /// The job keeps memory between stages (what exchanges hold): counts towards the
    /// budget until it is released. Never refused, because it is there already.
    pub fn hold(&mut self, job: JobId, bytes: u64) {
        self.admission.hold(job, bytes);
    }

    /// The job gives memory back that it held; at most what it holds.
    pub fn release(&mut self, job: JobId, bytes: u64) {
        self.admission.release(job, bytes);
        self.forget_if_over(job);
    }

    /// The next decision, which counts as carried out. To be called after each of
    /// the other calls until it says `None`.
    pub fn next(&mut self, now: Nanos) -> Option<Decision> {
        if let Some((multitask, outcome)) = self.ended.pop_front() {
            if let Some(removed) = self.multitasks.remove(multitask)
                && let Some(job) = self.jobs.get_mut(&removed.job)
            {
                job.live -= 1;
                self.forget_if_over(removed.job);
            }
            return Some(Decision::Ended { multitask, outcome });
        }
        if let Some(id) = self.admission.admit(self.places()) {
            if let Some(multitask) = self.multitasks.get_mut(id) {
                multitask.stand = Stand::Expanding;
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
            resource.controller.started(now);
            let monotask = picked.monotask;
            if let Some(multitask) = self.multitasks.get_mut(monotask.multitask) {
                multitask.start(monotask.index, now, picked.charged_ns);
            }
            let resource = ResourceId(index as u32);
            return Some(Decision::Start { monotask, resource });
        }
        None
    }

    /// Monotasks that run on a resource; 0 for one that was never added.
    pub fn running(&self, resource: ResourceId) -> u32 {
        self.resources.get(resource.0 as usize).map_or(0, |r| r.running)
    }

    /// Monotasks that wait for a resource; 0 for one that was never added.
    pub fn queued(&self, resource: ResourceId) -> usize {
        self.resources.get(resource.0 as usize).map_or(0, |r| r.queue.len())
    }

    /// How many monotasks a resource may run at once now; 0 for one never added.
    pub fn concurrency(&self, resource: ResourceId) -> u32 {
        let resource = self.resources.get(resource.0 as usize);
        resource.map_or(0, |r| r.controller.concurrency())
    }

    /// Multitasks that may be admitted at once now: the resources' concurrency
    /// summed, plus one (§3.4).
    pub fn places(&self) -> u32 {
        let sum = |sum: u32, r: &Resource| sum.saturating_add(r.controller.concurrency());
        self.resources.iter().fold(1, sum)
    }

    /// Multitasks that are admitted and have not ended.
    pub fn admitted(&self) -> u32 {
        self.admission.admitted()
    }

    /// Multitasks that wait for admission.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// Multitasks whose end was not yet handed out.
    pub fn live(&self) -> usize {
        self.multitasks.len()
    }

    /// Jobs that are not forgotten yet.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Memory of admitted multitasks and what jobs hold between stages, in bytes.
    pub fn memory_held(&self) -> u64 {
        self.admission.held_bytes()
    }

    /// Writes go first: over 80 % of the budget is held, or a multitask waits for
    /// memory.
    pub fn memory_is_short(&self) -> bool {
        self.admission.memory_is_short()
    }

    /// Moves what became ready to its queues.
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
            self.end_if_over(multitask);
        }
        for (multitask, _) in self.admission.drop_waiting(id) {
            self.end(multitask);
        }
    }

    /// Ends an expanded multitask of which nothing runs and nothing will.
    fn end_if_over(&mut self, id: MultitaskId) {
        let Some(multitask) = self.multitasks.get(id) else {
            return;
        };
        let stopped = self.jobs.get(&multitask.job).is_none_or(|job| job.stopped);
        let over = multitask.running == 0 && (stopped || multitask.is_done());
        if multitask.stand == Stand::Expanded && over {
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
        let stand = std::mem::replace(&mut multitask.stand, Stand::Ended);
        if stand != Stand::Waiting {
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

    fn forget_if_over(&mut self, id: JobId) {
        let over = |job: &Job| job.closed && job.live == 0 && self.admission.holds_nothing(id);
        if self.jobs.get(&id).is_some_and(over) {
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
