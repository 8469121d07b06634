//! The analytic predictor (monotasks-sosp17 §6.1 and §6.2): the sum over spans of the largest ideal time.
//! A prediction scales the measured time by the sum after the change over the sum before.
//!
//! Changes only scale sums, so the sums are computed once and a prediction takes time linear in the
//! number of spans. The crate documentation explains why spans are summed and not stages.

use std::collections::BTreeMap;

use pellucid_trace::{Phase, Trace, kind, union_ns};

use super::scenario::{OtherStorage, Terms};
use crate::Bottleneck;
use crate::capacity::Capacity;
use crate::demand::{Demands, brings_in};
use crate::job::{TIE, cuts};
use crate::ratio;

/// Demands on one resource within a span, by the changes that affect them.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Reads and fetches of input.
    input: f64,
    /// Decoding.
    decode: f64,
    /// Demands that any resource of the kind could have served.
    movable: f64,
    /// Writes of output.
    output: f64,
    /// The rest.
    fixed: f64,
}

/// A class of demand: a field of [`Load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Input,
    Movable,
    Output,
    Fixed,
}

/// A resource as used by the sums.
#[derive(Debug, Clone)]
struct Resource {
    name: String,
    kind: String,
    /// Per nanosecond; 1 where busy time stands for ideal time.
    rate: f64,
    timed: bool,
    /// True if it takes part in no maximum.
    opaque: bool,
}

/// All jobs of a trace as sums.
#[derive(Debug, Clone)]
pub(crate) struct Analytic {
    resources: Vec<Resource>,
    machines: f64,
    /// By span: loads by resource.
    spans: Vec<BTreeMap<usize, Load>>,
    /// By span: bytes of input (including cached ones) and of output, wherever they are stored.
    moved: Vec<(f64, f64)>,
    /// By span: its job.
    members: Vec<usize>,
    jobs: Vec<BTreeMap<String, Vec<usize>>>,
}

impl Analytic {
    /// Sums a trace's demands.
    pub fn of(trace: &Trace, demands: &Demands, capacities: &[Capacity]) -> Analytic {
        let resources = trace.resources.iter().zip(capacities).enumerate().map(|(ix, (r, c))| Resource {
            name: r.name.clone(),
            kind: r.kind.clone(),
            rate: c.rate.unwrap_or(1.0),
            timed: demands.timed[ix],
            opaque: demands.opaque[ix],
        });
        let mut analytic = Analytic {
            resources: resources.collect(),
            machines: trace.machines.len().max(1) as f64,
            spans: Vec::new(),
            moved: Vec::new(),
            members: Vec::new(),
            jobs: Vec::new(),
        };
        for job in 0..trace.jobs.len() {
            analytic.add_job(trace, demands, capacities, job);
        }
        analytic
    }

    fn add_job(&mut self, trace: &Trace, demands: &Demands, capacities: &[Capacity], job: usize) {
        let cuts = cuts(demands, job);
        let Some(last) = cuts.len().checked_sub(1) else { return };
        let mut spans: Vec<BTreeMap<usize, Load>> = vec![BTreeMap::new(); last.max(1)];
        let mut moved = vec![(0.0, 0.0); spans.len()];
        let mut busy: BTreeMap<(usize, usize, Class), Vec<(u64, u64)>> = BTreeMap::new();
        for demand in demands.of_job(job) {
            let monotask = demands.monotask(demand);
            let class = match monotask.phase {
                phase
                    if brings_in(phase)
                        && (phase == Phase::Read || self.is_store(trace, monotask.resource)) =>
                {
                    Class::Input
                }
                _ if demand.movable => Class::Movable,
                Phase::Write => Class::Output,
                _ => Class::Fixed,
            };
            let decode = monotask.decode_ns.filter(|_| demands.on_cores(demand)).unwrap_or(0) as f64;
            let decode = (decode / monotask.service_ns.max(1) as f64).min(1.0);
            let first =
                cuts.partition_point(|c| *c <= demand.start_ns).saturating_sub(1).min(spans.len() - 1);
            for span in first..spans.len() {
                if span > first && cuts[span] >= demand.end_ns {
                    break;
                }
                let until = cuts.get(span + 1).copied().unwrap_or(demand.end_ns);
                let amount = demand.within(cuts[span], until);
                match class {
                    Class::Input if demand.own => moved[span].0 += amount,
                    Class::Output if demand.own => moved[span].1 += amount,
                    _ if demands.on_cores(demand) => {
                        let share = ratio(amount, demand.amount).unwrap_or(1.0);
                        moved[span].0 += monotask.cached_bytes.unwrap_or(0) as f64 * share;
                    }
                    _ => {}
                }
                let load = spans[span].entry(demand.resource).or_default();
                if capacities[demand.resource].rate.is_none() {
                    let part = (demand.start_ns.max(cuts[span]), demand.end_ns.min(until));
                    busy.entry((span, demand.resource, class)).or_default().push(part);
                } else {
                    load.add(class, amount, decode);
                }
            }
        }
        for ((span, resource, class), parts) in busy {
            spans[span].entry(resource).or_default().add(class, union_ns(parts) as f64, 0.0);
        }
        let mut members: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (ix, resource) in self.resources.iter().enumerate().filter(|(_, r)| !r.opaque) {
            if resource.timed || spans.iter().any(|span| span.contains_key(&ix)) {
                members.entry(resource.kind.clone()).or_default().push(ix);
            }
        }
        self.members.extend(spans.iter().map(|_| self.jobs.len()));
        self.jobs.push(members);
        self.spans.extend(spans);
        self.moved.extend(moved);
    }

    fn is_store(&self, trace: &Trace, resource: u32) -> bool {
        trace.resources.get(resource as usize).is_some_and(|r| r.kind == kind::STORE)
    }

    /// Returns the modelled time under changes, with the kinds in `without` removed.
    pub fn modelled_ns(&self, terms: &Terms, without: &[&str]) -> f64 {
        let spans = self.spans.iter().zip(&self.members).zip(&self.moved);
        spans
            .map(|((span, job), moved)| {
                let kinds = self.jobs[*job].iter().filter(|(kind, _)| !without.contains(&kind.as_str()));
                let there = kinds.map(|(kind, members)| self.limit_ns(span, kind, members, terms).0);
                let storage = terms.storage.as_ref().filter(|e| !without.contains(&e.kind));
                let storage = storage.map_or(0.0, |e| self.storage_ns(e, *moved, terms));
                there.fold(storage, f64::max)
            })
            .sum()
    }

    /// Returns the time to move input and output at their new storage.
    fn storage_ns(&self, e: &OtherStorage, (input, output): (f64, f64), terms: &Terms) -> f64 {
        if terms.free[e.resource] {
            return 0.0;
        }
        let input = if terms.no_input { 0.0 } else { input };
        let faster = terms.faster[e.resource] * self.machines * terms.machines;
        (input / e.read + output / e.write) * terms.scale / faster
    }

    /// Returns a kind's limit within a span, and the resource that takes longest.
    fn limit_ns(
        &self,
        span: &BTreeMap<usize, Load>,
        kind: &str,
        members: &[usize],
        terms: &Terms,
    ) -> (f64, usize) {
        let crossing = if kind == kind::NETWORK { terms.crossing } else { 1.0 };
        let (mut amount, mut rates, mut fixed_ns, mut largest) = (0.0, 0.0, 0.0, (-1.0, members[0]));
        for ix in members {
            let rate = self.resources[*ix].rate * terms.faster.get(*ix).copied().unwrap_or(1.0);
            rates += rate;
            let Some(load) = span.get(ix).filter(|_| !terms.free.get(*ix).copied().unwrap_or(false)) else {
                continue;
            };
            let (all, fixed) = load.under(terms);
            amount += all * crossing;
            fixed_ns = f64::max(fixed_ns, fixed * crossing / rate);
            if all / rate > largest.0 {
                largest = (all / rate, *ix);
            }
        }
        rates *= terms.machines;
        fixed_ns /= terms.machines;
        if let Some(disks) = terms.disks.filter(|_| kind == kind::DISK) {
            // The bytes then lie evenly on that many disks of the same kind.
            rates = rates / members.len() as f64 * disks as f64 * self.machines;
            fixed_ns = 0.0;
        }
        let ideal_ns = ratio(amount, rates).unwrap_or(0.0);
        (ideal_ns.max(fixed_ns), largest.1)
    }

    /// Returns the kind whose removal lowers the modelled time most, chosen as in [`crate::analyze`].
    pub fn bottleneck(&self, terms: &Terms) -> Option<Bottleneck> {
        let all = self.modelled_ns(terms, &[]);
        let mut limits: BTreeMap<&str, (f64, usize, f64)> = BTreeMap::new();
        for ((span, job), moved) in self.spans.iter().zip(&self.members).zip(&self.moved) {
            if let Some(e) = &terms.storage {
                limits.entry(e.kind).or_insert((0.0, 0, 0.0)).0 += self.storage_ns(e, *moved, terms);
            }
            for (kind, members) in &self.jobs[*job] {
                let (limit, largest) = self.limit_ns(span, kind, members, terms);
                let entry = limits.entry(kind).or_insert((0.0, largest, 0.0));
                entry.0 += limit;
                if limit > entry.2 {
                    (entry.1, entry.2) = (largest, limit);
                }
            }
        }
        let savings: Vec<(&str, f64, (f64, usize))> = limits
            .into_iter()
            .filter(|(_, (limit, ..))| *limit > 0.0)
            .map(|(kind, (limit, largest, _))| {
                (kind, all - self.modelled_ns(terms, &[kind]), (limit, largest))
            })
            .collect();
        let most = savings.iter().map(|(_, saving, _)| *saving).fold(0.0, f64::max);
        let equal = savings.iter().filter(|(_, saving, _)| *saving >= most - TIE * all);
        let (kind, _, (_, largest)) = equal.max_by(|a, b| a.2.0.total_cmp(&b.2.0))?;
        let storage = terms.storage.as_ref().filter(|e| e.kind == *kind);
        let name = storage.map_or(&self.resources[*largest].name, |e| &e.name);
        Some(Bottleneck { kind: (*kind).to_string(), name: Some(name.clone()) })
    }
}

impl Load {
    fn add(&mut self, class: Class, amount: f64, decode: f64) {
        self.decode += amount * decode;
        let rest = amount * (1.0 - decode);
        match class {
            Class::Input => self.input += rest,
            Class::Movable => self.movable += rest,
            Class::Output => self.output += rest,
            Class::Fixed => self.fixed += rest,
        }
    }

    /// Returns all of the load under changes, and the part that cannot move to another resource.
    fn under(&self, terms: &Terms) -> (f64, f64) {
        let storage = terms.storage.is_some();
        let input = if terms.no_input || storage { 0.0 } else { self.input };
        let output = if storage { 0.0 } else { self.output };
        let decode = if terms.no_decode { 0.0 } else { self.decode };
        let fixed = (input + output + self.fixed) * terms.scale;
        (fixed + (decode + self.movable) * terms.scale, fixed)
    }
}
