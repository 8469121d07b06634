//! Fuzz tests of messages and of what a job reads when it resumes. `tests/run fuzz` runs them for longer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use pellucid_fuzz::{Inputs, fuzz};

use crate::Program;
use crate::applications::{Precision, kmeans, logistic_regression, pagerank};
use crate::control::controller::Controller;
use crate::dataflow::data::Chunk;
use crate::dataflow::exchange::Outgoing;
use crate::dataflow::plan::{Instance, Kind, Plan};
use crate::dataflow::routes::Route;
use crate::error::JobError;
use crate::exec::bundle::Bundle;
use crate::input::{Table, edges};
use crate::protocol::message::*;
use crate::protocol::ports::{Network, SaveDone, Store};
use crate::protocol::records::{Arrival, Exchanged, Host, Sample, Signal};
use crate::snapshot::manifest::{self, Content};
use crate::sync::lock;
use crate::transport::wire::{self, Frame};
use crate::worker::state::{Worker, WorkerOptions};

/// A program with two groups, a constant, fixed routes, a reduction, and a loop.
fn plan() -> Arc<Plan> {
    let mut program = Program::new("fuzz");
    let fixed = program.dataset("fixed", 3, |_| Ok(vec![1u64]));
    let data = program.dataset("data", 3, |index| Ok(vec![u64::from(index)]));
    let local = program.dataset("local", 3, |_| Ok(vec![0u64]));
    let model = program.dataset("model", 1, |_| Ok(vec![0u64]));
    program.times("rounds", 4, |body| {
        body.broadcast("model to all", model, local);
        body.transform("add", (fixed, local), data, |(fixed, local), data| {
            data.extend(fixed.iter().chain(local).take(1));
            data.truncate(9);
            Ok(())
        });
        let ring = Route::fixed(3, |source| vec![(source + 1) % 3]);
        let scatter = body.scatter("ring", data, ring, |data, out: &mut Outgoing<'_, Vec<u64>>| {
            out.send((out.source() + 1) % 3, data.clone());
            Ok(())
        });
        scatter.gather((), data, |(), data, chunks| {
            data.extend(chunks.iter().flat_map(|(_, chunk)| chunk.iter().take(1)));
            Ok(())
        });
        body.tree_reduce("sum", data, model, |sum: &mut Vec<u64>, next: &Vec<u64>| {
            sum.extend(next.iter().take(1))
        });
        body.observe("size", model, |model: &Vec<u64>| model.len() as f64);
    });
    program.output(data);
    program.output(model);
    program.build().unwrap()
}

fn find(plan: &Plan, of: impl Fn(&Kind) -> bool) -> u32 {
    plan.statements.iter().position(|statement| of(&statement.kind)).unwrap() as u32
}

/// Returns a snapshot of the plan, with the content of its objects.
fn snapshot(plan: &Plan) -> (Manifest, BTreeMap<String, Bytes>) {
    let statement = find(plan, |kind| matches!(kind, Kind::Signal { iteration: true, .. }));
    let (position, mut objects) = (Instance { epoch: 2, statement }, BTreeMap::new());
    let saved = (0..plan.bundles).map(|bundle| {
        let (group, index) = plan.locate(bundle);
        let datasets = plan.saved_datasets(group).map(|dataset| {
            let content = [u64::from(index) + 3, 5].map(u64::to_le_bytes).concat();
            let part = Part::new(dataset, 2, &content);
            objects.insert(crate::snapshot::layout::object(plan, dataset, index, 2), content.into());
            part
        });
        datasets.collect()
    });
    (Manifest { position, iteration: 2, saved: saved.collect() }, objects)
}

/// Returns a message of each kind.
fn messages(plan: &Plan) -> Vec<Message> {
    let gather = Instance { epoch: 0, statement: find(plan, |kind| matches!(kind, Kind::Gather { .. })) };
    let chunk = || Some(Chunk::Encoded(7u64.to_le_bytes().to_vec().into()));
    let deliver = |arrival| Message::Deliver { to: vec![(0, 1), (1, 1), (2, 1)], arrival };
    let entry = Entry { worker: 1, version: 2 };
    let manifest = snapshot(plan).0;
    let saved = Saved {
        bundle: 0,
        position: manifest.position,
        iteration: manifest.iteration,
        datasets: manifest.saved[0].clone(),
    };
    let report = Report {
        worker: 1,
        number: 7,
        interval_ns: 100_000_000,
        threads: 1,
        memory_bytes: Some(1 << 30),
        bundles: vec![(0, 5_000, 800), (1, 7_000, 900)],
        observed: BTreeMap::from([(1, (2, 1.5f64.to_bits()))]),
        iterations_ns: vec![5, 9, 20],
        ..Report::default()
    };
    let mut bundle = Bundle::new(plan, 0);
    for dataset in 0..3 {
        bundle.states[dataset] = Some(crate::dataflow::load::load_partition(plan, dataset, 0).unwrap());
    }
    bundle.receive(plan, Arrival::Chunk { gather, source: 0, chunk: chunk() }).unwrap();
    let signals =
        vec![(0, Signal { value: true, snapshot: false }), (1, Signal { value: true, snapshot: true })];
    let mut packed = Packed::pack(bundle, 2, signals.clone());
    packed.saved = manifest.saved[0].clone();
    packed.written_before = vec![(2, 3)];
    packed.passed = vec![(1, 2)];
    let sample = Sample {
        statement: 1,
        bundle: 0,
        iteration: 1,
        start_ticks: 0,
        service_ns: 500,
        weight: 1.0,
        bytes: 100,
    };
    let batch = TraceBatch {
        host: Host { name: "host".into(), cores: 4 },
        threads: 2,
        now_ns: 1_000,
        interval_ns: 100,
        tasks: vec![(50, sample), (40, sample)],
        exchanges: vec![Exchanged { statement: 1, messages: 4, bytes: 400 }],
    };
    let state = |snapshot| {
        let map = vec![Entry { worker: 0, version: 1 }; plan.bundles as usize];
        Message::Begin(Arc::new(JobState { map, members: vec![0, 1], version: 1, snapshot }))
    };
    vec![
        deliver(Arrival::Chunk { gather, source: 0, chunk: chunk() }),
        deliver(Arrival::Chunk { gather, source: 2, chunk: None }),
        deliver(Arrival::Passed { worker: 1, epoch: 3 }),
        Message::Signals(signals),
        Message::Install(packed.into()),
        Message::Drained,
        state(Some(manifest)),
        state(None),
        Message::Map(vec![(0, entry), (3, entry)]),
        Message::Members { version: 2, members: vec![0, 1, 2] },
        Message::Migrate { bundle: 1, to: entry },
        Message::Snapshot,
        Message::Pause(true),
        Message::Finish,
        Message::Drain { members: vec![1] },
        Message::Stop,
        Message::Report(report.clone().into()),
        Message::Trace(batch.into()),
        Message::Installed { bundle: 0, version: 1 },
        Message::Saved(saved.into()),
        Message::Damaged { cause: "its checksum differs".into() },
        Message::Ended { bundle: 2 },
        Message::Output { dataset: 1, partition: 2, content: Chunk::Encoded(vec![0; 16].into()) },
        Message::Finished(report.into()),
        Message::Unreachable { worker: 0, cause: "timed out".into() },
        Message::Failed(JobError::Cancelled),
    ]
}

fn frames(plan: &Plan) -> Vec<Vec<u8>> {
    let encode = |message| {
        let mut frame = Vec::new();
        wire::encode(&Envelope { generation: 1, message }, &mut frame);
        frame
    };
    let mut frames: Vec<_> = messages(plan).into_iter().map(encode).collect();
    let mut addresses = Vec::new();
    wire::encode_addresses(vec![(0, "host:1".into()), (1, "other:2".into())], &mut addresses);
    frames.push(addresses);
    frames
}

/// The network and store of a worker, which keep what it sends and saves.
#[derive(Default)]
struct Outside {
    objects: Mutex<BTreeMap<String, Bytes>>,
    saved: Mutex<Vec<Saved>>,
    failure: Mutex<Option<JobError>>,
    damaged: AtomicBool,
}

impl Outside {
    fn new(objects: BTreeMap<String, Bytes>) -> Arc<Self> {
        Arc::new(Self { objects: Mutex::new(objects), ..Self::default() })
    }
}

impl Network for Outside {
    fn send(&self, _: Peer, envelope: Envelope) {
        wire::encode(&envelope, &mut Vec::new());
        match envelope.message {
            Message::Saved(saved) => lock(&self.saved).push(*saved),
            Message::Failed(error) => *lock(&self.failure) = Some(error),
            Message::Damaged { .. } => self.damaged.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl Store for Outside {
    fn save(&self, objects: Vec<(String, Vec<u8>)>, done: SaveDone) {
        lock(&self.objects).extend(objects.into_iter().map(|(name, bytes)| (name, bytes.into())));
        done(Ok(()));
    }

    fn load(&self, object: &str) -> Result<Option<Bytes>, JobError> {
        Ok(lock(&self.objects).get(object).cloned())
    }
}

struct NoMeter;

impl crate::worker::thread::Meter for NoMeter {
    fn before(&mut self, _: u32, _: u32) {}
    fn after(&mut self, _: u32, _: u32, _: u64, _: impl FnOnce() -> u64) {}
    fn turn_begins(&mut self) {}
    fn turn_ends(&mut self) -> u64 {
        0
    }
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Runs up to some turns of a worker.
///
/// # Panics
/// If a kernel panicked.
fn turns(worker: &Worker, outside: &Outside) {
    let mut thread = crate::worker::thread::Thread::new(worker, 0, NoMeter);
    for _ in 0..500 {
        if !thread.work() {
            break;
        }
    }
    match &*lock(&outside.failure) {
        Some(error @ JobError::Kernel { cause, .. }) if cause.contains("panicked") => panic!("{error}"),
        _ => {}
    }
}

/// Starts a worker of rank 0 that holds all bundles.
fn worker(plan: &Arc<Plan>, outside: &Arc<Outside>, members: u32, snapshot: Option<Manifest>) -> Worker {
    let options = WorkerOptions { rank: 0, threads: 1, snapshot_every: 1, memory_bytes: None };
    let worker = Worker::new(plan.clone(), options, outside.clone(), Some(outside.clone() as Arc<dyn Store>));
    let map = vec![Entry { worker: 0, version: 1 }; plan.bundles as usize];
    let state = JobState { map, members: (0..members).collect(), version: 1, snapshot };
    worker.handle(Peer::Controller, Envelope { generation: 1, message: Message::Begin(state.into()) });
    worker
}

/// Frames as the mesh takes them, followed by what a worker and a controller do with their messages.
#[test]
fn damaged_message() {
    let plan = plan();
    let inputs = Inputs::text(
        frames(&plan),
        &[b"\"worker\":4294967295", b"\"bundle\":", b"null", b"\xff\xff\xff\xff"],
    );
    let (manifest, objects) = snapshot(&plan);
    fuzz("damaged_message", |random| {
        let outside = Outside::new(objects.clone());
        let here = worker(&plan, &outside, 2, (random.below(2) == 0).then(|| manifest.clone()));
        let mut controller = Controller::new(plan.clone(), 2, true, vec![manifest.clone()]);
        (0..2).for_each(|worker| controller.joined(worker));
        let mut accepted = false;
        for _ in 0..1 + random.below(3) {
            let mut frame = inputs.damaged(random);
            // Most inputs have a right length and checksum, to reach what lies behind.
            if random.below(8) > 0 && frame.len() > wire::HEAD {
                let body = &frame[wire::HEAD..];
                let head = [
                    (body.len() as u64).to_le_bytes().to_vec(),
                    crc32fast::hash(body).to_le_bytes().to_vec(),
                ];
                frame[..wire::HEAD].copy_from_slice(&head.concat());
            }
            let peer = if random.below(2) == 0 { Peer::Controller } else { Peer::Worker(1) };
            let Some((head, body)) = frame.split_first_chunk() else { continue };
            let Ok(length) = wire::length(head) else { continue };
            let Some(body) = body.get(..length) else { continue };
            let Ok(Frame::Envelope(envelope)) = wire::decode(head, Bytes::copy_from_slice(body)) else {
                continue;
            };
            if envelope.message.check(&plan, peer).is_err() {
                continue;
            }
            accepted = true;
            if peer == Peer::Worker(1) {
                controller.handle(1, envelope.clone());
                controller.progress();
                for manifest in std::mem::take(&mut controller.commits) {
                    controller.committed(manifest);
                }
            }
            here.handle(peer, envelope);
            turns(&here, &outside);
            here.tick(1_000);
        }
        accepted
    });
}

#[test]
fn damaged_manifest() {
    let plan = plan();
    let (newest, mut older) = (snapshot(&plan).0, snapshot(&plan).0);
    (older.position.epoch, older.iteration) = (1, 1);
    older.saved.iter_mut().flatten().for_each(|part| part.epoch = 1);
    let file = manifest::encode([&newest, &older].into_iter()).unwrap();
    let inputs = Inputs::text(vec![file], &[b"\"snapshot\":{", b"\"saved\":[", b"\"epoch\":", b"[[[[[[[["]);
    let objects = snapshot(&plan).1;
    fuzz("damaged_manifest", |random| {
        let mut file = inputs.damaged(random);
        if random.below(4) > 0 {
            file = file.split(|byte| *byte == b'\n').map(resealed).collect::<Vec<_>>().join(&b'\n');
        }
        let Content::Snapshots(snapshots, _) = manifest::decode(&plan, &file) else { return false };
        for snapshot in &snapshots {
            let outside = Outside::new(objects.clone());
            turns(&worker(&plan, &outside, 1, Some(snapshot.clone())), &outside);
        }
        !snapshots.is_empty()
    });
}

/// Returns a line of a manifest with a right checksum, if it is JSON.
fn resealed(line: &[u8]) -> Vec<u8> {
    let Ok(mut line) = serde_json::from_slice::<serde_json::Value>(line) else { return line.to_vec() };
    let sealed = serde_json::to_vec(&(&line["format"], &line["snapshot"])).unwrap();
    if let Some(line) = line.as_object_mut() {
        line.insert("checksum".into(), crc32fast::hash(&sealed).into());
    }
    serde_json::to_vec(&line).unwrap()
}

/// Returns the plans of all applications over small data.
fn plans(folder: &std::path::Path) -> Vec<Arc<Plan>> {
    let mut random = pellucid_fuzz::Random::new(5);
    let table = folder.join("table.csv");
    let rows: String =
        (0..60).map(|row| format!("{},{},{}\n", random.below(90), random.below(70), row % 3 / 2)).collect();
    std::fs::write(&table, format!("a,b,y\n{rows}")).unwrap();
    let graph = folder.join("graph.el");
    let edges: String = (0..200).map(|_| format!("{} {}\n", random.below(40), random.below(40))).collect();
    std::fs::write(&graph, edges).unwrap();
    let table = Arc::new(Table::open(&table).unwrap());
    let mut plans = Vec::new();
    for precision in [Precision::F64, Precision::F32] {
        let common = (1e-9, 12, precision, Some(3));
        let (tolerance, iterations, precision, partitions) = common;
        for algorithm in [
            logistic_regression::Algorithm::Lbfgs,
            logistic_regression::Algorithm::GradientDescent { step: Some(0.1) },
        ] {
            let options = logistic_regression::Options {
                label: "y".into(),
                features: None,
                l2: 0.1,
                algorithm,
                tolerance,
                iterations,
                precision,
                partitions,
            };
            plans.push(logistic_regression::job(table.clone(), &options).unwrap().plan);
        }
        let init = kmeans::Init::PlusPlus { k: 4, seed: 1 };
        let options = kmeans::Options { features: None, init, tolerance, iterations, precision, partitions };
        plans.push(kmeans::job(table.clone(), &options).unwrap().plan);
        let options =
            pagerank::Options { damping: 0.85, tolerance, iterations, precision, partitions: Some(4) };
        plans.push(pagerank::job(edges::read(&graph, None).unwrap(), &options).unwrap().plan);
    }
    plans
}

/// Returns the last snapshots of a plan, with the content of all objects.
fn snapshots(plan: &Arc<Plan>) -> (Vec<Manifest>, BTreeMap<String, Bytes>) {
    let outside = Outside::new(BTreeMap::new());
    turns(&worker(plan, &outside, 1, None), &outside);
    let mut by_epoch: BTreeMap<u64, Vec<Saved>> = BTreeMap::new();
    lock(&outside.saved)
        .drain(..)
        .for_each(|saved| by_epoch.entry(saved.position.epoch).or_default().push(saved));
    let whole = by_epoch.into_values().filter(|saved| saved.len() == plan.bundles as usize);
    let manifests = whole.map(|mut saved| {
        saved.sort_by_key(|saved| saved.bundle);
        let (position, iteration) = (saved[0].position, saved[0].iteration);
        Manifest { position, iteration, saved: saved.into_iter().map(|saved| saved.datasets).collect() }
    });
    let manifests: Vec<Manifest> = manifests.collect();
    assert!(manifests.len() > 2, "{}: {} snapshots", plan.name, manifests.len());
    let objects = std::mem::take(&mut *lock(&outside.objects));
    (manifests, objects)
}

/// A part with a right checksum reaches its decoder, the check of the partition, and the kernels.
#[test]
fn damaged_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let plans = plans(folder.path());
    let kept: Vec<_> = plans.iter().map(|plan| (plan, snapshots(plan))).collect();
    let contents =
        kept.iter().flat_map(|(_, (_, objects))| objects.values().map(|bytes| bytes.to_vec())).collect();
    let numbers: [&[u8]; 4] = [&[0; 8], &[255; 8], &f64::NAN.to_le_bytes(), &1e300f64.to_le_bytes()];
    let inputs = Inputs::binary(contents, &numbers);
    fuzz("damaged_snapshot", |random| {
        let (plan, (manifests, objects)) = random.pick(&kept);
        let mut manifest = random.pick(manifests).clone();
        let bundles = (0..plan.bundles).filter(|bundle| !manifest.saved[*bundle as usize].is_empty());
        let bundle = *random.pick(&bundles.collect::<Vec<_>>());
        let parts = &mut manifest.saved[bundle as usize];
        let at = random.below(parts.len());
        let part = &mut parts[at];
        let name = crate::snapshot::layout::object(plan, part.dataset, plan.locate(bundle).1, part.epoch);
        let mut content = objects[&name].to_vec();
        inputs.damage(random, &mut content);
        *part = Part::new(part.dataset, part.epoch, &content);
        assert_eq!(manifest.check(plan), Ok(()));
        let outside = Outside::new(objects.clone());
        lock(&outside.objects).insert(name, content.into());
        let worker = worker(plan, &outside, 1, Some(manifest));
        turns(&worker, &outside);
        lock(&outside.failure).is_none() && !outside.damaged.load(Ordering::Relaxed)
    });
}

/// A bundle that another worker sends: all of its partitions reach decoders, checks and kernels.
#[test]
fn damaged_migration() {
    let folder = tempfile::tempdir().unwrap();
    let plans = plans(folder.path());
    let kept: Vec<_> = plans.iter().map(|plan| (plan, snapshots(plan))).collect();
    let states = |plan: &Arc<Plan>, manifest: &Manifest, objects: &BTreeMap<String, Bytes>, ix: u32| {
        let (group, index) = plan.locate(ix);
        let datasets = (0..plan.datasets.len())
            .filter(|dataset| plan.groups[group as usize].datasets >> dataset & 1 == 1);
        let state = |dataset: usize| {
            let saved = manifest.saved[ix as usize].iter().find(|part| part.dataset == dataset as u32);
            let content = saved.map(|part| {
                &objects[&crate::snapshot::layout::object(plan, part.dataset, index, part.epoch)]
            });
            let content = content.cloned().map(Chunk::Encoded);
            let load =
                || Chunk::encoded(&*crate::dataflow::load::load_partition(plan, dataset, index).unwrap());
            (dataset as u32, content.unwrap_or_else(load))
        };
        datasets.map(state).collect::<Vec<_>>()
    };
    let bytes = |chunk: &Chunk| {
        let mut bytes = Vec::new();
        chunk.encode(&mut bytes);
        bytes
    };
    let mut contents = Vec::new();
    for (plan, (manifests, objects)) in &kept {
        for ix in 0..plan.bundles {
            contents.extend(states(plan, &manifests[1], objects, ix).iter().map(|(_, chunk)| bytes(chunk)));
        }
    }
    let inputs = Inputs::binary(contents, &[&[0; 8], &[255; 8], &f64::NAN.to_le_bytes()]);
    fuzz("damaged_migration", |random| {
        let (plan, (manifests, objects)) = random.pick(&kept);
        let manifest = random.pick(manifests);
        let ix = random.below(plan.bundles as usize) as u32;
        let mut states = states(plan, manifest, objects, ix);
        let at = random.below(states.len());
        let mut content = bytes(&states[at].1);
        inputs.damage(random, &mut content);
        states[at].1 = Chunk::Encoded(content.into());
        let mut bundle = Bundle::new(plan, ix);
        (bundle.position, bundle.iteration) = (manifest.position, manifest.iteration);
        let packed = Packed { states, ..Packed::pack(bundle, 3, Vec::new()) };
        let message = Message::Install(packed.into());
        assert_eq!(message.check(plan, Peer::Worker(1)), Ok(()));
        let outside = Outside::new(objects.clone());
        // All other bundles resume from the snapshot, and this one is expected from worker 1.
        let here = worker(plan, &outside, 1, None);
        let mut map = vec![Entry { worker: 0, version: 1 }; plan.bundles as usize];
        map[ix as usize] = Entry { worker: 1, version: 2 };
        let state = JobState { map, members: vec![0], version: 2, snapshot: Some(manifest.clone()) };
        here.handle(Peer::Controller, Envelope { generation: 2, message: Message::Begin(state.into()) });
        here.handle(Peer::Worker(1), Envelope { generation: 2, message });
        turns(&here, &outside);
        lock(&outside.failure).is_none()
    });
}
