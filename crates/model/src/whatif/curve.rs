//! Total rate against how many monotasks run at once, as a trace shows it.
//!
//! Two sources. A device's own counters, sampled while the job ran, say what passed in each
//! interval, whoever of those at once it was for; they count where they agree with what the
//! monotasks moved. Without them each monotask's bytes are spread evenly over its service, which
//! blurs: of two that began together the one that was served first looks fast and the other slow.
//! Where the rate differs little between numbers at once, it is taken to be the same for all: a
//! job that is run again may have others of them at once, and a difference that is not real would
//! make it slower or faster. By counters it must differ little everywhere; where it is blurred, for
//! most of the time, since what one number at once gets too much of another lacks.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

/// Time for which `n` must have run at once for the rate then to count.
const SEEN_NS: f64 = 20e6;
/// The same by counters, of which each interval has its own error; and of all intervals together.
const COUNTED_NS: f64 = 300e6;
/// Rates within this of their mean are the same.
const LEVEL: f64 = 0.1;
/// Counters that differ from what monotasks moved by more count others' bytes too.
const OTHERS: f64 = 0.1;

/// Total rate against how many run at once: points by ascending number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    points: Vec<(f64, f64)>,
    /// Never more than this in total.
    pub most: f64,
}

/// Bytes per nanosecond that nothing reaches: of what nobody knows how fast it is.
const UNLIMITED: f64 = 1e9;

impl Curve {
    /// Of a link that nobody measured and on which nothing ran by itself: it never limits.
    pub fn unknown() -> Curve {
        Curve::level(UNLIMITED)
    }

    /// Whether it says anything of how fast its resource is.
    pub fn is_known(&self) -> bool {
        self.most < UNLIMITED
    }

    /// The same rate however many run.
    pub fn level(rate: f64) -> Curve {
        Curve { points: vec![(1.0, rate)], most: rate }
    }

    /// Each at its own pace of 1.
    pub fn each() -> Curve {
        Curve { points: vec![(1.0, 1.0), (1e9, 1e9)], most: f64::INFINITY }
    }

    /// Through points, ascending in their first part.
    pub fn through(points: Vec<(f64, f64)>) -> Curve {
        let most = points.iter().map(|p| p.1).fold(0.0, f64::max);
        Curve { points, most }
    }

    /// Total rate of `n` at once.
    pub fn total(&self, n: u32) -> f64 {
        let n = f64::from(n);
        let at = self.points.partition_point(|p| p.0 < n);
        let rate = match (at.checked_sub(1).and_then(|a| self.points.get(a)), self.points.get(at)) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (n - a.0) / (b.0 - a.0),
            (None, Some(only)) | (Some(only), None) => only.1,
            (None, None) => 0.0,
        };
        rate.min(self.most)
    }

    /// The same curve, so many times as high.
    pub fn times(&self, factor: f64) -> Curve {
        let points = self.points.iter().map(|p| (p.0, p.1 * factor)).collect();
        Curve { points, most: self.most * factor }
    }
}

/// What a trace shows of a resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    /// The same total rate however many ran, in bytes per nanosecond.
    Level(f64),
    /// Another for other numbers.
    By(Curve),
    /// No bytes.
    Nothing,
}

impl Shown {
    /// Of resource `ix`, by its [`edges`].
    pub fn of(trace: &Trace, ix: usize, edges: &[Edge]) -> Shown {
        let seen = seen(edges);
        let (ns, bytes) = seen.iter().fold((0.0, 0.0), |sum, s| (sum.0 + s.1, sum.1 + s.2));
        // While something ran, whatever the sampler's clock did.
        let Some(mean) = crate::ratio(bytes, ns).filter(|mean| *mean > 0.0) else { return Shown::Nothing };
        let counted = counted(trace, ix, edges);
        let blurred = counted.is_none();
        let (by_number, least_ns) = counted.map_or((seen, SEEN_NS), |counted| (counted, COUNTED_NS));
        let enough = by_number.iter().filter(|(n, ns, bytes)| *n > 0 && *ns >= least_ns && *bytes > 0.0);
        let points: Vec<(f64, f64)> = enough.map(|(n, ns, bytes)| (f64::from(*n), bytes / ns)).collect();
        let off = |rate: f64| (rate / mean - 1.0).abs();
        let usual = || by_number.iter().map(|(_, ns, bytes)| ns * off(bytes / ns.max(1.0))).sum::<f64>() / ns;
        if points.iter().all(|(_, rate)| off(*rate) <= LEVEL) || (blurred && usual() <= LEVEL) {
            return Shown::Level(mean);
        }
        Shown::By(Curve::through(points))
    }
}

/// For each number that ran at once, rounded: for how long, and the bytes that the device
/// counted meanwhile. Only intervals throughout which something ran; `None` without enough
/// of them, or where others used the device.
fn counted(trace: &Trace, ix: usize, edges: &[Edge]) -> Option<Vec<(u32, f64, f64)>> {
    let together = Together::of(edges);
    let (mut found, mut ours): (BTreeMap<u32, (f64, f64)>, f64) = (BTreeMap::new(), 0.0);
    for sample in trace.utilization_samples.iter().filter(|s| s.resource as usize == ix) {
        let (Some(read), Some(write)) = (sample.read_bytes, sample.write_bytes) else { continue };
        let start = sample.at_ns.saturating_sub(sample.interval_ns);
        if sample.interval_ns == 0 || together.least(start, sample.at_ns) < 1 {
            continue;
        }
        let sums = found.entry(together.mean(start, sample.at_ns).round() as u32).or_default();
        sums.0 += sample.interval_ns as f64;
        sums.1 += (read + write) as f64;
        ours += together.bytes(start, sample.at_ns);
    }
    let (ns, bytes) = found.values().fold((0.0, 0.0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
    let ours_alone = crate::ratio(bytes, ours).is_some_and(|r| (r - 1.0).abs() <= OTHERS);
    (ns >= COUNTED_NS && ours_alone)
        .then(|| found.into_iter().map(|(n, (ns, bytes))| (n, ns, bytes)).collect())
}

/// A change of how many ran: when, by how many, and by what rate.
pub(crate) type Edge = (u64, i32, f64);

/// All changes, by time, of those that ran: start, end, bytes.
pub(crate) fn edges(ran: &[(u64, u64, f64)]) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(ran.len() * 2);
    for (start, end, bytes) in ran.iter().filter(|(start, end, _)| end > start) {
        let rate = bytes / (end - start) as f64;
        edges.push((*start, 1, rate));
        edges.push((*end, -1, -rate));
    }
    edges.sort_unstable_by_key(|e| (e.0, e.1));
    edges
}

/// For each number that ran at once: for how long, and the bytes that passed meanwhile.
fn seen(edges: &[Edge]) -> Vec<(u32, f64, f64)> {
    let mut seen: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    let (mut running, mut rate, mut last) = (0_i32, 0.0, 0);
    for &(at, count, change) in edges {
        if running > 0 && at > last {
            let sums = seen.entry(running as u32).or_default();
            sums.0 += (at - last) as f64;
            sums.1 += f64::max(rate, 0.0) * (at - last) as f64;
        }
        running += count;
        rate = if running == 0 { 0.0 } else { rate + change };
        last = at;
    }
    seen.into_iter().map(|(n, (ns, bytes))| (n, ns, bytes)).collect()
}

/// How many ran at once over time, and what they moved, each evenly over its service.
pub(crate) struct Together {
    /// Time; the integral of the number up to it; bytes up to it; the number and the rate from then on.
    points: Vec<(u64, f64, f64, i32, f64)>,
}

impl Together {
    /// By the [`edges`] of those that ran.
    pub fn of(edges: &[Edge]) -> Together {
        let (mut points, mut sum, mut bytes, mut running, mut rate, mut last) =
            (Vec::new(), 0.0, 0.0, 0, 0.0, 0);
        for &(at, count, change) in edges {
            sum += f64::from(running) * (at - last) as f64;
            bytes += rate * (at - last) as f64;
            running += count;
            // Rounding must not add up over a long trace.
            rate = if running == 0 { 0.0 } else { f64::max(rate + change, 0.0) };
            last = at;
            points.push((at, sum, bytes, running, rate));
        }
        Together { points }
    }

    /// The last change up to a time.
    fn before(&self, at: u64) -> Option<&(u64, f64, f64, i32, f64)> {
        self.points.partition_point(|p| p.0 <= at).checked_sub(1).map(|ix| &self.points[ix])
    }

    /// How many at once, as a mean over an interval.
    pub fn mean(&self, start: u64, end: u64) -> f64 {
        let by = |at: u64| self.before(at).map_or(0.0, |p| p.1 + f64::from(p.3) * (at - p.0) as f64);
        (by(end) - by(start)) / (end - start).max(1) as f64
    }

    /// Bytes within an interval.
    fn bytes(&self, start: u64, end: u64) -> f64 {
        let by = |at: u64| self.before(at).map_or(0.0, |p| p.2 + p.4 * (at - p.0) as f64);
        by(end) - by(start)
    }

    /// The least at once within an interval.
    fn least(&self, start: u64, end: u64) -> i32 {
        let first = self.points.partition_point(|p| p.0 <= start);
        let until = self.points.partition_point(|p| p.0 < end).max(first);
        let within = self.points[first..until].iter().map(|p| p.3);
        // Of several changes in one instant only the last is a number that ran.
        let at_start = self.before(start).map_or(0, |p| p.3);
        within.fold(at_start, i32::min)
    }
}

#[cfg(test)]
mod tests {
    use pellucid_trace::UtilizationSample;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Samples of resource 0, one each 100 ms: bytes of each.
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

    /// Two began together and one was served first; then a third ran alone, as fast as both.
    const UNFAIR: [(u64, u64, f64); 3] =
        [(0, 300 * MS, 25e6), (0, 700 * MS, 45e6), (700 * MS, 1_000 * MS, 30e6)];

    #[test]
    fn who_was_served_first_makes_no_number_at_once_faster() {
        let Shown::By(blurred) = Shown::of(&Trace::default(), 0, &edges(&UNFAIR)) else {
            panic!("nothing counted")
        };
        assert!(blurred.total(2) > 1.5 * blurred.total(1));
        let Shown::Level(rate) = Shown::of(&sampled(&[10_000_000; 10]), 0, &edges(&UNFAIR)) else {
            panic!("counted")
        };
        assert!((rate - 0.1).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn a_device_that_serves_several_faster_keeps_its_curve() {
        let ran = [(0, 500 * MS, 10e6), (500 * MS, 1_000 * MS, 20e6), (500 * MS, 1_000 * MS, 20e6)];
        let counts = [2e6, 2e6, 2e6, 2e6, 2e6, 8e6, 8e6, 8e6, 8e6, 8e6].map(|b| b as u64);
        let Shown::By(curve) = Shown::of(&sampled(&counts), 0, &edges(&ran)) else { panic!("not level") };
        assert!((curve.total(1) - 0.02).abs() < 1e-9 && (curve.total(2) - 0.08).abs() < 1e-9);
    }

    #[test]
    fn counters_that_count_others_bytes_are_not_used() {
        let busy = sampled(&[15_000_000; 10]);
        assert_eq!(Shown::of(&busy, 0, &edges(&UNFAIR)), Shown::of(&Trace::default(), 0, &edges(&UNFAIR)));
    }

    #[test]
    fn without_bytes_nothing_is_shown() {
        assert_eq!(Shown::of(&Trace::default(), 0, &edges(&[(0, MS, 0.0)])), Shown::Nothing);
        assert_eq!(Shown::of(&Trace::default(), 0, &[]), Shown::Nothing);
    }
}
