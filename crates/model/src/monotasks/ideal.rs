//! Ideal times by kind of resource, from the demands on each resource (monotasks-sosp17 §6.1). The limit
//! and the imbalance go beyond the paper; see the crate documentation.

use std::collections::BTreeMap;

use pellucid_trace::{Trace, union_ns};

use super::capacity::Capacity;
use super::demand::{Demand, Demands};
use super::spans::Members;
use crate::analysis::{Bottleneck, KindUse, ResourceUse};
use crate::index::{Ix, ResourceIx, Table};
use crate::numbers::{ms, ratio};

/// The total demand on one resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    amount: f64,
    movable: f64,
    service: Vec<(u64, u64)>,
}

/// Demands by resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loads(BTreeMap<ResourceIx, Load>);

impl Loads {
    /// Adds a whole demand.
    pub fn add(&mut self, demand: &Demand) {
        self.add_within(demand, demand.start_ns, demand.end_ns);
    }

    /// Adds the part of a demand between two times, and returns its amount.
    pub fn add_within(&mut self, demand: &Demand, from_ns: u64, to_ns: u64) -> f64 {
        let amount = demand.within(from_ns, to_ns);
        let load = self.0.entry(demand.resource).or_default();
        load.amount += amount;
        if demand.movable {
            load.movable += amount;
        }
        load.service.push((demand.start_ns.max(from_ns), demand.end_ns.min(to_ns)));
        amount
    }

    /// Returns true if there is a demand on a resource.
    pub fn contains(&self, resource: ResourceIx) -> bool {
        self.0.contains_key(&resource)
    }

    /// Sums demands.
    pub fn of<'d>(demands: impl IntoIterator<Item = &'d Demand>) -> Loads {
        let mut loads = Loads::default();
        demands.into_iter().for_each(|d| loads.add(d));
        loads
    }
}

/// The time that a kind of resource needs for its demands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KindTime {
    pub ideal_ns: f64,
    pub limit_ns: f64,
    /// The resource with the largest ideal time.
    pub largest: Option<ResourceIx>,
    pub largest_ns: f64,
    pub resources: usize,
    pub imbalance: Option<f64>,
    pub from_busy_time: bool,
}

/// Returns the times of all kinds, by name.
pub(crate) fn kind_times<'t>(
    loads: &Loads,
    members: &Members<'t>,
    capacities: &Table<ResourceIx, Capacity>,
) -> BTreeMap<&'t str, KindTime> {
    members.iter().map(|(kind, members)| (*kind, kind_time(loads, members, capacities))).collect()
}

fn kind_time(loads: &Loads, members: &[ResourceIx], capacities: &Table<ResourceIx, Capacity>) -> KindTime {
    let mut time = KindTime { resources: members.len(), ..KindTime::default() };
    let (mut amount, mut rates, mut sum_ns, mut fixed_ns) = (0.0, 0.0, 0.0, 0.0);
    for ix in members {
        let load = loads.0.get(ix);
        let own_ns = match (load, capacities[*ix].rate) {
            (None, rate) => {
                rates += rate.unwrap_or(0.0);
                0.0
            }
            (Some(load), Some(rate)) => {
                amount += load.amount;
                rates += rate;
                fixed_ns = f64::max(fixed_ns, (load.amount - load.movable) / rate);
                load.amount / rate
            }
            (Some(load), None) => {
                time.from_busy_time = true;
                let busy = union_ns(load.service.clone()) as f64;
                fixed_ns = f64::max(fixed_ns, busy);
                busy
            }
        };
        sum_ns += own_ns;
        if time.largest.is_none() || own_ns > time.largest_ns {
            (time.largest, time.largest_ns) = (Some(*ix), own_ns);
        }
    }
    let mean_ns = ratio(sum_ns, members.len() as f64).unwrap_or(0.0);
    // Without all capacities there is no total capacity, so every resource has the same weight.
    time.ideal_ns = if time.from_busy_time { mean_ns } else { ratio(amount, rates).unwrap_or(0.0) };
    time.limit_ns = time.ideal_ns.max(fixed_ns);
    time.imbalance = ratio(time.largest_ns, mean_ns).filter(|_| members.len() > 1);
    time
}

/// Converts a kind's times for the analysis; queue and service times are summed over `used`.
pub(crate) fn kind_uses<'d>(
    trace: &Trace,
    demands: &Demands,
    times: &BTreeMap<&str, KindTime>,
    used: impl IntoIterator<Item = &'d Demand>,
    duration_ms: Option<f64>,
) -> BTreeMap<String, KindUse> {
    let mut uses: BTreeMap<String, KindUse> = times
        .iter()
        .map(|(kind, time)| {
            let ideal_ms = ms(time.ideal_ns);
            let used = KindUse {
                ideal_ms,
                limit_ms: ms(time.limit_ns),
                largest: time.largest.map(|ix| trace.resources[ix.at()].name.clone()),
                largest_ms: ms(time.largest_ns),
                resources: time.resources,
                imbalance: time.imbalance,
                from_busy_time: time.from_busy_time,
                utilization: duration_ms.and_then(|d| ratio(ideal_ms, d)),
                // An unused kind has measured zeros; the loop below fills in the others.
                queue_ms: (time.limit_ns == 0.0).then_some(0.0),
                service_ms: (time.limit_ns == 0.0).then_some(0.0),
            };
            ((*kind).to_owned(), used)
        })
        .collect();
    for demand in used.into_iter().filter(|d| d.own) {
        if let Some(used) = uses.get_mut(&trace.resources[demand.resource.at()].kind) {
            let monotask = demands.monotask(demand);
            *used.queue_ms.get_or_insert(0.0) += ms(monotask.queue_ns as f64);
            *used.service_ms.get_or_insert(0.0) += ms(monotask.service_ns as f64);
        }
    }
    uses
}

/// Returns the kind with the largest limit, if any has one.
pub(crate) fn largest_limit(trace: &Trace, times: &BTreeMap<&str, KindTime>) -> Option<Bottleneck> {
    let used = times.iter().filter(|(_, t)| t.limit_ns > 0.0);
    let (kind, time) = used.max_by(|a, b| a.1.limit_ns.total_cmp(&b.1.limit_ns))?;
    Some(bottleneck(trace, kind, time))
}

/// Builds a bottleneck from a kind and its resource with the largest ideal time.
pub(crate) fn bottleneck(trace: &Trace, kind: &str, time: &KindTime) -> Bottleneck {
    Bottleneck { kind: kind.to_owned(), name: time.largest.map(|ix| trace.resources[ix.at()].name.clone()) }
}

/// Returns the use of every resource over the whole trace.
pub(crate) fn resources(
    trace: &Trace,
    demands: &Demands,
    capacities: &Table<ResourceIx, Capacity>,
) -> Vec<ResourceUse> {
    let loads = Loads::of(&demands.all);
    let each = trace.resources.iter().zip(capacities.rows());
    each.map(|(resource, (ix, capacity))| {
        let own = kind_time(&loads, &[ix], capacities);
        ResourceUse {
            name: resource.name.clone(),
            kind: resource.kind.clone(),
            machine: trace.machines.get(resource.machine as usize).map(|m| m.name.clone()),
            capacity: capacity.per_s(demands.timed[ix]),
            capacity_from: capacity.from.clone(),
            ideal_ms: (!demands.opaque[ix]).then(|| ms(own.ideal_ns)),
        }
    })
    .collect()
}
