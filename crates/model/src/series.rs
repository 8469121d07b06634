//! Use of each resource over time, for pictures.

use pellucid_trace::{Trace, union_ns};

use crate::capacity::capacities;
use crate::demand::{Demand, Demands};
use crate::ratio;

/// One resource's use over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Index of the resource in the trace.
    pub resource: usize,
    /// Cores or slots, or bytes per second; `None`: use is the part of the time during which it served anything.
    pub capacity: Option<f64>,
    /// Where the capacity is known from.
    pub capacity_from: Option<String>,
    /// Ideal ÷ length of each of the equal parts of the time asked for. At most
    /// a little over 1: more means that the resource was faster than its capacity says.
    pub utilization: Vec<f64>,
}

/// The use of every resource that served something between two times, cut in
/// `parts` equal parts. Where the resource has no capacity, the part of the time
/// during which it served anything. Empty when `parts` is 0 or the time is.
pub fn series(trace: &Trace, from_ns: u64, to_ns: u64, parts: usize) -> Vec<Series> {
    if parts == 0 || to_ns <= from_ns {
        return Vec::new();
    }
    let demands = Demands::of(trace);
    let capacities = capacities(trace, &demands);
    let mut by_resource: Vec<Vec<&Demand>> = vec![Vec::new(); trace.resources.len()];
    let within = |d: &&Demand| d.end_ns >= from_ns && d.start_ns < to_ns;
    for demand in demands.all.iter().filter(within) {
        by_resource[demand.resource].push(demand);
    }
    let served = by_resource.iter().enumerate().filter(|(ix, s)| !s.is_empty() && !demands.opaque[*ix]);
    served
        .map(|(resource, served)| {
            let capacity = &capacities[resource];
            Series {
                resource,
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
