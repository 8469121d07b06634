//! Load balancing (§3.3) from the workers' reports.
//!
//! All workers iterate at the pace of the slowest, so their core times in tasks over the same interval show
//! how uneven the load is. The expected cost of a bundle after a move is its current cost times the ratio of
//! the new worker's slowness to the old one's. A worker's slowness is the median, over its bundles, of their
//! cost relative to the median cost of their group, per byte. One expensive bundle thus does not make a
//! worker look slow.
//!
//! Bundles move only after imbalance of over a tenth was seen in two rounds, and a moved bundle stays put for
//! some rounds. A wrong estimate is corrected by the next measurements, not by moving back.

use std::collections::BTreeMap;

use crate::dataflow::index::{BundleIx, GroupIx, WorkerIx};
use crate::dataflow::plan::Plan;
use crate::protocol::records::Report;

/// Largest ratio of maximum to mean load that is tolerated.
const TOLERANCE: f64 = 1.10;
/// Number of consecutive rounds of imbalance before bundles move.
const ROUNDS: u32 = 2;
/// Number of rounds for which a moved bundle stays put.
const REST: u32 = 6;
/// Minimum share of the busiest worker's time in tasks; below it, cores are not the bottleneck.
const BUSY: f64 = 0.10;

/// A planned migration of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub bundle: BundleIx,
    pub from: WorkerIx,
    pub to: WorkerIx,
}

/// The state of load balancing.
#[derive(Default)]
pub(crate) struct Balancer {
    /// Latest report of each worker in this round.
    reports: BTreeMap<WorkerIx, Report>,
    uneven: u32,
    round: u32,
    moved: BTreeMap<BundleIx, u32>,
    /// True to skip the next round, whose reports span migrations.
    skip: bool,
    /// Mean divided by maximum of the workers' loads in the last round.
    pub balance: Option<f64>,
}

/// A worker's load, while moves are planned.
struct Load {
    worker: WorkerIx,
    threads: f64,
    slowness: f64,
    /// Core time per elapsed time and thread.
    load: f64,
    bundles: Vec<(BundleIx, f64)>,
}

impl Balancer {
    /// Resets the state after a recovery or a change of members.
    pub fn reset(&mut self) {
        *self = Self { round: self.round, ..Self::default() };
    }

    /// Adds a report. Once every worker in `workers` has reported, returns the bundles to move. `may_take` are the
    /// workers that may receive bundles.
    pub fn report(
        &mut self,
        plan: &Plan,
        report: Report,
        workers: &[WorkerIx],
        may_take: &[WorkerIx],
    ) -> Vec<Move> {
        if report.interval_ns == 0 {
            return Vec::new();
        }
        self.reports.insert(report.worker, report);
        self.reports.retain(|worker, _| workers.contains(worker));
        if self.reports.len() < workers.len() {
            return Vec::new();
        }
        let reports = std::mem::take(&mut self.reports);
        self.balance = balance(&reports);
        if std::mem::take(&mut self.skip) {
            return Vec::new();
        }
        self.round += 1;
        let moves = self.decide(plan, &reports, may_take);
        self.skip = !moves.is_empty();
        moves
    }

    fn decide(
        &mut self,
        plan: &Plan,
        reports: &BTreeMap<WorkerIx, Report>,
        may_take: &[WorkerIx],
    ) -> Vec<Move> {
        let mut loads = loads(plan, reports);
        let threads: f64 = loads.iter().map(|load| load.threads).sum();
        let mean = loads.iter().map(|load| load.load * load.threads).sum::<f64>() / threads;
        let max = loads.iter().map(|load| load.load).fold(0.0, f64::max);
        if max < BUSY || max <= mean * TOLERANCE {
            self.uneven = 0;
            return Vec::new();
        }
        self.uneven += 1;
        if self.uneven < ROUNDS {
            return Vec::new();
        }
        self.uneven = 0;
        let mut moves = Vec::new();
        while moves.len() < plan.bundle_count {
            let Some(next) = self.best(&mut loads, may_take) else { break };
            self.moved.insert(next.bundle, self.round);
            moves.push(next);
        }
        moves
    }

    /// Finds the most useful move from the busiest worker, and applies it to `loads`.
    fn best(&self, loads: &mut [Load], may_take: &[WorkerIx]) -> Option<Move> {
        let busiest = (0..loads.len()).max_by(|&a, &b| loads[a].load.total_cmp(&loads[b].load))?;
        let highest = loads[busiest].load;
        let mut best: Option<(f64, usize, usize, f64)> = None;
        let idlest = (0..loads.len())
            .filter(|&at| at != busiest && may_take.contains(&loads[at].worker))
            .min_by(|&a, &b| loads[a].load.total_cmp(&loads[b].load))?;
        for (at, &(bundle, cost)) in loads[busiest].bundles.iter().enumerate() {
            let rests = self.moved.get(&bundle).is_some_and(|&round| self.round < round + REST);
            if rests || cost <= 0.0 {
                continue;
            }
            let new_cost = cost * loads[idlest].slowness / loads[busiest].slowness;
            let left = highest - cost / loads[busiest].threads;
            let higher = left.max(loads[idlest].load + new_cost / loads[idlest].threads);
            if higher < highest * 0.98 && best.is_none_or(|(lowest, ..)| higher < lowest) {
                best = Some((higher, at, idlest, new_cost));
            }
        }
        let (_, at, to, new_cost) = best?;
        let (bundle, cost) = loads[busiest].bundles.swap_remove(at);
        loads[busiest].load -= cost / loads[busiest].threads;
        loads[to].load += new_cost / loads[to].threads;
        Some(Move { bundle, from: loads[busiest].worker, to: loads[to].worker })
    }
}

fn balance(reports: &BTreeMap<WorkerIx, Report>) -> Option<f64> {
    let loads: Vec<f64> = reports.values().map(load).collect();
    let max = loads.iter().copied().fold(0.0, f64::max);
    (max > 0.0).then(|| loads.iter().sum::<f64>() / loads.len() as f64 / max)
}

fn load(report: &Report) -> f64 {
    let busy: u64 = report.bundles.iter().map(|bundle| bundle.1).sum();
    busy as f64 / report.interval_ns as f64 / f64::from(report.threads.max(1))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn loads(plan: &Plan, reports: &BTreeMap<WorkerIx, Report>) -> Vec<Load> {
    let cost = |report: &Report, busy: u64| busy as f64 / report.interval_ns as f64;
    let mut kinds: BTreeMap<GroupIx, Vec<f64>> = BTreeMap::new();
    for report in reports.values() {
        for &(bundle, busy, size) in report.bundles.iter().filter(|bundle| bundle.1 > 0) {
            let each = cost(report, busy) / size.max(1) as f64;
            kinds.entry(plan.locate(bundle).0).or_default().push(each);
        }
    }
    let usual: BTreeMap<GroupIx, f64> =
        kinds.into_iter().filter_map(|(group, each)| median(each).map(|each| (group, each))).collect();
    let of = |report: &Report| {
        let slow = report.bundles.iter().filter_map(|&(bundle, busy, size)| {
            let group = plan.locate(bundle).0;
            // A group with one partition has no other bundles to compare with.
            let usual = usual.get(&group).filter(|_| plan.groups[group].partitions > 1)?;
            (busy > 0).then(|| cost(report, busy) / size.max(1) as f64 / usual)
        });
        Load {
            worker: report.worker,
            threads: f64::from(report.threads.max(1)),
            slowness: median(slow.collect()).unwrap_or(1.0),
            load: load(report),
            bundles: report.bundles.iter().map(|&(bundle, busy, _)| (bundle, cost(report, busy))).collect(),
        }
    };
    reports.values().map(of).collect()
}
