//! A job over several processes, of one machine or more: a controller, and workers that dial it.
//!
//! How workers are started is the launcher's business: [`control`] hands it an [`Invitation`] with what a
//! worker has to know, and [`work`] is what the worker calls. Both build the same program, which is
//! compared when they connect. A worker needs nothing else, so that any launcher (this machine's
//! processes, a Spark barrier task) can host it. The invitation may go in the environment, as
//! `PELLUCID_ITERATE_CONTROLLER`, `PELLUCID_ITERATE_SECRET` and `PELLUCID_ITERATE_RANK`.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::control::Wanted;
use crate::controller::Controller;
use crate::error::JobError;
use crate::handshake::CONTROLLER;
use crate::local::{REPORT, ROUND, StopAtEnd};
use crate::merging::Merging;
use crate::mesh::{Mesh, News};
use crate::message::{Envelope, Message, Peer};
use crate::plan::Plan;
use crate::recording::Recording;
use crate::run::{Outcome, RunOptions, Snapshots};
use crate::sampling::{Kept, Sampler};
use crate::store::{self, SnapshotStore};
use crate::threads::{Clocked, Io, drive};
use crate::worker::{Store, Worker, WorkerOptions};

/// How often the controller's process lets workers know that it is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

const ADDRESS: &str = "PELLUCID_ITERATE_CONTROLLER";
const SECRET: &str = "PELLUCID_ITERATE_SECRET";
const RANK: &str = "PELLUCID_ITERATE_RANK";

/// What a worker has to know to take part in a job.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Where the controller listens: `host:port`.
    pub controller: String,
    /// What all processes of the job know, and nobody else.
    pub secret: String,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invitation to {}", self.controller)
    }
}

impl Invitation {
    /// Hands the invitation to a process that is to be started, in its environment.
    pub fn put_into(&self, command: &mut Command, rank: u32) {
        command.env(ADDRESS, &self.controller).env(SECRET, &self.secret).env(RANK, rank.to_string());
    }

    /// The invitation that this process was started with, and its rank; `None`: it is no worker.
    ///
    /// # Errors
    /// What is missing or wrong, where one of the variables says that it is to be a worker.
    pub fn from_environment() -> Result<Option<(Self, u32)>, String> {
        let get = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (controller, rank) = (get(ADDRESS), get(RANK));
        if controller.is_none() && rank.is_none() {
            return Ok(None);
        }
        let missing = |name| format!("{name} is not set; a worker needs {ADDRESS}, {SECRET} and {RANK}");
        let controller = controller.ok_or_else(|| missing(ADDRESS))?;
        let secret = get(SECRET).ok_or_else(|| missing(SECRET))?;
        let rank = rank.ok_or_else(|| missing(RANK))?;
        let rank = rank.parse().map_err(|_| format!("{RANK}={rank}: a worker's rank is a number from 0"))?;
        Ok(Some((Self { controller, secret }, rank)))
    }

    /// The secret alone, where a controller is to share it with workers that somebody else starts.
    pub fn secret_from_environment() -> Option<String> {
        std::env::var(SECRET).ok().filter(|secret| !secret.is_empty())
    }
}

/// How the workers of a job are found.
pub struct Cluster {
    /// Workers that have to be there before it begins.
    pub workers: u32,
    /// Where the controller listens; port 0 is any.
    pub bind: String,
    /// What all processes know; `None`: made up.
    pub secret: Option<String>,
    /// Whether loads are evened out.
    pub balances: bool,
    /// Whether somebody starts as many workers again when all are lost, as Spark does with the tasks of a stage. The
    /// job then waits for them, and goes on from its snapshot or its start.
    pub restarts: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { workers: 2, bind: "127.0.0.1:0".into(), secret: None, balances: true, restarts: false }
    }
}

/// How a worker takes part.
pub struct WorkerSettings {
    /// Its number; any that no other worker of the job has.
    pub rank: u32,
    /// Threads that run tasks.
    pub threads: usize,
    /// Where it listens for other workers; port 0 is any. `None`: at the address that it has towards the
    /// controller, so that on one machine it is the loopback.
    pub bind: Option<String>,
    /// As the controller has them; every worker writes its own partitions.
    pub snapshots: Option<Snapshots>,
    /// Memory for partitions; `None`: not limited. A job that does not fit ends with an error.
    pub memory_bytes: Option<u64>,
    /// Whether the controller keeps a trace: tasks are then sampled, and what is sent is counted.
    pub traced: bool,
    /// How long the controller, which has something to say every second, may be silent.
    pub wait_limit: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            rank: 0,
            threads: 1,
            bind: None,
            snapshots: None,
            memory_bytes: None,
            traced: false,
            wait_limit: Duration::from_secs(300),
        }
    }
}

/// Runs a job over workers that `start` starts; those that it returns are ended with the job.
///
/// # Errors
/// What failed; among others, workers that do not come within `options.wait_limit`.
pub fn control(
    plan: Arc<Plan>,
    cluster: &Cluster,
    mut options: RunOptions,
    start: impl FnOnce(&Invitation) -> std::io::Result<Vec<Child>>,
) -> Result<Outcome, JobError> {
    let wrong = |cause: String| JobError::Connection { peer: "controller".into(), cause };
    let secret = cluster.secret.clone().map_or_else(random_secret, Ok).map_err(wrong)?;
    let (mesh, listener) =
        Mesh::new(&cluster.bind, &secret, plan.fingerprint(), CONTROLLER).map_err(wrong)?;
    mesh.accept(listener, |refusal| eprintln!("pellucid: {refusal}"));
    let store = options.snapshots.as_ref().map(SnapshotStore::open).transpose()?;
    let manifest = store.as_ref().map(|store| store.latest(&plan)).transpose()?.flatten();
    let invitation = Invitation { controller: mesh.address.clone(), secret };
    let memory = std::mem::take(&mut options.memory);
    let recording = options.recorder.take().map(|recorder| Recording::begin(&plan, recorder));
    let trace = recording.map(|recording| Merging::new(recording, memory));
    let mut controller = Controller::new(plan, cluster.workers as usize, cluster.balances, manifest);
    controller.restarts = cluster.restarts;
    let children = start(&invitation).map_err(|error| wrong(format!("cannot start workers: {error}")))?;
    let mut job = Serving {
        controller,
        trace,
        mesh: mesh.clone(),
        addresses: BTreeMap::new(),
        children,
        heard: BTreeMap::new(),
        wanted: Wanted::Run,
        begun: Instant::now(),
        gathers: Instant::now(),
        shown: Instant::now(),
        told: Instant::now(),
        listened: Instant::now(),
        moved: (0, Instant::now()),
    };
    while job.controller.result.is_none() {
        job.round(&mut options, store.as_deref());
    }
    job.round(&mut options, None);
    let begun = job.begun;
    if let Some(trace) = job.trace.take() {
        trace.end(job.controller.result.as_ref().and_then(|result| result.as_ref().err()));
    }
    job.end_children();
    mesh.close();
    let mut outcome = job.controller.into_outcome()?;
    outcome.elapsed_ns = Some(begun.elapsed().as_nanos() as u64);
    Ok(outcome)
}

/// The controller's side of a job.
struct Serving {
    controller: Controller,
    trace: Option<Merging>,
    mesh: Arc<Mesh>,
    addresses: BTreeMap<u32, String>,
    children: Vec<Child>,
    /// When each worker was last heard of.
    heard: BTreeMap<u32, Instant>,
    wanted: Wanted,
    begun: Instant,
    /// Since when not all workers are there, while that is so.
    gathers: Instant,
    shown: Instant,
    /// When workers were last told where the others are.
    told: Instant,
    /// When it was last asked what has come from workers.
    listened: Instant,
    /// Tasks that had run, and since when no more have.
    moved: (u64, Instant),
}

impl Serving {
    fn round(&mut self, options: &mut RunOptions, store: Option<&SnapshotStore>) {
        let mesh = self.mesh.clone();
        let mut news = Vec::new();
        let mut away = self.listened.elapsed();
        let from = Instant::now();
        mesh.poll(Some(ROUND), |item| news.push(item));
        away += from.elapsed().saturating_sub(ROUND);
        self.listened = Instant::now();
        if away > SIGN_OF_LIFE {
            // Here nobody listened: a slow store was waited for, or the process was stopped. That is nobody's silence.
            self.heard.values_mut().for_each(|heard| *heard += away);
            self.gathers += away;
            self.moved.1 += away;
        }
        for item in news {
            match item {
                News::Joined(worker, address) => {
                    self.addresses.insert(worker, address);
                    self.heard.insert(worker, Instant::now());
                    self.tell_addresses();
                    self.controller.joined(worker);
                }
                News::Message(Peer::Worker(worker), envelope) => {
                    self.heard.insert(worker, Instant::now());
                    match (envelope.message, &mut self.trace) {
                        (Message::Unreachable { worker: other }, _) => {
                            if self.controller.is_current(envelope.generation) && other != worker {
                                self.give_up(other, &format!("worker {worker} cannot reach it"));
                            }
                        }
                        (Message::Traced(traced), Some(trace)) => {
                            trace.take(worker, *traced, self.controller.members());
                        }
                        (message, _) => self.controller.handle(worker, Envelope { message, ..envelope }),
                    }
                }
                News::Lost(Peer::Worker(worker), cause) => self.lost(worker, &cause),
                News::Message(Peer::Controller, _) | News::Lost(Peer::Controller, _) => {}
            }
        }
        if self.told.elapsed() >= SIGN_OF_LIFE {
            self.tell_addresses();
        }
        store::commit(&mut self.controller, store);
        self.obey(options);
        self.watch(options);
        for (worker, envelope) in std::mem::take(&mut self.controller.out) {
            crate::worker::Network::send(&*mesh, Peer::Worker(worker), envelope);
        }
        if let (Some(progress), true) = (&mut options.progress, self.shown.elapsed() >= REPORT) {
            self.shown = Instant::now();
            progress(&self.controller.progress());
        }
    }

    /// Tells workers where the others are; from time to time again, as a sign that somebody is there.
    fn tell_addresses(&mut self) {
        self.told = Instant::now();
        let to = self.addresses.keys().map(|&worker| Peer::Worker(worker));
        to.for_each(|to| self.mesh.tell_addresses(to, &self.addresses));
    }

    fn lost(&mut self, worker: u32, cause: &str) {
        self.heard.remove(&worker);
        self.addresses.remove(&worker);
        self.controller.lost(worker, cause);
    }

    /// Goes on without a worker whose connection is still there: cut off, it learns that it takes part no more.
    fn give_up(&mut self, worker: u32, cause: &str) {
        self.mesh.cut(Peer::Worker(worker));
        self.lost(worker, cause);
    }

    fn obey(&mut self, options: &RunOptions) {
        if let (Some(control), true) = (&options.control, self.controller.has_begun()) {
            control.leaving().into_iter().for_each(|worker| self.controller.leave(worker));
        }
        let Some(control) = &options.control else { return };
        let wanted = control.wanted();
        if wanted != self.wanted {
            self.wanted = wanted;
            match wanted {
                Wanted::Cancel => self.controller.fail(control.error()),
                Wanted::Pause | Wanted::Run => self.controller.pause(wanted == Wanted::Pause),
            }
        }
    }

    /// Puts an end to waits that are too long.
    fn watch(&mut self, options: &RunOptions) {
        let limit = options.wait_limit;
        let silent: Vec<u32> = self
            .heard
            .iter()
            .filter(|(_, heard)| heard.elapsed() > limit)
            .map(|(&worker, _)| worker)
            .collect();
        for worker in silent {
            self.give_up(worker, &format!("it said nothing for {:.1} s", limit.as_secs_f64()));
        }
        if self.controller.has_begun() {
            self.gathers = Instant::now();
            let tasks = self.controller.progress().tasks;
            if tasks != self.moved.0 || self.wanted == Wanted::Pause || self.controller.is_busy() {
                self.moved = (tasks, Instant::now());
            } else if self.moved.1.elapsed() > limit {
                let waited_for = "a task to become ready: the job stands still".into();
                self.controller.fail(JobError::TimedOut { waited_for, limit });
            }
            return;
        }
        let mut children = (0..).zip(&mut self.children);
        let gone =
            children.find_map(|(rank, child)| child.try_wait().ok().flatten().map(|status| (rank, status)));
        if let Some((worker, status)) = gone.filter(|_| !self.controller.restarts) {
            let cause = format!("it ended before the job began ({status})");
            self.controller.fail(JobError::WorkerLost { worker, cause });
        } else if self.children.is_empty() && !self.controller.restarts && self.gathers.elapsed() > limit {
            // Children that live read their data, for as long as that takes; so do workers of whom another would say
            // that they ended.
            let waited_for = format!("workers to connect to {}", self.mesh.address);
            self.controller.fail(JobError::TimedOut { waited_for, limit });
        }
    }

    /// Workers end by themselves when they are told; those that do not are ended.
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

/// Any port at the address that this machine has towards another. Nothing is sent.
fn facing(other: &str) -> Result<String, String> {
    let towards = |any: &str| {
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(other)?;
        socket.local_addr()
    };
    let own = towards("0.0.0.0:0").or_else(|_| towards("[::]:0"));
    let own = own.map_err(|error| format!("no way to {other}: {error}"))?;
    Ok(std::net::SocketAddr::new(own.ip(), 0).to_string())
}

/// 32 random bytes, as text.
fn random_secret() -> Result<String, String> {
    let mut bytes = [0u8; 32];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    read.map_err(|error| format!("cannot make a secret: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A worker's connections, for its threads.
struct Connected<'w> {
    mesh: Arc<Mesh>,
    worker: &'w Worker,
}

impl Io for Connected<'_> {
    fn poll(&self, wait: Option<Duration>) -> bool {
        self.mesh.poll(wait, |news| match news {
            News::Message(from, envelope) => self.worker.handle(from, envelope),
            // Without a controller there is no job.
            News::Lost(Peer::Controller, _) => self.worker.stop(),
            // What was on its way is lost, even if the worker is not: the controller decides who goes on.
            News::Lost(Peer::Worker(worker), _) if self.worker.members().contains(&worker) => {
                self.worker.send(Peer::Controller, Message::Unreachable { worker });
            }
            News::Lost(Peer::Worker(_), _) | News::Joined(..) => {}
        })
    }

    fn is_full(&self) -> bool {
        crate::worker::Network::is_full(&*self.mesh)
    }

    fn workers_here(&self) -> usize {
        self.mesh.workers_here()
    }
}

/// Takes part in a job until it ends.
///
/// # Errors
/// A controller that cannot be reached or refuses, and snapshots that cannot be opened. What fails in the
/// job itself is told to the controller.
pub fn work(plan: Arc<Plan>, invitation: &Invitation, settings: &WorkerSettings) -> Result<(), JobError> {
    let rank = settings.rank;
    let wrong = |cause: String| JobError::Connection { peer: invitation.controller.clone(), cause };
    let bind = settings.bind.clone().map_or_else(|| facing(&invitation.controller), Ok).map_err(wrong)?;
    let (mesh, listener) = Mesh::new(&bind, &invitation.secret, plan.fingerprint(), rank).map_err(wrong)?;
    mesh.accept(listener, |refusal| eprintln!("pellucid: {refusal}"));
    let store = settings.snapshots.as_ref().map(SnapshotStore::open).transpose()?;
    let snapshot_every = settings.snapshots.as_ref().map_or(0, |snapshots| snapshots.every_iterations);
    let threads = settings.threads.max(1);
    let options = WorkerOptions { rank, threads, snapshot_every, memory_bytes: settings.memory_bytes };
    let worker = Worker::new(plan.clone(), options, mesh.clone(), store.map(|store| store as Arc<dyn Store>));
    let kept = settings.traced.then(|| Arc::new(Kept::new(threads)));
    if let Some(kept) = &kept {
        let _ = (worker.kept.set(kept.clone()), mesh.kept.set(kept.clone()));
    }
    let waker = mesh.clone();
    let _ = worker.rings[0].waker.set(Box::new(move || waker.interrupt()));
    mesh.dial_controller(&invitation.controller).map_err(wrong)?;
    let io = Connected { mesh: mesh.clone(), worker: &worker };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&worker);
        for index in 0..threads {
            let (worker, io) = (&worker, &io);
            let meter = Clocked::new(kept.as_deref().map(|kept| Sampler::new(&plan, kept)));
            let started =
                Builder::new().spawn_scoped(scope, move || drive(worker, index, meter, cores, Some(io)));
            if let Err(error) = started {
                return Err(JobError::no_thread(index, threads, &error));
            }
        }
        // While all threads are in long tasks, this one reads, and reports.
        let mut reported = Instant::now();
        while !worker.stopped.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
            if worker.rings.iter().all(|ring| !ring.at_rest.load(Ordering::SeqCst)) {
                io.poll(None);
            }
            if reported.elapsed() >= REPORT {
                worker.tick(reported.elapsed().as_nanos() as u64);
                reported = Instant::now();
            }
            if mesh.silence() > settings.wait_limit {
                worker.stop();
            }
        }
        Ok(())
    })?;
    // Of one that was let go, or whose job failed.
    worker.tell_traced();
    mesh.drain(Duration::from_secs(5));
    mesh.close();
    if mesh.silence() > settings.wait_limit {
        let waited_for = format!("a word of the controller at {}", invitation.controller);
        return Err(JobError::TimedOut { waited_for, limit: settings.wait_limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    #[test]
    fn a_worker_whose_controller_hangs_ends() {
        let mut program = Program::new("nothing");
        let one = program.dataset("one", 1, |_| Ok(0u64));
        program.transform("nothing", one, (), |_, ()| Ok(()));
        let plan = program.build().unwrap();
        // It answers who connects, and no more.
        let (mesh, listener) = Mesh::new("127.0.0.1:0", "secret", plan.fingerprint(), CONTROLLER).unwrap();
        mesh.accept(listener, |_| ());
        let invitation = Invitation { controller: mesh.address.clone(), secret: "secret".into() };
        let settings = WorkerSettings { wait_limit: Duration::from_millis(200), ..WorkerSettings::default() };
        let error = work(plan, &invitation, &settings).unwrap_err().to_string();
        assert!(error.contains("a word of the controller"), "{error}");
        mesh.close();
    }
}
