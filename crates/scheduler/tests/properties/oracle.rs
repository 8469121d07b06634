//! A naive oracle that implements admission, local DAG and queues by linear searches over plain lists,
//! without derived state. It replays the calls of a [`World`](crate::workload::World) and must make the
//! same decisions.

use std::collections::{BTreeMap, BTreeSet};

use crate::workload::{LogEntry, Shape, run};
use pellucid_scheduler::*;

#[derive(Clone, Copy, PartialEq, Debug)]
enum MonotaskState {
    Waiting,
    Running { start_ns: Nanos, charged_ns: u64 },
    Ended,
}

#[derive(Clone, Copy, PartialEq)]
enum MultitaskState {
    Waiting,
    Expanding,
    Expanded,
    Ended,
}

struct Body {
    id: MultitaskId,
    spec: MultitaskSpec,
    state: MultitaskState,
    age: u64,
    failed: bool,
    monotasks: Vec<(MonotaskSpec, MonotaskState)>,
    /// Resources for which one of its monotasks was ever ready.
    used: BTreeSet<usize>,
}

#[derive(Default)]
struct Job {
    stopped: bool,
    turn: u64,
    held_bytes: u64,
}

struct Resource {
    spec: ResourceSpec,
    controller: Controller,
    tuned_for: BTreeSet<(JobId, u32)>,
    served_ns: BTreeMap<JobId, u64>,
    last: BTreeMap<JobId, usize>,
    window: Vec<MultitaskId>,
    floor_ns: u64,
    mean_ns: u64,
    writes_in_a_row: u32,
}

/// A ready monotask: its job, the age of its multitask, its id and its phase.
type Ready = (JobId, u64, MonotaskId, Phase);

struct Naive {
    now: Nanos,
    config: Config,
    resources: Vec<Resource>,
    jobs: BTreeMap<JobId, Job>,
    bodies: Vec<Body>,
    ended: Vec<(MultitaskId, Outcome)>,
    turns: u64,
    ages: u64,
}

fn is_write(phase: Phase) -> bool {
    matches!(phase, Phase::Spill | Phase::Write)
}

impl Naive {
    fn new(config: Config, specs: &[ResourceSpec]) -> Self {
        let resource = |spec: &ResourceSpec| Resource {
            spec: *spec,
            controller: Controller::new(spec.concurrency),
            tuned_for: BTreeSet::new(),
            served_ns: BTreeMap::new(),
            last: BTreeMap::new(),
            window: Vec::new(),
            floor_ns: 0,
            mean_ns: 1_000,
            writes_in_a_row: 0,
        };
        Naive {
            now: 0,
            config,
            resources: specs.iter().map(resource).collect(),
            jobs: BTreeMap::new(),
            bodies: Vec::new(),
            ended: Vec::new(),
            turns: 0,
            ages: 0,
        }
    }

    fn body(&mut self, id: MultitaskId) -> &mut Body {
        self.bodies.iter_mut().find(|b| b.id == id && b.state != MultitaskState::Ended).unwrap()
    }

    fn runs(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| !job.stopped)
    }

    fn ready(&self, resource: usize) -> Vec<Ready> {
        let mut ready = Vec::new();
        for body in self.bodies.iter().filter(|b| b.state == MultitaskState::Expanded) {
            for (index, (spec, state)) in (0..).zip(&body.monotasks) {
                let over = |a: &u32| body.monotasks[*a as usize].1 == MonotaskState::Ended;
                let here = spec.resource.0 as usize == resource && self.runs(body.spec.job);
                if here && *state == MonotaskState::Waiting && spec.after.iter().all(over) {
                    let id = MonotaskId { multitask: body.id, index };
                    ready.push((body.spec.job, body.age, id, spec.phase));
                }
            }
        }
        ready
    }

    /// Returns the jobs with ready monotasks, for each resource.
    fn queued_jobs(&self) -> Vec<BTreeSet<JobId>> {
        let jobs = |r| self.ready(r).into_iter().map(|(job, ..)| job).collect();
        (0..self.resources.len()).map(jobs).collect()
    }

    fn running(&self, resource: usize) -> u32 {
        let monotasks = self.bodies.iter().flat_map(|b| &b.monotasks);
        let runs = monotasks.filter(|(spec, state)| {
            spec.resource.0 as usize == resource && matches!(state, MonotaskState::Running { .. })
        });
        runs.count() as u32
    }

    fn places(&self) -> u32 {
        self.resources.iter().map(|r| r.controller.concurrency()).sum::<u32>() + 1
    }

    fn admitted(&self, job: Option<JobId>) -> u32 {
        let admitted = self.bodies.iter().filter(|b| {
            matches!(b.state, MultitaskState::Expanding | MultitaskState::Expanded)
                && job.is_none_or(|job| b.spec.job == job)
        });
        admitted.count() as u32
    }

    fn held_bytes(&self) -> u64 {
        let admitted = self
            .bodies
            .iter()
            .filter(|b| matches!(b.state, MultitaskState::Expanding | MultitaskState::Expanded));
        admitted.map(|b| b.spec.memory_bytes).sum::<u64>()
            + self.jobs.values().map(|job| job.held_bytes).sum::<u64>()
    }

    /// Returns the next multitask to be admitted, and whether there is memory for it.
    fn candidate(&self) -> Option<(usize, bool)> {
        if self.admitted(None) >= self.places() {
            return None;
        }
        let waiting = || self.bodies.iter().filter(|b| b.state == MultitaskState::Waiting);
        let jobs = waiting().map(|b| b.spec.job);
        let job = jobs.min_by_key(|job| (self.admitted(Some(*job)), self.jobs[job].turn, *job))?;
        let place =
            self.bodies.iter().position(|b| b.state == MultitaskState::Waiting && b.spec.job == job)?;
        let held = self.held_bytes() + self.bodies[place].spec.memory_bytes;
        let fits = self.config.memory_bytes.is_none_or(|budget| held <= budget);
        Some((place, fits || self.admitted(None) == 0))
    }

    fn has_fetch(&self, id: MultitaskId, resource: usize) -> bool {
        let fetch = |spec: &MonotaskSpec| spec.resource.0 as usize == resource && spec.phase == Phase::Fetch;
        let runs = |(spec, state): &(MonotaskSpec, MonotaskState)| {
            fetch(spec) && matches!(state, MonotaskState::Running { .. })
        };
        let ready = self.ready(resource);
        ready.iter().any(|r| r.2.multitask == id && r.3 == Phase::Fetch)
            || self.bodies.iter().any(|b| b.id == id && b.monotasks.iter().any(runs))
    }

    /// Updates windows and stages.
    fn settle(&mut self) {
        for r in 0..self.resources.len() {
            let mut window = std::mem::take(&mut self.resources[r].window);
            window.retain(|id| self.has_fetch(*id, r));
            self.resources[r].window = window;
            let ready: BTreeSet<_> = self.ready(r).into_iter().map(|(_, _, id, _)| id.multitask).collect();
            for body in self.bodies.iter_mut().filter(|b| ready.contains(&b.id)) {
                body.used.insert(r);
            }
            let used = self.bodies.iter().filter(|b| b.used.contains(&r));
            let used: BTreeSet<_> = used.map(|b| (b.spec.job, b.spec.stage)).collect();
            let resource = &mut self.resources[r];
            if !used.is_empty() && used != resource.tuned_for {
                resource.tuned_for = used;
                resource.controller.restart();
            }
        }
    }

    /// Starts jobs that return to a queue at the service of the job served last.
    fn raise_returning_jobs(&mut self, before: &[BTreeSet<JobId>]) {
        let after = self.queued_jobs();
        for (resource, (before, after)) in self.resources.iter_mut().zip(before.iter().zip(after)) {
            for job in after.difference(before) {
                let served = resource.served_ns.entry(*job).or_default();
                *served = (*served).max(resource.floor_ns);
            }
        }
    }

    /// Ends a running monotask. Returns its resource, start time and charge.
    fn stop(&mut self, id: MonotaskId) -> (usize, Nanos, u64) {
        let monotask = &mut self.body(id.multitask).monotasks[id.index as usize];
        let MonotaskState::Running { start_ns, charged_ns } = monotask.1 else {
            panic!("not running");
        };
        monotask.1 = MonotaskState::Ended;
        (monotask.0.resource.0 as usize, start_ns, charged_ns)
    }

    fn charge(&mut self, job: JobId, r: usize, start_ns: Nanos, charged_ns: u64) {
        let took_ns = (self.now - start_ns).max(1_000);
        let resource = &mut self.resources[r];
        resource.mean_ns = (resource.mean_ns / 8 * 7 + took_ns / 8).max(1_000);
        let served = resource.served_ns.entry(job).or_default();
        *served = (*served + took_ns).saturating_sub(charged_ns);
    }

    fn end_if_finished(&mut self, id: MultitaskId) {
        let Some(body) = self.bodies.iter().find(|b| b.id == id && b.state != MultitaskState::Ended) else {
            return;
        };
        let runs = self.runs(body.spec.job);
        let is = |state: fn(&MonotaskState) -> bool| body.monotasks.iter().any(|(_, s)| state(s));
        let running = is(|s| matches!(s, MonotaskState::Running { .. }));
        let left = is(|s| *s == MonotaskState::Waiting);
        let over = match body.state {
            MultitaskState::Waiting => !runs,
            MultitaskState::Expanding => false,
            MultitaskState::Expanded => !running && (!runs || !left),
            MultitaskState::Ended => false,
        };
        if over {
            let outcome = match (body.failed, runs) {
                (true, _) => Outcome::Failed,
                (false, true) => Outcome::Done,
                (false, false) => Outcome::Cancelled,
            };
            self.ended.push((id, outcome));
            let stage = (body.spec.job, body.spec.stage);
            self.body(id).state = MultitaskState::Ended;
            let same = |b: &Body| (b.spec.job, b.spec.stage) == stage;
            if !self.bodies.iter().any(|b| same(b) && b.state != MultitaskState::Ended) {
                self.bodies.retain(|b| !same(b));
            }
            self.settle();
        }
    }

    fn stop_job(&mut self, job: JobId, culprit: Option<MultitaskId>) {
        if !self.runs(job) {
            return;
        }
        self.jobs.get_mut(&job).unwrap().stopped = true;
        if let Some(culprit) = culprit {
            self.body(culprit).failed = true;
        }
        self.settle();
        let of_job = |b: &&Body| b.spec.job == job && b.state != MultitaskState::Ended;
        let (waiting, mut admitted): (Vec<_>, Vec<_>) =
            self.bodies.iter().filter(of_job).partition(|b| b.state == MultitaskState::Waiting);
        admitted.sort_by_key(|b| b.id);
        let ids: Vec<_> = admitted.iter().chain(&waiting).map(|b| b.id).collect();
        for id in ids {
            self.end_if_finished(id);
        }
    }

    fn apply(&mut self, entry: LogEntry) {
        let before = self.queued_jobs();
        match entry {
            LogEntry::AddJob(job) => {
                let turn = self.turns;
                self.jobs.insert(job, Job { turn, ..Job::default() });
            }
            LogEntry::Submit(id, spec) => {
                self.bodies.push(Body {
                    id,
                    spec,
                    state: MultitaskState::Waiting,
                    age: 0,
                    failed: false,
                    monotasks: Vec::new(),
                    used: BTreeSet::new(),
                });
                self.end_if_finished(id);
            }
            LogEntry::Expand(id, specs) => {
                let job = self.body(id).spec.job;
                let runs = self.runs(job);
                let body = self.body(id);
                body.state = MultitaskState::Expanded;
                if runs {
                    body.monotasks = specs.into_iter().map(|s| (s, MonotaskState::Waiting)).collect();
                }
                self.raise_returning_jobs(&before);
                self.settle();
                self.end_if_finished(id);
            }
            LogEntry::Complete(id, completion) => self.complete(id, completion, &before),
            LogEntry::Fail(id) => {
                let (resource, start_ns, charged_ns) = self.stop(id);
                let job = self.body(id.multitask).spec.job;
                self.charge(job, resource, start_ns, charged_ns);
                self.stop_job(job, Some(id.multitask));
                self.end_if_finished(id.multitask);
            }
            LogEntry::FailExpand(id) => {
                self.body(id).state = MultitaskState::Expanded;
                let job = self.body(id).spec.job;
                self.stop_job(job, Some(id));
                self.end_if_finished(id);
            }
            LogEntry::Cancel(job) => self.stop_job(job, None),
            LogEntry::EndJob(_) | LogEntry::Next(_) => {}
            LogEntry::Hold(job, bytes, true) => self.jobs.get_mut(&job).unwrap().held_bytes += bytes,
            LogEntry::Hold(_, _, false) => {}
            LogEntry::Release(job, bytes) => self.jobs.get_mut(&job).unwrap().held_bytes -= bytes,
        }
    }

    fn complete(&mut self, id: MonotaskId, completion: Completion, before: &[BTreeSet<JobId>]) {
        let place = self.body(id.multitask).monotasks[id.index as usize].0.resource.0 as usize;
        let running = self.running(place);
        let (resource, start_ns, charged_ns) = self.stop(id);
        let job = self.body(id.multitask).spec.job;
        if self.runs(job) {
            let then = completion.then.into_iter().map(|spec| (spec, MonotaskState::Waiting));
            self.body(id.multitask).monotasks.extend(then);
        }
        self.raise_returning_jobs(before);
        self.settle();
        let sample = Sample { start_ns, bytes: completion.bytes, running };
        self.resources[resource].controller.completed(self.now, sample);
        self.charge(job, resource, start_ns, charged_ns);
        self.end_if_finished(id.multitask);
    }

    fn decide(&mut self) -> Option<Decision> {
        if !self.ended.is_empty() {
            let (multitask, outcome) = self.ended.remove(0);
            return Some(Decision::Ended { multitask, outcome });
        }
        let candidate = self.candidate();
        if let Some((place, true)) = candidate {
            let job = self.bodies[place].spec.job;
            self.turns += 1;
            self.jobs.get_mut(&job).unwrap().turn = self.turns;
            self.bodies[place].state = MultitaskState::Expanding;
            self.bodies[place].age = self.ages;
            self.ages += 1;
            return Some(Decision::Admit(self.bodies[place].id));
        }
        let mostly = |budget: u64| self.held_bytes() > budget - budget / 5;
        let short = candidate.is_some() || self.config.memory_bytes.is_some_and(mostly);
        (0..self.resources.len()).find_map(|r| self.start(r, short))
    }

    fn start(&mut self, r: usize, short: bool) -> Option<Decision> {
        let running = self.running(r);
        let ready = self.ready(r);
        let resource = &mut self.resources[r];
        if running >= resource.controller.concurrency() {
            return None;
        }
        let limit = resource.spec.multitasks_at_once;
        let full = limit.is_some_and(|limit| resource.window.len() >= limit as usize);
        let open = |ready: &Ready| {
            !(full && ready.3 == Phase::Fetch && !resource.window.contains(&ready.2.multitask))
        };
        let open: Vec<Ready> = ready.into_iter().filter(open).collect();
        let writes_first = resource.writes_in_a_row < 8;
        let first: Vec<Ready> = open.iter().copied().filter(|r| is_write(r.3) == writes_first).collect();
        let open = if short && !first.is_empty() { first } else { open };
        let served = |job: &JobId| resource.served_ns.get(job).copied().unwrap_or(0);
        let job = open.iter().map(|r| (served(&r.0), r.0)).min()?.1;
        let last = resource.last.get(&job).copied().unwrap_or(0);
        let steps = |phase: Phase| (phase as usize + 5 - last - 1) % 5;
        let of_job = open.into_iter().filter(|r| r.0 == job);
        let (_, _, id, phase) = of_job.min_by_key(|r| (steps(r.3), r.1, r.2))?;
        resource.last.insert(job, phase as usize);
        resource.writes_in_a_row = if is_write(phase) { resource.writes_in_a_row + 1 } else { 0 };
        if limit.is_some() && phase == Phase::Fetch && !resource.window.contains(&id.multitask) {
            resource.window.push(id.multitask);
        }
        let charged_ns = resource.mean_ns;
        let served = resource.served_ns.entry(job).or_default();
        resource.floor_ns = resource.floor_ns.max(*served);
        *served += charged_ns;
        resource.controller.started();
        let start_ns = self.now;
        let monotask = &mut self.body(id.multitask).monotasks[id.index as usize];
        monotask.1 = MonotaskState::Running { start_ns, charged_ns };
        Some(Decision::Start { monotask: id, resource: ResourceId(r as u32) })
    }
}

#[test]
fn decisions_equal_those_of_the_oracle() {
    let shapes = [
        Shape { jobs: 1, multitasks: 3, monotasks: 3, uniform: false },
        Shape { jobs: 3, multitasks: 6, monotasks: 5, uniform: false },
        Shape { jobs: 4, multitasks: 8, monotasks: 6, uniform: true },
    ];
    for shape in shapes {
        for seed in 0..1_000 {
            let run = run(seed, shape);
            let mut naive = Naive::new(run.config, &run.resources);
            for (step, (now, entry)) in run.log.into_iter().enumerate() {
                naive.now = now;
                if let LogEntry::Next(decision) = entry {
                    let expect = naive.decide();
                    assert_eq!(decision, expect, "seed {seed} of {shape:?}, step {step}");
                } else {
                    naive.apply(entry);
                }
            }
        }
    }
}
