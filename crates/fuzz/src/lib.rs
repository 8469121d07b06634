//! Fuzz tests on stable Rust: seeded inputs, and a guard that turns every kind of abort into a failure.
//!
//! A target is an ordinary test, named `damaged_…`, that calls [`fuzz`]. Its closure makes an input from a
//! [`Random`], usually with [`Inputs`], gives it to the product, and checks the answer. The number of a case is
//! its seed, so the same case always has the same input. `tests/run fuzz` runs all targets of the workspace.
//!
//! A case fails if it
//!
//! - panics, in the closure's thread;
//! - aborts the process: a stack overflow, a second panic, a signal ([`guard`]);
//! - allocates over 1 GiB more than before, all threads together. The [allocator](memory) counts, and aborts
//!   rather than refuse: a refusal could be handled, and would stay unnoticed where memory is overcommitted.
//!   A limit of the address space would not do, since it also counts reserved stacks and arenas. Memory of C
//!   libraries is not counted; zstd, the only one, bounds its own by the window;
//! - takes over 10 s, by a watching thread.
//!
//! Each failure prints the command that repeats it.
//!
//! | variable | meaning |
//! |---|---|
//! | `PELLUCID_FUZZ_SECONDS` | time for each target; after at least the default number of inputs |
//! | `PELLUCID_FUZZ_INPUTS` | number of inputs for each target, 500 by default |
//! | `PELLUCID_FUZZ_SEED` | run only this case |
//! | `PELLUCID_FUZZ_CASE_SECONDS` | time that a case may take, 10 by default |
//!
//! Only tests depend on this crate. It sets the global allocator of each test program that uses it.

mod guard;
mod inputs;
mod memory;
mod random;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use inputs::Inputs;
pub use memory::peak_memory;
pub use random::Random;

/// Inputs of a target, unless `PELLUCID_FUZZ_INPUTS` or `PELLUCID_FUZZ_SECONDS` asks for more.
const DEFAULT_INPUTS: u64 = 500;

/// Targets of one program run one after the other, since the guard watches one case.
static RUNNING: Mutex<()> = Mutex::new(());

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a target with the seeds 0, 1, …, and prints the number of inputs and of those for which `case` returned true
/// (accepted). `test` is the name of the calling test.
///
/// # Panics
/// If a case fails, or if of many inputs fewer than 1 % were accepted or fewer than 1 % refused: the target then
/// checks little.
pub fn fuzz(test: &'static str, mut case: impl FnMut(&mut Random) -> bool) {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut run = |seed| {
        let watched = guard::watch(test, seed);
        let result = catch_unwind(AssertUnwindSafe(|| case(&mut Random::new(seed))));
        drop(watched);
        result.unwrap_or_else(|panic| {
            guard::print_command(test, seed);
            resume_unwind(panic)
        })
    };
    if let Some(seed) = variable("PELLUCID_FUZZ_SEED") {
        let accepted = run(seed);
        eprintln!("{test}: seed {seed} was {}", if accepted { "accepted" } else { "refused" });
        return;
    }
    let inputs = variable("PELLUCID_FUZZ_INPUTS").unwrap_or(DEFAULT_INPUTS);
    let until = Instant::now() + Duration::from_secs_f64(variable("PELLUCID_FUZZ_SECONDS").unwrap_or(0.0));
    let (mut seed, mut accepted) = (0, 0);
    while seed < inputs || Instant::now() < until {
        accepted += u64::from(run(seed));
        seed += 1;
    }
    eprintln!("{test}: {seed} inputs, {accepted} accepted");
    let fewer = accepted.min(seed - accepted);
    assert!(fewer * 100 >= seed || seed < DEFAULT_INPUTS, "{test}: nearly all inputs had the same outcome");
}
