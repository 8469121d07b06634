//! Traces of pipelined tasks small enough to verify by hand. Times are in milliseconds.

mod builder;

use builder::ms;
use builder::spark::{Spark, at_most, measured, skewed};
use pellucid_model::{Analysis, Denominator, analyze};
use pellucid_trace::{Blocked, Failure, Outcome};

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 0.5, "{a} is not {b}");
}

fn replay(a: &Analysis) -> (f64, f64) {
    let replay = a.replay.expect("jobs ran");
    (replay.measured_ms, replay.simulated_ms)
}

/// Builds four tasks of 100 on two slots. The first two each waited 50; without that the second wave
/// starts earlier.
fn two_waves() -> Spark {
    let mut s = Spark::on(1, 2.0);
    let job = s.job(0.0, 200.0);
    let stage = s.stage(job, &[], 0.0, 200.0);
    for launched in [0.0, 0.0] {
        let task = s.task(stage, 0, launched, 100.0);
        s.add(task.blocked(|t| t.blocked_network = measured(50.0), 50.0));
    }
    s.computes(stage, 0, 100.0, 100.0);
    s.computes(stage, 0, 100.0, 100.0);
    s
}

#[test]
fn shorter_wave_starts_the_next_one_earlier() {
    let a = analyze(&two_waves().trace);
    assert_eq!(replay(&a), (200.0, 200.0));
    let bound = a.bounds["no_network"];
    near(bound.duration_ms, 150.0);
    near(bound.improvement, 0.25);
    assert!(bound.at_most, "a wait for shuffle data may be a wait for the disks it is read from");
    near(bound.high_ms, 200.0);
    near(a.bounds["no_disk"].duration_ms, 150.0);
    assert!(!a.bounds.contains_key("no_gc"), "it was not measured");
}

#[test]
fn blocked_time_is_measured_bounded_or_not_measured() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 100.0);
    let stage = s.stage(job, &[], 0.0, 100.0);
    let task = s.task(stage, 0, 0.0, 100.0);
    let task = task.blocked(|t| t.blocked_shuffle_write = measured(10.0), 10.0);
    let task =
        task.blocked(|t| t.blocked_input = at_most(30.0), 30.0).with(|t| t.blocked_spill = at_most(20.0));
    s.add(task);
    let a = analyze(&s.trace);
    let blocked = a.stages[0].blocked.expect("its tasks say so");
    assert_eq!(blocked.disk.measured_ms, Some(10.0));
    assert_eq!(blocked.disk.at_most_ms, Some(40.0), "both bounds may be the same 30 ms");
    assert_eq!((blocked.network.measured_ms, blocked.gc.measured_ms), (None, None));
    assert_eq!(blocked.cpu.measured_ms, Some(60.0));
    assert_eq!(blocked.other.measured_ms, Some(30.0));
    let bound = a.bounds["no_disk"];
    near(bound.low_ms, 60.0);
    near(bound.high_ms, 90.0);
}

#[test]
fn measured_input_wait_does_not_count_as_shuffle_files() {
    let mut s = Spark::on(1, 1.0);
    s.set("spark.master", "local-cluster[1,1,1024]");
    let job = s.job(0.0, 100.0);
    let stage = s.stage(job, &[], 0.0, 100.0);
    let task = s.task(stage, 0, 0.0, 100.0).reads(1 << 30);
    let task = task.blocked(|t| t.blocked_input = measured(50.0), 50.0);
    s.add(task.blocked(|t| t.blocked_output = measured(10.0), 10.0));
    let a = analyze(&s.trace);
    let said = |kind: &str| a.causes.iter().find(|c| c.cause == kind).map(|c| c.evidence.as_str());
    assert!(said("disk input").is_some_and(|text| text.starts_with("reading input took")), "{:?}", a.causes);
    assert!(said("disk").is_some_and(|text| text.contains("output took")), "{:?}", a.causes);
    let titles: Vec<&str> = a.advice.iter().map(|advice| advice.title.as_str()).collect();
    assert!(titles.contains(&"Read input faster") && !titles.join(" ").contains("shuffle"), "{:?}", a.advice);
    assert!(!a.advice.iter().any(|advice| advice.evidence.contains("at most")), "{:?}", a.advice);
}

#[test]
fn impossible_parts_are_cut_and_counted() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 100.0);
    let stage = s.stage(job, &[], 0.0, 100.0);
    let task = s.task(stage, 0, 0.0, 100.0);
    s.add(task.with(|t| (t.run_ns, t.gc) = (Some(ms(40.0)), measured(71.0))));
    let a = analyze(&s.trace);
    assert_eq!(a.stages[0].blocked.expect("known").gc.measured_ms, Some(40.0));
    assert!(a.warnings.iter().any(|w| w.starts_with("1 tasks have a part longer")), "{:?}", a.warnings);
}

#[test]
fn generated_input_has_no_wait() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 2000.0);
    let stage = s.stage(job, &[], 0.0, 2000.0);
    let waits = |t: &mut pellucid_trace::PipelinedTask| t.blocked_input = at_most(900.0);
    let task = s.task(stage, 0, 0.0, 1000.0);
    s.add(task.reads(0).blocked(waits, 900.0));
    let task = s.task(stage, 0, 1000.0, 1000.0);
    s.add(task.reads(50_000).blocked(waits, 900.0));
    let a = analyze(&s.trace);
    let most = a.stages[0].blocked.expect("known").disk.at_most_ms.expect("bounded");
    near(most, 300.0);
}

#[test]
fn gaps_late_executors_and_stages_are_replayed_as_recorded() {
    let mut s = Spark::on(1, 1.0);
    let late = s.executor(1.0, 300.0);
    let job = s.job(50.0, 900.0);
    let first = s.stage(job, &[], 70.0, 510.0);
    // 30 until a slot is offered to the first task, 10 between tasks; the second executor arrives at 300.
    s.computes(first, 0, 100.0, 190.0);
    s.computes(first, 0, 300.0, 200.0);
    s.computes(first, late, 320.0, 180.0);
    let second = s.stage(job, &[first], 560.0, 880.0);
    s.computes(second, 0, 570.0, 300.0);
    let next = s.job(1000.0, 1200.0);
    let third = s.stage(next, &[], 1010.0, 1190.0);
    s.computes(third, late, 1015.0, 170.0);
    let a = analyze(&s.trace);
    assert_eq!(replay(&a), (1050.0, 1050.0));
    assert_eq!(a.wall_clock.driver_only_ms, Some(150.0));
}

#[test]
fn slot_reused_before_its_recorded_end_stays_one_slot() {
    let mut s = Spark::on(1, 1.0);
    let job = s.job(0.0, 297.0);
    let stage = s.stage(job, &[], 0.0, 297.0);
    for launched in [0.0, 98.0, 197.0] {
        s.computes(stage, 0, launched, 100.0);
    }
    assert_eq!(replay(&analyze(&s.trace)), (297.0, 297.0));
}

#[test]
fn retries_run_after_the_failure_and_copies_next_to_the_original() {
    let mut s = Spark::on(1, 2.0);
    let job = s.job(0.0, 260.0);
    let stage = s.stage(job, &[], 0.0, 260.0);
    let failed = s.task(stage, 0, 0.0, 100.0);
    s.add(failed.with(|t| (t.outcome, t.failure) = (Outcome::Failed, Some(Failure::Exception))));
    let slow = s.task(stage, 0, 0.0, 260.0);
    s.add(slow.with(|t| t.outcome = Outcome::Cancelled));
    let again = s.task(stage, 0, 110.0, 90.0);
    s.add(again.with(|t| (t.partition, t.attempt) = (0, 1)));
    let copy = s.task(stage, 0, 205.0, 50.0);
    s.add(copy.with(|t| (t.partition, t.attempt, t.speculative) = (1, 1, true)));
    let a = analyze(&s.trace);
    assert_eq!(replay(&a), (260.0, 260.0));
    assert_eq!((a.stages[0].tasks, a.stages[0].failed_tasks), (4, 1));
}

#[test]
fn wall_clock_parts_sum_to_the_application() {
    let mut s = Spark::on(0, 1.0);
    let executor = s.executor(1.0, 400.0);
    let job = s.job(100.0, 700.0);
    let stage = s.stage(job, &[], 110.0, 700.0);
    s.computes(stage, executor, 410.0, 290.0);
    s.trace.application.as_mut().expect("it is there").ended_ns = Some(ms(1000.0));
    let a = analyze(&s.trace);
    let wall = &a.wall_clock;
    assert_eq!(wall.waiting_for_executors_ms, Some(300.0));
    assert_eq!((wall.jobs_ms, wall.driver_only_ms), (Some(300.0), Some(400.0)));
    assert_eq!(a.causes[0].cause, "scheduling", "{:?}", a.causes);
}

/// Builds stage 0 of job 0 with eight consecutive tasks on each of two executors, each taking 100 and
/// reading 1 MB.
fn even_stage(change: impl Fn(u32, &mut pellucid_trace::PipelinedTask)) -> Analysis {
    let mut s = Spark::on(2, 1.0);
    let job = s.job(0.0, 5000.0);
    let stage = s.stage(job, &[], 0.0, 5000.0);
    let mut at = [0.0, 0.0];
    for partition in 0..16 {
        let executor = (partition % 2) as usize;
        let mut of = s.task(stage, executor as u32, at[executor], 100.0).reads(1_000_000);
        change(partition, &mut of.task);
        at[executor] += of.task.duration_ns as f64 / 1e6;
        s.add(of);
    }
    analyze(&s.trace)
}

/// Makes a task take 300 instead of 100.
fn slow(task: &mut pellucid_trace::PipelinedTask) {
    (task.duration_ns, task.run_ns) = (ms(300.0), Some(ms(300.0)));
}

fn causes_of(a: &Analysis) -> Vec<&str> {
    let stragglers = a.stages[0].stragglers.as_ref().expect("it has tasks");
    assert_eq!(stragglers.count, 1, "{stragglers:?}");
    stragglers.tasks[0].causes.clone()
}

#[test]
fn straggler_has_over_one_and_a_half_times_the_median_rate() {
    let none = even_stage(|partition, task| {
        if partition == 9 {
            slow(task);
            task.input_bytes = Some(3_000_000);
        }
    });
    let stragglers = none.stages[0].stragglers.as_ref().expect("it has tasks");
    assert_eq!(
        (stragglers.count, stragglers.denominator),
        (0, Denominator::Bytes),
        "it read three times as much"
    );
    let one = even_stage(|partition, task| {
        if partition == 9 {
            slow(task)
        }
    });
    let stragglers = one.stages[0].stragglers.as_ref().expect("it has tasks");
    assert_eq!(stragglers.causes["unexplained"], Some(1));
    assert_eq!(stragglers.causes["input_read"], None, "it was not measured");
    assert_eq!(stragglers.tasks[0].partition, 9);
    near(stragglers.tasks[0].times_median * 100.0, 300.0);
    // Executor 1 takes 1000, executor 0 800; at the median rate both take 800.
    assert!(one.bounds["no_stragglers"].improvement > 0.0);
}

#[test]
fn rates_use_bytes_else_records_else_the_duration() {
    let records = even_stage(|_, task| (task.input_bytes, task.input_records) = (None, Some(10)));
    assert_eq!(records.stages[0].stragglers.as_ref().expect("judged").denominator, Denominator::Records);
    let nothing = even_stage(|_, task| task.input_bytes = None);
    assert_eq!(nothing.stages[0].stragglers.as_ref().expect("judged").denominator, Denominator::None);
}

/// Sets a part of a task's time.
type Set = fn(&mut pellucid_trace::PipelinedTask, Option<Blocked>);

#[test]
fn part_is_the_cause_if_its_removal_leaves_no_straggler() {
    let parts: [(&str, Set); 6] = [
        ("gc", |t, b| t.gc = b),
        ("scheduler", |t, b| t.scheduler = b),
        ("input_read", |t, b| t.blocked_input = b),
        ("shuffle_read", |t, b| t.blocked_network = b),
        ("shuffle_write", |t, b| t.blocked_shuffle_write = b),
        ("output_write", |t, b| t.blocked_output = b),
    ];
    for (name, set) in parts {
        let a = even_stage(|partition, task| {
            set(task, measured(10.0));
            if partition == 9 {
                slow(task);
                set(task, measured(200.0));
            }
        });
        assert_eq!(causes_of(&a), [name]);
        let little = even_stage(|partition, task| {
            set(task, measured(10.0));
            if partition == 9 {
                slow(task);
            }
        });
        assert_eq!(causes_of(&little), [""; 0], "{name} took as long in all tasks");
    }
}

#[test]
fn bounded_part_is_only_a_possible_cause() {
    let a = even_stage(|partition, task| {
        task.blocked_input = at_most(10.0);
        if partition == 9 {
            slow(task);
            task.blocked_input = at_most(250.0);
        }
    });
    let stragglers = a.stages[0].stragglers.as_ref().expect("judged");
    assert_eq!((stragglers.causes["input_read"], stragglers.causes["unexplained"]), (None, Some(1)));
    assert_eq!(stragglers.at_most["input_read"], 1);
}

#[test]
fn output_skew_and_first_tasks_are_distinguished() {
    let wrote_more = even_stage(|partition, task| {
        task.output_bytes = Some(1000);
        if partition == 9 {
            slow(task);
            task.output_bytes = Some(3000);
        }
    });
    assert_eq!(causes_of(&wrote_more), ["output_skew"]);
    // Partitions 0 and 1 are the first of their executors: both warm up.
    let warm_up = even_stage(|partition, task| {
        if partition < 2 {
            slow(task)
        }
    });
    let stragglers = warm_up.stages[0].stragglers.as_ref().expect("judged");
    assert_eq!((stragglers.count, stragglers.causes["first_task"]), (2, Some(2)));
    assert_eq!(stragglers.causes["unexplained"], Some(0));
    assert!(warm_up.causes.iter().all(|c| c.cause != "straggler"), "{:?}", warm_up.causes);
}

#[test]
fn machine_is_slow_if_all_its_tasks_are() {
    let mut s = Spark::on(3, 1.0);
    let job = s.job(0.0, 3000.0);
    let stage = s.stage(job, &[], 0.0, 3000.0);
    for executor in 0..3 {
        let each = if executor == 2 { 300.0 } else { 100.0 };
        for turn in 0..8 {
            let task = s.task(stage, executor, f64::from(turn) * each, each).reads(1_000_000);
            s.add(task);
        }
    }
    let a = analyze(&s.trace);
    let stragglers = a.stages[0].stragglers.as_ref().expect("judged");
    assert_eq!((stragglers.count, stragglers.causes["slow_machine"]), (8, Some(8)));
}

#[test]
fn skew_is_not_straggling_and_names_partition_and_key() {
    let a = analyze(&skewed().trace);
    let stage = &a.stages[1];
    assert_eq!(stage.stragglers.as_ref().expect("judged").count, 0, "it is as fast for what it holds");
    assert_eq!(stage.skew.partitions.len(), 1);
    assert_eq!(stage.skew.partitions[0].partition, 7);
    near(stage.skew.partitions[0].times_median, 10.0);
    let cause = &a.causes[0];
    assert_eq!((cause.cause.as_str(), cause.stage), ("skew", Some(1)));
    assert!(
        cause.evidence.contains("partition 7 of stage 1") && cause.evidence.contains("key of stage 0"),
        "{cause:?}"
    );
    // The total work of 1700 stays, on two slots: stage 1 takes 850 instead of 1300, of 1450 in total.
    assert!((440.0..=500.0).contains(&cause.ms), "{cause:?}");
    assert!(a.advice[0].title.contains("skewed"), "{:?}", a.advice);
}

#[test]
fn healthy_job_computes_and_gets_no_advice() {
    let a = even_stage(|_, task| task.cpu_ns = task.run_ns);
    assert_eq!(a.causes.iter().map(|c| c.cause.as_str()).collect::<Vec<_>>(), ["cpu"]);
    assert_eq!(a.advice, []);
    assert_eq!(a.stages[0].bottleneck.as_ref().map(|b| b.kind.as_str()), Some("cpu"));
}

#[test]
fn failed_job_is_the_first_cause() {
    let mut s = skewed();
    let failed = s.job(1500.0, 1510.0);
    let end = s.trace.job_ends.last_mut().expect("its end");
    (end.outcome, end.error) = (Outcome::Failed, Some("Task 2 failed 4 times".into()));
    let stage = s.stage(failed, &[], 1500.0, 1510.0);
    let task = s.task(stage, 0, 1500.0, 10.0);
    s.add(task.with(|t| (t.outcome, t.failure) = (Outcome::Failed, Some(Failure::Exception))));
    let a = analyze(&s.trace);
    assert_eq!(a.causes.iter().map(|c| c.cause.as_str()).collect::<Vec<_>>(), ["failure", "skew"]);
    assert!(a.causes[0].evidence.contains("Task 2 failed 4 times"));
}

#[test]
fn tasks_with_little_core_time_are_not_computing() {
    let a = even_stage(|_, task| task.cpu_ns = Some(ms(1.0)));
    assert_eq!(a.causes[0].cause, "unexplained");
    let shared = even_stage(|_, task| task.cpu_ns = Some(ms(40.0)));
    assert_eq!((shared.causes[0].cause.as_str(), shared.causes[0].at_most), ("cpu", true));
    assert!(shared.notes.iter().any(|n| n.starts_with("low core use")), "{:?}", shared.notes);
}

#[test]
fn application_without_jobs_is_analyzed() {
    let mut s = Spark::on(0, 1.0);
    s.trace.truncated = Some("no ApplicationEnd".into());
    let a = analyze(&s.trace);
    assert_eq!((a.causes.len(), a.replay, a.advice.len()), (0, None, 0));
}

#[test]
fn intensity_is_relative_to_core_time_and_input() {
    let a = even_stage(|_, task| {
        task.cpu_ns = Some(ms(100.0));
        task.shuffle_write_bytes = Some(500_000);
        task.shuffle_remote_bytes = Some(250_000);
    });
    let of_job = &a.jobs[0].intensity;
    near(of_job.shuffle_over_input.expect("known") * 100.0, 50.0);
    near(of_job.disk_mb_per_cpu_s.expect("known"), 17.5);
    near(of_job.network_mbit_per_cpu_s.expect("known"), 20.0);
    assert_eq!(of_job.output_over_input, None);
}

#[test]
fn spread_covers_jobs_that_have_the_bound() {
    let analyses = [analyze(&two_waves().trace), analyze(&skewed().trace)];
    let spread = pellucid_model::spread(&analyses, "no_network").expect("one job has it");
    assert_eq!(spread.jobs, 1);
    near(spread.p50 * 100.0, 25.0);
    assert!(pellucid_model::spread(&analyses, "no_gc").is_none());
}
