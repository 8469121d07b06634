//! Commits of snapshots: makes the controller's manifests durable.

use crate::control::controller::{Controller, MAX_SNAPSHOTS};
use crate::error::warn;
use crate::snapshot::store::SnapshotStore;

/// Writes the controller's pending manifests and deletes the objects that they replace. Shows its warnings.
pub(crate) fn commit(controller: &mut Controller, store: Option<&SnapshotStore>) {
    let Some(store) = store else { return };
    for warning in std::mem::take(&mut controller.warnings) {
        warn(&format!("snapshots in {}: {warning}", store.shown(controller.plan())));
    }
    for manifest in std::mem::take(&mut controller.commits) {
        let before = controller.snapshots().to_vec();
        let kept = std::iter::once(&manifest).chain(&before).take(MAX_SNAPSHOTS);
        if let Err(error) = store.write_manifest(controller.plan(), kept) {
            controller.fail(error);
            return;
        }
        controller.committed(manifest);
        store.remove_replaced(controller.plan(), &before, controller.snapshots());
    }
}
