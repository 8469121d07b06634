//! The bottleneck of pipelined tasks under changes.

use super::scenario::Scenario;
use crate::analysis::{Bottleneck, Cause};
use crate::pipelined::limit::limit;

/// Returns the resource that tasks spend most of their time on; `first` is the first cause before the
/// changes.
pub(super) fn limit_after(scenario: &Scenario, first: Option<Cause>) -> Option<Bottleneck> {
    // The first cause remains, unless the changes remove it.
    let first = first.filter(|first| {
        let parts: &[&str] = match first.cause.as_str() {
            "scheduling" => &["scheduler", "deserialize"],
            "straggler" => &["stragglers"],
            "disk input" => &["disk"],
            cause => &[cause],
        };
        !scenario.removed.iter().any(|part| parts.contains(&part.as_str()))
    });
    let resource = |first: &Cause| matches!(first.cause.as_str(), "cpu" | "disk" | "disk input" | "network");
    limit(Some(&scenario.blocked), first.filter(|first| !resource(first)).as_ref())
}
