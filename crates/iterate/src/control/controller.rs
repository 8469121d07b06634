//! The controller: placement of partitions, and reaction to workers that join, leave or fail (§3.3).
//!
//! A state machine like the worker: messages, ticks and lost connections go in; messages come out in
//! [`Controller::out`], and manifests to be made durable in [`Controller::commits`]. It does no I/O and reads
//! no clock. While a job is balanced and healthy the controller sends nothing: workers report by time, and
//! iterate without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::control::balance::{Balancer, Move};
use crate::control::placement::Sizes;
use crate::dataflow::index::{BundleIx, Table, WorkerIx};
use crate::dataflow::outcome::{Outcome, Progress};
use crate::dataflow::plan::Plan;
use crate::error::JobError;
use crate::protocol::message::{Envelope, Message};
use crate::protocol::records::{Entry, JobState, Manifest, Report, Saved};

/// Number of snapshots that are kept, so that a damaged one costs an interval and not the whole job.
pub(crate) const MAX_SNAPSHOTS: usize = 2;

/// Phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for workers to connect.
    Gathering,
    Running,
    /// The program has ended on all workers, and results are arriving.
    Collecting,
}

/// See the [module](self).
pub(crate) struct Controller {
    plan: Arc<Plan>,
    /// Number of workers that must join before the job starts.
    expected: usize,
    balances: bool,
    /// True if the launcher starts new workers when all are lost.
    pub restarts: bool,
    phase: Phase,
    generation: u32,
    map: Table<BundleIx, Entry>,
    members: BTreeSet<WorkerIx>,
    /// Version of the member list last sent to workers.
    changes: u32,
    /// Workers that are handing over their bundles to leave the job.
    leaving: BTreeSet<WorkerIx>,
    moving: BTreeSet<BundleIx>,
    ended: BTreeSet<BundleIx>,
    /// Complete snapshots, the newest first, from which the job can resume.
    snapshots: Vec<Manifest>,
    /// Iteration of the snapshot that the job resumed from.
    resumed_at: Option<u64>,
    /// Incomplete snapshots by epoch.
    saving: BTreeMap<u64, BTreeMap<BundleIx, Saved>>,
    reports: BTreeMap<WorkerIx, Report>,
    balancer: Balancer,
    sizes: Sizes,
    finished: BTreeSet<WorkerIx>,
    outputs_left: usize,
    outcome: Outcome,
    pub result: Option<Result<(), JobError>>,
    /// Outgoing messages to workers.
    pub out: Vec<(WorkerIx, Envelope)>,
    /// Descriptions of damaged snapshots, for the user.
    pub warnings: Vec<String>,
    /// Manifests to write; call [`Controller::committed`] after each.
    pub commits: Vec<Manifest>,
    /// Number of rollbacks, and number of bundles moved.
    pub recoveries: u64,
    pub migrations: u64,
}

impl Controller {
    pub fn new(plan: Arc<Plan>, expected: usize, balances: bool, snapshots: Vec<Manifest>) -> Self {
        Self {
            expected,
            balances,
            restarts: false,
            phase: Phase::Gathering,
            generation: 0,
            map: Table::new(),
            members: BTreeSet::new(),
            changes: 0,
            leaving: BTreeSet::new(),
            moving: BTreeSet::new(),
            ended: BTreeSet::new(),
            resumed_at: snapshots.first().map(|snapshot| snapshot.iteration),
            snapshots,
            saving: BTreeMap::new(),
            reports: BTreeMap::new(),
            balancer: Balancer::default(),
            sizes: Sizes::default(),
            finished: BTreeSet::new(),
            outputs_left: outputs(&plan),
            outcome: Outcome::new(&plan),
            result: None,
            out: Vec::new(),
            warnings: Vec::new(),
            commits: Vec::new(),
            recoveries: 0,
            migrations: 0,
            plan,
        }
    }

    fn send(&mut self, to: WorkerIx, message: Message) {
        self.out.push((to, Envelope { generation: self.generation, message }));
    }

    fn send_all(&mut self, message: &Message) {
        for worker in self.members.clone() {
            self.send(worker, message.clone());
        }
    }

    /// Adds a worker. The last expected worker starts the job; later ones join it.
    pub fn joined(&mut self, worker: WorkerIx) {
        if self.result.is_some() || !self.members.insert(worker) {
            return;
        }
        match self.phase {
            Phase::Gathering if self.members.len() == self.expected => {
                self.place();
                self.begin();
            }
            Phase::Gathering => {}
            Phase::Running => {
                self.balancer.reset();
                self.send_members();
                let begin = Message::Begin(Arc::new(self.job_state()));
                self.send(worker, begin);
            }
            Phase::Collecting => {
                self.members.remove(&worker);
                self.send(worker, Message::Stop);
            }
        }
    }

    /// Makes the initial placement: contiguous ranges, so that adjacent partitions share a worker.
    fn place(&mut self) {
        let workers: Vec<WorkerIx> = self.members.iter().copied().collect();
        for group in self.plan.groups.iter() {
            for index in 0..u64::from(group.partitions) {
                let at = index * workers.len() as u64 / u64::from(group.partitions);
                self.map.push(Entry { worker: workers[at as usize], version: 1 });
            }
        }
    }

    fn job_state(&self) -> JobState {
        let members = self.members.iter().copied().collect();
        let snapshot = self.snapshots.first().cloned();
        JobState { map: self.map.clone(), members, version: self.changes, snapshot }
    }

    fn send_members(&mut self) {
        self.changes += 1;
        let members = self.members.iter().copied().collect();
        self.send_all(&Message::Members { version: self.changes, members });
    }

    /// Starts or restarts the job from the last snapshot, or from the beginning.
    fn begin(&mut self) {
        self.generation += 1;
        self.changes += 1;
        self.moving.clear();
        self.ended.clear();
        self.saving.clear();
        self.reports.clear();
        self.balancer.reset();
        self.commits.clear();
        self.phase = Phase::Running;
        self.finished.clear();
        self.outputs_left = outputs(&self.plan);
        self.outcome = Outcome::new(&self.plan);
        let begin = Message::Begin(Arc::new(self.job_state()));
        self.send_all(&begin);
        for worker in self.leaving.clone() {
            self.evacuate(worker);
        }
    }

    /// Handles the loss of a worker: its connection closed, or it timed out.
    pub fn lost(&mut self, worker: WorkerIx, cause: &str) {
        if self.result.is_some() || !self.members.remove(&worker) {
            return;
        }
        self.leaving.remove(&worker);
        if self.phase == Phase::Gathering {
            return;
        }
        let lost = JobError::WorkerLost { worker: worker.0, cause: cause.into() };
        let left: Vec<WorkerIx> = self.members.difference(&self.leaving).copied().collect();
        if left.is_empty() {
            return if self.restarts { self.regather() } else { self.fail(lost) };
        }
        let mut held = self.sizes.held(&self.map, &left);
        for (bundle, entry) in self.map.entries_mut().filter(|(_, entry)| entry.worker == worker) {
            if let Some(to) = held.place(bundle) {
                *entry = Entry { worker: to, version: entry.version + 1 };
            }
        }
        self.recoveries += 1;
        self.begin();
    }

    /// Waits for as many workers as at the start, to resume from the last snapshot or from the beginning.
    fn regather(&mut self) {
        self.phase = Phase::Gathering;
        self.recoveries += 1;
        self.map = Table::new();
        self.leaving.clear();
    }

    /// Handles a message from a worker.
    pub fn handle(&mut self, from: WorkerIx, envelope: Envelope) {
        // A worker declared lost may report failures of an earlier generation; ignore those.
        let failed = matches!(envelope.message, Message::Failed(_)) && self.members.contains(&from);
        if self.result.is_some() || (envelope.generation != self.generation && !failed) {
            return;
        }
        match envelope.message {
            Message::Report(report) => self.report(*report),
            Message::Installed { bundle, version }
                if self.map.get(bundle) == Some(&Entry { worker: from, version }) =>
            {
                self.moving.remove(&bundle);
                self.after_move();
            }
            Message::Saved(saved) => self.saved(*saved),
            Message::Damaged { cause } => self.fall_back(&cause),
            Message::Ended { bundle } => {
                self.ended.insert(bundle);
                self.after_move();
            }
            Message::Output { dataset, partition, content } => {
                if self.outcome.put(dataset, partition, content) {
                    self.outputs_left -= 1;
                }
                self.after_output();
            }
            Message::Finished(report) => {
                if self.finished.insert(from) {
                    self.outcome.add(&self.plan, &report);
                }
                self.after_output();
            }
            Message::Failed(error) => self.fail(error),
            _ => {}
        }
    }

    fn after_move(&mut self) {
        for worker in self.leaving.clone() {
            let holds = self.map.iter().any(|entry| entry.worker == worker);
            if holds && self.moving.is_empty() {
                self.evacuate(worker);
            } else if !holds && self.moving.is_empty() && self.members.remove(&worker) {
                self.leaving.remove(&worker);
                let members = self.members.iter().copied().collect();
                self.send(worker, Message::Drain { members });
                self.send_members();
                self.balancer.reset();
            }
        }
        let ended = self.ended.len() == self.plan.bundle_count;
        if ended && self.moving.is_empty() && self.phase == Phase::Running {
            self.phase = Phase::Collecting;
            self.send_all(&Message::Finish);
        }
    }

    fn after_output(&mut self) {
        if self.outputs_left == 0 && self.finished.is_superset(&self.members) {
            self.result = Some(Ok(()));
            self.send_all(&Message::Stop);
        }
    }

    /// Fails the job with an error.
    pub fn fail(&mut self, error: JobError) {
        if self.result.is_none() {
            self.result = Some(Err(error));
            self.send_all(&Message::Stop);
        }
    }

    fn report(&mut self, report: Report) {
        if self.reports.get(&report.worker).is_some_and(|before| before.number >= report.number) {
            return;
        }
        self.reports.insert(report.worker, report.clone());
        self.sizes.report(&report);
        if !self.moving.is_empty() || !self.ended.is_empty() || self.phase != Phase::Running {
            return;
        }
        let members: Vec<WorkerIx> = self.members.iter().copied().collect();
        let may_take: Vec<WorkerIx> = self.members.difference(&self.leaving).copied().collect();
        if self.balances && members.len() > 1 {
            let moves = self.balancer.report(&self.plan, report, &members, &may_take);
            self.migrate(&moves);
        }
    }

    /// Starts migrations: tells the current holders to hand over, and all workers the new map entries.
    fn migrate(&mut self, moves: &[Move]) {
        let mut entries = Vec::new();
        for &Move { bundle, from, to } in moves {
            let entry = self.map[bundle];
            if entry.worker != from || !self.moving.insert(bundle) {
                continue;
            }
            let entry = Entry { worker: to, version: entry.version + 1 };
            self.map[bundle] = entry;
            self.migrations += 1;
            self.send(from, Message::Migrate { bundle, to: entry });
            entries.push((bundle, entry));
        }
        if !entries.is_empty() {
            self.send_all(&Message::Map(entries));
        }
    }

    /// Moves one bundle, unless it is already moving.
    pub fn move_bundle(&mut self, bundle: BundleIx, to: WorkerIx) {
        let Some(entry) = self.map.get(bundle).copied() else { return };
        if self.phase == Phase::Running && entry.worker != to && self.members.contains(&to) {
            self.migrate(&[Move { bundle, from: entry.worker, to }]);
        }
    }

    /// Starts removing a worker, which hands over its bundles first.
    pub fn leave(&mut self, worker: WorkerIx) {
        // While results are collected, bundles stay in place; the job ends soon.
        let runs = self.phase == Phase::Running;
        if runs && self.members.contains(&worker) && self.members.len() > self.leaving.len() + 1 {
            self.leaving.insert(worker);
            self.evacuate(worker);
        }
    }

    fn evacuate(&mut self, worker: WorkerIx) {
        let others: Vec<WorkerIx> = self.members.difference(&self.leaving).copied().collect();
        let mut held = self.sizes.held(&self.map, &others);
        let leave = self.map.entries().filter(|(_, entry)| entry.worker == worker);
        let to = |(bundle, _)| Some(Move { bundle, from: worker, to: held.place(bundle)? });
        let moves: Vec<Move> = leave.filter_map(to).collect();
        self.migrate(&moves);
    }

    /// Requests a snapshot at the next iteration.
    pub fn take_snapshot(&mut self) {
        self.send_all(&Message::Snapshot);
    }

    /// Pauses or resumes the job.
    pub fn pause(&mut self, pause: bool) {
        self.send_all(&Message::Pause(pause));
    }

    fn saved(&mut self, saved: Saved) {
        let epoch = saved.position.epoch;
        if self.snapshots.first().is_some_and(|snapshot| snapshot.position.epoch >= epoch) {
            return;
        }
        self.saving.entry(epoch).or_default().insert(saved.bundle, saved);
        // Commit in order: a snapshot may refer to objects that an earlier one wrote.
        while let Some(entry) = self.saving.first_entry() {
            if entry.get().len() < self.plan.bundle_count {
                break;
            }
            let parts = entry.remove();
            let Some(first) = parts.values().next() else { break };
            let (position, iteration) = (first.position, first.iteration);
            let saved = parts.into_values().map(|part| part.datasets).collect();
            self.commits.push(Manifest { position, iteration, saved });
        }
    }

    /// Records that a manifest is durable: recoveries now resume from it, or else from the one before.
    pub fn committed(&mut self, manifest: Manifest) {
        let epoch = manifest.position.epoch;
        if self.snapshots.first().is_none_or(|snapshot| snapshot.position.epoch < epoch) {
            self.snapshots.insert(0, manifest);
            self.snapshots.truncate(MAX_SNAPSHOTS);
        }
    }

    /// Restarts the job from the snapshot before a damaged one, or from the beginning.
    fn fall_back(&mut self, cause: &str) {
        if self.snapshots.is_empty() || self.phase == Phase::Gathering {
            return;
        }
        let damaged = self.snapshots.remove(0);
        let next = self.snapshots.first();
        let instead = next.map_or("starting from the beginning".into(), |next| {
            format!("resuming from the snapshot of iteration {}", next.iteration)
        });
        let iteration = damaged.iteration;
        self.warnings.push(format!("cannot use the snapshot of iteration {iteration}: {cause}; {instead}"));
        self.resumed_at = self.resumed_at.zip(next).map(|(at, next)| at.min(next.iteration));
        self.begin();
    }

    /// Returns the job's progress.
    pub fn progress(&self) -> Progress {
        let iteration = self.reports.values().map(|report| report.iteration).min();
        Progress {
            iteration: iteration.filter(|&iteration| iteration != u64::MAX).unwrap_or(0),
            observed: Outcome::observed(&self.plan, self.reports.values()),
            tasks: self.reports.values().map(|report| report.tasks).sum(),
            balance: self.balancer.balance,
            workers: self.members.len() as u32,
        }
    }

    /// Returns the outcome of a successful job.
    pub fn into_outcome(self) -> Result<Outcome, JobError> {
        match self.result {
            Some(Ok(())) => {
                let mut outcome = self.outcome;
                (outcome.recoveries, outcome.migrations) = (self.recoveries, self.migrations);
                outcome.resumed_at = self.resumed_at;
                Ok(outcome)
            }
            Some(Err(error)) => Err(error),
            None => Err(JobError::Cancelled),
        }
    }

    /// Returns whether `generation` is the current one.
    pub fn is_current(&self, generation: u32) -> bool {
        generation == self.generation
    }

    /// Returns whether the job has started.
    pub fn has_begun(&self) -> bool {
        self.phase != Phase::Gathering
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Describes the state of the job, to diagnose a stalled one.
    pub fn describe(&self) -> String {
        let Self { phase, members, moving, ended, .. } = self;
        format!("{phase:?}, workers {members:?}, moving bundles {moving:?}, ended bundles {ended:?}")
    }

    /// Returns whether any task was running when the workers last reported.
    pub fn is_busy(&self) -> bool {
        self.reports.values().any(|report| report.running)
    }

    /// Returns the workers in the job.
    pub fn members(&self) -> impl Iterator<Item = WorkerIx> {
        self.members.iter().copied()
    }

    /// Returns the snapshots that a recovery can resume from, the newest first.
    pub fn snapshots(&self) -> &[Manifest] {
        &self.snapshots
    }
}

/// Returns the total number of output partitions.
fn outputs(plan: &Plan) -> usize {
    plan.datasets.iter().filter(|spec| spec.output).map(|spec| spec.partitions as usize).sum()
}
