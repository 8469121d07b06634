//! A bundle: the partitions of one index that tasks use together, and how far they are.
//!
//! This is where tasks are inferred (paper §4.3). A bundle walks the statement table; whatever comes
//! next for its group, and has what it needs, is its next task. A gather whose chunks are not all there
//! is put aside, and the walk goes on: later statements run before it unless they touch what it reads
//! or writes, or it touches what they do. Bundles wait for each other through chunks and signals only,
//! so they are in different stages, and in different iterations, at the same time.
//!
//! A bundle is run by one thread at a time and holds no lock; what it needs from its worker is the
//! trait [`Host`]. It is all that moves when partitions migrate.

use std::cmp::Ordering;

use crate::data::{AnyData, Chunk};
use crate::error::JobError;
use crate::exchange::{Gathered, Routes, Sent};
use crate::plan::{BundleIx, Instance, Kind, Plan, Statement};
use crate::signals::Signal;
use crate::views::Partitions;

/// Gathers that may be put aside at once; past that, the walk waits.
const MAX_ASIDE: usize = 8;

/// Statements that one turn runs at most, so that bundles of a thread take turns.
const TURN: u32 = 1024;

/// What a bundle needs from the worker that runs it.
pub(crate) trait Host {
    /// The signal that ends an epoch, if it is known.
    fn signal(&self, epoch: u64) -> Option<Signal>;
    /// Whether a signal may be published: nobody is too far behind.
    fn may_publish(&mut self, epoch: u64, behind: &[(u32, u64)]) -> bool;
    /// Whether the signal about to be published should be one to take a snapshot at. `evaluated`: so
    /// many iterations began since the last.
    fn wants_snapshot(&self, evaluated: u32) -> bool;
    /// Tells every worker of a signal.
    fn publish(&mut self, epoch: u64, signal: Signal);
    /// A signal of an outermost loop was computed here.
    fn iterated(&mut self);
    /// Hands chunks to the bundles on the routes.
    fn send(&mut self, gather: Instance, source: u32, routes: &Routes, sent: &Sent);
    /// Saves what has to be saved of a bundle that is about to pass the signal of its epoch.
    fn save(&mut self, bundle: &mut Bundle);
    /// Keeps a number for the next report.
    fn observe(&mut self, statement: u32, epoch: u64, value: f64);
    /// Before a kernel runs; [`Host::after`] follows, unless it panics.
    fn before(&mut self, bundle: BundleIx, statement: u32);
    /// After a kernel ran; `bytes` says how many it may have touched.
    fn after(&mut self, bundle: BundleIx, statement: u32, iteration: u64, bytes: impl FnOnce() -> u64);
    /// Whether somebody wants something of the bundle between its tasks.
    fn attention(&self) -> bool;
    /// Room for one task's chunks, used again.
    fn scratch(&mut self) -> Sent;
    /// Gives the room back.
    fn reuse(&mut self, sent: Sent);
}

/// Why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Waits for chunks.
    Chunks,
    /// Waits for the signal of its epoch.
    Signal,
    /// Has a signal to publish and waits for others to catch up.
    Window,
    /// Could go on: the turn was long, or somebody wants something.
    More,
    /// Has reached the program's end.
    End,
}

/// Something for a bundle, from anywhere.
#[derive(Debug, Clone)]
pub(crate) enum Arrival {
    /// A chunk, or that there is none, of a source partition for a gather.
    Chunk { gather: Instance, source: u32, chunk: Option<Chunk> },
    /// All bundles of a worker have passed so many signals.
    Passed { worker: u32, epoch: u64 },
}

/// Chunks for one gather that has not run.
#[derive(Debug, Clone)]
pub(crate) struct Gathering {
    pub instance: Instance,
    pub missing: u32,
    pub heard: Vec<bool>,
    pub chunks: Vec<Option<Chunk>>,
}

impl Gathering {
    fn new(instance: Instance, expected: usize) -> Self {
        let (heard, chunks) = (vec![false; expected], vec![None; expected]);
        Self { instance, missing: expected as u32, heard, chunks }
    }
}

/// See the [module](self).
pub(crate) struct Bundle {
    pub ix: BundleIx,
    pub group: u32,
    pub index: u32,
    /// Signals passed, and the statement that the walk is at.
    pub position: Instance,
    /// Gathers put aside, all free of each other, and what they use.
    pub aside: Vec<Instance>,
    pub held_reads: u64,
    pub held_writes: u64,
    /// Gathers that ran in this epoch.
    pub gathered: Vec<u32>,
    pub iteration: u64,
    /// Iterations since the last snapshot, where this bundle computes the signal.
    pub evaluated: u32,
    /// Datasets written since the last signal that a snapshot was taken at, and before that one, by
    /// the epoch of the snapshot that has them.
    pub written: u64,
    pub written_before: Vec<(u64, u64)>,
    /// By dataset: the epoch of the snapshot that has its newest saved content.
    pub saved: Vec<Option<u64>>,
    pub states: Vec<Option<Box<dyn AnyData>>>,
    pub gathers: Vec<Gathering>,
    /// What workers said of how far they are; only where this bundle computes a signal.
    pub passed: Vec<(u32, u64)>,
    /// The statement whose kernel runs or ran last.
    pub running: u32,
    pub tasks: u64,
    /// Partitions have still to be loaded.
    pub unloaded: bool,
    /// The controller was told that it is at the program's end.
    pub told_end: bool,
}

impl Bundle {
    /// A bundle at the program's start, with nothing loaded.
    pub fn new(plan: &Plan, ix: BundleIx) -> Self {
        let (group, index) = plan.locate(ix);
        Self {
            ix,
            group,
            index,
            position: Instance { epoch: 0, statement: plan.groups[group as usize].enter[0] },
            aside: Vec::new(),
            held_reads: 0,
            held_writes: 0,
            gathered: Vec::new(),
            iteration: 0,
            evaluated: 0,
            written: 0,
            written_before: Vec::new(),
            saved: vec![None; plan.datasets.len()],
            states: plan.datasets.iter().map(|_| None).collect(),
            gathers: Vec::new(),
            passed: Vec::new(),
            running: 0,
            tasks: 0,
            unloaded: true,
            told_end: false,
        }
    }

    /// Takes in what arrived. What is late (told twice, or before a rollback) changes nothing.
    ///
    /// # Errors
    /// A chunk from another process that does not decode.
    pub fn receive(&mut self, plan: &Plan, arrival: Arrival) -> Result<(), JobError> {
        match arrival {
            Arrival::Passed { worker, epoch } => match self.passed.iter_mut().find(|p| p.0 == worker) {
                Some(passed) => passed.1 = passed.1.max(epoch),
                None => self.passed.push((worker, epoch)),
            },
            Arrival::Chunk { gather, source, chunk } => self.receive_chunk(plan, gather, source, chunk)?,
        }
        Ok(())
    }

    fn receive_chunk(
        &mut self,
        plan: &Plan,
        gather: Instance,
        source: u32,
        chunk: Option<Chunk>,
    ) -> Result<(), JobError> {
        let Kind::Gather { routes, .. } = &plan.statements[gather.statement as usize].kind else {
            return Ok(());
        };
        match routes.place(self.index, source) {
            Some(place) if !self.has_run(gather) => self.receive_at(plan, gather, place, chunk),
            _ => Ok(()),
        }
    }

    /// Takes in what a source at a place among a gather's has sent.
    ///
    /// # Errors
    /// As [`Bundle::receive`].
    pub fn receive_at(
        &mut self,
        plan: &Plan,
        gather: Instance,
        place: usize,
        chunk: Option<Chunk>,
    ) -> Result<(), JobError> {
        let Kind::Gather { routes, decode, .. } = &plan.statements[gather.statement as usize].kind else {
            return Ok(());
        };
        let chunk = match chunk {
            Some(Chunk::Encoded(bytes)) => match decode(&bytes) {
                Ok(decoded) => Some(Chunk::Typed(decoded)),
                Err(error) => return Err(self.failure(plan, gather.statement, format!("a chunk: {error}"))),
            },
            other => other,
        };
        let found = self.gathers.iter_mut().position(|g| g.instance == gather);
        let found = found.unwrap_or_else(|| {
            self.gathers.push(Gathering::new(gather, routes.expected(self.index)));
            self.gathers.len() - 1
        });
        let gathering = &mut self.gathers[found];
        if !gathering.heard[place] {
            gathering.heard[place] = true;
            gathering.missing -= 1;
            gathering.chunks[place] = chunk;
        }
        Ok(())
    }

    /// Whether an instance is behind the walk and not put aside. (Statement numbers do not say: an epoch
    /// may begin in the second half of a loop's body and end in the first.)
    fn has_run(&self, instance: Instance) -> bool {
        match instance.epoch.cmp(&self.position.epoch) {
            Ordering::Less => !self.aside.contains(&instance),
            Ordering::Equal => self.gathered.contains(&instance.statement),
            Ordering::Greater => false,
        }
    }

    fn failure(&self, plan: &Plan, statement: u32, cause: String) -> JobError {
        let stage = plan.statements[statement as usize].name.clone();
        JobError::Kernel { stage, partition: self.index, cause }
    }

    /// A panic of the kernel that ran last, as an error.
    pub fn panicked(&self, plan: &Plan, panic: &(dyn std::any::Any + Send)) -> JobError {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        self.failure(plan, self.running, format!("it panicked: {}", text.unwrap_or("without a message")))
    }

    /// Runs tasks until the bundle has to wait.
    ///
    /// # Errors
    /// What a kernel returned.
    pub fn turn(&mut self, plan: &Plan, host: &mut impl Host) -> Result<Turn, JobError> {
        for _ in 0..TURN {
            if host.attention() {
                return Ok(Turn::More);
            }
            if !self.aside.is_empty() {
                self.run_aside(plan, host)?;
            }
            let at = self.position.statement;
            let statement = &plan.statements[at as usize];
            if statement.writes & (self.held_reads | self.held_writes) | statement.reads & self.held_writes
                != 0
            {
                return Ok(Turn::Chunks);
            }
            if let Some(turn) = self.step(plan, host, at, statement)? {
                return Ok(turn);
            }
        }
        Ok(Turn::More)
    }

    /// One statement; `Some` where the walk has to stop.
    #[inline]
    fn step(
        &mut self,
        plan: &Plan,
        host: &mut impl Host,
        at: u32,
        statement: &Statement,
    ) -> Result<Option<Turn>, JobError> {
        match &statement.kind {
            Kind::Transform(kernel) => {
                self.run(plan, host, at, kernel)?;
                self.written |= statement.writes;
            }
            Kind::Scatter { kernel, routes } if routes.width(self.index) > 0 => {
                let (mut sent, source) = (host.scratch(), self.index);
                self.run(plan, host, at, |partitions| kernel(partitions, routes, source, &mut sent))?;
                let gather = Instance { epoch: self.position.epoch, statement: at + 1 };
                host.send(gather, source, routes, &sent);
                host.reuse(sent);
            }
            Kind::Scatter { .. } | Kind::Jump => {}
            Kind::Gather { routes, .. } if routes.expected(self.index) > 0 => {
                let instance = self.position;
                if !self.gather(plan, host, instance)? {
                    if self.aside.len() == MAX_ASIDE {
                        return Ok(Some(Turn::Chunks));
                    }
                    self.put_aside(plan, instance);
                }
            }
            Kind::Gather { .. } => {}
            Kind::Observe(kernel) => {
                self.running = at;
                let value = kernel(Partitions(self.states.as_mut_ptr()));
                host.observe(at, self.position.epoch, value);
            }
            Kind::Signal { .. } => return self.pass(plan, host, at, statement),
            Kind::End if self.aside.is_empty() => return Ok(Some(Turn::End)),
            Kind::End => return Ok(Some(Turn::Chunks)),
        }
        self.go_to(plan, statement.next);
        Ok(None)
    }

    fn go_to(&mut self, plan: &Plan, next: u32) {
        self.position.statement = plan.groups[self.group as usize].enter[next as usize];
    }

    #[inline]
    fn run(
        &mut self,
        plan: &Plan,
        host: &mut impl Host,
        at: u32,
        kernel: impl FnOnce(Partitions) -> Result<(), crate::error::Cause>,
    ) -> Result<(), JobError> {
        self.running = at;
        self.tasks += 1;
        host.before(self.ix, at);
        let done = kernel(Partitions(self.states.as_mut_ptr()));
        host.after(self.ix, at, self.iteration, || self.touched_bytes(plan, at));
        done.map_err(|cause| self.failure(plan, at, cause.to_string()))
    }

    /// Runs a gather if everything for it is there; whether it was.
    fn gather(&mut self, plan: &Plan, host: &mut impl Host, instance: Instance) -> Result<bool, JobError> {
        let found = self.gathers.iter().position(|g| g.instance == instance && g.missing == 0);
        let Some(found) = found else { return Ok(false) };
        let gathering = self.gathers.swap_remove(found);
        let statement = &plan.statements[instance.statement as usize];
        if let Kind::Gather { kernel, routes, .. } = &statement.kind {
            let gathered = Gathered { routes, destination: self.index, chunks: &gathering.chunks };
            self.run(plan, host, instance.statement, |partitions| kernel(partitions, gathered))?;
            self.written |= statement.writes;
        }
        if instance.epoch == self.position.epoch {
            self.gathered.push(instance.statement);
        }
        Ok(true)
    }

    /// Memory of the partitions that a stage reads and writes.
    fn touched_bytes(&self, plan: &Plan, statement: u32) -> u64 {
        let statement = &plan.statements[statement as usize];
        let used = statement.reads | statement.writes;
        let states = self.states.iter().enumerate().filter(|(dataset, _)| used >> dataset & 1 == 1);
        states.filter_map(|(_, state)| state.as_ref()).map(|state| state.size_any()).sum()
    }

    /// Lets the walk go on before a gather.
    pub fn put_aside(&mut self, plan: &Plan, instance: Instance) {
        let statement = &plan.statements[instance.statement as usize];
        self.aside.push(instance);
        self.held_reads |= statement.reads;
        self.held_writes |= statement.writes;
    }

    fn run_aside(&mut self, plan: &Plan, host: &mut impl Host) -> Result<(), JobError> {
        let mut at = 0;
        while at < self.aside.len() {
            if self.gather(plan, host, self.aside[at])? {
                self.aside.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let held = self.aside.iter().map(|i| &plan.statements[i.statement as usize]);
        (self.held_reads, self.held_writes) = held.fold((0, 0), |h, s| (h.0 | s.reads, h.1 | s.writes));
        Ok(())
    }

    /// Passes a signal if its value is known or this bundle is the one to compute it.
    fn pass(
        &mut self,
        plan: &Plan,
        host: &mut impl Host,
        at: u32,
        statement: &Statement,
    ) -> Result<Option<Turn>, JobError> {
        let Kind::Signal { kernel, otherwise, iteration, first } = &statement.kind else { return Ok(None) };
        let epoch = self.position.epoch;
        let signal = match host.signal(epoch) {
            Some(signal) => signal,
            None if statement.group != self.group => return Ok(Some(Turn::Signal)),
            None => {
                if !host.may_publish(epoch, &self.passed) {
                    return Ok(Some(Turn::Window));
                }
                self.running = at;
                let value = kernel(Partitions(self.states.as_mut_ptr()));
                let snapshot = *iteration && host.wants_snapshot(self.evaluated);
                let signal = Signal { value, snapshot };
                host.publish(epoch, signal);
                if *iteration {
                    host.iterated();
                }
                signal
            }
        };
        if signal.snapshot {
            if !self.aside.is_empty() {
                return Ok(Some(Turn::Chunks));
            }
            host.save(self);
            self.evaluated = 0;
        }
        self.iteration += u64::from(*iteration && (signal.value || !first));
        self.evaluated += u32::from(*iteration);
        self.position.epoch += 1;
        self.gathered.clear();
        self.go_to(plan, if signal.value { statement.next } else { *otherwise });
        Ok(None)
    }

    /// Forgets what happened after a snapshot: partitions that changed since are dropped, to be loaded
    /// again; those that did not stay. `None`: back to the start.
    pub fn roll_back(&mut self, plan: &Plan, snapshot: Option<u64>) {
        let later = self.written_before.iter().filter(|(epoch, _)| snapshot.is_none_or(|s| *epoch > s));
        let changed = later.fold(self.written, |all, (_, mask)| all | mask);
        let states = std::mem::take(&mut self.states);
        let fresh = Self::new(plan, self.ix);
        *self = fresh;
        for (dataset, state) in states.into_iter().enumerate() {
            if changed >> dataset & 1 == 0 {
                self.states[dataset] = state;
            }
        }
    }

    /// Notes that a snapshot of the current epoch has everything; which datasets it has to have written
    /// anew. Datasets that no stage writes are never in it.
    pub fn mark_saved(&mut self, plan: &Plan) -> Vec<u32> {
        let epoch = self.position.epoch;
        let mut anew = Vec::new();
        for (dataset, spec) in plan.datasets.iter().enumerate() {
            let here = plan.groups[self.group as usize].datasets >> dataset & 1 == 1;
            let changed = self.written >> dataset & 1 == 1 || self.saved[dataset].is_none();
            if here && !spec.constant && changed {
                self.saved[dataset] = Some(epoch);
                anew.push(dataset as u32);
            }
        }
        self.written_before.push((epoch, self.written));
        if self.written_before.len() > 8 {
            let (_, oldest) = self.written_before.remove(0);
            self.written_before[0].1 |= oldest;
        }
        self.written = 0;
        anew
    }

    /// Datasets with the epochs of the snapshots that have their content.
    pub fn saved_list(&self) -> Vec<(u32, u64)> {
        let saved = self.saved.iter().enumerate();
        saved.filter_map(|(dataset, epoch)| epoch.map(|epoch| (dataset as u32, epoch))).collect()
    }

    /// Where the bundle is, for whoever has to find out why it stands still.
    pub fn describe(&self, plan: &Plan) -> String {
        let Instance { epoch, statement } = self.position;
        let stage = &plan.statements[statement as usize].name;
        let missing: Vec<_> = self.gathers.iter().map(|g| (g.instance, g.missing)).collect();
        let aside = &self.aside;
        format!("bundle {} at {stage:?} in epoch {epoch}, aside {aside:?}, missing {missing:?}", self.ix)
    }

    /// Memory of the partitions.
    pub fn size_bytes(&self) -> u64 {
        self.states.iter().flatten().map(|state| state.size_any()).sum()
    }
}
