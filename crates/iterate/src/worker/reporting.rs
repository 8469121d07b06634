//! The account that a worker's reports are made from.

use std::collections::BTreeMap;

use crate::dataflow::index::BundleIx;
use crate::protocol::records::Usage;

/// Maximum number of iterations whose times are recorded.
const MAX_RECORDED_ITERATIONS: usize = 1 << 20;

/// Times at which signals of outermost loops were computed, and the worker's usage at the first and the last.
#[derive(Default)]
pub(crate) struct Iterations {
    pub at_ns: Vec<u64>,
    first: Usage,
    last: Usage,
}

impl Iterations {
    /// Records that a signal of an outermost loop was computed; `usage` is the worker's at that time.
    pub fn record(&mut self, at_ns: u64, usage: Usage) {
        if self.at_ns.is_empty() {
            self.first = usage;
        }
        if self.at_ns.len() < MAX_RECORDED_ITERATIONS {
            self.at_ns.push(at_ns);
            self.last = usage;
        }
    }

    /// Returns the usage between the first recorded time and the last.
    pub fn usage(&self) -> Usage {
        let Self { first, last, .. } = self;
        Usage { busy_ns: last.busy_ns - first.busy_ns, tasks: last.tasks - first.tasks }
    }
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Reporting {
    /// Number of reports made.
    reports: u64,
    /// Core time of each bundle at the last report.
    busy_before: BTreeMap<BundleIx, u64>,
    /// Work of bundles that left, less the tasks of those that came. Wraps.
    departed: Usage,
}

impl Reporting {
    /// Starts again as the job restarts: tasks count from the snapshot.
    pub fn restart(&mut self) {
        *self = Self { reports: self.reports, ..Self::default() };
    }

    /// Counts a report and returns its number.
    pub fn count(&mut self) -> u64 {
        self.reports += 1;
        self.reports
    }

    /// Returns the core time of a bundle since the last report; `busy_ns` is all of it.
    pub fn spent_ns(&mut self, bundle: BundleIx, busy_ns: u64) -> u64 {
        busy_ns.saturating_sub(self.busy_before.insert(bundle, busy_ns).unwrap_or(0))
    }

    /// Adds the work of a bundle that left.
    pub fn depart(&mut self, bundle: BundleIx, work: Usage) {
        self.departed.tasks = self.departed.tasks.wrapping_add(work.tasks);
        self.departed.busy_ns += work.busy_ns;
        self.busy_before.remove(&bundle);
    }

    /// Subtracts the tasks of a bundle that came, which it ran elsewhere.
    pub fn arrive(&mut self, tasks: u64) {
        self.departed.tasks = self.departed.tasks.wrapping_sub(tasks);
    }

    /// Returns the work of bundles that are not here.
    pub fn departed(&self) -> Usage {
        self.departed
    }
}
