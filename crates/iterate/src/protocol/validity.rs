//! Checks of messages from other processes.
//!
//! A peer that knows the job's secret may still be wrong: a bug, damaged memory, or another build. Everything in
//! its messages that is used as an index is compared with the plan first, and a bundle must hold the partitions
//! that kernels will access. A peer that sends an invalid message is treated as lost.

use crate::dataflow::index::{BundleIx, DatasetSet, GroupIx, StatementIx};
use crate::dataflow::plan::{Instance, Kind, Plan};
use crate::protocol::limits::{MAX_DEFERRED, MAX_EPOCH, MAX_LEAD};
use crate::protocol::message::{Message, Packed, Peer};
use crate::protocol::records::{Arrival, Manifest, Part, Report, TraceBatch};

/// Returns an error unless `index` is below `bound`.
fn below(what: &str, index: u32, bound: usize) -> Result<(), String> {
    if (index as usize) < bound {
        return Ok(());
    }
    Err(format!("{what} {index} is out of range; there are {bound}"))
}

fn bundle(plan: &Plan, bundle: BundleIx) -> Result<(), String> {
    below("bundle", bundle.0, plan.bundle_count)
}

fn statement(plan: &Plan, statement: StatementIx) -> Result<(), String> {
    below("statement", statement.0, plan.statements.len())
}

fn epoch(epoch: u64) -> Result<(), String> {
    if epoch < MAX_EPOCH { Ok(()) } else { Err(format!("epoch {epoch} is out of range")) }
}

/// Checks that an instance is of a gather of a group.
fn gather(plan: &Plan, group: GroupIx, instance: Instance) -> Result<(), String> {
    statement(plan, instance.statement)?;
    epoch(instance.epoch)?;
    let at = &plan.statements[instance.statement];
    if matches!(at.kind, Kind::Gather { .. }) && at.group == group {
        return Ok(());
    }
    Err(format!("statement {} is not a gather of the bundle", instance.statement))
}

impl Message {
    /// Checks a message that `from` sent.
    ///
    /// # Errors
    /// If an index is out of range, or `from` must not send such a message.
    pub fn check(&self, plan: &Plan, from: Peer) -> Result<(), String> {
        match self {
            Self::Begin(_)
            | Self::Map(_)
            | Self::Members { .. }
            | Self::Migrate { .. }
            | Self::Snapshot
            | Self::Pause(_)
            | Self::Finish
            | Self::Drain { .. }
            | Self::Stop
                if from != Peer::Controller =>
            {
                Err("only the controller sends such a message".into())
            }
            Self::Addresses(_) if from != Peer::Controller => {
                Err("only the controller sends addresses".into())
            }
            Self::Deliver { to, arrival } => {
                if to.len() > plan.bundle_count {
                    return Err(format!("it is for {} bundles of {}", to.len(), plan.bundle_count));
                }
                for &(to, _) in to {
                    bundle(plan, to)?;
                    if let Arrival::Chunk { gather: instance, .. } = arrival {
                        gather(plan, plan.locate(to).0, *instance)?;
                    }
                }
                Ok(())
            }
            Self::Signals(signals) => signals.iter().try_for_each(|signal| epoch(signal.0)),
            Self::Install(packed) => packed.check(plan),
            Self::Begin(job_state) => {
                if job_state.map.len() != plan.bundle_count {
                    return Err(format!(
                        "its map has {} bundles of {}",
                        job_state.map.len(),
                        plan.bundle_count
                    ));
                }
                job_state.snapshot.as_ref().map_or(Ok(()), |snapshot| snapshot.check(plan))
            }
            Self::Map(entries) => entries.iter().try_for_each(|entry| bundle(plan, entry.0)),
            Self::Migrate { bundle: moved, .. }
            | Self::Installed { bundle: moved, .. }
            | Self::Ended { bundle: moved } => bundle(plan, *moved),
            Self::Saved(saved) => {
                check_bundle(plan, saved.bundle, saved.position, saved.iteration, &saved.datasets)
            }
            Self::Report(report) | Self::Finished(report) => report.check(plan, from),
            Self::Trace(batch) => batch.check(plan),
            Self::Output { dataset, partition, .. } => {
                below("dataset", dataset.0, plan.datasets.len())?;
                let spec = &plan.datasets[*dataset];
                if !spec.output {
                    return Err(format!("dataset {dataset} is not an output"));
                }
                below("partition", *partition, spec.partitions as usize)
            }
            Self::Members { .. }
            | Self::Snapshot
            | Self::Pause(_)
            | Self::Finish
            | Self::Drain { .. }
            | Self::Stop
            | Self::Addresses(_)
            | Self::Drained
            | Self::Damaged { .. }
            | Self::Unreachable { .. }
            | Self::Failed(_) => Ok(()),
        }
    }
}

impl Report {
    fn check(&self, plan: &Plan, from: Peer) -> Result<(), String> {
        if from != Peer::Worker(self.worker) {
            return Err(format!("it reports as worker {}", self.worker));
        }
        self.bundles.iter().try_for_each(|of| bundle(plan, of.0))?;
        self.observed.keys().try_for_each(|&at| statement(plan, at))
    }
}

impl TraceBatch {
    fn check(&self, plan: &Plan) -> Result<(), String> {
        for (_, task) in &self.tasks {
            statement(plan, task.statement)?;
            bundle(plan, task.bundle)?;
        }
        self.exchanges.iter().try_for_each(|sent| statement(plan, sent.statement))
    }
}

impl Packed {
    fn check(&self, plan: &Plan) -> Result<(), String> {
        bundle(plan, self.bundle)?;
        let (group, index) = plan.locate(self.bundle);
        statement(plan, self.position.statement)?;
        epoch(self.position.epoch)?;
        let at = &plan.statements[self.position.statement];
        // Every group passes signals and the end; kernels of other groups would access missing partitions.
        if at.group != group && !matches!(at.kind, Kind::Signal { .. } | Kind::End) {
            return Err(format!("statement {} is not one of the bundle", self.position.statement));
        }
        // Kernels access partitions unchecked.
        let datasets = plan.groups[group].datasets;
        for &(dataset, _) in &self.states {
            below("dataset", dataset.0, plan.datasets.len())?;
        }
        let present: DatasetSet = self.states.iter().map(|&(dataset, _)| DatasetSet::of(dataset)).collect();
        if present != datasets {
            return Err(format!("bundle {} does not have the partitions of its group", self.bundle));
        }
        if self.deferred.len() > MAX_DEFERRED {
            return Err(format!("bundle {} has {} deferred gathers", self.bundle, self.deferred.len()));
        }
        self.deferred.iter().try_for_each(|&instance| gather(plan, group, instance))?;
        for part in &self.saved {
            below("dataset", part.dataset.0, plan.datasets.len())?;
        }
        for &(instance, place, _) in &self.chunks {
            gather(plan, group, instance)?;
            if instance.epoch > self.position.epoch.saturating_add(MAX_LEAD) {
                return Err(format!("bundle {} has a chunk for epoch {}", self.bundle, instance.epoch));
            }
            if let Kind::Gather { routes, .. } = &plan.statements[instance.statement].kind {
                below("source", place, routes.expected(index))?;
            }
        }
        self.signals.iter().try_for_each(|signal| epoch(signal.0))
    }
}

impl Manifest {
    /// Checks that a snapshot can be one of a plan.
    ///
    /// # Errors
    /// If an index or a position is out of range, or a partition is missing.
    pub fn check(&self, plan: &Plan) -> Result<(), String> {
        if self.saved.len() != plan.bundle_count {
            return Err(format!("it has {} bundles of {}", self.saved.len(), plan.bundle_count));
        }
        self.saved
            .entries()
            .try_for_each(|(bundle, parts)| check_bundle(plan, bundle, self.position, self.iteration, parts))
    }
}

/// Checks one bundle of a snapshot.
///
/// # Errors
/// As [`Manifest::check`].
pub(crate) fn check_bundle(
    plan: &Plan,
    ix: BundleIx,
    position: Instance,
    iteration: u64,
    parts: &[Part],
) -> Result<(), String> {
    let Instance { epoch, statement } = position;
    let kind = plan.statements.get(statement).map(|statement| &statement.kind);
    if !matches!(kind, Some(Kind::Signal { iteration: true, .. })) {
        return Err(format!("statement {statement} does not end an iteration"));
    }
    if epoch >= MAX_EPOCH || iteration > epoch {
        return Err(format!("epoch {epoch} or iteration {iteration} is out of range"));
    }
    bundle(plan, ix)?;
    let expected = plan.saved_datasets(plan.locate(ix).0);
    if !expected.eq(parts.iter().map(|part| part.dataset)) {
        return Err(format!("the datasets of bundle {ix} are not those of the program"));
    }
    if let Some(part) = parts.iter().find(|part| part.epoch > epoch) {
        return Err(format!("a partition of epoch {} is later than epoch {epoch}", part.epoch));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::dataflow::data::Chunk;
    use crate::dataflow::index::{DatasetIx, Ix, WorkerIx};
    use crate::error::JobError;
    use crate::exec::bundle::Bundle;
    use crate::protocol::records::{Entry, JobState, Saved, Signal};

    /// A program with a gather, whose bundles 0 and 1 hold `data` and `local`; dataset 2 is another group.
    fn plan() -> std::sync::Arc<Plan> {
        let mut program = Program::new("validity");
        let data = program.dataset("data", 2, |_| Ok(0u64));
        let local = program.dataset("local", 2, |_| Ok(0u64));
        let model = program.dataset("model", 1, |_| Ok(0u64));
        program.times("rounds", 9, |body| {
            body.broadcast("model to all", model, local);
            body.transform("add", local, data, |local, data| {
                *data += local;
                Ok(())
            });
        });
        program.output(data);
        program.build().unwrap()
    }

    fn packed(plan: &Plan) -> Packed {
        let mut bundle = Bundle::new(plan, BundleIx(0));
        for dataset in DatasetIx::first(2) {
            bundle.states[dataset] = Some(crate::dataflow::load::load_partition(plan, dataset, 0).unwrap());
        }
        Packed::pack(bundle, 1, Vec::new())
    }

    fn gather(plan: &Plan) -> StatementIx {
        let is_gather = |kind: &Kind| matches!(kind, Kind::Gather { .. });
        plan.statements.find(|statement| is_gather(&statement.kind)).unwrap()
    }

    #[test]
    fn message_outside_of_the_plan_is_refused() {
        let plan = plan();
        let worker = Peer::Worker(WorkerIx(1));
        let check = |message: Message, from: Peer, expect: &str| {
            let error = message.check(&plan, from).unwrap_err();
            assert!(error.contains(expect), "{error} instead of {expect}");
        };
        let far = 4_000_000_000;
        let bundle = "bundle 4000000000 is out of range";
        check(Message::Installed { bundle: BundleIx(far), version: 1 }, worker, bundle);
        check(Message::Ended { bundle: BundleIx(far) }, worker, bundle);
        let entry = Entry { worker: WorkerIx(0), version: 1 };
        check(Message::Migrate { bundle: BundleIx(far), to: entry }, Peer::Controller, bundle);
        check(Message::Map(vec![(BundleIx(far), entry)]), Peer::Controller, bundle);
        check(Message::Map(Vec::new()), worker, "only the controller");
        check(Message::Stop, worker, "only the controller");
        let state =
            JobState { map: vec![entry].into(), members: vec![WorkerIx(0)], version: 1, snapshot: None };
        check(Message::Begin(state.into()), Peer::Controller, "its map has 1 bundles of");

        let position = Instance { epoch: 1, statement: StatementIx(700) };
        let saved = Saved { bundle: BundleIx(0), position, iteration: 1, datasets: Vec::new() };
        check(Message::Saved(saved.into()), worker, "statement 700 does not end an iteration");

        let mut report = Report { worker: WorkerIx(1), ..Report::default() };
        report.observed.insert(StatementIx(far), (1, 1));
        check(Message::Finished(report.clone().into()), worker, "statement 4000000000 is out of range");
        report.observed.clear();
        assert_eq!(Message::Report(report.clone().into()).check(&plan, worker), Ok(()));
        check(Message::Report(report.clone().into()), Peer::Worker(WorkerIx(2)), "it reports as worker 1");
        report.bundles.push((BundleIx(far), 1, 1));
        check(Message::Report(report.into()), worker, bundle);

        let output = |dataset, partition| {
            let content = Chunk::Encoded(vec![0; 8].into());
            Message::Output { dataset: DatasetIx(dataset), partition, content }
        };
        check(output(far, 0), worker, "dataset 4000000000 is out of range");
        check(output(0, 2), worker, "partition 2 is out of range; there are 2");
        check(output(1, 0), worker, "dataset 1 is not an output");

        let signal = Signal { value: true, snapshot: false };
        check(Message::Signals(vec![(u64::MAX, signal)]), worker, "epoch 18446744073709551615");
        let chunk = |to, statement| {
            let gather = Instance { epoch: 0, statement };
            let arrival = Arrival::Chunk { gather, source: 0, chunk: None };
            Message::Deliver { to: vec![(BundleIx(to), 1)], arrival }
        };
        assert_eq!(chunk(1, gather(&plan)).check(&plan, worker), Ok(()));
        check(chunk(far, gather(&plan)), worker, bundle);
        check(chunk(1, StatementIx(700)), worker, "statement 700 is out of range");
        check(chunk(2, gather(&plan)), worker, "is not a gather of the bundle");
        assert_eq!(Message::Failed(JobError::Cancelled).check(&plan, worker), Ok(()));
    }

    #[test]
    fn bundle_that_kernels_could_not_use_is_refused() {
        let plan = plan();
        let check = |change: &dyn Fn(&mut Packed), expect: &str| {
            let mut packed = packed(&plan);
            change(&mut packed);
            let error = Message::Install(packed.into()).check(&plan, Peer::Worker(WorkerIx(0))).unwrap_err();
            assert!(error.contains(expect), "{error} instead of {expect}");
        };
        assert_eq!(Message::Install(packed(&plan).into()).check(&plan, Peer::Worker(WorkerIx(0))), Ok(()));
        check(&|packed| packed.bundle = BundleIx(99), "bundle 99 is out of range");
        check(&|packed| packed.states.truncate(1), "does not have the partitions of its group");
        check(&|packed| packed.states[0].0 = DatasetIx(2), "does not have the partitions of its group");
        check(&|packed| packed.states[0].0 = DatasetIx(4_000_000_000), "dataset 4000000000 is out of range");
        check(&|packed| packed.position.statement = StatementIx(700), "statement 700 is out of range");
        // The scatter of another group.
        check(&|packed| packed.position.statement = gather(&plan).before(), "is not one of the bundle");
        check(&|packed| packed.saved.push(Part::new(DatasetIx(64), 0, b"")), "dataset 64 is out of range");
        let deferred = |statement| Instance { epoch: 0, statement };
        check(&|packed| packed.deferred.push(deferred(gather(&plan).before())), "is not a gather");
        check(&|packed| packed.deferred = vec![deferred(gather(&plan)); 9], "9 deferred gathers");
        check(&|packed| packed.chunks.push((deferred(gather(&plan)), 1, None)), "source 1 is out of range");
    }
}
