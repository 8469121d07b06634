//! The bottleneck of tasks that use several resources at once, as far as measured times show it.
//!
//! A resource is named where tasks spent most of their measured time on it and the first cause does not
//! contradict it. Unexplained time, garbage collection and scheduler delay are not resources: where one
//! of these is largest, no resource limits.

use pellucid_trace::kind;

use super::blocked::{Without, blocked};
use super::task::Task;
use crate::analysis::{BlockedTime, BlockedTimes, Bottleneck, Cause};
use crate::whatif::{Amount, Change, Changes, InputFrom};

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

/// Returns the resource that tasks spend most of their time on under `changes`; `first` is the first
/// cause before them.
pub(crate) fn limit_after(tasks: &[Task], first: Option<Cause>, changes: &Changes) -> Option<Bottleneck> {
    let mut after = blocked(tasks.iter());
    let scale =
        |time: &mut BlockedTime, factor: f64| time.measured_ms = time.measured_ms.map(|ms| ms * factor);
    for change in changes.iter() {
        match change {
            Change::No(part) if part == "disk" => scale(&mut after.disk, 0.0),
            Change::No(part) if part == "network" => scale(&mut after.network, 0.0),
            Change::No(part) if part == "gc" => scale(&mut after.gc, 0.0),
            Change::No(part) if part == "scheduler" => scale(&mut after.scheduler, 0.0),
            Change::No(part) if part == "deserialize" => scale(&mut after.deserialize, 0.0),
            Change::DiskRate(None, Amount::Times(factor)) => scale(&mut after.disk, 1.0 / factor),
            Change::NetworkRate(Amount::Times(factor)) => scale(&mut after.network, 1.0 / factor),
            Change::Input(InputFrom::Memory) => {
                let input = tasks.iter().filter_map(|task| Without::Input.blocked_ms(task)).map(|b| b.0);
                let input: f64 = input.sum();
                after.disk.measured_ms = after.disk.measured_ms.map(|ms| (ms - input).max(0.0));
            }
            _ => {}
        }
    }
    // The first cause remains, unless the changes remove it.
    let first = first.filter(|first| {
        let parts: &[&str] = match first.cause.as_str() {
            "scheduling" => &["scheduler", "deserialize"],
            "straggler" => &["stragglers"],
            "disk input" => &["disk"],
            cause => &[cause],
        };
        !changes.iter().any(|change| matches!(change, Change::No(part) if parts.contains(&part.as_str())))
    });
    let resource = |first: &Cause| matches!(first.cause.as_str(), "cpu" | "disk" | "disk input" | "network");
    limit(Some(&after), first.filter(|first| !resource(first)).as_ref())
}
