//! A bundle: the partitions of one index that tasks use together, and their position in the program.
//!
//! Tasks are inferred here (paper §4.3). A bundle walks the statement table: its next task is the next
//! statement of its group whose inputs are complete. A gather that still misses chunks is deferred, and the
//! walk continues: later statements run before it, unless they and the gather access the same dataset and
//! one of them writes it. Bundles wait for each other only through chunks and signals, so they can be in
//! different stages and different iterations at the same time.
//!
//! One thread at a time runs a bundle, without holding a lock. The bundle reaches its worker through the
//! trait [`Host`]. It is the unit that moves when partitions migrate.

use std::cmp::Ordering;

use crate::dataflow::data::Chunk;
use crate::dataflow::index::{BundleIx, DatasetIx, DatasetSet, GroupIx, StatementIx, Table, WorkerIx};
use crate::dataflow::plan::{Instance, Kind, Plan, Statement};
use crate::dataflow::routes::Gathered;
use crate::dataflow::views::{Partitions, States};
use crate::error::{Cause, JobError};
use crate::exec::host::{Host, Meter, Outbox, SignalBoard};
use crate::protocol::limits::MAX_DEFERRED;
use crate::protocol::records::{Arrival, Part, Signal};

/// Maximum number of statements in one turn, so that a thread's bundles take turns.
const MAX_STATEMENTS_PER_TURN: u32 = 1024;

/// The reason that a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The bundle waits for chunks.
    Chunks,
    /// The bundle waits for the signal of its epoch.
    Signal,
    /// The bundle has a signal to publish and waits for others to catch up.
    Window,
    /// The bundle is still ready: the turn was long, or it was asked to yield.
    More,
    /// The bundle has reached the end of the program.
    End,
}

/// Chunks received for one gather that has not run.
#[derive(Debug, Clone)]
pub(crate) struct PendingGather {
    pub instance: Instance,
    pub missing: u32,
    pub received: Vec<bool>,
    pub chunks: Vec<Option<Chunk>>,
}

impl PendingGather {
    fn new(instance: Instance, expected: usize) -> Self {
        let (received, chunks) = (vec![false; expected], vec![None; expected]);
        Self { instance, missing: expected as u32, received, chunks }
    }
}

/// See the [module](self).
pub(crate) struct Bundle {
    pub ix: BundleIx,
    pub group: GroupIx,
    pub index: u32,
    /// Number of signals passed, and current statement.
    pub position: Instance,
    /// Deferred gathers, which are independent of each other, and the datasets that they read and write.
    pub deferred: Vec<Instance>,
    pub deferred_reads: DatasetSet,
    pub deferred_writes: DatasetSet,
    /// Statements of the gathers that ran in this epoch.
    pub gathered: Vec<StatementIx>,
    pub iteration: u64,
    /// Iterations since the last snapshot, if this bundle computes the signal.
    pub since_snapshot: u32,
    /// Datasets written since the last snapshot; and those written before it, by the epoch of the snapshot that
    /// contains them.
    pub written: DatasetSet,
    pub written_before: Vec<(u64, DatasetSet)>,
    /// The latest saved content of each dataset.
    pub saved: Table<DatasetIx, Option<Part>>,
    pub states: States,
    pub gathers: Vec<PendingGather>,
    /// Epoch that each worker has passed; only if this bundle computes a signal.
    pub passed: Vec<(WorkerIx, u64)>,
    /// The statement whose kernel is running or ran last.
    pub running: StatementIx,
    pub tasks: u64,
    /// True if partitions must still be loaded.
    pub unloaded: bool,
    /// True if the controller was told that this bundle reached the end.
    pub end_reported: bool,
}

impl Bundle {
    /// Creates a bundle at the start of the program, with nothing loaded.
    pub fn new(plan: &Plan, ix: BundleIx) -> Self {
        let (group, index) = plan.locate(ix);
        Self {
            ix,
            group,
            index,
            position: Instance {
                epoch: 0,
                statement: plan.groups[group].next_relevant[StatementIx::default()],
            },
            deferred: Vec::new(),
            deferred_reads: DatasetSet::default(),
            deferred_writes: DatasetSet::default(),
            gathered: Vec::new(),
            iteration: 0,
            since_snapshot: 0,
            written: DatasetSet::default(),
            written_before: Vec::new(),
            saved: Table::filled(plan.datasets.len(), None),
            states: plan.datasets.iter().map(|_| None).collect(),
            gathers: Vec::new(),
            passed: Vec::new(),
            running: StatementIx::default(),
            tasks: 0,
            unloaded: true,
            end_reported: false,
        }
    }

    /// Receives an arrival. Duplicates and arrivals from before a rollback are ignored.
    ///
    /// # Errors
    /// If a chunk from another process cannot be decoded.
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
        let Kind::Gather { routes, .. } = &plan.statements[gather.statement].kind else {
            return Ok(());
        };
        match routes.place(self.index, source) {
            Some(place) if !self.has_run(gather) => self.receive_at(plan, gather, place, chunk),
            _ => Ok(()),
        }
    }

    /// Receives the chunk of a gather's source, given by the source's place.
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
        let Kind::Gather { routes, decode, .. } = &plan.statements[gather.statement].kind else {
            return Ok(());
        };
        let chunk = match chunk {
            Some(Chunk::Encoded(bytes)) => match decode(&bytes) {
                Ok(decoded) => Some(Chunk::Typed(decoded)),
                Err(error) => {
                    return Err(self.failure(
                        plan,
                        gather.statement,
                        format!("cannot decode a chunk: {error}"),
                    ));
                }
            },
            other => other,
        };
        let found = self.gathers.iter_mut().position(|g| g.instance == gather);
        let found = found.unwrap_or_else(|| {
            self.gathers.push(PendingGather::new(gather, routes.expected(self.index)));
            self.gathers.len() - 1
        });
        let pending = &mut self.gathers[found];
        if !pending.received[place] {
            pending.received[place] = true;
            pending.missing -= 1;
            pending.chunks[place] = chunk;
        }
        Ok(())
    }

    /// Returns whether a gather has already run. Statement numbers alone do not tell: an epoch may begin in the
    /// second half of a loop's body and end in the first.
    fn has_run(&self, instance: Instance) -> bool {
        match instance.epoch.cmp(&self.position.epoch) {
            Ordering::Less => !self.deferred.contains(&instance),
            Ordering::Equal => self.gathered.contains(&instance.statement),
            Ordering::Greater => false,
        }
    }

    fn failure(&self, plan: &Plan, statement: StatementIx, cause: String) -> JobError {
        let stage = plan.statements[statement].name.clone();
        JobError::Kernel { stage, partition: self.index, cause }
    }

    /// Converts a panic of the last kernel to an error.
    pub fn panicked(&self, plan: &Plan, panic: &(dyn std::any::Any + Send)) -> JobError {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        self.failure(plan, self.running, format!("the kernel panicked: {}", text.unwrap_or("no message")))
    }

    /// Runs tasks until the bundle has to wait or yield.
    ///
    /// # Errors
    /// The error of a kernel.
    pub fn turn(&mut self, plan: &Plan, host: &mut impl Host) -> Result<Turn, JobError> {
        for _ in 0..MAX_STATEMENTS_PER_TURN {
            if host.should_yield() {
                return Ok(Turn::More);
            }
            if !self.deferred.is_empty() {
                self.run_deferred(plan, host.meter())?;
            }
            let at = self.position.statement;
            let statement = &plan.statements[at];
            if statement.writes.meets(self.deferred_reads | self.deferred_writes)
                || statement.reads.meets(self.deferred_writes)
            {
                return Ok(Turn::Chunks);
            }
            if let Some(turn) = self.step(plan, host, at, statement)? {
                return Ok(turn);
            }
        }
        Ok(Turn::More)
    }

    /// Executes one statement. Returns `Some` if the walk has to stop.
    #[inline]
    fn step(
        &mut self,
        plan: &Plan,
        host: &mut impl Host,
        at: StatementIx,
        statement: &Statement,
    ) -> Result<Option<Turn>, JobError> {
        match &statement.kind {
            Kind::Transform(kernel) => {
                self.run(plan, host.meter(), at, kernel)?;
                self.written |= statement.writes;
            }
            Kind::Scatter { kernel, routes } if routes.width(self.index) > 0 => {
                let (mut sent, source) = (host.outbox().buffer(), self.index);
                self.run(plan, host.meter(), at, |partitions| kernel(partitions, routes, source, &mut sent))?;
                let gather = Instance { epoch: self.position.epoch, statement: at.after() };
                host.outbox().send(gather, source, routes, sent);
            }
            Kind::Scatter { .. } | Kind::Jump => {}
            Kind::Gather { routes, .. } if routes.expected(self.index) > 0 => {
                let instance = self.position;
                if !self.gather(plan, host.meter(), instance)? {
                    if self.deferred.len() == MAX_DEFERRED {
                        return Ok(Some(Turn::Chunks));
                    }
                    self.defer(plan, instance);
                }
            }
            Kind::Gather { .. } => {}
            Kind::Observe(kernel) => {
                self.running = at;
                let value = kernel(Partitions::of(&mut self.states));
                host.observe(at, self.position.epoch, value);
            }
            Kind::Signal { .. } => return self.pass(plan, host, at, statement),
            Kind::End if self.deferred.is_empty() => return Ok(Some(Turn::End)),
            Kind::End => return Ok(Some(Turn::Chunks)),
        }
        self.go_to(plan, statement.next);
        Ok(None)
    }

    fn go_to(&mut self, plan: &Plan, next: StatementIx) {
        self.position.statement = plan.groups[self.group].next_relevant[next];
    }

    #[inline]
    fn run(
        &mut self,
        plan: &Plan,
        meter: &mut impl Meter,
        at: StatementIx,
        kernel: impl FnOnce(Partitions) -> Result<(), Cause>,
    ) -> Result<(), JobError> {
        self.running = at;
        self.tasks += 1;
        meter.before(self.ix, at);
        let done = kernel(Partitions::of(&mut self.states));
        meter.after(self.ix, at, self.iteration, || self.touched_bytes(plan, at));
        done.map_err(|cause| self.failure(plan, at, cause.to_string()))
    }

    /// Runs a gather if all of its chunks have arrived. Returns whether it ran.
    fn gather(&mut self, plan: &Plan, meter: &mut impl Meter, instance: Instance) -> Result<bool, JobError> {
        let found = self.gathers.iter().position(|g| g.instance == instance && g.missing == 0);
        let Some(found) = found else { return Ok(false) };
        let pending = self.gathers.swap_remove(found);
        let statement = &plan.statements[instance.statement];
        if let Kind::Gather { kernel, routes, .. } = &statement.kind {
            let gathered = Gathered { routes, destination: self.index, chunks: &pending.chunks };
            self.run(plan, meter, instance.statement, |partitions| kernel(partitions, gathered))?;
            self.written |= statement.writes;
        }
        if instance.epoch == self.position.epoch {
            self.gathered.push(instance.statement);
        }
        Ok(true)
    }

    /// Returns the size of the partitions that a stage reads and writes.
    fn touched_bytes(&self, plan: &Plan, statement: StatementIx) -> u64 {
        let used = plan.statements[statement].datasets();
        let states = self.states.entries().filter(|&(dataset, _)| used.contains(dataset));
        states.filter_map(|(_, state)| state.as_ref()).map(|state| state.size_any()).sum()
    }

    /// Defers a gather, so that the walk continues past it.
    pub fn defer(&mut self, plan: &Plan, instance: Instance) {
        let statement = &plan.statements[instance.statement];
        self.deferred.push(instance);
        self.deferred_reads |= statement.reads;
        self.deferred_writes |= statement.writes;
    }

    fn run_deferred(&mut self, plan: &Plan, meter: &mut impl Meter) -> Result<(), JobError> {
        let mut at = 0;
        while at < self.deferred.len() {
            if self.gather(plan, meter, self.deferred[at])? {
                self.deferred.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let held = self.deferred.iter().map(|i| &plan.statements[i.statement]);
        (self.deferred_reads, self.deferred_writes) = Default::default();
        for statement in held {
            self.deferred_reads |= statement.reads;
            self.deferred_writes |= statement.writes;
        }
        Ok(())
    }

    /// Passes a signal if its value is known or this bundle computes it.
    fn pass(
        &mut self,
        plan: &Plan,
        host: &mut impl Host,
        at: StatementIx,
        statement: &Statement,
    ) -> Result<Option<Turn>, JobError> {
        let Kind::Signal { kernel, otherwise, iteration, first } = &statement.kind else { return Ok(None) };
        let epoch = self.position.epoch;
        let signal = match host.board().signal(epoch) {
            Some(signal) => signal,
            None if statement.group != self.group => return Ok(Some(Turn::Signal)),
            None => {
                if !host.board().may_publish(epoch, &self.passed) {
                    return Ok(Some(Turn::Window));
                }
                self.running = at;
                let value = kernel(Partitions::of(&mut self.states));
                let snapshot = *iteration && host.board().wants_snapshot(self.since_snapshot);
                let signal = Signal { value, snapshot };
                host.board().publish(epoch, signal);
                if *iteration {
                    host.record_iteration();
                }
                signal
            }
        };
        if signal.snapshot {
            if !self.deferred.is_empty() {
                return Ok(Some(Turn::Chunks));
            }
            host.save(self);
            self.since_snapshot = 0;
        }
        self.iteration += u64::from(*iteration && (signal.value || !first));
        self.since_snapshot += u32::from(*iteration);
        self.position.epoch += 1;
        self.gathered.clear();
        self.go_to(plan, if signal.value { statement.next } else { *otherwise });
        Ok(None)
    }

    /// Rolls back to a snapshot, or to the start for `None`. Partitions that changed since are dropped, to be
    /// reloaded; unchanged partitions stay. A partition that a later snapshot saved may have been loaded from it.
    pub fn roll_back(&mut self, plan: &Plan, snapshot: Option<u64>) {
        let is_later = |epoch: u64| snapshot.is_none_or(|snapshot| epoch > snapshot);
        let written = self.written_before.iter().filter(|(epoch, _)| is_later(*epoch)).map(|(_, set)| *set);
        let saved = self.saved.iter().flatten().filter(|part| is_later(part.epoch));
        let changed = self.written
            | written.chain(saved.map(|part| DatasetSet::of(part.dataset))).collect::<DatasetSet>();
        let states = std::mem::take(&mut self.states);
        let fresh = Self::new(plan, self.ix);
        *self = fresh;
        for (dataset, state) in states.into_entries().filter(|&(dataset, _)| !changed.contains(dataset)) {
            self.states[dataset] = state;
        }
    }

    /// Records that a snapshot of the current epoch covers this bundle, and returns the datasets that must be
    /// written for it, with their content. Datasets that no stage writes are never part of a snapshot.
    pub fn mark_saved(&mut self, plan: &Plan) -> Vec<(DatasetIx, Vec<u8>)> {
        let epoch = self.position.epoch;
        let mut anew = Vec::new();
        for dataset in plan.saved_datasets(self.group) {
            let (saved, state) = (&mut self.saved[dataset], &self.states[dataset]);
            let changed = self.written.contains(dataset) || saved.is_none();
            if let (true, Some(state)) = (changed, state) {
                let mut content = Vec::with_capacity(state.size_any() as usize + 16);
                state.encode_any(&mut content);
                *saved = Some(Part::new(dataset, epoch, &content));
                anew.push((dataset, content));
            }
        }
        self.written_before.push((epoch, self.written));
        if self.written_before.len() > 8 {
            let (_, oldest) = self.written_before.remove(0);
            self.written_before[0].1 |= oldest;
        }
        self.written = DatasetSet::default();
        anew
    }

    pub fn set_saved(&mut self, parts: &[Part]) {
        parts.iter().for_each(|part| self.saved[part.dataset] = Some(*part));
    }

    /// Describes the state of the bundle, to diagnose a stalled job.
    pub fn describe(&self, plan: &Plan) -> String {
        let Instance { epoch, statement } = self.position;
        let stage = &plan.statements[statement].name;
        let missing: Vec<_> = self.gathers.iter().map(|g| (g.instance, g.missing)).collect();
        let Self { ix, deferred, .. } = self;
        format!("bundle {ix} at {stage:?} in epoch {epoch}, deferred {deferred:?}, missing {missing:?}")
    }

    /// Returns the total size of the partitions.
    pub fn size_bytes(&self) -> u64 {
        self.states.iter().flatten().map(|state| state.size_any()).sum()
    }
}
