//! Adaptive concurrency: tunes the number of monotasks that a resource runs at once.
//!
//! The algorithm is that of self-adaptive executors (Middleware '19, §5.1 and §5.2). It starts at the
//! minimum concurrency. An interval ends when as many monotasks have completed as may run. The controller
//! doubles the concurrency while that pays; otherwise it steps back and stays there until the set of
//! running stages changes.
//!
//! A step pays if the bytes per second increase by a minimum gain. The paper's condition is that the
//! congestion index, the wait for I/O over bytes per second, does not increase. In measurements the index
//! was lowest at the fewest threads, because the wait grows with their number.
//!
//! Not every completion counts. The controller ignores the first half of an interval, whose monotasks
//! started under the previous concurrency. It counts a completion only if the resource was fully used,
//! since a resource without enough work does not show whether more concurrency would pay. It computes
//! bytes per second as the concurrency times bytes over service time (Little's law) rather than from the
//! time between completions, which can be close to zero because monotasks that start together end
//! together.
//!
//! `tests/controller_cases.tsv` holds this controller's cases, and those of the paper's index, which only the
//! Spark plugin's controllers follow. This controller is not meant for cores, which run one monotask each. It
//! works poorly if the monotasks of a stage differ a hundredfold in size and have a fixed cost each: intervals
//! are short to keep the search short, so the result may then be a step or two off the best.

use crate::{Concurrency, Nanos};

/// The gain that found the best concurrency in measurements: 7 %.
pub const GAIN: f64 = 0.07;

/// The controller's view of a completed monotask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Start time.
    pub start_ns: Nanos,
    /// Bytes moved.
    pub bytes: u64,
    /// Number of monotasks running on the resource before this one completed, including itself.
    pub running: u32,
}

/// A controller of one resource's concurrency. The [module documentation](self) describes the algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    min: u32,
    max: u32,
    /// `None` if the concurrency is fixed.
    gain: Option<f64>,
    concurrency: u32,
    /// Concurrency and bytes per nanosecond of the previous interval; `None` during the first.
    previous: Option<(u32, f64)>,
    settled: bool,
    interval: Interval,
}

/// Sums over the completions since the concurrency was last set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Interval {
    /// True once a monotask runs.
    begun: bool,
    completed: u32,
    bytes: u64,
    service_ns: u64,
}

impl Controller {
    /// Creates a controller at the minimum concurrency.
    pub fn new(concurrency: Concurrency) -> Self {
        let (min, max, gain) = match concurrency {
            Concurrency::Fixed(n) => (n, n, None),
            Concurrency::Adaptive { min, max, gain } => (min, max, Some(gain)),
        };
        let min = min.max(1);
        let max = max.max(min);
        Controller {
            min,
            max,
            gain: gain.filter(|_| max > min),
            concurrency: min,
            previous: None,
            settled: false,
            interval: Interval::default(),
        }
    }

    /// Returns the current concurrency.
    pub fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// Returns the maximum concurrency.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Returns whether the concurrency can change, that is, whether it is adaptive and its minimum and
    /// maximum differ.
    pub fn is_adaptive(&self) -> bool {
        self.gain.is_some()
    }

    /// Restarts from the minimum concurrency, after the set of running stages changed.
    pub fn restart(&mut self) {
        self.concurrency = self.min;
        self.previous = None;
        self.settled = false;
        self.interval = Interval::default();
    }

    /// Records the start of a monotask.
    pub fn started(&mut self) {
        self.interval.begun = true;
    }

    /// Records a successful monotask; this may change the concurrency. Failed or cancelled monotasks must
    /// not be recorded, since the bytes that they moved are unknown.
    pub fn completed(&mut self, now: Nanos, sample: Sample) {
        let Some(gain) = self.gain.filter(|_| !self.settled) else {
            return;
        };
        if !self.interval.begun {
            return; // It started before the restart; no monotask has started since.
        }
        if !self.interval_ends(now, sample) {
            return;
        }
        let interval = self.interval;
        self.interval = Interval { begun: sample.running > 1, ..Interval::default() };
        if interval.service_ns == 0 {
            // Monotasks that take no time do not wait for I/O.
            self.concurrency = self.max;
            self.settled = true;
            return;
        }
        let rate = f64::from(self.concurrency) * interval.bytes as f64 / interval.service_ns as f64;
        let pays = self.previous.is_none_or(|(_, previous)| rate >= previous * (1.0 + gain));
        self.step(rate, pays);
    }

    /// Adds a sample. Returns true if the interval has ended, that is, as many monotasks have completed as
    /// may run.
    fn interval_ends(&mut self, now: Nanos, sample: Sample) -> bool {
        if sample.running < self.concurrency {
            return false;
        }
        if self.interval.completed < self.concurrency / 2 {
            self.interval.completed += 1;
            return false;
        }
        self.interval.completed += 1;
        self.interval.bytes += sample.bytes;
        self.interval.service_ns += now.saturating_sub(sample.start_ns);
        self.interval.completed >= self.concurrency
    }

    fn step(&mut self, rate: f64, pays: bool) {
        match self.previous {
            Some((concurrency, _)) if !pays => {
                self.concurrency = concurrency;
                self.settled = true;
            }
            _ if self.concurrency == self.max => self.settled = true,
            _ => {
                self.previous = Some((self.concurrency, rate));
                self.concurrency = self.concurrency.saturating_mul(2).min(self.max);
            }
        }
    }
}
