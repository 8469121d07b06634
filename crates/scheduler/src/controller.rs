//! How many monotasks a resource runs at once, when that is tuned.
//!
//! The climb of self-adaptive executors (Middleware '19, §5.1 and §5.2): start at
//! the least concurrency; an interval ends when as many monotasks have completed
//! as run; double while that pays, else step back and stay until the set of
//! running stages changes. What "pays" means is a [`Policy`]:
//!
//! - `Index`, the paper's: the congestion index ζ = ε ÷ µ must not rise, with ε the
//!   interval's accumulated wait for I/O and µ its bytes per second. Every completion
//!   counts. Equal indices climb: the paper rolls back on a worse one only.
//! - `Throughput`, the default: bytes per second must grow by `gain`. Measured tables
//!   showed the index lowest at the fewest threads, because wait grows with them.
//!
//! `Throughput` is careful about what it compares. The first half of an interval is
//! ignored: its monotasks began under the concurrency before. A completion counts
//! only when as many ran as may, because a resource that lacks work says nothing
//! about whether more at once would pay. And bytes per second are the concurrency
//! times bytes over service time (Little's law), not bytes over the time between
//! completions: monotasks that start together end together, so that time can be
//! next to nothing.
//!
//! Its guard: when the wait is under 1 % of the service time, the stage is not bound
//! by I/O and gets the maximum at once. That is meant for slots, whose tasks compute
//! and wait in turns (Spark). On a disk or a store a monotask does nothing but I/O:
//! the I/O thread waits for as long as it is served, `wait_ns` is `None`, the whole
//! service time is wait, and the guard never applies.
//!
//! `tests/controller_cases.tsv` holds the table of cases that this, and any other
//! implementation, must pass. It does not apply to cores: one monotask a core. It is
//! a poor judge where the monotasks of a stage differ a hundredfold in size and each
//! has a cost of its own: an interval is short, so that the climb is, and may then
//! end a step or two beside the best.

use crate::{Concurrency, Nanos, Policy};

/// Below this share of wait in service time a stage is not bound by I/O.
const GUARD_WAIT_SHARE: f64 = 0.01;

/// One completed monotask, as the controller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it started.
    pub start_ns: Nanos,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Time stalled on I/O; `None`: all of its service time.
    pub wait_ns: Option<u64>,
    /// How many ran on the resource until it completed, itself included.
    pub running: u32,
}

/// Tunes one resource's concurrency. Told of starts and completions; see the
/// module's head.
#[derive(Debug, Clone, PartialEq)]
pub struct Controller {
    min: u32,
    max: u32,
    /// `None`: the concurrency is fixed.
    policy: Option<Policy>,
    concurrency: u32,
    /// Concurrency and worth of the interval before; `None` in the first.
    before: Option<(u32, f64)>,
    settled: bool,
    interval: Interval,
}

/// Sums over the completions since the concurrency was set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Interval {
    /// `None` until something runs in it: idle time is nobody's throughput.
    begin_ns: Option<Nanos>,
    completed: u32,
    bytes: u64,
    wait_ns: u64,
    service_ns: u64,
}

impl Controller {
    /// A controller at its least concurrency.
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
            before: None,
            settled: false,
            interval: Interval::default(),
        }
    }

    /// How many may run at once now.
    pub fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// The most that may ever run at once.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// False for a fixed concurrency, and where least and most are the same.
    pub fn is_adaptive(&self) -> bool {
        self.policy.is_some()
    }

    /// The set of running stages changed: climb again from the least.
    pub fn restart(&mut self) {
        self.concurrency = self.min;
        self.before = None;
        self.settled = false;
        self.interval = Interval::default();
    }

    /// A monotask starts.
    pub fn started(&mut self, now: Nanos) {
        self.interval.begin_ns.get_or_insert(now);
    }

    /// A monotask ended well; may change the concurrency. One that failed or was
    /// cut short moved an unknown part of its bytes and is not reported.
    pub fn completed(&mut self, now: Nanos, sample: Sample) {
        let Some(policy) = self.policy.filter(|_| !self.settled) else {
            return;
        };
        if self.interval.begin_ns.is_none() {
            return; // it ran before the restart: nothing has started since
        }
        if !self.interval_ends(now, policy, sample) {
            return;
        }
        let interval = self.interval;
        self.interval = Interval { begin_ns: (sample.running > 1).then_some(now), ..Interval::default() };
        // Worth: the larger, the better, so that one comparison serves both.
        let (worth, pays) = match policy {
            Policy::Throughput { gain } => {
                let service_ns = interval.service_ns.max(1) as f64;
                if (interval.wait_ns as f64) < GUARD_WAIT_SHARE * service_ns {
                    self.concurrency = self.max;
                    self.settled = true;
                    return;
                }
                let rate = f64::from(self.concurrency) * interval.bytes as f64 / service_ns;
                let least = |before: f64| before * (1.0 + gain);
                (rate, self.before.is_none_or(|(_, before)| rate >= least(before)))
            }
            Policy::Index => {
                let worth = -interval.index(now);
                (worth, self.before.is_none_or(|(_, before)| worth >= before))
            }
        };
        self.step(worth, pays);
    }

    /// Adds the sample; true when as many have completed as run.
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

    fn step(&mut self, worth: f64, pays: bool) {
        match self.before {
            Some((concurrency, _)) if !pays => {
                self.concurrency = concurrency;
                self.settled = true;
            }
            _ if self.concurrency == self.max => self.settled = true,
            _ => {
                self.before = Some((self.concurrency, worth));
                self.concurrency = self.concurrency.saturating_mul(2).min(self.max);
            }
        }
    }
}

impl Interval {
    /// ζ = ε ÷ µ (§5.1, equation 1), in ns² a byte: 0 without wait, endless where
    /// there was wait and not one byte.
    fn index(&self, now: Nanos) -> f64 {
        if self.wait_ns == 0 {
            return 0.0;
        }
        let elapsed_ns = now.saturating_sub(self.begin_ns.unwrap_or(now)).max(1);
        self.wait_ns as f64 * elapsed_ns as f64 / self.bytes as f64
    }
}
