//! Summaries of the workers' reports.

use std::collections::BTreeMap;

use crate::dataflow::outcome::Outcome;
use crate::dataflow::plan::Plan;
use crate::protocol::records::Report;

impl Outcome {
    /// Adds a worker's final report.
    pub(crate) fn add(&mut self, plan: &Plan, report: &Report) {
        if report.iteration != u64::MAX {
            self.iterations = self.iterations.max(report.iteration);
        }
        self.tasks = self.tasks.wrapping_add(report.tasks);
        *self.busy_ns.get_or_insert(0) += report.busy_ns;
        self.workers += 1;
        self.iterating = (self.workers == 1).then_some((report.iterating.busy_ns, report.iterating.tasks));
        self.iterations_ns
            .extend(report.iterations_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0])));
        for (&statement, &(epoch, value)) in &report.observed {
            let newest = self.newest.entry(statement).or_insert((epoch, value));
            if newest.0 <= epoch {
                *newest = (epoch, value);
                self.observed.insert(plan.statements[statement].name.clone(), f64::from_bits(value));
            }
        }
    }

    /// Returns the latest observed values over the workers' reports.
    pub(crate) fn observed<'a>(
        plan: &Plan,
        reports: impl Iterator<Item = &'a Report>,
    ) -> BTreeMap<String, f64> {
        let mut outcome = Self::new(plan);
        reports.for_each(|report| outcome.add(plan, report));
        outcome.observed
    }
}
