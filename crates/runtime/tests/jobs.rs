//! Jobs from end to end, in memory: many at once, panics, errors, cancellations,
//! a runtime that is dropped, each with a sound trace.

mod common;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use common::{Task, recorder, runtime, sound};
use pellucid_runtime::{Cancelled, Context, Done, Job, JobError, Monotask, Options, Phase, Runtime};
use pellucid_trace::{Outcome, StageIx, kind};

fn compute(runtime: &Runtime, after: Vec<u32>, f: impl FnOnce() + Send + 'static) -> Monotask {
    Monotask::new(&runtime.cores(), Phase::Compute, after, 0, move |_| {
        f();
        Ok(Done { rows: Some(1), ..Done::default() })
    })
}

/// Runs until it is cancelled, and says that it began.
fn endless(runtime: &Runtime, began: Sender<()>) -> Monotask {
    Monotask::new(&runtime.cores(), Phase::Compute, vec![], 0, move |context: &Context| {
        let _ = began.send(());
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        Err(Cancelled.into())
    })
}

fn submit_endless(runtime: &Runtime, job: &Job, stage: StageIx, n: u32) -> (Arc<()>, Receiver<()>) {
    let (kept, (began, has_begun)) = (Arc::new(()), channel());
    for i in 0..n {
        let (rt, began) = (runtime.clone(), began.clone());
        let task = Task::new(move || Ok(vec![endless(&rt, began)]), || panic!("it cannot be done"));
        job.submit(stage, i, 0, task.keeping(&kept));
    }
    (kept, has_begun)
}

#[test]
fn many_jobs_at_once_each_with_its_own_trace() {
    let runtime = runtime();
    let jobs: Vec<Job> = (0..8).map(|i| runtime.begin(&format!("job {i}"), recorder())).collect();
    let sums: Vec<Arc<AtomicU64>> = (0..8).map(|_| Arc::default()).collect();
    for (job, sum) in jobs.iter().zip(&sums) {
        let stage = job.stage("sum", &[], vec![]);
        let left = Arc::new(AtomicU32::new(50));
        for partition in 0..50 {
            let (rt, sum, left, of) = (runtime.clone(), Arc::clone(sum), Arc::clone(&left), job.clone());
            let task = Task::new(
                move || {
                    let (a, b) = (Arc::clone(&sum), sum);
                    Ok(vec![
                        compute(&rt, vec![], move || {
                            a.fetch_add(u64::from(partition), Ordering::Relaxed);
                        }),
                        compute(&rt, vec![0], move || {
                            b.fetch_add(1000, Ordering::Relaxed);
                        }),
                    ])
                },
                move || {
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        of.end_stage(stage);
                        of.set_rows(7);
                        of.succeed();
                    }
                    Ok(())
                },
            );
            job.submit(stage, partition, 1 << 20, task);
        }
    }
    for (i, (job, sum)) in jobs.iter().zip(&sums).enumerate() {
        job.wait().expect("it succeeds");
        assert_eq!(sum.load(Ordering::Relaxed), (0..50).sum::<u64>() + 50_000);
        let progress = job.progress();
        assert_eq!((progress.multitasks_submitted, progress.multitasks_done), (50, 50));
        assert_eq!(progress.rows, 100);
        let trace = sound(job);
        assert_eq!(trace.jobs[0].name, format!("job {i}"));
        assert_eq!((trace.multitasks.len(), trace.monotasks.len()), (50, 100));
        assert_eq!(trace.job_ends[0].rows, Some(7));
        assert_eq!(trace.resources[0].kind, kind::CPU);
        assert!(trace.job_ends[0].memory_high_water_bytes.is_none_or(|b| b > 1 << 20));
        assert!(trace.monotasks.iter().all(|m| m.cpu_ns.is_some() && m.device_bytes.is_none()));
    }
}

#[test]
fn what_comes_after_runs_after_and_more_may_come_of_it() {
    let runtime = runtime();
    let job = runtime.begin("order", recorder());
    let stage = job.stage("order", &[], vec![]);
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(what)
    };
    let (rt, of) = (runtime.clone(), job.clone());
    let (first, second, last, more) = (note("first"), note("second"), note("last"), note("more"));
    let task = Task::new(
        move || {
            let then = compute(&rt, vec![1], more);
            let adds = Monotask::new(&rt.cores(), Phase::Compute, vec![0], 0, move |_| {
                second();
                Ok(Done { then: vec![then], ..Done::default() })
            });
            Ok(vec![compute(&rt, vec![], first), adds, compute(&rt, vec![0, 1], last)])
        },
        move || {
            of.succeed();
            Ok(())
        },
    );
    job.submit(stage, 0, 0, task);
    job.wait().expect("it succeeds");
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..2], ["first", "second"]);
    assert_eq!(order.len(), 4, "{order:?}");
    assert_eq!(sound(&job).monotasks.len(), 4);
}

#[test]
fn stages_follow_one_another_from_done() {
    fn next(
        runtime: &Runtime,
        job: &Job,
        after: &[StageIx],
        left: u32,
    ) -> Result<(), pellucid_runtime::Error> {
        if left == 0 {
            job.succeed();
            return Ok(());
        }
        let stage = job.stage(&format!("{left} to go"), after, vec![]);
        let (rt, rt2, of) = (runtime.clone(), runtime.clone(), job.clone());
        let task = Task::new(
            move || Ok(vec![compute(&rt, vec![], || {})]),
            move || {
                of.end_stage(stage);
                next(&rt2, &of, &[stage], left - 1)
            },
        );
        job.submit(stage, 0, 0, task);
        Ok(())
    }
    let runtime = runtime();
    let job = runtime.begin("a long chain, which must not become a deep stack", recorder());
    next(&runtime, &job, &[], 3000).expect("submitted");
    job.wait().expect("it succeeds");
    let trace = sound(&job);
    assert_eq!(trace.stages.len(), 3000);
    assert!(trace.stage_ends.iter().all(|e| e.outcome == Outcome::Ok));
}

/// Fails a job among healthy ones in a way of its own; `expect`: what it says.
fn check_failure(break_it: impl FnOnce(&Runtime) -> Box<Task>, expect: &str) {
    let runtime = runtime();
    let job = runtime.begin("it fails", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (kept, began) = submit_endless(&runtime, &job, stage, 1);
    began.recv().expect("it began");
    job.submit(stage, 1, 0, break_it(&runtime).keeping(&kept));
    let error = job.wait().expect_err("it fails");
    assert!(matches!(error, JobError::Failed(_)));
    assert!(error.to_string().contains(expect), "{error}");
    assert_eq!(job.wait().expect_err("again").to_string(), error.to_string());
    assert_eq!(Arc::strong_count(&kept), 1, "nothing is left behind");
    let trace = sound(&job);
    assert_eq!(trace.job_ends[0].outcome, Outcome::Failed);
    assert_eq!(trace.job_ends[0].error.as_deref(), Some(error.to_string().as_str()));
    assert_eq!(trace.stage_ends[0].outcome, Outcome::Failed);

    let after = runtime.begin("the runtime lives on", recorder());
    let stage = after.stage("s", &[], vec![]);
    let (rt, of) = (runtime.clone(), after.clone());
    let task = Task::new(
        move || Ok(vec![compute(&rt, vec![], || {})]),
        move || {
            of.succeed();
            Ok(())
        },
    );
    after.submit(stage, 0, 0, task);
    after.wait().expect("it succeeds");
    assert_eq!(sound(&after).monotasks.len(), 1);
}

#[test]
fn a_monotask_that_fails() {
    check_failure(
        |rt| {
            let cores = rt.cores();
            Task::new(
                move || {
                    let fails = |_: &Context| Err("corrupt page 7 of x.parquet".into());
                    Ok(vec![Monotask::new(&cores, Phase::Compute, vec![], 0, fails)])
                },
                || panic!("it cannot be done"),
            )
        },
        "corrupt page 7 of x.parquet",
    );
}

#[test]
fn a_monotask_that_panics() {
    check_failure(
        |rt| {
            let rt = rt.clone();
            Task::new(
                move || Ok(vec![compute(&rt, vec![], || panic!("index {} out of range", 9))]),
                || panic!("it cannot be done"),
            )
        },
        "jobs.rs",
    );
}

#[test]
fn a_plan_that_fails_or_panics() {
    check_failure(|_| Task::new(|| Err("no such column".into()), || Ok(())), "no such column");
    check_failure(|_| Task::new(|| panic!("in the plan"), || Ok(())), "in the plan");
}

#[test]
fn a_multitask_whose_end_fails_or_panics() {
    check_failure(|_| Task::new(|| Ok(vec![]), || Err("lost its exchange".into())), "lost its exchange");
    check_failure(|_| Task::new(|| Ok(vec![]), || panic!("at the end")), "at the end");
}

#[test]
fn a_plan_that_cannot_be() {
    check_failure(
        |rt| {
            let rt = rt.clone();
            Task::new(move || Ok(vec![compute(&rt, vec![3], || {})]), || Ok(()))
        },
        "comes after 3",
    );
}

#[test]
fn a_phase_on_a_resource_that_is_not_its_own() {
    check_failure(
        |rt| {
            let store = rt.store("s3://b", None);
            let run = |_: &Context| Ok(Done::default());
            Task::new(move || Ok(vec![Monotask::new(&store, Phase::Compute, vec![], 0, run)]), || Ok(()))
        },
        "a Compute monotask was planned on s3://b",
    );
}

#[test]
fn more_that_cannot_be() {
    check_failure(
        |rt| {
            let rt = rt.clone();
            Task::new(
                move || {
                    let bad = compute(&rt, vec![9], || {});
                    Ok(vec![Monotask::new(&rt.cores(), Phase::Compute, vec![], 0, move |_| {
                        Ok(Done { then: vec![bad], ..Done::default() })
                    })])
                },
                || Ok(()),
            )
        },
        "comes after 9",
    );
}

#[test]
fn a_cause_from_outside() {
    let runtime = runtime();
    let job = runtime.begin("it fails", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (_, began) = submit_endless(&runtime, &job, stage, 2);
    began.recv().expect("it began");
    job.fail("the client went away".into());
    job.cancel(); // the first cause counts
    assert_eq!(job.wait().expect_err("it fails").to_string(), "the client went away");
    let trace = sound(&job);
    assert!(trace.monotasks.iter().all(|m| m.outcome == Outcome::Cancelled));
}

#[test]
fn a_cancelled_job_lets_go_of_everything() {
    let runtime = runtime();
    let job = runtime.begin("it is cancelled", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (kept, began) = submit_endless(&runtime, &job, stage, 100);
    for _ in 0..2 {
        began.recv().expect("both cores began");
    }
    job.cancel();
    assert!(matches!(job.wait(), Err(JobError::Cancelled)));
    assert!(job.is_cancelled());
    assert_eq!(Arc::strong_count(&kept), 1, "nothing is left behind");
    let (late, _) = submit_endless(&runtime, &job, stage, 1);
    assert_eq!(Arc::strong_count(&late), 1, "what comes too late is dropped");
    let trace = sound(&job);
    assert_eq!(trace.job_ends[0].outcome, Outcome::Cancelled);
    assert!(trace.monotasks.iter().all(|m| m.outcome == Outcome::Cancelled));
}

/// Gives memory back when it goes, as what an exchange holds is given back with the last who reads it.
struct GivesBack(Job);

impl Drop for GivesBack {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

#[test]
fn a_multitask_that_is_dropped_before_it_is_planned_may_come_back_to_the_runtime() {
    let (over, is_over) = channel();
    std::thread::spawn(move || {
        let runtime = runtime();
        let job = Arc::new(runtime.begin("it stops between admission and plan", recorder()));
        let stage = job.stage("s", &[], vec![]);
        let (of, rt) = (Arc::clone(&job), runtime.clone());
        let first = move || {
            let held = GivesBack(Job::clone(&of));
            let second = move || {
                drop(held);
                panic!("it is planned")
            };
            of.submit(stage, 1, 0, Task::new(second, || panic!("it cannot be done")));
            of.cancel();
            Ok(vec![compute(&rt, vec![], || ())])
        };
        job.submit(stage, 0, 0, Task::new(first, || panic!("it cannot be done")));
        assert!(matches!(job.wait(), Err(JobError::Cancelled)));
        let _ = over.send(());
    });
    is_over.recv_timeout(std::time::Duration::from_secs(60)).expect("the runtime hangs");
}

#[test]
fn success_stops_what_is_not_needed_any_more() {
    let runtime = runtime();
    let job = runtime.begin("LIMIT", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (kept, began) = submit_endless(&runtime, &job, stage, 5);
    began.recv().expect("it began");
    job.succeed();
    job.wait().expect("it succeeds");
    assert_eq!(Arc::strong_count(&kept), 1);
    assert_eq!(sound(&job).job_ends[0].outcome, Outcome::Ok);
}

#[test]
fn a_job_that_nobody_wants_any_more_is_cancelled() {
    let runtime = runtime();
    let recorder = recorder();
    let job = runtime.begin("dropped", recorder.clone());
    let stage = job.stage("s", &[], vec![]);
    let (kept, began) = submit_endless(&runtime, &job, stage, 3);
    began.recv().expect("it began");
    drop(job);
    drop(runtime); // waits for its threads
    assert_eq!(Arc::strong_count(&kept), 1);
    let trace = recorder.finish().expect("a trace");
    assert_eq!(trace.job_ends[0].outcome, Outcome::Cancelled);
}

#[test]
fn a_dropped_runtime_cancels_its_jobs() {
    let runtime = runtime();
    let jobs: Vec<Job> = (0..3).map(|_| runtime.begin("it outlives its runtime", recorder())).collect();
    let mut all = Vec::new();
    for job in &jobs {
        let stage = job.stage("s", &[], vec![]);
        // These hold no clone of the runtime.
        let cores = runtime.cores();
        let (kept, (began, has_begun)) = (Arc::new(()), channel());
        for i in 0..4 {
            let (cores, began) = (cores.clone(), began.clone());
            let plan = move || {
                Ok(vec![Monotask::new(&cores, Phase::Compute, vec![], 0, move |context| {
                    let _ = began.send(());
                    while !context.is_cancelled() {
                        std::thread::yield_now();
                    }
                    Ok(Done::default()) // it may well end as if nothing were
                })])
            };
            job.submit(stage, i, 0, Task::new(plan, || panic!("it cannot be done")).keeping(&kept));
        }
        all.push((kept, has_begun));
    }
    all[0].1.recv().expect("it began");
    drop(runtime);
    for (job, (kept, _)) in jobs.iter().zip(&all) {
        assert!(matches!(job.wait(), Err(JobError::Cancelled)));
        assert_eq!(Arc::strong_count(kept), 1);
        sound(job);
    }
}

#[test]
fn memory_that_is_held_keeps_others_waiting() {
    let options = Options { cores: 2, memory_bytes: Some(100), ..Options::default() };
    let runtime = Runtime::new(options).expect("a runtime");
    let job = runtime.begin("memory", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (planned, has_planned) = channel();
    let left = Arc::new(AtomicU32::new(2));
    let ends = || {
        let (of, left) = (job.clone(), Arc::clone(&left));
        move || {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                of.succeed();
            }
            Ok(())
        }
    };
    let (go, wait_for) = channel::<()>();
    let rt = runtime.clone();
    let first = Task::new(
        move || {
            Ok(vec![Monotask::new(&rt.cores(), Phase::Compute, vec![], 0, move |_| {
                wait_for.recv()?;
                Ok(Done::default())
            })])
        },
        ends(),
    );
    job.submit(stage, 0, 50, first);
    job.hold(60);
    let second = Task::new(
        move || {
            planned.send(())?;
            Ok(vec![])
        },
        ends(),
    );
    job.submit(stage, 1, 40, second);
    assert!(has_planned.try_recv().is_err(), "50 + 60 + 40 are more than 100");
    job.release(60);
    has_planned.recv().expect("admitted");
    go.send(()).expect("it waits");
    job.wait().expect("it succeeds");
    sound(&job);
}
