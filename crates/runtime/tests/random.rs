//! Random jobs on the real runtime, checked against their plans.
//!
//! Every monotask of a successful job must run exactly once and after its dependencies. A failed job must
//! report its own cause. All multitasks must be dropped. The test prints its seed; set `PELLUCID_SEED` to
//! repeat a run (the interleaving of threads still varies).

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use common::{Task, checked_trace, recorder};
use pellucid_runtime::{Done, Job, JobError, Monotask, Options, Phase, ResourceHandle, Runtime};
use pellucid_trace::{Outcome, StageIx, kind};

/// A SplitMix64 generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(n)) as u32
    }
}

/// The planned outcome of a job.
#[derive(Clone, Copy, PartialEq, Debug)]
enum ExpectedOutcome {
    Succeeds,
    Fails,
    Panics,
    Cancelled,
}

/// The state that all monotasks of a job share.
struct Watch {
    job: Job,
    resources: Vec<ResourceHandle>,
    multitasks_left: AtomicU32,
    ran: AtomicU32,
    out_of_order: AtomicBool,
    token: Arc<()>,
}

/// Returns the monotasks of one multitask. Each checks that its dependencies have run, and records that it
/// ran. Some add another monotask when they end.
fn plan(random: &mut Random, watch: &Arc<Watch>, expected: ExpectedOutcome) -> Vec<Monotask> {
    let n = 1 + random.below(6);
    let ended: Arc<Mutex<Vec<bool>>> = Arc::new(Mutex::new(vec![false; n as usize]));
    let unlucky = random.below(n);
    let monotask = |random: &mut Random, i: u32| {
        let after: Vec<u32> = (0..i).filter(|_| random.below(3) == 0).collect();
        let resource = &watch.resources[random.below(watch.resources.len() as u32) as usize];
        let phases = match resource.kind() {
            kind::CPU => [Phase::Compute; 3],
            kind::DISK => [Phase::Read, Phase::Spill, Phase::Write],
            _ => [Phase::Fetch, Phase::Fetch, Phase::Write],
        };
        let phase = phases[random.below(3) as usize];
        let (watch, ended, before) = (Arc::clone(watch), Arc::clone(&ended), after.clone());
        let more = random.below(4) == 0;
        let again = resource.clone();
        Monotask::new(resource, phase, after, u64::from(i), move |_| {
            if i == unlucky && expected == ExpectedOutcome::Panics {
                panic!("intended failure");
            }
            if i == unlucky && expected == ExpectedOutcome::Fails {
                return Err("intended failure".into());
            }
            let mut ended = ended.lock().expect("not poisoned");
            if !before.iter().all(|b| ended[*b as usize]) {
                watch.out_of_order.store(true, Ordering::Relaxed);
            }
            ended[i as usize] = true;
            watch.ran.fetch_add(1, Ordering::Relaxed);
            let mut then = Vec::new();
            if more {
                let watch = Arc::clone(&watch);
                then.push(Monotask::new(&again, phase, vec![i], 0, move |_| {
                    watch.ran.fetch_add(1, Ordering::Relaxed);
                    Ok(Done::default())
                }));
            }
            Ok(Done { then, ..Done::default() })
        })
    };
    (0..n).map(|i| monotask(random, i)).collect()
}

/// Submits a multitask; some submit another when they are done.
fn submit(seed: u64, watch: &Arc<Watch>, stage: StageIx, partition: u32, expected: ExpectedOutcome) {
    let mut random = Random(seed);
    let memory = u64::from(random.below(40));
    let grows = partition < 1000 && random.below(3) == 0;
    if grows {
        watch.multitasks_left.fetch_add(1, Ordering::AcqRel);
    }
    let (planner, ender) = (Arc::clone(watch), Arc::clone(watch));
    let task = Task::new(
        move || Ok(plan(&mut random, &planner, expected)),
        move || {
            if grows {
                submit(seed ^ 0xabcd, &ender, stage, partition + 1000, ExpectedOutcome::Succeeds);
            }
            if ender.multitasks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                ender.job.end_stage(stage);
                ender.job.succeed();
            }
            Ok(())
        },
    );
    watch.job.submit(stage, partition, memory, task.holding(&watch.token));
}

fn begin(
    random: &mut Random,
    runtime: &Runtime,
    resources: &[ResourceHandle],
) -> (Arc<Watch>, ExpectedOutcome) {
    let outcomes = [
        ExpectedOutcome::Succeeds,
        ExpectedOutcome::Succeeds,
        ExpectedOutcome::Fails,
        ExpectedOutcome::Panics,
        ExpectedOutcome::Cancelled,
    ];
    let expected = outcomes[random.below(5) as usize];
    let multitasks = 1 + random.below(30);
    let watch = Arc::new(Watch {
        job: runtime.begin(&format!("{expected:?}"), recorder()),
        resources: resources.to_vec(),
        multitasks_left: AtomicU32::new(multitasks),
        ran: AtomicU32::new(0),
        out_of_order: AtomicBool::new(false),
        token: Arc::new(()),
    });
    let stage = watch.job.stage("random", &[], vec![]);
    let unlucky = random.below(multitasks);
    for i in 0..multitasks {
        let outcome = if i == unlucky { expected } else { ExpectedOutcome::Succeeds };
        let seed = (u64::from(random.below(u32::MAX)) << 32) | u64::from(random.below(u32::MAX));
        submit(seed, &watch, stage, i, outcome);
    }
    (watch, expected)
}

fn check(watch: &Arc<Watch>, expected: ExpectedOutcome, seed: u64) {
    let result = watch.job.wait();
    let message = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
    match (expected, &result) {
        (ExpectedOutcome::Succeeds, Ok(()))
        | (ExpectedOutcome::Cancelled, Ok(()) | Err(JobError::Cancelled)) => {}
        (ExpectedOutcome::Fails, Err(JobError::Failed(_))) => {
            assert_eq!(message, "intended failure", "seed {seed}")
        }
        (ExpectedOutcome::Panics, Err(JobError::Failed(_))) => {
            assert!(message.ends_with(": intended failure"), "{message}, seed {seed}");
        }
        _ => panic!("{expected:?} ended as {result:?}, seed {seed}"),
    }
    assert!(!watch.out_of_order.load(Ordering::Relaxed), "seed {seed}");
    assert_eq!(Arc::strong_count(&watch.token), 1, "a multitask was not dropped, seed {seed}");
    let trace = checked_trace(&watch.job);
    let succeeded = trace.monotasks.iter().filter(|m| m.outcome == Outcome::Ok).count();
    assert_eq!(succeeded, watch.ran.load(Ordering::Relaxed) as usize, "seed {seed}");
    if result.is_ok() {
        assert_eq!(watch.multitasks_left.load(Ordering::Relaxed), 0, "seed {seed}");
        assert_eq!(succeeded, trace.monotasks.len(), "seed {seed}");
    }
}

#[test]
fn random_jobs_match_their_plans() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let seed = std::env::var("PELLUCID_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(now);
    println!("PELLUCID_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..10 {
        let options = Options {
            cores: 1 + random.below(3) as usize,
            memory_bytes: (random.below(2) == 0).then_some(100),
            ..Options::default()
        };
        let runtime = Runtime::new(options).expect("a runtime");
        let disk = runtime.disk_of(std::path::Path::new(".")).expect("a disk");
        let resources = [runtime.cores(), disk, runtime.store("s3://b", None)];
        let jobs: Vec<_> = (0..6).map(|_| begin(&mut random, &runtime, &resources)).collect();
        for (watch, _) in jobs.iter().filter(|(_, expected)| *expected == ExpectedOutcome::Cancelled) {
            watch.job.cancel();
        }
        for (watch, expected) in &jobs {
            check(watch, *expected, seed);
        }
    }
}
