//! Iterative jobs small enough to verify by hand: ideal times, notes, what-ifs.

mod builder;

use builder::{Build, ms};
use pellucid_model::analyze;
use pellucid_model::whatif::{Changes, WhatIf, WhatIfError, WhatIfModel, residuals};
use pellucid_trace::{Exchange, Resource, SampledTask, Trace, kind};

/// Memory bandwidth of one thread, and of two, in bytes per second.
const ONE: f64 = 10e9;
const TWO: f64 = 12e9;

/// Builds a job with 200 ms of loading, then five iterations on `workers`: a stage of four tasks of 40 ms
/// and 0.2 GB each (5 GB/s), and one task of 20 ms. 10 ms after each iteration are outside of tasks.
fn job(workers: u32, measured: bool) -> Trace {
    let mut b = Build::on_cores(workers);
    b.trace.resources[0].concurrency = Some(workers);
    if measured {
        for (threads, rate) in [(1, ONE), (2, TWO)] {
            let memory = b.resource("memory", kind::MEMORY_BANDWIDTH, Some((rate, "probed")));
            b.trace.resources[memory as usize].concurrency = Some(threads);
        }
    }
    let job = b.job("descent", 0.0);
    let (compute, step) = (b.stage(job, "compute", 0.0), b.stage(job, "step", 0.0));
    b.trace.stages[0].tasks = Some(4);
    b.trace.stages[1].tasks = Some(1);
    let mut now = 200.0;
    for iteration in 0..5 {
        let mut task = |stage, partition, started: f64, service: f64, bytes| {
            b.trace.sampled_tasks.push(SampledTask {
                stage,
                partition,
                resource: 0,
                iteration: Some(iteration),
                started_ns: ms(started),
                service_ns: ms(service),
                weight: 1.0,
                bytes: Some(bytes),
            });
        };
        for partition in 0..4 {
            task(compute, partition, now + 40.0 * f64::from(partition / workers), 40.0, 200_000_000);
        }
        now += 160.0 / f64::from(workers);
        task(step, 0, now, 20.0, 0);
        now += 30.0;
    }
    b.end_job(job, now);
    b.end(0.0, 0.0);
    b.trace
}

fn ask(trace: &Trace, setting: &str) -> Result<WhatIf, WhatIfError> {
    let model = WhatIfModel::of(trace, &residuals(Some("")))?;
    model.predict(&Changes::parse(&[setting], |_| Err("no rate".into()))?)
}

fn close(actual: f64, expected: f64) {
    assert!((actual - expected).abs() <= 0.005 * expected, "{actual} ms, expected {expected} ms");
}

#[test]
fn cores_and_memory_have_ideal_times() {
    let analysis = analyze(&job(1, true));
    let job = &analysis.jobs[0];
    // 5 × (4 × 40 + 20) ms on one core; 4 GB at the bandwidth of one thread.
    close(job.kinds["cpu"].ideal_ms, 900.0);
    close(job.kinds["memory_bandwidth"].ideal_ms, 400.0);
    assert_eq!(job.bottleneck.as_ref().map(|b| b.kind.as_str()), Some("cpu"));
    assert_eq!((analysis.stages[0].tasks, analysis.stages[1].tasks), (20, 5));
    close(analysis.stages[0].task_time_ms.expect("tasks"), 800.0);
    assert!(analysis.warnings.is_empty(), "{:?}", analysis.warnings);
    // 900 of 1,150 ms.
    assert!(analysis.notes[0].starts_with("tasks took 78.3 %"), "{:?}", analysis.notes);
    let unknown = analyze(&self::job(1, false));
    assert!(unknown.notes.iter().any(|note| note.contains("--bandwidth")), "{:?}", unknown.notes);
    assert!(!unknown.jobs[0].kinds.contains_key("memory_bandwidth"));
}

#[test]
fn memory_is_the_bottleneck_if_it_takes_longer_than_cores() {
    let mut trace = job(1, true);
    for task in &mut trace.sampled_tasks {
        task.bytes = task.bytes.map(|bytes| bytes * 3);
    }
    let analysis = analyze(&trace);
    assert_eq!(analysis.jobs[0].bottleneck.as_ref().map(|b| b.kind.as_str()), Some("memory_bandwidth"));
}

#[test]
fn uneven_stage_is_reported() {
    let mut trace = job(1, false);
    trace.sampled_tasks.iter_mut().filter(|t| t.partition == 3).for_each(|t| t.service_ns *= 2);
    let analysis = analyze(&trace);
    assert_eq!(analysis.stages[0].skew.duration_max_over_median, Some(2.0));
    let note = analysis.notes.iter().find(|n| n.contains("uneven")).expect("a note");
    assert!(note.contains("\"compute\"") && note.contains("partition 3 takes 1.6 times"), "{note}");
}

#[test]
fn sampled_task_counts_by_its_weight() {
    let mut trace = job(1, false);
    trace.sampled_tasks.retain(|task| task.iteration == Some(0));
    trace.sampled_tasks.iter_mut().for_each(|task| task.weight = 5.0);
    let analysis = analyze(&trace);
    close(analysis.jobs[0].kinds["cpu"].ideal_ms, 900.0);
    assert_eq!(analysis.stages[0].tasks, 20);
}

/// Two workers share loading (100 ms) and the tasks (80 + 20 ms per iteration), but not the 10 ms
/// between. Each task demands 5 GB/s, and each of two can have 6: memory does not matter.
#[test]
fn workers_share_loading_and_tasks() {
    let answer = ask(&job(1, true), "workers=2").expect("an answer");
    close(answer.baseline.simulated_ms.expect("a simulation"), 1150.0);
    close(answer.prediction.duration_ms, 100.0 + 5.0 * 110.0);
    assert_eq!(answer.bottleneck_after.map(|b| b.kind).as_deref(), Some("cpu"));
    // A job on two workers whose loading took no less time, predicted for one worker.
    let back = ask(&job(2, true), "workers=1").expect("an answer");
    close(back.prediction.duration_ms, 400.0 + 5.0 * 190.0);
}

/// With three workers, one of them has two tasks of 40 ms.
#[test]
fn tasks_are_not_divided_between_workers() {
    let answer = ask(&job(1, false), "workers=3").expect("an answer");
    close(answer.prediction.simulated_ms.expect("a simulation"), 200.0 / 3.0 + 5.0 * 110.0);
    close(answer.prediction.analytic_ms.expect("ideal times"), 200.0 / 3.0 + 5.0 * (160.0 / 3.0 + 30.0));
}

/// Five iterations on one worker: nine tasks of 40 ms; three of 20 ms, each after three of those; one of
/// 2 ms, only the first of which is recorded, as for short stages.
#[test]
fn tasks_wait_only_for_their_inputs() {
    let mut b = Build::on_cores(1);
    b.trace.resources[0].concurrency = Some(1);
    let job = b.job("ranks", 0.0);
    let stages = [("add", 9, 40.0), ("update", 3, 20.0), ("next", 1, 2.0)];
    let mut now = 0.0;
    for (name, tasks, _) in stages {
        let stage = b.stage(job, name, 0.0);
        b.trace.stages[stage as usize].tasks = Some(tasks);
    }
    for iteration in 0..5 {
        for ((_, tasks, service), stage) in stages.into_iter().zip(0..) {
            for partition in 0..tasks {
                let task = SampledTask {
                    stage,
                    partition,
                    resource: 0,
                    iteration: Some(iteration),
                    started_ns: ms(now),
                    service_ns: ms(service),
                    weight: 1.0,
                    bytes: Some(0),
                };
                if stage < 2 || iteration == 0 {
                    b.trace.sampled_tasks.push(task);
                }
                now += service;
            }
        }
    }
    b.end_job(job, now);
    b.end(0.0, 0.0);
    let answer = ask(&b.trace, "workers=2").expect("an answer");
    // Two at once until 160 ms; then the ninth next to two updates; the last update; the last stage.
    close(answer.prediction.simulated_ms.expect("a simulation"), 5.0 * (220.0 + 2.0));
    close(answer.prediction.analytic_ms.expect("ideal times"), 5.0 * (180.0 + 30.0 + 2.0));
}

/// Each task demands 10 GB/s, and can have 6 when two run.
#[test]
fn memory_bound_tasks_slow_each_other() {
    let mut trace = job(1, true);
    for task in &mut trace.sampled_tasks {
        task.bytes = task.bytes.map(|bytes| bytes * 2);
    }
    let answer = ask(&trace, "workers=2").expect("an answer");
    close(answer.prediction.duration_ms, 100.0 + 5.0 * (80.0 * 10.0 / 6.0 + 30.0));
    assert_eq!(answer.bottleneck_after.map(|b| b.kind).as_deref(), Some("memory_bandwidth"));
}

/// Two workers send each other 25 MB per iteration over a link of 1 Gbit/s: 0.2 s each.
#[test]
fn slower_link_adds_time_for_sent_bytes() {
    let mut trace = job(2, true);
    let link = trace.resources.len() as u32;
    trace.resources.push(Resource { name: "link".into(), kind: kind::NETWORK.into(), ..Resource::default() });
    for iteration in 0..5 {
        let started_ns = ms(200.0 + 110.0 * f64::from(iteration));
        let sent = Exchange {
            stage: 1,
            resource: link,
            started_ns,
            interval_ns: ms(110.0),
            messages: 2,
            bytes: 25_000_000,
        };
        trace.exchanges.push(sent);
    }
    let note = analyze(&trace).notes.into_iter().find(|n| n.contains("sent each other")).expect("a note");
    assert!(
        note.contains(
            "2.0 messages and 25000.0 kB per iteration; 100 % of the bytes were for stage \"step\""
        ),
        "{note}"
    );
    let model = WhatIfModel::of(&trace, &residuals(Some(""))).expect("a model");
    let changes = Changes::parse(&["network.rate=1Gbit/s"], |_| Ok(125_000_000)).expect("a change");
    let answer = model.predict(&changes).expect("an answer");
    close(answer.prediction.duration_ms, 200.0 + 5.0 * 110.0 + 5.0 * 200.0);
    assert!(answer.prediction.low_ms < 0.6 * answer.prediction.duration_ms);
    assert_eq!(answer.bottleneck_after.map(|b| b.kind).as_deref(), Some("network"));
    assert!(
        matches!(ask(&trace, "network.rate=x2"), Err(WhatIfError::Usage(why)) if why.contains("set an absolute rate"))
    );
    let refused = job(2, true);
    let model = WhatIfModel::of(&refused, &residuals(Some(""))).expect("a model");
    assert!(matches!(model.predict(&changes), Err(WhatIfError::Usage(why)) if why.contains("--processes")));
}

#[test]
fn unsupported_changes_are_rejected() {
    let trace = job(1, true);
    assert!(matches!(ask(&trace, "disks=2"), Err(WhatIfError::Usage(why)) if why.contains("workers")));
    assert!(matches!(ask(&trace, "cores=0.25"), Err(WhatIfError::Usage(why)) if why.contains("1 to 4096")));
    let mut unknown = job(1, false);
    unknown.resources[0].concurrency = None;
    assert!(
        matches!(ask(&unknown, "workers=2"), Err(WhatIfError::Failed(why)) if why.contains("number of workers"))
    );
    let mut damaged = job(1, true);
    damaged.sampled_tasks[0].stage = 99;
    damaged.sampled_tasks[1].weight = f64::NAN;
    analyze(&damaged);
}
