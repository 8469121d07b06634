//! Adaptive concurrency: tunes the number of monotasks that a resource runs at once.
//!
//! The algorithm is that of self-adaptive executors (Middleware '19, §5.1 and §5.2). It starts at the
//! minimum concurrency. An interval ends when as many monotasks have completed as may run. The controller
//! doubles the concurrency while that pays; otherwise it steps back and stays there until the set of
//! running stages changes. The [`Policy`] defines when a step pays:
//!
//! - `Index`, the paper's: the congestion index ζ = ε ÷ µ must not increase, where ε is the interval's
//!   accumulated wait for I/O and µ its bytes per second. Every completion counts. Equal indices count as
//!   an improvement, since the paper rolls back only if the index gets worse.
//! - `Throughput`, the default: bytes per second must increase by `gain`. In measurements, the index was
//!   lowest at the fewest threads, because the wait grows with their number.
//!
//! `Throughput` filters its samples. It ignores the first half of an interval, whose monotasks started
//! under the previous concurrency. It counts a completion only if the resource was fully used, since a
//! resource without enough work does not show whether more concurrency would pay. It computes bytes per
//! second as the concurrency times bytes over service time (Little's law) rather than from the time between
//! completions, which can be close to zero because monotasks that start together end together.
//!
//! `Throughput` has a guard: if the wait is under 1 % of the service time, the stage is not bound by I/O
//! and gets the maximum concurrency at once. The guard is meant for slots, whose tasks (Spark) alternate
//! between computing and waiting. On a disk or a store, a monotask does nothing but I/O: `wait_ns` is
//! `None`, the whole service time counts as wait, and the guard never applies.
//!
//! `tests/controller_cases.tsv` holds the controller's cases; the Spark plugin's controllers pass those of
//! `Index`, too. The controller is not meant for cores, which run one monotask each. It works poorly if the
//! monotasks of a stage differ a hundredfold in size and have a fixed cost each: intervals are short to keep
//! the search short, so the result may then be a step or two off the best.

use crate::{Concurrency, Nanos, Policy};

/// Share of wait in service time below which a stage is not bound by I/O.
const GUARD_WAIT_SHARE: f64 = 0.01;

/// The controller's view of a completed monotask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Start time.
    pub start_ns: Nanos,
    /// Bytes moved.
    pub bytes: u64,
    /// Time stalled on I/O; `None` means the whole service time.
    pub wait_ns: Option<u64>,
    /// Number of monotasks running on the resource before this one completed, including itself.
    pub running: u32,
}

/// A controller of one resource's concurrency. The [module documentation](self) describes the algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    min: u32,
    max: u32,
    /// `None` if the concurrency is fixed.
    policy: Option<Policy>,
    concurrency: u32,
    /// Concurrency and score of the previous interval; `None` during the first.
    previous: Option<(u32, f64)>,
    settled: bool,
    interval: Interval,
}

/// Sums over the completions since the concurrency was last set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Interval {
    /// Start of the interval. `None` until a monotask runs, since idle time must not lower the throughput.
    begin_ns: Option<Nanos>,
    completed: u32,
    bytes: u64,
    wait_ns: u64,
    service_ns: u64,
}

impl Controller {
    /// Creates a controller at the minimum concurrency.
    pub fn new(concurrency: Concurrency) -> Self {
        let (min, max, policy) = match concurrency {
            Concurrency::Fixed(n) => (n, n, None),
            Concurrency::Adaptive { min, max, policy } => (min, max, Some(policy)),
        };
        let min = min.max(1);
        let max = max.max(min);
        Controller {
            min,
            max,
            policy: policy.filter(|_| max > min),
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
        self.policy.is_some()
    }

    /// Restarts from the minimum concurrency, after the set of running stages changed.
    pub fn restart(&mut self) {
        self.concurrency = self.min;
        self.previous = None;
        self.settled = false;
        self.interval = Interval::default();
    }

    /// Records the start of a monotask.
    pub fn started(&mut self, now: Nanos) {
        self.interval.begin_ns.get_or_insert(now);
    }

    /// Records a successful monotask; this may change the concurrency. Failed or cancelled monotasks must
    /// not be recorded, since the bytes that they moved are unknown.
    pub fn completed(&mut self, now: Nanos, sample: Sample) {
        let Some(policy) = self.policy.filter(|_| !self.settled) else {
            return;
        };
        if self.interval.begin_ns.is_none() {
            return; // It started before the restart; no monotask has started since.
        }
        if !self.interval_ends(now, policy, sample) {
            return;
        }
        let interval = self.interval;
        self.interval = Interval { begin_ns: (sample.running > 1).then_some(now), ..Interval::default() };
        // A larger score is better under both policies.
        let (score, pays) = match policy {
            Policy::Throughput { gain } => {
                let service_ns = interval.service_ns.max(1) as f64;
                if (interval.wait_ns as f64) < GUARD_WAIT_SHARE * service_ns {
                    self.concurrency = self.max;
                    self.settled = true;
                    return;
                }
                let rate = f64::from(self.concurrency) * interval.bytes as f64 / service_ns;
                let threshold = |previous: f64| previous * (1.0 + gain);
                (rate, self.previous.is_none_or(|(_, previous)| rate >= threshold(previous)))
            }
            Policy::Index => {
                let score = -interval.index(now);
                (score, self.previous.is_none_or(|(_, previous)| score >= previous))
            }
        };
        self.step(score, pays);
    }

    /// Adds a sample. Returns true if the interval has ended, that is, as many monotasks have completed as
    /// may run.
    fn interval_ends(&mut self, now: Nanos, policy: Policy, sample: Sample) -> bool {
        if matches!(policy, Policy::Throughput { .. }) {
            if sample.running < self.concurrency {
                return false;
            }
            if self.interval.completed < self.concurrency / 2 {
                self.interval.completed += 1;
                return false;
            }
        }
        let service_ns = now.saturating_sub(sample.start_ns);
        self.interval.completed += 1;
        self.interval.bytes += sample.bytes;
        self.interval.service_ns += service_ns;
        self.interval.wait_ns += sample.wait_ns.unwrap_or(service_ns);
        self.interval.completed >= self.concurrency
    }

    fn step(&mut self, score: f64, pays: bool) {
        match self.previous {
            Some((concurrency, _)) if !pays => {
                self.concurrency = concurrency;
                self.settled = true;
            }
            _ if self.concurrency == self.max => self.settled = true,
            _ => {
                self.previous = Some((self.concurrency, score));
                self.concurrency = self.concurrency.saturating_mul(2).min(self.max);
            }
        }
    }
}

impl Interval {
    /// Returns the congestion index ζ = ε ÷ µ (§5.1, equation 1) in ns² per byte: 0 without wait, infinite
    /// with wait but without bytes.
    fn index(&self, now: Nanos) -> f64 {
        if self.wait_ns == 0 {
            return 0.0;
        }
        let elapsed_ns = now.saturating_sub(self.begin_ns.unwrap_or(now)).max(1);
        self.wait_ns as f64 * elapsed_ns as f64 / self.bytes as f64
    }
}
