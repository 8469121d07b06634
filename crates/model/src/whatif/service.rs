//! How long a monotask runs: the service model.
//!
//! A resource is a curve, total rate against how many run at once, shared equally; a
//! monotask is a demand. Rates are per nanosecond, of whatever the resource is
//! measured in:
//!
//! | resource | demand | total rate of `n` at once |
//! |---|---|---|
//! | cores, slots | nanoseconds of an undisturbed core | `n`, less what busy cores take from each other; a quota at most |
//! | disks, links, stores | bytes | the capacity, if it was set or probed; else what the trace shows for `n` |
//! | where bytes were not measured | nanoseconds of service | `n`: each at the pace that it had |
//!
//! What the trace shows for `n` at once is the bytes that passed while `n` ran, over
//! the time for which they did. Between values that were seen the curve is straight,
//! beyond them level.
//!
//! A resource that was idle may let through at once what would have passed in a little
//! while (a pacer that catches up, a throttle that counts in slices). How much is the most
//! that the bytes of a busy stretch, over the rate, exceed its length by.
//!
//! The adaptive controller climbs here as it does live, but never past what the trace
//! shows: where doubling hardly matters, a tie decides, and ties fall otherwise here.
//!
//! Busy cores slow each other (shared caches, memory, hyperthreads). The trace shows by
//! how much only where the same stage computed with more and with fewer others: what a byte
//! of input took then differs. Else it is assumed that they do not, which the answer says.

use std::collections::BTreeMap;

use pellucid_trace::{Phase, Trace, kind};

use super::curve::{Curve, Edge, Shown, Together, edges};
use crate::capacity::Capacity;
use crate::demand::{Demands, in_time, service, under_quota};

/// Pauses shorter than this do not end a busy stretch.
const PAUSE_NS: u64 = 2_000_000;
/// More credit than this is none: the capacity is wrong.
const MAX_CREDIT_NS: f64 = 200e6;
/// Least degrees of freedom, and largest standard error, for a slowdown to be told.
const SLOWDOWN_MONOTASKS: f64 = 8.0;
const SLOWDOWN_ERROR: f64 = 0.03;
/// Compute monotasks that it is told from, evenly over the trace: more would say the same.
const SLOWDOWN_SAMPLE: usize = 20_000;
/// Fetches of at most this many multitasks at once (monotasks-sosp17 §3.3), as the engine limits them.
const FETCHING_MULTITASKS: u32 = 4;

/// A resource as the simulation runs it.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub name: String,
    pub kind: String,
    pub machine: u32,
    /// Measured in time of cores or slots.
    pub timed: bool,
    /// Bytes were not measured: each monotask has its own pace.
    pub own_pace: bool,
    /// Most monotasks at once.
    pub at_once: u32,
    /// The scheduler tunes how many run at once, from `at_least` to `at_once`.
    pub adapts: bool,
    pub at_least: u32,
    /// Of how many multitasks fetches may run at once.
    pub multitasks_at_once: Option<u32>,
    pub capacity: Capacity,
    pub curve: Curve,
    /// What passes at once after a rest, as time of the resource.
    pub credit_ns: f64,
    /// What a busy core loses for each other one that is busy; `None`: not known.
    pub slowdown: Option<f64>,
    /// The link that its bytes cross.
    pub link: Option<u32>,
    /// For cores: the work that they had done by each change of how many were busy.
    done: Vec<(u64, f64)>,
}

impl Service {
    /// A store, or a disk, that no monotask of the trace ran on: as a probe found it.
    pub fn probed(name: &str, kind: &str, machine: u32, curve: Curve, at_once: u32) -> Service {
        // As the engine tunes it, from two on; beyond what pays it never goes.
        let adapts = at_once > 2;
        Service {
            name: name.to_string(),
            kind: kind.to_string(),
            machine,
            timed: false,
            own_pace: false,
            at_once: at_once.max(1),
            adapts,
            at_least: if adapts { 2 } else { 1 },
            multitasks_at_once: (kind == pellucid_trace::kind::STORE).then_some(FETCHING_MULTITASKS),
            capacity: Capacity { rate: Some(curve.most), from: Some("probed".into()) },
            curve,
            credit_ns: 0.0,
            slowdown: None,
            link: None,
            done: Vec::new(),
        }
    }

    /// The work of a monotask that ran from `start_ns` to `end_ns`.
    pub fn work(&self, bytes: Option<f64>, start_ns: u64, end_ns: u64) -> f64 {
        let took = (end_ns - start_ns) as f64;
        match bytes {
            Some(bytes) if !self.timed && !self.own_pace => bytes,
            _ if self.slowdown.is_some_and(|s| s > 0.0) => self.done_by(end_ns) - self.done_by(start_ns),
            _ => took,
        }
    }

    /// Work that one busy core would have done from the trace's origin to `at`.
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

/// Share of an undisturbed core's speed that each of `n` busy ones has.
pub(crate) fn speed(slowdown: f64, n: u32) -> f64 {
    1.0 / (1.0 + slowdown * f64::from(n.saturating_sub(1)))
}

/// The curve of `cores` cores of which each busy one slows the others.
pub(crate) fn core_curve(cores: f64, slowdown: f64) -> Curve {
    let most = cores.ceil().max(1.0) as u32;
    let points = (1..=most.min(1024)).map(|n| (f64::from(n), f64::from(n) * speed(slowdown, n)));
    let mut curve = Curve::through(points.collect());
    // Cores beyond the whole ones are a quota of time, that threads share.
    curve.most = curve.most.min(cores * speed(slowdown, most));
    curve
}

/// The least that a tuned concurrency may be; `None`: it is fixed. Traces of version 1.0 do
/// not say; the engine that wrote them tuned flash up to 8 and stores up to 64, from 2.
fn at_least(trace: &Trace, resource: &pellucid_trace::Resource) -> Option<u32> {
    let header = trace.header.as_ref()?;
    let old = header.format == "pellucid.trace/1.0" && header.producer == "engine";
    let tuned = match resource.kind.as_str() {
        kind::DISK => resource.concurrency == Some(8),
        kind::STORE | kind::NETWORK => resource.concurrency == Some(64),
        _ => false,
    };
    resource.concurrency_min.or((old && tuned).then_some(2))
}

/// The services of a trace's resources, by index.
pub(crate) fn services(trace: &Trace, demands: &Demands, capacities: &[Capacity]) -> Vec<Service> {
    let mut ran = vec![Vec::new(); trace.resources.len()];
    for monotask in &trace.monotasks {
        if let Some(of_resource) = ran.get_mut(monotask.resource as usize) {
            let (start, end) = service(monotask);
            of_resource.push((start, end, demands.bytes(monotask).unwrap_or(0.0)));
        }
    }
    let each = trace.resources.iter().enumerate().map(|(ix, resource)| {
        let timed = in_time(&resource.kind);
        let edges = edges(&ran[ix]);
        let most_seen = most_at_once(&edges);
        let at_least = at_least(trace, resource).unwrap_or(0);
        let places = capacities[ix].rate.filter(|_| timed).map(|rate| rate.ceil() as u32);
        let at_once = resource.concurrency.or(places).unwrap_or(most_seen).max(1);
        let adapts = at_least > 0 && at_least < at_once;
        let at_once = if adapts { at_once.min(most_seen).max(at_least + 1) } else { at_once };
        let set = resource.capacity.and(capacities[ix].rate).filter(|_| !timed);
        let own_pace = !timed && demands.unmeasured[ix];
        let slowdown = if resource.kind == kind::CPU { slowdown(trace, ix, &edges) } else { None };
        let (curve, capacity) = if timed {
            let quota = capacities[ix].rate.filter(|_| under_quota(resource));
            let cores = quota.unwrap_or(f64::from(at_once));
            (core_curve(cores, slowdown.unwrap_or(0.0)), capacities[ix].clone())
        } else if own_pace {
            (Curve::each(), capacities[ix].clone())
        } else {
            shown(trace, ix, &edges, &capacities[ix])
        };
        let fetches = matches!(resource.kind.as_str(), kind::STORE | kind::NETWORK);
        Service {
            name: resource.name.clone(),
            kind: resource.kind.clone(),
            machine: resource.machine,
            timed,
            own_pace,
            at_once,
            adapts,
            at_least: at_least.max(1),
            multitasks_at_once: fetches.then_some(FETCHING_MULTITASKS),
            curve,
            capacity,
            credit_ns: set.map_or(0.0, |rate| credit_ns(&ran[ix], rate)),
            done: done(&edges, slowdown.unwrap_or(0.0)),
            slowdown,
            link: resource.link.filter(|l| *l as usize != ix),
        }
    });
    each.collect()
}

/// The most of them at once.
fn most_at_once(edges: &[Edge]) -> u32 {
    let mut running = 0;
    let most = edges.iter().map(|(_, count, _)| {
        running += count;
        running
    });
    most.max().unwrap_or(1).max(1) as u32
}

/// The curve of a resource that moves bytes, and its capacity: what was set or probed, else
/// what the trace shows.
fn shown(trace: &Trace, ix: usize, edges: &[Edge], capacity: &Capacity) -> (Curve, Capacity) {
    if let (Some(_), Some(rate)) = (trace.resources[ix].capacity, capacity.rate) {
        return (Curve::level(rate), capacity.clone());
    }
    match Shown::of(trace, ix, edges) {
        Shown::Level(rate) => {
            let known = Capacity { rate: Some(rate), from: Some("seen".into()) };
            (Curve::level(rate), known)
        }
        Shown::By(curve) => (curve, capacity.clone()),
        Shown::Nothing if edges.is_empty() => {
            (capacity.rate.map_or_else(Curve::unknown, Curve::level), capacity.clone())
        }
        Shown::Nothing => (Curve::level(capacity.rate.unwrap_or(1.0)), capacity.clone()),
    }
}

/// What passes at once after a rest, as time at `rate`.
fn credit_ns(ran: &[(u64, u64, f64)], rate: f64) -> f64 {
    let mut ran = ran.to_vec();
    ran.sort_unstable_by_key(|r| (r.0, r.1));
    // By busy stretch: start, end, bytes.
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

/// The work that one busy core had done by each change of how many were busy.
fn done(edges: &[Edge], slowdown: f64) -> Vec<(u64, f64)> {
    if slowdown <= 0.0 {
        return Vec::new();
    }
    let mut points: Vec<(u64, f64)> = Vec::with_capacity(edges.len());
    let (mut running, mut work, mut last) = (0_i32, 0.0, 0);
    for &(at, count, _) in edges {
        work += (at - last) as f64 * speed(slowdown, running.max(0) as u32);
        match points.last_mut().filter(|p| p.0 == at) {
            Some(point) => point.1 = work,
            None => points.push((at, work)),
        }
        running += count;
        last = at;
    }
    points
}

/// What a busy core loses for each other one that is busy; `None` where the trace does not
/// show it. Core time of a byte of input, as its logarithm, is regressed on how many other cores
/// were busy meanwhile, each stage with a level of its own; a slope whose standard error is
/// over [`SLOWDOWN_ERROR`] shows nothing.
fn slowdown(trace: &Trace, resource: usize, edges: &[Edge]) -> Option<f64> {
    let of_cores = trace.monotasks.iter().filter(|m| m.resource as usize == resource);
    let computes: Vec<_> = of_cores.filter(|m| m.phase == Phase::Compute && m.service_ns > 0).collect();
    let busy = Together::of(edges);
    let mut by_stage: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    let every = computes.len().div_ceil(SLOWDOWN_SAMPLE).max(1);
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
    let slope = crate::ratio(xy, xx)?;
    let rest = (yy - slope * xy).max(0.0);
    let error = (crate::ratio(rest, free)? / xx).sqrt();
    (free >= SLOWDOWN_MONOTASKS && error <= SLOWDOWN_ERROR).then(|| (slope.exp() - 1.0).clamp(0.0, 1.0))
}

/// The middle of values; 0 of none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}
