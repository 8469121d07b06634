//! Fuzz tests of messages and manifests. `tests/run fuzz` runs them for longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pellucid_fuzz::{Inputs, fuzz};

use crate::Program;
use crate::control::controller::Controller;
use crate::dataflow::data::Chunk;
use crate::dataflow::exchange::Outgoing;
use crate::dataflow::index::{BundleIx, DatasetIx, DatasetSet, Ix, StatementIx, Table, WorkerIx};
use crate::dataflow::load::load_partition;
use crate::dataflow::plan::{Instance, Kind, Plan};
use crate::dataflow::routes::Route;
use crate::error::JobError;
use crate::exec::bundle::Bundle;
use crate::protocol::message::{Envelope, Message, Packed, Peer};
use crate::protocol::records::*;
use crate::snapshot::layout::object;
use crate::snapshot::manifest::{self, Content};
use crate::testing::{Outside, turns, worker};
use crate::transport::wire;

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

fn find(plan: &Plan, of: impl Fn(&Kind) -> bool) -> StatementIx {
    plan.statements.find(|statement| of(&statement.kind)).unwrap()
}

/// Returns a snapshot of the plan, with the content of its objects.
fn snapshot(plan: &Plan) -> (Manifest, BTreeMap<String, Bytes>) {
    let statement = find(plan, |kind| matches!(kind, Kind::Signal { iteration: true, .. }));
    let (position, mut objects) = (Instance { epoch: 2, statement }, BTreeMap::new());
    let saved = plan.bundles().map(|bundle| {
        let (group, index) = plan.locate(bundle);
        let datasets = plan.saved_datasets(group).map(|dataset| {
            let content = [u64::from(index) + 3, 5].map(u64::to_le_bytes).concat();
            let part = Part::new(dataset, 2, &content);
            objects.insert(object(plan, dataset, index, 2), content.into());
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
    let deliver =
        |arrival| Message::Deliver { to: [0, 1, 2].map(|bundle| (BundleIx(bundle), 1)).to_vec(), arrival };
    let entry = Entry { worker: WorkerIx(1), version: 2 };
    let manifest = snapshot(plan).0;
    let saved = Saved {
        bundle: BundleIx(0),
        position: manifest.position,
        iteration: manifest.iteration,
        datasets: manifest.saved[BundleIx(0)].clone(),
    };
    let report = Report {
        worker: WorkerIx(1),
        number: 7,
        interval_ns: 100_000_000,
        threads: 1,
        bundles: vec![(BundleIx(0), 5_000, 800), (BundleIx(1), 7_000, 900)],
        observed: BTreeMap::from([(StatementIx(1), (2, 1.5f64.to_bits()))]),
        iterations_ns: vec![5, 9, 20],
        ..Report::default()
    };
    let mut bundle = Bundle::new(plan, BundleIx(0));
    for dataset in DatasetIx::first(3) {
        bundle.states[dataset] = Some(load_partition(plan, dataset, 0).unwrap());
    }
    bundle.receive(plan, Arrival::Chunk { gather, source: 0, chunk: chunk() }).unwrap();
    let signals =
        vec![(0, Signal { value: true, snapshot: false }), (1, Signal { value: true, snapshot: true })];
    let mut packed = Packed::pack(bundle, 2, signals.clone());
    packed.saved = manifest.saved[BundleIx(0)].clone();
    packed.written_before = vec![(2, DatasetSet(3))];
    packed.passed = vec![(WorkerIx(1), 2)];
    let sample = Sample {
        statement: StatementIx(1),
        bundle: BundleIx(0),
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
        exchanges: vec![Exchanged { statement: StatementIx(1), messages: 4, bytes: 400 }],
    };
    let state = |snapshot| {
        let map = Table::filled(plan.bundle_count, Entry { worker: WorkerIx(0), version: 1 });
        Message::Begin(Arc::new(JobState {
            map,
            members: vec![WorkerIx(0), WorkerIx(1)],
            version: 1,
            snapshot,
        }))
    };
    vec![
        deliver(Arrival::Chunk { gather, source: 0, chunk: chunk() }),
        deliver(Arrival::Chunk { gather, source: 2, chunk: None }),
        deliver(Arrival::Passed { worker: WorkerIx(1), epoch: 3 }),
        Message::Signals(signals),
        Message::Install(packed.into()),
        Message::Drained,
        state(Some(manifest)),
        state(None),
        Message::Map(vec![(BundleIx(0), entry), (BundleIx(3), entry)]),
        Message::Members { version: 2, members: WorkerIx::first(3).collect() },
        Message::Migrate { bundle: BundleIx(1), to: entry },
        Message::Snapshot,
        Message::Pause(true),
        Message::Finish,
        Message::Drain { members: vec![WorkerIx(1)] },
        Message::Stop,
        Message::Addresses(vec![(WorkerIx(0), "host:1".into()), (WorkerIx(1), "other:2".into())]),
        Message::Report(report.clone().into()),
        Message::Trace(batch.into()),
        Message::Installed { bundle: BundleIx(0), version: 1 },
        Message::Saved(saved.into()),
        Message::Damaged { cause: "its checksum differs".into() },
        Message::Ended { bundle: BundleIx(2) },
        Message::Output { dataset: DatasetIx(1), partition: 2, content: Chunk::Encoded(vec![0; 16].into()) },
        Message::Finished(report.into()),
        Message::Unreachable { worker: WorkerIx(0), cause: "timed out".into() },
        Message::Failed(JobError::Cancelled),
    ]
}

fn frames(plan: &Plan) -> Vec<Vec<u8>> {
    let encode = |message| {
        let mut frame = Vec::new();
        wire::encode(&Envelope { generation: 1, message }, &mut frame);
        frame
    };
    messages(plan).into_iter().map(encode).collect()
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
        WorkerIx::first(2).for_each(|worker| controller.joined(worker));
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
            let peer = if random.below(2) == 0 { Peer::Controller } else { Peer::Worker(WorkerIx(1)) };
            let Some((head, body)) = frame.split_first_chunk() else { continue };
            let Ok(length) = wire::length(head) else { continue };
            let Some(body) = body.get(..length) else { continue };
            let Ok(envelope) = wire::decode(head, Bytes::copy_from_slice(body)) else { continue };
            if envelope.message.check(&plan, peer).is_err() {
                continue;
            }
            accepted = true;
            if peer == Peer::Worker(WorkerIx(1)) {
                controller.handle(WorkerIx(1), envelope.clone());
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
