//! Checks of the invariants against the world's own state.

use std::collections::{BTreeMap, BTreeSet};

use pellucid_scheduler::*;

use super::{Body, MonotaskState, MultitaskState, World};

impl Body {
    /// Returns the waiting monotasks whose predecessors have all ended.
    fn ready(&self) -> impl Iterator<Item = (u32, &MonotaskSpec)> {
        let over = |index: &u32| self.monotasks[*index as usize].1 == MonotaskState::Ended;
        (0..).zip(&self.monotasks).filter_map(move |(index, (spec, state))| {
            let ready = *state == MonotaskState::Waiting && spec.after.iter().all(over);
            ready.then_some((index, spec))
        })
    }

    fn running(&self) -> impl Iterator<Item = &MonotaskSpec> {
        self.monotasks.iter().filter(|(_, s)| *s == MonotaskState::Running).map(|(spec, _)| spec)
    }
}

impl World {
    fn admitted(&self) -> impl Iterator<Item = &Body> {
        self.bodies.values().filter(|body| body.state != MultitaskState::Waiting)
    }

    fn held_bytes(&self) -> u64 {
        let admitted: u64 = self.admitted().map(|body| body.spec.memory_bytes).sum();
        admitted + self.jobs.values().map(|job| job.held_bytes).sum::<u64>()
    }

    fn running(&self, resource: ResourceId) -> usize {
        let monotasks = self.bodies.values().flat_map(Body::running);
        monotasks.filter(|spec| spec.resource == resource).count()
    }

    /// Returns the ready monotasks of jobs that are not stopped.
    fn ready(&self, resource: ResourceId) -> Vec<(MultitaskId, JobId, Phase)> {
        let live = self.bodies.iter().filter(|(_, body)| !self.jobs[&body.spec.job].stopped);
        live.flat_map(|(id, body)| {
            let ready = body.ready().filter(|(_, spec)| spec.resource == resource);
            ready.map(|(_, spec)| (*id, body.spec.job, spec.phase))
        })
        .collect()
    }

    /// Returns the multitasks with a running fetch on the resource.
    fn fetching(&self, resource: ResourceId) -> BTreeSet<MultitaskId> {
        let fetch = |spec: &MonotaskSpec| spec.resource == resource && spec.phase == Phase::Fetch;
        let fetches = |body: &Body| body.running().any(fetch);
        self.bodies.iter().filter(|(_, body)| fetches(body)).map(|(id, _)| *id).collect()
    }

    pub(super) fn check_admit(&self, id: MultitaskId) {
        let body = &self.bodies[&id];
        assert_eq!(body.state, MultitaskState::Waiting, "admitted twice");
        assert!(!self.jobs[&body.spec.job].stopped, "admitted for a stopped job");
        let admitted = self.admitted().count();
        assert!(admitted < self.scheduler.places() as usize, "admitted beyond the places");
        let held = self.held_bytes() + body.spec.memory_bytes;
        let fits = self.config.memory_bytes.is_none_or(|budget| held <= budget);
        assert!(fits || admitted == 0, "admitted beyond the budget: {held} bytes");
    }

    pub(super) fn check_start(&mut self, id: MonotaskId, resource: ResourceId) {
        let body = &self.bodies[&id.multitask];
        let (job, phase) = (body.spec.job, body.monotasks[id.index as usize].0.phase);
        assert!(!self.jobs[&job].stopped, "started for a stopped job");
        let ready = body.ready().find(|(index, _)| *index == id.index);
        let (_, spec) = ready.expect("the monotask is ready");
        assert_eq!(spec.resource, resource);
        let running = self.running(resource);
        let concurrency = self.scheduler.concurrency(resource);
        assert!(running < concurrency as usize, "{running} are already running on {resource:?}");
        if let Some(limit) = self.specs[resource.0 as usize].multitasks_at_once
            && phase == Phase::Fetch
        {
            let mut fetching = self.fetching(resource);
            fetching.insert(id.multitask);
            assert!(fetching.len() <= limit as usize, "fetches of {fetching:?}");
        }
        if self.shape.uniform {
            self.count_passed(resource, job, phase);
        }
    }

    /// Counts a start for every phase with ready work on the resource that was not served.
    fn count_passed(&mut self, resource: ResourceId, job: JobId, phase: Phase) {
        let ready: BTreeSet<_> = self.ready(resource).into_iter().map(|(_, j, p)| (j, p)).collect();
        self.passed.retain(|(r, j, p), _| *r != resource || ready.contains(&(*j, *p)));
        for (j, p) in ready {
            *self.passed.entry((resource, j, p)).or_default() += 1;
        }
        let passed = self.passed.remove(&(resource, job, phase)).unwrap_or(0);
        let longest = self.passed.values().copied().max().unwrap_or(0);
        self.longest_wait = self.longest_wait.max(longest).max(passed);
    }

    pub(super) fn check_ended(&mut self, id: MultitaskId, outcome: Outcome) {
        let body = self.bodies.get(&id).expect("the multitask is live");
        assert_ne!(body.state, MultitaskState::Expanding, "ended while being planned");
        assert_eq!(body.running().count(), 0, "ended while running");
        let job = self.jobs.get_mut(&body.spec.job).unwrap();
        let over = body.monotasks.iter().all(|(_, state)| *state == MonotaskState::Ended);
        let name = match outcome {
            Outcome::Done => {
                assert!(over && body.state == MultitaskState::Expanded && !job.stopped);
                "done"
            }
            Outcome::Failed => {
                assert!(body.failed);
                job.failures += 1;
                "failed"
            }
            Outcome::Cancelled => {
                assert!(job.stopped && !body.failed);
                "cancelled"
            }
        };
        *self.outcomes.entry(name).or_default() += 1;
    }

    /// Checks, after all decisions, that the states agree and that no resource idles with runnable work.
    pub(super) fn check_drained(&self) {
        assert_eq!(self.scheduler.memory_held(), self.held_bytes());
        assert_eq!(self.scheduler.live(), self.bodies.len());
        let admitted = self.admitted().count();
        assert_eq!(self.scheduler.admitted() as usize, admitted);
        let waiting: Vec<_> =
            self.bodies.values().filter(|body| body.state == MultitaskState::Waiting).collect();
        assert_eq!(self.scheduler.waiting(), waiting.len());
        if !waiting.is_empty() && admitted < self.scheduler.places() as usize {
            let too_large = |body: &&Body| {
                let held = self.held_bytes() + body.spec.memory_bytes;
                self.config.memory_bytes.is_some_and(|budget| held > budget)
            };
            assert!(admitted > 0 && waiting.iter().any(too_large), "waits without a reason");
        }
        for index in 0..self.specs.len() {
            self.check_idle(ResourceId(index as u32));
        }
    }

    fn check_idle(&self, resource: ResourceId) {
        let (running, ready) = (self.running(resource), self.ready(resource));
        assert_eq!(self.scheduler.running(resource) as usize, running);
        assert_eq!(self.scheduler.queued(resource), ready.len());
        if running >= self.scheduler.concurrency(resource) as usize || ready.is_empty() {
            return;
        }
        let limit = self.specs[resource.0 as usize].multitasks_at_once;
        let limit = limit.expect("idle with runnable work") as usize;
        let fetching = self.fetching(resource);
        assert_eq!(fetching.len(), limit, "idle with room for fetches");
        for (id, _, phase) in ready {
            let waits = phase == Phase::Fetch && !fetching.contains(&id);
            assert!(waits, "idle though {phase:?} of {id:?} could run");
        }
    }

    pub(super) fn check_end(&self) {
        assert!(self.bodies.is_empty(), "never ended: {:?}", self.bodies);
        assert_eq!(self.outcomes.values().sum::<u64>(), self.submitted);
        for (id, job) in &self.jobs {
            assert_eq!(job.failures, u32::from(job.failed), "causes of {id:?}");
        }
        assert_eq!(self.scheduler.memory_held(), 0, "memory was not released");
        assert_eq!(self.scheduler.jobs(), 0, "finished jobs were not removed");
        let none: BTreeMap<usize, usize> = BTreeMap::new();
        let left = (0..self.specs.len()).map(|i| (i, self.scheduler.queued(ResourceId(i as u32))));
        assert_eq!(left.filter(|(_, queued)| *queued > 0).collect::<BTreeMap<_, _>>(), none);
    }
}
