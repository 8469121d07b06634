//! The use of each resource over time in equal bins. The timeline draws these until the zoom is close
//! enough to distinguish single activities.
//!
//! A bin holds the mean number of running activities by phase, the mean number waiting, and the bytes moved
//! per second. Only the finest level is stored; the page merges pairs of bins for each coarser level. Drawing
//! a million monotasks thus costs as much as drawing a thousand.

use std::collections::BTreeMap;

use crate::activity::{Activity, Part};

/// Maximum number of bins: four to a pixel of a wide screen.
const MAX_BINS: usize = 16384;
/// Minimum number of bins, however many series there are.
const MIN_BINS: usize = 512;
/// Maximum number of values of all series together, at two bytes each before compression.
const MAX_VALUES: usize = 4 << 20;

/// The quantity of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quantity {
    /// Mean number of running activities in this phase.
    Running(u8),
    /// Mean number of waiting activities.
    Waiting,
    /// Bytes per second.
    Rate,
}

/// Sums by bin. They are built from differences, so that adding an interval takes constant time.
#[derive(Debug)]
pub(crate) struct Levels {
    from_ns: u64,
    bin_ns: f64,
    bins: usize,
    /// For each series, the differences between neighbouring bins (for intervals that fill bins), and the
    /// amounts added to single bins.
    series: BTreeMap<(u32, Quantity), (Vec<f64>, Vec<f64>)>,
}

/// A series whose values are quantized to 16 bits, relative to the largest.
#[derive(Debug, PartialEq)]
pub(crate) struct Series {
    pub resource: u32,
    pub quantity: Quantity,
    /// The value that 65535 represents.
    pub largest: f64,
    pub values: Vec<u16>,
}

impl Levels {
    /// Creates empty bins between two times, sized for about `series` series.
    pub fn new(from_ns: u64, to_ns: u64, series: usize) -> Levels {
        let affordable = (MAX_VALUES / series.max(1)).clamp(MIN_BINS, MAX_BINS);
        let bins = 1 << affordable.ilog2();
        let bin_ns = (to_ns.saturating_sub(from_ns)).max(1) as f64 / bins as f64;
        Levels { from_ns, bin_ns, bins, series: BTreeMap::new() }
    }

    pub fn bins(&self) -> usize {
        self.bins
    }

    pub fn add(&mut self, activity: &Activity, parts: &[Part]) {
        let (from, to) = (activity.start_ns, activity.end_ns);
        for (phase, share) in parts {
            self.spread((activity.resource, Quantity::Running(*phase)), from, to, activity.weight * share);
        }
        self.spread((activity.resource, Quantity::Waiting), activity.queued_ns, from, activity.weight);
        let service_s = to.saturating_sub(from) as f64 / 1e9;
        if let Some(bytes) = activity.bytes.filter(|bytes| *bytes > 0 && service_s > 0.0) {
            let rate = activity.weight * bytes as f64 / service_s;
            self.spread((activity.resource, Quantity::Rate), from, to, rate);
        }
    }

    /// Adds `height` over the span between two instants.
    fn spread(&mut self, key: (u32, Quantity), from_ns: u64, to_ns: u64, height: f64) {
        if to_ns <= from_ns {
            return;
        }
        let bins = self.bins;
        let place = |at: u64| (at.saturating_sub(self.from_ns) as f64 / self.bin_ns).min(bins as f64);
        let (from, to) = (place(from_ns), place(to_ns));
        let (first, last) = ((from as usize).min(bins - 1), (to as usize).min(bins - 1));
        let (steps, single) =
            self.series.entry(key).or_insert_with(|| (vec![0.0; bins + 1], vec![0.0; bins]));
        if first == last {
            single[first] += height * (to - from);
            return;
        }
        single[first] += height * (first as f64 + 1.0 - from);
        single[last] += height * (to - last as f64);
        steps[first + 1] += height;
        steps[last] -= height;
    }

    /// Returns the series that are not empty, ordered by resource, phases first.
    pub fn finish(self) -> Vec<Series> {
        let series = self.series.into_iter().map(|((resource, quantity), (steps, single))| {
            let mut whole = 0.0;
            let sums: Vec<f64> = steps
                .iter()
                .zip(&single)
                .map(|(step, single)| {
                    whole += step;
                    // Rounding of the running sum must not produce negative values.
                    (whole + single).max(0.0)
                })
                .collect();
            let largest = sums.iter().copied().fold(0.0, f64::max);
            let quantized = |v: &f64| (v / largest * 65535.0).round() as u16;
            let values = if largest > 0.0 { sums.iter().map(quantized).collect() } else { Vec::new() };
            Series { resource, quantity, largest, values }
        });
        series.filter(|s| s.largest > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_trace::Outcome;

    fn activity(queued_ns: u64, start_ns: u64, end_ns: u64, bytes: Option<u64>) -> Activity {
        let (stage, partition, outcome) = (None, None, Outcome::Ok);
        let (resource, phase, weight) = (0, 2, 1.0);
        Activity { resource, phase, queued_ns, start_ns, end_ns, weight, stage, partition, bytes, outcome }
    }

    fn mean(series: &Series, from: usize, to: usize) -> f64 {
        let sum: f64 = series.values[from..to].iter().map(|v| f64::from(*v)).sum();
        sum / 65535.0 * series.largest / (to - from) as f64
    }

    /// By definition, the mean number running in a bin is the service time within it over its length.
    #[test]
    fn bins_hold_the_mean_number_running() {
        let mut levels = Levels::new(1000, 1000 + 16384 * 10, 3);
        assert_eq!(levels.bins(), 16384);
        let all = [(1000, 1000, 1055), (1000, 1020, 1033), (1000, 1040, 1000 + 16384 * 10)];
        for (queued, start, end) in all {
            levels.add(&activity(queued, start, end, Some(100)), &[(2, 1.0)]);
        }
        let series = levels.finish();
        let quantities: Vec<Quantity> = series.iter().map(|s| s.quantity).collect();
        assert_eq!(quantities, [Quantity::Running(2), Quantity::Waiting, Quantity::Rate]);
        for bin in [0, 1, 2, 3, 4, 5, 6, 7000, 16383] {
            let (from, to) = (1000 + bin as u64 * 10, 1010 + bin as u64 * 10);
            let within = |(_, start, end): &(u64, u64, u64)| {
                (*end).min(to).saturating_sub((*start).max(from)) as f64 / 10.0
            };
            let expect: f64 = all.iter().map(within).sum();
            let got = mean(&series[0], bin, bin + 1);
            assert!((got - expect).abs() < 1e-4, "bin {bin}: {got} instead of {expect}");
        }
        // Twenty and forty nanoseconds of waiting, in bins of ten.
        assert!((mean(&series[1], 0, 16384) * 16384.0 - 6.0).abs() < 1e-2);
    }

    #[test]
    fn many_series_get_fewer_bins() {
        assert_eq!(Levels::new(0, 100, 1000).bins(), 4096);
        assert_eq!(Levels::new(0, 100, 1_000_000).bins(), MIN_BINS);
    }
}
