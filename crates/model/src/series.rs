//! The use of each resource over time, for charts.

use pellucid_trace::{Trace, union_ns};

use crate::index::{Ix, ResourceIx, Table};
use crate::monotasks::capacity::capacities;
use crate::monotasks::demand::{Demand, Demands};
use crate::numbers::ratio;

/// The use of one resource over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Index of the resource in the trace.
    pub resource: usize,
    /// Cores or slots, or bytes per second. `None` if unknown; use is then the share of time that it
    /// served anything.
    pub capacity: Option<f64>,
    /// The source of the capacity.
    pub capacity_from: Option<String>,
    /// Ideal time over length, for each of the equal parts. Values may exceed 1 a little, where the
    /// resource was faster than its capacity.
    pub utilization: Vec<f64>,
}

/// Returns the use between two times of every resource that served something, in `parts` equal parts.
/// Without a capacity, the use is the share of time during which the resource served anything. Empty if
/// `parts` or the time is 0.
pub fn series(trace: &Trace, from_ns: u64, to_ns: u64, parts: usize) -> Vec<Series> {
    if parts == 0 || to_ns <= from_ns {
        return Vec::new();
    }
    let demands = Demands::of(trace);
    let capacities = capacities(trace, &demands);
    let mut by_resource: Table<ResourceIx, Vec<&Demand>> = Table::filled(trace.resources.len(), Vec::new());
    let within = |d: &&Demand| d.end_ns >= from_ns && d.start_ns < to_ns;
    for demand in demands.all.iter().filter(within) {
        by_resource[demand.resource].push(demand);
    }
    let served = by_resource.rows().filter(|(ix, s)| !s.is_empty() && !demands.opaque[*ix]);
    served
        .map(|(resource, served)| {
            let capacity = &capacities[resource];
            Series {
                resource: resource.at(),
                capacity: capacity.per_s(demands.timed[resource]),
                capacity_from: capacity.from.clone(),
                utilization: utilization(served, capacity.rate, from_ns, to_ns, parts),
            }
        })
        .collect()
}

fn utilization(served: &[&Demand], rate: Option<f64>, from_ns: u64, to_ns: u64, parts: usize) -> Vec<f64> {
    let edge = |part: usize| from_ns + ((to_ns - from_ns) as u128 * part as u128 / parts as u128) as u64;
    let part_of =
        |at: u64| ((at.saturating_sub(from_ns)) as u128 * parts as u128 / (to_ns - from_ns) as u128) as usize;
    let mut amount = vec![0.0; parts];
    let mut busy = vec![Vec::new(); parts];
    for demand in served {
        let last = part_of(demand.end_ns).min(parts - 1);
        for part in part_of(demand.start_ns).saturating_sub(1)..=last {
            let (from, to) = (edge(part), edge(part + 1));
            if demand.end_ns == demand.start_ns && !(from..to).contains(&demand.start_ns) {
                continue;
            }
            amount[part] += demand.within(from, to);
            busy[part].push((demand.start_ns.max(from), demand.end_ns.min(to)));
        }
    }
    let length = |part: usize| (edge(part + 1) - edge(part)) as f64;
    (0..parts)
        .map(|part| {
            let used = match rate {
                Some(rate) => amount[part] / rate,
                None => union_ns(std::mem::take(&mut busy[part])) as f64,
            };
            ratio(used, length(part)).unwrap_or(0.0)
        })
        .collect()
}
