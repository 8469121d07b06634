//! Jobs from end to end, in memory: concurrency, panics, errors, cancellation, a dropped runtime, each with
//! a valid trace.

mod common;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use common::{Task, checked_trace, recorder, runtime};
use pellucid_runtime::{Cancelled, Context, Done, Job, JobError, Monotask, Options, Phase, Runtime};
use pellucid_trace::{Outcome, StageIx, kind};

fn compute(runtime: &Runtime, after: Vec<u32>, f: impl FnOnce() + Send + 'static) -> Monotask {
    Monotask::new(&runtime.cores(), Phase::Compute, after, 0, move |_| {
        f();
        Ok(Done { rows: Some(1), ..Done::default() })
    })
}

/// Returns a monotask that runs until it is cancelled, and sends a message when it starts.
fn endless(runtime: &Runtime, started: Sender<()>) -> Monotask {
    Monotask::new(&runtime.cores(), Phase::Compute, vec![], 0, move |context: &Context| {
        let _ = started.send(());
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        Err(Cancelled.into())
    })
}

fn submit_endless(runtime: &Runtime, job: &Job, stage: StageIx, n: u32) -> (Arc<()>, Receiver<()>) {
    let (token, (started, has_started)) = (Arc::new(()), channel());
    for i in 0..n {
        let (rt, started) = (runtime.clone(), started.clone());
        let task = Task::new(move || Ok(vec![endless(&rt, started)]), || panic!("done was called"));
        job.submit(stage, i, 0, task.holding(&token));
    }
    (token, has_started)
}

#[test]
fn concurrent_jobs_have_separate_traces() {
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
        let trace = checked_trace(job);
        assert_eq!(trace.jobs[0].name, format!("job {i}"));
        assert_eq!((trace.multitasks.len(), trace.monotasks.len()), (50, 100));
        assert_eq!(trace.job_ends[0].rows, Some(7));
        assert_eq!(trace.resources[0].kind, kind::CPU);
        assert!(trace.job_ends[0].memory_high_water_bytes.is_none_or(|b| b > 1 << 20));
        assert!(trace.monotasks.iter().all(|m| m.cpu_ns.is_some() && m.device_bytes.is_none()));
    }
}

#[test]
fn dependencies_run_first_and_monotasks_may_add_more() {
    let runtime = runtime();
    let job = runtime.begin("order", recorder());
    let stage = job.stage("order", &[], vec![]);
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(name)
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
    assert_eq!(checked_trace(&job).monotasks.len(), 4);
}

#[test]
fn done_may_submit_the_next_stage() {
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
    let job = runtime.begin("a long chain that must not become a deep stack", recorder());
    next(&runtime, &job, &[], 3000).expect("submitted");
    job.wait().expect("it succeeds");
    let trace = checked_trace(&job);
    assert_eq!(trace.stages.len(), 3000);
    assert!(trace.stage_ends.iter().all(|e| e.outcome == Outcome::Ok));
}

/// Submits a multitask that fails its job, and checks that the error contains `expect` and the runtime
/// stays usable.
fn check_failure(failing: impl FnOnce(&Runtime) -> Box<Task>, expect: &str) {
    let runtime = runtime();
    let job = runtime.begin("it fails", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (token, started) = submit_endless(&runtime, &job, stage, 1);
    started.recv().expect("it started");
    job.submit(stage, 1, 0, failing(&runtime).holding(&token));
    let error = job.wait().expect_err("it fails");
    assert!(matches!(error, JobError::Failed(_)));
    assert!(error.to_string().contains(expect), "{error}");
    assert_eq!(job.wait().expect_err("again").to_string(), error.to_string());
    assert_eq!(Arc::strong_count(&token), 1, "a multitask was not dropped");
    let trace = checked_trace(&job);
    assert_eq!(trace.job_ends[0].outcome, Outcome::Failed);
    assert_eq!(trace.job_ends[0].error.as_deref(), Some(error.to_string().as_str()));
    assert_eq!(trace.stage_ends[0].outcome, Outcome::Failed);

    let after = runtime.begin("the runtime stays usable", recorder());
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
    assert_eq!(checked_trace(&after).monotasks.len(), 1);
}

#[test]
fn failing_monotask_fails_job() {
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
fn panicking_monotask_fails_job() {
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
fn failing_or_panicking_plan_fails_job() {
    check_failure(|_| Task::new(|| Err("no such column".into()), || Ok(())), "no such column");
    check_failure(|_| Task::new(|| panic!("in the plan"), || Ok(())), "in the plan");
}

#[test]
fn failing_or_panicking_done_fails_job() {
    check_failure(|_| Task::new(|| Ok(vec![]), || Err("lost its exchange".into())), "lost its exchange");
    check_failure(|_| Task::new(|| Ok(vec![]), || panic!("at the end")), "at the end");
}

#[test]
fn plan_with_unknown_dependency_fails_job() {
    check_failure(
        |rt| {
            let rt = rt.clone();
            Task::new(move || Ok(vec![compute(&rt, vec![3], || {})]), || Ok(()))
        },
        "predecessor 3",
    );
}

#[test]
fn phase_on_wrong_resource_fails_job() {
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
fn added_monotask_with_unknown_dependency_fails_job() {
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
        "predecessor 9",
    );
}

#[test]
fn first_cause_from_outside_wins() {
    let runtime = runtime();
    let job = runtime.begin("it fails", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (_, started) = submit_endless(&runtime, &job, stage, 2);
    started.recv().expect("it started");
    job.fail("the client went away".into());
    job.cancel(); // has no effect: the job has failed already
    assert_eq!(job.wait().expect_err("it fails").to_string(), "the client went away");
    let trace = checked_trace(&job);
    assert!(trace.monotasks.iter().all(|m| m.outcome == Outcome::Cancelled));
}

#[test]
fn cancelled_job_drops_all_multitasks() {
    let runtime = runtime();
    let job = runtime.begin("it is cancelled", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (token, started) = submit_endless(&runtime, &job, stage, 100);
    for _ in 0..2 {
        started.recv().expect("both cores started");
    }
    job.cancel();
    assert!(matches!(job.wait(), Err(JobError::Cancelled)));
    assert!(job.is_cancelled());
    assert_eq!(Arc::strong_count(&token), 1, "a multitask was not dropped");
    let (late, _) = submit_endless(&runtime, &job, stage, 1);
    assert_eq!(Arc::strong_count(&late), 1, "a late multitask was not dropped");
    let trace = checked_trace(&job);
    assert_eq!(trace.job_ends[0].outcome, Outcome::Cancelled);
    assert!(trace.monotasks.iter().all(|m| m.outcome == Outcome::Cancelled));
}

/// Releases memory on drop, as an exchange does with its last reader.
struct ReleaseOnDrop(Job);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

#[test]
fn multitask_dropped_before_plan_may_call_the_runtime() {
    let (over, is_over) = channel();
    std::thread::spawn(move || {
        let runtime = runtime();
        let job = Arc::new(runtime.begin("it stops between admission and plan", recorder()));
        let stage = job.stage("s", &[], vec![]);
        let (of, rt) = (Arc::clone(&job), runtime.clone());
        let first = move || {
            let held = ReleaseOnDrop(Job::clone(&of));
            let second = move || {
                drop(held);
                panic!("it is planned")
            };
            of.submit(stage, 1, 0, Task::new(second, || panic!("done was called")));
            of.cancel();
            Ok(vec![compute(&rt, vec![], || ())])
        };
        job.submit(stage, 0, 0, Task::new(first, || panic!("done was called")));
        assert!(matches!(job.wait(), Err(JobError::Cancelled)));
        let _ = over.send(());
    });
    is_over.recv_timeout(std::time::Duration::from_secs(60)).expect("the runtime hangs");
}

#[test]
fn success_stops_remaining_work() {
    let runtime = runtime();
    let job = runtime.begin("LIMIT", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (token, started) = submit_endless(&runtime, &job, stage, 5);
    started.recv().expect("it started");
    job.succeed();
    job.wait().expect("it succeeds");
    assert_eq!(Arc::strong_count(&token), 1);
    assert_eq!(checked_trace(&job).job_ends[0].outcome, Outcome::Ok);
}

#[test]
fn dropped_job_is_cancelled() {
    let runtime = runtime();
    let recorder = recorder();
    let job = runtime.begin("dropped", recorder.clone());
    let stage = job.stage("s", &[], vec![]);
    let (token, started) = submit_endless(&runtime, &job, stage, 3);
    started.recv().expect("it started");
    drop(job);
    drop(runtime); // joins its threads
    assert_eq!(Arc::strong_count(&token), 1);
    let trace = recorder.finish().expect("a trace");
    assert_eq!(trace.job_ends[0].outcome, Outcome::Cancelled);
}

#[test]
fn dropped_runtime_cancels_its_jobs() {
    let runtime = runtime();
    let jobs: Vec<Job> = (0..3).map(|_| runtime.begin("it outlives its runtime", recorder())).collect();
    let mut all = Vec::new();
    for job in &jobs {
        let stage = job.stage("s", &[], vec![]);
        // These multitasks hold no clone of the runtime.
        let cores = runtime.cores();
        let (token, (started, has_started)) = (Arc::new(()), channel());
        for i in 0..4 {
            let (cores, started) = (cores.clone(), started.clone());
            let plan = move || {
                Ok(vec![Monotask::new(&cores, Phase::Compute, vec![], 0, move |context| {
                    let _ = started.send(());
                    while !context.is_cancelled() {
                        std::thread::yield_now();
                    }
                    Ok(Done::default()) // a monotask may succeed despite the cancellation
                })])
            };
            job.submit(stage, i, 0, Task::new(plan, || panic!("done was called")).holding(&token));
        }
        all.push((token, has_started));
    }
    all[0].1.recv().expect("it started");
    drop(runtime);
    for (job, (token, _)) in jobs.iter().zip(&all) {
        assert!(matches!(job.wait(), Err(JobError::Cancelled)));
        assert_eq!(Arc::strong_count(token), 1);
        checked_trace(job);
    }
}

#[test]
fn held_memory_delays_admission() {
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
    assert!(has_planned.try_recv().is_err(), "50 + 60 + 40 exceed the budget of 100");
    job.release(60);
    has_planned.recv().expect("admitted");
    go.send(()).expect("it waits");
    job.wait().expect("it succeeds");
    checked_trace(&job);
}
