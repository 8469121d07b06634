//! The bottleneck of pipelined tasks under changes.

use crate::analysis::{BlockedTime, Bottleneck, Cause};
use crate::pipelined::blocked::{Without, blocked};
use crate::pipelined::limit::limit;
use crate::pipelined::task::Task;
use crate::whatif::{Amount, Change, Changes, InputFrom};

/// Returns the resource that tasks spend most of their time on under `changes`; `first` is the first
/// cause before them.
pub(crate) fn limit_after(tasks: &[Task], first: Option<Cause>, changes: &Changes) -> Option<Bottleneck> {
    let mut after = blocked(tasks.iter());
    let scale =
        |time: &mut BlockedTime, factor: f64| time.measured_ms = time.measured_ms.map(|ms| ms * factor);
    for change in changes.iter() {
        match change {
            Change::No(part) => {
                if let Some(time) = Without::named(part).and_then(|part| part.time_of(&mut after)) {
                    scale(time, 0.0);
                }
            }
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
