//! The history of the concurrency that Pellucid's plugin chose.
//!
//! The concurrency is logged at the end of each task, so a change becomes visible when the first task under
//! it ends. Only changes are kept.

use std::collections::HashMap;

use pellucid_trace::{ConcurrencyChange, PipelinedTask};

use crate::event::plugin::PluginMetrics;
use crate::event::time::ns;

/// The history of the executors' concurrency.
#[derive(Debug, Default)]
pub struct ConcurrencyHistory {
    /// Last known concurrency, by executor and stage.
    last: HashMap<(u32, u32), u32>,
    changes: Vec<(u64, ConcurrencyChange)>,
}

impl ConcurrencyHistory {
    /// Adds a task that ended, with the plugin's metrics. Its times are Unix times.
    pub fn ended(&mut self, task: &PipelinedTask, measured: &PluginMetrics) {
        let Some((concurrency, reason)) = measured.chosen() else { return };
        let known = self.last.insert((task.resource, task.stage), concurrency);
        if known == Some(concurrency) {
            return;
        }
        // The initial concurrency of a stage applies from the launch of its first task.
        let at_ns = if known.is_none() { task.launched_ns } else { task.ended_ns() };
        let (resource, stage, reason) = (task.resource, task.stage, reason.map(str::to_owned));
        self.changes.push((at_ns, ConcurrencyChange { resource, stage, at_ns, concurrency, reason }));
    }

    /// Returns the changes in chronological order, with times relative to `origin_ms`.
    pub fn since(mut self, origin_ms: u64) -> Vec<ConcurrencyChange> {
        self.changes.sort_by_key(|(at_ns, _)| *at_ns);
        let changes = self.changes.into_iter();
        changes
            .map(|(at_ns, change)| ConcurrencyChange { at_ns: at_ns.saturating_sub(ns(origin_ms)), ..change })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_concurrency_are_kept() {
        let mut seen = ConcurrencyHistory::default();
        let mut ended = |resource, stage, launched_ns, duration_ns, concurrency, reason| {
            let task = PipelinedTask { resource, stage, launched_ns, duration_ns, ..Default::default() };
            let mut measured = PluginMetrics::default();
            for (name, value) in [("pellucid.concurrency", concurrency), ("pellucid.reason", reason)] {
                *measured.slot(name.as_bytes()).expect(name) = Some(value);
            }
            seen.ended(&task, &measured);
        };
        let ms = 1_000_000;
        ended(0, 3, 100 * ms, 100 * ms, 2, 1);
        ended(1, 3, 100 * ms, 110 * ms, 2, 1);
        ended(0, 3, 150 * ms, 70 * ms, 2, 1);
        ended(0, 3, 160 * ms, 140 * ms, 4, 2);
        ended(0, 4, 310 * ms, 10 * ms, 4, 99);
        ended(0, 4, 310 * ms, 10 * ms, 0, 1);
        let changes = seen.since(50);
        let changes: Vec<_> = changes
            .iter()
            .map(|c| (c.resource, c.stage, c.at_ns / ms, c.concurrency, c.reason.as_deref()))
            .collect();
        assert_eq!(
            changes,
            [
                (0, 3, 50, 2, Some("start")),
                (1, 3, 50, 2, Some("start")),
                (0, 3, 250, 4, Some("more at once moved more bytes a second")),
                (0, 4, 260, 4, None),
            ]
        );
    }
}
