//! What-ifs on the query, and the skew of its exchanges, on jobs small enough to verify by hand.

#[path = "../builder/mod.rs"]
mod builder;

use builder::{Build, ms};
use pellucid_model::analyze;
use pellucid_model::whatif::{Changes, WhatIf, WhatIfError, WhatIfModel, residuals};
use pellucid_trace::{Operator, Phase, Trace, kind};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

fn no_rate(_: &str) -> Result<u64, String> {
    Err("no rates here".into())
}

fn ask(trace: &Trace, settings: &[&str]) -> Result<WhatIf, WhatIfError> {
    let model = WhatIfModel::of(trace, &residuals(Some("")))?;
    model.predict(&Changes::parse(settings, no_rate)?)
}

fn simulated(trace: &Trace, settings: &[&str]) -> f64 {
    let answer = ask(trace, settings).expect("an answer");
    assert!(answer.baseline.replay_error().expect("a simulation") < 1e-3);
    answer.prediction.simulated_ms.expect("a simulation")
}

fn message(trace: &Trace, setting: &str) -> String {
    ask(trace, &[setting]).expect_err(setting).message().to_owned()
}

#[track_caller]
fn close(actual: f64, expected: f64) {
    assert!((actual - expected).abs() <= 1e-4 * expected, "{actual} ms, expected {expected} ms");
}

/// Returns an operator, over several monotasks unless it is the work of one.
fn operator(
    stage: u32,
    number: u32,
    name: &str,
    inputs: &[u32],
    core_ms: f64,
    rows: Option<u64>,
) -> Operator {
    let part = match name.split(' ').next() {
        Some("Scan") => "decode",
        Some("Partition" | "Output") => "encode",
        _ => "operators",
    };
    let (cpu_ns, max_cpu_ns) = (ms(core_ms), ms(core_ms / 2.0));
    let record = json!({
        "stage": stage, "operator": number, "name": name, "part": part, "inputs": inputs,
        "cpu_ns": cpu_ns, "max_cpu_ns": max_cpu_ns, "rows": rows,
    });
    serde_json::from_value(record).expect("an operator")
}

/// Builds the computing of a stage: multitasks of equal length on two cores. Returns its end.
fn stage(b: &mut Build, after: &[u32], from_ms: f64, multitasks: u32, each_ms: f64) -> f64 {
    let stage = b.stage(0, "stage", from_ms);
    b.trace.stages[stage as usize].after = after.to_vec();
    let mut end = from_ms;
    for part in 0..multitasks {
        let m = b.multitask(stage, from_ms);
        let start = from_ms + each_ms * f64::from(part / 2);
        let compute = b.compute(m, from_ms, each_ms);
        (compute.queue_ns, compute.cpu_ns) = (ms(start - from_ms), Some(ms(each_ms)));
        end = start + each_ms;
    }
    b.end_stage(stage, end);
    end
}

/// Builds a query of 400 ms: a filter in four multitasks of 100 ms, and a sort in one of 200 ms.
fn query() -> Trace {
    let mut b = Build::on_cores(2);
    b.job("SELECT * FROM t WHERE a > 1 ORDER BY b", 0.0);
    let scanned = stage(&mut b, &[], 0.0, 4, 100.0);
    let sorted = stage(&mut b, &[0], scanned, 1, 200.0);
    b.end_job(0, sorted);
    b.trace.monotasks[..4].iter_mut().for_each(|m| m.decode_ns = Some(ms(30.0)));
    let half = Some(500_000);
    b.trace.operators = vec![
        operator(0, 0, "Scan t.parquet", &[], 120.0, Some(1_000_000)),
        operator(0, 1, "Filter", &[0], 80.0, half),
        operator(0, 2, "Projection", &[1], 160.0, half),
        operator(0, 3, "Partition", &[2], 40.0, None),
        Operator { from: Some(0), ..operator(1, 4, "Exchange", &[], 40.0, half) },
        operator(1, 5, "Sort", &[4], 100.0, half),
        operator(1, 6, "Output", &[5], 60.0, None),
    ];
    b.trace.operators[4..].iter_mut().for_each(|o| o.max_cpu_ns = o.cpu_ns);
    assert_eq!(b.trace.check(), Vec::<String>::new());
    b.trace
}

/// A sort whose four multitasks reserved these bytes for the rows of stage 0.
fn sorted_by_four(reserved: [Option<u64>; 4]) -> Trace {
    let mut b = Build { trace: query() };
    b.trace.multitasks.truncate(4);
    b.trace.monotasks.truncate(4);
    b.trace.operators[4].bytes = Some(20_000_000);
    for memory_bytes in reserved {
        let task = b.multitask(1, 200.0);
        b.trace.multitasks[task as usize].memory_bytes = memory_bytes;
        b.compute(task, 200.0, 50.0).cpu_ns = Some(ms(50.0));
    }
    b.trace
}

/// Returns the tasks, bytes, largest bytes and skew of the exchange that operator 4 reads.
fn exchange_read(trace: &Trace) -> Option<(usize, u64, u64, f64)> {
    let analysis = analyze(trace);
    let operators = analysis.jobs[0].core.operators.as_ref().expect("operators");
    assert!(operators.iter().all(|of| of.operator == Some(4) || of.exchange_read.is_none()));
    let read = operators.iter().find(|of| of.operator == Some(4))?.exchange_read.as_ref()?;
    Some((read.tasks, read.bytes, read.largest_bytes, read.skew))
}

/// Of 20 MB, 12.5 MB are for one of four multitasks: 2.5 times the mean.
#[test]
fn skew_of_an_exchange_is_the_largest_read_over_the_mean() {
    let uneven = [Some(2_500_000), Some(12_500_000), Some(0), Some(5_000_000)];
    assert_eq!(exchange_read(&sorted_by_four(uneven)), Some((4, 20_000_000, 12_500_000, 2.5)));
    assert_eq!(exchange_read(&sorted_by_four([Some(5_000_000); 4])), Some((4, 20_000_000, 5_000_000, 1.0)));
    // One multitask reads every partition, of which it reserved the first.
    let mut one = query();
    (one.operators[4].bytes, one.multitasks[4].memory_bytes) = (Some(70), Some(30));
    assert_eq!(exchange_read(&one), Some((1, 70, 70, 1.0)));
}

#[test]
fn skew_of_an_exchange_is_not_measured_if_its_bytes_are_not_known_by_multitask() {
    let uneven = [Some(2_500_000), Some(12_500_000), Some(0), Some(5_000_000)];
    // The operator took fewer bytes than were there, or the multitasks also read a file.
    let mut early = sorted_by_four(uneven);
    early.operators[4].bytes = Some(19_000_000);
    assert_eq!(exchange_read(&early), None);
    early.operators[4].bytes = None;
    assert_eq!(exchange_read(&early), None);
    assert_eq!(exchange_read(&sorted_by_four([None, Some(12_500_000), Some(0), Some(7_500_000)])), None);
    // The stage reads two exchanges.
    let mut two = sorted_by_four(uneven);
    two.operators.insert(5, Operator { from: Some(0), ..operator(1, 7, "Exchange", &[], 0.0, Some(10)) });
    assert_eq!(exchange_read(&two), None);
}

#[test]
fn operators_and_decoding_are_changed_together() {
    let trace = query();
    close(simulated(&trace, &["operator.2.time=x0.5"]), 200.0 * (400.0 - 80.0) / 400.0 + 200.0);
    close(simulated(&trace, &["operator.5.time=x2"]), 200.0 + 300.0);
    // 40, 80 and 60 ms of stage 0 go, in any order.
    let all = ["operator.1.time=x0.5", "operator.2.time=x0.5", "decode.time=x0.5"];
    close(simulated(&trace, &all), 200.0 * (400.0 - 180.0) / 400.0 + 200.0);
    close(simulated(&trace, &[all[2], all[1], all[0]]), 200.0 * (400.0 - 180.0) / 400.0 + 200.0);
}

#[test]
fn interval_includes_that_core_time_varies() {
    let trace = query();
    let predicted = |settings: &[&str]| ask(&trace, settings).expect("an answer").prediction;
    let half = |settings: &[&str]| {
        let p = predicted(settings);
        (p.high_ms / p.duration_ms).ln()
    };
    // The job waits only for cores.
    let operator = half(&["operator.2.time=x1"]);
    assert!((0.15..0.2).contains(&operator), "{operator}");
    assert!(half(&["cores=x2"]) < operator);
}

/// The projection and the partitioning of stage 0 take half, the filter what it did. So do the operators of stage 1,
/// except the sort, whose time is n log n.
#[test]
fn fewer_rows_reach_later_stages() {
    let trace = query();
    let sort = 50.0 * 250_000.0_f64.ln() / 500_000.0_f64.ln();
    let sorts = 20.0 + sort + 30.0;
    close(simulated(&trace, &["rows.1=x0.5"]), 200.0 * (400.0 - 100.0) / 400.0 + sorts);
    // Twice a quarter is a half.
    close(simulated(&trace, &["rows.1=x0.25", "rows.2=x2"]), 200.0 * (400.0 - 120.0 - 20.0) / 400.0 + sorts);
    // The sort emits fewer rows than it takes only for the output.
    close(simulated(&trace, &["rows.5=x0.5"]), 400.0 - 30.0);
    let answer = ask(&trace, &["rows.1=x0.5"]).expect("an answer");
    assert!(answer.assumptions[0].contains("operator 1 (Filter of stage 0) emits 0.5 times its rows"));
    // Nothing above the filter drops rows, so all of them are known.
    assert_eq!(answer.assumptions.len(), 1, "{:?}", answer.assumptions);
}

#[test]
fn unknown_rows_widen_the_interval() {
    let trace = query();
    // The filter takes half. It may emit half, or as many rows as before.
    let answer = ask(&trace, &["rows.0=x0.5"]).expect("an answer");
    let known = ask(&trace, &["rows.1=x0.5"]).expect("an answer").prediction;
    let p = &answer.prediction;
    close(p.duration_ms, known.duration_ms - 20.0);
    assert!(p.high_ms > 200.0 * (400.0 - 40.0) / 400.0 + 200.0, "{p:?}");
    assert!(p.high_ms / p.duration_ms > 1.2 * known.high_ms / known.duration_ms, "{p:?}");
    assert!(answer.assumptions[1].contains("(1 (Filter))"), "{:?}", answer.assumptions);
}

#[test]
fn factor_of_one_changes_nothing() {
    let trace = query();
    let unchanged = ask(&trace, &[]).expect("an answer").prediction;
    for setting in ["rows.0=x1", "rows.2=1", "operator.2.time=x1", "decode.time=x1"] {
        let answer = ask(&trace, &[setting]).expect("an answer");
        assert_eq!(answer.prediction.duration_ms, unchanged.duration_ms, "{setting}");
    }
}

/// Stage 1 does its other 160 ms within the multitasks of stage 0, whose partitioning of 40 ms goes as well.
#[test]
fn without_its_exchange_a_stage_runs_within_the_one_before() {
    let trace = query();
    close(simulated(&trace, &["exchange.4=none"]), (360.0 + 160.0) / 2.0);
    close(simulated(&trace, &["exchange.3=none"]), (360.0 + 160.0) / 2.0);
    // The interval includes that stage 1 still waits.
    let answer = ask(&trace, &["exchange.4=none"]).expect("an answer");
    assert!(answer.prediction.high_ms >= 180.0 + 160.0, "{:?}", answer.prediction);
    assert!(answer.assumptions[0].ends_with("stage 1 runs within the multitasks of stage 0"));
    // Its operators are changed where they then are.
    close(simulated(&trace, &["exchange.4=none", "operator.5.time=x0.5"]), (360.0 + 110.0) / 2.0);
    close(simulated(&trace, &["operator.5.time=x0.5", "exchange.4=none"]), (360.0 + 110.0) / 2.0);
    // Half of the projection and of the rest go with half of the rows; the sort is in four multitasks.
    let sort = 50.0 * 62_500.0_f64.ln() / 125_000.0_f64.ln();
    close(simulated(&trace, &["exchange.4=none", "rows.1=x0.5"]), (120.0 + 80.0 + 80.0 + sort + 30.0) / 2.0);
}

#[test]
fn stages_with_other_inputs_or_readers_stay_apart() {
    let mut scans = query();
    scans.operators.insert(6, operator(1, 7, "Scan u.parquet", &[], 0.0, Some(10)));
    close(simulated(&scans, &["exchange.4=none"]), 180.0 + 160.0);
    let answer = ask(&scans, &["exchange.4=none"]).expect("an answer");
    assert!(answer.assumptions[0].contains("because the reading stage has other inputs"));
    // The output of stage 0 is read twice, so it is still partitioned.
    let mut shared = query();
    shared.operators.push(Operator { from: Some(0), ..operator(1, 8, "Exchange", &[], 0.0, Some(10)) });
    close(simulated(&shared, &["exchange.4=none"]), 200.0 + 160.0);
    assert!(
        message(&shared, "exchange.3=none")
            .contains("has several readers; set one of 4 (stage 0 to 1), 8 (stage")
    );
}

/// Stage 1 fetches the rows of stage 0 over a link, for 100 ms.
fn over_a_link() -> Trace {
    let mut b = Build { trace: query() };
    let link = b.resource("eth0", kind::NETWORK, Some((100e6, "set")));
    let later = ms(100.0);
    let computes = b.trace.monotasks.last_mut().expect("the sort");
    computes.queued_ns += later;
    b.monotask(4, link, Phase::Fetch, 200.0, 100.0).bytes = Some(10_000_000);
    b.trace.stage_ends[1].ended_ns += later;
    b.trace.job_ends[0].ended_ns += later;
    assert_eq!(b.trace.check(), Vec::<String>::new());
    b.trace
}

#[test]
fn transfer_follows_the_rows_and_the_exchange() {
    let trace = over_a_link();
    close(simulated(&trace, &[]), 500.0);
    let sorts = 20.0 + 50.0 * 250_000.0_f64.ln() / 500_000.0_f64.ln() + 30.0;
    close(simulated(&trace, &["rows.1=x0.5"]), 150.0 + 50.0 + sorts);
    close(simulated(&trace, &["exchange.4=none"]), (360.0 + 160.0) / 2.0);
}

/// Builds a join: stage 0 scans the build side, whose keys filter the scan of stage 1, which probes and aggregates.
fn join(filtered: bool) -> Trace {
    let mut b = Build::on_cores(2);
    b.job("SELECT count(*) FROM t JOIN u ON a = b GROUP BY c", 0.0);
    let built = stage(&mut b, &[], 0.0, 2, 100.0);
    let probed = stage(&mut b, &[0], built, 4, 100.0);
    b.end_job(0, probed);
    // With a key filter, a tenth of the rows reaches the join; without, all do.
    let reach = if filtered { 100_000 } else { 1_000_000 };
    b.trace.operators = vec![
        operator(0, 0, "Scan u.parquet", &[], 100.0, Some(10_000)),
        operator(0, 1, "Filter", &[0], 60.0, Some(1000)),
        operator(0, 2, "Output", &[1], 40.0, None),
        Operator { from: Some(0), ..operator(1, 3, "Exchange", &[], 0.0, Some(1000)) },
        operator(1, 4, "Scan t.parquet", &[], 100.0, Some(1_000_000)),
        operator(1, 5, if filtered { "KeyFilter" } else { "Projection" }, &[4], 50.0, Some(reach)),
        operator(1, 6, "HashJoin Inner build", &[3], 0.0, None),
        operator(1, 7, "HashJoin Inner probe", &[6, 5], 110.0, Some(100_000)),
        operator(1, 8, "Aggregate Partial", &[7], 100.0, Some(100)),
        operator(1, 9, "Output", &[8], 40.0, None),
    ];
    assert_eq!(b.trace.check(), Vec::<String>::new());
    b.trace
}

/// Time of the aggregate of [`join`] with 50,000 of its 100,000 rows, and all of its 100 groups.
const AGGREGATE: f64 = 100.0 * 50_100.0 / 100_100.0;

/// Half of the build side's rows match half of the probe side's. An aggregate of a thousand rows a group has the same
/// groups, so the output stays.
#[test]
fn joins_scale_by_the_side_that_changes() {
    let trace = join(false);
    // A million rows are looked up as before, and half of 100,000 are copied.
    let probe = 110.0 * (1.0 - 0.05 / 1.1);
    let changed = 400.0 - 110.0 + probe - 100.0 + AGGREGATE;
    close(simulated(&trace, &["rows.1=x0.5"]), 100.0 - 10.0 + 200.0 * changed / 400.0);
    // Of the probe side, half are looked up.
    let changed = 400.0 - 55.0 - 100.0 + AGGREGATE;
    close(simulated(&trace, &["rows.5=x0.5"]), 100.0 + 200.0 * changed / 400.0);
}

#[test]
fn key_filters_follow_the_build_side() {
    let trace = join(true);
    // 100,000 rows were looked up, and all matched: both halve.
    close(simulated(&trace, &["rows.1=x0.5"]), 90.0 + 200.0 * (400.0 - 55.0 - 100.0 + AGGREGATE) / 400.0);
    let answer = ask(&trace, &["rows.1=x0.5"]).expect("an answer");
    assert!(answer.assumptions[1].contains("5 (KeyFilter)"), "{:?}", answer.assumptions);
    // At least, only the build side's own output changes.
    assert!(answer.prediction.high_ms >= 90.0 + 200.0, "{:?}", answer.prediction);
}

#[test]
fn best_changes_to_the_query_are_listed() {
    let trace = query();
    let singles = WhatIfModel::of(&trace, &residuals(Some(""))).expect("a model").singles();
    let of_code: Vec<String> =
        singles.iter().filter(|s| s.changes.is_of_code()).map(|s| s.changes.to_string()).collect();
    // They save 140, 50 and 40 ms of 400 ms.
    assert_eq!(of_code, ["exchange.4=none", "operator.5.time=x0.5", "operator.2.time=x0.5"]);
    assert!(singles.iter().any(|s| s.changes.to_string() == "cores=x2"));
    // Less than 3 % is not listed.
    let mut small = query();
    small.operators.iter_mut().for_each(|o| (o.cpu_ns, o.max_cpu_ns) = (o.cpu_ns / 20, o.max_cpu_ns / 20));
    small.monotasks.iter_mut().for_each(|m| m.decode_ns = None);
    small.stages[1].after = vec![];
    small.operators[4].from = None;
    let singles = WhatIfModel::of(&small, &residuals(Some(""))).expect("a model").singles();
    assert!(!singles.iter().any(|s| s.changes.is_of_code()), "{singles:?}");
}

#[test]
fn invalid_operators_list_valid_ones() {
    let trace = query();
    for (setting, parts) in [
        ("rows.99=x0.5", vec!["rows.99: this trace has operators up to 6", "5 (Sort)", "core.operators"]),
        ("operator.99.time=x0.5", vec!["operators up to 6", "5 (Sort)"]),
        ("exchange.99=none", vec!["exchange.99: this trace has operators up to 6"]),
        ("rows.3=x0.5", vec!["operator 3 (Partition of stage 0) emits no rows", "1 (Filter)"]),
        ("exchange.1=none", vec!["operator 1 (Filter of stage 0) is not an exchange", "4 (stage 0 to 1)"]),
        ("exchange.6=none", vec!["is not an exchange"]),
        ("workers=2", vec!["operator.N.time, ", "rows.N, exchange.N, "]),
    ] {
        let message = message(&trace, setting);
        assert!(parts.iter().all(|part| message.contains(part)), "{setting}: {message}");
    }
    let mut jobs = query();
    jobs.operators.iter_mut().for_each(|o| o.operator %= 3);
    assert!(message(&jobs, "rows.1=x0.5").contains("use the trace of one job"));
    let mut none = query();
    none.operators.clear();
    for setting in ["rows.1=x0.5", "exchange.4=none", "operator.1.time=x0.5"] {
        let message = message(&none, setting);
        assert!(message.contains("does not have the core time of operators"), "{message}");
        assert!(message.contains("can answer cores") && !message.contains("rows.N"), "{message}");
    }
    let mut one_stage = query();
    one_stage.operators[4].from = None;
    assert!(message(&one_stage, "exchange.4=none").contains("no exchange with operators"));
}

/// An operator of a chain, by the share of rows that it emits.
#[derive(Debug, Clone)]
struct Link {
    name: &'static str,
    keeps: f64,
    weight: f64,
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let names = ["Filter", "Projection", "Aggregate Partial", "Sort", "GlobalLimit", "WindowAgg", "Unnest"];
    let link = (prop::sample::select(names.to_vec()), 0.001..1.0_f64, 0.1..10.0_f64);
    prop::collection::vec(link.prop_map(|(name, keeps, weight)| Link { name, keeps, weight }), 1..5)
}

/// Builds consecutive stages of two cores, each with a chain of operators.
fn chain(stages: &[(u32, f64, Vec<Link>)]) -> Trace {
    let mut b = Build::on_cores(2);
    b.job("chain", 0.0);
    let (mut at, mut number, mut rows) = (0.0, 0, 1e6);
    for (ix, (multitasks, each_ms, links)) in (0..).zip(stages) {
        let after: Vec<u32> = (0..ix).rev().take(1).collect();
        at = self::stage(&mut b, &after, at, *multitasks, *each_ms);
        let whole: f64 = links.iter().map(|l| l.weight).sum::<f64>() + 2.0;
        let core_ms = |weight: f64| 0.9 * f64::from(*multitasks) * each_ms * weight / whole;
        let from = ix.checked_sub(1);
        let first = if from.is_some() { "Exchange" } else { "Scan t" };
        let leaf = operator(ix, number, first, &[], core_ms(1.0), Some(rows as u64));
        b.trace.operators.push(Operator { from, ..leaf });
        for link in links {
            number += 1;
            rows = f64::max(1.0, if link.name == "Projection" { rows } else { rows * link.keeps });
            let of = operator(ix, number, link.name, &[number - 1], core_ms(link.weight), Some(rows as u64));
            b.trace.operators.push(of);
        }
        number += 1;
        let output = operator(ix, number, "Output", &[number - 1], core_ms(1.0), None);
        b.trace.operators.push(output);
        number += 1;
    }
    b.end_job(0, at);
    b.trace
}

proptest! {
    // The cases are the same in every run; PROPTEST_RNG_SEED and PROPTEST_CASES change them.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: std::env::var("PROPTEST_RNG_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(RngSeed::Fixed(33)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn fewer_rows_are_never_slower(
        stages in prop::collection::vec((1..6_u32, 1.0..100.0_f64, links()), 1..4),
        which in any::<prop::sample::Index>(),
        factors in (0.001..4.0_f64, 0.001..4.0_f64),
    ) {
        let trace = chain(&stages);
        prop_assert_eq!(trace.check(), Vec::<String>::new());
        let emits: Vec<u32> = trace.operators.iter().filter(|o| o.rows.is_some()).map(|o| o.operator).collect();
        let number = emits[which.index(emits.len())];
        let of = |factor: f64| ask(&trace, &[&format!("rows.{number}=x{factor:.6}")]).expect("an answer");
        let (few, many) = (of(factors.0.min(factors.1)), of(factors.0.max(factors.1)));
        // Times of the virtual clock are whole nanoseconds.
        let (few_ms, many_ms) = (few.prediction.duration_ms, many.prediction.duration_ms);
        prop_assert!(few_ms <= many_ms + 0.001, "{} and {} ms", few_ms, many_ms);
        for answer in [&few, &many, &of(1.0)] {
            let p = &answer.prediction;
            prop_assert!(p.low_ms <= p.duration_ms && p.duration_ms <= p.high_ms, "{:?}", p);
        }
        let unchanged = ask(&trace, &[]).expect("an answer").prediction;
        prop_assert_eq!(of(1.0).prediction.duration_ms, unchanged.duration_ms);
    }

    #[test]
    fn every_exchange_can_be_left_out(
        stages in prop::collection::vec((1..6_u32, 1.0..100.0_f64, links()), 2..5),
    ) {
        let trace = chain(&stages);
        let exchanges: Vec<String> = trace
            .operators
            .iter()
            .filter(|o| o.from.is_some())
            .map(|o| format!("exchange.{}=none", o.operator))
            .collect();
        let settings: Vec<&str> = exchanges.iter().map(String::as_str).collect();
        // Together, all stages run within the multitasks of the first. What is left of the core time stays.
        let answer = ask(&trace, &settings).expect("an answer");
        let gone: f64 = trace
            .operators
            .iter()
            .filter(|o| o.from.is_some() || (o.name == "Output" && (o.stage as usize) < stages.len() - 1))
            .map(|o| o.cpu_ns as f64 / 1e6)
            .sum();
        let all: f64 = stages.iter().map(|(n, each_ms, _)| f64::from(*n) * each_ms).sum();
        let first = stages[0].0;
        let expected = (all - gone) / f64::from(first) * f64::from(first.div_ceil(2));
        let simulated = answer.prediction.simulated_ms.expect("a simulation");
        let unchanged = answer.baseline.simulated_ms.expect("a simulation");
        // Scaled to the measured time, which is off by nanoseconds.
        prop_assert!((simulated / answer.baseline.measured_ms * unchanged - expected).abs() < 0.01, "{} and {}", simulated, expected);
    }
}
