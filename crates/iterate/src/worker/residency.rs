//! A bundle's stay on a worker: it is placed, loaded, saved, and handed over to another worker.

use std::sync::atomic::Ordering;

use crate::dataflow::data::AnyData;
use crate::dataflow::load::load_partition;
use crate::error::JobError;
use crate::exec::bundle::Bundle;
use crate::exec::slot::Slot;
use crate::protocol::message::{Envelope, Message, Packed, Peer};
use crate::protocol::ports::Store;
use crate::protocol::records::{Part, Saved, Usage};
use crate::snapshot::layout::object;
use crate::sync::lock;
use crate::worker::state::{Control, Worker};

/// The content of a partition, or the damage found in its snapshot.
type LoadedPart = Result<Box<dyn AnyData>, String>;

impl Worker {
    /// Puts a bundle into its slot. Call only while no thread uses the slot.
    pub fn place(&self, control: &mut Control, bundle: Box<Bundle>, version: u32) {
        let ix = bundle.ix;
        let slot = self.slot(ix);
        slot.version.store(version, Ordering::Release);
        slot.epoch.store(bundle.position.epoch, Ordering::Release);
        slot.iteration.store(bundle.iteration, Ordering::Release);
        slot.tasks.store(bundle.tasks, Ordering::Release);
        slot.size_bytes.store(bundle.size_bytes(), Ordering::Release);
        *slot.bundle() = Some(bundle);
        let mut inbox = lock(&slot.inbox);
        inbox.resident = true;
        inbox.arrivals.extend(control.migration.arrive(ix));
        drop(inbox);
        slot.has_mail();
    }

    /// Loads a bundle's missing partitions from the snapshot that the job resumed from, or else with the program's
    /// loaders. Returns false, and tells the controller, if the snapshot is damaged.
    pub fn load(&self, bundle: &mut Bundle) -> Result<bool, JobError> {
        for dataset in self.plan.datasets.indexes() {
            let here = self.plan.groups[bundle.group].datasets.contains(dataset);
            if !here || bundle.states[dataset].is_some() {
                continue;
            }
            let state = match (bundle.saved[dataset], &self.store) {
                (Some(part), Some(store)) => match self.load_part(&**store, bundle.index, &part)? {
                    Ok(state) => state,
                    Err(cause) => {
                        self.send(Peer::Controller, Message::Damaged { cause });
                        return Ok(false);
                    }
                },
                _ => load_partition(&self.plan, dataset, bundle.index)?,
            };
            bundle.states[dataset] = Some(state);
        }
        bundle.unloaded = false;
        self.slot(bundle.ix).size_bytes.store(bundle.size_bytes(), Ordering::Release);
        Ok(true)
    }

    /// Loads a partition from the snapshot store. The inner error tells how it is damaged.
    fn load_part(&self, store: &dyn Store, partition: u32, part: &Part) -> Result<LoadedPart, JobError> {
        let name = object(&self.plan, part.dataset, partition, part.epoch);
        let Some(bytes) = store.load(&name)? else { return Ok(Err(format!("{name} is missing"))) };
        let decode = &self.plan.datasets[part.dataset].decode;
        let verified = part.verify(&bytes).map_err(|cause| format!("{name} is damaged: {cause}"));
        Ok(verified
            .and_then(|()| decode(partition, &bytes).map_err(|e| format!("{name} cannot be decoded: {e}"))))
    }

    /// Saves the changed partitions of a bundle, and notifies the controller once they are durable.
    pub fn save(&self, bundle: &mut Bundle) {
        let Some(store) = &self.store else { return };
        let epoch = bundle.position.epoch;
        let anew = bundle.mark_saved(&self.plan).into_iter();
        let objects = anew.map(|(dataset, bytes)| (object(&self.plan, dataset, bundle.index, epoch), bytes));
        let saved = Message::Saved(Box::new(Saved {
            bundle: bundle.ix,
            position: bundle.position,
            iteration: bundle.iteration,
            datasets: bundle.saved.iter().flatten().copied().collect(),
        }));
        let network = self.network.clone();
        let generation = self.generation.load(Ordering::Acquire);
        let done = Box::new(move |result: Result<(), JobError>| {
            let message = result.map_or_else(Message::Failed, |()| saved);
            network.send(Peer::Controller, Envelope { generation, message });
        });
        store.save(objects.collect(), done);
    }

    /// Hands over a bundle between two of its tasks (§4.4). Returns the bundle if it stays after all.
    pub fn depart(&self, slot: &Slot, mut bundle: Box<Bundle>) -> Option<Box<Bundle>> {
        let mut control = lock(&self.control);
        slot.migration_requested.store(false, Ordering::Release);
        let Some(to) = control.migration.take_request(bundle.ix) else { return Some(bundle) };
        let mut inbox = lock(&slot.inbox);
        inbox.resident = false;
        let arrivals = std::mem::take(&mut inbox.arrivals);
        drop(inbox);
        for arrival in arrivals {
            if let Err(error) = bundle.receive(&self.plan, arrival) {
                drop(control);
                self.fail(error);
                return Some(bundle);
            }
        }
        self.map.update(bundle.ix, to);
        control.migration.depart(bundle.ix, to.version, bundle.position.epoch);
        let busy_ns = slot.busy_ns.swap(0, Ordering::Relaxed);
        control.reporting.depart(bundle.ix, Usage { busy_ns, tasks: bundle.tasks });
        drop(control);
        let packed = Packed::pack(*bundle, to.version, self.signals.known());
        self.send(Peer::Worker(to.worker), Message::Install(Box::new(packed)));
        None
    }
}
