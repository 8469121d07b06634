//! Both predictors for traces of monotasks.

mod analytic;
mod columns;
mod curve;
mod memory;
mod operators;
mod query;
mod recorded;
mod rework;
mod rows;
mod scenario;
mod service;
mod simulate;

use pellucid_trace::{Phase, Trace, kind};

use crate::analysis::Bottleneck;
use crate::index::{StageIx, Table};
use crate::monotasks::capacity::capacities;
use crate::monotasks::demand::Demands;
use crate::monotasks::spans::explained;
use crate::numbers::{measured_ns, ms, ratio};
use crate::whatif::parallel::join;
use crate::whatif::{Baseline, Basis, Changes, Estimate, Tasks, WhatIfError};
use analytic::Analytic;
use recorded::{Order, Recorded};
use rows::Reach;
use scenario::{Scenario, Terms};
use simulate::simulate;

/// Nine in ten runs of a job that waits only for cores differ from another run by less, as a logarithm: the ten queries of
/// `python -m bench.slowed --seed 1`, each predicted from one run.
const CORE_TIME_VARIES: f64 = 0.147;

/// A recorded job, prepared for both predictors.
pub(crate) struct Monotasks<'t> {
    recorded: Recorded,
    analytic: Analytic<'t>,
    unchanged: Terms,
    measured_ms: f64,
    modelled_ms: Option<f64>,
    spread: f64,
    singles: Vec<String>,
}

impl<'t> Monotasks<'t> {
    /// Prepares a trace.
    pub fn of(trace: &'t Trace) -> Monotasks<'t> {
        let (order, demands) = join(|| Order::of(trace), || Demands::of(trace));
        let mut capacities = capacities(trace, &demands);
        let services = service::services(trace, &demands, &capacities);
        for (capacity, service) in capacities.iter_mut().zip(&services) {
            *capacity = service.capacity.clone();
        }
        let analyse = || (Analytic::of(trace, &demands, &capacities), spread(trace), singles(trace));
        let ((analytic, spread, singles), recorded) = join(analyse, || {
            let mut recorded = Recorded::of(trace, &demands, services, order);
            rework::bundle(&mut recorded);
            recorded
        });
        let unchanged = Scenario::terms(&recorded);
        let modelled = analytic.modelled_ns(&unchanged);
        Monotasks {
            measured_ms: ms(measured_ns(trace) as f64),
            modelled_ms: (modelled > 0.0).then(|| ms(modelled)),
            recorded,
            analytic,
            unchanged,
            spread,
            singles,
        }
    }
}

impl Monotasks<'_> {
    /// Returns how much less and more than `likely` the job takes if changes reach as far as they can, or no farther
    /// than they must, as logarithms.
    fn bounds(&self, changes: &Changes, likely: u64) -> Result<(f64, f64), WhatIfError> {
        let (mut faster, mut slower) = (0.0_f64, 0.0_f64);
        for reach in [Reach::Least, Reach::Most] {
            let bound = Scenario::of(&self.recorded, changes, reach)?;
            let simulated = simulate(&bound.recorded, &bound.terms.free);
            let times = simulated.and_then(|ns| ratio(ns as f64, likely as f64)).filter(|times| *times > 0.0);
            let apart = times.map_or(0.0, f64::ln);
            (faster, slower) = (faster.max(-apart), slower.max(apart));
        }
        Ok((faster, slower))
    }
}

impl Basis for Monotasks<'_> {
    fn tasks(&self) -> Tasks {
        Tasks::Monotasks
    }

    fn baseline(&self) -> Baseline {
        let simulated = simulate(&self.recorded, &self.unchanged.free);
        Baseline {
            measured_ms: self.measured_ms,
            modelled_ms: self.modelled_ms,
            simulated_ms: simulated.map(|ns| ms(ns as f64)),
        }
    }

    fn bottleneck(&self) -> Option<Bottleneck> {
        let limits = self.modelled_ms.is_some_and(|ideal_ms| explained(ideal_ms, self.measured_ms));
        self.analytic.modelled(&self.unchanged).1.filter(|_| limits)
    }

    fn spread(&self) -> f64 {
        self.spread
    }

    fn estimate(&self, changes: &Changes) -> Result<Estimate, WhatIfError> {
        let scenario = Scenario::of(&self.recorded, changes, Reach::Likely)?;
        let (modelled, bottleneck) = self.analytic.modelled(&scenario.terms);
        let simulated = simulate(&scenario.recorded, &scenario.terms.free);
        let mut uncertainty = scenario.uncertainty;
        if let Some(likely) = simulated.filter(|_| scenario.reaches) {
            let (faster, slower) = self.bounds(changes, likely)?;
            uncertainty = (uncertainty.0 + faster, uncertainty.1 + slower);
        }
        if changes.is_of_code() {
            let varies = CORE_TIME_VARIES * self.analytic.share_of_cores(&scenario.terms);
            uncertainty = (uncertainty.0.hypot(varies), uncertainty.1.hypot(varies));
        }
        Ok(Estimate {
            analytic_ms: self.modelled_ms.map(|_| ms(modelled)),
            simulated_ms: simulated.map(|ns| ms(ns as f64)),
            bottleneck,
            assumptions: scenario.assumptions,
            uncertainty,
        })
    }

    fn singles(&self) -> Vec<String> {
        self.singles.clone()
    }
}

/// Returns the single changes that apply to this trace.
fn singles(trace: &Trace) -> Vec<String> {
    let mut used: Vec<&str> = Vec::new();
    let mut input = false;
    let mut decoded = false;
    for monotask in &trace.monotasks {
        let Some(resource) = trace.resources.get(monotask.resource as usize) else { continue };
        if !used.contains(&resource.kind.as_str()) {
            used.push(&resource.kind);
        }
        input |= matches!(
            (monotask.phase, resource.kind.as_str()),
            (Phase::Read, _) | (Phase::Fetch, kind::STORE)
        );
        decoded |= monotask.decode_ns.is_some_and(|ns| ns > 0);
    }
    let mut singles = vec!["cores=x2".to_string()];
    if used.contains(&kind::DISK) {
        singles.extend(["disk.rate=x2".to_string(), "disks=x2".to_string()]);
    }
    for (kind, key) in [(kind::STORE, "store.rate=x2"), (kind::NETWORK, "network.rate=x2")] {
        singles.extend(used.contains(&kind).then(|| key.to_string()));
    }
    singles.extend(input.then(|| "input=memory".to_string()));
    singles.extend(decoded.then(|| "input=memory-decoded".to_string()));
    singles.extend((trace.machines.len() > 1).then(|| "machines=x2".to_string()));
    singles.extend(query::candidates(trace));
    used.sort_unstable();
    singles.extend(used.iter().map(|kind| format!("no={kind}")));
    singles
}

/// Returns the relative standard error of the sum of service times, if each stage's times were drawn anew
/// from the recorded ones.
fn spread(trace: &Trace) -> f64 {
    let mut stages: Table<StageIx, _> = Table::filled(trace.stages.len(), (0.0, 0.0, 0.0));
    for monotask in trace.monotasks.iter().filter(|m| m.phase == Phase::Compute) {
        let task = trace.multitasks.get(monotask.multitask as usize);
        let Some(stage) = task.and_then(|t| stages.get_mut(StageIx(t.stage))) else { continue };
        let took = monotask.service_ns as f64;
        stage.0 += 1.0;
        stage.1 += took;
        stage.2 += took * took;
    }
    let total: f64 = stages.iter().map(|s| s.1).sum();
    let of_stage = |s: &(f64, f64, f64)| if s.0 > 1.0 { (s.2 - s.1 * s.1 / s.0).max(0.0) } else { 0.0 };
    ratio(stages.iter().map(of_stage).sum::<f64>().sqrt(), total).unwrap_or(0.0)
}
