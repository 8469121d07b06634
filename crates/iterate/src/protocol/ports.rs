//! The interfaces through which a worker reaches the network and the snapshot store.

use crate::dataflow::index::WorkerIx;
use crate::error::JobError;
use crate::protocol::message::{Envelope, Peer};

/// A transport for messages.
pub(crate) trait Network: Send + Sync {
    /// Sends a message without waiting for the receiver.
    fn send(&self, to: Peer, envelope: Envelope);
    /// Returns whether senders should wait because too many bytes are queued.
    fn is_full(&self) -> bool {
        false
    }
    /// Discards the messages queued for a lost worker.
    fn forget(&self, _worker: WorkerIx) {}
}

/// Callback for the end of a save.
pub(crate) type SaveDone = Box<dyn FnOnce(Result<(), JobError>) + Send>;

/// A store for the partitions of snapshots.
pub(crate) trait Store: Send + Sync {
    /// Starts writing objects, each atomically, and calls `done` at the end. Does not wait.
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone);
    /// Reads an object. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// The store's error, with the location.
    fn load(&self, object: &str) -> Result<Option<bytes::Bytes>, JobError>;
    /// Returns whether earlier objects are still being written, so that a new snapshot should wait.
    fn is_busy(&self) -> bool {
        false
    }
}
