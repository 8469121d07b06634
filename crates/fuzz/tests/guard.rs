//! Every kind of abort fails the target and prints the command that repeats the case.

use std::process::{Command, Output};

use pellucid_fuzz::fuzz;

/// Environment variable that makes a child process of these tests fail, and its way.
const FAULT: &str = "PELLUCID_TEST_FAULT";

fn recurse(depth: u64) -> u64 {
    let local = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + local[3] }
}

/// Not a test of its own: the target of the child processes.
#[test]
fn faulty_target() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    fuzz("faulty_target", |random| {
        if random.below(20) > 0 {
            return true;
        }
        match &*fault {
            "panic" => panic!("the cause"),
            "overflow" => recurse(0) > 0,
            "allocation" => std::hint::black_box(vec![1u8; 3 << 30]).len() > 1,
            "reservation" => Vec::<u8>::new().try_reserve(1 << 40).is_err(),
            "other thread" => {
                let thread = std::thread::spawn(|| std::hint::black_box(vec![0u8; 3 << 30]).len());
                thread.join().is_ok()
            }
            "hang" => loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            },
            _ => std::process::abort(),
        }
    });
}

fn run(fault: &str, seed: Option<&str>) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faulty_target", "--nocapture"]).env(FAULT, fault);
    command.env("PELLUCID_FUZZ_CASE_SECONDS", "1");
    if let Some(seed) = seed {
        command.env("PELLUCID_FUZZ_SEED", seed);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

#[test]
fn every_fault_fails_and_prints_a_command_that_repeats_it() {
    for (fault, cause) in [
        ("panic", "the cause"),
        ("overflow", "overflowed its stack"),
        ("allocation", "over 1 GiB more"),
        ("reservation", "over 1 GiB more"),
        ("other thread", "over 1 GiB more"),
        ("hang", "takes over 1 s"),
        ("abort", ""),
    ] {
        let (output, text) = run(fault, None);
        assert!(!output.status.success() && text.contains(cause), "{fault}: {text}");
        let command = text.split("PELLUCID_FUZZ_SEED=").nth(1).unwrap_or_else(|| panic!("{fault}: {text}"));
        let (seed, rest) = command.split_once(' ').unwrap();
        assert!(rest.starts_with("PELLUCID_FUZZ_TEST=faulty_target tests/run fuzz"), "{fault}: {text}");
        let (output, again) = run(fault, Some(seed));
        assert!(!output.status.success() && again.contains(cause), "{fault}: {again}");
    }
}
