//! Rules that are seen best one at a time.

use pellucid_scheduler::*;

/// A scheduler whose multitasks have no memory and no delay, and what ran in it.
struct Bench {
    scheduler: Scheduler,
    now: Nanos,
    running: Vec<(MonotaskId, Phase, JobId)>,
    /// Phases and jobs in the order in which they were started.
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

impl Bench {
    fn new(resources: &[ResourceSpec], memory_bytes: Option<u64>) -> Self {
        let mut scheduler = Scheduler::new(Config { memory_bytes });
        for spec in resources {
            scheduler.add_resource(*spec);
        }
        Bench {
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

    /// Ends what has run longest, after so long, and drains.
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
fn a_queue_goes_round_over_phases() {
    let mut bench = Bench::new(&[fixed(1)], None);
    let job = bench.scheduler.add_job(0);
    let write = || on_disk(Phase::Write);
    bench.submit(job, 0, vec![write(), write(), write()]);
    bench.submit(job, 0, vec![on_disk(Phase::Read), on_disk(Phase::Read)]);
    bench.drain();
    for _ in 0..5 {
        bench.step(10_000);
    }
    use Phase::{Read, Write};
    assert_eq!(bench.phases(), [Write, Read, Write, Read, Write], "§3.3");
    assert_eq!(bench.ended.len(), 2);
}

#[test]
fn writes_go_first_when_memory_is_short_but_reads_do_not_starve() {
    let mut bench = Bench::new(&[fixed(1)], Some(100));
    let job = bench.scheduler.add_job(0);
    bench.scheduler.hold(job, 81);
    let mut plan: Vec<_> = (0..20).map(|_| on_disk(Phase::Write)).collect();
    plan.extend((0..3).map(|_| on_disk(Phase::Read)));
    bench.submit(job, 0, plan);
    bench.drain();
    assert!(bench.scheduler.memory_is_short());
    for _ in 0..23 {
        bench.step(10_000);
    }
    let reads = bench.phases().into_iter().enumerate().filter(|(_, p)| *p == Phase::Read);
    let reads: Vec<usize> = reads.map(|(at, _)| at).collect();
    assert_eq!(reads, [8, 17, 22], "one after eight writes, and after the last");
}

#[test]
fn a_multitask_that_waits_for_memory_makes_it_short() {
    let mut bench = Bench::new(&[fixed(4)], Some(100));
    let job = bench.scheduler.add_job(0);
    bench.submit(job, 60, vec![on_disk(Phase::Read)]);
    bench.drain();
    assert!(!bench.scheduler.memory_is_short());
    bench.submit(job, 60, vec![on_disk(Phase::Read)]);
    bench.drain();
    assert_eq!((bench.scheduler.memory_is_short(), bench.admitted.len()), (true, 1));
    bench.step(10_000);
    assert_eq!((bench.scheduler.memory_is_short(), bench.admitted.len()), (false, 2));
}

#[test]
fn jobs_share_a_resource_by_service_not_by_count() {
    let mut bench = Bench::new(&[fixed(1), fixed(9)], None);
    let (long, short) = (bench.scheduler.add_job(0), bench.scheduler.add_job(0));
    bench.submit(long, 0, (0..50).map(|_| on_disk(Phase::Read)).collect());
    bench.submit(short, 0, (0..500).map(|_| on_disk(Phase::Read)).collect());
    bench.drain();
    for _ in 0..110 {
        let of_long = bench.running[0].2 == long;
        bench.step(if of_long { 100_000 } else { 10_000 });
    }
    let long = bench.started.iter().filter(|s| s.1 == long).count();
    assert!((9..=12).contains(&long), "{long} of 111, each ten times as long");
}

#[test]
fn a_job_that_comes_late_does_not_claim_the_time_before() {
    let mut bench = Bench::new(&[fixed(1), fixed(9)], None);
    let early = bench.scheduler.add_job(0);
    bench.submit(early, 0, (0..200).map(|_| on_disk(Phase::Read)).collect());
    bench.drain();
    for _ in 0..100 {
        bench.step(10_000);
    }
    let late = bench.scheduler.add_job(bench.now);
    bench.submit(late, 0, (0..200).map(|_| on_disk(Phase::Read)).collect());
    bench.drain();
    for _ in 0..40 {
        bench.step(10_000);
    }
    let late = bench.started.iter().skip(101).filter(|s| s.1 == late).count();
    assert!((19..=21).contains(&late), "{late} of the next 40");
}

#[test]
fn fetches_of_four_multitasks_oldest_first() {
    let link = ResourceSpec { multitasks_at_once: Some(4), ..fixed(16) };
    let mut bench = Bench::new(&[link], None);
    let job = bench.scheduler.add_job(0);
    let ids: Vec<_> = (0..6).map(|_| bench.submit(job, 0, vec![on_disk(Phase::Fetch); 2])).collect();
    bench.drain();
    let fetching = |bench: &Bench| {
        let mut ids: Vec<_> = bench.running.iter().map(|r| r.0.multitask).collect();
        ids.dedup();
        ids
    };
    assert_eq!(fetching(&bench), ids[..4], "8 of 16 places used, 4 fetches wait");
    assert_eq!(bench.scheduler.queued(DISK), 4);
    bench.step(10_000);
    assert_eq!(bench.running.len(), 7, "the oldest has one to go");
    bench.step(10_000);
    assert_eq!(fetching(&bench), ids[1..5], "it has all its bytes: the next may");
    let other = bench.scheduler.add_job(bench.now);
    bench.submit(other, 0, vec![on_disk(Phase::Write)]);
    bench.drain();
    assert_eq!(bench.running.last().map(|r| r.1), Some(Phase::Write), "only fetches wait");
}

#[test]
fn as_many_multitasks_as_can_run_and_one() {
    let adaptive = Concurrency::Adaptive { min: 2, max: 8, policy: Policy::default() };
    let flash = ResourceSpec { concurrency: adaptive, multitasks_at_once: None };
    let mut bench = Bench::new(&[fixed(4), flash], None);
    let job = bench.scheduler.add_job(0);
    for _ in 0..20 {
        bench.submit(job, 0, vec![on_disk(Phase::Compute)]);
    }
    bench.drain();
    assert_eq!((bench.admitted.len(), bench.scheduler.places()), (7, 7), "§3.4");
    assert_eq!((bench.scheduler.running(DISK), bench.scheduler.waiting()), (4, 13));
}

#[test]
fn admission_takes_turns_over_jobs() {
    let mut bench = Bench::new(&[fixed(2)], None);
    let (one, other) = (bench.scheduler.add_job(0), bench.scheduler.add_job(0));
    let ids: Vec<_> = (0..8)
        .map(|n| bench.submit(if n < 6 { one } else { other }, 0, vec![on_disk(Phase::Read)]))
        .collect();
    bench.drain();
    for _ in 0..8 {
        bench.step(10_000);
    }
    let order: Vec<_> = bench.admitted.iter().map(|id| ids.iter().position(|i| i == id).unwrap()).collect();
    assert_eq!(order, [0, 6, 1, 7, 2, 3, 4, 5]);
}

#[test]
fn what_is_larger_than_the_budget_runs_alone() {
    let mut bench = Bench::new(&[fixed(8)], Some(100));
    let job = bench.scheduler.add_job(0);
    let ids: Vec<_> =
        [40, 500, 10].into_iter().map(|bytes| bench.submit(job, bytes, vec![on_disk(Phase::Read)])).collect();
    bench.drain();
    assert_eq!(bench.admitted, ids[..1], "the small one behind does not overtake");
    bench.step(10_000);
    assert_eq!((&bench.admitted[..], bench.scheduler.memory_held()), (&ids[..2], 500));
    bench.step(10_000);
    assert_eq!((&bench.admitted[..], bench.scheduler.memory_held()), (&ids[..], 10));
}

#[test]
fn a_failure_ends_the_job_once_what_runs_has_ended() {
    let mut bench = Bench::new(&[fixed(2)], None);
    let (job, other) = (bench.scheduler.add_job(0), bench.scheduler.add_job(0));
    let ids: Vec<_> = (0..4).map(|_| bench.submit(job, 7, vec![on_disk(Phase::Read); 2])).collect();
    let spared = bench.submit(other, 0, vec![on_disk(Phase::Read)]);
    bench.drain();
    let (failing, running) = (bench.running.remove(0), bench.running[0]);
    bench.scheduler.fail(1, failing.0);
    bench.drain();
    let outcomes = |bench: &Bench| {
        ids.iter().map(|id| bench.ended.iter().find(|e| e.0 == *id).map(|e| e.1)).collect::<Vec<_>>()
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
    assert_eq!(outcomes(&bench), before, "one still runs (the same: {same})");
    bench.step(10_000);
    while !bench.running.is_empty() {
        bench.step(10_000);
    }
    assert_eq!(outcomes(&bench), expect);
    assert!(bench.ended.contains(&(spared, Outcome::Done)), "{:?}", bench.ended);
    let late = bench.submit(job, 0, Vec::new());
    bench.drain();
    assert!(bench.ended.contains(&(late, Outcome::Cancelled)));
    bench.scheduler.end_job(bench.now, job);
    bench.scheduler.end_job(bench.now, other);
    assert_eq!((bench.scheduler.jobs(), bench.scheduler.memory_held()), (0, 0));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
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
    assert_eq!(scheduler.running(DISK), 1, "it runs still");
    scheduler.complete(0, monotask, nothing()).unwrap();
    let outcome = Outcome::Done;
    assert_eq!(scheduler.next(0), Some(Decision::Ended { multitask: id, outcome }));
    scheduler.fail(0, monotask);
    scheduler.fail_expand(0, id);
    assert_eq!(scheduler.next(0), None, "what is over cannot fail");
    let stranger = scheduler.submit(0, MultitaskSpec { job: JobId(99), ..spec });
    assert_eq!(stranger.slot(), id.slot(), "a slot is used again");
    let ended = Decision::Ended { multitask: stranger, outcome: Outcome::Cancelled };
    assert_eq!(scheduler.next(0), Some(ended), "of a job that nobody knows");
}

#[test]
fn planning_that_fails_or_is_overtaken_by_a_cancel_ends_the_multitask() {
    let mut scheduler = Scheduler::new(Config::default());
    scheduler.add_resource(fixed(1));
    for cancel in [false, true] {
        let job = scheduler.add_job(0);
        let id = scheduler.submit(0, MultitaskSpec { job, stage: 0, memory_bytes: 5 });
        assert_eq!(scheduler.next(0), Some(Decision::Admit(id)));
        let outcome = match cancel {
            true => {
                scheduler.cancel(0, job);
                assert_eq!(scheduler.next(0), None, "it is being planned");
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
fn what_a_job_holds_outlives_its_multitasks_and_no_more_is_released() {
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
fn concurrency_is_climbed_for_the_stages_that_use_the_resource() {
    let adaptive = Concurrency::Adaptive { min: 2, max: 16, policy: Policy::default() };
    let flash = ResourceSpec { concurrency: adaptive, multitasks_at_once: None };
    let mut scheduler = Scheduler::new(Config::default());
    let disk = scheduler.add_resource(flash);
    let cores = scheduler.add_resource(fixed(1));
    let job = scheduler.add_job(0);
    let mut now = 0;
    // One multitask of eight reads at a time: between two there is none.
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
    assert!(first > 2, "it climbed to {first}");
    assert!(stage(&mut scheduler, 1, cores) == first, "that stage does not use the disk");
    assert!(stage(&mut scheduler, 0, disk) >= first, "the same stage goes on from there");
    let id = scheduler.submit(now, MultitaskSpec { job, stage: 2, memory_bytes: 0 });
    assert_eq!(scheduler.next(now), Some(Decision::Admit(id)));
    scheduler.expand(now, id, vec![on_disk(Phase::Read)]).unwrap();
    assert_eq!(scheduler.concurrency(disk), 2, "another stage: from the least again");
}
