//! Properties of any trace: bounds for valid runs, and robustness for damaged ones.

mod builder;

use builder::{Build, ms};
use pellucid_model::{Analysis, analyze, series};
use pellucid_trace::*;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A multitask: its disk, its bytes, and its compute time.
type Work = (usize, u64, f64);

/// Builds a valid run: disks of constant rate serve one monotask at a time, and so does each core. Stages
/// wait for all before them, or are submitted with the previous one.
fn run(cores: usize, rates: &[f64], stages: &[(bool, Vec<Work>)]) -> Build {
    let mut b = Build::on_cores(cores as u32);
    let disks: Vec<u32> = (0..rates.len()).map(|d| b.disk(&format!("sd{d}"), None)).collect();
    let job = b.job("run", 0.0);
    let mut core_free = vec![0.0_f64; cores];
    let mut disk_free = vec![0.0_f64; rates.len()];
    let (mut submitted, mut all_ended) = (0.0, 0.0_f64);
    for (waits, work) in stages {
        submitted = if *waits { all_ended } else { submitted };
        let stage = b.stage(job, "stage", submitted);
        let mut ended = submitted;
        for (disk, bytes, compute_ms) in work {
            let disk = disk % rates.len();
            let m = b.multitask(stage, submitted);
            let start = disk_free[disk].max(submitted);
            let service = *bytes as f64 / rates[disk] * 1e3;
            b.read(m, disks[disk], submitted, service, *bytes).queue_ns = ms(start) - ms(submitted);
            disk_free[disk] = start + service;
            let core = (0..cores).min_by(|a, b| core_free[*a].total_cmp(&core_free[*b])).expect("a core");
            let from = core_free[core].max(start + service);
            b.compute(m, start + service, *compute_ms).queue_ns = ms(from) - ms(start + service);
            core_free[core] = from + compute_ms;
            ended = ended.max(core_free[core]);
        }
        b.end_stage(stage, ended + 0.001);
        all_ended = all_ended.max(ended + 0.001);
    }
    b.end_job(job, all_ended);
    b
}

fn runs() -> impl Strategy<Value = Build> {
    let work = (0..3_usize, 1_000_000..200_000_000_u64, 0.0..3000.0_f64);
    let stages = prop::collection::vec((any::<bool>(), prop::collection::vec(work, 1..8)), 1..6);
    (1..4_usize, prop::collection::vec(20e6..200e6_f64, 1..4), stages)
        .prop_map(|(cores, rates, stages)| run(cores, &rates, &stages))
}

/// Times are whole nanoseconds, so sums of a few dozen are off by that many.
const ROUNDING_MS: f64 = 0.01;

fn bounded(a: &Analysis) -> Result<(), TestCaseError> {
    let job = &a.jobs[0];
    let duration = job.duration_ms.expect("the job ended");
    let modelled = job.modelled_ms.expect("monotasks were recorded");
    prop_assert!(modelled <= duration + ROUNDING_MS, "modelled {modelled}, measured {duration}");
    let kinds = a.stages.iter().flat_map(|s| &s.kinds).chain(&job.kinds);
    for (kind, used) in kinds {
        let service = used.service_ms.expect("no links here");
        prop_assert!(used.ideal_ms <= service + ROUNDING_MS, "{kind}: {used:?}");
        prop_assert!(used.ideal_ms <= used.limit_ms, "{kind}: {used:?}");
        prop_assert!(used.limit_ms <= duration + ROUNDING_MS, "{kind}: {used:?}");
        let utilization = used.utilization.expect("stages and job ended");
        prop_assert!((0.0..1.001).contains(&utilization), "{kind}: {used:?}");
        prop_assert!(used.imbalance.is_none_or(|i| i >= 1.0 - 1e-9), "{kind}: {used:?}");
    }
    for (kind, used) in &job.kinds {
        prop_assert!(
            used.limit_ms <= modelled + ROUNDING_MS,
            "{kind} alone needs more than the model: {used:?}"
        );
    }
    prop_assert_eq!(job.bottleneck.is_some(), modelled >= duration / 2.0, "{} of {}", modelled, duration);
    let limits = |kind: &str| job.bottleneck.as_ref().is_some_and(|b| b.kind == kind);
    prop_assert!(job.next.as_ref().is_none_or(|next| job.bottleneck.is_some() && !limits(&next.kind)));
    let steps: f64 = job.steps.expect("the job ended").each().iter().map(|(_, ms)| ms).sum();
    prop_assert!((steps - duration).abs() < ROUNDING_MS, "steps {steps} of {duration}");
    let causes: f64 = a.causes.iter().map(|c| c.ms).sum();
    prop_assert!(causes <= duration * 1.000_001 + ROUNDING_MS, "causes {causes} of {duration}");
    prop_assert!(causes >= duration * 0.95 - ROUNDING_MS, "causes {causes} of {duration}");
    Ok(())
}

/// Generates any value; the edges of its range are as likely as its middle.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..10_000_000_000_u64, any::<u64>()]
}

fn any_capacity() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        Just(Some(0.0)),
        Just(Some(-1.0)),
        Just(Some(f64::NAN)),
        Just(Some(f64::INFINITY)),
        Just(Some(f64::MIN_POSITIVE)),
        (1e3..1e9_f64).prop_map(Some),
    ]
}

fn any_monotask() -> impl Strategy<Value = Monotask> {
    let phase =
        prop::sample::select(vec![Phase::Read, Phase::Fetch, Phase::Compute, Phase::Spill, Phase::Write]);
    let outcome = prop::sample::select(vec![Outcome::Ok, Outcome::Failed, Outcome::Cancelled]);
    let bytes = || prop::option::of(edgy());
    ((0..6_u32, 0..6_u32, phase, outcome), (edgy(), edgy(), edgy()), (bytes(), bytes(), bytes(), bytes()))
        .prop_map(
            |((multitask, resource, phase, outcome), (queued_ns, queue_ns, service_ns), (a, b, c, d))| {
                Monotask {
                    multitask,
                    resource,
                    phase,
                    queued_ns,
                    queue_ns,
                    service_ns,
                    bytes: a,
                    device_bytes: b,
                    cached_bytes: c,
                    cpu_ns: None,
                    decode_ns: d,
                    operator_ns: None,
                    encode_ns: None,
                    not_split_ns: d,
                    rows: None,
                    outcome,
                }
            },
        )
}

/// Generates a trace whose records may contradict each other and have invalid indices.
fn damaged() -> impl Strategy<Value = Trace> {
    let kinds =
        prop::sample::select(vec![kind::CPU, kind::DISK, kind::NETWORK, kind::STORE, kind::SLOTS, "tape"]);
    let resources =
        prop::collection::vec((kinds, 0..3_u32, any_capacity(), prop::option::of(0..6_u32)), 0..5);
    let stages = prop::collection::vec((0..4_u32, edgy()), 0..5);
    let multitasks = prop::collection::vec((0..6_u32, edgy()), 0..5);
    let ends = prop::collection::vec((0..4_u32, edgy()), 0..4);
    let monotasks = prop::collection::vec(any_monotask(), 0..12);
    (resources, prop::collection::vec(edgy(), 0..3), stages, multitasks, ends, monotasks).prop_map(
        |(resources, jobs, stages, multitasks, ends, monotasks)| {
            let mut trace = Build::on_cores(2).trace;
            trace.resources = resources
                .into_iter()
                .map(|(kind, machine, capacity, link)| Resource {
                    name: "r".into(),
                    kind: kind.into(),
                    machine,
                    capacity,
                    capacity_from: None,
                    concurrency: None,
                    link,
                    ..Default::default()
                })
                .collect();
            trace.jobs = jobs
                .into_iter()
                .map(|submitted_ns| Job { name: "j".into(), submitted_ns, ..Default::default() })
                .collect();
            for (job, submitted_ns) in stages {
                let (name, after, not_split) = ("s".into(), vec![], vec![]);
                trace.stages.push(Stage {
                    job,
                    name,
                    attempt: 0,
                    call_site: None,
                    after,
                    submitted_ns,
                    not_split,
                    ..Default::default()
                });
            }
            for (stage, admitted_ns) in multitasks {
                trace.multitasks.push(Multitask { stage, partition: 0, admitted_ns, memory_bytes: None });
            }
            for (ix, ended_ns) in ends {
                let (outcome, error) = (Outcome::Failed, None);
                trace.stage_ends.push(StageEnd { stage: ix, ended_ns, outcome, ..Default::default() });
                let memory_high_water_bytes = None;
                trace.job_ends.push(JobEnd {
                    job: ix,
                    ended_ns,
                    outcome,
                    error,
                    rows: None,
                    memory_high_water_bytes,
                    peak: None,
                    spill: None,
                });
            }
            trace.monotasks = monotasks;
            trace
        },
    )
}

proptest! {
    // The cases are the same in every run; PROPTEST_RNG_SEED and PROPTEST_CASES change them.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: std::env::var("PROPTEST_RNG_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(RngSeed::Fixed(61)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn valid_runs_stay_within_bounds(build in runs()) {
        prop_assert_eq!(build.trace.check(), Vec::<String>::new());
        bounded(&analyze(&build.trace))?;
        let end = build.trace.job_ends[0].ended_ns;
        for one in series(&build.trace, 0, end, 50) {
            prop_assert!(one.utilization.iter().all(|u| (0.0..1.001).contains(u)), "{:?}", one);
        }
    }

    #[test]
    fn damaged_traces_give_finite_numbers(trace in damaged(), from in edgy(), to in edgy()) {
        let analysis = analyze(&trace);
        let text = format!("{analysis:?}{:?}", series(&trace, from, to, 7));
        // No name in these traces contains either word.
        prop_assert!(!text.contains("NaN") && !text.contains(" inf") && !text.contains("(inf"), "{}", text);
    }
}
