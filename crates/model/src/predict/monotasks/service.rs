//! The service model: how long a monotask runs.
//!
//! A resource is a curve, the total rate by concurrency, shared equally; a monotask is a demand. Rates
//! are per nanosecond, in the resource's unit:
//!
//! | resource | demand | total rate of `n` concurrent monotasks |
//! |---|---|---|
//! | cores, slots | nanoseconds of an undisturbed core | `n`, less the slowdown of busy cores by each
//! other; at most the quota |
//! | disks, links, stores | bytes | the capacity if it was set or probed; else the rate observed for `n`
//! |
//! | resources with unmeasured bytes | nanoseconds of service | `n`: each at its recorded pace |
//!
//! The observed rate for `n` is the bytes moved while `n` monotasks ran, over that time. The curve is
//! linear between observed values, and constant beyond them.
//!
//! A resource may accumulate credit while idle and serve a burst at once (a pacer that catches up, a
//! throttle that counts in slices). The credit is the largest excess of a busy period's bytes, over the
//! rate, above its length.
//!
//! If one monotask that spills moves fewer bytes per second to a disk whose capacity was not set than one that reads from it,
//! the rest of its time is its own: others use the disk meanwhile, and a faster disk does not shorten it. Otherwise, a prediction
//! without spilling would read at the mean rate of both.
//!
//! The adaptive controller climbs here as it does live, but never past the concurrency observed in the
//! trace: where doubling hardly matters a tie decides, and ties can fall differently here.
//!
//! Busy cores slow each other (shared caches, memory, hyperthreads). The trace shows by how much only
//! where the same stage computed with more and with fewer busy cores: the time per input byte then
//! differs. Otherwise no slowdown is assumed, and the answer says so.

use std::collections::BTreeMap;

use pellucid_trace::{Phase, Trace, kind};

use super::curve::{ConcurrencyProfile, Curve, ObservedRate, edges, write_cost};
use crate::index::{Ix, MachineIx, ResourceIx, Table};
use crate::monotasks::capacity::Capacity;
use crate::monotasks::demand::{Demands, in_time, service, under_quota};
use crate::monotasks::timeline::{Edge, steps};
use crate::numbers::ratio;

/// Shorter pauses do not end a busy period.
const PAUSE_NS: u64 = 2_000_000;
/// Maximum credit; a larger value means that the capacity is wrong.
const MAX_CREDIT_NS: f64 = 200e6;
/// Minimum degrees of freedom, and maximum standard error, to estimate a slowdown.
const MIN_DEGREES_OF_FREEDOM: f64 = 8.0;
const MAX_SLOWDOWN_ERROR: f64 = 0.03;
/// Maximum compute monotasks used for the estimate, taken evenly over the trace.
const MAX_SLOWDOWN_SAMPLE: usize = 20_000;
/// Maximum multitasks that fetch concurrently (monotasks-sosp17 §3.3), as in the engine.
const FETCHING_MULTITASKS: u32 = 4;

/// A resource in the simulation.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub name: String,
    pub kind: String,
    pub machine: MachineIx,
    /// True if it is measured in time of cores or slots.
    pub timed: bool,
    /// True if bytes were not measured, so that each monotask has its own pace.
    pub own_pace: bool,
    /// Maximum concurrent monotasks.
    pub max_concurrency: u32,
    /// True if the scheduler tunes the concurrency, from `min_concurrency` to `max_concurrency`.
    pub adapts: bool,
    pub min_concurrency: u32,
    /// Number of multitasks whose fetches may run concurrently.
    pub multitasks_at_once: Option<u32>,
    pub capacity: Capacity,
    pub curve: Curve,
    /// Credit after a rest, as time of the resource.
    pub credit_ns: f64,
    /// Slowdown of a busy core per other busy core; `None` if unknown.
    pub slowdown: Option<f64>,
    /// The link that its bytes cross.
    pub link: Option<ResourceIx>,
    /// Time of a spilled byte beside that of the disk.
    pub spill_ns: f64,
    /// For cores: the work done by each change of the number of busy cores.
    done: Vec<(u64, f64)>,
}

impl Service {
    /// Returns a store or disk that the trace did not use, with the rates of a probe.
    pub fn probed(name: &str, kind: &str, machine: MachineIx, curve: Curve, max_concurrency: u32) -> Service {
        // The engine tunes from 2 up, and never past the probe's choice.
        let adapts = max_concurrency > 2;
        Service {
            name: name.to_string(),
            kind: kind.to_string(),
            machine,
            timed: false,
            own_pace: false,
            max_concurrency: max_concurrency.max(1),
            adapts,
            min_concurrency: if adapts { 2 } else { 1 },
            multitasks_at_once: (kind == pellucid_trace::kind::STORE).then_some(FETCHING_MULTITASKS),
            capacity: Capacity { rate: Some(curve.max), from: Some("probed".into()) },
            curve,
            credit_ns: 0.0,
            slowdown: None,
            link: None,
            spill_ns: 0.0,
            done: Vec::new(),
        }
    }

    /// Returns the work of a monotask that ran from `start_ns` to `end_ns`.
    pub fn work(&self, bytes: Option<f64>, start_ns: u64, end_ns: u64) -> f64 {
        let took = (end_ns - start_ns) as f64;
        match bytes {
            Some(bytes) if !self.timed && !self.own_pace => bytes,
            _ if self.slowdown.is_some_and(|s| s > 0.0) => self.done_by(end_ns) - self.done_by(start_ns),
            _ => took,
        }
    }

    /// Returns the work that one busy core would have done from the trace's origin to `at`.
    fn done_by(&self, at: u64) -> f64 {
        let next = self.done.partition_point(|(t, _)| *t <= at);
        let Some(last) = next.checked_sub(1).map(|ix| self.done[ix]) else { return at as f64 };
        match self.done.get(next) {
            Some(after) => {
                let share = (at - last.0) as f64 / (after.0 - last.0) as f64;
                last.1 + (after.1 - last.1) * share
            }
            None => last.1 + (at - last.0) as f64,
        }
    }
}

/// Returns the speed of each of `n` busy cores, relative to an undisturbed one.
pub(crate) fn speed(slowdown: f64, n: u32) -> f64 {
    1.0 / (1.0 + slowdown * f64::from(n.saturating_sub(1)))
}

/// Returns the curve of `cores` cores that slow each other.
pub(crate) fn core_curve(cores: f64, slowdown: f64) -> Curve {
    let most = cores.ceil().max(1.0) as u32;
    let points = (1..=most.min(1024)).map(|n| (f64::from(n), f64::from(n) * speed(slowdown, n)));
    let mut curve = Curve::through(points.collect());
    // A fraction of a core is a quota of time that threads share.
    curve.max = curve.max.min(cores * speed(slowdown, most));
    curve
}

/// Returns the minimum of a tuned concurrency; `None` if it is fixed. Traces of version 1.0 do not record
/// it; the engine that wrote them tuned flash up to 8 and stores up to 64, from 2.
fn min_concurrency(trace: &Trace, resource: &pellucid_trace::Resource) -> Option<u32> {
    let header = trace.header.as_ref()?;
    let old = header.format == "pellucid.trace/1.0" && header.producer == "engine";
    let tuned = match resource.kind.as_str() {
        kind::DISK => resource.concurrency == Some(8),
        kind::STORE | kind::NETWORK => resource.concurrency == Some(64),
        _ => false,
    };
    resource.concurrency_min.or((old && tuned).then_some(2))
}

/// Returns the services of a trace's resources.
pub(crate) fn services(
    trace: &Trace,
    demands: &Demands,
    capacities: &Table<ResourceIx, Capacity>,
) -> Table<ResourceIx, Service> {
    let mut ran = Table::<ResourceIx, _>::filled(trace.resources.len(), Vec::new());
    for monotask in &trace.monotasks {
        if let Some(of_resource) = ran.get_mut(ResourceIx(monotask.resource)) {
            let (start, end) = service(monotask);
            of_resource.push((start, end, demands.bytes(monotask).unwrap_or(0.0), monotask.phase));
        }
    }
    let each = ran.rows().zip(&trace.resources).map(|((ix, ran), resource)| {
        let timed = in_time(&resource.kind);
        let own_pace = !timed && demands.unmeasured[ix];
        let is_measured_disk = resource.kind == kind::DISK && resource.capacity.is_none() && !own_pace;
        let of = |phase| edges(&of_phase(ran, phase));
        let spill_cost = if is_measured_disk { write_cost(&of(Phase::Read), &of(Phase::Spill)) } else { 1.0 };
        let work = |(start, end, bytes, phase): &(u64, u64, f64, Phase)| {
            (*start, *end, if *phase == Phase::Spill { bytes * spill_cost } else { *bytes })
        };
        let ran: &[(u64, u64, f64)] = &ran.iter().map(work).collect::<Vec<_>>();
        let edges = edges(ran);
        let peak = peak_concurrency(&edges);
        let min_concurrency = min_concurrency(trace, resource).unwrap_or(0);
        let places = capacities[ix].rate.filter(|_| timed).map(|rate| rate.ceil() as u32);
        let max_concurrency = resource.concurrency.or(places).unwrap_or(peak).max(1);
        let adapts = min_concurrency > 0 && min_concurrency < max_concurrency;
        let max_concurrency =
            if adapts { max_concurrency.min(peak).max(min_concurrency + 1) } else { max_concurrency };
        let set = resource.capacity.and(capacities[ix].rate).filter(|_| !timed);
        let slowdown = if resource.kind == kind::CPU { slowdown(trace, ix, &edges) } else { None };
        let (curve, capacity) = if timed {
            let quota = capacities[ix].rate.filter(|_| under_quota(resource));
            let cores = quota.unwrap_or(f64::from(max_concurrency));
            (core_curve(cores, slowdown.unwrap_or(0.0)), capacities[ix].clone())
        } else if own_pace {
            (Curve::own_pace(), capacities[ix].clone())
        } else {
            observed(trace, ix, &edges, spill_cost, &capacities[ix])
        };
        let spill_ns = ratio(spill_cost - 1.0, curve.max).unwrap_or(0.0);
        let fetches = matches!(resource.kind.as_str(), kind::STORE | kind::NETWORK);
        Service {
            name: resource.name.clone(),
            kind: resource.kind.clone(),
            machine: MachineIx(resource.machine),
            timed,
            own_pace,
            max_concurrency,
            adapts,
            min_concurrency: min_concurrency.max(1),
            multitasks_at_once: fetches.then_some(FETCHING_MULTITASKS),
            curve,
            capacity,
            credit_ns: set.map_or(0.0, |rate| credit_ns(ran, rate)),
            done: done(&edges, slowdown.unwrap_or(0.0)),
            slowdown,
            link: resource.link.map(ResourceIx).filter(|link| *link != ix),
            spill_ns,
        }
    });
    each.collect()
}

/// Returns the monotasks of a phase.
fn of_phase(ran: &[(u64, u64, f64, Phase)], phase: Phase) -> Vec<(u64, u64, f64)> {
    let chosen = ran.iter().filter(|(.., of)| *of == phase);
    chosen.map(|(start, end, bytes, _)| (*start, *end, *bytes)).collect()
}

/// Returns the largest concurrency.
fn peak_concurrency(edges: &[Edge]) -> u32 {
    steps(edges).map(|step| step.count).max().unwrap_or(1).max(1) as u32
}

/// Returns the curve and capacity of a resource that moves bytes: as set or probed, else as observed.
fn observed(
    trace: &Trace,
    ix: ResourceIx,
    edges: &[Edge],
    write_cost: f64,
    capacity: &Capacity,
) -> (Curve, Capacity) {
    if let (Some(_), Some(rate)) = (trace.resources[ix.at()].capacity, capacity.rate) {
        return (Curve::level(rate), capacity.clone());
    }
    match ObservedRate::of(trace, ix, edges, write_cost) {
        ObservedRate::Constant(rate) => {
            let known = Capacity { rate: Some(rate), from: Some("seen".into()) };
            (Curve::level(rate), known)
        }
        ObservedRate::ByConcurrency(curve) => (curve, capacity.clone()),
        ObservedRate::Unknown if edges.is_empty() => {
            (capacity.rate.map_or_else(Curve::unknown, Curve::level), capacity.clone())
        }
        ObservedRate::Unknown => (Curve::level(capacity.rate.unwrap_or(1.0)), capacity.clone()),
    }
}

/// Returns the credit after a rest, as time at `rate`.
fn credit_ns(ran: &[(u64, u64, f64)], rate: f64) -> f64 {
    let mut ran = ran.to_vec();
    ran.sort_unstable_by_key(|r| (r.0, r.1));
    // By busy period: start, end, bytes.
    let mut stretches: Vec<(u64, u64, f64)> = Vec::new();
    for (start, end, bytes) in ran {
        match stretches.last_mut() {
            Some(last) if start <= last.1.saturating_add(PAUSE_NS) => {
                last.1 = last.1.max(end);
                last.2 += bytes;
            }
            _ => stretches.push((start, end, bytes)),
        }
    }
    let credits = stretches.iter().map(|s| s.2 / rate - (s.1 - s.0) as f64);
    let most = credits.fold(0.0, f64::max);
    if most > MAX_CREDIT_NS { 0.0 } else { most }
}

/// Returns the work one busy core had done by each change of the number of busy cores.
fn done(edges: &[Edge], slowdown: f64) -> Vec<(u64, f64)> {
    if slowdown <= 0.0 {
        return Vec::new();
    }
    let mut points: Vec<(u64, f64)> = Vec::with_capacity(edges.len());
    let mut work = 0.0;
    for step in steps(edges) {
        work += step.length_ns() * speed(slowdown, step.count.max(0) as u32);
        match points.last_mut().filter(|p| p.0 == step.until_ns) {
            Some(point) => point.1 = work,
            None => points.push((step.until_ns, work)),
        }
    }
    points
}

/// Estimates the slowdown of a busy core per other busy core; `None` where the trace does not show it.
/// The logarithm of core time per input byte is regressed on the number of other busy cores, with a
/// separate level for each stage. A slope with a standard error above [`MAX_SLOWDOWN_ERROR`] is discarded.
fn slowdown(trace: &Trace, resource: ResourceIx, edges: &[Edge]) -> Option<f64> {
    let of_cores = trace.monotasks.iter().filter(|m| ResourceIx(m.resource) == resource);
    let computes: Vec<_> = of_cores.filter(|m| m.phase == Phase::Compute && m.service_ns > 0).collect();
    let busy = ConcurrencyProfile::of(edges);
    let mut by_stage: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    let every = computes.len().div_ceil(MAX_SLOWDOWN_SAMPLE).max(1);
    for m in computes.into_iter().step_by(every) {
        let input = m.bytes.filter(|b| *b >= 100_000).zip(m.cpu_ns.filter(|ns| *ns >= 1_000_000));
        let (Some((bytes, cpu_ns)), Some(task)) = (input, trace.multitasks.get(m.multitask as usize)) else {
            continue;
        };
        let others = (busy.mean(service(m).0, service(m).1) - 1.0).max(0.0);
        by_stage.entry(task.stage).or_default().push((others, (cpu_ns as f64 / bytes as f64).ln()));
    }
    let (mut xx, mut xy, mut yy, mut free) = (0.0, 0.0, 0.0, -1.0);
    for points in by_stage.values() {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        for point in points {
            xx += (point.0 - x).powi(2);
            xy += (point.0 - x) * (point.1 - y);
            yy += (point.1 - y).powi(2);
        }
        free += n - 1.0;
    }
    let slope = ratio(xy, xx)?;
    let rest = (yy - slope * xy).max(0.0);
    let error = (ratio(rest, free)? / xx).sqrt();
    (free >= MIN_DEGREES_OF_FREEDOM && error <= MAX_SLOWDOWN_ERROR)
        .then(|| (slope.exp() - 1.0).clamp(0.0, 1.0))
}
