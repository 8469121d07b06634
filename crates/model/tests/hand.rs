//! Analyses of small traces, compared with manual calculations.

mod builder;

use builder::{Build, ms};
use pellucid_model::*;
use pellucid_trace::{Outcome, Phase, UtilizationSample, kind};

/// Asserts equality up to rounding.
#[track_caller]
fn close(got: impl Into<Option<f64>>, expect: f64) {
    let got = got.into().expect("measured");
    assert!((got - expect).abs() <= 1e-6 * expect.abs().max(1.0), "{got} is not {expect}");
}

/// Checks that the trace is valid and analyzes it.
#[track_caller]
fn analyzed(b: &Build) -> Analysis {
    assert_eq!(b.trace.check(), Vec::<String>::new());
    analyze(&b.trace)
}

/// §6.1: compute monotasks of twenty minutes on eighty cores take fifteen seconds; twenty gigabytes over
/// ten disks of 100 MB/s take twenty.
#[test]
fn example_of_the_paper_is_reproduced() {
    let mut b = Build::on_cores(80);
    let disks: Vec<u32> = (0..10).map(|d| b.disk(&format!("sd{d}"), Some(100e6))).collect();
    let job = b.job("example", 0.0);
    let stage = b.stage(job, "map", 0.0);
    for part in 0..80_u32 {
        let m = b.multitask(stage, 0.0);
        let disk = disks[part as usize % 10];
        b.read(m, disk, 2500.0 * f64::from(part / 10), 2500.0, 250_000_000);
        b.compute(m, 20_000.0, 15_000.0);
    }
    b.end_stage(stage, 40_000.0);
    b.end_job(job, 40_000.0);
    let a = analyzed(&b);
    let stage = &a.stages[0];
    close(stage.kinds["cpu"].ideal_ms, 15_000.0);
    close(stage.kinds["disk"].ideal_ms, 20_000.0);
    close(stage.kinds["disk"].utilization, 0.5);
    close(stage.kinds["disk"].imbalance, 1.0);
    assert_eq!(stage.bottleneck.as_ref().unwrap().kind, "disk");
    assert_eq!(stage.tasks, 80);
    let job = &a.jobs[0];
    close(job.modelled_ms, 20_000.0);
    assert_eq!(job.bottleneck.as_ref().unwrap().kind, "disk");
    assert_eq!(job.next, Some(Next { kind: "cpu".into(), ideal_ms: 15_000.0 }));
    assert_eq!(job.read_bytes, Some(20_000_000_000));
}

#[test]
fn query_of_two_stages_has_expected_times() {
    let a = analyzed(&Build::query());
    let job = &a.jobs[0];
    close(job.duration_ms, 1840.0);
    // 80 MB at 50 MB/s, then 60 ms on two cores.
    close(job.modelled_ms, 1630.0);
    close(job.kinds["disk"].ideal_ms, 1600.0);
    close(job.kinds["disk"].service_ms, 1600.0);
    close(job.kinds["disk"].queue_ms, 2400.0);
    close(job.kinds["cpu"].ideal_ms, 330.0);
    assert_eq!(job.bottleneck, Some(Bottleneck { kind: "disk".into(), name: Some("nvme0n1".into()) }));
    assert_eq!(job.next, Some(Next { kind: "cpu".into(), ideal_ms: 330.0 }));
    assert_eq!(
        (job.read_bytes, job.cached_bytes, job.written_bytes),
        (Some(80_000_000), Some(16_000_000), Some(0))
    );
    close(job.core.total_ms, 660.0);
    close(job.core.decode_share, 360.0 / 660.0);
    close(job.core.operator_share, 260.0 / 660.0);
    close(job.core.not_split_share, 6.0 / 660.0);
    close(job.intensity.disk_mb_per_cpu_s, 80.0 / 0.66);
    assert_eq!(job.intensity.network_mbit_per_cpu_s, None);
    close(a.recording.share, 0.02 / 660.0);
    close(a.wall_clock.jobs_ms, 1840.0);
    close(a.wall_clock.driver_only_ms, 0.0);

    let last = &a.stages[1];
    assert_eq!(last.bottleneck.as_ref().unwrap().kind, "cpu");
    // The disk is known and was not used: measured as zero. A network is unknown.
    close(last.kinds["disk"].ideal_ms, 0.0);
    assert!(!last.kinds.contains_key("network"));

    let causes: Vec<(&str, Option<usize>)> = a.causes.iter().map(|c| (c.cause.as_str(), c.stage)).collect();
    assert_eq!(causes, [("disk input", Some(0)), ("unexplained", None), ("cpu", Some(1))]);
    close(a.causes[0].ms, 1600.0);
    close(a.causes.iter().map(|c| c.ms).sum::<f64>(), 1840.0);
    assert!(a.causes[0].evidence.contains("falls by 1300 of 1630 ms"), "{}", a.causes[0].evidence);
}

/// All bytes are on one of two disks: the kind's ideal time is half of that disk's.
#[test]
fn bytes_stay_on_their_disk() {
    let mut b = Build::on_cores(1);
    let (left, right) = (b.disk("sda", Some(100e6)), b.disk("sdb", Some(100e6)));
    b.disk("unused", Some(100e6));
    let job = b.job("uneven", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    b.read(m, left, 0.0, 900.0, 90_000_000);
    b.read(m, right, 0.0, 100.0, 10_000_000);
    b.compute(m, 0.0, 800.0);
    b.end_stage(stage, 1000.0);
    b.end_job(job, 1000.0);
    let a = analyzed(&b);
    let disks = &a.jobs[0].kinds["disk"];
    close(disks.ideal_ms, 500.0);
    close(disks.limit_ms, 900.0);
    close(disks.imbalance, 900.0 / 500.0);
    assert_eq!((disks.resources, disks.largest.as_deref()), (2, Some("sda")));
    // Judged by ideal times alone, the cores would be the bottleneck.
    assert_eq!(a.jobs[0].bottleneck, Some(Bottleneck { kind: "disk".into(), name: Some("sda".into()) }));
    close(a.jobs[0].modelled_ms, 900.0);
}

/// Spilled bytes go to the disk with the shorter queue, so they are not fixed to one disk.
#[test]
fn spilled_bytes_are_not_tied_to_a_disk() {
    let mut b = Build::on_cores(1);
    let (left, right) = (b.disk("sda", Some(100e6)), b.disk("sdb", Some(100e6)));
    let job = b.job("spills", 0.0);
    let stage = b.stage(job, "sort", 0.0);
    let m = b.multitask(stage, 0.0);
    b.read(m, left, 0.0, 300.0, 30_000_000);
    b.monotask(m, left, Phase::Spill, 300.0, 500.0).bytes = Some(50_000_000);
    b.monotask(m, right, Phase::Spill, 300.0, 200.0).bytes = Some(20_000_000);
    b.end_stage(stage, 1000.0);
    b.end_job(job, 1000.0);
    let a = analyzed(&b);
    let disks = &a.jobs[0].kinds["disk"];
    close(disks.ideal_ms, 500.0);
    close(disks.limit_ms, 500.0);
    close(disks.largest_ms, 800.0);
    assert_eq!(a.jobs[0].written_bytes, Some(70_000_000));
    assert_eq!(a.causes[0].cause, "disk");
}

/// One stage keeps the cores busy while two others read one after the other: the sum over stages would be
/// 2 s, more than measured.
#[test]
fn overlapping_stages_share_the_resources() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", Some(100e6));
    let job = b.job("overlap", 0.0);
    let long = b.stage(job, "long", 0.0);
    let m = b.multitask(long, 0.0);
    b.compute(m, 0.0, 1000.0);
    for start in [0.0, 500.0] {
        let stage = b.stage(job, "scan", start);
        let m = b.multitask(stage, start);
        b.read(m, disk, start, 450.0, 45_000_000);
        b.end_stage(stage, start + 450.0);
    }
    b.end_stage(long, 1000.0);
    b.end_job(job, 1000.0);
    let a = analyzed(&b);
    close(a.jobs[0].modelled_ms, 1000.0);
    assert_eq!(a.jobs[0].bottleneck.as_ref().unwrap().kind, "cpu");
    assert_eq!(a.jobs[0].next.as_ref().unwrap().kind, "disk");
}

/// Two consecutive stages with different bottlenecks: their maxima add up (§6.1).
#[test]
fn consecutive_stages_add_up() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", Some(100e6));
    let job = b.job("in turn", 0.0);
    for (start, read, compute) in [(0.0, 600.0, 500.0), (700.0, 100.0, 250.0)] {
        let stage = b.stage(job, "stage", start);
        let m = b.multitask(stage, start);
        b.read(m, disk, start, read, (read * 1e5) as u64);
        b.compute(m, start, compute);
        b.end_stage(stage, start + f64::max(read, compute));
    }
    b.end_job(job, 1000.0);
    let a = analyzed(&b);
    close(a.jobs[0].modelled_ms, 850.0);
    // Without the disk 750 ms, without the cores 700 ms: removing the cores saves more, though the disk
    // limits for longer.
    assert_eq!(a.jobs[0].bottleneck.as_ref().unwrap().kind, "cpu");
    assert_eq!(a.causes[0].cause, "disk input");
    close(a.causes[0].ms, 600.0);
}

/// Reads with duration in seconds and rate in MB/s, and the expected capacity. In order: the best window
/// lies between two points where the rate changes; it ends at the end; there is a pause, which does not
/// count; no window is as fast as the mean.
#[test]
fn capacity_is_the_best_two_busy_seconds() {
    for (reads, expect) in [
        (vec![(0.0, 1.0, 40.0), (1.0, 2.0, 60.0), (3.0, 1.0, 40.0)], 60.0),
        (vec![(0.0, 1.0, 10.0), (1.0, 1.5, 60.0)], 47.5),
        (vec![(0.0, 1.0, 40.0), (1.0, 1.0, 60.0), (60.0, 1.0, 60.0)], 60.0),
        (vec![(0.0, 1.0, 100.0), (1.0, 1.0, 10.0), (2.0, 1.0, 100.0)], 70.0),
    ] {
        let mut b = Build::on_cores(1);
        let disk = b.disk("sda", None);
        let job = b.job("probe", 0.0);
        let stage = b.stage(job, "scan", 0.0);
        let m = b.multitask(stage, 0.0);
        for (start, service, rate) in &reads {
            b.read(m, disk, start * 1e3, service * 1e3, (service * rate * 1e6) as u64);
        }
        b.end_job(job, 61_000.0);
        let a = analyzed(&b);
        close(a.resources[disk as usize].capacity, expect * 1e6);
        assert_eq!(a.resources[disk as usize].capacity_from.as_deref(), Some("best 2 s"));
        let total: f64 = reads.iter().map(|(_, service, rate)| service * rate).sum();
        close(a.jobs[0].kinds["disk"].ideal_ms, total / expect * 1e3);
        assert!(!a.jobs[0].kinds["disk"].from_busy_time);
    }
}

/// A capacity is useless without bytes: neither the bytes nor the time may become zero.
#[test]
fn uncounted_bytes_are_not_zero() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", Some(100e6));
    let job = b.job("uncounted", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    b.read(m, disk, 0.0, 300.0, 0).bytes = None;
    b.end_job(job, 400.0);
    let a = analyzed(&b);
    close(a.jobs[0].kinds["disk"].ideal_ms, 300.0);
    assert!(a.jobs[0].kinds["disk"].from_busy_time);
    assert_eq!(a.jobs[0].read_bytes, None);
    assert_eq!(a.jobs[0].intensity.disk_mb_per_cpu_s, None);
}

/// A tenth of every second is busy: idle time does not count as slowness.
#[test]
fn idle_time_does_not_lower_a_capacity() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", None);
    let job = b.job("bursts", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    for burst in 0..30_u32 {
        b.read(m, disk, 1000.0 * f64::from(burst), 100.0, 10_000_000);
    }
    b.end_stage(stage, 30_000.0);
    b.end_job(job, 30_000.0);
    let a = analyzed(&b);
    close(a.resources[1].capacity, 100e6);
    close(a.jobs[0].kinds["disk"].utilization, 0.1);
}

#[test]
fn short_trace_has_busy_time_instead_of_capacity() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", None);
    let job = b.job("short", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    let m = b.multitask(stage, 0.0);
    b.read(m, disk, 0.0, 300.0, 1000);
    b.read(m, disk, 200.0, 300.0, 1000);
    b.end_stage(stage, 600.0);
    b.end_job(job, 600.0);
    let a = analyzed(&b);
    let resource = &a.resources[1];
    assert_eq!((resource.capacity, resource.capacity_from.as_deref()), (None, Some("busy time")));
    close(resource.ideal_ms, 500.0);
    close(a.jobs[0].kinds["disk"].service_ms, 600.0);
    assert!(a.jobs[0].kinds["disk"].from_busy_time && a.causes[0].at_most);
    assert!(a.causes[0].evidence.contains("busy time"), "{}", a.causes[0].evidence);
}

/// The kernel's count takes precedence over the requested bytes, unless it never counts anything.
#[test]
fn device_bytes_take_precedence() {
    for (device, expect) in [(Some(6_000_000), 12_000_000), (Some(0), 20_000_000), (None, 20_000_000)] {
        let mut b = Build::on_cores(1);
        let disk = b.disk("sda", Some(10e6));
        let job = b.job("counted", 0.0);
        let stage = b.stage(job, "scan", 0.0);
        let m = b.multitask(stage, 0.0);
        b.read(m, disk, 0.0, 600.0, 10_000_000).device_bytes = device;
        b.read(m, disk, 600.0, 600.0, 10_000_000).device_bytes = device;
        assert_eq!(analyzed(&b).jobs[0].read_bytes, Some(expect), "{device:?}");
    }
}

#[test]
fn link_of_a_single_store_is_opaque_unless_its_rate_is_known() {
    for (rate, expect) in [(None, None), (Some((50e6, "set")), Some(1000.0))] {
        let mut b = Build::on_cores(1);
        let link = b.resource("eth0", kind::NETWORK, rate);
        let store = b.resource("s3://bucket", kind::STORE, Some((100e6, "probed")));
        b.trace.resources[store as usize].link = Some(link);
        let job = b.job("remote", 0.0);
        let stage = b.stage(job, "scan", 0.0);
        let m = b.multitask(stage, 0.0);
        b.monotask(m, store, Phase::Fetch, 0.0, 900.0).bytes = Some(50_000_000);
        b.compute(m, 900.0, 50.0);
        b.end_stage(stage, 990.0);
        b.end_job(job, 990.0);
        let a = analyzed(&b);
        let job = &a.jobs[0];
        close(job.kinds["store"].ideal_ms, 500.0);
        assert_eq!(job.kinds.get("network").map(|k| k.ideal_ms), expect);
        let bottleneck = if rate.is_some() { "network" } else { "store" };
        assert_eq!(job.bottleneck.as_ref().unwrap().kind, bottleneck);
        // No monotask ran on the link itself, so it has no queue.
        assert_eq!(job.kinds.get("network").and_then(|k| k.queue_ms), None);
        assert_eq!(job.read_bytes, Some(50_000_000), "counted once");
        close(job.intensity.network_mbit_per_cpu_s, 400.0 / 0.05);
    }
}

#[test]
fn small_kind_is_not_the_bottleneck_of_two_balanced_ones() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", Some(100e6));
    let link = b.resource("eth0", kind::NETWORK, Some((100e6, "set")));
    let job = b.job("balanced", 0.0);
    let scan = b.stage(job, "scan", 0.0);
    let m = b.multitask(scan, 0.0);
    b.read(m, disk, 0.0, 9990.0, 999_000_000);
    b.compute(m, 0.0, 10_000.0);
    b.end_stage(scan, 10_000.0);
    let fetch = b.stage(job, "fetch", 10_000.0);
    let m = b.multitask(fetch, 10_000.0);
    b.monotask(m, link, Phase::Fetch, 10_000.0, 20.0).bytes = Some(2_000_000);
    b.end_stage(fetch, 10_020.0);
    b.end_job(job, 10_020.0);
    assert_eq!(analyzed(&b).jobs[0].bottleneck.as_ref().unwrap().kind, "cpu");
}

#[test]
fn failed_job_has_failure_as_first_cause() {
    let mut b = Build::query();
    b.trace.job_ends[0].outcome = Outcome::Failed;
    b.trace.job_ends[0].error = Some("column 'x' of part-0.parquet is corrupt".into());
    b.trace.monotasks[0].outcome = Outcome::Failed;
    let a = analyzed(&b);
    assert_eq!(a.causes[0].cause, "failure");
    assert!(a.causes[0].evidence.contains("part-0.parquet"));
    assert_eq!((a.stages[0].tasks, a.stages[0].failed_tasks), (4, 1));
}

#[test]
fn truncated_job_has_no_duration() {
    let mut b = Build::query();
    b.trace.end = None;
    b.trace.job_ends.clear();
    b.trace.stage_ends.clear();
    b.trace.truncated = Some("cut in block 2, after record 9".into());
    let a = analyze(&b.trace);
    let job = &a.jobs[0];
    assert_eq!((job.duration_ms, job.outcome), (None, None));
    close(job.observed_ms, 1825.0);
    close(job.modelled_ms, 1630.0);
    assert_eq!(job.kinds["disk"].utilization, None);
    assert_eq!(a.recording, Recording::default());
    assert!(a.warnings[0].contains("cut in block 2"), "{:?}", a.warnings);
}

#[test]
fn unmeasured_values_are_none() {
    assert_eq!(analyze(&Default::default()), Analysis::default());
    let mut b = Build::on_cores(2);
    let job = b.job("SELECT 1", 5.0);
    b.stage(job, "PlaceholderRowExec", 5.0);
    b.end_job(job, 5.0);
    let a = analyzed(&b);
    let job = &a.jobs[0];
    assert_eq!((job.modelled_ms, &job.bottleneck, job.read_bytes), (None, &None, None));
    close(job.duration_ms, 0.0);
    assert!(a.causes.is_empty() && a.stages[0].kinds.is_empty());
}

#[test]
fn skew_is_largest_over_median() {
    let mut b = Build::on_cores(4);
    let disk = b.disk("sda", Some(1e9));
    let job = b.job("skewed", 0.0);
    let stage = b.stage(job, "scan", 0.0);
    for (bytes, service) in [(10, 100.0), (20, 200.0), (90, 800.0)] {
        let m = b.multitask(stage, 0.0);
        b.read(m, disk, 0.0, 1.0, bytes);
        b.compute(m, 1.0, service - 1.0);
    }
    let skew = &analyzed(&b).stages[0].skew;
    close(skew.input_bytes_max_over_median, 4.5);
    close(skew.duration_max_over_median, 4.0);
    assert_eq!(skew.output_bytes_max_over_median, None);
}

#[test]
fn foreign_load_is_reported() {
    let mut b = Build::query();
    let mut sample = UtilizationSample {
        resource: 0,
        at_ns: ms(1000.0),
        interval_ns: ms(1000.0),
        busy_ns: Some(ms(700.0)),
        own_busy_ns: Some(ms(600.0)),
        read_bytes: None,
        write_bytes: None,
    };
    b.trace.utilization_samples.push(sample);
    assert_eq!(analyze(&b.trace).warnings, Vec::<String>::new());
    sample.busy_ns = Some(ms(1600.0));
    b.trace.utilization_samples[0] = sample;
    let warnings = analyze(&b.trace).warnings;
    assert_eq!(warnings, ["other processes kept 1.0 core busy during the measurement"]);
}

#[test]
fn series_use_the_same_capacities() {
    let b = Build::query();
    let series = series(&b.trace, 0, ms(1840.0), 184);
    assert_eq!(series.iter().map(|s| s.resource).collect::<Vec<_>>(), [0, 1]);
    let mean = |s: &Series| s.utilization.iter().sum::<f64>() / s.utilization.len() as f64;
    close(mean(&series[0]), 330.0 / 1840.0);
    close(mean(&series[1]), 1600.0 / 1840.0);
    close(series[1].utilization[0], 0.0);
    close(series[1].utilization[5], 1.0);
    close(series[0].utilization[45], 0.5);
}
