//! Limits on messages that a worker keeps until it can use them.
//!
//! Chunks may arrive before their gather, before their bundle, or before the generation that they belong to. The
//! program bounds how many: a bundle receives one chunk per epoch from each source of each of its gathers, and no
//! peer is more than [`MAX_LEAD`] epochs ahead. A peer that exceeds this is treated as lost. The size of a message
//! is not limited by the program.

use std::sync::atomic::Ordering;

use crate::dataflow::index::BundleIx;
use crate::dataflow::plan::{Kind, Plan};
use crate::protocol::limits::{EPOCH_REPORT_INTERVAL, MAX_LEAD};
use crate::protocol::message::{Envelope, Message, Peer};
use crate::protocol::records::Arrival;
use crate::sync::lock;
use crate::worker::state::Worker;

/// Maximum number of workers that report their progress to the bundles here.
const MAX_WORKERS: usize = 1 << 16;

/// Other messages of a peer for a future generation: signals, members and changes of the map.
const MAX_OTHERS: usize = 1 << 16;

impl Plan {
    /// Returns the maximum number of arrivals that wait for a bundle. Messages may be repeated, and workers report
    /// their progress too, but the lead is several times larger than the one that workers keep to.
    fn max_arrivals(&self, bundle: BundleIx) -> usize {
        let (group, index) = self.locate(bundle);
        let gathers = self.statements.iter().filter(|statement| statement.group == group);
        let chunks: usize = gathers
            .map(|statement| match &statement.kind {
                Kind::Gather { routes, .. } => routes.expected(index),
                _ => 0,
            })
            .sum();
        let reports = self.bundle_count / EPOCH_REPORT_INTERVAL as usize + 1;
        (chunks + reports).saturating_mul(MAX_LEAD as usize)
    }
}

impl Worker {
    /// Checks that this worker can keep a message that another process sent. Its content was checked before.
    ///
    /// # Errors
    /// If the sender is too far ahead, or too many messages wait already.
    pub fn admit(&self, from: Peer, envelope: &Envelope) -> Result<(), String> {
        let here = self.generation.load(Ordering::Acquire);
        if envelope.generation > here {
            let control = lock(&self.control);
            let waiting = control.deferred_messages.get(&from).map_or(0, Vec::len);
            let limit = *self.max_deferred.get_or_init(|| {
                let bundles = self.plan.bundles().map(|bundle| self.plan.max_arrivals(bundle));
                bundles.fold(MAX_OTHERS, usize::saturating_add)
            });
            return within(waiting, limit, "for the next generation");
        }
        match &envelope.message {
            Message::Deliver { to, arrival } if envelope.generation == here => {
                to.iter().try_for_each(|&(bundle, _)| self.admit_arrival(bundle, arrival))
            }
            _ => Ok(()),
        }
    }

    fn admit_arrival(&self, bundle: BundleIx, arrival: &Arrival) -> Result<(), String> {
        let slot = self.slot(bundle);
        let limit = *slot.max_arrivals.get_or_init(|| self.plan.max_arrivals(bundle));
        let waiting = slot.waiting();
        match *arrival {
            Arrival::Chunk { gather, .. } if waiting.is_some() => {
                let epoch = slot.epoch.load(Ordering::Acquire);
                if gather.epoch > epoch.saturating_add(MAX_LEAD) {
                    let ahead = gather.epoch;
                    return Err(format!("bundle {bundle} in epoch {epoch} gets a chunk for epoch {ahead}"));
                }
            }
            Arrival::Chunk { .. } => {}
            Arrival::Passed { worker, .. } => {
                let mut control = lock(&self.control);
                control.reporters.insert(worker);
                within(control.reporters.len() - 1, MAX_WORKERS, "as reports of other workers")?;
            }
        }
        let early = || lock(&self.control).migration.kept(bundle);
        within(waiting.unwrap_or_else(early), limit, &format!("for bundle {bundle}"))
    }
}

/// Returns an error if another message would exceed the limit.
fn within(waiting: usize, limit: usize, purpose: &str) -> Result<(), String> {
    if waiting < limit {
        return Ok(());
    }
    Err(format!("{limit} messages wait {purpose}, more than the program sends"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::dataflow::data::Chunk;
    use crate::dataflow::index::{GroupIx, WorkerIx};
    use crate::dataflow::plan::{Instance, Statement};
    use crate::exec::bundle::Bundle;
    use crate::protocol::ports::Network;
    use crate::protocol::records::Entry;
    use crate::transport::mesh::{Mesh, MeshEvent};
    use crate::worker::state::WorkerOptions;
    use crate::{Cluster, Program, RunOptions, WorkerSettings, control, work};

    const FIRST: BundleIx = BundleIx(0);

    struct Nowhere;

    impl Network for Nowhere {
        fn send(&self, _: Peer, _: Envelope) {}
    }

    fn plan(rounds: u64) -> Arc<Plan> {
        let mut program = Program::new("admission");
        let data = program.dataset("data", 4, |_| Ok(0u64));
        let local = program.dataset("local", 4, |_| Ok(0u64));
        let model = program.dataset("model", 1, |_| Ok(0u64));
        program.times("rounds", rounds, |body| {
            body.broadcast("model to all", model, local);
            body.transform("add", local, data, |_, data| {
                *data += 1;
                Ok(())
            });
            body.tree_reduce("total", data, model, |sum, next| *sum = sum.wrapping_add(*next));
        });
        program.output(model);
        program.build().unwrap()
    }

    /// A chunk of the first gather of bundle 0.
    fn chunk(plan: &Plan, epoch: u64) -> Message {
        let is_gather = |at: &Statement| matches!(at.kind, Kind::Gather { .. }) && at.group == GroupIx(0);
        let statement = plan.statements.find(is_gather).unwrap();
        let (gather, chunk) = (Instance { epoch, statement }, Some(Chunk::Encoded(vec![0; 8].into())));
        Message::Deliver { to: vec![(FIRST, 1)], arrival: Arrival::Chunk { gather, source: 0, chunk } }
    }

    /// Sends a worker messages until one is refused. Returns their number and the error.
    fn fill(worker: &Worker, generation: u32, message: impl Fn(u32) -> Message) -> (usize, String) {
        for number in 0.. {
            let envelope = Envelope { generation, message: message(number) };
            assert_eq!(envelope.message.check(&worker.plan, Peer::Worker(WorkerIx(7))), Ok(()));
            if let Err(error) = worker.admit(Peer::Worker(WorkerIx(7)), &envelope) {
                return (number as usize, error);
            }
            worker.handle(Peer::Worker(WorkerIx(7)), envelope);
        }
        unreachable!()
    }

    #[test]
    fn program_limits_the_messages_that_wait() {
        let plan = plan(9);
        let options = WorkerOptions { rank: WorkerIx(0), threads: 1, snapshot_every: 0 };
        let worker = Worker::new(plan.clone(), options, Arc::new(Nowhere), None);
        worker.map.reset(FIRST, Entry { worker: WorkerIx(0), version: 1 });
        let limit = plan.max_arrivals(FIRST);
        assert!((MAX_LEAD as usize..10 * MAX_LEAD as usize).contains(&limit), "{limit}");
        let error = |limit, purpose| format!("{limit} messages wait {purpose}, more than the program sends");
        let early = (limit, error(limit, "for bundle 0"));
        // A bundle on its way to this worker.
        assert_eq!(fill(&worker, 0, |_| chunk(&plan, 3)), early);
        lock(&worker.control).migration.restart();
        // A bundle on this worker, whose turn does not come.
        worker.place(&mut lock(&worker.control), Box::new(Bundle::new(&plan, FIRST)), 1);
        assert_eq!(fill(&worker, 0, |_| chunk(&plan, MAX_LEAD)), early);
        lock(&worker.slot(FIRST).inbox).arrivals.clear();
        let (number, ahead) = fill(&worker, 0, |_| chunk(&plan, MAX_LEAD + 1));
        assert_eq!((number, ahead.as_str()), (0, "bundle 0 in epoch 0 gets a chunk for epoch 257"));
        let here = worker.slot(FIRST);
        let reports = |worker| {
            lock(&here.inbox).arrivals.clear();
            let arrival = Arrival::Passed { worker: WorkerIx(worker), epoch: 0 };
            Message::Deliver { to: vec![(FIRST, 1)], arrival }
        };
        let refused = error(MAX_WORKERS, "as reports of other workers");
        assert_eq!(fill(&worker, 0, reports), (MAX_WORKERS, refused));
        // A generation that does not begin.
        let (number, refused) = fill(&worker, 1, |_| chunk(&plan, 3));
        assert_eq!(refused, error(number, "for the next generation"));
        assert!(number > MAX_OTHERS);
    }

    /// Of two workers, one sends the other a chunk that is far ahead.
    #[test]
    fn worker_that_is_too_far_ahead_is_dropped() {
        let plan = plan(40);
        let options = RunOptions { wait_limit: Duration::from_secs(20), ..RunOptions::default() };
        let cluster = Cluster { balances: false, ..Cluster::default() };
        let outcome = control(plan.clone(), &cluster, options, |invitation| {
            let (honest, program) = (invitation.clone(), plan.clone());
            std::thread::spawn(move || work(program, &honest, &WorkerSettings::default()));
            let secret = &invitation.secret;
            let (mesh, _listener) = Mesh::new("127.0.0.1:0", secret, false, plan.clone(), 7).unwrap();
            mesh.dial_controller(&invitation.controller).unwrap();
            std::thread::spawn(move || {
                let (until, mut dropped) = (Instant::now() + Duration::from_secs(15), false);
                while Instant::now() < until && !dropped {
                    mesh.poll(Some(Duration::from_millis(10)), |event| {
                        match event {
                            MeshEvent::Message(_, Envelope { generation, message: Message::Begin(_) }) => {
                                let message = chunk(&plan, 1 << 40);
                                mesh.send(Peer::Worker(WorkerIx(0)), Envelope { generation, message });
                            }
                            MeshEvent::Lost(..) => dropped = true,
                            _ => {}
                        }
                        Ok(())
                    });
                }
            });
            Ok(Vec::new())
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.iterations, outcome.recoveries), (40, 1));
    }
}
