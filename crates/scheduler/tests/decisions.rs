//! Tests of single scheduling rules.

use pellucid_scheduler::*;

/// A scheduler with immediate planning, and a record of its decisions.
struct Harness {
    scheduler: Scheduler,
    now: Nanos,
    running: Vec<(MonotaskId, Phase, JobId)>,
    /// Phase and job of each started monotask, in order.
    started: Vec<(Phase, JobId)>,
    plans: Vec<(MultitaskId, JobId, Vec<MonotaskSpec>)>,
    admitted: Vec<MultitaskId>,
    ended: Vec<(MultitaskId, Outcome)>,
}

const DISK: ResourceId = ResourceId(0);

fn fixed(n: u32) -> ResourceSpec {
    ResourceSpec { concurrency: Concurrency::Fixed(n), multitasks_at_once: None }
}

fn on_disk(phase: Phase) -> MonotaskSpec {
    MonotaskSpec { resource: DISK, phase, after: Vec::new(), bytes: 1 }
}

impl Harness {
    fn new(resources: &[ResourceSpec], memory_bytes: Option<u64>) -> Self {
        let mut scheduler = Scheduler::new(Config { memory_bytes });
        for spec in resources {
            scheduler.add_resource(*spec);
        }
        Harness {
            scheduler,
            now: 0,
            running: Vec::new(),
            started: Vec::new(),
            plans: Vec::new(),
            admitted: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn submit(&mut self, job: JobId, memory_bytes: u64, plan: Vec<MonotaskSpec>) -> MultitaskId {
        let spec = MultitaskSpec { job, stage: 0, memory_bytes };
        let id = self.scheduler.submit(self.now, spec);
        self.plans.push((id, job, plan));
        id
    }

    fn drain(&mut self) {
        while let Some(decision) = self.scheduler.next(self.now) {
            match decision {
                Decision::Admit(id) => {
                    self.admitted.push(id);
                    let plan = self.plan(id).2.clone();
                    self.scheduler.expand(self.now, id, plan).unwrap();
                }
                Decision::Start { monotask, .. } => {
                    let (_, job, plan) = self.plan(monotask.multitask);
                    let (phase, job) = (plan[monotask.index as usize].phase, *job);
                    self.running.push((monotask, phase, job));
                    self.started.push((phase, job));
                }
                Decision::Ended { multitask, outcome } => self.ended.push((multitask, outcome)),
            }
        }
    }

    fn plan(&self, id: MultitaskId) -> &(MultitaskId, JobId, Vec<MonotaskSpec>) {
        self.plans.iter().rfind(|plan| plan.0 == id).unwrap()
    }

    /// Completes the monotask that started first, `took_ns` later, and takes all decisions.
    fn step(&mut self, took_ns: Nanos) {
        self.now += took_ns;
        let (id, _, _) = self.running.remove(0);
        self.scheduler.complete(self.now, id, Completion::default()).unwrap();
        self.drain();
    }

    fn phases(&self) -> Vec<Phase> {
        self.started.iter().map(|started| started.0).collect()
    }
}

#[test]
fn queue_is_round_robin_over_phases() {
    let mut harness = Harness::new(&[fixed(1)], None);
    let job = harness.scheduler.add_job(0);
    let write = || on_disk(Phase::Write);
    harness.submit(job, 0, vec![write(), write(), write()]);
    harness.submit(job, 0, vec![on_disk(Phase::Read), on_disk(Phase::Read)]);
    harness.drain();
    for _ in 0..5 {
        harness.step(10_000);
    }
    use Phase::{Read, Write};
    assert_eq!(harness.phases(), [Write, Read, Write, Read, Write], "§3.3");
    assert_eq!(harness.ended.len(), 2);
}

#[test]
fn writes_take_precedence_when_memory_is_short_without_starving_reads() {
    let mut harness = Harness::new(&[fixed(1)], Some(100));
    let job = harness.scheduler.add_job(0);
    harness.scheduler.hold(job, 81);
    let mut plan: Vec<_> = (0..20).map(|_| on_disk(Phase::Write)).collect();
    plan.extend((0..3).map(|_| on_disk(Phase::Read)));
    harness.submit(job, 0, plan);
    harness.drain();
    assert!(harness.scheduler.memory_is_short());
    for _ in 0..23 {
        harness.step(10_000);
    }
    let reads = harness.phases().into_iter().enumerate().filter(|(_, p)| *p == Phase::Read);
    let reads: Vec<usize> = reads.map(|(at, _)| at).collect();
    assert_eq!(reads, [8, 17, 22], "one after eight writes, and after the last");
}

#[test]
fn memory_is_short_while_a_multitask_waits_for_it() {
    let mut harness = Harness::new(&[fixed(4)], Some(100));
    let job = harness.scheduler.add_job(0);
    harness.submit(job, 60, vec![on_disk(Phase::Read)]);
    harness.drain();
    assert!(!harness.scheduler.memory_is_short());
    harness.submit(job, 60, vec![on_disk(Phase::Read)]);
    harness.drain();
    assert_eq!((harness.scheduler.memory_is_short(), harness.admitted.len()), (true, 1));
    harness.step(10_000);
    assert_eq!((harness.scheduler.memory_is_short(), harness.admitted.len()), (false, 2));
}

#[test]
fn jobs_share_a_resource_by_service_time() {
    let mut harness = Harness::new(&[fixed(1), fixed(9)], None);
    let (long, short) = (harness.scheduler.add_job(0), harness.scheduler.add_job(0));
    harness.submit(long, 0, (0..50).map(|_| on_disk(Phase::Read)).collect());
    harness.submit(short, 0, (0..500).map(|_| on_disk(Phase::Read)).collect());
    harness.drain();
    for _ in 0..110 {
        let of_long = harness.running[0].2 == long;
        harness.step(if of_long { 100_000 } else { 10_000 });
    }
    let long = harness.started.iter().filter(|s| s.1 == long).count();
    assert!((9..=12).contains(&long), "{long} of 111, each ten times as long");
}

#[test]
fn late_job_gets_no_credit_for_earlier_time() {
    let mut harness = Harness::new(&[fixed(1), fixed(9)], None);
    let early = harness.scheduler.add_job(0);
    harness.submit(early, 0, (0..200).map(|_| on_disk(Phase::Read)).collect());
    harness.drain();
    for _ in 0..100 {
        harness.step(10_000);
    }
    let late = harness.scheduler.add_job(harness.now);
    harness.submit(late, 0, (0..200).map(|_| on_disk(Phase::Read)).collect());
    harness.drain();
    for _ in 0..40 {
        harness.step(10_000);
    }
    let late = harness.started.iter().skip(101).filter(|s| s.1 == late).count();
    assert!((19..=21).contains(&late), "{late} of the next 40");
}

#[test]
fn fetches_are_limited_to_the_four_oldest_multitasks() {
    let link = ResourceSpec { multitasks_at_once: Some(4), ..fixed(16) };
    let mut harness = Harness::new(&[link], None);
    let job = harness.scheduler.add_job(0);
    let ids: Vec<_> = (0..6).map(|_| harness.submit(job, 0, vec![on_disk(Phase::Fetch); 2])).collect();
    harness.drain();
    let fetching = |harness: &Harness| {
        let mut ids: Vec<_> = harness.running.iter().map(|r| r.0.multitask).collect();
        ids.dedup();
        ids
    };
    assert_eq!(fetching(&harness), ids[..4], "8 of 16 slots are used, 4 fetches wait");
    assert_eq!(harness.scheduler.queued(DISK), 4);
    harness.step(10_000);
    assert_eq!(harness.running.len(), 7, "the oldest has one fetch left");
    harness.step(10_000);
    assert_eq!(fetching(&harness), ids[1..5], "it has all its bytes, so the next may fetch");
    let other = harness.scheduler.add_job(harness.now);
    harness.submit(other, 0, vec![on_disk(Phase::Write)]);
    harness.drain();
    assert_eq!(harness.running.last().map(|r| r.1), Some(Phase::Write), "only fetches wait");
}

#[test]
fn admission_is_limited_to_the_total_concurrency_plus_one() {
    let adaptive = Concurrency::Adaptive { min: 2, max: 8, gain: controller::GAIN };
    let flash = ResourceSpec { concurrency: adaptive, multitasks_at_once: None };
    let mut harness = Harness::new(&[fixed(4), flash], None);
    let job = harness.scheduler.add_job(0);
    for _ in 0..20 {
        harness.submit(job, 0, vec![on_disk(Phase::Compute)]);
    }
    harness.drain();
    assert_eq!((harness.admitted.len(), harness.scheduler.places()), (7, 7), "§3.4");
    assert_eq!((harness.scheduler.running(DISK), harness.scheduler.waiting()), (4, 13));
}

#[test]
fn admission_takes_turns_over_jobs() {
    let mut harness = Harness::new(&[fixed(2)], None);
    let (one, other) = (harness.scheduler.add_job(0), harness.scheduler.add_job(0));
    let ids: Vec<_> = (0..8)
        .map(|n| harness.submit(if n < 6 { one } else { other }, 0, vec![on_disk(Phase::Read)]))
        .collect();
    harness.drain();
    for _ in 0..8 {
        harness.step(10_000);
    }
    let order: Vec<_> = harness.admitted.iter().map(|id| ids.iter().position(|i| i == id).unwrap()).collect();
    assert_eq!(order, [0, 6, 1, 7, 2, 3, 4, 5]);
}

#[test]
fn multitask_larger_than_the_budget_runs_alone() {
    let mut harness = Harness::new(&[fixed(8)], Some(100));
    let job = harness.scheduler.add_job(0);
    let ids: Vec<_> = [40, 500, 10]
        .into_iter()
        .map(|bytes| harness.submit(job, bytes, vec![on_disk(Phase::Read)]))
        .collect();
    harness.drain();
    assert_eq!(harness.admitted, ids[..1], "the small one does not overtake");
    harness.step(10_000);
    assert_eq!((&harness.admitted[..], harness.scheduler.memory_held()), (&ids[..2], 500));
    harness.step(10_000);
    assert_eq!((&harness.admitted[..], harness.scheduler.memory_held()), (&ids[..], 10));
}

#[test]
fn failed_job_ends_after_its_running_monotasks() {
    let mut harness = Harness::new(&[fixed(2)], None);
    let (job, other) = (harness.scheduler.add_job(0), harness.scheduler.add_job(0));
    let ids: Vec<_> = (0..4).map(|_| harness.submit(job, 7, vec![on_disk(Phase::Read); 2])).collect();
    let unaffected = harness.submit(other, 0, vec![on_disk(Phase::Read)]);
    harness.drain();
    let (failing, running) = (harness.running.remove(0), harness.running[0]);
    harness.scheduler.fail(1, failing.0);
    harness.drain();
    let outcomes = |harness: &Harness| {
        ids.iter().map(|id| harness.ended.iter().find(|e| e.0 == *id).map(|e| e.1)).collect::<Vec<_>>()
    };
    let (failed, cancelled) = (Some(Outcome::Failed), Some(Outcome::Cancelled));
    let same = failing.0.multitask == running.0.multitask;
    let at = |id: MultitaskId| ids.iter().position(|i| *i == id);
    let mut expect = vec![cancelled; 4];
    expect[at(failing.0.multitask).unwrap()] = failed;
    let mut before = expect.clone();
    if let Some(at) = at(running.0.multitask) {
        before[at] = None;
    }
    assert_eq!(outcomes(&harness), before, "one still runs (the same: {same})");
    harness.step(10_000);
    while !harness.running.is_empty() {
        harness.step(10_000);
    }
    assert_eq!(outcomes(&harness), expect);
    assert!(harness.ended.contains(&(unaffected, Outcome::Done)), "{:?}", harness.ended);
    let late = harness.submit(job, 0, Vec::new());
    harness.drain();
    assert!(harness.ended.contains(&(late, Outcome::Cancelled)));
    harness.scheduler.end_job(harness.now, job);
    harness.scheduler.end_job(harness.now, other);
    assert_eq!((harness.scheduler.jobs(), harness.scheduler.memory_held()), (0, 0));
}

#[test]
fn invalid_calls_fail_without_changes() {
    let mut scheduler = Scheduler::new(Config::default());
    scheduler.add_resource(fixed(1));
    let job = scheduler.add_job(0);
    let spec = MultitaskSpec { job, stage: 0, memory_bytes: 0 };
    let id = scheduler.submit(0, spec);
    assert_eq!(scheduler.expand(0, id, vec![]), Err(Invalid::NotAdmitted(id)));
    assert_eq!(scheduler.next(0), Some(Decision::Admit(id)));
    let elsewhere = MonotaskSpec { resource: ResourceId(7), ..on_disk(Phase::Read) };
    let resource = ResourceId(7);
    let refused = scheduler.expand(0, id, vec![on_disk(Phase::Read), elsewhere]);
    assert_eq!(refused, Err(Invalid::Resource { index: 1, resource }));
    let ahead = MonotaskSpec { after: vec![0], ..on_disk(Phase::Read) };
    let refused = scheduler.expand(0, id, vec![ahead.clone()]);
    assert_eq!(refused, Err(Invalid::After { index: 0, after: 0 }));
    assert_eq!(scheduler.next(0), None);
    scheduler.expand(0, id, vec![on_disk(Phase::Read)]).unwrap();
    let monotask = MonotaskId { multitask: id, index: 0 };
    let nothing = Completion::default;
    assert_eq!(scheduler.complete(0, monotask, nothing()), Err(Invalid::NotRunning(monotask)));
    assert!(matches!(scheduler.next(0), Some(Decision::Start { .. })));
    let then = vec![ahead.clone(), MonotaskSpec { after: vec![2], ..ahead }];
    let refused = scheduler.complete(0, monotask, Completion { then, ..nothing() });
    assert_eq!(refused, Err(Invalid::After { index: 2, after: 2 }));
    assert_eq!(scheduler.running(DISK), 1, "it is still running");
    scheduler.complete(0, monotask, nothing()).unwrap();
    let outcome = Outcome::Done;
    assert_eq!(scheduler.next(0), Some(Decision::Ended { multitask: id, outcome }));
    scheduler.fail(0, monotask);
    scheduler.fail_expand(0, id);
    assert_eq!(scheduler.next(0), None, "an ended multitask cannot fail");
    let unknown = scheduler.submit(0, MultitaskSpec { job: JobId(99), ..spec });
    assert_eq!(unknown.slot(), id.slot(), "the slot is reused");
    let ended = Decision::Ended { multitask: unknown, outcome: Outcome::Cancelled };
    assert_eq!(scheduler.next(0), Some(ended), "its job is unknown");
}

#[test]
fn multitask_ends_if_planning_fails_or_its_job_is_cancelled() {
    let mut scheduler = Scheduler::new(Config::default());
    scheduler.add_resource(fixed(1));
    for cancel in [false, true] {
        let job = scheduler.add_job(0);
        let id = scheduler.submit(0, MultitaskSpec { job, stage: 0, memory_bytes: 5 });
        assert_eq!(scheduler.next(0), Some(Decision::Admit(id)));
        let outcome = match cancel {
            true => {
                scheduler.cancel(0, job);
                assert_eq!(scheduler.next(0), None, "it is still being planned");
                scheduler.expand(0, id, vec![on_disk(Phase::Read)]).unwrap();
                Outcome::Cancelled
            }
            false => {
                scheduler.fail_expand(0, id);
                Outcome::Failed
            }
        };
        assert_eq!(scheduler.next(0), Some(Decision::Ended { multitask: id, outcome }));
        assert_eq!((scheduler.next(0), scheduler.memory_held()), (None, 0));
    }
}

#[test]
fn held_memory_outlives_multitasks_and_is_released_at_most_once() {
    let mut scheduler = Scheduler::new(Config { memory_bytes: Some(10) });
    let job = scheduler.add_job(0);
    scheduler.hold(job, u64::MAX);
    scheduler.hold(job, 5);
    scheduler.end_job(0, job);
    assert_eq!((scheduler.memory_held(), scheduler.jobs()), (u64::MAX, 1));
    scheduler.release(job, 5);
    scheduler.release(job, u64::MAX);
    scheduler.release(job, 1);
    assert_eq!((scheduler.memory_held(), scheduler.jobs()), (0, 0));
}

#[test]
fn tuning_restarts_when_the_stages_of_the_resource_change() {
    let adaptive = Concurrency::Adaptive { min: 2, max: 16, gain: controller::GAIN };
    let flash = ResourceSpec { concurrency: adaptive, multitasks_at_once: None };
    let mut scheduler = Scheduler::new(Config::default());
    let disk = scheduler.add_resource(flash);
    let cores = scheduler.add_resource(fixed(1));
    let job = scheduler.add_job(0);
    let mut now = 0;
    // Runs one multitask of eight reads; between two calls, the stage has no multitask.
    let mut stage = |scheduler: &mut Scheduler, stage: u32, resource: ResourceId| {
        let id = scheduler.submit(now, MultitaskSpec { job, stage, memory_bytes: 0 });
        let mut running = Vec::new();
        loop {
            match scheduler.next(now) {
                Some(Decision::Admit(id)) => {
                    let plan = vec![MonotaskSpec { resource, ..on_disk(Phase::Read) }; 8];
                    scheduler.expand(now, id, plan).unwrap();
                }
                Some(Decision::Start { monotask, .. }) => running.push(monotask),
                Some(Decision::Ended { multitask, .. }) => assert_eq!(multitask, id),
                None if running.is_empty() => return scheduler.concurrency(disk),
                None => {
                    now += 10_000;
                    let completion = Completion { bytes: 1 << 20, ..Completion::default() };
                    scheduler.complete(now, running.remove(0), completion).unwrap();
                }
            }
        }
    };
    let first = stage(&mut scheduler, 0, disk);
    assert!(first > 2, "tuning reached {first}");
    assert!(stage(&mut scheduler, 1, cores) == first, "stage 1 does not use the disk");
    assert!(stage(&mut scheduler, 0, disk) >= first, "the same stage continues from there");
    let id = scheduler.submit(now, MultitaskSpec { job, stage: 2, memory_bytes: 0 });
    assert_eq!(scheduler.next(now), Some(Decision::Admit(id)));
    scheduler.expand(now, id, vec![on_disk(Phase::Read)]).unwrap();
    assert_eq!(scheduler.concurrency(disk), 2, "another stage restarts from the minimum");
}
