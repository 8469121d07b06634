//! The total rate of a resource as a function of concurrency, as observed in a trace.
//!
//! There are two sources. A device's counters, sampled during the job, give the bytes of each interval
//! for all concurrent monotasks; they are used if they agree with the bytes that monotasks moved.
//! Otherwise each monotask's bytes are spread evenly over its service time, which blurs the curve: of two
//! that start together, the one served first appears fast and the other slow.
//!
//! If the rate varies little with concurrency, a constant is used: another run may have other
//! concurrencies, and a spurious difference would make it slower or faster. With counters the rate must
//! vary little everywhere. With blurred rates it must do so for most of the time, since bytes wrongly
//! attributed to one concurrency are missing at another.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

use crate::index::ResourceIx;
use crate::monotasks::timeline::{Edge, add, steps};
use crate::numbers::ratio;

/// Minimum time at a concurrency for its rate to count.
const MIN_TIME_NS: f64 = 20e6;
/// The same for counters, each interval of which has its own error; and for all intervals together.
const MIN_COUNTED_NS: f64 = 300e6;
/// Rates within this of their mean count as equal.
const MAX_VARIATION: f64 = 0.1;
/// Relative difference from which the counters are taken to include other processes' bytes.
const MAX_FOREIGN_SHARE: f64 = 0.1;

/// The total rate by concurrency: points by ascending concurrency.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    points: Vec<(f64, f64)>,
    /// Upper limit of the total rate.
    pub max: f64,
}

/// Bytes per nanosecond that no resource reaches: the rate of a resource of unknown speed.
const UNLIMITED: f64 = 1e9;

impl Curve {
    /// Returns the curve of an unmeasured link on which nothing ran by itself: it never limits.
    pub fn unknown() -> Curve {
        Curve::level(UNLIMITED)
    }

    /// Returns true if the resource's rate is known.
    pub fn is_known(&self) -> bool {
        self.max < UNLIMITED
    }

    /// Returns a curve with the same rate for every concurrency.
    pub fn level(rate: f64) -> Curve {
        Curve { points: vec![(1.0, rate)], max: rate }
    }

    /// Returns a curve on which each monotask runs at its own pace of 1.
    pub fn own_pace() -> Curve {
        Curve { points: vec![(1.0, 1.0), (1e9, 1e9)], max: f64::INFINITY }
    }

    /// Returns a curve through points with ascending concurrency.
    pub fn through(points: Vec<(f64, f64)>) -> Curve {
        let max = points.iter().map(|p| p.1).fold(0.0, f64::max);
        Curve { points, max }
    }

    /// Returns the total rate of `n` concurrent monotasks.
    pub fn total(&self, n: u32) -> f64 {
        let n = f64::from(n);
        let at = self.points.partition_point(|p| p.0 < n);
        let rate = match (at.checked_sub(1).and_then(|a| self.points.get(a)), self.points.get(at)) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (n - a.0) / (b.0 - a.0),
            (None, Some(only)) | (Some(only), None) => only.1,
            (None, None) => 0.0,
        };
        rate.min(self.max)
    }

    /// Returns the curve scaled by a factor.
    pub fn times(&self, factor: f64) -> Curve {
        let points = self.points.iter().map(|p| (p.0, p.1 * factor)).collect();
        Curve { points, max: self.max * factor }
    }
}

/// The observed rate of a resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ObservedRate {
    /// The same total rate for every concurrency, in bytes per nanosecond.
    Constant(f64),
    /// A rate that depends on concurrency.
    ByConcurrency(Curve),
    /// No bytes were observed.
    Unknown,
}

impl ObservedRate {
    /// Returns the observed rate of resource `ix`, given its [`edges`], in which a written byte counts as `write_cost` bytes.
    pub fn of(trace: &Trace, ix: ResourceIx, edges: &[Edge], write_cost: f64) -> ObservedRate {
        let by_concurrency = by_concurrency(edges);
        let (ns, bytes) = by_concurrency.iter().fold((0.0, 0.0), |sum, s| (sum.0 + s.1, sum.1 + s.2));
        // The mean over time with work, independent of the sampler's clock.
        let Some(mean) = ratio(bytes, ns).filter(|mean| *mean > 0.0) else {
            return ObservedRate::Unknown;
        };
        let counted = counted(trace, ix, edges, write_cost);
        let blurred = counted.is_none();
        let (by_number, min_ns) =
            counted.map_or((by_concurrency, MIN_TIME_NS), |counted| (counted, MIN_COUNTED_NS));
        let enough = by_number.iter().filter(|(n, ns, bytes)| *n > 0 && *ns >= min_ns && *bytes > 0.0);
        let points: Vec<(f64, f64)> = enough.map(|(n, ns, bytes)| (f64::from(*n), bytes / ns)).collect();
        let off = |rate: f64| (rate / mean - 1.0).abs();
        let usual = || by_number.iter().map(|(_, ns, bytes)| ns * off(bytes / ns.max(1.0))).sum::<f64>() / ns;
        if points.iter().all(|(_, rate)| off(*rate) <= MAX_VARIATION) || (blurred && usual() <= MAX_VARIATION)
        {
            return ObservedRate::Constant(mean);
        }
        ObservedRate::ByConcurrency(Curve::through(points))
    }
}

/// Returns by rounded concurrency the time and the bytes that the device counted. Only intervals with
/// work throughout count; `None` if there are too few, or if others used the device.
fn counted(trace: &Trace, ix: ResourceIx, edges: &[Edge], write_cost: f64) -> Option<Vec<(u32, f64, f64)>> {
    let profile = ConcurrencyProfile::of(edges);
    let (mut found, mut ours): (BTreeMap<u32, (f64, f64)>, f64) = (BTreeMap::new(), 0.0);
    for sample in trace.utilization_samples.iter().filter(|s| ResourceIx(s.resource) == ix) {
        let (Some(read), Some(write)) = (sample.read_bytes, sample.write_bytes) else { continue };
        let start = sample.at_ns.saturating_sub(sample.interval_ns);
        if sample.interval_ns == 0 || profile.min(start, sample.at_ns) < 1 {
            continue;
        }
        let sums = found.entry(profile.mean(start, sample.at_ns).round() as u32).or_default();
        sums.0 += sample.interval_ns as f64;
        sums.1 += read as f64 + write as f64 * write_cost;
        ours += profile.bytes(start, sample.at_ns);
    }
    let (ns, bytes) = found.values().fold((0.0, 0.0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
    let ours_alone = ratio(bytes, ours).is_some_and(|r| (r - 1.0).abs() <= MAX_FOREIGN_SHARE);
    (ns >= MIN_COUNTED_NS && ours_alone)
        .then(|| found.into_iter().map(|(n, (ns, bytes))| (n, ns, bytes)).collect())
}

/// Returns the time that a written byte takes, relative to one that is read, with equally many monotasks of one kind at once; 1
/// if it takes no more, or the trace does not show it.
pub(crate) fn write_cost(reads: &[Edge], writes: &[Edge]) -> f64 {
    let mut edges: Vec<(&Edge, usize)> =
        reads.iter().map(|edge| (edge, 0)).chain(writes.iter().map(|edge| (edge, 1))).collect();
    edges.sort_by_key(|(edge, _)| (edge.0, edge.1));
    // By concurrency, time and bytes of reads alone, and of writes alone.
    let mut alone: BTreeMap<i32, [(f64, f64); 2]> = BTreeMap::new();
    let (mut running, mut rate, mut last) = ([0, 0], [0.0, 0.0], 0);
    for (&(at, count, change), kind) in edges {
        for one in [0, 1] {
            if running[one] > 0 && running[1 - one] == 0 {
                let sums = &mut alone.entry(running[one]).or_default()[one];
                sums.0 += (at - last) as f64;
                sums.1 += f64::max(rate[one], 0.0) * (at - last) as f64;
            }
        }
        running[kind] += count;
        rate[kind] = if running[kind] == 0 { 0.0 } else { rate[kind] + change };
        last = at;
    }
    let both = alone.into_values().filter(|sums| sums.iter().all(|(ns, _)| *ns >= MIN_COUNTED_NS));
    let longest =
        both.max_by(|one, other| f64::min(one[0].0, one[1].0).total_cmp(&f64::min(other[0].0, other[1].0)));
    let rates = longest.and_then(|[(read_ns, read), (written_ns, written)]| {
        ratio(read, read_ns).zip(ratio(written, written_ns))
    });
    let cost = rates.and_then(|(read, written)| ratio(read, written)).unwrap_or(1.0);
    if cost > 1.0 + MAX_VARIATION { cost } else { 1.0 }
}

/// Returns the edges of monotasks, given their start, end and bytes, sorted by time.
pub(crate) fn edges(ran: &[(u64, u64, f64)]) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(ran.len() * 2);
    ran.iter().for_each(|(start, end, bytes)| add(&mut edges, (*start, *end), *bytes));
    edges.sort_unstable_by_key(|e| (e.0, e.1));
    edges
}

/// Returns by concurrency the time and the bytes moved.
fn by_concurrency(edges: &[Edge]) -> Vec<(u32, f64, f64)> {
    let mut by_concurrency: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    let (mut running, mut rate, mut last) = (0_i32, 0.0, 0);
    for &(at, count, change) in edges {
        if running > 0 && at > last {
            let sums = by_concurrency.entry(running as u32).or_default();
            sums.0 += (at - last) as f64;
            sums.1 += f64::max(rate, 0.0) * (at - last) as f64;
        }
        running += count;
        rate = if running == 0 { 0.0 } else { rate + change };
        last = at;
    }
    by_concurrency.into_iter().map(|(n, (ns, bytes))| (n, ns, bytes)).collect()
}

/// Concurrency and bytes moved over time, each monotask's bytes spread evenly over its service.
pub(crate) struct ConcurrencyProfile {
    /// Time; the integral of the concurrency and the bytes up to it; concurrency and rate from then on.
    points: Vec<(u64, f64, f64, i32, f64)>,
}

impl ConcurrencyProfile {
    /// Builds the profile from [`edges`].
    pub fn of(edges: &[Edge]) -> ConcurrencyProfile {
        let (mut points, mut sum, mut bytes) = (Vec::with_capacity(edges.len() + 1), 0.0, 0.0);
        for step in steps(edges) {
            points.push((step.from_ns, sum, bytes, step.count, step.rate));
            sum += f64::from(step.count) * step.length_ns();
            bytes += step.rate * step.length_ns();
        }
        ConcurrencyProfile { points }
    }

    /// Returns the last change up to a time.
    fn before(&self, at: u64) -> Option<&(u64, f64, f64, i32, f64)> {
        self.points.partition_point(|p| p.0 <= at).checked_sub(1).map(|ix| &self.points[ix])
    }

    /// Returns the mean concurrency over an interval.
    pub fn mean(&self, start: u64, end: u64) -> f64 {
        let by = |at: u64| self.before(at).map_or(0.0, |p| p.1 + f64::from(p.3) * (at - p.0) as f64);
        (by(end) - by(start)) / (end - start).max(1) as f64
    }

    /// Returns the bytes moved within an interval.
    fn bytes(&self, start: u64, end: u64) -> f64 {
        let by = |at: u64| self.before(at).map_or(0.0, |p| p.2 + p.4 * (at - p.0) as f64);
        by(end) - by(start)
    }

    /// Returns the smallest concurrency within an interval.
    fn min(&self, start: u64, end: u64) -> i32 {
        let first = self.points.partition_point(|p| p.0 <= start);
        let until = self.points.partition_point(|p| p.0 < end).max(first);
        let within = self.points[first..until].iter().map(|p| p.3);
        // Of several changes at one instant only the last gives a concurrency that lasted.
        let at_start = self.before(start).map_or(0, |p| p.3);
        within.fold(at_start, i32::min)
    }
}

#[cfg(test)]
mod tests {
    use pellucid_trace::UtilizationSample;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Builds samples of resource 0, one per 100 ms, with these bytes.
    fn sampled(bytes: &[u64]) -> Trace {
        let sample = |(ix, read): (usize, &u64)| UtilizationSample {
            resource: 0,
            at_ns: (ix as u64 + 1) * 100 * MS,
            interval_ns: 100 * MS,
            busy_ns: None,
            own_busy_ns: None,
            read_bytes: Some(*read),
            write_bytes: Some(0),
        };
        let samples = bytes.iter().enumerate().map(sample).collect();
        Trace { utilization_samples: samples, ..Trace::default() }
    }

    /// Two start together and one is served first; then a third runs alone, as fast as both.
    const UNFAIR: [(u64, u64, f64); 3] =
        [(0, 300 * MS, 25e6), (0, 700 * MS, 45e6), (700 * MS, 1_000 * MS, 30e6)];

    #[test]
    fn counters_correct_rates_blurred_by_service_order() {
        let ObservedRate::ByConcurrency(blurred) =
            ObservedRate::of(&Trace::default(), ResourceIx(0), &edges(&UNFAIR), 1.0)
        else {
            panic!("nothing counted")
        };
        assert!(blurred.total(2) > 1.5 * blurred.total(1));
        let ObservedRate::Constant(rate) =
            ObservedRate::of(&sampled(&[10_000_000; 10]), ResourceIx(0), &edges(&UNFAIR), 1.0)
        else {
            panic!("counted")
        };
        assert!((rate - 0.1).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn counters_preserve_a_rising_curve() {
        let ran = [(0, 500 * MS, 10e6), (500 * MS, 1_000 * MS, 20e6), (500 * MS, 1_000 * MS, 20e6)];
        let counts = [2e6, 2e6, 2e6, 2e6, 2e6, 8e6, 8e6, 8e6, 8e6, 8e6].map(|b| b as u64);
        let ObservedRate::ByConcurrency(curve) =
            ObservedRate::of(&sampled(&counts), ResourceIx(0), &edges(&ran), 1.0)
        else {
            panic!("not level")
        };
        assert!((curve.total(1) - 0.02).abs() < 1e-9 && (curve.total(2) - 0.08).abs() < 1e-9);
    }

    #[test]
    fn counters_with_foreign_bytes_are_ignored() {
        let busy = sampled(&[15_000_000; 10]);
        assert_eq!(
            ObservedRate::of(&busy, ResourceIx(0), &edges(&UNFAIR), 1.0),
            ObservedRate::of(&Trace::default(), ResourceIx(0), &edges(&UNFAIR), 1.0)
        );
    }

    #[test]
    fn rate_is_unknown_without_bytes() {
        assert_eq!(
            ObservedRate::of(&Trace::default(), ResourceIx(0), &edges(&[(0, MS, 0.0)]), 1.0),
            ObservedRate::Unknown
        );
        assert_eq!(ObservedRate::of(&Trace::default(), ResourceIx(0), &[], 1.0), ObservedRate::Unknown);
    }

    /// One read of 100 MB/s, then one write of 50 MB/s, then both at once.
    #[test]
    fn cost_of_writes_is_that_of_equally_many_at_once() {
        let reads = [(0, 400 * MS, 40e6), (800 * MS, 900 * MS, 1e6)];
        let writes = [(400 * MS, 800 * MS, 20e6), (800 * MS, 900 * MS, 1e6)];
        assert_eq!(write_cost(&edges(&reads), &edges(&writes)), 2.0);
        // Two at once, too short a time, nearly alike, or only one kind.
        let two = [(400 * MS, 800 * MS, 10e6), (400 * MS, 800 * MS, 10e6)];
        assert_eq!(write_cost(&edges(&reads), &edges(&two)), 1.0);
        assert_eq!(write_cost(&edges(&reads), &edges(&[(400 * MS, 600 * MS, 10e6)])), 1.0);
        assert_eq!(write_cost(&edges(&reads), &edges(&[(400 * MS, 800 * MS, 38e6)])), 1.0);
        assert_eq!(write_cost(&edges(&reads), &[]), 1.0);
    }
}
