//! Capacities of resources, and their sources.
//!
//! In order of precedence:
//!
//! | `capacity_from` | capacity |
//! |---|---|
//! | `set`, `probed`, `counted`, `quota` (from the trace) | the capacity that the producer registered |
//! | `counted`, `concurrency` | cores: those of the machine, else the concurrency |
//! | `best 2 s` | the largest rate over two busy seconds |
//! | `busy time` | unknown, or the bytes were not measured: the busy time stands in for the ideal time |
//!
//! The best two seconds are measured on a clock that runs only while the resource serves, with each
//! monotask's bytes spread evenly over its service. On the wall clock a disk that serves for a tenth of
//! every second would appear ten times too slow, and fully used. The capacity is never below the mean
//! rate while busy, so that an ideal time never exceeds the busy time. Two seconds smooth out caches and
//! bursts; a resource with less busy time has no capacity.

use pellucid_trace::{Resource, Trace, kind};

use super::demand::{Demand, Demands, in_time};
use super::timeline::{Edge, add, steps};
use crate::index::{ResourceIx, Table};

const WINDOW_NS: f64 = 2e9;

/// A resource's capacity.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Capacity {
    /// Slots for `cpu` and `slots`, bytes per nanosecond for others; `None` if busy time stands in.
    pub rate: Option<f64>,
    /// See the module's table; `None` for a resource with no known capacity or use.
    pub from: Option<String>,
}

impl Capacity {
    /// Returns the capacity in the unit of the trace: slots, or bytes per second.
    pub fn per_s(&self, timed: bool) -> Option<f64> {
        self.rate.map(|rate| if timed { rate } else { rate * 1e9 })
    }
}

/// Returns the capacities of a trace's resources.
pub(crate) fn capacities(trace: &Trace, demands: &Demands) -> Table<ResourceIx, Capacity> {
    let mut by_resource = Table::<ResourceIx, _>::filled(trace.resources.len(), Vec::new());
    for demand in &demands.all {
        by_resource[demand.resource].push(demand);
    }
    let each = trace.resources.iter().zip(by_resource.rows());
    each.map(|(resource, (ix, served))| {
        let busy_time = Capacity { rate: None, from: Some("busy time".into()) };
        if demands.unmeasured[ix] {
            return busy_time;
        }
        if let Some((places_or_rate, from)) = given(trace, resource) {
            let per_ns = if in_time(&resource.kind) { 1.0 } else { 1e9 };
            return Capacity { rate: Some(places_or_rate / per_ns), from: Some(from) };
        }
        if served.is_empty() || demands.opaque[ix] {
            return Capacity::default();
        }
        match (!demands.timed[ix]).then(|| best_rate(served)).flatten() {
            Some(rate) => Capacity { rate: Some(rate), from: Some("best 2 s".into()) },
            None => busy_time,
        }
    })
    .collect()
}

/// Returns the capacity that a producer registered, in the trace's unit, and its source.
pub(crate) fn given(trace: &Trace, resource: &Resource) -> Option<(f64, String)> {
    // Values outside this range are damage, and would make times infinite.
    let usable = |c: &f64| (1e-6..1e18).contains(c);
    if let Some(capacity) = resource.capacity.filter(usable) {
        return Some((capacity, resource.capacity_from.clone().unwrap_or_else(|| "set".into())));
    }
    if !in_time(&resource.kind) {
        return None;
    }
    let cores = trace.machines.get(resource.machine as usize).and_then(|m| m.cores);
    if let Some(cores) = cores.filter(|c| *c > 0 && resource.kind == kind::CPU) {
        return Some((f64::from(cores), "counted".into()));
    }
    let places = resource.concurrency.filter(|c| *c > 0)?;
    Some((f64::from(places), "concurrency".into()))
}

/// Returns the largest bytes per nanosecond over [`WINDOW_NS`] of busy time, or over all of it if that is
/// more; `None` with less busy time, or without bytes.
fn best_rate(served: &[&Demand]) -> Option<f64> {
    let curve = Curve::of(served);
    let (busy, bytes) = *curve.points.last()?;
    if busy < WINDOW_NS || bytes <= 0.0 {
        return None;
    }
    // The bytes in a sliding window are piecewise linear in its position, with kinks where an edge of the
    // window meets a point of the curve. The maximum is at one of those.
    let starts = curve.points.iter().map(|(at, _)| *at);
    let windows =
        starts.flat_map(|at| [at, at - WINDOW_NS]).filter(|at| *at >= 0.0 && at + WINDOW_NS <= busy);
    let best = windows.map(|at| curve.bytes_by(at + WINDOW_NS) - curve.bytes_by(at));
    let best = best.fold(0.0, f64::max) / WINDOW_NS;
    Some(best.max(bytes / busy))
}

/// Bytes served by a resource up to each instant of its busy time; linear between points.
struct Curve {
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn of(served: &[&Demand]) -> Curve {
        let mut edges: Vec<Edge> = Vec::with_capacity(served.len() * 2);
        served.iter().for_each(|d| add(&mut edges, (d.start_ns, d.end_ns), d.amount));
        edges.sort_by_key(|(at, ..)| *at);
        let mut points = vec![(0.0, 0.0)];
        let (mut busy, mut bytes) = (0.0, 0.0);
        for step in steps(&edges).filter(|step| step.count > 0 && step.until_ns > step.from_ns) {
            busy += step.length_ns();
            bytes += step.rate * step.length_ns();
            points.push((busy, bytes));
        }
        Curve { points }
    }

    fn bytes_by(&self, at: f64) -> f64 {
        let next = self.points.partition_point(|(t, _)| *t < at);
        match (next.checked_sub(1).and_then(|p| self.points.get(p)), self.points.get(next)) {
            (Some((t0, b0)), Some((t1, b1))) => b0 + (b1 - b0) * (at - t0) / (t1 - t0),
            (Some((_, b)), None) | (None, Some((_, b))) => *b,
            (None, None) => 0.0,
        }
    }
}
