//! Simulates the job on a virtual clock, with the scheduler that ran it.
//!
//! One [`Scheduler`] per machine receives the inputs that the engine gave it (jobs, multitasks, their
//! monotasks, ends) and starts monotasks; the service model ([`super::service`]) determines how long they
//! run. Events are handled in time order, and at one instant in the order of their creation, so that the
//! same job always gives the same time, bit for bit.
//!
//! Not modelled, because the trace does not hold it: memory held by exchanges (but while a stage spills, all exchanges
//! together hold what they held at the job's peak), and the driver's work beyond the measured gaps and lags.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use pellucid_scheduler::{
    Completion, Concurrency, Config, Decision, JobId, MonotaskId, MonotaskSpec, MultitaskId, MultitaskSpec,
    Phase, ResourceId, ResourceSpec, Scheduler,
};

use super::recorded::{Mono, Recorded, Submission};
use super::service::Service;
use crate::index::{Ix, JobIx, MachineIx, MultitaskIx, ResourceIx, StageIx, Table};

/// Throughput gain that the controller requires to climb. It is higher than live (7 %): here all
/// monotasks on a resource have exactly equal shares, so those that start together end together. The
/// controller's estimate assumes full concurrency, and is then too high when the rest runs with less.
/// Live, small differences keep monotasks apart.
const GAIN: f64 = 0.25;

/// An event of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A job is submitted.
    Job(JobIx),
    /// A job ends.
    End(JobIx),
    /// A stage is submitted.
    Stage(StageIx),
    /// A multitask is submitted.
    Task(MultitaskIx),
    /// A multitask's monotasks become known.
    Expand(MachineIx, MultitaskId),
    /// A monotask starts its work.
    Begin(ResourceIx, MonotaskId),
    /// Something on a resource ends, unless the lane's version has changed.
    Lane(ResourceIx, u64),
}

/// An action when work on a resource reaches a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Goal {
    Monotask(MonotaskId),
    /// A running monotask submits a multitask.
    Submit(MultitaskIx),
}

/// A resource and its running monotasks, all at the same speed.
#[derive(Debug, Default)]
struct Lane {
    /// Ordered by the accumulated work at which they are reached, as ordered bits.
    goals: BinaryHeap<Reverse<(u64, u64, Goal)>>,
    working: u32,
    /// Work done by a monotask that started at the lane's start.
    done: f64,
    speed: f64,
    at_ns: u64,
    /// Time since which nothing runs here; `None` if nothing has run yet.
    rests_since_ns: Option<u64>,
    /// Remaining credit, as work.
    credit: f64,
    version: u64,
    /// Lanes that share a link with this one, and with it their speed.
    shares_link: Vec<ResourceIx>,
}

/// A machine's scheduler, with the maps from its ids.
struct Machine {
    scheduler: Scheduler,
    jobs: Table<JobIx, JobId>,
    /// By the multitask's slot.
    tasks: Vec<MultitaskIx>,
}

struct Simulation<'a> {
    recorded: &'a Recorded,
    /// By resource: true if it takes no time.
    free: &'a Table<ResourceIx, bool>,
    now_ns: u64,
    count: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Submissions of multitasks. They have a queue of their own because a large stage submits all of its
    /// multitasks at once, which would slow down every other event.
    submissions: BinaryHeap<Reverse<(u64, u64, MultitaskIx)>>,
    machines: Table<MachineIx, Machine>,
    lanes: Table<ResourceIx, Lane>,
    /// The id of each resource in its machine's scheduler.
    ids: Table<ResourceIx, ResourceId>,
    /// By machine and scheduler id: the resource.
    resources: Table<MachineIx, Vec<ResourceIx>>,
    stages: Table<StageIx, StageState>,
    jobs: Table<JobIx, JobState>,
    /// Multitasks submitted by a monotask, by multitask and monotask.
    submitted_by: BTreeMap<(MultitaskIx, u32), Vec<(f64, MultitaskIx)>>,
    ended_ns: u64,
}

#[derive(Debug, Default)]
struct StageState {
    waits_for: usize,
    dependents: Vec<StageIx>,
    tasks: Vec<MultitaskIx>,
    /// Multitasks that have not ended, except those that come after all others.
    left: usize,
    last: Vec<MultitaskIx>,
    /// True if it writes what does not fit into memory.
    spills: bool,
}

#[derive(Debug, Default)]
struct JobState {
    first: Vec<StageIx>,
    left: usize,
    dependents: Vec<JobIx>,
    /// Number of running stages that write what does not fit into memory.
    spilling: usize,
    ended: bool,
}

/// Returns the time of the jobs from the first submission to the last end; `free` marks resources that
/// take no time. Returns `None` if the recorded job cannot be simulated (a damaged trace with a cycle).
pub(crate) fn simulate(recorded: &Recorded, free: &Table<ResourceIx, bool>) -> Option<u64> {
    let mut simulation = Simulation::new(recorded, free);
    simulation.begin();
    while let Some((at, event)) = simulation.next() {
        if at == u64::MAX {
            return None; // over five centuries: the times are damaged
        }
        simulation.now_ns = at;
        simulation.handle(event)?;
    }
    simulation.jobs.iter().all(|job| job.ended).then_some(simulation.ended_ns)
}

impl<'a> Simulation<'a> {
    fn new(recorded: &'a Recorded, free: &'a Table<ResourceIx, bool>) -> Self {
        let mut simulation = Simulation {
            recorded,
            free,
            now_ns: 0,
            count: 0,
            events: BinaryHeap::new(),
            submissions: BinaryHeap::new(),
            machines: Table::default(),
            lanes: recorded.services.iter().map(|_| Lane::default()).collect(),
            ids: Table::default(),
            resources: recorded.machines().map(|_| Vec::new()).collect(),
            stages: recorded.stages.iter().map(|_| StageState::default()).collect(),
            jobs: recorded.jobs.iter().map(|_| JobState::default()).collect(),
            submitted_by: BTreeMap::new(),
            ended_ns: 0,
        };
        simulation.add_machines();
        simulation.add_work();
        simulation
    }

    fn add_machines(&mut self) {
        for machine in self.recorded.machines() {
            let memory_bytes = self.recorded.memory_bytes.get(machine).copied().flatten();
            let mut scheduler = Scheduler::new(Config { memory_bytes });
            let jobs = self.jobs.iter().map(|_| scheduler.add_job(0)).collect();
            self.machines.push(Machine { scheduler, jobs, tasks: Vec::new() });
        }
        for (ix, service) in self.recorded.services.rows() {
            let Some(machine) = self.machines.get_mut(service.machine) else {
                self.ids.push(ResourceId(u32::MAX)); // its machine was removed
                continue;
            };
            let concurrency = if service.adapts {
                let (min, max) = (service.min_concurrency, service.max_concurrency);
                Concurrency::Adaptive { min, max, gain: GAIN }
            } else {
                Concurrency::Fixed(service.max_concurrency)
            };
            let spec = ResourceSpec { concurrency, multitasks_at_once: service.multitasks_at_once };
            self.ids.push(machine.scheduler.add_resource(spec));
            self.resources[service.machine].push(ix);
        }
        for (ix, service) in self.recorded.services.rows() {
            let link = service.link.unwrap_or(ix);
            let linked = |other: &(ResourceIx, &Service)| other.0 == link || other.1.link == Some(link);
            let group: Vec<_> = self.recorded.services.rows().filter(linked).collect();
            if group.len() > 1 {
                self.lanes[ix].shares_link = group.iter().map(|(other, _)| *other).collect();
            }
        }
    }

    fn add_work(&mut self) {
        for (ix, task) in self.recorded.tasks.rows() {
            let stage = &mut self.stages[task.stage];
            stage.spills |= task.monotasks.iter().any(|m| m.phase == pellucid_trace::Phase::Spill);
            match task.submission {
                Submission::AfterStage(_) => stage.last.push(ix),
                Submission::WithStage(_) => {
                    stage.tasks.push(ix);
                    stage.left += 1;
                }
                Submission::During { multitask, monotask, share } => {
                    self.submitted_by.entry((multitask, monotask)).or_default().push((share, ix));
                    stage.left += 1;
                }
            }
        }
        for (ix, stage) in self.recorded.stages.rows() {
            self.stages[ix].waits_for = stage.after.len();
            for before in &stage.after {
                self.stages[*before].dependents.push(ix);
            }
            let job = &mut self.jobs[stage.job];
            job.left += 1;
            if stage.after.is_empty() {
                job.first.push(ix);
            }
        }
        for (ix, job) in self.recorded.jobs.rows() {
            if let Some(after) = job.after {
                self.jobs[after].dependents.push(ix);
            }
        }
    }

    fn begin(&mut self) {
        for (ix, job) in self.recorded.jobs.rows() {
            if job.after.is_none() {
                self.push(job.gap_ns, Event::Job(ix));
            }
        }
    }

    fn push(&mut self, in_ns: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now_ns.saturating_add(in_ns), self.count, event)));
    }

    /// Queues the submission of a multitask.
    fn push_task(&mut self, in_ns: u64, task: MultitaskIx) {
        self.count += 1;
        self.submissions.push(Reverse((self.now_ns.saturating_add(in_ns), self.count, task)));
    }

    /// Returns the next event: the earliest, and among equals the one created first.
    fn next(&mut self) -> Option<(u64, Event)> {
        let submission = self.submissions.peek().map(|Reverse((at, count, _))| (*at, *count));
        let event = self.events.peek().map(|Reverse((at, count, _))| (*at, *count));
        match submission.is_some_and(|submission| event.is_none_or(|event| submission < event)) {
            true => self.submissions.pop().map(|Reverse((at, _, task))| (at, Event::Task(task))),
            false => self.events.pop().map(|Reverse((at, _, event))| (at, event)),
        }
    }

    fn handle(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Job(job) => self.submit_job(job),
            Event::End(job) => self.end_job(job),
            Event::Stage(stage) => self.submit_stage(stage),
            Event::Task(task) => {
                let machine = self.submit(task);
                self.decide(machine)?;
            }
            Event::Expand(machine, id) => {
                self.expand(machine, id)?;
                self.decide(machine)?;
            }
            Event::Begin(lane, id) => self.work(lane, id),
            Event::Lane(lane, version) => {
                if self.lanes[lane].version == version {
                    self.reach(lane)?;
                }
            }
        }
        Some(())
    }

    fn submit_job(&mut self, job: JobIx) {
        let stages = std::mem::take(&mut self.jobs[job].first);
        for stage in &stages {
            self.push(self.recorded.stages[*stage].gap_ns, Event::Stage(*stage));
        }
        if self.jobs[job].left == 0 {
            self.push(self.recorded.jobs[job].tail_ns, Event::End(job));
        }
    }

    fn end_job(&mut self, job: JobIx) {
        self.jobs[job].ended = true;
        self.ended_ns = self.ended_ns.max(self.now_ns);
        for dependent in std::mem::take(&mut self.jobs[job].dependents) {
            self.push(self.recorded.jobs[dependent].gap_ns, Event::Job(dependent));
        }
    }

    fn submit_stage(&mut self, stage: StageIx) {
        let job = self.recorded.stages[stage].job;
        if self.stages[stage].spills {
            self.jobs[job].spilling += 1;
            if self.jobs[job].spilling == 1 {
                self.change_held(job, Scheduler::hold);
            }
        }
        for task in std::mem::take(&mut self.stages[stage].tasks) {
            if let Submission::WithStage(offset) = self.recorded.tasks[task].submission {
                self.push_task(offset, task);
            }
        }
        self.end_stage_if_over(stage);
    }

    /// Holds or releases the memory of a job's exchanges.
    fn change_held(&mut self, job: JobIx, change: fn(&mut Scheduler, JobId, u64)) {
        let bytes = self.recorded.memory[job].exchange_bytes as u64;
        for machine in &mut self.machines {
            change(&mut machine.scheduler, machine.jobs[job], bytes);
        }
    }

    fn end_stage_if_over(&mut self, stage: StageIx) {
        let state = &mut self.stages[stage];
        if state.left > 0 {
            return;
        }
        let last = std::mem::take(&mut state.last);
        if !last.is_empty() {
            state.left = last.len();
            for task in last {
                if let Submission::AfterStage(gap) = self.recorded.tasks[task].submission {
                    self.push_task(gap, task);
                }
            }
            return;
        }
        let job = self.recorded.stages[stage].job;
        if self.stages[stage].spills {
            self.jobs[job].spilling -= 1;
            if self.jobs[job].spilling == 0 {
                self.change_held(job, Scheduler::release);
            }
        }
        for dependent in std::mem::take(&mut self.stages[stage].dependents) {
            let waits_for = &mut self.stages[dependent].waits_for;
            *waits_for -= 1;
            if *waits_for == 0 {
                self.push(self.recorded.stages[dependent].gap_ns, Event::Stage(dependent));
            }
        }
        self.jobs[job].left -= 1;
        if self.jobs[job].left == 0 {
            self.push(self.recorded.jobs[job].tail_ns, Event::End(job));
        }
    }

    /// Submits a multitask and returns its machine.
    fn submit(&mut self, task: MultitaskIx) -> MachineIx {
        let of = &self.recorded.tasks[task];
        let ix = of.machine.min(MachineIx::new(self.machines.len() - 1));
        let machine = &mut self.machines[ix];
        let job = machine.jobs[self.recorded.stages[of.stage].job];
        let spec = MultitaskSpec { job, stage: of.stage.0, memory_bytes: of.memory_bytes };
        let id = machine.scheduler.submit(self.now_ns, spec);
        if machine.tasks.len() <= id.slot() {
            machine.tasks.resize(id.slot() + 1, MultitaskIx::default());
        }
        machine.tasks[id.slot()] = task;
        ix
    }

    fn expand(&mut self, machine: MachineIx, id: MultitaskId) -> Option<()> {
        let of = &mut self.machines[machine];
        let task = &self.recorded.tasks[of.tasks[id.slot()]];
        let spec = |m: &Mono| MonotaskSpec {
            resource: self.ids[m.resource],
            phase: phase(m.phase),
            after: m.after.clone(),
            bytes: 0,
        };
        let specs = task.monotasks.iter().map(spec).collect();
        of.scheduler.expand(self.now_ns, id, specs).ok()
    }

    /// Carries out the decisions of a machine's scheduler until it has none left.
    fn decide(&mut self, machine: MachineIx) -> Option<()> {
        while let Some(decision) = self.machines[machine].scheduler.next(self.now_ns) {
            match decision {
                Decision::Admit(id) => {
                    let task = self.machines[machine].tasks[id.slot()];
                    match self.recorded.tasks[task].plan_ns {
                        0 => self.expand(machine, id)?,
                        plan_ns => self.push(plan_ns, Event::Expand(machine, id)),
                    }
                }
                Decision::Start { monotask, resource } => {
                    let lane = self.resources[machine][resource.0 as usize];
                    self.start(machine, lane, monotask)?;
                }
                Decision::Ended { multitask, .. } => {
                    let task = self.machines[machine].tasks[multitask.slot()];
                    let stage = self.recorded.tasks[task].stage;
                    self.stages[stage].left -= 1;
                    self.end_stage_if_over(stage);
                }
            }
        }
        Some(())
    }

    fn monotask(&self, machine: MachineIx, id: MonotaskId) -> (&'a Mono, MultitaskIx) {
        let task = self.machines[machine].tasks[id.multitask.slot()];
        (&self.recorded.tasks[task].monotasks[id.index as usize], task)
    }

    fn start(&mut self, machine: MachineIx, lane: ResourceIx, id: MonotaskId) -> Option<()> {
        let (monotask, task) = self.monotask(machine, id);
        if self.free[lane] {
            for (_, made) in self.submitted_by.remove(&(task, id.index)).unwrap_or_default() {
                self.push_task(0, made);
            }
            return self.complete(machine, id, 0);
        }
        match monotask.lag_ns {
            0 => self.work(lane, id),
            lag_ns => self.push(lag_ns, Event::Begin(lane, id)),
        }
        Some(())
    }

    fn complete(&mut self, machine: MachineIx, id: MonotaskId, bytes: u64) -> Option<()> {
        let completion = Completion { bytes, then: Vec::new() };
        self.machines[machine].scheduler.complete(self.now_ns, id, completion).ok()
    }

    /// Starts a monotask's work on a resource.
    fn work(&mut self, lane: ResourceIx, id: MonotaskId) {
        let machine = self.recorded.services[lane].machine;
        let (monotask, task) = self.monotask(machine, id);
        self.advance(lane);
        let made = self.submitted_by.remove(&(task, id.index)).unwrap_or_default();
        let service = &self.recorded.services[lane];
        let at = &mut self.lanes[lane];
        if at.working == 0 {
            let rested_ns = at.rests_since_ns.map_or(f64::INFINITY, |since| (self.now_ns - since) as f64);
            let rate = service.curve.total(1);
            at.credit = (at.credit + rested_ns.min(service.credit_ns) * rate).min(service.credit_ns * rate);
        }
        let credit = at.credit.min(monotask.work);
        at.credit -= credit;
        let work = monotask.work - credit;
        for (share, made) in made {
            self.count += 1;
            let goal = at.done + work * share;
            at.goals.push(Reverse((goal.to_bits(), self.count, Goal::Submit(made))));
        }
        self.count += 1;
        let goal = at.done + work;
        at.goals.push(Reverse((goal.to_bits(), self.count, Goal::Monotask(id))));
        at.working += 1;
        self.update_speed(lane);
    }

    /// Completes everything on a resource that has reached its goal.
    fn reach(&mut self, lane: ResourceIx) -> Option<()> {
        self.advance(lane);
        let machine = self.recorded.services[lane].machine;
        loop {
            let at = &mut self.lanes[lane];
            let reached = at.done * (1.0 + 1e-12) + 1e-6;
            let Some(Reverse((goal, _, what))) = at.goals.peek().copied() else { break };
            if f64::from_bits(goal) > reached {
                break;
            }
            at.goals.pop();
            match what {
                Goal::Submit(task) => self.push_task(0, task),
                Goal::Monotask(id) => {
                    at.working -= 1;
                    at.rests_since_ns = Some(self.now_ns);
                    let (monotask, _) = self.monotask(machine, id);
                    self.complete(machine, id, monotask.work as u64)?;
                }
            }
        }
        self.update_speed(lane);
        self.decide(machine)
    }

    /// Advances the work of a resource, and of those that share its link, to the present.
    fn advance(&mut self, lane: ResourceIx) {
        let group = std::mem::take(&mut self.lanes[lane].shares_link);
        for other in group.iter().copied().chain(group.is_empty().then_some(lane)) {
            let at = &mut self.lanes[other];
            at.done += at.speed * (self.now_ns - at.at_ns) as f64;
            at.at_ns = self.now_ns;
        }
        self.lanes[lane].shares_link = group;
    }

    /// Updates the speed of a resource and of those that share its link, and schedules the next end
    /// there.
    fn update_speed(&mut self, lane: ResourceIx) {
        let group = std::mem::take(&mut self.lanes[lane].shares_link);
        let on_link: u32 = group.iter().map(|other| self.lanes[*other].working).sum();
        for other in group.iter().copied().chain(group.is_empty().then_some(lane)) {
            let service = &self.recorded.services[other];
            let link = service.link.filter(|link| !self.free[*link]);
            let through = link
                .map(|link| self.recorded.services[link].curve.total(on_link) / f64::from(on_link.max(1)));
            let at = &mut self.lanes[other];
            if at.working == 0 && at.goals.is_empty() {
                at.done = 0.0;
            }
            let alone = service.curve.total(at.working) / f64::from(at.working.max(1));
            at.speed = alone.min(through.unwrap_or(f64::INFINITY));
            at.version += 1;
            if let Some(Reverse((goal, ..))) = at.goals.peek() {
                let left = (f64::from_bits(*goal) - at.done).max(0.0) / at.speed.max(1e-12);
                let version = at.version;
                self.push(left.ceil() as u64, Event::Lane(other, version));
            }
        }
        self.lanes[lane].shares_link = group;
    }
}

fn phase(phase: pellucid_trace::Phase) -> Phase {
    match phase {
        pellucid_trace::Phase::Read => Phase::Read,
        pellucid_trace::Phase::Fetch => Phase::Fetch,
        pellucid_trace::Phase::Compute => Phase::Compute,
        pellucid_trace::Phase::Spill => Phase::Spill,
        pellucid_trace::Phase::Write => Phase::Write,
    }
}
