//! Memory use of an analysis per task, besides the trace. The goal is a million tasks in 300 MB.

mod builder;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use builder::spark::{Spark, computing, measured};
use pellucid_model::analyze;
use pellucid_trace::PipelinedTask;

const TASKS: u32 = 100_000;
/// Maximum bytes per task during an analysis, including lists and their growth.
const MAX_BYTES: usize = 190;
const SLOTS: u32 = 8;

/// An allocator that counts held bytes. This file has a single test, so nothing else is counted.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards every call to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Builds consecutive stages with tasks in waves on eight slots; some tasks read more, some straggle.
fn application(stages: u32) -> Spark {
    let mut s = Spark::on(2, f64::from(SLOTS / 2));
    let each = TASKS / stages;
    let lasts = f64::from(each.div_ceil(SLOTS)) * 100.0;
    for nth in 0..stages {
        let begin = f64::from(nth) * lasts;
        let job = s.job(begin, begin + lasts);
        let stage = s.stage(job, &[], begin, begin + lasts);
        for partition in 0..each {
            let slow = partition % 10 == 3;
            let duration = if slow { 100.0 } else { 40.0 + f64::from(partition % 17) };
            let task = computing(stage, partition, begin + f64::from(partition / SLOTS) * 100.0, duration);
            s.trace.pipelined_tasks.push(&PipelinedTask {
                resource: partition % 2,
                input_bytes: Some(1_000_000),
                shuffle_write_bytes: Some(1_000),
                gc: measured(if slow { 40.0 } else { 1.0 }),
                blocked_network: measured(0.0),
                blocked_shuffle_write: measured(2.0),
                scheduler: measured(3.0),
                deserialize: measured(1.0),
                ..task
            });
        }
    }
    s
}

#[test]
fn analysis_stays_within_the_memory_limit_per_task() {
    for stages in [100, 1] {
        let s = application(stages);
        let before = HELD.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let analysis = analyze(&s.trace);
        let each = (MOST.load(Ordering::Relaxed) - before) / TASKS as usize;
        let stragglers: u64 =
            analysis.stages.iter().filter_map(|s| s.stragglers.as_ref()).map(|s| s.count).sum();
        assert!(stragglers > u64::from(TASKS) / 20, "{stragglers} stragglers");
        assert!(each <= MAX_BYTES, "{stages} stages: {each} bytes a task");
        eprintln!("{stages} stages: {each} bytes a task");
    }
}
