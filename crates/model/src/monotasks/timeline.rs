//! Running work as a step function of time.

/// A change of the running work: its time, the change of the count, and the change of the rate.
pub(crate) type Edge = (u64, i32, f64);

/// The work that runs from one edge to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub from_ns: u64,
    /// The next edge; for the last step, its own start.
    pub until_ns: u64,
    pub count: i32,
    pub rate: f64,
}

impl Step {
    /// Returns its length.
    pub fn length_ns(&self) -> f64 {
        (self.until_ns - self.from_ns) as f64
    }
}

/// Adds the edges of work that takes time, its amount spread evenly over it.
pub(crate) fn add(edges: &mut Vec<Edge>, (start_ns, end_ns): (u64, u64), amount: f64) {
    if end_ns > start_ns {
        let rate = amount / (end_ns - start_ns) as f64;
        edges.extend([(start_ns, 1, rate), (end_ns, -1, -rate)]);
    }
}

/// Returns the steps between edges, which are sorted by time. The first step starts at 0, and the last one
/// at the last edge.
pub(crate) fn steps(edges: &[Edge]) -> impl Iterator<Item = Step> {
    let mut next = Step { from_ns: 0, until_ns: 0, count: 0, rate: 0.0 };
    (0..=edges.len()).map(move |ix| {
        let Some(&(at, count, rate)) = edges.get(ix) else { return next };
        let step = Step { until_ns: at, ..next };
        next = Step { from_ns: at, until_ns: at, count: step.count + count, rate: step.rate + rate };
        // Reset at zero, so that rounding errors do not accumulate over a long trace.
        next.rate = if next.count == 0 { 0.0 } else { next.rate.max(0.0) };
        step
    })
}
