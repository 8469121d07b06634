//! Bundles in transit: packing for migration, and unpacking.

use crate::dataflow::data::Chunk;
use crate::dataflow::plan::Plan;
use crate::error::JobError;
use crate::exec::bundle::Bundle;
use crate::protocol::message::Packed;
use crate::protocol::records::Signal;

impl Packed {
    /// Packs a bundle for sending.
    pub fn pack(bundle: Bundle, version: u32, signals: Vec<(u64, Signal)>) -> Self {
        let saved = bundle.saved.iter().flatten().copied().collect();
        let mut chunks = Vec::new();
        for pending in bundle.gathers {
            // The receiver puts the chunks back at the same places.
            let received = pending
                .received
                .iter()
                .zip(pending.chunks)
                .enumerate()
                .filter(|(_, (received, _))| **received);
            chunks.extend(received.map(|(place, (_, chunk))| (pending.instance, place as u32, chunk)));
        }
        let states = bundle
            .states
            .into_entries()
            .filter_map(|(dataset, state)| state.map(|state| (dataset, Chunk::encoded(&*state))));
        Self {
            bundle: bundle.ix,
            version,
            position: bundle.position,
            deferred: bundle.deferred,
            gathered: bundle.gathered,
            iteration: bundle.iteration,
            since_snapshot: bundle.since_snapshot,
            written: bundle.written,
            written_before: bundle.written_before,
            saved,
            passed: bundle.passed,
            tasks: bundle.tasks,
            chunks,
            states: states.collect(),
            signals,
        }
    }

    /// Unpacks the bundle.
    ///
    /// # Errors
    /// If a partition or chunk cannot be decoded.
    pub fn unpack(self, plan: &Plan) -> Result<Bundle, JobError> {
        let mut bundle = Bundle::new(plan, self.bundle);
        let index = bundle.index;
        for (dataset, content) in self.states {
            let spec = &plan.datasets[dataset];
            let mut bytes = Vec::new();
            content.encode(&mut bytes);
            let state = (spec.decode)(index, &bytes).map_err(|error| JobError::Load {
                dataset: spec.name.clone(),
                partition: index,
                cause: format!("cannot decode it after migration: {error}"),
            })?;
            bundle.states[dataset] = Some(state);
        }
        bundle.position = self.position;
        bundle.gathered = self.gathered;
        bundle.iteration = self.iteration;
        bundle.since_snapshot = self.since_snapshot;
        bundle.written = self.written;
        bundle.written_before = self.written_before;
        bundle.passed = self.passed;
        bundle.tasks = self.tasks;
        bundle.unloaded = false;
        bundle.set_saved(&self.saved);
        for instance in self.deferred {
            bundle.defer(plan, instance);
        }
        for (instance, place, chunk) in self.chunks {
            bundle.receive_at(plan, instance, place as usize, chunk)?;
        }
        Ok(bundle)
    }
}
