//! Systems on which stacks are not sampled.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use pellucid_trace::StageIx;

use super::Stacks;

/// A sampler that cannot exist.
pub(super) struct Sampler(Infallible);

impl Sampler {
    pub fn new() -> Result<Sampler, String> {
        Err("it needs Linux on x86-64 or aarch64".to_owned())
    }

    pub fn thread(&self, _: *const u8) -> Result<SampledThread, String> {
        match self.0 {}
    }

    pub fn names(&self, _: BTreeSet<u64>) -> HashMap<u64, String> {
        match self.0 {}
    }
}

/// A thread that cannot exist.
pub(crate) struct SampledThread(Infallible);

impl SampledThread {
    pub fn begin(&self) {
        match self.0 {}
    }

    pub fn end(&self, _: StageIx, _: &Stacks) {
        match self.0 {}
    }
}
