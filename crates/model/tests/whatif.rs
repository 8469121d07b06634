//! What-ifs on jobs small enough to verify by hand, and on damaged traces.

mod builder;

use builder::{Build, ms};
use pellucid_model::whatif::{
    By, Changes, Prediction, Storage, Sweep, WhatIf, WhatIfError, WhatIfModel, residuals,
};
use pellucid_trace::{Column, HeldMemory, Operator, Outcome, Part, Peak, Phase, Spill, Trace, kind};

fn rate(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix("MB/s").ok_or("a rate is a size a second, for example 50MB/s")?;
    number.parse::<u64>().map(|n| n * 1_000_000).map_err(|e| e.to_string())
}

fn ask(trace: &Trace, settings: &[&str]) -> Result<WhatIf, WhatIfError> {
    let model = WhatIfModel::of(trace, &residuals(Some("")))?;
    let answer = model.predict(&Changes::parse(settings, rate)?)?;
    // These jobs are simple enough for an exact replay, so nothing is scaled.
    let replay = answer.baseline.replay_error().expect("a simulation");
    assert!(replay < 1e-3, "replay is {replay} off");
    Ok(answer)
}

fn simulated(trace: &Trace, settings: &[&str]) -> f64 {
    ask(trace, settings).expect("an answer").prediction.simulated_ms.expect("a simulation")
}

/// Builds the standard query; its final stage waits for the scan.
fn query() -> Trace {
    let mut trace = Build::query().trace;
    trace.stages[1].after = vec![0];
    trace
}

/// Asserts equality within 1 %, since times scaled to the measured one are not exact to the nanosecond.
fn close(actual: f64, expected: f64) {
    assert!((actual - expected).abs() <= 0.01 * expected, "{actual} ms, expected {expected} ms");
}

fn message(result: Result<WhatIf, WhatIfError>) -> String {
    match result {
        Ok(answer) => format!("answered with {} ms", answer.prediction.duration_ms),
        Err(refused) => refused.message().to_string(),
    }
}

#[test]
fn unchanged_job_is_reproduced() {
    let trace = query();
    let answer = ask(&trace, &[]).expect("an answer");
    close(answer.baseline.simulated_ms.expect("a simulation"), 1840.0);
    assert_eq!(answer.prediction.duration_ms, 1840.0);
    assert_eq!(answer.prediction.by, By::Simulated);
    let analysis = pellucid_model::analyze(&trace);
    close(answer.baseline.modelled_ms.expect("ideal times"), analysis.jobs[0].modelled_ms.expect("a model"));
    assert_eq!(answer.bottleneck_before.map(|b| b.kind).as_deref(), Some("disk"));
}

/// Four consecutive reads of 400 ms, each followed by 150 ms on one of two cores; then 80 ms for the
/// final stage and the job's end. 10 ms come before everything.
#[test]
fn hardware_changes_match_manual_calculation() {
    let trace = query();
    close(simulated(&trace, &["disk.rate=x2"]), 10.0 + 4.0 * 200.0 + 150.0 + 80.0);
    close(simulated(&trace, &["disk.rate=100MB/s"]), 10.0 + 4.0 * 200.0 + 150.0 + 80.0);
    close(simulated(&trace, &["disk.nvme0n1.rate=x0.5"]), 10.0 + 4.0 * 800.0 + 150.0 + 80.0);
    close(simulated(&trace, &["disks=2"]), 10.0 + 2.0 * 400.0 + 150.0 + 80.0);
    close(simulated(&trace, &["no=disk"]), 10.0 + 2.0 * 150.0 + 80.0);
    close(simulated(&trace, &["no=disk", "cores=1"]), 10.0 + 4.0 * 150.0 + 80.0);
    close(simulated(&trace, &["no=disk", "cores=1.5"]), 10.0 + 4.0 * 150.0 / 1.5 + 80.0);
    close(simulated(&trace, &["no=disk", "cores=0.5"]), 10.0 + 4.0 * 150.0 / 0.5 + 80.0 + 60.0);
    // Decoded input is also copied from memory: 20 MB at 4 GB/s, 5 ms per multitask.
    close(simulated(&trace, &["input=memory-decoded"]), 10.0 + 2.0 * 65.0 + 80.0);
    // The cores copy the disk's bytes: 20 MB at 4 GB/s, 5 ms per multitask.
    close(simulated(&trace, &["input=memory"]), 10.0 + 2.0 * 155.0 + 80.0);
    // The final stage's 60 ms double as well.
    close(simulated(&trace, &["input.scale=x2"]), 10.0 + 8.0 * 400.0 + 150.0 + 80.0 + 60.0);
    close(simulated(&trace, &["no=cpu"]), 10.0 + 4.0 * 400.0 + 20.0);
}

/// The standard query with a scan of two columns, one of which has most bytes and a third of the core time.
fn scanning() -> Trace {
    let mut trace = query();
    for compute in trace.monotasks.iter_mut().filter(|m| m.phase == Phase::Compute) {
        compute.cpu_ns = Some(compute.service_ns);
        compute.bytes = compute.cached_bytes.map(|_| 24_000_000);
    }
    let column = |name: &str, cpu_ms: f64, encoded_bytes: u64| Column {
        name: name.into(),
        cpu_ns: ms(cpu_ms),
        encoded_bytes,
        decoded_bytes: encoded_bytes,
    };
    let operator = |operator: u32, name: &str, cpu_ms: f64, columns: Vec<Column>| Operator {
        stage: 0,
        operator,
        name: name.into(),
        detail: None,
        part: Part::Decode,
        inputs: vec![],
        from: None,
        cpu_ns: ms(cpu_ms),
        max_cpu_ns: ms(cpu_ms / 4.0),
        batches: None,
        rows: None,
        bytes: None,
        planned_rows: None,
        peak_bytes: None,
        columns,
        expressions: vec![],
    };
    let columns = vec![column("l_quantity", 100.0, 24_000_000), column("l_comment", 200.0, 72_000_000)];
    trace.operators =
        vec![operator(0, "Scan lineitem.parquet …", 320.0, columns), operator(1, "Input", 40.0, vec![])];
    trace
}

/// Without the comments, each read has 5 of 20 MB, and each compute monotask 50 ms less for decoding and 7.5 ms less for
/// copying: three quarters of its input were copied in 10 ms.
#[test]
fn columns_that_are_not_read_save_their_bytes_and_core_time() {
    let trace = scanning();
    let compute = 150.0 - 50.0 - 7.5;
    for table in ["lineitem", "lineitem.parquet", "LINEITEM"] {
        let set = format!("columns.{table}=l_quantity");
        close(simulated(&trace, &[&set]), 10.0 + 4.0 * 100.0 + compute + 80.0);
    }
    close(simulated(&trace, &["columns.lineitem=l_quantity", "no=disk"]), 10.0 + 2.0 * compute + 80.0);
    close(simulated(&trace, &["columns.lineitem=l_comment,L_QUANTITY"]), 1840.0);
    let answer = ask(&trace, &["columns.lineitem=l_quantity"]).expect("an answer");
    assert!(answer.prediction.analytic_ms.is_some_and(|ms| ms < 1000.0), "{:?}", answer.prediction);
    assert!(
        answer.assumptions.iter().any(|a| a.contains("operators above the scan")),
        "{:?}",
        answer.assumptions
    );
}

#[test]
fn unknown_table_or_column_lists_those_there_are() {
    let trace = scanning();
    let refused = |set: &str| message(ask(&trace, &[set]));
    assert!(refused("columns.orders=a").ends_with("it has scans of lineitem.parquet"));
    assert!(refused("columns.lineitem=l_tax").ends_with("it reads l_comment, l_quantity"));
    let without = message(ask(&query(), &["columns.lineitem=l_tax"]));
    assert!(without.contains("does not tell columns apart; this trace can answer cores"), "{without}");
}

/// Returns a store that reads `mb_s[n - 1]` MB/s with `n` concurrent requests.
fn store(mb_s: &[f64], at_once: u32, first_byte_ms: f64) -> Storage {
    Storage {
        name: "s3://bucket".into(),
        is_disk: false,
        first_byte_ns: ms(first_byte_ms),
        read: mb_s.iter().enumerate().map(|(n, rate)| (n as u32 + 1, rate * 1e6)).collect(),
        at_once,
        read_just_written: false,
        write_bytes_per_s: None,
        publish_ns: None,
    }
}

fn on(trace: &Trace, storage: Storage) -> Result<WhatIf, WhatIfError> {
    let mut changes = Changes::default();
    changes.set_storage("probe.json", storage)?;
    WhatIfModel::of(trace, &residuals(Some("")))?.predict(&changes)
}

/// Builds the standard query with this many bytes of each multitask's input in the page cache.
fn cached(bytes: Option<u64>) -> Trace {
    let mut trace = query();
    let computes = trace.monotasks.iter_mut().filter(|m| m.cached_bytes.is_some());
    computes.for_each(|m| m.cached_bytes = bytes);
    trace
}

/// The same reads of 20 MB from a probed store.
#[test]
fn other_storage_matches_manual_calculation() {
    let trace = cached(None);
    let simulated = |storage| on(&trace, storage).unwrap().prediction.simulated_ms.unwrap();
    close(simulated(store(&[100.0], 1, 0.0)), 10.0 + 4.0 * 200.0 + 150.0 + 80.0);
    close(simulated(store(&[100.0], 1, 100.0)), 10.0 + 4.0 * 300.0 + 150.0 + 80.0);
    close(simulated(store(&[50.0, 100.0], 2, 0.0)), 10.0 + 2.0 * 400.0 + 150.0 + 80.0);
    let answer = on(&trace, store(&[100.0], 1, 0.0)).unwrap();
    let faster = ask(&trace, &["disk.rate=100MB/s"]).unwrap();
    close(answer.prediction.analytic_ms.unwrap(), faster.prediction.analytic_ms.unwrap());
    let slow = on(&trace, store(&[10.0], 1, 0.0)).unwrap();
    let bottleneck = slow.bottleneck_after.unwrap();
    assert_eq!((bottleneck.kind.as_str(), bottleneck.name.as_deref()), ("store", Some("s3://bucket")));
    // A probe's rates are uncertain by a tenth.
    assert!(slow.prediction.high_ms > 1.09 * slow.prediction.duration_ms, "{:?}", slow.prediction);
    assert_eq!(slow.changes.to_string(), "storage=probe.json");
}

/// 40 ms of planning, 100 ms of work on one core and 10 ms to the end, with a quota of half a core.
#[test]
fn larger_quota_speeds_up_the_driver() {
    let mut build = Build::on_cores(2);
    let cores = &mut build.trace.resources[0];
    (cores.capacity, cores.capacity_from) = (Some(0.5), Some("quota".into()));
    let job = build.job("SELECT 1", 0.0);
    let stage = build.stage(job, "ProjectionExec", 40.0);
    let multitask = build.multitask(stage, 40.0);
    build.compute(multitask, 40.0, 200.0).cpu_ns = Some(ms(100.0));
    build.end_stage(stage, 240.0);
    build.end_job(job, 250.0);
    let trace = build.trace;
    close(simulated(&trace, &["cores=x4"]), (40.0 + 10.0) / 2.0 + 100.0);
    close(simulated(&trace, &["cores=0.25"]), (40.0 + 10.0) * 2.0 + 400.0);
    // A quota where there was none does not slow the driver.
    close(simulated(&query(), &["cores=0.5", "no=cpu"]), simulated(&query(), &["no=cpu"]));
}

/// Each scan waited a fifth of its compute time for its core, which a reader thread had.
#[test]
fn removing_reads_removes_their_disturbance_of_cores() {
    let mut trace = query();
    let last = trace.monotasks.iter().map(|m| m.queued_ns).max();
    for monotask in trace.monotasks.iter_mut().filter(|m| m.phase == Phase::Compute) {
        // Including the final stage's, where nothing is read.
        monotask.cpu_ns = Some(monotask.service_ns / 5 * 4);
        assert!(monotask.service_ns == ms(150.0) || Some(monotask.queued_ns) == last);
    }
    close(simulated(&trace, &["no=disk"]), 10.0 + 2.0 * 120.0 + 80.0);
    close(simulated(&trace, &["disk.rate=x2"]), 10.0 + 4.0 * 200.0 + 150.0 + 80.0);
}

/// Builds 20 ms of computing, two parts of 10 MB at 50 MB/s one after the other, and a write that
/// publishes them as a file.
fn output() -> Trace {
    let mut b = Build::on_cores(2);
    let to = b.disk("nvme0n1", Some(50e6));
    b.trace.resources[to as usize].concurrency = Some(1);
    let job = b.job("COPY", 0.0);
    let stage = b.stage(job, "DataSink", 0.0);
    let computes = b.multitask(stage, 0.0);
    b.compute(computes, 0.0, 20.0);
    for (start, service, bytes) in [(20.0, 200.0, 10_000_000), (220.0, 200.0, 10_000_000), (420.0, 0.0, 0)] {
        let writes = b.multitask(stage, start);
        b.monotask(writes, to, Phase::Write, start, service).bytes = Some(bytes);
    }
    b.end_stage(stage, 420.0);
    b.end_job(job, 420.0);
    b.trace
}

#[test]
fn output_on_other_storage_uses_probed_rates() {
    let trace = output();
    let uploads =
        |publish_ns| Storage { write_bytes_per_s: Some(20e6), publish_ns, ..store(&[100.0, 100.0], 2, 7.0) };
    let simulated = |storage| on(&trace, storage).unwrap().prediction.simulated_ms.unwrap();
    // 20 MB at 20 MB/s, whose parts start while the job computes; then 30 ms and 10 ns per byte.
    let sent = simulated(uploads(Some((0.0, 0.0))));
    assert!((1000.0..1021.0).contains(&sent), "{sent} ms");
    close(simulated(uploads(Some((30e6, 10.0)))), sent + 30.0 + 200.0);
    // Objects that are put whole: each request waits as reads do.
    let whole = simulated(uploads(None));
    assert!((sent..sent + 15.0).contains(&whole), "{whole} ms");
    let published = on(&trace, uploads(Some((0.0, 10.0)))).unwrap().prediction.analytic_ms.unwrap();
    assert!(published >= 1200.0 * 0.99, "{published} ms");
}

#[test]
fn probe_of_just_written_data_adds_an_assumption_for_reads() {
    let said = |trace: &Trace, read_just_written| {
        let storage = Storage { read_just_written, write_bytes_per_s: Some(20e6), ..store(&[100.0], 1, 0.0) };
        on(trace, storage).unwrap().assumptions.iter().any(|words| words.contains("--read"))
    };
    assert!(said(&query(), true) && !said(&query(), false));
    assert!(!said(&output(), true));
}

#[test]
fn cached_input_is_read_from_other_storage() {
    let trace = cached(Some(20_000_000));
    let answer = on(&trace, store(&[100.0], 1, 0.0)).unwrap();
    close(answer.prediction.simulated_ms.unwrap(), 10.0 + 4.0 * 400.0 + 150.0 + 80.0);
    assert!(answer.assumptions.iter().any(|a| a.contains("80 MB")), "{:?}", answer.assumptions);
    // Analytic: 1600 ms on the store, then 30 ms on two cores, as with the disk.
    close(answer.prediction.analytic_ms.unwrap(), 1840.0);
}

#[test]
fn unusable_storage_is_rejected_with_remedy() {
    let trace = cached(None);
    let no_reads = Storage { read: vec![], ..store(&[], 1, 0.0) };
    assert!(message(on(&trace, no_reads)).contains("probe again"));
    assert!(message(ask(&trace, &["storage=probe.json"])).contains("read from a file"));
    let mut writes = query();
    writes.monotasks[0].phase = Phase::Write;
    assert!(message(on(&writes, store(&[10.0], 1, 0.0))).contains("writing was not measured"));
    let mut unmeasured = query();
    let reads = unmeasured.monotasks.iter_mut().filter(|m| m.phase == Phase::Read);
    reads.for_each(|m| (m.bytes, m.device_bytes) = (None, None));
    assert!(message(on(&unmeasured, store(&[10.0], 1, 0.0))).contains("were not measured"));
}

#[test]
fn ideal_times_scale_the_measured_time() {
    // Modelled: 1600 ms on the disk in the scan, then 30 ms on two cores.
    let answer = ask(&query(), &["disk.rate=x2"]).expect("an answer");
    let modelled = answer.baseline.modelled_ms.expect("ideal times");
    let after = answer.prediction.analytic_ms.expect("ideal times") / 1840.0 * modelled;
    close(modelled - after, 800.0);
    assert!(answer.prediction.because.contains("simulation reproduces"), "{}", answer.prediction.because);
}

#[test]
fn bottleneck_moves_along_a_sweep() {
    let trace = query();
    let model = WhatIfModel::of(&trace, &[]).expect("a model");
    let sweep = Sweep::parse("disk.rate=x1..x16", rate).expect("a sweep");
    let points = model.sweep(&Changes::default(), &sweep, rate).expect("points");
    let kinds: Vec<_> =
        points.iter().map(|p| p.bottleneck.as_ref().map_or("", |b| b.kind.as_str())).collect();
    assert_eq!(kinds, ["disk", "disk", "disk", "cpu", "cpu"]);
    let times: Vec<f64> = points.iter().map(|p| p.prediction.duration_ms).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
}

#[test]
fn single_changes_are_sorted_by_gain() {
    let trace = query();
    let singles = WhatIfModel::of(&trace, &[]).expect("a model").singles();
    let times: Vec<f64> = singles.iter().map(|s| s.prediction.duration_ms).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(singles[0].changes.to_string(), "input=memory-decoded");
    assert!(singles.iter().any(|s| s.changes.to_string() == "cores=x2"));
    for single in &singles {
        let p = &single.prediction;
        assert!(p.low_ms < p.duration_ms && p.duration_ms < p.high_ms, "{single:?}");
    }
}

#[test]
fn predictions_are_deterministic() {
    let trace = query();
    let once = ask(&trace, &["disk.rate=x3", "cores=1.5"]).expect("an answer");
    for _ in 0..3 {
        let again = ask(&trace, &["disk.rate=x3", "cores=1.5"]).expect("an answer");
        assert_eq!(once.prediction.duration_ms.to_bits(), again.prediction.duration_ms.to_bits());
        assert_eq!(once, again);
    }
}

#[test]
fn unsupported_changes_list_supported_ones() {
    let trace = query();
    let mut warm = Build::on_cores(2);
    let job = warm.job("q", 0.0);
    let stage = warm.stage(job, "s", 1.0);
    let task = warm.multitask(stage, 1.0);
    warm.compute(task, 2.0, 50.0);
    warm.end_stage(stage, 52.0);
    warm.end_job(job, 53.0);
    let cases: [(&Trace, &str, &[&str]); 10] = [
        (&trace, "machines=4", &["machines:", "one machine", "cores"]),
        (
            &trace,
            "workers=2",
            &["workers:", "one machine", "disks, disk.rate", "concurrency.KIND", "input.scale", "no"],
        ),
        (&trace, "executors=4", &["Spark", "cores", "disk.rate"]),
        (&trace, "no=gc", &["Spark", "no=cpu, no=disk"]),
        (&trace, "no=gpu", &["no resource of that kind", "no=disk"]),
        (&trace, "disk.sda.rate=x2", &["no disk sda", "nvme0n1"]),
        (&trace, "concurrency.gpu=2", &["cpu, disk"]),
        (&trace, "network.rate=x2", &["no network", "disk.rate"]),
        (&trace, "partitions=4", &["partitions", "cores"]),
        (&warm.trace, "disks=2", &["no disk", "cores"]),
    ];
    for (trace, setting, parts) in cases {
        let message = message(ask(trace, &[setting]));
        assert!(parts.iter().all(|part| message.contains(part)), "{setting}: {message}");
    }
}

#[test]
fn incomplete_traces_are_rejected_with_remedy() {
    let mut cut = query();
    cut.truncated = Some("cut in block 2".into());
    assert!(message(ask(&cut, &[])).contains("run the job again"));
    let mut failed = query();
    failed.job_ends[0].outcome = Outcome::Failed;
    assert!(message(ask(&failed, &[])).contains("record a run that ends well"));
    let mut open = query();
    open.job_ends.clear();
    assert!(message(ask(&open, &[])).contains("has no end"));
    assert!(message(ask(&Build::on_cores(2).trace, &[])).contains("no job"));
    let mut idle = query();
    idle.monotasks.clear();
    assert!(message(ask(&idle, &[])).contains("no monotasks"));
    let mut astray = query();
    astray.stages[0].job = 7;
    assert!(message(ask(&astray, &[])).contains("does not hold"));
}

/// A store behind a link: the slower one sets the pace.
#[test]
fn store_is_limited_by_its_link() {
    let mut b = Build::on_cores(2);
    let link = b.resource("network", kind::NETWORK, Some((100e6, "set")));
    let store = b.resource("s3://b", kind::STORE, Some((50e6, "set")));
    b.trace.resources[store as usize].link = Some(link);
    let job = b.job("q", 0.0);
    let stage = b.stage(job, "s", 0.0);
    let task = b.multitask(stage, 0.0);
    let fetch = b.monotask(task, store, Phase::Fetch, 0.0, 1000.0);
    fetch.bytes = Some(50_000_000);
    b.compute(task, 1000.0, 10.0);
    b.end_stage(stage, 1010.0);
    b.end_job(job, 1010.0);
    close(simulated(&b.trace, &["store.rate=x2"]), 510.0);
    close(simulated(&b.trace, &["store.rate=x8"]), 510.0);
    close(simulated(&b.trace, &["store.rate=x8", "network.rate=x8"]), 1000.0 / 8.0 + 10.0);
    close(simulated(&b.trace, &["network.rate=x0.25"]), 2010.0);
    close(simulated(&b.trace, &["no=store"]), 510.0 - 500.0);
}

/// The link's rate is unknown: it does not limit, and its rate cannot be doubled.
#[test]
fn unmeasured_link_does_not_limit() {
    let mut b = Build::on_cores(2);
    let link = b.resource("network", kind::NETWORK, None);
    let store = b.resource("s3://b", kind::STORE, None);
    b.trace.resources[store as usize].link = Some(link);
    let job = b.job("q", 0.0);
    let stage = b.stage(job, "s", 0.0);
    let task = b.multitask(stage, 0.0);
    b.monotask(task, store, Phase::Fetch, 0.0, 1000.0).bytes = Some(2_000_000_000);
    b.compute(task, 1000.0, 10.0);
    b.end_stage(stage, 1010.0);
    b.end_job(job, 1010.0);
    close(simulated(&b.trace, &[]), 1010.0);
    close(simulated(&b.trace, &["store.rate=x10"]), 110.0);
    let refused = ask(&b.trace, &["network.rate=x2"]).unwrap_err();
    assert!(refused.message().contains("does not say how fast network is"), "{}", refused.message());
    // An explicit rate does limit.
    close(simulated(&b.trace, &["network.rate=1000MB/s"]), 2010.0);
}

/// Writes submitted during a computation are still submitted during it when its length changes.
#[test]
fn writes_start_while_their_submitter_computes() {
    let mut b = Build::on_cores(1);
    let disk = b.disk("sda", Some(100e6));
    let job = b.job("COPY", 0.0);
    let stage = b.stage(job, "s", 0.0);
    let task = b.multitask(stage, 0.0);
    b.compute(task, 0.0, 400.0);
    for (made, start) in [(100.0, 100.0), (200.0, 300.0)] {
        let part = b.multitask(stage, made);
        let write = b.monotask(part, disk, Phase::Write, made, 200.0);
        write.bytes = Some(20_000_000);
        write.queue_ns = ms(start - made);
    }
    let publish = b.multitask(stage, 500.0);
    b.monotask(publish, disk, Phase::Write, 500.0, 10.0).bytes = Some(1_000_000);
    b.end_stage(stage, 510.0);
    b.end_job(job, 510.0);
    close(simulated(&b.trace, &[]), 510.0);
    // Parts are submitted at 50 and 100 ms of 200, and take 400 ms on the disk; publishing takes 10 ms
    // more.
    close(simulated(&b.trace, &["cores=1", "no=disk"]), 400.0);
    close(simulated(&b.trace, &["disk.rate=x0.5"]), 100.0 + 800.0 + 20.0);
}

/// A scan that reads half of its bytes, in a query limited by its disk.
#[test]
fn scan_with_fewer_bytes_reads_them_in_less_time() {
    let mut trace = query();
    for monotask in trace.monotasks.iter_mut().filter(|m| m.phase == Phase::Compute) {
        monotask.cpu_ns = Some(monotask.service_ns);
    }
    let operator = |number, name: &str| pellucid_trace::Operator {
        stage: 0,
        operator: number,
        name: name.into(),
        detail: None,
        part: pellucid_trace::Part::Decode,
        inputs: vec![],
        from: None,
        cpu_ns: 100_000_000,
        max_cpu_ns: 30_000_000,
        batches: None,
        rows: None,
        bytes: None,
        planned_rows: None,
        peak_bytes: None,
        columns: vec![],
        expressions: vec![],
    };
    trace.operators = vec![operator(0, "Scan a.parquet"), operator(1, "Input")];
    close(simulated(&trace, &[]), 1840.0);
    // Four reads of 200 ms, then 150 ms of computing and 80 ms of the last stage.
    close(simulated(&trace, &["operator.0.bytes=x0.5"]), 10.0 + 800.0 + 150.0 + 80.0);
    assert!(
        message(ask(&trace, &["operator.1.bytes=x0.5"]))
            .contains("operator 1 (Input of stage 0) reads no files")
    );
    assert!(message(ask(&trace, &["operator.2.bytes=x0.5"])).contains("operators up to 1"));
    trace.operators.push(operator(2, "Scan b.parquet"));
    assert!(message(ask(&trace, &["operator.0.bytes=x0.5"])).contains("2 scans"));
}

/// An uncertainty of the change widens the interval on both sides.
#[test]
fn widened_interval_adds_uncertainties_in_squares() {
    let trace = query();
    let prediction = ask(&trace, &["disk.rate=x2"]).expect("an answer").prediction;
    let half = |p: &Prediction| ((p.duration_ms / p.low_ms).ln(), (p.high_ms / p.duration_ms).ln());
    let (below, above) = half(&prediction);
    let wider = prediction.clone().widened(0.1);
    assert_eq!(wider.duration_ms, prediction.duration_ms);
    close(half(&wider).0, below.hypot(0.1));
    close(half(&wider).1, above.hypot(0.1));
    assert_eq!(prediction.clone().widened(0.0).duration_ms, prediction.duration_ms);
}

/// Machines share the work in turn; exchanged bytes cross the network except for each machine's own part.
#[test]
fn more_machines_share_work_and_exchange_more() {
    let mut b = Build::on_cores(1);
    b.trace.machines.push(pellucid_trace::Machine {
        name: "there".into(),
        cores: Some(1),
        memory_bytes: None,
    });
    b.resource("eth0", kind::NETWORK, Some((100e6, "set")));
    b.resource("cores", kind::CPU, Some((1.0, "counted")));
    b.resource("eth0", kind::NETWORK, Some((100e6, "set")));
    (2..4).for_each(|ix: usize| b.trace.resources[ix].machine = 1);
    let job = b.job("q", 0.0);
    let stage = b.stage(job, "s", 0.0);
    for part in 0..8_u32 {
        let task = b.multitask(stage, 0.0);
        let (machine, turn) = (part % 2, f64::from(part / 2));
        let fetch = b.monotask(task, 1 + 2 * machine, Phase::Fetch, 0.0, 10.0);
        (fetch.bytes, fetch.queue_ns) = (Some(1_000_000), ms(10.0 * turn));
        let start = 10.0 + 100.0 * turn;
        let compute = b.monotask(task, 2 * machine, Phase::Compute, 10.0 * (turn + 1.0), 100.0);
        compute.queue_ns = ms(start - 10.0 * (turn + 1.0));
    }
    b.end_stage(stage, 410.0);
    b.end_job(job, 410.0);
    close(simulated(&b.trace, &[]), 410.0);
    // Two multitasks per machine; three quarters of exchanged bytes cross instead of half: 15 ms each.
    close(simulated(&b.trace, &["machines=4"]), 15.0 + 200.0);
    close(simulated(&b.trace, &["machines=1"]), 800.0);
}

/// A job that writes 10 MB because they do not fit into 1 kB, and reads them back. With 2 kB, all would fit. Encoding and
/// decoding take 20 ms each.
fn spilling() -> Trace {
    let mut b = Build::on_cores(1);
    b.trace.machines[0].memory_bytes = Some(1000);
    let disk = b.disk("nvme0n1", Some(100e6));
    let job = b.job("q", 0.0);
    let first = b.stage(job, "s", 0.0);
    let writes = b.multitask(first, 0.0);
    b.compute(writes, 0.0, 100.0);
    b.monotask(writes, disk, Phase::Spill, 100.0, 100.0).bytes = Some(10_000_000);
    b.end_stage(first, 200.0);
    let second = b.stage(job, "t", 200.0);
    b.trace.stages[1].after = vec![0];
    let reads = b.multitask(second, 200.0);
    b.compute(reads, 200.0, 10.0);
    b.read(reads, disk, 210.0, 100.0, 10_000_000);
    b.compute(reads, 310.0, 100.0);
    b.end_stage(second, 410.0);
    let end = b.end_job(job, 410.0);
    end.spill = Some(Spill {
        write_bytes: 10_000_000,
        read_bytes: 10_000_000,
        cached_bytes: 0,
        service_ns: ms(200.0),
        core_ns: ms(40.0),
        sufficient_memory_bytes: 2000,
    });
    b.trace
}

/// Exchanges held 640 bytes, of which 400 fit. With 1500 bytes, 600 fit, and with 500 bytes 200: a sixth as much is spilled,
/// or eleven sixths.
#[test]
fn memory_changes_what_is_spilled() {
    let trace = spilling();
    close(simulated(&trace, &["memory=x1"]), 410.0);
    let spilling = |factor: f64| 2.0 * (80.0 + 20.0 * factor + 100.0 * factor) + 10.0;
    close(simulated(&trace, &["memory=1500B"]), spilling(1.0 / 6.0));
    close(simulated(&trace, &["memory=x0.5"]), spilling(11.0 / 6.0));
    for enough in ["memory=x2", "memory=1GiB"] {
        close(simulated(&trace, &[enough]), 80.0 + 10.0 + 80.0);
    }
    let twice_as_fast = 2.0 * (80.0 + (20.0 + 50.0) / 6.0) + 10.0;
    close(simulated(&trace, &["memory=1500B", "disk.rate=x2"]), twice_as_fast);
    let answer = ask(&trace, &["memory=x2"]).expect("an answer");
    // Cores and disk could have worked at once.
    close(answer.prediction.analytic_ms.expect("ideal times"), 410.0 * 170.0 / 210.0);
}

/// Exchanges of 400 bytes leave room for one of two multitasks of 500 bytes. With twice the budget, both run at once.
#[test]
fn exchanges_leave_less_memory_to_multitasks() {
    let mut b = Build::on_cores(2);
    b.trace.machines[0].memory_bytes = Some(1000);
    let disk = b.disk("nvme0n1", Some(100e6));
    let job = b.job("q", 0.0);
    let stage = b.stage(job, "s", 0.0);
    for from in [0.0, 200.0] {
        let task = b.multitask(stage, from);
        b.trace.multitasks[task as usize].memory_bytes = Some(500);
        b.compute(task, from, 100.0);
        b.monotask(task, disk, Phase::Spill, from + 100.0, 100.0).bytes = Some(10_000_000);
    }
    b.end_stage(stage, 400.0);
    let end = b.end_job(job, 400.0);
    let held_by = vec![HeldMemory { stage: 0, what: HeldMemory::EXCHANGE.into(), bytes: 400 }];
    end.peak = Some(Peak { bytes: 900, stage: 0, held_by });
    end.spill = Some(Spill { write_bytes: 20_000_000, sufficient_memory_bytes: 4000, ..Spill::default() });
    let trace = b.trace;
    close(simulated(&trace, &["disk.rate=x1"]), 400.0);
    close(simulated(&trace, &["memory=x1"]), 400.0);
    // Of 1,280 bytes of the exchanges, 500 fit beside three multitasks.
    close(simulated(&trace, &["memory=x2"]), 100.0 + 200.0 * 780.0 / 880.0);
}

#[test]
fn memory_of_a_job_that_spilled_nothing() {
    let mut trace = query();
    assert!(message(ask(&trace, &["memory=x2"])).contains("does not say its budget"));
    assert!(message(ask(&trace, &["memory=1GiB"])).contains("spilled nothing"));
    trace.machines[0].memory_bytes = Some(1_000_000);
    close(simulated(&trace, &["memory=x2"]), 1840.0);
    assert!(message(ask(&trace, &["memory=x0.5"])).contains("may spill with less:"));
    let held_by = vec![HeldMemory { stage: 0, what: "exchange".into(), bytes: 200_000 }];
    trace.job_ends[0].peak = Some(Peak { bytes: 300_000, stage: 0, held_by });
    close(simulated(&trace, &["memory=500kB"]), 1840.0);
    assert!(message(ask(&trace, &["memory=499kB"])).contains("may spill with less than 500 kB:"));
}

/// A stage after an exchange with another number of partitions: the same work, divided.
#[test]
fn repartitioned_stage_has_the_same_total_work() {
    let mut b = Build::on_cores(2);
    let job = b.job("q", 0.0);
    let first = b.stage(job, "scan", 0.0);
    let task = b.multitask(first, 0.0);
    b.compute(task, 0.0, 100.0);
    b.end_stage(first, 100.0);
    let last = b.stage(job, "final", 100.0);
    b.trace.stages[last as usize].after = vec![first];
    for part in 0..2 {
        let task = b.multitask(last, 100.0);
        b.compute(task, 100.0, if part == 0 { 300.0 } else { 100.0 });
    }
    b.end_stage(last, 400.0);
    b.end_job(job, 400.0);
    close(simulated(&b.trace, &[]), 400.0);
    // Four partitions of 150, 150, 50 and 50 ms on two cores.
    close(simulated(&b.trace, &["partitions=4"]), 100.0 + 200.0);
    close(simulated(&b.trace, &["partitions=x0.5"]), 100.0 + 400.0);
}
