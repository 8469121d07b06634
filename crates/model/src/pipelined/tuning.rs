//! The concurrency of executors over time, where a controller adapts it.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

use crate::analysis::{Tuning, TuningStep};
use crate::numbers::ms;

/// Returns the steps by stage and executor, in time order.
pub(crate) fn tuning(trace: &Trace) -> Vec<Tuning> {
    let mut steps: BTreeMap<(u32, u32), Vec<TuningStep>> = BTreeMap::new();
    for change in &trace.concurrency_changes {
        let (at_ms, concurrency) = (ms(change.at_ns as f64), change.concurrency);
        let step = TuningStep { at_ms, concurrency, reason: change.reason.clone() };
        steps.entry((change.stage, change.resource)).or_default().push(step);
    }
    let named = |((stage, resource), mut steps): ((u32, u32), Vec<TuningStep>)| {
        steps.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
        let executor = trace.resources.get(resource as usize)?.name.clone();
        let source_id = trace.stages.get(stage as usize)?.id;
        Some(Tuning { stage: stage as usize, source_id, executor, steps })
    };
    steps.into_iter().filter_map(named).collect()
}
