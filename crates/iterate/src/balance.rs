//! Who should give partitions to whom (§3.3), from what workers report.
//!
//! All workers iterate at the pace of the slowest, so core time in tasks over the same interval says
//! how uneven a job is. A bundle that moves will cost what it cost, times how much slower the new
//! worker is than the old: a worker's slowness is the median, over its bundles, of their cost beside
//! the median of their kind, byte for byte. One heavy bundle does not make a worker slow.
//!
//! Nothing moves before the unevenness was seen twice, nor for less than a tenth, and what has moved
//! rests for some rounds: a wrong guess is corrected by what is measured next, not by moving back.

use std::collections::BTreeMap;

use crate::message::Report;
use crate::plan::{BundleIx, Plan};

/// Largest load over the mean that is left alone.
const TOLERANCE: f64 = 1.10;
/// Rounds in which it has to be seen.
const ROUNDS: u32 = 2;
/// Rounds for which a bundle that moved stays.
const REST: u32 = 6;
/// Share of its time that the busiest worker has to be in tasks; below, cores are not what is short.
const BUSY: f64 = 0.10;

/// A bundle that should move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub bundle: BundleIx,
    pub from: u32,
    pub to: u32,
}

/// What the balancer remembers.
#[derive(Default)]
pub(crate) struct Balancer {
    /// Newest report of each worker in this round.
    reports: BTreeMap<u32, Report>,
    uneven: u32,
    round: u32,
    moved: BTreeMap<BundleIx, u32>,
    /// Reports cover moves: wait for whole new ones.
    skip: bool,
    /// Mean over maximum of the workers' loads in the last round.
    pub balance: Option<f64>,
}

/// A worker's load while moves are tried out.
struct Load {
    worker: u32,
    threads: f64,
    slowness: f64,
    /// Core time a time, over its threads.
    load: f64,
    bundles: Vec<(BundleIx, f64)>,
}

impl Balancer {
    /// Begins anew, after a recovery or a change of members.
    pub fn reset(&mut self) {
        *self = Self { round: self.round, ..Self::default() };
    }

    /// Takes in a report; once there is one of every worker, says what should move. `may_take`: the
    /// workers that can be given something; every worker has to be among `workers`.
    pub fn report(&mut self, plan: &Plan, report: Report, workers: &[u32], may_take: &[u32]) -> Vec<Move> {
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

    fn decide(&mut self, plan: &Plan, reports: &BTreeMap<u32, Report>, may_take: &[u32]) -> Vec<Move> {
        let mut loads = loads(plan, reports);
        let threads: f64 = loads.iter().map(|load| load.threads).sum();
        let mean = loads.iter().map(|load| load.load * load.threads).sum::<f64>() / threads;
        let most = loads.iter().map(|load| load.load).fold(0.0, f64::max);
        if most < BUSY || most <= mean * TOLERANCE {
            self.uneven = 0;
            return Vec::new();
        }
        self.uneven += 1;
        if self.uneven < ROUNDS {
            return Vec::new();
        }
        self.uneven = 0;
        let mut moves = Vec::new();
        while moves.len() < plan.bundles as usize {
            let Some(next) = self.best(&mut loads, may_take) else { break };
            self.moved.insert(next.bundle, self.round);
            moves.push(next);
        }
        moves
    }

    /// The move from the busiest worker that helps most, made in `loads`.
    fn best(&self, loads: &mut [Load], may_take: &[u32]) -> Option<Move> {
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
            let there = cost * loads[idlest].slowness / loads[busiest].slowness;
            let left = highest - cost / loads[busiest].threads;
            let higher = left.max(loads[idlest].load + there / loads[idlest].threads);
            if higher < highest * 0.98 && best.is_none_or(|(least, ..)| higher < least) {
                best = Some((higher, at, idlest, there));
            }
        }
        let (_, at, to, there) = best?;
        let (bundle, cost) = loads[busiest].bundles.swap_remove(at);
        loads[busiest].load -= cost / loads[busiest].threads;
        loads[to].load += there / loads[to].threads;
        Some(Move { bundle, from: loads[busiest].worker, to: loads[to].worker })
    }
}

fn balance(reports: &BTreeMap<u32, Report>) -> Option<f64> {
    let loads: Vec<f64> = reports.values().map(load).collect();
    let most = loads.iter().copied().fold(0.0, f64::max);
    (most > 0.0).then(|| loads.iter().sum::<f64>() / loads.len() as f64 / most)
}

fn load(report: &Report) -> f64 {
    let busy: u64 = report.bundles.iter().map(|bundle| bundle.1).sum();
    busy as f64 / report.interval_ns as f64 / f64::from(report.threads.max(1))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn loads(plan: &Plan, reports: &BTreeMap<u32, Report>) -> Vec<Load> {
    let cost = |report: &Report, busy: u64| busy as f64 / report.interval_ns as f64;
    let mut kinds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for report in reports.values() {
        for &(bundle, busy, size) in report.bundles.iter().filter(|bundle| bundle.1 > 0) {
            let each = cost(report, busy) / size.max(1) as f64;
            kinds.entry(plan.locate(bundle).0).or_default().push(each);
        }
    }
    let usual: BTreeMap<u32, f64> =
        kinds.into_iter().filter_map(|(group, each)| median(each).map(|each| (group, each))).collect();
    let of = |report: &Report| {
        let slow = report.bundles.iter().filter_map(|&(bundle, busy, size)| {
            let group = plan.locate(bundle).0;
            // Bundles of one partition have nothing to be compared with.
            let usual = usual.get(&group).filter(|_| plan.groups[group as usize].partitions > 1)?;
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
