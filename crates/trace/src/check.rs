//! The invariants of the format, checked on a whole trace.

use crate::Trace;

impl Trace {
    /// Every invariant of `docs/trace-format.md` that is broken, in words; empty: sound.
    pub fn check(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.header.is_none() {
            broken.push("no header".into());
        }
        broken
    }
}
