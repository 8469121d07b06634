//! A job over several processes on one or more machines: a controller, and workers that connect to it.
//!
//! The launcher decides how workers are started. [`control`] passes it an [`Invitation`], which holds
//! everything a worker needs, and each worker calls [`work`]. Both sides build the same program, which they
//! compare when they connect. Any launcher can therefore host a worker: local processes, or Spark barrier
//! tasks. The invitation can be passed in the environment, as `PELLUCID_ITERATE_CONTROLLER`,
//! `PELLUCID_ITERATE_SECRET`, `PELLUCID_ITERATE_RANK` and `PELLUCID_ITERATE_ENCRYPT`.

use std::collections::BTreeMap;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::control::controller::Controller;
use crate::dataflow::index::WorkerIx;
use crate::dataflow::outcome::Outcome;
use crate::dataflow::plan::Plan;
use crate::drive::driver::{JobDriver, POLL_INTERVAL, REPORT_INTERVAL, Transport};
use crate::drive::local::StopAtEnd;
use crate::drive::options::RunOptions;
use crate::error::{JobError, warn};
use crate::protocol::message::{Envelope, Message, Peer};
use crate::protocol::ports::{Network, Store};
use crate::snapshot::store::{SnapshotStore, Snapshots};
use crate::tracing::merging::TraceMerger;
use crate::tracing::recording::Recording;
use crate::tracing::sampling::{SampleBuffer, Sampler};
use crate::transport::handshake::CONTROLLER;
use crate::transport::invitation::Invitation;
use crate::transport::mesh::{CLOSED, Mesh, MeshEvent};
use crate::worker::state::{Worker, WorkerOptions};
use crate::worker::threads::{ClockMeter, Io, drive, settle};

/// Interval of the controller's heartbeats to workers.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Configuration of the workers of a job.
pub struct Cluster {
    /// Number of workers that must connect before the job starts.
    pub workers: u32,
    /// Address that the controller listens on; port 0 picks a free port.
    pub bind: String,
    /// Secret of the job; `None` generates one.
    pub secret: Option<String>,
    /// True if the processes of the job encrypt their connections.
    pub encrypted: bool,
    /// True if the controller balances load.
    pub balances: bool,
    /// True if the launcher restarts all workers when all are lost, as Spark does with the tasks of a stage. The job
    /// then waits for them, and resumes from its snapshot or restarts from the beginning.
    pub restarts: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            workers: 2,
            bind: "127.0.0.1:0".into(),
            secret: None,
            encrypted: false,
            balances: true,
            restarts: false,
        }
    }
}

/// Settings of a worker.
pub struct WorkerSettings {
    /// Rank of the worker, unique within the job.
    pub rank: u32,
    /// Threads that run tasks.
    pub threads: usize,
    /// Address that it listens on for other workers; port 0 picks a free port. `None` uses the local address of its
    /// route to the controller, which is the loopback address on a single machine.
    pub bind: Option<String>,
    /// Snapshot settings, the same as the controller's. Each worker writes its own partitions.
    pub snapshots: Option<Snapshots>,
    /// True if the job is traced: the worker then samples tasks, and counts messages and bytes.
    pub traced: bool,
    /// Maximum time without a message from the controller, which sends one per second.
    pub wait_limit: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            rank: 0,
            threads: 1,
            bind: None,
            snapshots: None,
            traced: false,
            wait_limit: Duration::from_secs(300),
        }
    }
}

/// Runs a job on the workers started by `start`. Child processes that it returns are terminated with the job.
///
/// # Errors
/// If the job fails, or workers do not connect within `options.wait_limit`.
pub fn control(
    plan: Arc<Plan>,
    cluster: &Cluster,
    mut options: RunOptions,
    start: impl FnOnce(&Invitation) -> std::io::Result<Vec<Child>>,
) -> Result<Outcome, JobError> {
    let wrong = |cause: String| JobError::Connection { peer: "controller".into(), cause };
    let store = options.snapshots.as_ref().map(SnapshotStore::open).transpose()?;
    let snapshots = store.as_ref().map_or(Ok(Vec::new()), |store| store.resume(&plan))?;
    let secret = cluster.secret.clone().map_or_else(Invitation::random_secret, Ok).map_err(wrong)?;
    let encrypted = cluster.encrypted;
    let (mesh, listener) =
        Mesh::new(&cluster.bind, &secret, encrypted, plan.clone(), CONTROLLER).map_err(wrong)?;
    mesh.accept(listener, |refusal| warn(&refusal)).map_err(wrong)?;
    let invitation = Invitation { controller: mesh.address.clone(), secret, encrypted };
    let memory = std::mem::take(&mut options.memory);
    let recording = options.recorder.take().map(|recorder| Recording::begin(&plan, recorder));
    let trace = recording.map(|recording| TraceMerger::new(recording, memory));
    let mut controller = Controller::new(plan, cluster.workers as usize, cluster.balances, snapshots);
    controller.restarts = cluster.restarts;
    let children = start(&invitation).map_err(|error| wrong(format!("cannot start workers: {error}")))?;
    let started = Instant::now();
    let mut job = JobDriver::new(controller, RemoteWorkers::new(mesh.clone(), children, trace));
    job.run(&mut options, store.as_deref());
    job.round(&mut options, None);
    if let Some(trace) = job.transport.trace.take() {
        trace.end(job.controller.result.as_ref().and_then(|result| result.as_ref().err()));
    }
    job.transport.end_children();
    mesh.close();
    let mut outcome = job.controller.into_outcome()?;
    outcome.elapsed_ns = Some(started.elapsed().as_nanos() as u64);
    Ok(outcome)
}

/// The workers of a job over several processes.
struct RemoteWorkers {
    mesh: Arc<Mesh>,
    children: Vec<Child>,
    trace: Option<TraceMerger>,
    addresses: BTreeMap<WorkerIx, String>,
    /// Time of the last message from each worker.
    last_heard: BTreeMap<WorkerIx, Instant>,
    /// Start of the current wait for workers to connect.
    gathering_since: Instant,
    /// Time of the last heartbeat, which carries the workers' addresses.
    heartbeat_at: Instant,
    /// Time of the last poll for messages.
    polled_at: Instant,
}

impl Transport for RemoteWorkers {
    fn receive(&mut self, controller: &mut Controller) -> Duration {
        let mut events = Vec::new();
        let mut unpolled = self.polled_at.elapsed();
        let from = Instant::now();
        self.mesh.poll(Some(POLL_INTERVAL), |event| {
            events.push(event);
            Ok(())
        });
        unpolled += from.elapsed().saturating_sub(POLL_INTERVAL);
        self.polled_at = Instant::now();
        if unpolled <= HEARTBEAT_INTERVAL {
            unpolled = Duration::ZERO;
        }
        // This process did not poll because of a slow store or because it was stopped. Do not count that time
        // against the workers.
        self.last_heard.values_mut().for_each(|last_heard| *last_heard += unpolled);
        self.gathering_since += unpolled;
        events.into_iter().for_each(|event| self.handle(controller, event));
        unpolled
    }

    fn send(&mut self, to: WorkerIx, envelope: Envelope) {
        self.mesh.send(Peer::Worker(to), envelope);
    }

    fn tend(&mut self, controller: &mut Controller, limit: Duration) {
        if self.heartbeat_at.elapsed() >= HEARTBEAT_INTERVAL {
            self.send_addresses();
        }
        let last_heard = self.last_heard.iter();
        let silent = last_heard.filter(|(_, last_heard)| last_heard.elapsed() > limit);
        for worker in silent.map(|(&worker, _)| worker).collect::<Vec<_>>() {
            self.drop_worker(
                controller,
                worker,
                &format!("no message from it for {:.1} s", limit.as_secs_f64()),
            );
        }
        if controller.has_begun() {
            self.gathering_since = Instant::now();
        } else {
            self.check_gathering(controller, limit);
        }
    }
}

impl RemoteWorkers {
    fn new(mesh: Arc<Mesh>, children: Vec<Child>, trace: Option<TraceMerger>) -> Self {
        let now = Instant::now();
        Self {
            mesh,
            children,
            trace,
            addresses: BTreeMap::new(),
            last_heard: BTreeMap::new(),
            gathering_since: now,
            heartbeat_at: now,
            polled_at: now,
        }
    }

    fn handle(&mut self, controller: &mut Controller, event: MeshEvent) {
        match event {
            MeshEvent::Joined(worker, address) => {
                self.addresses.insert(worker, address);
                self.last_heard.insert(worker, Instant::now());
                self.send_addresses();
                controller.joined(worker);
            }
            MeshEvent::Message(Peer::Worker(worker), envelope) => {
                self.last_heard.insert(worker, Instant::now());
                match (envelope.message, &mut self.trace) {
                    (Message::Unreachable { worker: other, cause }, _) => {
                        if controller.is_current(envelope.generation) && other != worker {
                            let cause = format!("worker {worker} cannot reach it: {cause}");
                            self.drop_worker(controller, other, &cause);
                        }
                    }
                    (Message::Trace(batch), Some(trace)) => trace.take(worker, *batch, controller.members()),
                    (message, _) => controller.handle(worker, Envelope { message, ..envelope }),
                }
            }
            MeshEvent::Lost(Peer::Worker(worker), cause) => self.lost(controller, worker, &cause),
            MeshEvent::Message(Peer::Controller, _) | MeshEvent::Lost(Peer::Controller, _) => {}
        }
    }

    /// Sends all workers the addresses of the others; repeated as a heartbeat.
    fn send_addresses(&mut self) {
        self.heartbeat_at = Instant::now();
        let to = self.addresses.keys().map(|&worker| Peer::Worker(worker));
        to.for_each(|to| self.mesh.send_addresses(to, &self.addresses));
    }

    fn lost(&mut self, controller: &mut Controller, worker: WorkerIx, cause: &str) {
        self.last_heard.remove(&worker);
        self.addresses.remove(&worker);
        controller.lost(worker, cause);
    }

    /// Declares a connected worker lost. Closing its connection tells the worker that it left the job.
    fn drop_worker(&mut self, controller: &mut Controller, worker: WorkerIx, cause: &str) {
        self.mesh.cut(Peer::Worker(worker));
        self.lost(controller, worker, cause);
    }

    /// Fails the job if the workers that it waits for will not connect.
    fn check_gathering(&mut self, controller: &mut Controller, limit: Duration) {
        let mut children = (0..).zip(&mut self.children);
        let exited =
            children.find_map(|(rank, child)| child.try_wait().ok().flatten().map(|status| (rank, status)));
        if let Some((worker, status)) = exited.filter(|_| !controller.restarts) {
            let cause = format!("it exited before the job began ({status})");
            controller.fail(JobError::WorkerLost { worker, cause });
        } else if self.children.is_empty() && !controller.restarts && self.gathering_since.elapsed() > limit {
            // No timeout for live children, which may still be reading their data, nor for workers whose launcher
            // reports their end.
            let waited_for = format!("workers to connect to {}", self.mesh.address);
            controller.fail(JobError::TimedOut { waited_for, limit });
        }
    }

    /// Waits up to 5 s for the children to exit by themselves, and then kills them.
    fn end_children(&mut self) {
        let until = Instant::now() + Duration::from_secs(5);
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns this machine's address on the route to `other`, with port 0. Sends nothing.
fn address_facing(other: &str) -> Result<String, String> {
    let towards = |any: &str| {
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(other)?;
        socket.local_addr()
    };
    let own = towards("0.0.0.0:0").or_else(|_| towards("[::]:0"));
    let own = own.map_err(|error| format!("cannot find a route to {other}: {error}"))?;
    Ok(std::net::SocketAddr::new(own.ip(), 0).to_string())
}

/// The network I/O of a worker's threads.
struct WorkerIo<'w> {
    mesh: Arc<Mesh>,
    worker: &'w Worker,
}

impl Io for WorkerIo<'_> {
    fn poll(&self, wait: Option<Duration>) -> bool {
        self.mesh.poll(wait, |event| {
            if let MeshEvent::Message(from, envelope) = &event {
                self.worker.admit(*from, envelope)?;
            }
            self.handle(event);
            Ok(())
        })
    }

    fn is_full(&self) -> bool {
        Network::is_full(&*self.mesh)
    }

    fn local_workers(&self) -> usize {
        self.mesh.local_workers()
    }
}

impl WorkerIo<'_> {
    fn handle(&self, event: MeshEvent) {
        match event {
            MeshEvent::Message(from, envelope) => settle(self.worker, self.worker.handle(from, envelope)),
            // A worker cannot continue without its controller.
            MeshEvent::Lost(Peer::Controller, cause) => {
                if cause != CLOSED {
                    warn(&format!("lost the connection to the controller: {cause}"));
                }
                self.worker.stop();
            }
            // Messages in flight are lost even if the worker is alive, so the controller must decide.
            MeshEvent::Lost(Peer::Worker(worker), cause) if self.worker.members().contains(&worker) => {
                self.worker.send(Peer::Controller, Message::Unreachable { worker, cause });
            }
            MeshEvent::Lost(Peer::Worker(_), _) | MeshEvent::Joined(..) => {}
        }
    }
}

/// Runs this process as a worker until the job ends.
///
/// # Errors
/// If the controller is unreachable or refuses this worker, or the snapshot store cannot be opened. Failures of
/// the job itself are reported to the controller.
pub fn work(plan: Arc<Plan>, invitation: &Invitation, settings: &WorkerSettings) -> Result<(), JobError> {
    let rank = WorkerIx(settings.rank);
    let wrong = |cause: String| JobError::Connection { peer: invitation.controller.clone(), cause };
    let bind =
        settings.bind.clone().map_or_else(|| address_facing(&invitation.controller), Ok).map_err(wrong)?;
    let Invitation { secret, encrypted, .. } = invitation;
    let (mesh, listener) =
        Mesh::new(&bind, secret, *encrypted, plan.clone(), settings.rank).map_err(wrong)?;
    mesh.accept(listener, |refusal| warn(&refusal)).map_err(wrong)?;
    let store = settings.snapshots.as_ref().map(SnapshotStore::open).transpose()?;
    let snapshot_every = settings.snapshots.as_ref().map_or(0, |snapshots| snapshots.every_iterations);
    let threads = settings.threads.max(1);
    let options = WorkerOptions { rank, threads, snapshot_every };
    let worker = Worker::new(plan.clone(), options, mesh.clone(), store.map(|store| store as Arc<dyn Store>));
    let samples = settings.traced.then(|| Arc::new(SampleBuffer::new(threads)));
    if let Some(samples) = &samples {
        let _ = (worker.samples.set(samples.clone()), mesh.samples.set(samples.clone()));
    }
    let waker = mesh.clone();
    let _ = worker.run_queues[0].waker.set(Box::new(move || waker.interrupt()));
    let io = WorkerIo { mesh: mesh.clone(), worker: &worker };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&worker);
        for index in 0..threads {
            let (worker, io) = (&worker, &io);
            let meter = ClockMeter::new(samples.as_deref().map(|samples| Sampler::new(&plan, samples)));
            let started =
                Builder::new().spawn_scoped(scope, move || drive(worker, index, meter, cores, Some(io)));
            if let Err(error) = started {
                return Err(JobError::no_thread(index, threads, &error));
            }
        }
        // Last, so that no job runs on a worker that lacks threads.
        mesh.dial_controller(&invitation.controller).map_err(wrong)?;
        // This thread reports, and receives messages while all others run long tasks.
        let mut reported = Instant::now();
        while !worker.gate.is_stopped() {
            std::thread::sleep(Duration::from_millis(2));
            if worker.run_queues.iter().all(|queue| !queue.idle.load(Ordering::SeqCst)) {
                io.poll(None);
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                worker.tick(reported.elapsed().as_nanos() as u64);
                reported = Instant::now();
            }
            if mesh.controller_silence() > settings.wait_limit {
                worker.stop();
            }
        }
        Ok(())
    })?;
    // A worker that left, or whose job failed, may still have samples.
    worker.send_trace();
    mesh.flush_all(Duration::from_secs(5));
    mesh.close();
    if mesh.controller_silence() > settings.wait_limit {
        let waited_for = format!("the controller at {}", invitation.controller);
        return Err(JobError::TimedOut { waited_for, limit: settings.wait_limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::dataflow::index::BundleIx;

    #[test]
    fn worker_times_out_when_controller_hangs() {
        let mut program = Program::new("nothing");
        let one = program.dataset("one", 1, |_| Ok(0u64));
        program.transform("nothing", one, (), |_, ()| Ok(()));
        let plan = program.build().unwrap();
        const SECRET: &str = "a secret of some length";
        // It completes the handshake and then sends nothing.
        let (mesh, listener) = Mesh::new("127.0.0.1:0", SECRET, false, plan.clone(), CONTROLLER).unwrap();
        mesh.accept(listener, |_| ()).unwrap();
        let invitation =
            Invitation { controller: mesh.address.clone(), secret: SECRET.into(), encrypted: false };
        let settings = WorkerSettings { wait_limit: Duration::from_millis(200), ..WorkerSettings::default() };
        let error = work(plan, &invitation, &settings).unwrap_err().to_string();
        assert!(error.contains("waiting for the controller"), "{error}");
        mesh.close();
    }

    /// An authenticated worker sends a bundle that does not exist.
    #[test]
    fn invalid_message_of_a_worker_ends_its_job_with_an_error_that_names_it() {
        let mut program = Program::new("nothing");
        let one = program.dataset("one", 1, |_| Ok(0u64));
        program.transform("nothing", one, (), |_, ()| Ok(()));
        let plan = program.build().unwrap();
        let cluster = Cluster { workers: 1, ..Cluster::default() };
        let options = RunOptions { wait_limit: Duration::from_secs(20), ..RunOptions::default() };
        let error = control(plan.clone(), &cluster, options, |invitation| {
            let (mesh, _listener) = Mesh::new("127.0.0.1:0", &invitation.secret, false, plan, 7).unwrap();
            mesh.dial_controller(&invitation.controller).unwrap();
            let message = Message::Ended { bundle: BundleIx(4_000_000_000) };
            mesh.send(Peer::Controller, Envelope { generation: 1, message });
            std::mem::forget(mesh);
            Ok(Vec::new())
        });
        let expected =
            "worker 7 was lost: it sent an invalid message: bundle 4000000000 is out of range; there are 1";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}
