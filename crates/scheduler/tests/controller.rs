//! Tests of the adaptive controller: the table of cases, properties for any input, and the result on
//! resources with measured rate curves.

mod device;

use pellucid_scheduler::*;
use proptest::prelude::*;

const CASES: &str = include_str!("controller_cases.tsv");

/// Applies a row to the controller. Returns the actual and the expected concurrency.
fn check_row(controller: &mut Controller, row: &[&str]) -> (u32, u32) {
    let number = |at: usize| row[at].parse::<u64>().expect(row[at]);
    let expect = number(row.len() - 1) as u32;
    match row[0] {
        "start" => controller.started(),
        "restart" => controller.restart(),
        "done" => {
            let sample = Sample { start_ns: number(3), bytes: number(4), running: number(6) as u32 };
            let before = controller.concurrency();
            for left in (0..number(1)).rev() {
                controller.completed(number(2), sample);
                if left > 0 && controller.concurrency() != before {
                    return (controller.concurrency(), before);
                }
            }
        }
        other => panic!("unknown row: {other}"),
    }
    (controller.concurrency(), expect)
}

/// Returns the rows of each case with their line numbers, without cases of the index, which only the plugin's
/// controllers have.
fn cases() -> Vec<Vec<(usize, Vec<&'static str>)>> {
    let mut cases: Vec<Vec<(usize, Vec<&str>)>> = Vec::new();
    for (line, text) in (1..).zip(CASES.lines()) {
        let row: Vec<&str> = text.split('\t').collect();
        match row[0] {
            first if first.is_empty() || first.starts_with('#') => {}
            "case" => cases.push(vec![(line, row)]),
            _ => cases.last_mut().expect("a case before the first row").push((line, row)),
        }
    }
    cases.retain(|rows| rows[0].1[2] == "throughput");
    cases
}

#[test]
fn controller_passes_the_table_of_cases() {
    let cases = cases();
    for rows in &cases {
        let case = &rows[0].1;
        let (min, max) = (case[3].parse().unwrap(), case[4].parse().unwrap());
        let gain = case[5].parse().expect(case[5]);
        let mut controller = Controller::new(Concurrency::Adaptive { min, max, gain });
        for (line, row) in &rows[1..] {
            let (actual, expected) = check_row(&mut controller, row);
            assert_eq!(actual, expected, "{}, line {line}: {row:?}", case[1]);
        }
    }
    assert!(cases.len() >= 17, "{} cases read", cases.len());
}

fn sample() -> impl Strategy<Value = (u64, u64, u64, u32)> {
    (0..2_000u64, 0..2_000u64, 0..1u64 << 40, 0..70u32)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(59),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// For any input, the concurrency is a doubling of the minimum within the bounds, and does not change
    /// after a step back until a restart.
    #[test]
    fn concurrency_moves_by_doublings_and_settles_after_a_step_back(
        min in 0..9u32, max in 0..65u32, gain in 0.0..0.5f64,
        samples in prop::collection::vec(sample(), 0..400),
    ) {
        let mut controller = Controller::new(Concurrency::Adaptive { min, max, gain });
        let min = min.max(1);
        let max = max.max(min);
        let ladder: Vec<u32> = (0..7).map(|k| (min << k).min(max)).collect();
        let (mut now, mut stepped_back) = (0, false);
        for (gap, service, bytes, running) in samples {
            now += gap;
            controller.started();
            let before = controller.concurrency();
            let start_ns = now.saturating_sub(service);
            controller.completed(now, Sample { start_ns, bytes, running });
            let after = controller.concurrency();
            prop_assert!(ladder.contains(&after), "{after} is not on {ladder:?}");
            prop_assert!(!stepped_back || after == before, "moved after it settled");
            stepped_back |= after < before;
        }
        controller.restart();
        prop_assert_eq!(controller.concurrency(), min);
    }
}

/// Returns the concurrency that the controller reaches on a device with this curve.
fn settled_concurrency(curve: &device::Curve, seed: u64) -> u32 {
    device::settle(curve, Concurrency::Adaptive { min: 2, max: 32, gain: controller::GAIN }, seed)
}

#[test]
fn concurrency_settles_at_the_best_of_measured_curves() {
    // Device throughput in MB/s with 1, 2, 4, 8, 16 and 32 streams. The disks were measured on emulated
    // hardware.
    let cases: [(&str, device::Curve, u32); 5] = [
        ("pessimistic spinning disk", [146.0, 82.0, 82.0, 71.0, 69.0, 31.0], 2),
        ("spinning disk with NCQ", [146.0, 93.0, 88.0, 89.0, 92.0, 35.0], 2),
        ("paced disk", [50.0, 50.0, 50.0, 50.0, 50.0, 50.0], 2),
        ("flash", [300.0, 590.0, 1100.0, 1900.0, 1950.0, 1900.0], 8),
        ("object store", [20.0, 40.0, 80.0, 160.0, 320.0, 640.0], 32),
    ];
    for (name, curve, best) in cases {
        for seed in 0..20 {
            assert_eq!(settled_concurrency(&curve, seed), best, "{name}, seed {seed}");
        }
    }
}
