//! Properties of any trace of pipelined tasks, valid or damaged.

mod builder;

use builder::spark::Spark;
use pellucid_model::whatif::{Changes, WhatIfModel};
use pellucid_model::{Analysis, analyze};
use pellucid_trace::*;
use proptest::prelude::*;

fn blocked() -> impl Strategy<Value = Option<Blocked>> {
    let ns = prop_oneof![0..200_000_000_u64, Just(u64::MAX)];
    prop_oneof![
        3 => Just(None),
        3 => ns.clone().prop_map(|ns| Some(Blocked::MeasuredNs(ns))),
        1 => ns.prop_map(|ns| Some(Blocked::AtMostNs(ns))),
    ]
}

fn amount() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        Just(None),
        (0..5_u64).prop_map(Some),
        (0..1_000_000_000_u64).prop_map(Some),
        Just(Some(u64::MAX))
    ]
}

prop_compose! {
    fn a_task()(
        stage in 0..7_u32, resource in 0..4_u32, partition in 0..6_u32, attempt in 0..3_u32,
        launched_ns in prop_oneof![10 => 0..2_000_000_000_u64, 1 => Just(u64::MAX)],
        duration_ns in prop_oneof![10 => 0..500_000_000_u64, 1 => Just(0), 1 => Just(u64::MAX)],
        run_ns in amount(), cpu_ns in amount(), input_bytes in amount(), shuffle in amount(), output_bytes in amount(),
        network in blocked(), input in blocked(), write in blocked(), gc in blocked(), scheduler in blocked(),
        speculative: bool, how in 0..4_u32,
    ) -> PipelinedTask {
        PipelinedTask {
            stage, resource, partition, attempt, launched_ns, duration_ns, run_ns, cpu_ns, input_bytes, output_bytes,
            shuffle_local_bytes: shuffle,
            blocked_network: network, blocked_input: input, blocked_shuffle_write: write, gc, scheduler, speculative,
            outcome: [Outcome::Ok, Outcome::Ok, Outcome::Failed, Outcome::Cancelled][how as usize],
            ..PipelinedTask::default()
        }
    }
}

prop_compose! {
    fn an_application()(
        executors in proptest::collection::vec((0..3_u32, 0..900_u32, proptest::option::of(0..1500_u32)), 0..4),
        jobs in proptest::collection::vec((0..1500_u32, 0..1500_u32, any::<bool>()), 0..4),
        stages in proptest::collection::vec((0..4_u32, 0..1500_u32, 0..1500_u32, 0..2_u32), 0..6),
        tasks in proptest::collection::vec(a_task(), 0..40),
    ) -> Trace {
        let mut s = Spark::on(0, 1.0);
        for (slots, added, removed) in executors {
            let ix = s.executor(f64::from(slots), f64::from(added)) as usize;
            s.trace.resources[ix].removed_ns = removed.map(|at| u64::from(at) * 1_000_000);
        }
        for (submitted, ended, failed) in jobs {
            s.job(f64::from(submitted), f64::from(ended));
            if failed {
                s.trace.job_ends.last_mut().expect("its end").outcome = Outcome::Failed;
            }
        }
        for (ix, (job, submitted, ended, attempt)) in stages.into_iter().enumerate() {
            let after: Vec<u32> = (0..ix as u32).filter(|p| p % 2 == 0).collect();
            s.stage(job, &after, f64::from(submitted), f64::from(ended));
            s.trace.stages[ix].attempt = attempt;
        }
        for task in tasks {
            // Pushed without checks, since a damaged trace may refer to missing records.
            s.trace.pipelined_tasks.push(&task);
        }
        s.trace
    }
}

fn numbers(a: &Analysis) -> Vec<f64> {
    let bounds = a.jobs.iter().flat_map(|j| j.bounds.values()).chain(a.bounds.values());
    let bounds = bounds.flat_map(|b| [b.duration_ms, b.low_ms, b.high_ms, b.improvement]);
    let advice = a.advice.iter().flat_map(|x| [x.saves_ms, x.low_ms, x.high_ms]);
    let replay = a.replay.iter().flat_map(|r| [r.measured_ms, r.simulated_ms, r.error]);
    bounds.chain(advice).chain(replay).chain(a.causes.iter().map(|c| c.ms)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn analysis_never_panics_and_all_numbers_are_finite(trace in an_application()) {
        let a = analyze(&trace);
        prop_assert!(numbers(&a).iter().all(|n| n.is_finite()), "{:?}", numbers(&a));
        prop_assert!(a.advice.len() <= 5);
        prop_assert!(a.advice.iter().all(|x| x.low_ms <= x.saves_ms && x.saves_ms <= x.high_ms));
        prop_assert!(a.bounds.values().all(|b| b.low_ms <= b.high_ms + 1e-6), "{:?}", a.bounds);
        let named: u64 = a.stages.iter().map(|s| s.tasks).sum();
        prop_assert!(named <= trace.pipelined_tasks.len() as u64);
        let unavoidable = a.causes.iter().skip_while(|c| c.cause == "failure");
        prop_assert!(unavoidable.clone().zip(unavoidable.skip(1)).all(|(a, b)| a.ms >= b.ms), "{:?}", a.causes);
        prop_assert_eq!(&a, &analyze(&trace));
    }

    #[test]
    fn predictions_are_finite_and_inside_their_interval(trace in an_application()) {
        let Ok(model) = WhatIfModel::of(&trace, &[]) else { return Ok(()) };
        for setting in ["executors=3", "executor.cores=x2", "no=disk", "no=skew", "no=stragglers", "disk.rate=x0.5", "input.scale=2"] {
            let changes = Changes::parse(&[setting], |_| Err(String::new())).expect("a setting");
            if let Ok(answer) = model.predict(&changes) {
                let p = answer.prediction;
                prop_assert!(p.duration_ms.is_finite() && p.low_ms <= p.duration_ms && p.duration_ms <= p.high_ms, "{setting}: {p:?}");
            }
        }
    }
}
