//! Measures the effect of changing workers on iterations, over real processes with one thread each: one worker slows
//! down to half its speed, one joins, one leaves.
//!
//! `cargo run --release -p pellucid-iterate --example uneven` prints a line of JSON for each case: mean iterations in
//! milliseconds before the fortieth, in the ten after it, and in the twenty after those; the ideal for the workers'
//! speed from then on; the number of migrated partitions; and the number of recoveries.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pellucid_iterate::{
    Cluster, Invitation, JobControl, Outcome, Plan, Program, RunOptions, WorkerSettings, control, work,
};

const PARTITIONS: u32 = 24;
const ITERATIONS: u64 = 100;
/// Iteration at which the workers change.
const CHANGED_AT: u64 = 40;
/// Sequentially dependent steps of a task, which take about 4 ms.
const STEPS: u32 = 2_500_000;
/// Environment variable with the number of tasks after which a worker process slows down.
const SLOW: &str = "PELLUCID_UNEVEN_SLOW";

/// Number of tasks that this process has run.
static DONE: AtomicU32 = AtomicU32::new(0);
/// Number of tasks after which it slows down.
static SLOW_AFTER: AtomicU32 = AtomicU32::new(u32::MAX);

fn compute(data: &mut u64) {
    for _ in 0..STEPS {
        *data = (*data ^ 0x9e37_79b9).wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
}

fn plan() -> Arc<Plan> {
    let mut program = Program::new("uneven");
    let (local, part) = (
        program.dataset("local", PARTITIONS, |_| Ok(0u64)),
        program.dataset("part", PARTITIONS, |index| Ok(u64::from(index) + 1)),
    );
    let (model, total) =
        (program.dataset("model", 1, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(0u64)));
    program.repeat("rounds", |body| {
        body.broadcast("model to all", model, local);
        body.transform("compute", local, part, |_, part| {
            let slow = DONE.fetch_add(1, Ordering::Relaxed) >= SLOW_AFTER.load(Ordering::Relaxed);
            if slow {
                // Keep the compiler from removing the unused result.
                let mut twice = *part;
                compute(&mut twice);
                std::hint::black_box(twice);
            }
            compute(part);
            Ok(())
        });
        body.tree_reduce("total", part, total, |sum, next| *sum = sum.wrapping_add(*next));
        body.transform("step", total, model, |_, model| {
            *model += 1;
            Ok(())
        });
        body.while_signal("again", model, |model| *model < ITERATIONS);
    });
    program.output(model);
    program.build().expect("a valid program")
}

fn start(invitation: &Invitation, rank: u32, slow_after: u32) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    invitation.put_into(&mut command, rank);
    command.env(SLOW, slow_after.to_string()).stdout(Stdio::null()).spawn()
}

/// Runs the job with `workers` workers, of which the last slows down after `slow_after` tasks. Calls `change` once,
/// at about [`CHANGED_AT`], and returns the iteration of that call with the outcome.
fn job(
    workers: u32,
    slow_after: u32,
    mut change: impl FnMut(&Invitation, &JobControl) + Send + 'static,
) -> (Outcome, usize) {
    let invited = Arc::new(Mutex::new(None::<Invitation>));
    let changed = Arc::new(AtomicU32::new(0));
    let handle = JobControl::default();
    let (known, at, control_handle) = (invited.clone(), changed.clone(), handle.clone());
    let progress = move |now: &pellucid_iterate::Progress| {
        let invited = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(invitation), true, 0) =
            (&*invited, now.iteration >= CHANGED_AT, at.load(Ordering::Relaxed))
        {
            at.store(now.iteration as u32, Ordering::Relaxed);
            change(invitation, &control_handle);
        }
    };
    let options =
        RunOptions { control: Some(handle), progress: Some(Box::new(progress)), ..RunOptions::default() };
    let cluster = Cluster { workers, ..Cluster::default() };
    let outcome = control(plan(), &cluster, options, |invitation| {
        *invited.lock().unwrap_or_else(PoisonError::into_inner) = Some(invitation.clone());
        let slow = |rank| if rank + 1 == workers { slow_after } else { u32::MAX };
        (0..workers).map(|rank| start(invitation, rank, slow(rank))).collect()
    });
    (outcome.expect("a successful job"), changed.load(Ordering::Relaxed) as usize)
}

/// Prints a line. `speed` is the workers' speed after the change, relative to before.
fn print(case: &str, outcome: &Outcome, changed: usize, speed: f64) {
    let mean_ms = |range: std::ops::Range<usize>| {
        let times = &outcome.iterations_ns[range.start.min(outcome.iterations_ns.len())..];
        let times = &times[..times.len().min(range.len())];
        times.iter().sum::<u64>() as f64 / times.len().max(1) as f64 / 1e6
    };
    let before = mean_ms(20..CHANGED_AT as usize - 2);
    println!(
        r#"{{"case": "{case}", "before_ms": {before:.2}, "first_ten_ms": {:.2}, "after_ms": {:.2}, "ideal_ms": {:.2}, "migrations": {}, "recoveries": {}}}"#,
        mean_ms(changed..changed + 10),
        mean_ms(changed + 10..changed + 30),
        before / speed,
        outcome.migrations,
        outcome.recoveries,
    );
}

fn main() {
    if let Some((invitation, rank)) = Invitation::from_environment().expect("a complete invitation") {
        let slow = std::env::var(SLOW).ok().and_then(|slow| slow.parse().ok());
        SLOW_AFTER.store(slow.unwrap_or(u32::MAX), Ordering::Relaxed);
        let settings = WorkerSettings { rank, ..WorkerSettings::default() };
        work(plan(), &invitation, &settings).expect("a successful job");
        return;
    }
    let slow_after = CHANGED_AT as u32 * PARTITIONS / 2;
    let (outcome, _) = job(2, slow_after, |_, _| ());
    print(" slowed", &outcome, CHANGED_AT as usize, 0.75);
    let (outcome, joined) = job(1, u32::MAX, |invitation, _| {
        // It exits with the job, as all workers do.
        drop(start(invitation, 1, u32::MAX).expect("a process"));
    });
    print(" joined", &outcome, joined, 2.0);
    let (outcome, left) = job(2, u32::MAX, |_, control| control.leave(1));
    print(" left", &outcome, left, 0.5);
}
