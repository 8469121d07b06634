//! Samples of the call stacks of compute threads.
//!
//! Each compute thread has a timer of its own core time. Its signal handler follows the stack up to the thread's main
//! function, and writes the addresses and the operator that runs into a buffer of the thread ([`sampler`]). After each
//! monotask, the thread adds them to those of the job. When the job ends, addresses become names of functions
//! ([`symbols`]), equal stacks are counted, and recorded in the job's trace.
//!
//! The stack is followed by the unwind tables that are in memory for panics ([`modules`]), as the build has neither
//! frame pointers nor debug information. Functions that the compiler has inlined are therefore part of their callers.

mod buffer;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod modules;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod other;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod sampler;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod symbols;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, OnceLock, PoisonError};

use pellucid_trace as trace;

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use other as sampler;
pub(crate) use sampler::SampledThread;
use sampler::Sampler;

/// Stands for no operator.
const NO_OPERATOR: u32 = u32::MAX;

thread_local! {
    /// The operator that runs on this thread. Its type needs no destructor, so that a signal handler may read it.
    static OPERATOR: Cell<u32> = const { Cell::new(NO_OPERATOR) };
}

/// Sets the operator that samples of this thread belong to.
#[inline]
pub fn mark_operator(operator: Option<u32>) {
    OPERATOR.set(operator.unwrap_or(NO_OPERATOR));
}

/// The sampling of a runtime.
#[derive(Default)]
pub(crate) struct StackSampling {
    sampler: Option<Sampler>,
    failure: OnceLock<String>,
}

impl StackSampling {
    /// Prepares the sampling of this process, if `wanted`.
    pub fn new(wanted: bool) -> StackSampling {
        let sampling = StackSampling::default();
        if !wanted {
            return sampling;
        }
        match Sampler::new() {
            Ok(sampler) => StackSampling { sampler: Some(sampler), ..sampling },
            Err(why) => StackSampling { sampler: None, failure: OnceLock::from(why) },
        }
    }

    /// Starts to sample this thread, if that is wanted and possible. `base` is in the frame of its main function.
    pub fn thread(&self, base: *const u8) -> Option<SampledThread> {
        match self.sampler.as_ref()?.thread(base) {
            Ok(thread) => Some(thread),
            Err(why) => {
                let _ = self.failure.set(why); // another thread has set it
                None
            }
        }
    }

    /// Returns the reason why threads are not sampled although that is wanted.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Records the stacks of a job.
    pub fn record(&self, stacks: &Stacks, recorder: &trace::Recorder) {
        let Some(sampler) = &self.sampler else { return };
        let samples = std::mem::take(&mut *stacks.0.lock().unwrap_or_else(PoisonError::into_inner));
        let addresses: BTreeSet<u64> =
            samples.keys().flat_map(|sample| sample.frames.iter().copied()).collect();
        for stack in fold(&samples, &sampler.names(addresses)) {
            recorder.record(trace::Record::Stack(stack));
        }
    }
}

/// A call stack as it was sampled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Sample {
    stage: trace::StageIx,
    operator: u32,
    /// Addresses, innermost first.
    frames: Box<[u64]>,
}

/// The samples of a job so far, with their counts.
#[derive(Default)]
pub(crate) struct Stacks(Mutex<HashMap<Sample, u64>>);

impl Stacks {
    /// Adds a sample of a stage.
    fn add(&self, stage: trace::StageIx, operator: u32, count: u64, frames: Box<[u64]>) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *samples.entry(Sample { stage, operator, frames }).or_default() += count;
    }
}

/// Counts samples by the names of their functions.
fn fold(samples: &HashMap<Sample, u64>, names: &HashMap<u64, String>) -> Vec<trace::Stack> {
    let mut folded: BTreeMap<(trace::StageIx, Option<u32>, String), u64> = BTreeMap::new();
    for (sample, count) in samples {
        let name = |address: &u64| match *address {
            buffer::TRUNCATED => trace::Stack::TRUNCATED,
            buffer::LOST => trace::Stack::LOST,
            address => names.get(&address).map_or("[unknown]", String::as_str),
        };
        let frames: Vec<&str> = sample.frames.iter().rev().map(name).collect();
        let operator = (sample.operator != NO_OPERATOR).then_some(sample.operator);
        *folded.entry((sample.stage, operator, frames.join(";"))).or_default() += count;
    }
    let stack = |((stage, operator, frames), count)| trace::Stack { stage, operator, count, frames };
    folded.into_iter().map(stack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_the_names_of_their_functions() {
        let stacks = Stacks::default();
        stacks.add(1, 5, 2, Box::new([12, 20]));
        stacks.add(1, 5, 1, Box::new([13, 20]));
        stacks.add(1, NO_OPERATOR, 1, Box::new([30, buffer::TRUNCATED]));
        stacks.add(0, NO_OPERATOR, 4, Box::new([buffer::LOST]));
        let names = [(12, "inner"), (13, "inner"), (20, "outer")];
        let names = names.map(|(address, name)| (address, name.to_owned())).into_iter().collect();
        let folded = fold(&stacks.0.into_inner().unwrap(), &names);
        let stack = |stage, operator, count, frames: &str| trace::Stack {
            stage,
            operator,
            count,
            frames: frames.into(),
        };
        let expected = [
            stack(0, None, 4, "[lost]"),
            stack(1, None, 1, "[truncated];[unknown]"),
            stack(1, Some(5), 3, "outer;inner"),
        ];
        assert_eq!(folded, expected);
    }
}
