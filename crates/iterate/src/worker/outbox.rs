//! The outbox of a worker thread: delivers the chunks of its scatter tasks here and to other workers.

use crate::dataflow::index::{BundleIx, WorkerIx};
use crate::dataflow::plan::Instance;
use crate::dataflow::routes::{Routes, Sent};
use crate::exec::host::Outbox;
use crate::protocol::message::{Message, Peer};
use crate::protocol::records::Arrival;
use crate::worker::state::Worker;

/// See the [module](self).
pub(crate) struct ThreadOutbox<'w> {
    worker: &'w Worker,
    buffers: Vec<Sent>,
    /// Destinations of the current scatter task on other workers: worker, bundle, version, place.
    remote: Vec<(WorkerIx, BundleIx, u32, usize)>,
}

impl<'w> ThreadOutbox<'w> {
    pub fn new(worker: &'w Worker) -> Self {
        Self { worker, buffers: Vec::new(), remote: Vec::new() }
    }

    /// Sends one message for all bundles of a worker that get the shared chunk, and one for each other bundle.
    fn send_remote(&mut self, arrival: impl Fn(usize) -> Arrival, shared: impl Fn(usize) -> bool) {
        self.remote.sort_by_key(|&(worker, _, _, place)| (worker, !shared(place)));
        for group in self.remote.chunk_by(|a, b| a.0 == b.0 && shared(a.3) && shared(b.3)) {
            let to = group.iter().map(|&(_, bundle, version, _)| (bundle, version)).collect();
            let arrival = arrival(group[0].3);
            self.worker.send(Peer::Worker(group[0].0), Message::Deliver { to, arrival });
        }
        self.remote.clear();
    }
}

impl Outbox for ThreadOutbox<'_> {
    fn buffer(&mut self) -> Sent {
        self.buffers.pop().unwrap_or_default()
    }

    fn send(&mut self, gather: Instance, source: u32, routes: &Routes, mut sent: Sent) {
        let worker = self.worker;
        let group = worker.plan.group_of(gather.statement);
        let arrival = |place| Arrival::Chunk { gather, source, chunk: sent.chunk(place) };
        for place in 0..routes.width(source) {
            let to = group.bundle(routes.destination(source, place));
            let owner = worker.map.get(to);
            if owner.worker == worker.rank() {
                worker.deliver(to, owner.version, arrival(place));
            } else {
                self.remote.push((owner.worker, to, owner.version, place));
            }
        }
        if !self.remote.is_empty() {
            self.send_remote(arrival, |place| sent.chunks.get(place).is_none_or(Option::is_none));
        }
        sent.clear();
        self.buffers.push(sent);
    }
}
