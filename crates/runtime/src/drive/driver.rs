//! Drives the scheduler under one short lock, and runs all caller code outside of it.
//!
//! The thread that causes a decision (a worker that has ended a monotask, or a caller that submits) takes
//! decisions until there are none left. A `Start` goes to the threads of its resource at once. Longer
//! work, planning a multitask or calling its `done`, becomes an action, which the same thread runs
//! without the lock. Actions that follow from an action go to the same queue, so that a chain of stages
//! does not become a deep stack.
//!
//! The scheduler does not end a multitask while it is being planned or one of its monotasks runs, so a
//! job ends only after all its code has returned.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use pellucid_scheduler as scheduler;
use pellucid_scheduler::{
    Decision, JobId, MonotaskSpec, MultitaskId, MultitaskSpec, ResourceSpec, Scheduler,
};
use pellucid_trace as trace;
use pellucid_trace::guard::{drop_guarded, guarded};

use crate::drive::entry::{Entry, Slot, Ticket, take_apart};
use crate::drive::worker;
use crate::io::buffer::Pool;
use crate::resource::Info;
use crate::stacks::StackSampling;
use crate::state::{Ending, JobInner};
use crate::{Error, Multitask, ResourceHandle};

/// The state that the runtime, its threads and its jobs share.
pub(crate) struct Shared {
    /// Time zero of the scheduler.
    pub origin: Instant,
    pub state: Mutex<State>,
    pub pool: Arc<Pool>,
    /// Notified when a job begins or the runtime closes.
    pub sampler: Condvar,
    pub stacks: StackSampling,
}

/// The state under the lock.
pub(crate) struct State {
    pub scheduler: Scheduler,
    /// Indexed by the scheduler's resource id.
    pub lanes: Vec<Lane>,
    pub multitasks: HashMap<MultitaskId, Entry>,
    pub jobs: HashMap<JobId, Live>,
    actions: VecDeque<Action>,
    pub threads: Vec<JoinHandle<()>>,
    pub closing: bool,
}

/// The threads of a resource and the monotasks that wait for them.
pub(crate) struct Lane {
    pub resource: ResourceHandle,
    pub ready: VecDeque<Ticket>,
    /// Number of threads that wait, including new ones that have not started yet.
    pub idle: usize,
    pub threads: usize,
    pub wake: Arc<Condvar>,
}

/// A job that has not ended.
pub(crate) struct Live {
    pub job: Arc<JobInner>,
    /// Number of submitted multitasks that have not ended.
    pub multitasks: usize,
    /// Set once; the first cause wins.
    pub ending: Option<Ending>,
}

/// Caller code to run without the lock.
enum Action {
    Plan(MultitaskId),
    End(MultitaskId, scheduler::Outcome),
    /// Fails a monotask whose resource has no thread and cannot start one.
    Refuse(Box<Ticket>, std::io::Error),
    /// Drops an ending that was not the first cause. Its error is caller code, too.
    Drop(Ending),
}

thread_local! {
    /// True if this thread runs actions further up its stack.
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}

impl State {
    /// Sets a job's ending, unless it has one: later endings are consequences of the first.
    pub fn set_ending(&mut self, job: &JobInner, ending: Ending) {
        match self.jobs.get_mut(&job.id) {
            Some(live) if live.ending.is_none() => {
                job.set_stopped();
                live.ending = Some(ending);
            }
            _ => self.actions.push_back(Action::Drop(ending)),
        }
    }

    /// Adds the planned monotasks of a multitask; returns them with the error if the plan is invalid.
    fn expand(
        &mut self,
        id: MultitaskId,
        ix: trace::MultitaskIx,
        specs: Vec<MonotaskSpec>,
        slots: Vec<Slot>,
        now: scheduler::Nanos,
    ) -> Result<(), (Error, Vec<Slot>)> {
        if let Err(invalid) = self.scheduler.expand(now, id, specs) {
            return Err((invalid.into(), slots));
        }
        if let Some(entry) = self.multitasks.get_mut(&id) {
            entry.expanded(ix, slots, Instant::now());
        }
        Ok(())
    }
}

impl Shared {
    pub fn new(memory_bytes: Option<u64>, stacks: StackSampling) -> Arc<Shared> {
        let state = State {
            scheduler: Scheduler::new(scheduler::Config { memory_bytes }),
            lanes: Vec::new(),
            multitasks: HashMap::new(),
            jobs: HashMap::new(),
            actions: VecDeque::new(),
            threads: Vec::new(),
            closing: false,
        };
        Arc::new(Shared {
            origin: Instant::now(),
            state: Mutex::new(state),
            pool: Pool::new(memory_bytes),
            sampler: Condvar::new(),
            stacks,
        })
    }

    /// Locks the state. No caller code runs under the lock, so poisoning can be ignored.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current time on the scheduler's clock.
    pub fn now(&self) -> scheduler::Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Registers a resource; `info` receives its id.
    pub fn add_resource(
        &self,
        spec: ResourceSpec,
        info: impl FnOnce(scheduler::ResourceId) -> Info,
    ) -> ResourceHandle {
        let mut state = self.lock();
        let id = state.scheduler.add_resource(spec);
        let resource = ResourceHandle(Arc::new(info(id)));
        debug_assert_eq!(id.0 as usize, state.lanes.len());
        state.lanes.push(Lane {
            resource: resource.clone(),
            ready: VecDeque::new(),
            idle: 0,
            threads: 0,
            wake: Arc::new(Condvar::new()),
        });
        resource
    }

    /// Queues a multitask for admission; drops it if its job has ended.
    pub fn submit(
        self: &Arc<Self>,
        job: &Arc<JobInner>,
        stage: trace::StageIx,
        partition: u32,
        memory_bytes: u64,
        body: Box<dyn Multitask>,
    ) {
        let mut state = self.lock();
        let live = state.jobs.get_mut(&job.id).filter(|live| live.ending.is_none());
        let Some(live) = live else {
            drop(state);
            return drop_guarded(body);
        };
        live.multitasks += 1;
        job.submitted();
        let spec = MultitaskSpec { job: job.id, stage, memory_bytes };
        let id = state.scheduler.submit(self.now(), spec);
        let entry = Entry::new(job, stage, partition, memory_bytes, body);
        state.multitasks.insert(id, entry);
        drop(self.drain(state, None));
    }

    /// Ends a job: drops queued work and asks running work to stop.
    pub fn stop(self: &Arc<Self>, job: &Arc<JobInner>, ending: Ending) {
        let mut state = self.lock();
        state.set_ending(job, ending);
        state.scheduler.cancel(self.now(), job.id);
        let state = self.end_if_over(state, job.id);
        drop(self.drain(state, None));
    }

    /// Updates the scheduler and handles the decisions that follow.
    pub fn update(self: &Arc<Self>, f: impl FnOnce(&mut Scheduler)) {
        let mut state = self.lock();
        f(&mut state.scheduler);
        drop(self.drain(state, None));
    }

    /// Takes decisions and runs actions until there are none left. `own` is the resource that the calling
    /// thread will serve next.
    pub fn drain<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        own: Option<scheduler::ResourceId>,
    ) -> MutexGuard<'a, State> {
        let nested = DRAINING.replace(true);
        loop {
            self.decide(&mut state, own);
            if nested {
                break;
            }
            let Some(action) = state.actions.pop_front() else { break };
            drop(state);
            match action {
                Action::Plan(id) => self.plan(id),
                Action::End(id, outcome) => self.end(id, outcome),
                Action::Refuse(ticket, error) => self.refuse(*ticket, &error),
                Action::Drop(ending) => drop_guarded(ending),
            }
            state = self.lock();
        }
        DRAINING.set(nested);
        state
    }

    fn decide(self: &Arc<Self>, state: &mut State, own: Option<scheduler::ResourceId>) {
        let now = self.now();
        let mut fed: Vec<usize> = Vec::new();
        while let Some(decision) = state.scheduler.next(now) {
            match decision {
                Decision::Admit(id) => state.actions.push_back(Action::Plan(id)),
                Decision::Ended { multitask, outcome } => {
                    state.actions.push_back(Action::End(multitask, outcome));
                }
                Decision::Start { monotask, resource } => {
                    if let Some(ticket) =
                        state.multitasks.get_mut(&monotask.multitask).and_then(|e| e.ticket(monotask))
                    {
                        let lane = resource.0 as usize;
                        state.lanes[lane].ready.push_back(ticket);
                        if !fed.contains(&lane) {
                            fed.push(lane);
                        }
                    }
                }
            }
        }
        for lane in fed {
            // This thread serves one ticket itself unless it has actions to run.
            let mine = own.is_some_and(|o| o.0 as usize == lane) && state.actions.is_empty();
            self.wake(state, lane, usize::from(mine));
        }
    }

    /// Wakes or starts a thread for each ticket of a lane except `mine` of them.
    fn wake(self: &Arc<Self>, state: &mut State, lane: usize, mine: usize) {
        let wanted = state.lanes[lane].ready.len().saturating_sub(mine);
        for _ in 0..wanted.min(state.lanes[lane].idle) {
            state.lanes[lane].wake.notify_one();
        }
        while state.lanes[lane].idle < wanted && state.lanes[lane].may_grow() {
            let Err(error) = worker::spawn(self, state, lane) else { continue };
            // Existing threads will serve the tickets; without any thread, they must fail.
            if state.lanes[lane].threads == 0 {
                while let Some(ticket) = state.lanes[lane].ready.pop_front() {
                    let error = std::io::Error::new(error.kind(), error.to_string());
                    state.actions.push_back(Action::Refuse(Box::new(ticket), error));
                }
            }
            break;
        }
    }

    fn plan(self: &Arc<Self>, id: MultitaskId) {
        let mut state = self.lock();
        let Some(entry) = state.multitasks.get_mut(&id) else { return };
        let job = Arc::clone(&entry.job);
        let body = entry.body.take();
        if job.is_stopped() || body.is_none() {
            state.scheduler.fail_expand(self.now(), id);
            drop(state);
            // Without the lock: dropping caller code may call back into the runtime.
            return drop_guarded(body);
        }
        let Some(mut body) = body else { return };
        let multitask = trace::Multitask {
            stage: entry.stage,
            partition: entry.partition,
            admitted_ns: job.recorder.now_ns(),
            memory_bytes: Some(entry.memory_bytes),
        };
        drop(state);
        let ix = job.recorder.multitask(multitask);
        let planned = guarded(|| take_apart(&job, body.plan()?));
        let mut state = self.lock();
        let expanded = match planned {
            Ok((specs, slots)) => state.expand(id, ix, specs, slots, self.now()),
            Err(error) => Err((error, Vec::new())),
        };
        if let Some(entry) = state.multitasks.get_mut(&id) {
            entry.body = Some(body);
        }
        if let Err((error, slots)) = expanded {
            state.set_ending(&job, Ending::Failed(error));
            state.scheduler.fail_expand(self.now(), id);
            drop(state);
            drop_guarded(slots);
        }
    }

    fn end(self: &Arc<Self>, id: MultitaskId, outcome: scheduler::Outcome) {
        let Some(mut entry) = self.lock().multitasks.remove(&id) else { return };
        let job = Arc::clone(&entry.job);
        if outcome == scheduler::Outcome::Done
            && !job.is_stopped()
            && let Some(body) = entry.body.take()
        {
            if let Err(error) = guarded(|| body.done()) {
                self.stop(&job, Ending::Failed(error));
            } else {
                job.completed();
            }
        }
        drop_guarded(entry);
        let mut state = self.lock();
        if let Some(live) = state.jobs.get_mut(&job.id) {
            live.multitasks -= 1;
        }
        drop(self.end_if_over(state, job.id));
    }

    fn refuse(self: &Arc<Self>, ticket: Ticket, error: &std::io::Error) {
        let message = format!(
            "cannot start a thread for I/O: {error}; raise the limit (ulimit -u) or lower --concurrency"
        );
        drop_guarded(ticket.run);
        let mut state = self.lock();
        state.set_ending(&ticket.job, Ending::Failed(message.into()));
        state.scheduler.fail(self.now(), ticket.id);
    }

    /// Ends a job that has an ending and no multitasks left.
    fn end_if_over<'a>(&'a self, mut state: MutexGuard<'a, State>, id: JobId) -> MutexGuard<'a, State> {
        let over = |live: &Live| live.multitasks == 0 && live.ending.is_some();
        if !state.jobs.get(&id).is_some_and(over) {
            return state;
        }
        let Some(Live { job, ending: Some(ending), .. }) = state.jobs.remove(&id) else {
            return state;
        };
        state.scheduler.release(id, job.take_held_bytes());
        state.scheduler.end_job(self.now(), id);
        let resources: Vec<_> = state.lanes.iter().map(|l| l.resource.clone()).collect();
        drop(state);
        job.end(ending, &resources, &self.stacks);
        drop(job); // without the lock: the last reference may join the trace's writer thread
        self.lock()
    }
}

impl Lane {
    /// Returns true if the lane may start a thread. Cores have all their threads from the start. On other
    /// resources a thread may run an action while the scheduler counts its slot as free, so there may be
    /// more threads than slots.
    fn may_grow(&self) -> bool {
        self.resource.kind() != trace::kind::CPU && self.threads < 2 * self.resource.concurrency() as usize
    }
}
