//! Drives the scheduler: one short lock round it, everything foreign outside.
//!
//! Whoever causes a decision (a worker that ended a monotask, a caller that
//! submits) takes decisions until there are none. A `Start` goes to its
//! resource's threads at once; what takes longer, planning a multitask and
//! telling it that it is done, becomes an action that the same thread then runs
//! without the lock. What an action causes in turn waits in the same list, so
//! that a chain of stages does not become a chain of calls.
//!
//! The scheduler ends no multitask that is being planned or of which something
//! runs, so a job is over only when no code of it runs any more.

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

use crate::buffer::Pool;
use crate::entry::{Entry, Slot, Ticket, take_apart};
use crate::guard::{drop_guarded, guarded};
use crate::job::{Ending, JobInner};
use crate::resource::Info;
use crate::{Error, Multitask, ResourceHandle, worker};

/// What the runtime, its threads and its jobs share.
pub(crate) struct Shared {
    /// Time zero of the scheduler.
    pub origin: Instant,
    pub state: Mutex<State>,
    pub pool: Arc<Pool>,
    /// Wakes the sampler: a job began, or the runtime closes.
    pub sampler: Condvar,
}

/// Everything under the lock.
pub(crate) struct State {
    pub scheduler: Scheduler,
    /// By the scheduler's number of the resource.
    pub lanes: Vec<Lane>,
    pub multitasks: HashMap<MultitaskId, Entry>,
    pub jobs: HashMap<JobId, Live>,
    actions: VecDeque<Action>,
    pub threads: Vec<JoinHandle<()>>,
    pub closing: bool,
}

/// A resource's threads and what waits for them.
pub(crate) struct Lane {
    pub resource: ResourceHandle,
    pub ready: VecDeque<Ticket>,
    /// Threads that wait, or will before they do anything else.
    pub idle: usize,
    pub threads: usize,
    pub wake: Arc<Condvar>,
}

/// A job that has not ended.
pub(crate) struct Live {
    pub job: Arc<JobInner>,
    /// Submitted and not yet ended.
    pub multitasks: usize,
    /// Set once: the first cause wins.
    pub ending: Option<Ending>,
}

/// Foreign code to run without the lock.
enum Action {
    Plan(MultitaskId),
    End(MultitaskId, scheduler::Outcome),
    /// A resource has no thread, and the system gives it none.
    Refuse(Box<Ticket>, std::io::Error),
    /// An error that is nobody's cause; dropping it is foreign code too.
    Drop(Ending),
}

thread_local! {
    /// This thread runs actions further up its stack.
    static DRAINING: Cell<bool> = const { Cell::new(false) };
}

impl State {
    /// Sets a job's ending, unless it has one: then that is why this one came.
    pub fn set_ending(&mut self, job: &JobInner, ending: Ending) {
        match self.jobs.get_mut(&job.id) {
            Some(live) if live.ending.is_none() => {
                job.set_stopped();
                live.ending = Some(ending);
            }
            _ => self.actions.push_back(Action::Drop(ending)),
        }
    }

    /// Takes over what a plan came to; gives it back where it cannot be.
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
    pub fn new(memory_bytes: Option<u64>) -> Arc<Shared> {
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
            pool: Pool::new(),
            sampler: Condvar::new(),
        })
    }

    /// The lock. Nothing foreign runs under it, so a poisoned one is as good.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, on the scheduler's clock.
    pub fn now(&self) -> scheduler::Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Registers a resource; `info` is told its number.
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

    /// Queues a multitask for admission; dropped where its job is over.
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

    /// Ends a job: what is queued is dropped, what runs is asked to stop.
    pub fn stop(self: &Arc<Self>, job: &Arc<JobInner>, ending: Ending) {
        let mut state = self.lock();
        state.set_ending(job, ending);
        state.scheduler.cancel(self.now(), job.id);
        let state = self.end_if_over(state, job.id);
        drop(self.drain(state, None));
    }

    /// Tells the scheduler something small, and does what comes of it.
    pub fn tell(self: &Arc<Self>, f: impl FnOnce(&mut Scheduler)) {
        let mut state = self.lock();
        f(&mut state.scheduler);
        drop(self.drain(state, None));
    }

    /// Takes decisions, and runs actions, until there are none. `own`: the resource
    /// that the calling thread will serve next.
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
            // This thread takes one itself, if nothing else keeps it.
            let mine = own.is_some_and(|o| o.0 as usize == lane) && state.actions.is_empty();
            self.wake(state, lane, usize::from(mine));
        }
    }

    /// Sees to it that a thread comes for each ticket of a lane but `mine`.
    fn wake(self: &Arc<Self>, state: &mut State, lane: usize, mine: usize) {
        let wanted = state.lanes[lane].ready.len().saturating_sub(mine);
        for _ in 0..wanted.min(state.lanes[lane].idle) {
            state.lanes[lane].wake.notify_one();
        }
        while state.lanes[lane].idle < wanted && state.lanes[lane].may_grow() {
            let Err(error) = worker::spawn(self, state, lane) else { continue };
            // Those that there are will come to it; without any, nobody will.
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
            // It is not ours: what it holds may come back here when it goes.
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

    /// Ends a job that has its ending and no multitask left.
    fn end_if_over<'a>(&'a self, mut state: MutexGuard<'a, State>, id: JobId) -> MutexGuard<'a, State> {
        let over = |live: &Live| live.multitasks == 0 && live.ending.is_some();
        if !state.jobs.get(&id).is_some_and(over) {
            return state;
        }
        let Some(Live { job, ending: Some(ending), .. }) = state.jobs.remove(&id) else {
            return state;
        };
        state.scheduler.release(id, job.let_go());
        state.scheduler.end_job(self.now(), id);
        let resources: Vec<_> = state.lanes.iter().map(|l| l.resource.clone()).collect();
        drop(state);
        job.end(ending, &resources);
        drop(job); // the last of it may join the trace's writer: not under the lock
        self.lock()
    }
}

impl Lane {
    /// Cores have all their threads from the start. On other resources a thread
    /// may be busy with an action while the scheduler counts its place as free, so
    /// there may be more threads than places.
    fn may_grow(&self) -> bool {
        self.resource.kind() != trace::kind::CPU && self.threads < 2 * self.resource.concurrency() as usize
    }
}
