//! A device on a virtual clock. Its total rate depends on the number of running monotasks, which share it
//! equally. A scheduler keeps the device saturated.

use pellucid_scheduler::*;

/// Throughput in MB/s with 1, 2, 4, 8, 16 and 32 running monotasks.
pub type Curve = [f64; 6];

fn rate(curve: &Curve, running: usize) -> f64 {
    let level = (running.max(1) as f64).log2().min(5.0);
    let (low, part) = (level.floor() as usize, level.fract());
    curve[low] + part * (curve[(low + 1).min(5)] - curve[low])
}

/// Runs 300 reads of 7 to 9 MB and returns the final concurrency.
pub fn settle(curve: &Curve, concurrency: Concurrency, seed: u64) -> u32 {
    let mut scheduler = Scheduler::new(Config::default());
    let spec = ResourceSpec { concurrency, multitasks_at_once: None };
    let disk = scheduler.add_resource(spec);
    let job = scheduler.add_job(0);
    for _ in 0..300 {
        scheduler.submit(0, MultitaskSpec { job, stage: 0, memory_bytes: 0 });
    }
    let (mut now, mut random) = (0u64, seed);
    let mut running: Vec<(MonotaskId, f64, u64)> = Vec::new();
    loop {
        while let Some(decision) = scheduler.next(now) {
            match decision {
                Decision::Admit(id) => {
                    let phase = Phase::Read;
                    let read = MonotaskSpec { resource: disk, phase, after: vec![], bytes: 0 };
                    scheduler.expand(now, id, vec![read]).unwrap();
                }
                Decision::Start { monotask, .. } => {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let bytes = 7_000_000 + (random >> 33) % 2_000_000;
                    running.push((monotask, bytes as f64, bytes));
                }
                Decision::Ended { .. } => {}
            }
        }
        // The monotask with the fewest bytes left completes next; the others move the same number of bytes.
        let min = running.iter().map(|r| r.1).fold(f64::INFINITY, f64::min);
        let Some(at) = running.iter().position(|r| r.1 <= min) else {
            return scheduler.concurrency(disk);
        };
        // One byte per µs is one MB/s.
        let ns_per_byte = 1_000.0 * running.len() as f64 / rate(curve, running.len());
        now += (min * ns_per_byte).ceil() as u64;
        for one in &mut running {
            one.1 -= min;
        }
        let (monotask, _, bytes) = running.swap_remove(at);
        let completion = Completion { bytes, ..Completion::default() };
        scheduler.complete(now, monotask, completion).unwrap();
    }
}
