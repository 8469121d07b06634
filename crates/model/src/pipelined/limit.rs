//! The bottleneck of tasks that use several resources at once, as far as measured times show it.
//!
//! A resource is named where tasks spent most of their measured time on it and the first cause does not
//! contradict it. Unexplained time, garbage collection and scheduler delay are not resources: where one
//! of these is largest, no resource limits.

use pellucid_trace::kind;

use crate::analysis::{BlockedTimes, Bottleneck, Cause};

impl BlockedTimes {
    /// Returns the measured parts of the tasks' time, by name.
    pub fn measured(&self) -> Vec<(&'static str, f64)> {
        let parts = [
            ("cpu", self.cpu),
            ("disk", self.disk),
            ("network", self.network),
            ("gc", self.gc),
            ("scheduler", self.scheduler),
            ("deserialize", self.deserialize),
            ("other", self.other),
        ];
        parts.into_iter().filter_map(|(name, time)| Some((name, time.measured_ms?))).collect()
    }

    /// Returns the largest measured part.
    pub fn largest(&self) -> Option<(&'static str, f64)> {
        self.measured().into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Returns the resource that tasks spent most of their measured time on; `None` where the largest part is
/// not a resource: scheduler delay, garbage collection or unexplained time.
pub(crate) fn bottleneck(blocked: Option<&BlockedTimes>) -> Option<Bottleneck> {
    let (part, ms) = blocked?.largest()?;
    let kind = [kind::CPU, kind::DISK, kind::NETWORK].into_iter().find(|kind| *kind == part)?;
    (ms > 0.0).then(|| Bottleneck { kind: kind.into(), name: None })
}

/// Returns the bottleneck unless the first cause is not a resource, or another one.
pub(crate) fn limit(blocked: Option<&BlockedTimes>, first: Option<&Cause>) -> Option<Bottleneck> {
    let agrees = |found: &Bottleneck| match first.map(|first| first.cause.as_str()) {
        Some("disk input") => found.kind == kind::DISK,
        Some(cause) => found.kind == cause,
        None => true,
    };
    bottleneck(blocked).filter(agrees)
}
