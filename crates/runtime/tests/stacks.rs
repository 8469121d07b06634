//! Sampled call stacks: their number, functions and operators, also in code that holds the allocator's lock.

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Task, checked_trace, recorder};
use pellucid_runtime::{Done, Monotask, Options, Phase, Runtime, mark_operator, thread_cpu_ns};
use pellucid_trace::Stack;

const CORE_NS: u64 = 300_000_000;

/// Computes for some core time.
#[inline(never)]
fn spins() {
    let until = thread_cpu_ns().expect("a clock") + CORE_NS;
    while thread_cpu_ns().expect("a clock") < until {
        black_box((0..10_000_u64).fold(0, |a, b| black_box(a ^ b)));
    }
}

/// Allocates and frees memory for some core time.
#[inline(never)]
fn allocates() {
    let until = thread_cpu_ns().expect("a clock") + CORE_NS;
    while thread_cpu_ns().expect("a clock") < until {
        (0..1000_usize).for_each(|n| drop(black_box(vec![0_u8; 16 + n % 700])));
    }
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn stacks_are_sampled_by_core_time_and_operator() {
    let runtime = Runtime::new(Options { cores: 2, stacks: true, ..Options::default() }).expect("a runtime");
    let job = runtime.begin("sampled", recorder());
    let stage = job.stage("spins, allocates", &[], vec![]);
    let functions: [(u32, fn()); 2] = [(3, spins), (5, allocates)];
    let left = Arc::new(AtomicU32::new(2));
    for (operator, function) in functions {
        let (rt, of, left) = (runtime.clone(), job.clone(), Arc::clone(&left));
        let compute = move |_: &_| {
            mark_operator(Some(operator));
            function();
            mark_operator(None);
            Ok(Done::default())
        };
        let plan = move || Ok(vec![Monotask::new(&rt.cores(), Phase::Compute, vec![], 0, compute)]);
        let done = move || {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                of.end_stage(stage);
                of.succeed();
            }
            Ok(())
        };
        job.submit(stage, operator, 0, Task::new(plan, done));
    }
    job.wait().expect("success");
    assert_eq!(runtime.no_stacks(), None);
    let trace = checked_trace(&job);
    for (operator, name) in [(3, "spins"), (5, "allocates")] {
        let of: Vec<&Stack> = trace.stacks.iter().filter(|s| s.operator == Some(operator)).collect();
        let count: u64 = of.iter().map(|s| s.count).sum();
        let expected = CORE_NS * Stack::RATE_HZ / 1_000_000_000;
        assert!((expected / 2..=2 * expected).contains(&count), "{count} samples in {name}, not {expected}");
        let whole = of.iter().filter(|s| {
            let first = s.frames.split(';').next();
            first == Some("pellucid_runtime::drive::worker::serve")
                && s.frames.contains(&format!(";stacks::{name}"))
        });
        let whole: u64 = whole.map(|s| s.count).sum();
        assert!(whole >= count - count / 10, "{whole} of {count} samples in {name} are whole: {of:#?}");
    }
}

#[test]
fn stacks_are_sampled_on_request_only() {
    let runtime = common::runtime();
    let job = runtime.begin("not sampled", recorder());
    let stage = job.stage("spins", &[], vec![]);
    let (rt, of) = (runtime.clone(), job.clone());
    let compute = |_: &_| {
        spins();
        Ok(Done::default())
    };
    let plan = move || Ok(vec![Monotask::new(&rt.cores(), Phase::Compute, vec![], 0, compute)]);
    let done = move || {
        of.end_stage(stage);
        of.succeed();
        Ok(())
    };
    job.submit(stage, 0, 0, Task::new(plan, done));
    job.wait().expect("success");
    assert_eq!((checked_trace(&job).stacks.len(), runtime.no_stacks()), (0, None));
}
